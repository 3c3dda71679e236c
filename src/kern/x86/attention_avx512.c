/*
 * Rule 3 with sixteen positions per vector for the scores and sixteen dimensions per vector for the values. Pages
 * outside, query heads inside: up to four heads that share a KV head are done over one pass of its K or V, their
 * accumulators (8 or 16 vectors) kept in registers while each row is loaded, and widened, once.
 *
 * All 32 scores of a page are computed; those of invisible positions, which may be anything, are masked before
 * anything depends on them. Values of invisible positions are not touched.
 *
 * Scratch: p [n_q][256] | run o [n_q][v_dim] | span o [n_q][v_dim] | run m, run l, span m, span l [n_q] each.
 */
#include <math.h>
#include <string.h>

#include "kern/x86/avx512.h"
#include "kern/x86/fmath_avx512.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define LANES         16
#define HEADS         4 /* of one pass */

typedef struct state {
    float *p;
    float *run_o, *run_m, *run_l;
    float *span_o, *span_m, *span_l;
} state;

/* The visible positions of one span, counted from its start. */
typedef struct span {
    size_t page0; /* its first page */
    size_t first;
    size_t last;
} span;

ALWAYS_INLINE __m512 row_load(const unsigned char *base, kv_type type, size_t index)
{
    return type == KV_F16
               ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(base + index * 2)))
               : _mm512_loadu_ps(base + index * 4);
}

ALWAYS_INLINE __m512 row_load_n(const unsigned char *base, kv_type type, size_t index, __mmask16 lanes)
{
    return type == KV_F16 ? _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, base + index * 2))
                          : _mm512_maskz_loadu_ps(lanes, base + index * 4);
}

/* Dot products of n_h query heads (constant) with one page of K, into p (rows of KERN_SPAN). */
ALWAYS_INLINE void page_scores(const unsigned char *k, kv_type type, size_t k_dim, const float *q, float *p,
                               const size_t n_h)
{
    __m512 acc[HEADS][2];
#pragma GCC unroll 4
    for (size_t h = 0; h < n_h; h++) {
        acc[h][0] = _mm512_setzero_ps();
        acc[h][1] = _mm512_setzero_ps();
    }
    for (size_t d = 0; d < k_dim; d++) {
        __m512 k0 = row_load(k, type, d * KV_PAGE_TOKENS);
        __m512 k1 = row_load(k, type, d * KV_PAGE_TOKENS + LANES);
#pragma GCC unroll 4
        for (size_t h = 0; h < n_h; h++) {
            __m512 qd = _mm512_set1_ps(q[h * k_dim + d]);
            acc[h][0] = _mm512_fmadd_ps(qd, k0, acc[h][0]);
            acc[h][1] = _mm512_fmadd_ps(qd, k1, acc[h][1]);
        }
    }
#pragma GCC unroll 4
    for (size_t h = 0; h < n_h; h++) {
        _mm512_storeu_ps(p + h * KERN_SPAN, acc[h][0]);
        _mm512_storeu_ps(p + h * KERN_SPAN + LANES, acc[h][1]);
    }
}

ALWAYS_INLINE void page_scores_all(const kern_attn *a, kv_type type, const unsigned char *k, float *p)
{
    size_t k_dim = a->layer->k_dim;
    size_t h = 0;
    for (; h + 4 <= a->n_q; h += 4) {
        page_scores(k, type, k_dim, a->q + h * k_dim, p + h * KERN_SPAN, 4);
    }
    for (; h + 2 <= a->n_q; h += 2) {
        page_scores(k, type, k_dim, a->q + h * k_dim, p + h * KERN_SPAN, 2);
    }
    if (h < a->n_q) {
        page_scores(k, type, k_dim, a->q + h * k_dim, p + h * KERN_SPAN, 1);
    }
}

/* o += p[j] V[j] for slots j0 … j1 and n_v vectors of dimensions of n_h heads (both constant), the last vector with
 * these lanes only. */
ALWAYS_INLINE void block_values(const unsigned char *v, kv_type type, size_t v_dim, const float *p, float *o,
                                size_t j0, size_t j1, const size_t n_h, const size_t n_v, __mmask16 last)
{
    __m512 acc[HEADS][4];
#pragma GCC unroll 4
    for (size_t h = 0; h < n_h; h++) {
#pragma GCC unroll 4
        for (size_t i = 0; i < n_v; i++) {
            acc[h][i] = i + 1 < n_v ? _mm512_loadu_ps(o + h * v_dim + LANES * i)
                                    : _mm512_maskz_loadu_ps(last, o + h * v_dim + LANES * i);
        }
    }
    for (size_t j = j0; j <= j1; j++) {
        __m512 x[4];
#pragma GCC unroll 4
        for (size_t i = 0; i < n_v; i++) {
            x[i] = i + 1 < n_v ? row_load(v, type, j * v_dim + LANES * i)
                               : row_load_n(v, type, j * v_dim + LANES * i, last);
        }
#pragma GCC unroll 4
        for (size_t h = 0; h < n_h; h++) {
            __m512 pj = _mm512_set1_ps(p[h * KERN_SPAN + j]);
#pragma GCC unroll 4
            for (size_t i = 0; i < n_v; i++) {
                acc[h][i] = _mm512_fmadd_ps(pj, x[i], acc[h][i]);
            }
        }
    }
#pragma GCC unroll 4
    for (size_t h = 0; h < n_h; h++) {
#pragma GCC unroll 4
        for (size_t i = 0; i < n_v; i++) {
            if (i + 1 < n_v) {
                _mm512_storeu_ps(o + h * v_dim + LANES * i, acc[h][i]);
            } else {
                _mm512_mask_storeu_ps(o + h * v_dim + LANES * i, last, acc[h][i]);
            }
        }
    }
}

