/*
 * attn_walk: see the header. In what follows a query is one query head of one row; queries are numbered row by row.
 *
 * All 32 scores of a page are computed for every query of a block if one of them sees one of the positions. Those that
 * a query does not see, which may be anything, are made +0 before anything depends on them, and values of positions
 * that a query does not see are not touched for it.
 */
#include "kern/attn_walk.h"

#include <string.h>

#define SPAN_PAGES (KERN_SPAN / KV_PAGE_TOKENS)

/* The caller's scratch, cut up. */
typedef struct walk {
    const attn_ops *ops;
    const kern_attn *a;
    size_t n;              /* queries */
    float *k, *v;          /* [k_dim][32], [32][v_dim]: a page widened */
    float *q;              /* [n / block][k_dim][block]: blocks of queries, the last one of what is left */
    float *p;              /* [n][KERN_ATTN_P_PITCH] */
    float *run_o, *span_o; /* [n][v_dim] */
    float *run_m, *run_l, *span_m, *span_l;
} walk;

/* Rows [r0, r1) that see something of positions [at, at + n). */
typedef struct some {
    size_t r0, r1;
} some;

static size_t block_of(const walk *w, size_t q0)
{
    return w->n - q0 < w->ops->block ? w->n - q0 : w->ops->block;
}

static walk walk_of(const attn_ops *ops, const kern_attn *a)
{
    size_t k_dim = a->layer->k_dim, v_dim = a->layer->v_dim;
    walk w = {.ops = ops, .a = a, .n = a->n_rows * a->n_q, .k = a->scratch};
    w.v = w.k + KV_PAGE_TOKENS * k_dim;
    w.q = w.v + KV_PAGE_TOKENS * v_dim;
    w.p = w.q + w.n * k_dim;
    w.run_o = w.p + w.n * KERN_ATTN_P_PITCH;
    w.span_o = w.run_o + w.n * v_dim;
    w.run_m = w.span_o + w.n * v_dim;
    w.run_l = w.run_m + w.n;
    w.span_m = w.run_l + w.n;
    w.span_l = w.span_m + w.n;
    return w;
}

/* The queries of a block side by side, so that one dimension of all of them is one run. */
static void queries_gather(const walk *w)
{
    size_t k_dim = w->a->layer->k_dim;
    for (size_t q0 = 0, n; q0 < w->n; q0 += n) {
        n = block_of(w, q0);
        for (size_t i = 0; i < n; i++) {
            const float *from =
                w->a->q + (q0 + i) / w->a->n_q * w->a->q_stride + (q0 + i) % w->a->n_q * k_dim;
            for (size_t d = 0; d < k_dim; d++) {
                w->q[q0 * k_dim + d * n + i] = from[d];
            }
        }
    }
}

/* first and last do not fall: those who see something stand together. */
static some who_sees(const kern_attn *a, size_t at, size_t n)
{
    some s = {0, a->n_rows};
    while (s.r0 < s.r1 && (size_t)a->seen[s.r0].last < at) {
        s.r0++;
    }
    while (s.r1 > s.r0 && (size_t)a->seen[s.r1 - 1].first >= at + n) {
        s.r1--;
    }
    return s;
}

static const unsigned char *head_of(const kern_attn *a, size_t page)
{
    const kv_layer *l = a->layer;
    return (const unsigned char *)a->pages[page] + l->offset_bytes + a->kv_head * l->head_bytes;
}

/* Where K (or, with v_bytes, V) of the page that is read next begins; `else_there` if it is not there. */
static const unsigned char *ahead_of(const kern_attn *a, size_t page, size_t v_bytes,
                                     const unsigned char *else_there)
{
    return a->pages[page] ? head_of(a, page) + v_bytes : else_there;
}

/* Pages page0 … page1 of a span are seen. */
typedef struct span {
    size_t at; /* its first position */
    size_t page0, page1;
    const unsigned char *after; /* what is read after it, or NULL */
} span;

static void span_scores(const walk *w, const span *s)
{
    const kern_attn *a = w->a;
    size_t k_dim = a->layer->k_dim;
    for (size_t page = s->page0; page <= s->page1; page++) {
        size_t at = page * KV_PAGE_TOKENS;
        some who = who_sees(a, at, KV_PAGE_TOKENS);
        if (who.r0 == who.r1) {
            continue;
        }
        const unsigned char *head = head_of(a, page);
        const unsigned char *ahead =
            page < s->page1 ? ahead_of(a, page + 1, 0, head) : ahead_of(a, s->page0, a->layer->v_bytes, head);
        const float *k = w->ops->keys(w->k, head, k_dim, a->type, ahead);
        for (size_t q0 = 0, n; q0 < who.r1 * a->n_q; q0 += n) {
            n = block_of(w, q0);
            if (q0 + n > who.r0 * a->n_q) {
                w->ops->scores(k, k_dim, w->q + q0 * k_dim, n, w->p + q0 * KERN_ATTN_P_PITCH + (at - s->at));
            }
        }
    }
}

