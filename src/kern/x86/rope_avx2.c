/* Rotary positions: four angles, four pairs or eight halves at a time. */
#include "kern/x86/avx2.h"
#include "kern/x86/fmath_avx2.h"
#include "kern/x86/vec_avx2.h"

/* fm_rope_angle for four frequencies, then cosine and sine, times magnitude, into cos_sin [4][2]. */
static void angles4(float *cos_sin, __m256d inv_freq, __m256d pos, __m128 magnitude)
{
    const __m256d round = _mm256_set1_pd(FM_ROUND_D);
    __m256d t = _mm256_mul_pd(pos, inv_freq);
    __m256d n = _mm256_sub_pd(_mm256_fmadd_pd(t, _mm256_set1_pd(FM_ONE_OVER_2PI), round), round);
    __m256d r = _mm256_fnmadd_pd(n, _mm256_set1_pd(FM_2PI_HI), t);
    r = _mm256_fnmadd_pd(n, _mm256_set1_pd(FM_2PI_LO), r);
    __m128 s, c;
    v4_sin_cos(_mm256_cvtpd_ps(r), &s, &c);
    s = _mm_mul_ps(s, magnitude);
    c = _mm_mul_ps(c, magnitude);
    _mm_storeu_ps(cos_sin, _mm_unpacklo_ps(c, s));
    _mm_storeu_ps(cos_sin + 4, _mm_unpackhi_ps(c, s));
}

void rope_angles_avx2(float *cos_sin, const double *inv_freq, size_t n_half, int32_t pos, float magnitude)
{
    const __m256d at = _mm256_set1_pd((double)pos);
    const __m128 mag = _mm_set1_ps(magnitude);
    size_t i = 0;
    for (; i + 4 <= n_half; i += 4) {
        angles4(cos_sin + 2 * i, _mm256_loadu_pd(inv_freq + i), at, mag);
    }
    if (i < n_half) {
        double freq[4] = {0};
        float out[8];
        memcpy(freq, inv_freq + i, (n_half - i) * sizeof(double));
        angles4(out, _mm256_loadu_pd(freq), at, mag);
        memcpy(cos_sin + 2 * i, out, (n_half - i) * 2 * sizeof(float));
    }
}

static void rotate(float *p0, float *p1, float c, float s)
{
    float x0 = *p0;
    float x1 = *p1;
    *p0 = __builtin_fmaf(x0, c, -(x1 * s));
    *p1 = __builtin_fmaf(x1, c, x0 * s);
}

static void rope_pairs(float *x, const float *cos_sin, size_t n_half)
{
    const __m256 minus_even = _mm256_setr_ps(-0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f, 0);
    size_t i = 0;
    for (; i + 4 <= n_half; i += 4) {
        __m256 v = _mm256_loadu_ps(x + 2 * i);
        __m256 cs = _mm256_loadu_ps(cos_sin + 2 * i);
        __m256 swapped = _mm256_permute_ps(v, 0xB1);
        __m256 cross = _mm256_xor_ps(_mm256_mul_ps(swapped, _mm256_movehdup_ps(cs)), minus_even);
        _mm256_storeu_ps(x + 2 * i, _mm256_fmadd_ps(v, _mm256_moveldup_ps(cs), cross));
    }
    for (; i < n_half; i++) {
        rotate(&x[2 * i], &x[2 * i + 1], cos_sin[2 * i], cos_sin[2 * i + 1]);
    }
}

static void rope_halves(float *x, const float *cos_sin, size_t n_half)
{
    size_t i = 0;
    for (; i + 8 <= n_half; i += 8) {
        __m256 a = _mm256_loadu_ps(cos_sin + 2 * i);
        __m256 b = _mm256_loadu_ps(cos_sin + 2 * i + 8);
        /* c and s alternate; taken apart they lie in the order 0 1 4 5 2 3 6 7 of pairs */
        __m256d c2 = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
        __m256d s2 = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xDD));
        __m256 c = _mm256_castpd_ps(_mm256_permute4x64_pd(c2, 0xD8));
        __m256 s = _mm256_castpd_ps(_mm256_permute4x64_pd(s2, 0xD8));
        __m256 x0 = _mm256_loadu_ps(x + i);
        __m256 x1 = _mm256_loadu_ps(x + n_half + i);
        _mm256_storeu_ps(x + i, _mm256_fmsub_ps(x0, c, _mm256_mul_ps(x1, s)));
        _mm256_storeu_ps(x + n_half + i, _mm256_fmadd_ps(x1, c, _mm256_mul_ps(x0, s)));
    }
    for (; i < n_half; i++) {
        rotate(&x[i], &x[n_half + i], cos_sin[2 * i], cos_sin[2 * i + 1]);
    }
}

void rope_avx2(float *x, const float *cos_sin, size_t n_rot, kern_rope_style style)
{
    if (style == KERN_ROPE_PAIRS) {
        rope_pairs(x, cos_sin, n_rot / 2);
    } else {
        rope_halves(x, cos_sin, n_rot / 2);
    }
}
