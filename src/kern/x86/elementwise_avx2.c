/* Norms, activations and whole-row questions, eight lanes at a time (rule 6). */
#include <math.h>

#include "kern/fmath.h"
#include "kern/x86/avx2.h"
#include "kern/x86/fmath_avx2.h"
#include "kern/x86/vec_avx2.h"

static size_t lanes_left(size_t n, size_t i)
{
    return n - i < 8 ? n - i : 8;
}

void rms_norm_avx2(float *y, const float *x, const float *w, size_t n, float eps)
{
    __m256 lo = _mm256_setzero_ps();
    __m256 hi = _mm256_setzero_ps();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 a = _mm256_loadu_ps(x + i);
        __m256 b = _mm256_loadu_ps(x + i + 8);
        lo = _mm256_fmadd_ps(a, a, lo);
        hi = _mm256_fmadd_ps(b, b, hi);
    }
    if (i < n) { /* lanes without an element add +0, which changes nothing */
        size_t n_lo = lanes_left(n, i);
        size_t n_hi = n - i - n_lo;
        __m256 a = v8_load_n(x + i, n_lo);
        lo = _mm256_fmadd_ps(a, a, lo);
        if (n_hi > 0) {
            __m256 b = v8_load_n(x + i + 8, n_hi);
            hi = _mm256_fmadd_ps(b, b, hi);
        }
    }
    float mean = v16_sum(lo, hi) / (float)n;
    __m256 scale = _mm256_set1_ps(isfinite(mean) ? 1.0f / sqrtf(mean + eps) : NAN);
    for (i = 0; i < n; i += 8) {
        size_t m = lanes_left(n, i);
        __m256 v = _mm256_mul_ps(v8_load_n(x + i, m), scale);
        v8_store_n(y + i, m, _mm256_mul_ps(v, v8_load_n(w + i, m)));
    }
}

void add_avx2(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        size_t m = lanes_left(n, i);
        v8_store_n(y + i, m, _mm256_add_ps(v8_load_n(y + i, m), v8_load_n(x + i, m)));
    }
}

void silu_mul_avx2(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        size_t m = lanes_left(n, i);
        v8_store_n(y + i, m, _mm256_mul_ps(v8_silu(v8_load_n(gate + i, m)), v8_load_n(up + i, m)));
    }
}

void exp_array_avx2(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        size_t m = lanes_left(n, i);
        v8_store_n(y + i, m, v8_exp(v8_load_n(x + i, m)));
    }
}

void log_array_avx2(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        size_t m = lanes_left(n, i);
        v8_store_n(y + i, m, v8_log(v8_load_n(x + i, m)));
    }
}

void tanh_array_avx2(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        size_t m = lanes_left(n, i);
        v8_store_n(y + i, m, v8_tanh(v8_load_n(x + i, m)));
    }
}

void sin_cos_array_avx2(float *s, float *c, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 4) {
        size_t m = n - i < 4 ? n - i : 4;
        __m128i lanes = _mm256_castsi256_si128(v8_mask(m));
        __m128 v = _mm_maskload_ps(x + i, lanes);
        __m128 magnitude = _mm_andnot_ps(_mm_set1_ps(-0.0f), v);
        unsigned huge = (unsigned)_mm_movemask_ps(_mm_cmpge_ps(magnitude, _mm_set1_ps(FM_TRIG_HUGE)));
        __m128 vs, vc;
        v4_sin_cos(v, &vs, &vc);
        _mm_maskstore_ps(s + i, lanes, vs);
        _mm_maskstore_ps(c + i, lanes, vc);
        for (; huge; huge &= huge - 1) {
            size_t at = i + (size_t)__builtin_ctz(huge);
            s[at] = fm_sin(x[at]);
            c[at] = fm_cos(x[at]);
        }
    }
}

/* A value is finite unless its exponent is all ones. */
bool all_finite_avx2(const float *x, size_t n)
{
    const __m256i exponent = _mm256_set1_epi32(0x7F800000);
    __m256i bad = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 8) {
        __m256i v = _mm256_castps_si256(v8_load_n(x + i, lanes_left(n, i)));
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(_mm256_and_si256(v, exponent), exponent));
    }
    return _mm256_testz_si256(bad, bad);
}

static float max_of(const float *x, size_t n)
{
    __m256 m[4];
    size_t i = 0;
    float best = x[0];
    if (n >= 32) {
        for (int v = 0; v < 4; v++) {
            m[v] = _mm256_loadu_ps(x + 8 * v);
        }
        for (i = 32; i + 32 <= n; i += 32) {
            for (int v = 0; v < 4; v++) {
                m[v] = _mm256_max_ps(m[v], _mm256_loadu_ps(x + i + 8 * v));
            }
        }
        float lane[8];
        _mm256_storeu_ps(lane, _mm256_max_ps(_mm256_max_ps(m[0], m[1]), _mm256_max_ps(m[2], m[3])));
        for (int v = 0; v < 8; v++) {
            best = lane[v] > best ? lane[v] : best;
        }
    }
    for (; i < n; i++) {
        best = x[i] > best ? x[i] : best;
    }
    return best;
}

/* The largest value first, then the first place that equals it. */
size_t argmax_avx2(const float *x, size_t n)
{
    const __m256 best = _mm256_set1_ps(max_of(x, n));
    for (size_t i = 0; i < n; i += 8) {
        size_t m = lanes_left(n, i);
        int at = _mm256_movemask_ps(_mm256_cmp_ps(v8_load_n(x + i, m), best, _CMP_EQ_OQ));
        at &= (1 << m) - 1; /* the lanes behind the end hold +0 */
        if (at) {
            return i + (size_t)__builtin_ctz((unsigned)at);
        }
    }
    return 0; /* only a NaN equals nothing */
}
