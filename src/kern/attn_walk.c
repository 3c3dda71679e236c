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
    size_t n;     /* queries */
    size_t pages; /* kept widened: of a whole span, or one */
    float *k, *v; /* [pages][k_dim][32], [pages][32][v_dim] */
    float *p;     /* [block][KERN_ATTN_P_PITCH] */
    float *o;     /* [block][v_dim]: what the present span comes to */
    float *q;     /* [n / block][k_dim][block]: blocks of queries, the last one of what is left */
    float *run_o; /* [n][v_dim]: the spans so far, merged */
    float *run_m, *run_l;
    float *parts; /* of the present span: where they go instead, or NULL */
} walk;

/* The present span. */
typedef struct span {
    size_t at;                                     /* its first position */
    size_t page0;                                  /* its first page */
    size_t first, last;                            /* pages of it that some row sees */
    bool k_there[SPAN_PAGES], v_there[SPAN_PAGES]; /* widened already */
    size_t end;                                    /* pages from here on are none of the caller's spans */
} span;

/* Positions of the present span that a query sees, counted from its first; j0 > j1: none. */
typedef struct range {
    size_t j0, j1;
} range;

/* What a block of queries sees of the present span. */
typedef struct sight {
    range own[ATTN_BLOCK_MAX];
    range any;
    bool page[SPAN_PAGES];
} sight;

static size_t block_of(const walk *w, size_t q0)
{
    return w->n - q0 < w->ops->block ? w->n - q0 : w->ops->block;
}

