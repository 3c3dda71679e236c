/*
 * Rule 3 with eight positions per vector for the scores and eight dimensions per vector for the values
 * (kern/attn_walk.h). The accumulators of up to four query heads (8 to 12 vectors) stay in registers while each row of K
 * or V is loaded once; four heads take half of a page, or two vectors of V, at a time.
 */
#include "kern/attn_walk.h"
#include "kern/x86/attn_fetch.h"
#include "kern/x86/avx2.h"
#include "kern/x86/fmath_avx2.h"
#include "kern/x86/unroll.h"
#include "kern/x86/vec_avx2.h"

#define LANES     8
#define BLOCK     4 /* query heads */
#define PAGE_VECS (KV_PAGE_TOKENS / LANES)

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

/* Eight positions of one dimension of K, from position j on: k as it lies in a page, or (KV_F32) widened. */
MM_INLINE __m256 key_load(const unsigned char *k, size_t k_dim, size_t d, size_t j, const kv_type type)
{
    const size_t at = d * KV_PAGE_TOKENS + j;
    if (type == KV_F32) {
        return _mm256_loadu_ps((const float *)(const void *)k + at);
    }
    if (type != KV_Q8_0) {
        return halves_load(k + 2 * at, type);
    }
    __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)(k + kv_q8_scale_bytes(k_dim) + at));
    return codes_widen(codes, halves_load(k + 2 * (d / KV_BLOCK * KV_PAGE_TOKENS + j), KV_F16));
}

/* n query heads with n_v vectors of positions from j on (n, n_v and type are constants). */
MM_INLINE void scores_block(const attn_part *k, size_t k_dim, const float *q, float scale, float *p, size_t j,
                            const kv_type type, const size_t n, const size_t n_v)
{
    __m256 acc[BLOCK][PAGE_VECS];
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            acc[i][x] = _mm256_setzero_ps();
        }
    }
    for (size_t d = 0; d < k_dim; d++, q += n) {
        __m256 row[PAGE_VECS];
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            row[x] = key_load(k->at, k_dim, d, j + LANES * x, type);
        }
        if (j == 0) {
            key_fetch(k->ahead, k_dim, d, type);
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
            _mm256_storeu_ps(p + i * KERN_ATTN_P_PITCH + j + LANES * x,
                             _mm256_mul_ps(acc[i][x], _mm256_set1_ps(scale)));
        }
    }
}

/* n query heads; the type is a constant. */
MM_INLINE void scores_of(const attn_part *k, size_t k_dim, const float *q, size_t n, float scale, float *p,
                         const kv_type type)
{
    switch (n) {
    case 1:
        scores_block(k, k_dim, q, scale, p, 0, type, 1, 4);
        return;
    case 2:
        scores_block(k, k_dim, q, scale, p, 0, type, 2, 4);
        return;
    case 3:
        scores_block(k, k_dim, q, scale, p, 0, type, 3, 2);
        scores_block(k, k_dim, q, scale, p, 2 * LANES, type, 3, 2);
        return;
    default:
        scores_block(k, k_dim, q, scale, p, 0, type, BLOCK, 2);
        scores_block(k, k_dim, q, scale, p, 2 * LANES, type, BLOCK, 2);
    }
}

static void scores(const attn_part *k, size_t n_parts, size_t k_dim, const float *q, size_t n, float scale,
                   float *p)
{
    (void)n_parts; /* one: there is no register for a second */
    switch ((int)k->type) {
    case KV_F32:
        scores_of(k, k_dim, q, n, scale, p, KV_F32);
        return;
    case KV_F16:
        scores_of(k, k_dim, q, n, scale, p, KV_F16);
        return;
    case KV_BF16:
        scores_of(k, k_dim, q, n, scale, p, KV_BF16);
        return;
    default:
        scores_of(k, k_dim, q, n, scale, p, KV_Q8_0);
    }
}

/* Dimensions d … d + n - 1, n <= 8, of position j of V: v as it lies in a page, or (KV_F32) widened; +0 in the other
 * lanes. */
