/*
 * Rule 3 with sixteen positions per vector for the scores and sixteen dimensions per vector for the values
 * (kern/attn_walk.h). Of the accumulators of up to eight query heads 8 to 16 stay in registers while each row of K or V is
 * loaded once; two vector fmas a cycle are then the limit, loads take half of the two that a cycle has.
 */
#include <math.h>
#include <string.h>

#include "kern/attn_walk.h"
#include "kern/x86/attn_fetch.h"
#include "kern/x86/avx2.h"
#include "kern/x86/avx512.h"
#include "kern/x86/fmath_avx512.h"
#include "kern/x86/unroll.h"

#define LANES 16
#define BLOCK 8 /* query heads */
#define PAIR  4 /* query heads at most for two pages at once */

MM_INLINE __m512 halves_wide(__m256i h, kv_type type)
{
    return type == KV_F16 ? _mm512_cvtph_ps(h)
                          : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

MM_INLINE __m512 halves_load(const unsigned char *p, kv_type type)
{
    return halves_wide(_mm256_loadu_si256((const __m256i *)(const void *)p), type);
}

/* n values of two bytes, a multiple of 32. */
MM_INLINE void halves_widen(float *out, const unsigned char *from, size_t n, kv_type type,
                            const unsigned char *ahead)
{
    for (size_t i = 0; i < n; i += 2 * LANES) {
        fetch(ahead + 2 * i);
        _mm512_storeu_ps(out + i, halves_load(from + 2 * i, type));
        _mm512_storeu_ps(out + i + LANES, halves_load(from + 2 * i + LINE / 2, type));
    }
}

static void halves(float *room, const unsigned char *from, size_t n, kv_type type, const unsigned char *ahead)
{
    if (type == KV_F16) {
        halves_widen(room, from, n, KV_F16, ahead);
    } else {
        halves_widen(room, from, n, KV_BF16, ahead);
    }
}

MM_INLINE __m512 codes_load(const unsigned char *p)
{
    __m128i q = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q));
}

static void code_keys(float *out, const unsigned char *from, size_t dim, const unsigned char *ahead)
{
    const unsigned char *codes = from + kv_q8_scale_bytes(dim);
    __m512 s0 = _mm512_setzero_ps(), s1 = _mm512_setzero_ps();
    for (size_t d = 0; d < dim; d++, codes += KV_PAGE_TOKENS, out += KV_PAGE_TOKENS) {
        if (d % KV_BLOCK == 0) { /* scales of a block: a line, one for each position */
            s0 = halves_load(from + d * 2, KV_F16);
            s1 = halves_load(from + d * 2 + LINE / 2, KV_F16);
            fetch(ahead + d * 2);
        }
        fetch(ahead + (codes - from));
        _mm512_storeu_ps(out, _mm512_mul_ps(codes_load(codes), s0));
        _mm512_storeu_ps(out + LANES, _mm512_mul_ps(codes_load(codes + LANES), s1));
    }
}

/* Sixteen values of a row, these lanes of them. */
MM_INLINE void codes_widen_lanes(float *out, const unsigned char *codes, __m512 scale, __mmask16 lanes)
{
    __m512 x = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(lanes, codes)));
    _mm512_mask_storeu_ps(out, lanes, _mm512_mul_ps(x, scale));
}

static void code_values(float *out, const unsigned char *from, size_t dim, const unsigned char *ahead)
{
    const unsigned char *scales = from, *codes = from + kv_q8_scale_bytes(dim);
    for (size_t j = 0; j < KV_PAGE_TOKENS; j++) {
        for (size_t d = 0; d < dim; d += KV_BLOCK, codes += KV_BLOCK, out += KV_BLOCK, scales += 2) {
            uint16_t h;
            memcpy(&h, scales, sizeof h);
            __m512 scale = _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
            fetch(ahead + (codes - from));
            if (dim - d < KV_BLOCK) {
                size_t n = dim - d;
                codes_widen_lanes(out, codes, scale, w16_mask(n < LANES ? n : LANES));
                codes_widen_lanes(out + LANES, codes + LANES, scale, w16_mask(n < LANES ? 0 : n - LANES));
                codes -= KV_BLOCK - n;
                out -= KV_BLOCK - n;
                continue;
            }
            _mm512_storeu_ps(out, _mm512_mul_ps(codes_load(codes), scale));
            _mm512_storeu_ps(out + LANES, _mm512_mul_ps(codes_load(codes + LANES), scale));
        }
    }
}

