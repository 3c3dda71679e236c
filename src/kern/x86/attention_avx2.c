/*
 * Rule 3 with eight positions per vector for the scores and eight dimensions per vector for the values. Pages
 * outside, query heads inside: up to three heads that share a KV head are done over one pass of its K or V,
 * their accumulators (12 vectors) kept in registers while each row is loaded, and widened, once.
 *
 * All 32 scores of a page are computed; those of invisible positions, which may be anything, are masked
 * before anything depends on them. Values of invisible positions are not touched.
 *
 * Scratch: p [n_q][256] | run o [n_q][v_dim] | span o [n_q][v_dim] | run m, run l, span m, span l [n_q] each.
 */
#include "kern/x86/avx2.h"
#include "kern/x86/fmath_avx2.h"
#include "kern/x86/vec_avx2.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define PAGE_VECS     (KV_PAGE_TOKENS / 8)

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

ALWAYS_INLINE __m256 row_load(const unsigned char *base, kv_type type, size_t index)
{
    return type == KV_F16 ? v8_load_f16(base + index * 2)
                          : _mm256_loadu_ps((const float *)(const void *)(base + index * 4));
}

ALWAYS_INLINE __m256 row_load_n(const unsigned char *base, kv_type type, size_t index, size_t n)
{
    return type == KV_F16 ? v8_load_f16_n(base + index * 2, n)
                          : v8_load_n((const float *)(const void *)(base + index * 4), n);
}

/* How many heads the next pass takes: 4 left are two and two. */
static size_t heads_step(size_t left)
{
    return left >= 3 && left != 4 ? 3 : left >= 2 ? 2 : 1;
}

/* Dot products of n_h query heads (constant, at most 3) with one page of K, into p (rows of KERN_SPAN). */
ALWAYS_INLINE void page_scores(const unsigned char *k, kv_type type, size_t k_dim, const float *q, float *p,
                               const size_t n_h)
{
    __m256 acc[3][PAGE_VECS];
#pragma GCC unroll 3
    for (size_t h = 0; h < n_h; h++) {
#pragma GCC unroll 4
        for (size_t v = 0; v < PAGE_VECS; v++) {
            acc[h][v] = _mm256_setzero_ps();
        }
    }
    for (size_t d = 0; d < k_dim; d++) {
        __m256 qd[3];
#pragma GCC unroll 3
        for (size_t h = 0; h < n_h; h++) {
            qd[h] = _mm256_broadcast_ss(q + h * k_dim + d);
        }
#pragma GCC unroll 4
        for (size_t v = 0; v < PAGE_VECS; v++) {
            __m256 kv = row_load(k, type, d * KV_PAGE_TOKENS + 8 * v);
#pragma GCC unroll 3
            for (size_t h = 0; h < n_h; h++) {
                acc[h][v] = _mm256_fmadd_ps(qd[h], kv, acc[h][v]);
            }
        }
    }
#pragma GCC unroll 3
    for (size_t h = 0; h < n_h; h++) {
#pragma GCC unroll 4
        for (size_t v = 0; v < PAGE_VECS; v++) {
            _mm256_storeu_ps(p + h * KERN_SPAN + 8 * v, acc[h][v]);
        }
    }
}

ALWAYS_INLINE void page_scores_all(const kern_attn *a, kv_type type, const unsigned char *k, float *p)
{
    size_t k_dim = a->layer->k_dim;
    size_t step;
    for (size_t h = 0; h < a->n_q; h += step) {
        const float *q = a->q + h * k_dim;
        step = heads_step(a->n_q - h);
        if (step == 3) {
            page_scores(k, type, k_dim, q, p + h * KERN_SPAN, 3);
        } else if (step == 2) {
            page_scores(k, type, k_dim, q, p + h * KERN_SPAN, 2);
        } else {
            page_scores(k, type, k_dim, q, p + h * KERN_SPAN, 1);
        }
    }
}