MM_INLINE __m256 value_load(const unsigned char *v, size_t v_dim, size_t j, size_t d, size_t n,
                            const kv_type type)
{
    const size_t at = j * v_dim + d;
    if (type == KV_F32) {
        return v8_load_n((const float *)(const void *)v + at, n);
    }
    if (type != KV_Q8_0) {
        unsigned char part[2 * LANES] = {0};
        return halves_load(n == LANES ? v + 2 * at : memcpy(part, v + 2 * at, 2 * n), type);
    }
    uint16_t scale;
    uint64_t codes = 0;
    memcpy(&scale, v + 2 * (j * ((v_dim + KV_BLOCK - 1) / KV_BLOCK) + d / KV_BLOCK), sizeof scale);
    memcpy(&codes, v + kv_q8_scale_bytes(v_dim) + at, n);
    return codes_widen(_mm_cvtsi64_si128((long long)codes), _mm256_set1_ps(_cvtsh_ss(scale)));
}

/* o += p[j] V[j] for n_v vectors of dimensions, from d on, of n query heads (n, n_v and type are constants). */
MM_INLINE void weigh_block(const attn_part *v, size_t v_dim, size_t d, const float *p, float *o, size_t j0,
                           size_t j1, const kv_type type, const size_t n, const size_t n_v)
{
    __m256 acc[BLOCK][8];
    MM_UNROLL
    for (size_t i = 0; i < n; i++) {
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            acc[i][x] = _mm256_loadu_ps(o + i * v_dim + d + LANES * x);
        }
    }
    for (size_t j = j0; j <= j1; j++) {
        __m256 pj[BLOCK];
        MM_UNROLL
        for (size_t i = 0; i < n; i++) {
            pj[i] = _mm256_broadcast_ss(p + i * KERN_ATTN_P_PITCH + j);
        }
        MM_UNROLL
        for (size_t x = 0; x < n_v; x++) {
            if ((d / LANES + x) % 4 == 0) {
                value_fetch(v->ahead, v_dim, j, d + LANES * x, type);
            }
            __m256 row = value_load(v->at, v_dim, j, d + LANES * x, LANES, type);
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
            _mm256_storeu_ps(o + i * v_dim + d + LANES * x, acc[i][x]);
        }
    }
}

/* The last v_dim % 8 dimensions, from d on. */
MM_INLINE void weigh_tail(const attn_part *v, size_t v_dim, size_t d, const float *p, float *o, size_t j0,
                          size_t j1, const kv_type type)
{
    __m256 acc = v8_load_n(o + d, v_dim - d);
    for (size_t j = j0; j <= j1; j++) {
        acc = _mm256_fmadd_ps(_mm256_set1_ps(p[j]), value_load(v->at, v_dim, j, d, v_dim - d, type), acc);
    }
    v8_store_n(o + d, v_dim - d, acc);
}

/* All dimensions of n query heads; n_v vectors at a time (n, n_v and type are constants), then single vectors, then the
 * tail. */
MM_INLINE void weigh_all(const attn_part *v, size_t v_dim, const float *p, float *o, size_t j0, size_t j1,
                         const kv_type type, const size_t n, const size_t n_v)
{
    size_t d = 0;
    for (; d + n_v * LANES <= v_dim; d += n_v * LANES) {
        weigh_block(v, v_dim, d, p, o, j0, j1, type, n, n_v);
    }
    for (; d + LANES <= v_dim; d += LANES) {
        weigh_block(v, v_dim, d, p, o, j0, j1, type, n, 1);
    }
    for (size_t i = 0; d < v_dim && i < n; i++) {
        weigh_tail(v, v_dim, d, p + i * KERN_ATTN_P_PITCH, o + i * v_dim, j0, j1, type);
    }
}

/* n query heads; the type is a constant. */
MM_INLINE void weigh_of(const attn_part *v, size_t v_dim, const float *p, float *o, size_t j0, size_t j1,
                        size_t n, const kv_type type)
{
    switch (n) {
    case 1:
        weigh_all(v, v_dim, p, o, j0, j1, type, 1, 8);
        return;
    case 2:
        weigh_all(v, v_dim, p, o, j0, j1, type, 2, 4);
        return;
    case 3:
        weigh_all(v, v_dim, p, o, j0, j1, type, 3, 2);
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
    .pair = 0,
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
