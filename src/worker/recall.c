#include "worker/recall.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define FIRST_LINK  "hearth turn 1\n"  /* rises when the normal form changes */
#define EXACT_BELOW 9007199254740992.0 /* 2^53 */

/*
 * The normal form
 */
static void put_value(json_w *w, const json *v);

typedef struct member {
    const char *key;
    const json *value;
} member;

typedef struct member_list {
    member *at;
    size_t n;
} member_list;

static bool add_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    member_list *l = ctx;
    l->at[l->n++] = (member){key, v};
    return true;
}

static int by_key(const void *a, const void *b)
{
    const member *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static void put_object(json_w *w, const json *v)
{
    member_list l = {mem_alloc_array(json_len(v) + 1, sizeof *l.at), 0};
    if (!l.at) {
        w->st = ST_NOMEM;
        return;
    }
    json_each(v, add_member, &l);
    qsort(l.at, l.n, sizeof *l.at, by_key);
    json_w_obj_open(w);
    for (size_t i = 0; i < l.n; i++) {
        json_w_key(w, l.at[i].key);
        put_value(w, l.at[i].value);
    }
    json_w_obj_close(w);
    mem_free(l.at);
}

/* 1.0 is 1: that is how a client in JavaScript writes it. */
static void put_double(json_w *w, double x)
{
    if (x == floor(x) && fabs(x) < EXACT_BELOW) {
        json_w_i64(w, (int64_t)x);
    } else {
        json_w_f64(w, x);
    }
}

/* Recursion as deep as it nests, at most JSON_MAX_DEPTH. */
static void put_value(json_w *w, const json *v)
{
    double x;
    switch (json_kind(v)) {
    case JSON_OBJECT:
        put_object(w, v);
        break;
    case JSON_ARRAY:
        json_w_arr_open(w);
        for (size_t i = 0; i < json_len(v); i++) {
            put_value(w, json_at(v, i));
        }
        json_w_arr_close(w);
        break;
    case JSON_DOUBLE:
        if (json_f64(v, &x)) {
            put_double(w, x);
        }
        break;
    default:
        json_w_json(w, v);
    }
}

/* An object, also as its text; any other text is itself. */
static void put_arguments(json_w *w, const char *text, size_t len)
{
    json_doc *doc = NULL;
    if (json_parse(text, len, JSON_MAX_DEPTH / 2, &doc, NULL) == ST_OK &&
        json_kind(json_root(doc)) == JSON_OBJECT) {
        put_value(w, json_root(doc));
    } else {
        json_w_str(w, text, len);
    }
    json_doc_free(doc);
}

static void put_call(json_w *w, const json *call)
{
    const json *function = NULL, *name = NULL, *arguments = NULL;
    size_t len;
    json_get(call, "function", &function);
    json_get(function, "name", &name);
    json_get(function, "arguments", &arguments);
    const char *text = json_string(arguments, &len);
    json_w_json(w, name);
    if (text) {
        put_arguments(w, text, len);
    } else {
        put_value(w, arguments);
    }
}

static status add_content(const json *message, buf *out)
{
    const json *v = NULL;
    size_t len;
    status st = ST_OK;
    json_get(message, "content", &v);
    const char *text = json_string(v, &len);
    if (text) {
        return buf_append(out, text, len);
    }
    for (size_t i = 0; st == ST_OK && i < json_len(v); i++) {
        const json *part = NULL;
        json_get(json_at(v, i), "text", &part);
        text = json_string(part, &len);
        st = text ? buf_append(out, text, len) : ST_OK;
    }
    return st;
}

static const json *text_of(const json *message, const char *key)
{
    const json *v = NULL;
    json_get(message, key, &v);
    return json_kind(v) == JSON_STRING ? v : NULL;
}

static bool is_assistant(const json *message)
{
    size_t len;
    const char *role = json_string(text_of(message, "role"), &len);
    return role && strcmp(role, "assistant") == 0;
}

static status put_message(buf *out, const json *message)
{
    buf content = {0};
    const json *calls = NULL;
    json_w w;
    status st = add_content(message, &content);
    json_w_begin(&w, out);
    json_w_arr_open(&w);
    json_w_json(&w, text_of(message, "role"));
    json_w_str(&w, buf_str(&content), content.len);
    json_w_json(&w, text_of(message, "tool_call_id"));
    json_w_json(&w, is_assistant(message) ? NULL : text_of(message, "name"));
    json_get(message, "tool_calls", &calls);
    for (size_t i = 0; i < json_len(calls); i++) {
        put_call(&w, json_at(calls, i));
    }
    json_w_arr_close(&w);
    buf_release(&content);
    return st == ST_OK ? json_w_end(&w) : st;
}

/* The same of a reply. */
static status put_told(buf *out, const buf *head, const recall_told *told)
{
    buf content = {0};
    json_w w;
    status st = buf_append(&content, buf_str(head), head->len);
    st = st == ST_OK ? buf_append(&content, buf_str(&told->content), told->content.len) : st;
    json_w_begin(&w, out);
    json_w_arr_open(&w);
    json_w_cstr(&w, "assistant");
    json_w_str(&w, buf_str(&content), content.len);
    json_w_null(&w);
    json_w_null(&w);
    for (size_t i = 0; i < told->n_calls; i++) {
        const recall_call *c = &told->calls[i];
        if (!c->withdrawn) {
            json_w_str(&w, buf_str(&c->name), c->name.len);
            put_arguments(&w, buf_str(&c->arguments), c->arguments.len);
        }
    }
    json_w_arr_close(&w);
    buf_release(&content);
    return st == ST_OK ? json_w_end(&w) : st;
}

/* The next link: of key and text. scratch is emptied. */
static status chain(uint8_t key[SHA256_BYTES], buf *text)
{
    sha256 *h = NULL;
    status st = sha256_new(&h);
    st = st == ST_OK ? sha256_update(h, key, SHA256_BYTES) : st;
    st = st == ST_OK ? sha256_update(h, buf_str(text), text->len) : st;
    st = st == ST_OK ? sha256_final(h, key) : st;
    sha256_free(h);
    buf_reset(text);
    return st;
}

/*
 * Looking
 */
static status first_link(const wire_request *q, uint8_t key[SHA256_BYTES], buf *scratch)
{
    memset(key, 0, SHA256_BYTES);
    status st = buf_append_str(scratch, FIRST_LINK);
    st = st == ST_OK ? buf_append(scratch, q->cache_namespace.data, q->cache_namespace.len) : st;
    return st == ST_OK ? chain(key, scratch) : st;
}

static void note_turn(recall *r, size_t i, const turn *found)
{
    r->said[i] = found;
    if (found && found->n_reasoning > 0) {
        r->reasoning[i] = (chat_words){found->reasoning, found->n_reasoning};
        r->used = true;
    }
}

/* Chains all messages; the last one is no part of the key before a reply that continues it. */
static status look(recall *r, const wire_request *q, buf *scratch)
{
    uint8_t key[SHA256_BYTES];
    status st = first_link(q, key, scratch);
    for (size_t i = 0; st == ST_OK && i < r->n; i++) {
        const json *m = json_at(q->messages, i);
        memcpy(r->key, key, sizeof key);
        st = put_message(scratch, m);
        st = st == ST_OK ? chain(key, scratch) : st;
        if (st == ST_OK && is_assistant(m) && !q->resume) {
            note_turn(r, i, turns_get(r->from, key));
        }
    }
    if (!q->continue_final_message) {
        memcpy(r->key, key, sizeof key);
    } else if (st == ST_OK) {
        st = add_content(json_at(q->messages, r->n - 1), &r->head);
    }
    return st;
}

status recall_look(recall *r, turns *t, const wire_request *q)
{
    buf scratch = {0};
    if (!t) {
        return ST_OK;
    }
    r->from = t;
    r->said = mem_calloc(json_len(q->messages), sizeof(const turn *));
    r->reasoning = mem_calloc(json_len(q->messages), sizeof *r->reasoning);
    if (!r->said || !r->reasoning) {
        return ST_NOMEM;
    }
    r->n = json_len(q->messages);
    status st = look(r, q, &scratch);
    buf_release(&scratch);
    return st;
}

/*
 * Placing
 */
/* The first plain range that ends behind `at`. */
static size_t range_behind(const chat_text *c, size_t at)
{
    size_t lo = 0, hi = c->n_plain;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (c->plain[mid].to <= at) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static bool is_own(const chat_text *c, size_t from, size_t to)
{
    size_t i = range_behind(c, from);
    return i == c->n_plain || c->plain[i].from >= to;
}

/* The digest of a text up to one place after the other. */
typedef struct walker {
    const chat_text *c;
    sha256 *h; /* owned: of [0, at) */
    size_t at;
} walker;

/* to: not before w->at. */
static status walk_to(walker *w, size_t to, uint8_t digest[SHA256_BYTES])
{
    status st = sha256_update(w->h, buf_str(&w->c->text) + w->at, to - w->at);
    w->at = to;
    return st == ST_OK ? sha256_peek(w->h, "", 0, digest) : st;
}

static bool matches(const chat_text *c, size_t at, const char *text, size_t len)
{
    return len <= c->text.len - at && memcmp(buf_str(&c->text) + at, text, len) == 0;
}

/* Whether the turn stands at `from`, with control tokens in the template's own text only; *to: behind its tokens. */
static bool stands(const tokenizer *tok, const turn *t, const chat_text *c, size_t from, size_t *to)
{
    size_t at = from;
    for (size_t i = 0; i < t->n_ids; i++) {
        size_t len;
        const char *piece = tokenizer_piece(tok, t->ids[i], &len);
        token_kind kind = tokenizer_kind(tok, t->ids[i]);
        bool control = kind == TOKEN_CONTROL || kind == TOKEN_UNKNOWN;
        if (!matches(c, at, piece, len) || (control && (len == 0 || !is_own(c, at, at + len)))) {
            return false;
        }
        at += len;
    }
    *to = at;
    return matches(c, at, t->rest, t->n_rest);
}

/* Looks at one turn; those that begin before the place where the last one ended are passed over. */
static status place(recall *r, const tokenizer *tok, walker *w, const turn *t)
{
    uint8_t digest[SHA256_BYTES];
    size_t from = t->prompt_bytes, to = 0;
    size_t behind = r->n_splices > 0 ? r->splices[r->n_splices - 1].to : 1;
    if (t->n_ids == 0 || from < behind || from < w->at || from > w->c->text.len) {
        return ST_OK;
    }
    status st = walk_to(w, from, digest);
    if (st == ST_OK && memcmp(digest, t->prompt_digest, sizeof digest) == 0 &&
        stands(tok, t, w->c, from, &to)) {
        r->splices[r->n_splices++] = (chat_splice){from, to, t->ids, t->n_ids};
        r->used = true;
    }
    return st;
}

status recall_place(recall *r, const tokenizer *tok, const chat_text *text)
{
    walker w = {.c = text};
    if (!r->from) {
        return ST_OK;
    }
    mem_free(r->splices);
    r->n_splices = 0;
    r->splices = mem_alloc_array(r->n, sizeof *r->splices);
    status st = r->splices ? sha256_new(&w.h) : ST_NOMEM;
    for (size_t i = 0; st == ST_OK && i < r->n; i++) {
        st = r->said[i] ? place(r, tok, &w, r->said[i]) : ST_OK;
    }
    r->prompt_bytes = text->text.len;
    st = st == ST_OK ? walk_to(&w, r->prompt_bytes, r->prompt_digest) : st;
    sha256_free(w.h);
    return st;
}

void recall_settle(recall *r)
{
    for (size_t i = 0; i < r->n; i++) {
        turns_unget(r->from, r->said[i]);
    }
    mem_free(r->said);
    mem_free(r->reasoning);
    mem_free(r->splices);
    r->said = NULL;
    r->reasoning = NULL;
    r->splices = NULL;
    r->n = r->n_splices = 0;
}

void recall_release(recall *r)
{
    recall_settle(r);
    buf_release(&r->head);
    memset(r, 0, sizeof *r);
}

/*
 * Keeping
 */
void recall_told_release(recall_told *t)
{
    for (size_t i = 0; i < t->n_calls; i++) {
        buf_release(&t->calls[i].name);
        buf_release(&t->calls[i].arguments);
    }
    mem_free(t->calls);
    buf_release(&t->content);
    buf_release(&t->reasoning);
    memset(t, 0, sizeof *t);
}

status recall_text(const tokenizer *tok, const int32_t *ids, size_t n_ids, size_t n_shown, buf *out)
{
    buf bytes = {0};
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < n_ids; i++) {
        size_t len;
        const char *piece = tokenizer_piece(tok, ids[i], &len);
        st = buf_append(&bytes, piece, len);
    }
    st = st == ST_OK ? utf8_repair(out, buf_str(&bytes), bytes.len) : st;
    if (st == ST_OK && out->len > n_shown) {
        buf_truncate(out, n_shown);
    }
    buf_release(&bytes);
    return st;
}

/* How many of the tokens spell the beginning of the text, up to the end of a character; *bytes of it. */
static size_t whole_tokens(const tokenizer *tok, const int32_t *ids, size_t n_ids, const buf *text,
                           size_t *bytes)
{
    size_t at = 0, n = 0;
    *bytes = 0;
    for (size_t i = 0; i < n_ids; i++) {
        size_t len;
        const char *piece = tokenizer_piece(tok, ids[i], &len);
        if (len > text->len - at || memcmp(buf_str(text) + at, piece, len) != 0) {
            break;
        }
        at += len;
        bool continues = at < text->len && ((unsigned char)text->data[at] & 0xc0) == 0x80;
        if (!continues) {
            n = i + 1;
            *bytes = at;
        }
    }
    return n;
}

status recall_keep(const recall *r, const tokenizer *tok, const int32_t *ids, size_t n_ids, const buf *text,
                   const recall_told *told)
{
    buf normal = {0};
    turn t = {.prompt_bytes = r->prompt_bytes,
              .ids = ids,
              .reasoning = buf_str(&told->reasoning),
              .n_reasoning = told->reasoning.len};
    size_t at = 0;
    if (!r->from) {
        return ST_OK;
    }
    t.n_ids = whole_tokens(tok, ids, n_ids, text, &at);
    t.rest = buf_str(text) + at;
    t.n_rest = text->len - at;
    memcpy(t.key, r->key, sizeof t.key);
    memcpy(t.prompt_digest, r->prompt_digest, sizeof t.prompt_digest);
    status st = put_told(&normal, &r->head, told);
    st = st == ST_OK ? chain(t.key, &normal) : st;
    st = st == ST_OK ? turns_put(r->from, &t) : st;
    buf_release(&normal);
    return st;
}