/* Sixteen positions of one dimension of K, from position j on: k as it lies in a page, or (KV_F32) widened. */
MM_INLINE __m512 key_load(const unsigned char *k, size_t k_dim, size_t d, size_t j, const kv_type type)
{
    const size_t at = d * KV_PAGE_TOKENS + j;
    if (type == KV_F32) {
        return _mm512_loadu_ps((const float *)(const void *)k + at);
    }
    if (type != KV_Q8_0) {
        return halves_load(k + 2 * at, type);
    }
    __m512 scale = halves_load(k + 2 * (d / KV_BLOCK * KV_PAGE_TOKENS + j), KV_F16);
    return _mm512_mul_ps(codes_load(k + kv_q8_scale_bytes(k_dim) + at), scale);
}

/* n query heads, n_parts pages (n, n_parts and type are constants). */
MM_INLINE void scores_block(const attn_part *k, size_t k_dim, const float *q, float scale, float *p,
                            const kv_type type, const size_t n, const size_t n_parts)
{
    __m512 acc[BLOCK][4];
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        MM_UNROLL
        for (size_t x = 0; x < 2 * n_parts; x++) {
            acc[i][x] = _mm512_setzero_ps();
        }
    }
    for (size_t d = 0; d < k_dim; d++, q += n) {
        __m512 row[4];
        MM_UNROLL
        for (size_t x = 0; x < 2 * n_parts; x++) {
            row[x] = key_load(k[x / 2].at, k_dim, d, x % 2 * LANES, type);
        }
        MM_UNROLL
        for (size_t x = 0; x < n_parts; x++) {
            key_fetch(k[x].ahead, k_dim, d, type);
        }
        MM_UNROLL
        for (size_t i = 0; i < n; i++) {
            __m512 qd = _mm512_set1_ps(q[i]);
            MM_UNROLL
            for (size_t x = 0; x < 2 * n_parts; x++) {
                acc[i][x] = _mm512_fmadd_ps(qd, row[x], acc[i][x]);
            }
        }
    }
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        MM_UNROLL
        for (size_t x = 0; x < 2 * n_parts; x++) {
            _mm512_storeu_ps(p + i * KERN_ATTN_P_PITCH + x * LANES,
                             _mm512_mul_ps(acc[i][x], _mm512_set1_ps(scale)));
        }
    }
}

/* n query heads; the type is a constant. */
MM_INLINE void scores_of_one(const attn_part *k, size_t k_dim, const float *q, size_t n, float scale,
                             float *p, const kv_type type)
{
    switch (n) {
    case 1:
        scores_block(k, k_dim, q, scale, p, type, 1, 1);
        return;
    case 2:
        scores_block(k, k_dim, q, scale, p, type, 2, 1);
        return;
    case 3:
        scores_block(k, k_dim, q, scale, p, type, 3, 1);
        return;
    case 4:
        scores_block(k, k_dim, q, scale, p, type, 4, 1);
        return;
    case 5:
        scores_block(k, k_dim, q, scale, p, type, 5, 1);
        return;
    case 6:
        scores_block(k, k_dim, q, scale, p, type, 6, 1);
        return;
    case 7:
        scores_block(k, k_dim, q, scale, p, type, 7, 1);
        return;
    default:
        scores_block(k, k_dim, q, scale, p, type, BLOCK, 1);
    }
}

/* Two pages for up to PAIR heads: the chains of so few alone would wait for themselves, and two streams come faster than
 * one. */
MM_INLINE void scores_of_two(const attn_part *k, size_t k_dim, const float *q, size_t n, float scale,
                             float *p, const kv_type type)
{
    switch (n) {
    case 1:
        scores_block(k, k_dim, q, scale, p, type, 1, 2);
        return;
    case 2:
        scores_block(k, k_dim, q, scale, p, type, 2, 2);
        return;
    case 3:
        scores_block(k, k_dim, q, scale, p, type, 3, 2);
        return;
    default:
        scores_block(k, k_dim, q, scale, p, type, PAIR, 2);
    }
}

