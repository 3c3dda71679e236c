/*
 * Rule 3 with eight positions per vector for the scores and eight dimensions per vector for the values
 * (kern/attn_walk.h). The accumulators of up to four query heads (8 to 12 vectors) stay in registers while each row of K
 * or V is loaded once; four heads take half of a page, or two vectors of V, at a time.
 */
#include "kern/attn_walk.h"
#include "kern/x86/avx2.h"
#include "kern/x86/fmath_avx2.h"
#include "kern/x86/unroll.h"
#include "kern/x86/vec_avx2.h"

#define LANES     8
#define LINE      64
#define BLOCK     4 /* query heads */
#define PAGE_VECS (KV_PAGE_TOKENS / LANES)

MM_INLINE void fetch(const unsigned char *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

MM_INLINE __m256 halves_load(const unsigned char *p, kv_type type)
{
    if (type == KV_F16) {
        return v8_load_f16(p);
    }
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* n values of two bytes, a multiple of 32. */
MM_INLINE void halves_widen(float *out, const unsigned char *from, size_t n, kv_type type,
                            const unsigned char *ahead)
{
    for (size_t i = 0; i < n; i += 4 * LANES) {
        fetch(ahead + 2 * i);
        MM_UNROLL
        for (size_t x = 0; x < 4 * LANES; x += LANES) {
            _mm256_storeu_ps(out + i + x, halves_load(from + 2 * (i + x), type));
        }
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

MM_INLINE __m256 codes_widen(__m128i q, __m256 scale)
{
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), scale);
}

static void code_keys(float *out, const unsigned char *from, size_t dim, const unsigned char *ahead)
{
    const unsigned char *codes = from + kv_q8_scale_bytes(dim);
    for (size_t d = 0; d < dim; d++, codes += KV_PAGE_TOKENS) {
        const unsigned char *scales = from + d / KV_BLOCK * LINE;
        fetch(ahead + d * KV_PAGE_TOKENS);
        MM_UNROLL
        for (size_t x = 0; x < KV_PAGE_TOKENS; x += LANES) {
            __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)(codes + x));
            _mm256_storeu_ps(out + d * KV_PAGE_TOKENS + x,
                             codes_widen(q, halves_load(scales + 2 * x, KV_F16)));
        }
    }
}

static void code_values(float *out, const unsigned char *from, size_t dim, const unsigned char *ahead)
{
    const unsigned char *codes = from + kv_q8_scale_bytes(dim);
    const unsigned char *scale = from;
    for (size_t j = 0; j < KV_PAGE_TOKENS; j++, out += dim, codes += dim) {
        for (size_t d = 0; d < dim; d += LANES) {
            size_t n = dim - d < LANES ? dim - d : LANES;
            uint16_t h;
            uint64_t q = 0;
            memcpy(&h, scale + d / KV_BLOCK * sizeof h, sizeof h);
            memcpy(&q, codes + d, n);
            v8_store_n(out + d, n,
                       codes_widen(_mm_cvtsi64_si128((long long)q), _mm256_set1_ps(_cvtsh_ss(h))));
            fetch(ahead + j * dim + d);
        }
        scale += (dim + KV_BLOCK - 1) / KV_BLOCK * sizeof(uint16_t);
    }
}

/* Eight rows of eight columns, k rows 32 apart, into v rows v_dim apart. */
static void turn_8x8(float *v, size_t v_dim, const float *k)
{
    __m256 a[8], b[8];
    MM_UNROLL
    for (size_t i = 0; i < 4; i++) { /* pairs of rows: columns 0 1 4 5 and 2 3 6 7 */
        __m256 x = _mm256_loadu_ps(k + 2 * i * KV_PAGE_TOKENS);
        __m256 y = _mm256_loadu_ps(k + (2 * i + 1) * KV_PAGE_TOKENS);
        a[2 * i] = _mm256_unpacklo_ps(x, y);
        a[2 * i + 1] = _mm256_unpackhi_ps(x, y);
    }
    MM_UNROLL
    for (size_t i = 0; i < 2; i++) { /* four rows each: columns 0 4, 1 5, 2 6, 3 7 */
        const __m256 *f = a + 4 * i;
        b[4 * i] = _mm256_shuffle_ps(f[0], f[2], 0x44);
        b[4 * i + 1] = _mm256_shuffle_ps(f[0], f[2], 0xEE);
        b[4 * i + 2] = _mm256_shuffle_ps(f[1], f[3], 0x44);
        b[4 * i + 3] = _mm256_shuffle_ps(f[1], f[3], 0xEE);
    }
    MM_UNROLL
    for (size_t i = 0; i < 4; i++) {
        _mm256_storeu_ps(v + i * v_dim, _mm256_permute2f128_ps(b[i], b[4 + i], 0x20));
        _mm256_storeu_ps(v + (i + 4) * v_dim, _mm256_permute2f128_ps(b[i], b[4 + i], 0x31));
    }
}