static walk walk_of(const attn_ops *ops, const kern_attn *a)
{
    size_t k_dim = a->layer->k_dim, v_dim = a->layer->v_dim;
    walk w = {.ops = ops, .a = a, .n = a->n_rows * a->n_q, .k = a->scratch};
    w.pages = w.n > ops->block ? SPAN_PAGES : 1;
    w.v = w.k + w.pages * KV_PAGE_TOKENS * k_dim;
    w.p = w.v + w.pages * KV_PAGE_TOKENS * v_dim;
    w.o = w.p + ATTN_BLOCK_MAX * KERN_ATTN_P_PITCH;
    w.q = w.o + ATTN_BLOCK_MAX * v_dim;
    w.run_o = w.q + w.n * k_dim;
    w.run_m = w.run_o + w.n * v_dim;
    w.run_l = w.run_m + w.n;
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

static const unsigned char *head_of(const kern_attn *a, size_t page)
{
    const kv_layer *l = a->layer;
    return (const unsigned char *)a->pages[page] + l->offset_bytes + a->kv_head * l->head_bytes;
}

static range range_of(const kern_attn *a, const span *s, size_t row)
{
    size_t first = (size_t)a->seen[row].first, last = (size_t)a->seen[row].last;
    if (first >= s->at + KERN_SPAN || last < s->at) {
        return (range){1, 0};
    }
    return (range){first > s->at ? first - s->at : 0,
                   last - s->at < KERN_SPAN - 1 ? last - s->at : KERN_SPAN - 1};
}

/* Parts in the order in which a span reads them: K of all pages that some row sees, their V, K of the next span. Where
 * number x begins; `else_there` if there is no such. */
static const unsigned char *part_at(const kern_attn *a, const span *s, size_t x,
                                    const unsigned char *else_there)
{
    const size_t n = s->last - s->first + 1;
    const size_t page = x < 2 * n ? s->page0 + s->first + x % n : s->page0 + SPAN_PAGES + x - 2 * n;
    if (page >= s->end) {
        return x == 2 * n && a->next ? a->next : else_there;
    }
    return a->pages[page] ? head_of(a, page) + (x / n == 1 ? a->layer->v_bytes : 0) : else_there;
}

#define LINE 64 /* bytes */

/* n floats as they are. */
static void floats_copy(float *room, const unsigned char *from, size_t n, const unsigned char *ahead)
{
    for (size_t i = 0; i < n * sizeof(float); i += LINE) {
        __builtin_prefetch(ahead + i, 0, 2); /* into the second cache */
    }
    memcpy(room, from, n * sizeof(float));
}

/* The K, or V, of a page as fp32: dim values of each of its positions. */
static void widen(const walk *w, float *room, const unsigned char *from, size_t dim, bool keys,
                  const unsigned char *ahead)
{
    kv_type type = w->a->type;
    if (type == KV_F32) {
        floats_copy(room, from, dim * KV_PAGE_TOKENS, ahead);
    } else if (type != KV_Q8_0) {
        w->ops->halves(room, from, dim * KV_PAGE_TOKENS, type, ahead);
    } else if (keys) {
        w->ops->code_keys(room, from, dim, ahead);
    } else {
        w->ops->code_values(room, from, dim, ahead);
    }
}

/*
 * A page that only one block of queries looks at is read where it lies: each line is used by all queries as soon as it
 * comes, so that there is always something to compute and something on its way. Widened first, half of the time would go
 * to waiting for lines with nothing to compute. F32 needs no widening but the fetches that go with it, and the V of MLA is
 * turned.
 */
static bool in_place(const walk *w)
{
    return w->pages == 1 && w->a->type != KV_F32 && !w->a->layer->v_in_k;
}

/* Page number i of the span: its K, widened. */
static const float *page_keys(const walk *w, span *s, size_t i)
{
    const kern_attn *a = w->a;
    float *k = w->k + (w->pages > 1 ? i * KV_PAGE_TOKENS * a->layer->k_dim : 0);
    if (!s->k_there[i]) {
        const unsigned char *from = head_of(a, s->page0 + i);
        widen(w, k, from, a->layer->k_dim, true, part_at(a, s, i - s->first + 1, from));
        s->k_there[i] = w->pages > 1;
    }
    return k;
}

/* Its V, widened. */
static const float *page_values(const walk *w, span *s, size_t i)
{
    const kern_attn *a = w->a;
    float *v = w->v + (w->pages > 1 ? i * KV_PAGE_TOKENS * a->layer->v_dim : 0);
    if (s->v_there[i]) {
        return v;
    }
    s->v_there[i] = w->pages > 1;
    if (a->layer->v_in_k) {
        w->ops->turn(v, page_keys(w, s, i), a->layer->v_dim);
        return v;
    }
    const unsigned char *from = head_of(a, s->page0 + i) + a->layer->v_bytes;
    widen(w, v, from, a->layer->v_dim, false, part_at(a, s, s->last + 1 - s->first + i - s->first + 1, from));
    return v;
}

static attn_part widened(const float *part)
{
    return (attn_part){.at = (const unsigned char *)part, .type = KV_F32};
}

/* Part number x of the span where it lies. Fetched beside it is the one after next, since two are read side by side. */
static attn_part lying(const kern_attn *a, const span *s, size_t x, const unsigned char *from)
{
    return (attn_part){.at = from, .type = a->type, .ahead = part_at(a, s, x + 2, from)};
}

static attn_part keys_of(const walk *w, span *s, size_t i)
{
    return in_place(w) ? lying(w->a, s, i - s->first, head_of(w->a, s->page0 + i))
                       : widened(page_keys(w, s, i));
}

static attn_part values_of(const walk *w, span *s, size_t i)
{
    return in_place(w) ? lying(w->a, s, s->last + 1 - s->first + i - s->first,
                               head_of(w->a, s->page0 + i) + w->a->layer->v_bytes)
                       : widened(page_values(w, s, i));
}

/* Scores of n queries from q0 on for page i of the span; the number of pages done: the next one, too, if it can be. */
static size_t score_pages(const walk *w, span *s, const sight *see, size_t i, size_t q0, size_t n)
{
    const size_t k_dim = w->a->layer->k_dim;
    attn_part k[2] = {keys_of(w, s, i)};
    size_t n_parts = 1;
    if (in_place(w) && n <= w->ops->pair && i + 1 < SPAN_PAGES && see->page[i + 1]) {
        k[n_parts++] = keys_of(w, s, i + 1);
    }
    w->ops->scores(k, n_parts, k_dim, w->q + q0 * k_dim, n, w->a->scale, w->p + i * KV_PAGE_TOKENS);
    return n_parts;
}

/* Weights j0 … j1 of n queries times V, which begins at position `at`. */
static void weigh(const walk *w, const attn_part *v, size_t at, size_t j0, size_t j1, size_t query, size_t n)
{
    size_t v_dim = w->a->layer->v_dim;
    w->ops->weigh(v, v_dim, w->p + query * KERN_ATTN_P_PITCH + at, w->o + query * v_dim, j0 - at, j1 - at, n);
}

static range cut(range r, size_t lo, size_t hi)
{
    return (range){r.j0 > lo ? r.j0 : lo, r.j1 < hi ? r.j1 : hi};
}

/* Positions lo … hi, V from position `at` on, for n queries: together what all see, one by one before and after. */
static void block_weigh(const walk *w, const attn_part *v, size_t at, size_t lo, size_t hi, const range *own,
                        size_t n)
{
    range all = {lo, hi};
    bool together = true;
    for (size_t i = 0; i < n; i++) {
        range r = cut(own[i], lo, hi);
        all = cut(all, r.j0, r.j1);
        together = together && r.j0 <= r.j1;
    }
    together = together && all.j0 <= all.j1;
    for (size_t i = 0; i < n; i++) {
        range r = cut(own[i], lo, together ? all.j0 - 1 : hi);
        if (r.j0 <= r.j1 && (!together || own[i].j0 < all.j0)) {
            weigh(w, v, at, r.j0, r.j1, i, 1);
        }
    }
    if (!together) {
        return;
    }
    weigh(w, v, at, all.j0, all.j1, 0, n);
    for (size_t i = 0; i < n; i++) {
        range r = cut(own[i], all.j1 + 1, hi);
        if (r.j0 <= r.j1) {
            weigh(w, v, at, r.j0, r.j1, i, 1);
        }
    }
}

/* Whether one of n queries sees something of page i of the span. */
static bool page_seen(const range *own, size_t n, size_t i)
{
    for (size_t x = 0; x < n; x++) {
        range r = cut(own[x], i * KV_PAGE_TOKENS, (i + 1) * KV_PAGE_TOKENS - 1);
        if (r.j0 <= r.j1) {
            return true;
        }
    }
    return false;
}

/* Rows far apart may leave pages between them that nobody sees; not where there is a position that all see. */
static sight sight_of(const walk *w, const span *s, size_t q0, size_t n)
{
    sight v = {.any = {KERN_SPAN, 0}};
    range all = {0, KERN_SPAN - 1};
    for (size_t i = 0; i < n; i++) {
        range r = range_of(w->a, s, (q0 + i) / w->a->n_q);
        v.own[i] = r;
        all = cut(all, r.j0, r.j1);
        if (r.j0 <= r.j1) {
            v.any.j0 = r.j0 < v.any.j0 ? r.j0 : v.any.j0;
            v.any.j1 = r.j1 > v.any.j1 ? r.j1 : v.any.j1;
        }
    }
    for (size_t i = v.any.j0 / KV_PAGE_TOKENS; i <= v.any.j1 / KV_PAGE_TOKENS; i++) {
        v.page[i] = all.j0 <= all.j1 || page_seen(v.own, n, i);
    }
    return v;
}

/* Where a query has seen an earlier span, too. */
static bool has_run(const walk *w, const span *s, size_t query)
{
    return (size_t)w->a->seen[query / w->a->n_q].first < s->at;
}

/* What the span comes to for the queries of a block goes where it belongs: into the parts, or the runs. */
static void block_done(const walk *w, const span *s, size_t q0, size_t n, const sight *see, const float *m,
                       const float *l)
{
    size_t v_dim = w->a->layer->v_dim;
    for (size_t i = 0, end; i < n; i = end) {
        size_t query = q0 + i;
        end = i + 1;
        if (see->own[i].j0 > see->own[i].j1) {
            continue;
        }
        float *to = w->parts ? w->parts + query * KERN_ATTN_PART(v_dim) : w->run_o + query * v_dim;
        if (!w->parts && has_run(w, s, query)) {
            while (end < n && see->own[end].j0 <= see->own[end].j1 && has_run(w, s, q0 + end)) {
                end++;
            }
            w->ops->merge(&w->run_m[query], &w->run_l[query], to, &m[i], &l[i], w->o + i * v_dim, end - i,
                          v_dim);
            continue;
        }
        memcpy(to, w->o + i * v_dim, v_dim * sizeof(float));
        *(w->parts ? to + v_dim : &w->run_m[query]) = m[i];
        *(w->parts ? to + v_dim + 1 : &w->run_l[query]) = l[i];
    }
}

/* n queries from q0 on over the present span. */
static void block_visit(const walk *w, span *s, size_t q0, size_t n)
{
    const kern_attn *a = w->a;
    size_t v_dim = a->layer->v_dim;
    const sight see = sight_of(w, s, q0, n);
    float m[ATTN_BLOCK_MAX], l[ATTN_BLOCK_MAX];
    for (size_t i = 0; i < SPAN_PAGES;) {
        i += see.page[i] ? score_pages(w, s, &see, i, q0, n) : 1;
    }
    for (size_t i = 0; i < n; i++) {
        const range *r = &see.own[i];
        m[i] = r->j0 <= r->j1 ? w->ops->largest(w->p + i * KERN_ATTN_P_PITCH, r->j0, r->j1, a->soft_cap) : 0;
    }
    for (size_t i = 0; i < n; i++) {
        const range *r = &see.own[i];
        l[i] = r->j0 <= r->j1 ? w->ops->weights(w->p + i * KERN_ATTN_P_PITCH, r->j0, r->j1, m[i]) : 0;
    }
    memset(w->o, 0, n * v_dim * sizeof(float));
    for (size_t i = 0; i < SPAN_PAGES; i++) {
        if (see.page[i]) {
            const attn_part v = values_of(w, s, i);
            if (w->pages == 1) {
                block_weigh(w, &v, i * KV_PAGE_TOKENS, i * KV_PAGE_TOKENS, (i + 1) * KV_PAGE_TOKENS - 1,
                            see.own, n);
            }
        }
    }
    if (w->pages > 1) {
        const attn_part v = widened(w->v);
        block_weigh(w, &v, 0, see.any.j0, see.any.j1, see.own, n);
    }
    block_done(w, s, q0, n, &see, m, l);
}

/* Span number `index`; the last one will be end - 1. */
static void span_visit(const walk *w, size_t index, size_t end)
{
    const kern_attn *a = w->a;
    span s = {.at = index * KERN_SPAN, .page0 = index * SPAN_PAGES, .last = SPAN_PAGES - 1};
    size_t first = (size_t)a->seen[0].first, last = (size_t)a->seen[a->n_rows - 1].last;
    s.first = first > s.at ? (first - s.at) / KV_PAGE_TOKENS : 0;
    s.last = last - s.at < KERN_SPAN ? (last - s.at) / KV_PAGE_TOKENS : SPAN_PAGES - 1;
    s.end = end * SPAN_PAGES < last / KV_PAGE_TOKENS + 1 ? end * SPAN_PAGES : last / KV_PAGE_TOKENS + 1;
    for (size_t q0 = 0, n; q0 < w->n; q0 += n) {
        n = block_of(w, q0);
        block_visit(w, &s, q0, n);
    }
}

/* The sink last, then o / l. */
static void finish(const walk *w, size_t query, float *m, float *l, float *o)
{
    const kern_attn *a = w->a;
    size_t row = query / a->n_q, head = query % a->n_q;
    if (a->sinks) {
        const float one = 1;
        w->ops->merge(m, l, o, &a->sinks[head], &one, NULL, 1, a->layer->v_dim);
    }
    w->ops->divide(a->out + row * a->out_stride + head * a->layer->v_dim, o, *l, a->layer->v_dim);
}

void attn_walk(const attn_ops *ops, const kern_attn *a)
{
    const walk w = walk_of(ops, a);
    size_t end = (size_t)a->seen[a->n_rows - 1].last / KERN_SPAN + 1;
    queries_gather(&w);
    for (size_t i = (size_t)a->seen[0].first / KERN_SPAN; i < end; i++) {
        span_visit(&w, i, end);
    }
    for (size_t q = 0; q < w.n; q++) {
        finish(&w, q, &w.run_m[q], &w.run_l[q], w.run_o + q * a->layer->v_dim);
    }
}

void attn_walk_spans(const attn_ops *ops, const kern_attn *a, size_t span0, size_t span1, float *parts)
{
    walk w = walk_of(ops, a);
    queries_gather(&w);
    for (size_t i = span0; i < span1; i++) {
        w.parts = parts + (i - span0) * w.n * KERN_ATTN_PART(a->layer->v_dim);
        span_visit(&w, i, span1);
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
                ops->merge(&m, &l, w.run_o, &part[v_dim], &part[v_dim + 1], part, 1, v_dim);
            } else {
                m = part[v_dim];
                l = part[v_dim + 1];
                memcpy(w.run_o, part, v_dim * sizeof(float));
            }
        }
        finish(&w, q, &m, &l, w.run_o);
    }
}
