/* Norm and activation, sixteen lanes at a time (rule 6). */
#include <math.h>

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

void exp_array_avx512(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = lanes_at(n, i);
        _mm512_mask_storeu_ps(y + i, lanes, w16_exp(_mm512_maskz_loadu_ps(lanes, x + i)));
    }
}