void attn_turn_avx2(float *v, const float *k, size_t v_dim)
{
    size_t d = 0;
    for (; d + 8 <= v_dim; d += 8) {
        for (size_t j = 0; j < KV_PAGE_TOKENS; j += 8) {
            turn_8x8(v + j * v_dim + d, v_dim, k + d * KV_PAGE_TOKENS + j);
        }
    }
    for (; d < v_dim; d++) {
        for (size_t j = 0; j < KV_PAGE_TOKENS; j++) {
            v[j * v_dim + d] = k[d * KV_PAGE_TOKENS + j];
        }
    }
}

/* n query heads with n_v vectors of positions (both constant) from k on. */
MM_INLINE void scores_block(const float *k, size_t k_dim, const float *q, float scale, float *p,
                            const size_t n, const size_t n_v)
{
    __m256 acc[BLOCK][PAGE_VECS];
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            acc[i][x] = _mm256_setzero_ps();
        }
    }
    for (size_t d = 0; d < k_dim; d++, k += KV_PAGE_TOKENS, q += n) {
        __m256 row[PAGE_VECS];
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            row[x] = _mm256_loadu_ps(k + LANES * x);
        }
        MM_UNROLL
        for (size_t i = 0; i < n; i++) {
            __m256 qd = _mm256_broadcast_ss(q + i);
            MM_UNROLL
            for (size_t x = 0; x < n_v; x++) {
                acc[i][x] = _mm256_fmadd_ps(qd, row[x], acc[i][x]);
            }
        }
    }
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            _mm256_storeu_ps(p + i * KERN_ATTN_P_PITCH + LANES * x,
                             _mm256_mul_ps(acc[i][x], _mm256_set1_ps(scale)));
        }
    }
}

static void scores(const float *k, size_t k_dim, const float *q, size_t n, float scale, float *p)
{
    switch (n) {
    case 1:
        scores_block(k, k_dim, q, scale, p, 1, 4);
        return;
    case 2:
        scores_block(k, k_dim, q, scale, p, 2, 4);
        return;
    case 3:
        scores_block(k, k_dim, q, scale, p, 3, 2);
        scores_block(k + 2 * LANES, k_dim, q, scale, p + 2 * LANES, 3, 2);
        return;
    default:
        scores_block(k, k_dim, q, scale, p, BLOCK, 2);
        scores_block(k + 2 * LANES, k_dim, q, scale, p + 2 * LANES, BLOCK, 2);
    }
}

/* o += p[j] V[j] for n_v vectors of dimensions of n query heads (both constant). */
MM_INLINE void weigh_block(const float *v, size_t v_dim, const float *p, float *o, size_t j0, size_t j1,
                           const size_t n, const size_t n_v)
{
    __m256 acc[BLOCK][8];
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            acc[i][x] = _mm256_loadu_ps(o + i * v_dim + LANES * x);
        }
    }
    v += j0 * v_dim;
    for (size_t j = j0; j <= j1; j++, v += v_dim) {
        __m256 pj[BLOCK];
        MM_UNROLL
        for (size_t i = 0; i < n; i++) {
            pj[i] = _mm256_broadcast_ss(p + i * KERN_ATTN_P_PITCH + j);
        }
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            __m256 row = _mm256_loadu_ps(v + LANES * x);
            MM_UNROLL
            for (size_t i = 0; i < n; i++) {
                acc[i][x] = _mm256_fmadd_ps(pj[i], row, acc[i][x]);
            }
        }
    }
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            _mm256_storeu_ps(o + i * v_dim + LANES * x, acc[i][x]);
        }
    }
}

