/* Rotary positions: eight angles, eight pairs or sixteen halves at a time. */
#include "kern/x86/avx512.h"
#include "kern/x86/fmath_avx512.h"

/* fm_rope_angle for the first n <= 8 frequencies, then cosine and sine, times magnitude, into cos_sin [n][2]. */
static void angles8(float *cos_sin, const double *inv_freq, size_t n, __m512d pos, __m256 magnitude)
{
    const __m512d round = _mm512_set1_pd(FM_ROUND_D);
    __m512d t = _mm512_mul_pd(pos, _mm512_maskz_loadu_pd((__mmask8)w16_mask(n), inv_freq));
    __m512d k = _mm512_sub_pd(_mm512_fmadd_pd(t, _mm512_set1_pd(FM_ONE_OVER_2PI), round), round);
    __m512d r = _mm512_fnmadd_pd(k, _mm512_set1_pd(FM_2PI_HI), t);
    r = _mm512_fnmadd_pd(k, _mm512_set1_pd(FM_2PI_LO), r);
    __m256 s, c;
    w8_sin_cos(_mm512_cvtpd_ps(r), &s, &c);
    __m512 both = _mm512_castps256_ps512(_mm256_mul_ps(c, magnitude));
    both = _mm512_insertf32x8(both, _mm256_mul_ps(s, magnitude), 1);
    const __m512i weave = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_mask_storeu_ps(cos_sin, w16_mask(2 * n), _mm512_permutexvar_ps(weave, both));
}

void rope_angles_avx512(float *cos_sin, const double *inv_freq, size_t n_half, int32_t pos, float magnitude)
{
    const __m512d at = _mm512_set1_pd((double)pos);
    const __m256 mag = _mm256_set1_ps(magnitude);
    for (size_t i = 0; i < n_half; i += 8) {
        angles8(cos_sin + 2 * i, inv_freq + i, n_half - i < 8 ? n_half - i : 8, at, mag);
    }
}

static void rope_pairs(float *x, const float *cos_sin, size_t n_rot)
{
    for (size_t i = 0; i < n_rot; i += 16) {
        __mmask16 lanes = w16_mask(n_rot - i < 16 ? n_rot - i : 16);
        __m512 v = _mm512_maskz_loadu_ps(lanes, x + i);
        __m512 cs = _mm512_maskz_loadu_ps(lanes, cos_sin + i);
        __m512 cross = _mm512_mul_ps(_mm512_permute_ps(v, 0xB1), _mm512_movehdup_ps(cs));
        /* even lanes: v c - cross, odd ones: v c + cross */
        _mm512_mask_storeu_ps(x + i, lanes, _mm512_fmaddsub_ps(v, _mm512_moveldup_ps(cs), cross));
    }
}

static void rope_halves(float *x, const float *cos_sin, size_t n_half)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    for (size_t i = 0; i < n_half; i += 16) {
        const size_t n = n_half - i < 16 ? n_half - i : 16;
        const __mmask16 lanes = w16_mask(n);
        __m512 a = _mm512_maskz_loadu_ps(w16_mask(n < 8 ? 2 * n : 16), cos_sin + 2 * i);
        __m512 b = _mm512_maskz_loadu_ps(w16_mask(n < 8 ? 0 : 2 * n - 16), cos_sin + 2 * i + 16);
        __m512 c = _mm512_permutex2var_ps(a, even, b);
        __m512 s = _mm512_permutex2var_ps(a, odd, b);
        __m512 x0 = _mm512_maskz_loadu_ps(lanes, x + i);
        __m512 x1 = _mm512_maskz_loadu_ps(lanes, x + n_half + i);
        _mm512_mask_storeu_ps(x + i, lanes, _mm512_fmsub_ps(x0, c, _mm512_mul_ps(x1, s)));
        _mm512_mask_storeu_ps(x + n_half + i, lanes, _mm512_fmadd_ps(x1, c, _mm512_mul_ps(x0, s)));
    }
}

void rope_avx512(float *x, const float *cos_sin, size_t n_rot, kern_rope_style style)
{
    if (style == KERN_ROPE_PAIRS) {
        rope_pairs(x, cos_sin, n_rot);
    } else {
        rope_halves(x, cos_sin, n_rot / 2);
    }
}