/* o += p[j] V[j] for slots j0 … j1 and n_v vectors of dimensions of n_h heads (both constant). */
ALWAYS_INLINE void block_values(const unsigned char *v, kv_type type, size_t v_dim, const float *p, float *o,
                                size_t j0, size_t j1, const size_t n_h, const size_t n_v)
{
    __m256 acc[3][8];
#pragma GCC unroll 3
    for (size_t h = 0; h < n_h; h++) {
#pragma GCC unroll 8
        for (size_t i = 0; i < n_v; i++) {
            acc[h][i] = _mm256_loadu_ps(o + h * v_dim + 8 * i);
        }
    }
    for (size_t j = j0; j <= j1; j++) {
        __m256 pj[3];
#pragma GCC unroll 3
        for (size_t h = 0; h < n_h; h++) {
            pj[h] = _mm256_broadcast_ss(p + h * KERN_SPAN + j);
        }
#pragma GCC unroll 8
        for (size_t i = 0; i < n_v; i++) {
            __m256 x = row_load(v, type, j * v_dim + 8 * i);
#pragma GCC unroll 3
            for (size_t h = 0; h < n_h; h++) {
                acc[h][i] = _mm256_fmadd_ps(pj[h], x, acc[h][i]);
            }
        }
    }
#pragma GCC unroll 3
    for (size_t h = 0; h < n_h; h++) {
#pragma GCC unroll 8
        for (size_t i = 0; i < n_v; i++) {
            _mm256_storeu_ps(o + h * v_dim + 8 * i, acc[h][i]);
        }
    }
}

/* The last v_dim % 8 dimensions. */
ALWAYS_INLINE void tail_values(const unsigned char *v, kv_type type, size_t v_dim, const float *p, float *o,
                               size_t j0, size_t j1, size_t n_tail)
{
    __m256 acc = v8_load_n(o, n_tail);
    for (size_t j = j0; j <= j1; j++) {
        acc = _mm256_fmadd_ps(_mm256_set1_ps(p[j]), row_load_n(v, type, j * v_dim, n_tail), acc);
    }
    v8_store_n(o, n_tail, acc);
}

/* All dimensions of n_h heads; blocks of n_v vectors, then single vectors, then the tail. */
ALWAYS_INLINE void page_values(const unsigned char *v, kv_type type, size_t v_dim, const float *p, float *o,
                               size_t j0, size_t j1, const size_t n_h, const size_t n_v)
{
    size_t value_bytes = type == KV_F16 ? 2 : 4;
    size_t d = 0;
    for (; d + 8 * n_v <= v_dim; d += 8 * n_v) {
        block_values(v + d * value_bytes, type, v_dim, p, o + d, j0, j1, n_h, n_v);
    }
    for (; d + 8 <= v_dim; d += 8) {
        block_values(v + d * value_bytes, type, v_dim, p, o + d, j0, j1, n_h, 1);
    }
    for (size_t h = 0; d < v_dim && h < n_h; h++) {
        tail_values(v + d * value_bytes, type, v_dim, p + h * KERN_SPAN, o + h * v_dim + d, j0, j1,
                    v_dim - d);
    }
}

ALWAYS_INLINE void page_values_all(const kern_attn *a, kv_type type, const unsigned char *v, const float *p,
                                   float *o, size_t j0, size_t j1)
{
    size_t v_dim = a->layer->v_dim;
    size_t step;
    for (size_t h = 0; h < a->n_q; h += step) {
        const float *ph = p + h * KERN_SPAN;
        float *oh = o + h * v_dim;
        step = heads_step(a->n_q - h);
        if (step == 3) {
            page_values(v, type, v_dim, ph, oh, j0, j1, 3, 4);
        } else if (step == 2) {
            page_values(v, type, v_dim, ph, oh, j0, j1, 2, 4);
        } else {
            page_values(v, type, v_dim, ph, oh, j0, j1, 1, 8);
        }
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

/* All ones where j … j + 7 are visible. */
ALWAYS_INLINE __m256 visible(const span *s, size_t j)
{
    const __m256i at = _mm256_add_epi32(_mm256_set1_epi32((int)j), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)s->first), at);
    __m256i after = _mm256_cmpgt_epi32(at, _mm256_set1_epi32((int)s->last));
    return _mm256_castsi256_ps(_mm256_xor_si256(_mm256_or_si256(before, after), _mm256_set1_epi32(-1)));
}