/* The last v_dim % 8 dimensions. */
static void weigh_tail(const float *v, size_t v_dim, const float *p, float *o, size_t j0, size_t j1,
                       size_t n_tail)
{
    __m256 acc = v8_load_n(o, n_tail);
    for (size_t j = j0; j <= j1; j++) {
        acc = _mm256_fmadd_ps(_mm256_set1_ps(p[j]), v8_load_n(v + j * v_dim, n_tail), acc);
    }
    v8_store_n(o, n_tail, acc);
}

/* All dimensions of n query heads; n_v vectors (both constant) at a time, then single vectors, then the tail. */
MM_INLINE void weigh_all(const float *v, size_t v_dim, const float *p, float *o, size_t j0, size_t j1,
                         const size_t n, const size_t n_v)
{
    size_t d = 0;
    for (; d + n_v * LANES <= v_dim; d += n_v * LANES) {
        weigh_block(v + d, v_dim, p, o + d, j0, j1, n, n_v);
    }
    for (; d + LANES <= v_dim; d += LANES) {
        weigh_block(v + d, v_dim, p, o + d, j0, j1, n, 1);
    }
    for (size_t i = 0; d < v_dim && i < n; i++) {
        weigh_tail(v + d, v_dim, p + i * KERN_ATTN_P_PITCH, o + i * v_dim + d, j0, j1, v_dim - d);
    }
}

static void weigh(const float *v, size_t v_dim, const float *p, float *o, size_t j0, size_t j1, size_t n)
{
    switch (n) {
    case 1:
        weigh_all(v, v_dim, p, o, j0, j1, 1, 8);
        return;
    case 2:
        weigh_all(v, v_dim, p, o, j0, j1, 2, 4);
        return;
    case 3:
        weigh_all(v, v_dim, p, o, j0, j1, 3, 2);
        return;
    default:
        weigh_all(v, v_dim, p, o, j0, j1, BLOCK, 2);
    }
}

/* All ones where j … j + 7 are seen. */
MM_INLINE __m256 seen(size_t first, size_t last, size_t j)
{
    const __m256i at = _mm256_add_epi32(_mm256_set1_epi32((int)j), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)first), at);
    __m256i after = _mm256_cmpgt_epi32(at, _mm256_set1_epi32((int)last));
    return _mm256_castsi256_ps(_mm256_xor_si256(_mm256_or_si256(before, after), _mm256_set1_epi32(-1)));
}

static float max_lane(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

/* All of a span. */
static float largest_of_whole(const float *p)
{
    __m256 most[4];
    MM_UNROLL
    for (size_t i = 0; i < 4; i++) {
        most[i] = _mm256_loadu_ps(p + LANES * i);
    }
    for (size_t j = 4 * LANES; j < KERN_SPAN; j += 4 * LANES) {
        MM_UNROLL
        for (size_t i = 0; i < 4; i++) {
            most[i] = _mm256_max_ps(most[i], _mm256_loadu_ps(p + j + LANES * i));
        }
    }
    return max_lane(_mm256_max_ps(_mm256_max_ps(most[0], most[1]), _mm256_max_ps(most[2], most[3])));
}

static float largest(float *p, size_t first, size_t last, float soft_cap)
{
    const __m256 cap = _mm256_set1_ps(soft_cap), none = _mm256_set1_ps(-INFINITY);
    __m256 most = none;
    if (first == 0 && last == KERN_SPAN - 1 && !(soft_cap > 0)) {
        return largest_of_whole(p);
    }
    for (size_t j = first / LANES * LANES; j <= last; j += LANES) {
        __m256 score = _mm256_loadu_ps(p + j);
        if (soft_cap > 0) {
            score = _mm256_mul_ps(cap, v8_tanh(_mm256_div_ps(score, cap)));
            _mm256_storeu_ps(p + j, score);
        }
        most = _mm256_max_ps(most, _mm256_blendv_ps(none, score, seen(first, last, j)));
    }
    return max_lane(most);
}

/* exp of -87 <= x <= 0 or NaN, anything below: v8_exp, whose two exact scalings are one where no result is denormal. */
MM_INLINE __m256 exp_below(__m256 x)
{
    const __m256 round = _mm256_set1_ps(FM_ROUND);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(FM_LOG2E), round);
    __m256 n = _mm256_sub_ps(t, round);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-FM_LN2_HI), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-FM_LN2_LO), r);
    __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(FM_EXP_Q4), r, _mm256_set1_ps(FM_EXP_Q3));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(FM_EXP_Q2));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(FM_EXP_Q1));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(FM_EXP_Q0));
    __m256 p = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r), _mm256_set1_ps(1.0f));
    /* the low bits of t are n, in two's complement; what stands above them is shifted out */
    __m256i pow2 =
        _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23), _mm256_set1_epi32(127 << 23));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(pow2));
}

