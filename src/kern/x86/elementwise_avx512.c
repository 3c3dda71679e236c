/* Norms, activations and whole-row questions, sixteen lanes at a time (rule 6). */
#include <math.h>

#include "kern/fmath.h"
#include "kern/x86/avx512.h"
#include "kern/x86/fmath_avx512.h"

static __mmask16 lanes_at(size_t n, size_t i)
{
    return w16_mask(n - i < 16 ? n - i : 16);
}

void rms_norm_avx512(float *y, const float *x, const float *w, size_t n, float eps)
{
    __m512 sum = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += 16) { /* lanes without an element add +0, which changes nothing */
        __m512 v = _mm512_maskz_loadu_ps(lanes_at(n, i), x + i);
        sum = _mm512_fmadd_ps(v, v, sum);
    }
    float mean = w16_sum(sum) / (float)n;
    const __m512 scale = _mm512_set1_ps(isfinite(mean) ? 1.0f / sqrtf(mean + eps) : NAN);
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = lanes_at(n, i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), scale);
        _mm512_mask_storeu_ps(y + i, lanes, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(lanes, w + i)));
    }
}

void silu_mul_avx512(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = lanes_at(n, i);
        __m512 v = w16_silu(_mm512_maskz_loadu_ps(lanes, gate + i));
        _mm512_mask_storeu_ps(y + i, lanes, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(lanes, up + i)));
    }
}

void add_avx512(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = lanes_at(n, i);
        __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y + i), _mm512_maskz_loadu_ps(lanes, x + i));
        _mm512_mask_storeu_ps(y + i, lanes, sum);
    }
}

void exp_array_avx512(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = lanes_at(n, i);
        _mm512_mask_storeu_ps(y + i, lanes, w16_exp(_mm512_maskz_loadu_ps(lanes, x + i)));
    }
}

void log_array_avx512(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = lanes_at(n, i);
        _mm512_mask_storeu_ps(y + i, lanes, w16_log(_mm512_maskz_loadu_ps(lanes, x + i)));
    }
}

void tanh_array_avx512(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = lanes_at(n, i);
        _mm512_mask_storeu_ps(y + i, lanes, w16_tanh(_mm512_maskz_loadu_ps(lanes, x + i)));
    }
}

void sin_cos_array_avx512(float *s, float *c, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        __mmask8 lanes = (__mmask8)lanes_at(n < i + 8 ? n : i + 8, i);
        __m256 v = _mm256_maskz_loadu_ps(lanes, x + i);
        __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
        unsigned huge = _mm256_cmp_ps_mask(magnitude, _mm256_set1_ps(FM_TRIG_HUGE), _CMP_GE_OQ);
        __m256 vs, vc;
        w8_sin_cos(v, &vs, &vc);
        _mm256_mask_storeu_ps(s + i, lanes, vs);
        _mm256_mask_storeu_ps(c + i, lanes, vc);
        for (; huge; huge &= huge - 1) {
            size_t at = i + (size_t)__builtin_ctz(huge);
            s[at] = fm_sin(x[at]);
            c[at] = fm_cos(x[at]);
        }
    }
}

/* A value is finite unless its exponent is all ones. */
bool all_finite_avx512(const float *x, size_t n)
{
    const __m512i exponent = _mm512_set1_epi32(0x7F800000);
    __mmask16 bad = 0;
    for (size_t i = 0; i < n; i += 16) {
        __m512i v = _mm512_maskz_loadu_epi32(lanes_at(n, i), x + i);
        bad |= _mm512_cmpeq_epi32_mask(_mm512_and_si512(v, exponent), exponent);
    }
    return bad == 0;
}

static float max_of(const float *x, size_t n)
{
    __m512 m[4];
    for (int v = 0; v < 4; v++) {
        m[v] = _mm512_set1_ps(-INFINITY);
    }
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (int v = 0; v < 4; v++) {
            m[v] = _mm512_max_ps(m[v], _mm512_loadu_ps(x + i + 16 * v));
        }
    }
    for (; i < n; i += 16) {
        m[0] = _mm512_max_ps(m[0], _mm512_mask_loadu_ps(m[0], lanes_at(n, i), x + i));
    }
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(m[0], m[1]), _mm512_max_ps(m[2], m[3])));
}

/* The largest value first, then the first place that equals it. */
size_t argmax_avx512(const float *x, size_t n)
{
    const __m512 best = _mm512_set1_ps(max_of(x, n));
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = lanes_at(n, i);
        unsigned at = _mm512_mask_cmp_ps_mask(lanes, _mm512_maskz_loadu_ps(lanes, x + i), best, _CMP_EQ_OQ);
        if (at) {
            return i + (size_t)__builtin_ctz(at);
        }
    }
    return 0; /* only a NaN equals nothing */
}