MM_INLINE void scores_of(const attn_part *k, size_t n_parts, size_t k_dim, const float *q, size_t n,
                         float scale, float *p, const kv_type type)
{
    if (n_parts == 2) {
        scores_of_two(k, k_dim, q, n, scale, p, type);
    } else {
        scores_of_one(k, k_dim, q, n, scale, p, type);
    }
}

static void scores(const attn_part *k, size_t n_parts, size_t k_dim, const float *q, size_t n, float scale,
                   float *p)
{
    switch ((int)k->type) {
    case KV_F32: /* one page: it is widened */
        scores_of_one(k, k_dim, q, n, scale, p, KV_F32);
        return;
    case KV_F16:
        scores_of(k, n_parts, k_dim, q, n, scale, p, KV_F16);
        return;
    case KV_BF16:
        scores_of(k, n_parts, k_dim, q, n, scale, p, KV_BF16);
        return;
    default:
        scores_of(k, n_parts, k_dim, q, n, scale, p, KV_Q8_0);
    }
}

/* Dimensions d … d + 15 of position j of V, these lanes of them: v as it lies in a page, or (KV_F32) widened. */
MM_INLINE __m512 value_load(const unsigned char *v, size_t v_dim, size_t j, size_t d, __mmask16 lanes,
                            const kv_type type)
{
    const size_t at = j * v_dim + d;
    if (type == KV_F32) {
        return _mm512_maskz_loadu_ps(lanes, (const float *)(const void *)v + at);
    }
    if (type != KV_Q8_0) {
        return halves_wide(_mm256_maskz_loadu_epi16(lanes, v + 2 * at), type);
    }
    uint16_t scale;
    memcpy(&scale, v + 2 * (j * ((v_dim + KV_BLOCK - 1) / KV_BLOCK) + d / KV_BLOCK), sizeof scale);
    __m128i codes = _mm_maskz_loadu_epi8(lanes, v + kv_q8_scale_bytes(v_dim) + at);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)),
                         _mm512_cvtph_ps(_mm256_set1_epi16((short)scale)));
}

/* n_v vectors of dimensions, from d on, of n query heads (n, n_v and type are constants), the last vector with these
 * lanes only. */
MM_INLINE void weigh_block(const attn_part *v, size_t v_dim, size_t d, const float *p, float *o, size_t j0,
                           size_t j1, const kv_type type, const size_t n, const size_t n_v, __mmask16 last)
{
    __m512 acc[BLOCK][4];
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            acc[i][x] = _mm512_maskz_loadu_ps(x + 1 < n_v ? 0xFFFF : last, o + i * v_dim + d + LANES * x);
        }
    }
    for (size_t j = j0; j <= j1; j++) {
        __m512 row[4];
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            row[x] = value_load(v->at, v_dim, j, d + LANES * x, x + 1 < n_v ? 0xFFFF : last, type);
            if (x % 2 == 0) {
                value_fetch(v->ahead, v_dim, j, d + LANES * x, type);
            }
        }
        MM_UNROLL
        for (size_t i = 0; i < n; i++) {
            __m512 pj = _mm512_set1_ps(p[i * KERN_ATTN_P_PITCH + j]);
            MM_UNROLL
            for (size_t x = 0; x < n_v; x++) {
                acc[i][x] = _mm512_fmadd_ps(pj, row[x], acc[i][x]);
            }
        }
    }
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            _mm512_mask_storeu_ps(o + i * v_dim + d + LANES * x, x + 1 < n_v ? 0xFFFF : last, acc[i][x]);
        }
    }
}

/* All dimensions of n query heads, n_v vectors at a time (n, n_v and type are constants). */
MM_INLINE void weigh_all(const attn_part *v, size_t v_dim, const float *p, float *o, size_t j0, size_t j1,
                         const kv_type type, const size_t n, const size_t n_v)
{
    size_t d = 0;
    for (; d + n_v * LANES <= v_dim; d += n_v * LANES) {
        weigh_block(v, v_dim, d, p, o, j0, j1, type, n, n_v, 0xFFFF);
    }
    for (; d < v_dim; d += LANES) {
        weigh_block(v, v_dim, d, p, o, j0, j1, type, n, 1, w16_mask(v_dim - d < LANES ? v_dim - d : LANES));
    }
}

