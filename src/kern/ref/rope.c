/* Rotary positions (Su et al. 2021, arXiv 2104.09864): angles from the absolute position, then a plane
 * rotation. */
#include <math.h>

#include "kern/fmath.h"
#include "kern/ref/ref.h"

void rope_angles_ref(float *cos_sin, const double *inv_freq, size_t n_half, int32_t pos, float magnitude)
{
    for (size_t i = 0; i < n_half; i++) {
        float angle = fm_rope_angle(pos, inv_freq[i]);
        cos_sin[2 * i] = fm_cos(angle) * magnitude;
        cos_sin[2 * i + 1] = fm_sin(angle) * magnitude;
    }
}

void rope_ref(float *x, const float *cos_sin, size_t n_rot, kern_rope_style style)
{
    size_t n_half = n_rot / 2;
    for (size_t i = 0; i < n_half; i++) {
        float *p0 = style == KERN_ROPE_PAIRS ? &x[2 * i] : &x[i];
        float *p1 = style == KERN_ROPE_PAIRS ? &x[2 * i + 1] : &x[i + n_half];
        float c = cos_sin[2 * i];
        float s = cos_sin[2 * i + 1];
        float x0 = *p0;
        float x1 = *p1;
        *p0 = fmaf(x0, c, -(x1 * s));
        *p1 = fmaf(x1, c, x0 * s);
    }
}
