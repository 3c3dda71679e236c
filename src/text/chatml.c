#include "text/chatml.h"

#include <string.h>

#define MOST_PER_MESSAGE 4 /* start, role and content, end, line feed */
#define MOST_AROUND      4 /* a reply's end before, a reply's start behind */

static chatml_segment control(const char *text)
{
    return (chatml_segment){text, strlen(text), true};
}

static chatml_segment plain(const char *text, size_t len)
{
    return (chatml_segment){text, len, false};
}

/* ROLE\nCONTENT in one piece, so that a line feed that begins the content meets the one before it. */
static const char *join(const chatml_message *m, arena *mem, size_t *len)
{
    *len = m->role_len + 1 + m->content_len;
    char *text = arena_alloc(mem, *len);
    if (!text) {
        return NULL;
    }
    memcpy(text, m->role, m->role_len);
    text[m->role_len] = '\n';
    if (m->content_len > 0) {
        memcpy(text + m->role_len + 1, m->content, m->content_len);
    }
    return text;
}

status chatml_render(const chatml_message *messages, size_t n, unsigned flags, arena *mem,
                     const chatml_segment **out, size_t *n_out)
{
    size_t at = 0;
    if (n > (SIZE_MAX - MOST_AROUND) / MOST_PER_MESSAGE) {
        return ST_NOMEM;
    }
    chatml_segment *s = arena_alloc_array(mem, n * MOST_PER_MESSAGE + MOST_AROUND, sizeof *s);
    if (!s) {
        return ST_NOMEM;
    }
    if (flags & CHATML_CLOSES_REPLY) {
        s[at++] = control(CHATML_END);
        s[at++] = plain("\n", 1);
    }
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *text = join(&messages[i], mem, &len);
        if (!text) {
            return ST_NOMEM;
        }
        s[at++] = control(CHATML_START);
        s[at++] = plain(text, len);
        s[at++] = control(CHATML_END);
        s[at++] = plain("\n", 1);
    }
    if (flags & CHATML_GENERATION_PROMPT) {
        s[at++] = control(CHATML_START);
        s[at++] = plain("assistant\n", strlen("assistant\n"));
    }
    *out = s;
    *n_out = at;
    return ST_OK;
}

/* Bytes of text up to where a marker must be cut: behind its first byte. len if there is none. */
static size_t before_marker(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        size_t left = len - i;
        if (text[i] == '<' &&
            ((left >= strlen(CHATML_START) && memcmp(text + i, CHATML_START, strlen(CHATML_START)) == 0) ||
             (left >= strlen(CHATML_END) && memcmp(text + i, CHATML_END, strlen(CHATML_END)) == 0))) {
            return i + 1;
        }
    }
    return len;
}

/* Plain text in pieces that spell no marker: a vocabulary may hold one as an added token, and these are found
 * in every text. */
static status encode_plain(const tokenizer *t, const char *text, size_t len, unsigned flags, ivec *out)
{
    status st = ST_OK;
    while (st == ST_OK && len > 0) {
        size_t n = before_marker(text, len);
        st = tokenizer_encode(t, text, n, flags, out);
        flags |= TOKENIZE_NO_PREFIX;
        text += n;
        len -= n;
    }
    return st;
}

status chatml_encode(const tokenizer *t, const chatml_segment *segments, size_t n, ivec *out)
{
    size_t n_before = out->len;
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        const chatml_segment *s = &segments[i];
        unsigned flags = out->len > 0 ? TOKENIZE_NO_PREFIX : 0;
        st = s->control ? tokenizer_encode(t, s->text, s->len, flags | TOKENIZE_PARSE_SPECIAL, out)
                        : encode_plain(t, s->text, s->len, flags, out);
    }
    if (st != ST_OK) {
        ivec_truncate(out, n_before);
    }
    return st;
}

static bool is_marker(const tokenizer *t, const char *text)
{
    int32_t id = tokenizer_find(t, text, strlen(text));
    if (id == TOKEN_NONE) {
        return false;
    }
    token_kind kind = tokenizer_kind(t, id);
    return kind == TOKEN_CONTROL || kind == TOKEN_USER_DEFINED;
}

bool chatml_known(const tokenizer *t)
{
    return is_marker(t, CHATML_START) && is_marker(t, CHATML_END);
}