/* n query heads; the type is a constant. */
MM_INLINE void weigh_of(const attn_part *v, size_t v_dim, const float *p, float *o, size_t j0, size_t j1,
                        size_t n, const kv_type type)
{
    switch (n) {
    case 1:
        weigh_all(v, v_dim, p, o, j0, j1, type, 1, 4);
        return;
    case 2:
        weigh_all(v, v_dim, p, o, j0, j1, type, 2, 4);
        return;
    case 3:
        weigh_all(v, v_dim, p, o, j0, j1, type, 3, 4);
        return;
    case 4:
        weigh_all(v, v_dim, p, o, j0, j1, type, 4, 4);
        return;
    case 5:
        weigh_all(v, v_dim, p, o, j0, j1, type, 5, 2);
        return;
    case 6:
        weigh_all(v, v_dim, p, o, j0, j1, type, 6, 2);
        return;
    case 7:
        weigh_all(v, v_dim, p, o, j0, j1, type, 7, 2);
        return;
    default:
        weigh_all(v, v_dim, p, o, j0, j1, type, BLOCK, 2);
    }
}

static void weigh(const attn_part *v, size_t v_dim, const float *p, float *o, size_t j0, size_t j1, size_t n)
{
    switch ((int)v->type) {
    case KV_F32:
        weigh_of(v, v_dim, p, o, j0, j1, n, KV_F32);
        return;
    case KV_F16:
        weigh_of(v, v_dim, p, o, j0, j1, n, KV_F16);
        return;
    case KV_BF16:
        weigh_of(v, v_dim, p, o, j0, j1, n, KV_BF16);
        return;
    default:
        weigh_of(v, v_dim, p, o, j0, j1, n, KV_Q8_0);
    }
}

/* Those of j … j + 15 that are seen; j is at most LANES - 1 before the first. */
MM_INLINE __mmask16 seen(size_t first, size_t last, size_t j)
{
    size_t after = last - j < LANES - 1 ? last - j + 1 : LANES;
    size_t before = first > j ? first - j : 0;
    return w16_mask(after) & (__mmask16)~w16_mask(before);
}

/* exp of -87 <= x <= 0 or NaN in these lanes, +0 in the others, which may hold anything: w16_exp, whose two exact
 * scalings are one where no result is denormal. */
MM_INLINE __m512 exp_below(__mmask16 lanes, __m512 x)
{
    const __m512 round = _mm512_set1_ps(FM_ROUND);
    __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(FM_LOG2E), round), round);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-FM_LN2_HI), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-FM_LN2_LO), r);
    __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(FM_EXP_Q4), r, _mm512_set1_ps(FM_EXP_Q3));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(FM_EXP_Q2));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(FM_EXP_Q1));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(FM_EXP_Q0));
    __m512 p = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r), _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(lanes, p, n);
}

/* All of a span. */
static float largest_of_whole(const float *p)
{
    __m512 most[4];
    MM_UNROLL
    for (size_t i = 0; i < KERN_SPAN / LANES; i++) {
        __m512 score = _mm512_loadu_ps(p + i * LANES);
        most[i % 4] = i < 4 ? score : _mm512_max_ps(most[i % 4], score);
    }
    return _mm512_reduce_max_ps(
        _mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3])));
}

static float largest(float *p, size_t first, size_t last, float soft_cap)
{
    const __m512 cap = _mm512_set1_ps(soft_cap);
    __m512 most = _mm512_set1_ps(-INFINITY);
    if (first == 0 && last == KERN_SPAN - 1 && !(soft_cap > 0)) {
        return largest_of_whole(p);
    }
    for (size_t j = first / LANES * LANES; j <= last; j += LANES) {
        __m512 score = _mm512_loadu_ps(p + j);
        if (soft_cap > 0) {
            score = _mm512_mul_ps(cap, w16_tanh(_mm512_div_ps(score, cap)));
            _mm512_storeu_ps(p + j, score);
        }
        most = _mm512_mask_max_ps(most, seen(first, last, j), most, score);
    }
    return _mm512_reduce_max_ps(most);
}