static float max_lane(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

/* Eight dot products become scores; invisible ones are kept out of *most. */
ALWAYS_INLINE void scores_finish(const kern_attn *a, float *p, __m256 seen, __m256 *most)
{
    __m256 x = _mm256_mul_ps(_mm256_loadu_ps(p), _mm256_set1_ps(a->scale));
    if (a->soft_cap > 0) {
        const __m256 cap = _mm256_set1_ps(a->soft_cap);
        x = _mm256_mul_ps(cap, v8_tanh(_mm256_div_ps(x, cap)));
    }
    *most = _mm256_max_ps(*most, _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), x, seen));
    _mm256_storeu_ps(p, x);
}

/* Eight scores become exp(score - m), +0 where invisible or below the floor, and are added to their lanes. */
ALWAYS_INLINE void scores_exp(float *p, __m256 m, __m256 seen, __m256 *lanes)
{
    const __m256 floor = _mm256_set1_ps(KERN_ATTN_FLOOR);
    __m256 below = _mm256_sub_ps(_mm256_loadu_ps(p), m);
    seen = _mm256_and_ps(seen, _mm256_cmp_ps(below, floor, _CMP_NLT_UQ));
    __m256 e =
        _mm256_and_ps(v8_exp(_mm256_max_ps(floor, below)), seen); /* a NaN stays: max's second operand */
    *lanes = _mm256_add_ps(*lanes, e);
    _mm256_storeu_ps(p, e);
}

/* Sixteen positions at a time: the lanes of rule 6. p holds whole pages, so reading past `last` is within it.
 */
static void span_softmax(const kern_attn *a, const span *s, float *p, float *m_out, float *l_out)
{
    size_t begin = s->first / 16 * 16;
    __m256 most = _mm256_set1_ps(-INFINITY);
    for (size_t j = begin; j <= s->last; j += 16) {
        scores_finish(a, p + j, visible(s, j), &most);
        scores_finish(a, p + j + 8, visible(s, j + 8), &most);
    }
    float m = max_lane(most);
    __m256 lo = _mm256_setzero_ps();
    __m256 hi = _mm256_setzero_ps();
    for (size_t j = begin; j <= s->last; j += 16) {
        scores_exp(p + j, _mm256_set1_ps(m), visible(s, j), &lo);
        scores_exp(p + j + 8, _mm256_set1_ps(m), visible(s, j + 8), &hi);
    }
    *m_out = m;
    *l_out = v16_sum(lo, hi);
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
    __m256 both = v8_exp(_mm256_setr_ps(st->run_m[h] - most, m - most, 0, 0, 0, 0, 0, 0));
    float a = _mm256_cvtss_f32(both);
    float b = _mm256_cvtss_f32(_mm256_permute_ps(both, 1));
    st->run_m[h] = most;
    st->run_l[h] = __builtin_fmaf(st->run_l[h], a, l * b);
    for (size_t d = 0; d < v_dim; d += 8) {
        size_t n = v_dim - d < 8 ? v_dim - d : 8;
        __m256 add = _mm256_mul_ps(v8_load_n(o + d, n), _mm256_set1_ps(b));
        v8_store_n(run + d, n, _mm256_fmadd_ps(v8_load_n(run + d, n), _mm256_set1_ps(a), add));
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
        __m256 l = _mm256_set1_ps(st->run_l[h]);
        for (size_t d = 0; d < v_dim; d += 8) {
            size_t n = v_dim - d < 8 ? v_dim - d : 8;
            v8_store_n(a->out + h * v_dim + d, n, _mm256_div_ps(v8_load_n(o + d, n), l));
        }
    }
}

void attention_avx2(const kern_attn *a)
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
