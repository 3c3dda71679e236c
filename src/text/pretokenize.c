#include "text/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/mem.h"

/* Backtracking points of one attempt: one for each line break and a handful more; see pretokenize.h. */
#define MATCH_LIMIT_SPARE 100u
#define ERROR_TEXT_SIZE   128

struct pretokenizer {
    pcre2_general_context *general; /* owned, as all below */
    pcre2_compile_context *compile;
    pcre2_code *stage[PRETOKENIZE_MAX_STAGES];
    size_t n_stages;
};

static void *pcre_alloc(PCRE2_SIZE n, void *ctx)
{
    return mem_alloc(n);
}

static void pcre_free(void *p, void *ctx)
{
    mem_free(p);
}

static status stage_compile(pretokenizer *p, const char *pattern, err *e)
{
    int code;
    PCRE2_SIZE at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code,
                                   &at, p->compile);
    if (!re) {
        if (code == PCRE2_ERROR_HEAP_FAILED) {
            return ST_NOMEM;
        }
        unsigned char text[ERROR_TEXT_SIZE] = "";
        pcre2_get_error_message(code, text, sizeof text);
        return err_set(e, ST_INTERNAL, "tokenizer.ggml.pre", "pattern does not compile at %zu: %s",
                       (size_t)at, (const char *)text);
    }
    p->stage[p->n_stages++] = re;
    return ST_OK;
}

status pretokenizer_new(const pretokenize_family *family, pretokenizer **out, err *e)
{
    pretokenizer *p = mem_calloc(1, sizeof *p);
    if (!p) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    status st = ST_NOMEM;
    p->general = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    p->compile = p->general ? pcre2_compile_context_create(p->general) : NULL;
    if (!p->compile) {
        goto out;
    }
    st = ST_OK;
    for (size_t i = 0; st == ST_OK && family->patterns[i]; i++) {
        st = stage_compile(p, family->patterns[i], e);
    }
    if (st != ST_OK) {
        goto out;
    }
    *out = p;
    return ST_OK;
out:
    pretokenizer_free(p);
    return st == ST_NOMEM ? err_set(e, st, NULL, "out of memory") : st;
}

void pretokenizer_free(pretokenizer *p)
{
    if (p) {
        for (size_t i = 0; i < p->n_stages; i++) {
            pcre2_code_free(p->stage[i]);
        }
        pcre2_compile_context_free(p->compile);
        pcre2_general_context_free(p->general);
        mem_free(p);
    }
}

status pretokenize_cursor_init(pretokenize_cursor *c, const pretokenizer *p)
{
    memset(c, 0, sizeof *c);
    c->pre = p;
    c->match_data = pcre2_match_data_create(1, p->general);
    c->match_context = pcre2_match_context_create(p->general);
    return c->match_data && c->match_context ? ST_OK : ST_NOMEM;
}

void pretokenize_cursor_release(pretokenize_cursor *c)
{
    if (c) {
        pcre2_match_context_free(c->match_context);
        pcre2_match_data_free(c->match_data);
        memset(c, 0, sizeof *c);
    }
}

static void stage_begin(pretokenize_stage *s, size_t start, size_t end)
{
    *s = (pretokenize_stage){.start = start, .end = end, .at = start};
}

void pretokenize_start(pretokenize_cursor *c, const char *text, size_t len)
{
    c->text = text;
    c->depth = 1;
    pcre2_set_match_limit(c->match_context, (uint32_t)len + MATCH_LIMIT_SPARE); /* texts are below 4 GiB */
    stage_begin(&c->stage[0], 0, len);
}

/* The next match in what is left of the stage's piece; start = end where there is none. */
static status stage_find(pretokenize_cursor *c, size_t depth, size_t *start, size_t *end)
{
    const pretokenize_stage *s = &c->stage[depth];
    int rc = pcre2_match(c->pre->stage[depth], (PCRE2_SPTR)c->text + s->start, s->end - s->start,
                         s->at - s->start, PCRE2_NO_UTF_CHECK, c->match_data, c->match_context);
    if (rc >= 0) {
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(c->match_data);
        *start = s->start + at[0];
        *end = s->start + at[1];
        return ST_OK;
    }
    *start = *end = s->end;
    if (rc == PCRE2_ERROR_NOMATCH) {
        return ST_OK;
    }
    return rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT ? ST_NOMEM : ST_INTERNAL;
}

/* The stage's next piece: what lies before a match, then the match. */
static status stage_next(pretokenize_cursor *c, size_t depth, size_t *start, size_t *end)
{
    pretokenize_stage *s = &c->stage[depth];
    if (s->match_start == s->match_end) {
        status st = stage_find(c, depth, &s->match_start, &s->match_end);
        if (st != ST_OK) {
            return st;
        }
        if (s->match_start > s->at) {
            *start = s->at;
            *end = s->at = s->match_start;
            return ST_OK;
        }
    }
    *start = s->match_start;
    *end = s->at = s->match_end;
    s->match_start = s->match_end;
    return ST_OK;
}

status pretokenize_next(pretokenize_cursor *c, size_t *start, size_t *end)
{
    *start = *end = 0;
    while (c->depth > 0) {
        const pretokenize_stage *s = &c->stage[c->depth - 1];
        if (s->at == s->end) {
            c->depth--;
            continue;
        }
        size_t from, to;
        status st = stage_next(c, c->depth - 1, &from, &to);
        if (st != ST_OK) {
            return st;
        }
        if (c->depth == c->pre->n_stages) {
            *start = from;
            *end = to;
            return ST_OK;
        }
        stage_begin(&c->stage[c->depth++], from, to);
    }
    return ST_OK;
}