/* All dimensions of n_h heads (constant). */
ALWAYS_INLINE void page_values(const unsigned char *v, kv_type type, size_t v_dim, const float *p, float *o,
                               size_t j0, size_t j1, const size_t n_h)
{
    size_t value_bytes = type == KV_F16 ? 2 : 4;
    size_t d = 0;
    for (; d + 4 * LANES <= v_dim; d += 4 * LANES) {
        block_values(v + d * value_bytes, type, v_dim, p, o + d, j0, j1, n_h, 4, 0xFFFF);
    }
    for (; d < v_dim; d += LANES) {
        size_t n = v_dim - d < LANES ? v_dim - d : LANES;
        block_values(v + d * value_bytes, type, v_dim, p, o + d, j0, j1, n_h, 1, w16_mask(n));
    }
}

ALWAYS_INLINE void page_values_all(const kern_attn *a, kv_type type, const unsigned char *v, const float *p,
                                   float *o, size_t j0, size_t j1)
{
    size_t v_dim = a->layer->v_dim;
    size_t h = 0;
    for (; h + 4 <= a->n_q; h += 4) {
        page_values(v, type, v_dim, p + h * KERN_SPAN, o + h * v_dim, j0, j1, 4);
    }
    for (; h + 2 <= a->n_q; h += 2) {
        page_values(v, type, v_dim, p + h * KERN_SPAN, o + h * v_dim, j0, j1, 2);
    }
    if (h < a->n_q) {
        page_values(v, type, v_dim, p + h * KERN_SPAN, o + h * v_dim, j0, j1, 1);
    }
}

static const unsigned char *head_of(const kern_attn *a, size_t page)
{
    const kv_layer *l = a->layer;
    return (const unsigned char *)a->pages[page] + l->offset_bytes + a->kv_head * l->head_bytes;
}

static void span_scores(const kern_attn *a, const span *s, float *p)
{
    for (size_t i = s->first / KV_PAGE_TOKENS; i <= s->last / KV_PAGE_TOKENS; i++) {
        const unsigned char *k = head_of(a, s->page0 + i);
        if (a->type == KV_F16) {
            page_scores_all(a, KV_F16, k, p + i * KV_PAGE_TOKENS);
        } else {
            page_scores_all(a, KV_F32, k, p + i * KV_PAGE_TOKENS);
        }
    }
}

static void span_values(const kern_attn *a, const span *s, const float *p, float *o)
{
    for (size_t i = s->first / KV_PAGE_TOKENS; i <= s->last / KV_PAGE_TOKENS; i++) {
        const unsigned char *v = head_of(a, s->page0 + i) + a->layer->v_bytes;
        size_t at = i * KV_PAGE_TOKENS;
        size_t j0 = s->first > at ? s->first - at : 0;
        size_t j1 = s->last - at < KV_PAGE_TOKENS - 1 ? s->last - at : KV_PAGE_TOKENS - 1;
        if (a->type == KV_F16) {
            page_values_all(a, KV_F16, v, p + at, o, j0, j1);
        } else {
            page_values_all(a, KV_F32, v, p + at, o, j0, j1);
        }
    }
}

/* Those of j … j + 15 that are visible; j is at most LANES - 1 before the first. */
ALWAYS_INLINE __mmask16 visible(const span *s, size_t j)
{
    size_t after = s->last - j < LANES - 1 ? s->last - j + 1 : LANES;
    size_t before = s->first > j ? s->first - j : 0;
    return w16_mask(after) & (__mmask16)~w16_mask(before);
}