/* Slots j0 … j1 of a page that a query sees; j0 > j1: none. */
typedef struct slots {
    size_t j0, j1;
} slots;

static slots slots_of(const kern_attn *a, size_t query, size_t at)
{
    const kern_attn_seen *seen = &a->seen[query / a->n_q];
    size_t first = (size_t)seen->first, last = (size_t)seen->last;
    slots s = {1, 0};
    if (first < at + KV_PAGE_TOKENS && last >= at) {
        s.j0 = first > at ? first - at : 0;
        s.j1 = last - at < KV_PAGE_TOKENS - 1 ? last - at : KV_PAGE_TOKENS - 1;
    }
    return s;
}

/* A block of queries over one page: together where all see, one by one before and after. */
static void block_weigh(const walk *w, const float *v, size_t at, size_t q0, size_t n, const float *p,
                        float *o)
{
    size_t v_dim = w->a->layer->v_dim;
    slots own[ATTN_BLOCK_MAX], all = {0, KV_PAGE_TOKENS - 1};
    bool together = true;
    for (size_t i = 0; i < n; i++) {
        own[i] = slots_of(w->a, q0 + i, at);
        all.j0 = own[i].j0 > all.j0 ? own[i].j0 : all.j0;
        all.j1 = own[i].j1 < all.j1 ? own[i].j1 : all.j1;
        together = together && own[i].j0 <= own[i].j1;
    }
    together = together && all.j0 <= all.j1;
    for (size_t i = 0; i < n; i++) {
        size_t end = together ? all.j0 : own[i].j1 + 1;
        if (own[i].j0 < end && own[i].j0 <= own[i].j1) {
            w->ops->weigh(v, v_dim, p + i * KERN_ATTN_P_PITCH, o + i * v_dim, own[i].j0, end - 1, 1);
        }
    }
    if (!together) {
        return;
    }
    w->ops->weigh(v, v_dim, p, o, all.j0, all.j1, n);
    for (size_t i = 0; i < n; i++) {
        if (own[i].j1 > all.j1) {
            w->ops->weigh(v, v_dim, p + i * KERN_ATTN_P_PITCH, o + i * v_dim, all.j1 + 1, own[i].j1, 1);
        }
    }
}

static const float *page_values(const walk *w, const unsigned char *head, const unsigned char *ahead)
{
    const kern_attn *a = w->a;
    if (!a->layer->v_in_k) {
        return w->ops->values(w->v, head + a->layer->v_bytes, a->layer->v_dim, a->type, ahead);
    }
    w->ops->turn(w->v, w->ops->keys(w->k, head, a->layer->k_dim, a->type, ahead), a->layer->v_dim);
    return w->v;
}

static void span_values(const walk *w, const span *s, float *o)
{
    const kern_attn *a = w->a;
    size_t v_dim = a->layer->v_dim;
    for (size_t page = s->page0; page <= s->page1; page++) {
        size_t at = page * KV_PAGE_TOKENS;
        some who = who_sees(a, at, KV_PAGE_TOKENS);
        if (who.r0 == who.r1) {
            continue;
        }
        const unsigned char *head = head_of(a, page), *after = s->after ? s->after : head;
        const float *v =
            page_values(w, head, page < s->page1 ? ahead_of(a, page + 1, a->layer->v_bytes, head) : after);
        bool all_seen = who.r1 - who.r0 == a->n_rows && (size_t)a->seen[a->n_rows - 1].first <= at &&
                        (size_t)a->seen[0].last >= at + (KV_PAGE_TOKENS - 1);
        for (size_t q0 = 0, n; q0 < who.r1 * a->n_q; q0 += n) {
            n = block_of(w, q0);
            if (q0 + n > who.r0 * a->n_q) {
                const float *p = w->p + q0 * KERN_ATTN_P_PITCH + (at - s->at);
                if (all_seen) {
                    w->ops->weigh(v, v_dim, p, o + q0 * v_dim, 0, KV_PAGE_TOKENS - 1, n);
                } else {
                    block_weigh(w, v, at, q0, n, p, o + q0 * v_dim);
                }
            }
        }
    }
}