/* Eight scores become exp(score - m), +0 where not seen or below the floor, and are added to their lanes. */
MM_INLINE void scores_exp(float *p, __m256 m, __m256 counts, __m256 *lanes)
{
    __m256 below = _mm256_sub_ps(_mm256_loadu_ps(p), m);
    /* not less: a NaN stays one */
    __m256 above = _mm256_cmp_ps(below, _mm256_set1_ps(KERN_ATTN_FLOOR), _CMP_NLT_UQ);
    __m256 e = _mm256_and_ps(exp_below(below), _mm256_and_ps(counts, above));
    *lanes = _mm256_add_ps(*lanes, e);
    _mm256_storeu_ps(p, e);
}

/* The lanes of rule 6. */
static float weights(float *p, size_t first, size_t last, float m)
{
    const __m256 most = _mm256_set1_ps(m);
    __m256 lo = _mm256_setzero_ps();
    __m256 hi = _mm256_setzero_ps();
    if (first == 0 && last == KERN_SPAN - 1) {
        const __m256 all = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
        for (size_t j = 0; j < KERN_SPAN; j += 16) {
            scores_exp(p + j, most, all, &lo);
            scores_exp(p + j + 8, most, all, &hi);
        }
        return v16_sum(lo, hi);
    }
    for (size_t j = first / 16 * 16; j <= last; j += 16) {
        scores_exp(p + j, most, seen(first, last, j), &lo);
        scores_exp(p + j + 8, most, seen(first, last, j + 8), &hi);
    }
    return v16_sum(lo, hi);
}

static void merge(float *m, float *l, float *o, const float *m2, const float *l2, const float *o2, size_t n,
                  size_t v_dim)
{
    float scale[LANES], scale2[LANES];
    __m256 run = v8_load_n(m, n), next = v8_load_n(m2, n);
    __m256 most = _mm256_max_ps(next, run);
    __m256 a = v8_exp(_mm256_sub_ps(run, most)), b = v8_exp(_mm256_sub_ps(next, most));
    v8_store_n(m, n, most);
    v8_store_n(l, n, _mm256_fmadd_ps(v8_load_n(l, n), a, _mm256_mul_ps(v8_load_n(l2, n), b)));
    _mm256_storeu_ps(scale, a);
    _mm256_storeu_ps(scale2, b);
    for (size_t i = 0; i < n; i++, o += v_dim) {
        for (size_t d = 0; d < v_dim; d += LANES) {
            size_t left = v_dim - d < LANES ? v_dim - d : LANES;
            __m256 add = o2 ? v8_load_n(o2 + i * v_dim + d, left) : _mm256_setzero_ps();
            add = _mm256_mul_ps(add, _mm256_set1_ps(scale2[i]));
            v8_store_n(o + d, left, _mm256_fmadd_ps(v8_load_n(o + d, left), _mm256_set1_ps(scale[i]), add));
        }
    }
}

static void divide(float *out, const float *o, float l, size_t v_dim)
{
    for (size_t d = 0; d < v_dim; d += LANES) {
        size_t n = v_dim - d < LANES ? v_dim - d : LANES;
        v8_store_n(out + d, n, _mm256_div_ps(v8_load_n(o + d, n), _mm256_set1_ps(l)));
    }
}

static const attn_ops ops = {
    .block = BLOCK,
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

void attention_avx2(const kern_attn *a)
{
    attn_walk(&ops, a);
}

void attention_spans_avx2(const kern_attn *a, size_t span0, size_t span1, float *parts)
{
    attn_walk_spans(&ops, a, span0, span1, parts);
}

void attention_join_avx2(const kern_attn *a, size_t span0, const float *parts)
{
    attn_walk_join(&ops, a, span0, parts);
}
