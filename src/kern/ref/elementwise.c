/* Norms, activations and whole-row questions (rule 6). */
#include <math.h>

#include "kern/fmath.h"
#include "kern/ref/ref.h"

float lanes_sum_ref(float lane[16])
{
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return lane[0];
}

void rms_norm_ref(float *y, const float *x, const float *w, size_t n, float eps)
{
    float lane[16] = {0};
    for (size_t i = 0; i < n; i++) {
        lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    }
    float mean = lanes_sum_ref(lane) / (float)n;
    float scale = isfinite(mean) ? 1.0f / sqrtf(mean + eps) : NAN; /* 1 / inf would make the row zeros */
    for (size_t i = 0; i < n; i++) {
        y[i] = (x[i] * scale) * w[i];
    }
}

void add_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

void silu_mul_ref(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = fm_silu(gate[i]) * up[i];
    }
}

bool all_finite_ref(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return false;
        }
    }
    return true;
}

void exp_array_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = fm_exp(x[i]);
    }
}

void log_array_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = fm_log(x[i]);
    }
}

void tanh_array_ref(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = fm_tanh(x[i]);
    }
}

void sin_cos_array_ref(float *s, float *c, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        s[i] = fm_sin(x[i]);
        c[i] = fm_cos(x[i]);
    }
}

size_t argmax_ref(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (x[i] > x[best]) {
            best = i;
        }
    }
    return best;
}