/* Who sees something of span number `index` and what that comes to, in o, m, l. */
static some span_visit(const walk *w, size_t index, const unsigned char *after, float *o, float *m, float *l)
{
    const kern_attn *a = w->a;
    size_t v_dim = a->layer->v_dim;
    span s = {.at = index * KERN_SPAN, .page0 = index * SPAN_PAGES, .after = after};
    some who = who_sees(a, s.at, KERN_SPAN);
    if (who.r0 == who.r1) {
        return who;
    }
    size_t first = (size_t)a->seen[who.r0].first / KV_PAGE_TOKENS;
    size_t last = (size_t)a->seen[who.r1 - 1].last / KV_PAGE_TOKENS;
    s.page1 = last < s.page0 + SPAN_PAGES - 1 ? last : s.page0 + SPAN_PAGES - 1;
    s.page0 = first > s.page0 ? first : s.page0;
    span_scores(w, &s);
    for (size_t i = who.r0 * a->n_q; i < who.r1 * a->n_q; i++) {
        const kern_attn_seen *seen = &a->seen[i / a->n_q];
        size_t f = (size_t)seen->first > s.at ? (size_t)seen->first - s.at : 0;
        size_t e = (size_t)seen->last - s.at < KERN_SPAN - 1 ? (size_t)seen->last - s.at : KERN_SPAN - 1;
        w->ops->softmax(a, w->p + i * KERN_ATTN_P_PITCH, f, e, &m[i], &l[i]);
    }
    memset(o + who.r0 * a->n_q * v_dim, 0, (who.r1 - who.r0) * a->n_q * v_dim * sizeof(float));
    span_values(w, &s, o);
    return who;
}

/* The sink last, then o / l. */
static void finish(const walk *w, size_t query, float *m, float *l, float *o)
{
    const kern_attn *a = w->a;
    size_t row = query / a->n_q, head = query % a->n_q;
    if (a->sinks) {
        w->ops->merge(m, l, o, a->sinks[head], 1.0f, NULL, a->layer->v_dim);
    }
    w->ops->divide(a->out + row * a->out_stride + head * a->layer->v_dim, o, *l, a->layer->v_dim);
}

void attn_walk(const attn_ops *ops, const kern_attn *a)
{
    const walk w = walk_of(ops, a);
    size_t v_dim = a->layer->v_dim;
    size_t span1 = (size_t)a->seen[a->n_rows - 1].last / KERN_SPAN;
    queries_gather(&w);
    for (size_t i = (size_t)a->seen[0].first / KERN_SPAN; i <= span1; i++) {
        const unsigned char *after = i < span1 ? ahead_of(a, (i + 1) * SPAN_PAGES, 0, a->next) : a->next;
        some who = span_visit(&w, i, after, w.span_o, w.span_m, w.span_l);
        for (size_t q = who.r0 * a->n_q; q < who.r1 * a->n_q; q++) {
            if (i > (size_t)a->seen[q / a->n_q].first / KERN_SPAN) {
                ops->merge(&w.run_m[q], &w.run_l[q], w.run_o + q * v_dim, w.span_m[q], w.span_l[q],
                           w.span_o + q * v_dim, v_dim);
            } else {
                w.run_m[q] = w.span_m[q];
                w.run_l[q] = w.span_l[q];
                memcpy(w.run_o + q * v_dim, w.span_o + q * v_dim, v_dim * sizeof(float));
            }
        }
    }
    for (size_t q = 0; q < w.n; q++) {
        finish(&w, q, &w.run_m[q], &w.run_l[q], w.run_o + q * v_dim);
    }
}

void attn_walk_spans(const attn_ops *ops, const kern_attn *a, size_t span0, size_t span1, float *parts)
{
    const walk w = walk_of(ops, a);
    size_t v_dim = a->layer->v_dim;
    queries_gather(&w);
    for (size_t i = span0; i < span1; i++) {
        const unsigned char *after = i + 1 < span1 ? ahead_of(a, (i + 1) * SPAN_PAGES, 0, a->next) : a->next;
        some who = span_visit(&w, i, after, w.span_o, w.span_m, w.span_l);
        for (size_t q = who.r0 * a->n_q; q < who.r1 * a->n_q; q++) {
            float *part = parts + ((i - span0) * w.n + q) * KERN_ATTN_PART(v_dim);
            memcpy(part, w.span_o + q * v_dim, v_dim * sizeof(float));
            part[v_dim] = w.span_m[q];
            part[v_dim + 1] = w.span_l[q];
        }
    }
}

void attn_walk_join(const attn_ops *ops, const kern_attn *a, size_t span0, const float *parts)
{
    const walk w = walk_of(ops, a);
    size_t v_dim = a->layer->v_dim;
    for (size_t q = 0; q < w.n; q++) {
        const kern_attn_seen *seen = &a->seen[q / a->n_q];
        size_t first = (size_t)seen->first / KERN_SPAN, last = (size_t)seen->last / KERN_SPAN;
        float m = 0, l = 0;
        for (size_t i = first; i <= last; i++) {
            const float *part = parts + ((i - span0) * w.n + q) * KERN_ATTN_PART(v_dim);
            if (i > first) {
                ops->merge(&m, &l, w.run_o, part[v_dim], part[v_dim + 1], part, v_dim);
            } else {
                m = part[v_dim];
                l = part[v_dim + 1];
                memcpy(w.run_o, part, v_dim * sizeof(float));
            }
        }
        finish(&w, q, &m, &l, w.run_o);
    }
}