/* Sixteen weights, these lanes of them. */
MM_INLINE __m512 weights_of(__m512 score, __m512 most, __mmask16 lanes)
{
    __m512 below = _mm512_sub_ps(score, most);
    /* not less: a NaN stays one */
    return exp_below(_mm512_mask_cmp_ps_mask(lanes, below, _mm512_set1_ps(KERN_ATTN_FLOOR), _CMP_NLT_UQ),
                     below);
}

static float weights(float *p, size_t first, size_t last, float m)
{
    const __m512 most = _mm512_set1_ps(m);
    __m512 lanes = _mm512_setzero_ps();
    bool whole = first == 0 && last == KERN_SPAN - 1;
    for (size_t j = first / LANES * LANES; j <= last; j += LANES) {
        __m512 e = weights_of(_mm512_loadu_ps(p + j), most, whole ? 0xFFFF : seen(first, last, j));
        lanes = _mm512_add_ps(lanes, e);
        _mm512_storeu_ps(p + j, e);
    }
    return w16_sum(lanes);
}

static void merge(float *m, float *l, float *o, const float *m2, const float *l2, const float *o2, size_t n,
                  size_t v_dim)
{
    __mmask16 all = w16_mask(n);
    __m512 run = _mm512_maskz_loadu_ps(all, m), next = _mm512_maskz_loadu_ps(all, m2);
    __m512 most = _mm512_max_ps(next, run);
    __m512 a = w16_exp(_mm512_sub_ps(run, most)), b = w16_exp(_mm512_sub_ps(next, most));
    __m512 sum = _mm512_mul_ps(_mm512_maskz_loadu_ps(all, l2), b);
    float scale[LANES], scale2[LANES];
    _mm512_mask_storeu_ps(m, all, most);
    _mm512_mask_storeu_ps(l, all, _mm512_fmadd_ps(_mm512_maskz_loadu_ps(all, l), a, sum));
    _mm512_storeu_ps(scale, a);
    _mm512_storeu_ps(scale2, b);
    for (size_t i = 0; i < n; i++, o += v_dim) {
        for (size_t d = 0; d < v_dim; d += LANES) {
            __mmask16 lanes = w16_mask(v_dim - d < LANES ? v_dim - d : LANES);
            __m512 add = o2 ? _mm512_maskz_loadu_ps(lanes, o2 + i * v_dim + d) : _mm512_setzero_ps();
            add = _mm512_mul_ps(add, _mm512_set1_ps(scale2[i]));
            add = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(lanes, o + d), _mm512_set1_ps(scale[i]), add);
            _mm512_mask_storeu_ps(o + d, lanes, add);
        }
    }
}

static void divide(float *out, const float *o, float l, size_t v_dim)
{
    for (size_t d = 0; d < v_dim; d += LANES) {
        __mmask16 lanes = w16_mask(v_dim - d < LANES ? v_dim - d : LANES);
        __m512 x = _mm512_div_ps(_mm512_maskz_loadu_ps(lanes, o + d), _mm512_set1_ps(l));
        _mm512_mask_storeu_ps(out + d, lanes, x);
    }
}

static const attn_ops ops = {
    .block = BLOCK,
    .pair = PAIR,
    .halves = halves,
    .code_keys = code_keys,
    .code_values = code_values,
    .turn = attn_turn_avx2,
    .scores = scores,
    .largest = largest,
    .weights = weights,
    .weigh = weigh,
    .merge = merge,
    .divide = divide,
};

void attention_avx512(const kern_attn *a)
{
    attn_walk(&ops, a);
}

void attention_spans_avx512(const kern_attn *a, size_t span0, size_t span1, float *parts)
{
    attn_walk_spans(&ops, a, span0, span1, parts);
}

void attention_join_avx512(const kern_attn *a, size_t span0, const float *parts)
{
    attn_walk_join(&ops, a, span0, parts);
}