/* Sixteen positions at a time: the lanes of rule 6. p holds whole pages, so reading past `last` is within it. */
static void span_softmax(const kern_attn *a, const span *s, float *p, float *m_out, float *l_out)
{
    size_t begin = s->first / LANES * LANES;
    const __m512 scale = _mm512_set1_ps(a->scale);
    __m512 most = _mm512_set1_ps(-INFINITY);
    for (size_t j = begin; j <= s->last; j += LANES) {
        __m512 x = _mm512_mul_ps(_mm512_loadu_ps(p + j), scale);
        if (a->soft_cap > 0) {
            const __m512 cap = _mm512_set1_ps(a->soft_cap);
            x = _mm512_mul_ps(cap, w16_tanh(_mm512_div_ps(x, cap)));
        }
        most = _mm512_mask_max_ps(most, visible(s, j), most, x);
        _mm512_storeu_ps(p + j, x);
    }
    float m = _mm512_reduce_max_ps(most);
    const __m512 floor = _mm512_set1_ps(KERN_ATTN_FLOOR);
    __m512 lanes = _mm512_setzero_ps();
    for (size_t j = begin; j <= s->last; j += LANES) {
        __m512 below = _mm512_sub_ps(_mm512_loadu_ps(p + j), _mm512_set1_ps(m));
        __mmask16 counts = visible(s, j) & _mm512_cmp_ps_mask(below, floor, _CMP_NLT_UQ);
        /* a NaN stays: it is max's second operand */
        __m512 e = _mm512_maskz_mov_ps(counts, w16_exp(_mm512_max_ps(floor, below)));
        lanes = _mm512_add_ps(lanes, e);
        _mm512_storeu_ps(p + j, e);
    }
    *m_out = m;
    *l_out = w16_sum(lanes);
}

static void span_visit(const kern_attn *a, const span *s, float *p, float *o, float *m, float *l)
{
    size_t v_dim = a->layer->v_dim;
    span_scores(a, s, p);
    for (size_t h = 0; h < a->n_q; h++) {
        span_softmax(a, s, p + h * KERN_SPAN, &m[h], &l[h]);
    }
    memset(o, 0, a->n_q * v_dim * sizeof(float));
    span_values(a, s, p, o);
}

/* Takes (m, l, o) of one head into its run at the right. */
static void merge(state *st, size_t h, size_t v_dim, float m, float l, const float *o)
{
    float *run = st->run_o + h * v_dim;
    float most = m > st->run_m[h] ? m : st->run_m[h];
    float a = _mm512_cvtss_f32(w16_exp(_mm512_set1_ps(st->run_m[h] - most)));
    float b = _mm512_cvtss_f32(w16_exp(_mm512_set1_ps(m - most)));
    st->run_m[h] = most;
    st->run_l[h] = __builtin_fmaf(st->run_l[h], a, l * b);
    for (size_t d = 0; d < v_dim; d += LANES) {
        __mmask16 lanes = w16_mask(v_dim - d < LANES ? v_dim - d : LANES);
        __m512 add = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, o + d), _mm512_set1_ps(b));
        __m512 sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(lanes, run + d), _mm512_set1_ps(a), add);
        _mm512_mask_storeu_ps(run + d, lanes, sum);
    }
}

static state state_of(const kern_attn *a)
{
    size_t all_o = a->n_q * a->layer->v_dim;
    state st = {.p = a->scratch};
    st.run_o = st.p + a->n_q * KERN_SPAN;
    st.span_o = st.run_o + all_o;
    st.run_m = st.span_o + all_o;
    st.run_l = st.run_m + a->n_q;
    st.span_m = st.run_l + a->n_q;
    st.span_l = st.span_m + a->n_q;
    return st;
}

/* Sinks last, then o / l. */
static void finish(const kern_attn *a, state *st)
{
    size_t v_dim = a->layer->v_dim;
    for (size_t h = 0; h < a->n_q; h++) {
        if (a->sinks) {
            memset(st->span_o, 0, v_dim * sizeof(float));
            merge(st, h, v_dim, a->sinks[h], 1.0f, st->span_o);
        }
        const float *o = st->run_o + h * v_dim;
        const __m512 l = _mm512_set1_ps(st->run_l[h]);
        for (size_t d = 0; d < v_dim; d += LANES) {
            __mmask16 lanes = w16_mask(v_dim - d < LANES ? v_dim - d : LANES);
            _mm512_mask_storeu_ps(a->out + h * v_dim + d, lanes,
                                  _mm512_div_ps(_mm512_maskz_loadu_ps(lanes, o + d), l));
        }
    }
}

void attention_avx512(const kern_attn *a)
{
    size_t v_dim = a->layer->v_dim;
    state st = state_of(a);
    size_t first = (size_t)a->first;
    size_t last = (size_t)a->last;
    for (size_t at = first / KERN_SPAN * KERN_SPAN; at <= last; at += KERN_SPAN) {
        span s = {.page0 = at / KV_PAGE_TOKENS};
        s.first = first > at ? first - at : 0;
        s.last = last - at < KERN_SPAN - 1 ? last - at : KERN_SPAN - 1;
        if (at <= first) {
            span_visit(a, &s, st.p, st.run_o, st.run_m, st.run_l);
            continue;
        }
        span_visit(a, &s, st.p, st.span_o, st.span_m, st.span_l);
        for (size_t h = 0; h < a->n_q; h++) {
            merge(&st, h, v_dim, st.span_m[h], st.span_l[h], st.span_o + h * v_dim);
        }
    }
    finish(a, &st);
}
