/*
 * reply_collect: what a reply adds up to, from the parser's events; checks on the way what the contract says of
 * them. Tests and fuzzers share it (it aborts where a test would fail an assertion).
 */
#ifndef HEARTH_TESTS_REPLY_COLLECT_H
#define HEARTH_TESTS_REPLY_COLLECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/reply_parser.h"

#define COLLECT_CHECK(cond)                                            \
    do {                                                               \
        if (!(cond)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
            abort();                                                   \
        }                                                              \
    } while (0)

typedef struct collected_call {
    buf name, id, args;
    bool begun_with_id, ended, withdrawn;
} collected_call;

typedef struct collected {
    buf content, reasoning;
    collected_call *calls; /* [n] as begun */
    size_t n, cap;
    bool whole_characters; /* every delta must be */
    reply_end end;
    buf end_name;
} collected;

static inline status collect(void *ctx, const reply_event *ev)
{
    collected *c = ctx;
    COLLECT_CHECK(ev->kind == REPLY_CALL_WITHDRAWN || ev->len > 0);
    COLLECT_CHECK(!c->whole_characters || ev->kind == REPLY_CALL_WITHDRAWN ||
                  utf8_valid(ev->text, ev->len, NULL));
    if (ev->kind == REPLY_CONTENT || ev->kind == REPLY_REASONING) {
        return buf_append(ev->kind == REPLY_CONTENT ? &c->content : &c->reasoning, ev->text, ev->len);
    }
    if (ev->kind == REPLY_CALL_BEGIN) {
        COLLECT_CHECK(ev->call == (int)c->n);
        COLLECT_CHECK(c->n == 0 || c->calls[c->n - 1].ended || c->calls[c->n - 1].withdrawn);
        if (c->n == c->cap) {
            size_t cap = c->cap ? 2 * c->cap : 8;
            collected_call *calls = realloc(c->calls, cap * sizeof *calls);
            COLLECT_CHECK(calls);
            memset(calls + c->cap, 0, (cap - c->cap) * sizeof *calls);
            c->calls = calls;
            c->cap = cap;
        }
        c->n++;
        status st = buf_append(&c->calls[c->n - 1].name, ev->text, ev->len);
        c->calls[c->n - 1].begun_with_id = ev->id != NULL;
        return st;
    }
    COLLECT_CHECK(ev->call >= 0 && ev->call < (int)c->n);
    collected_call *call = &c->calls[ev->call];
    COLLECT_CHECK(!call->withdrawn);
    if (ev->kind == REPLY_CALL_WITHDRAWN) {
        call->withdrawn = true;
        return ST_OK;
    }
    COLLECT_CHECK(!call->ended && ev->call == (int)c->n - 1);
    if (ev->kind == REPLY_CALL_ARGS) {
        return buf_append(&call->args, ev->text, ev->len);
    }
    COLLECT_CHECK(ev->kind == REPLY_CALL_END);
    COLLECT_CHECK(ev->len == call->name.len && memcmp(ev->text, call->name.data, ev->len) == 0);
    COLLECT_CHECK(ev->id || !call->begun_with_id);
    call->ended = true;
    return ev->id ? buf_append(&call->id, ev->id, ev->id_len) : ST_OK;
}

static inline void collected_release(collected *c)
{
    for (size_t i = 0; i < c->n; i++) {
        buf_release(&c->calls[i].name);
        buf_release(&c->calls[i].id);
        buf_release(&c->calls[i].args);
    }
    free(c->calls);
    buf_release(&c->content);
    buf_release(&c->reasoning);
    buf_release(&c->end_name);
    memset(c, 0, sizeof *c);
}

static inline bool collected_counts(const collected_call *call)
{
    return call->ended && !call->withdrawn;
}

static inline int collected_n_calls(const collected *c)
{
    int n = 0;
    for (size_t i = 0; i < c->n; i++) {
        n += collected_counts(&c->calls[i]);
    }
    return n;
}

/* The i-th call that counts. */
static inline const collected_call *collected_at(const collected *c, int i)
{
    for (size_t k = 0; k < c->n; k++) {
        if (collected_counts(&c->calls[k]) && i-- == 0) {
            return &c->calls[k];
        }
    }
    return NULL;
}

/* Length of the next piece of `left` bytes. */
typedef size_t (*collect_cut_fn)(void *ctx, size_t left);

/* Feeds the whole text, cut by `piece` (NULL: uncut). c is empty before. */
static inline status collect_text(collected *c, const reply_options *o, const char *text, size_t len,
                                  bool cut, collect_cut_fn piece, void *ctx)
{
    reply_parser *p = NULL;
    status st = reply_parser_new(o, collect, c, &p);
    for (size_t at = 0; st == ST_OK && at < len;) {
        size_t n = piece ? piece(ctx, len - at) : len;
        st = reply_parser_push(p, text + at, n);
        at += n;
        COLLECT_CHECK(st != ST_OK || reply_parser_calls(p) == collected_n_calls(c));
    }
    if (st == ST_OK) {
        st = reply_parser_finish(p, cut, &c->end);
    }
    if (st == ST_OK) {
        COLLECT_CHECK(reply_parser_calls(p) == collected_n_calls(c));
        st = c->end.call_name ? buf_append(&c->end_name, c->end.call_name, c->end.call_name_len) : ST_OK;
    }
    reply_parser_free(p);
    return st;
}

static inline bool same_text(const buf *a, const buf *b)
{
    return a->len == b->len && memcmp(buf_str(a), buf_str(b), a->len) == 0;
}

/* Down to the calls that were withdrawn or cut. */
static inline bool collected_equal(const collected *a, const collected *b)
{
    if (a->n != b->n || !same_text(&a->content, &b->content) || !same_text(&a->reasoning, &b->reasoning) ||
        a->end.complete != b->end.complete || a->end.in_call != b->end.in_call ||
        !a->end.call_name != !b->end.call_name || !same_text(&a->end_name, &b->end_name)) {
        return false;
    }
    for (size_t i = 0; i < a->n; i++) {
        const collected_call *x = &a->calls[i], *y = &b->calls[i];
        if (!same_text(&x->name, &y->name) || !same_text(&x->id, &y->id) || !same_text(&x->args, &y->args) ||
            x->ended != y->ended || x->withdrawn != y->withdrawn) {
            return false;
        }
    }
    return true;
}

static inline size_t collect_bytes(void *ctx, size_t left)
{
    return 1;
}

/* Pseudo-random lengths, mostly short; ctx: uint64_t seed. */
static inline size_t collect_random(void *ctx, size_t left)
{
    uint64_t *seed = ctx;
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    size_t n = 1 + (size_t)(*seed >> 33) % 9;
    return n < left ? n : left;
}

#endif
