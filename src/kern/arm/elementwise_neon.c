/* Norms, activations and whole-row questions with NEON, four floats at a time; the last few as the reference. */
#include <arm_neon.h>
#include <math.h>

#include "kern/arm/arm.h"
#include "kern/arm/fmath_neon.h"
#include "kern/fmath.h"

void rms_norm_neon(float *y, const float *x, const float *w, size_t n, float eps)
{
    float lane[16] = {0};
    float32x4_t sum[4];
    size_t i = 0;
    for (size_t v = 0; v < 4; v++) {
        sum[v] = vdupq_n_f32(0);
    }
    for (; i + 16 <= n; i += 16) {
        for (size_t v = 0; v < 4; v++) {
            float32x4_t a = vld1q_f32(x + i + 4 * v);
            sum[v] = vfmaq_f32(sum[v], a, a);
        }
    }
    for (size_t v = 0; v < 4; v++) {
        vst1q_f32(lane + 4 * v, sum[v]);
    }
    for (; i < n; i++) {
        lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    }
    float mean = neon_lanes_sum(lane) / (float)n;
    float scale = isfinite(mean) ? 1.0f / sqrtf(mean + eps) : NAN;
    for (i = 0; i + 4 <= n; i += 4) {
        vst1q_f32(y + i, vmulq_f32(vmulq_n_f32(vld1q_f32(x + i), scale), vld1q_f32(w + i)));
    }
    for (; i < n; i++) {
        y[i] = (x[i] * scale) * w[i];
    }
}

void add_neon(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vst1q_f32(y + i, vaddq_f32(vld1q_f32(y + i), vld1q_f32(x + i)));
    }
    for (; i < n; i++) {
        y[i] += x[i];
    }
}

void silu_mul_neon(float *y, const float *gate, const float *up, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vst1q_f32(y + i, vmulq_f32(n4_silu(vld1q_f32(gate + i)), vld1q_f32(up + i)));
    }
    for (; i < n; i++) {
        y[i] = fm_silu(gate[i]) * up[i];
    }
}

void exp_array_neon(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vst1q_f32(y + i, n4_exp(vld1q_f32(x + i)));
    }
    for (; i < n; i++) {
        y[i] = fm_exp(x[i]);
    }
}

void log_array_neon(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vst1q_f32(y + i, n4_log(vld1q_f32(x + i)));
    }
    for (; i < n; i++) {
        y[i] = fm_log(x[i]);
    }
}

void tanh_array_neon(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vst1q_f32(y + i, n4_tanh(vld1q_f32(x + i)));
    }
    for (; i < n; i++) {
        y[i] = fm_tanh(x[i]);
    }
}

void sin_cos_array_neon(float *s, float *c, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 2) {
        if (i + 2 > n || fabsf(x[i]) >= FM_TRIG_HUGE || fabsf(x[i + 1]) >= FM_TRIG_HUGE) {
            for (size_t at = i; at < n && at < i + 2; at++) {
                s[at] = fm_sin(x[at]);
                c[at] = fm_cos(x[at]);
            }
            continue;
        }
        float32x2_t vs, vc;
        d2_sin_cos(vld1_f32(x + i), &vs, &vc);
        vst1_f32(s + i, vs);
        vst1_f32(c + i, vc);
    }
}

/* A value is finite unless its exponent is all ones. */
bool all_finite_neon(const float *x, size_t n)
{
    const uint32x4_t exponent = vdupq_n_u32(0x7F800000u);
    uint32x4_t bad = vdupq_n_u32(0);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint32x4_t v = vreinterpretq_u32_f32(vld1q_f32(x + i));
        bad = vorrq_u32(bad, vceqq_u32(vandq_u32(v, exponent), exponent));
    }
    bool good = vmaxvq_u32(bad) == 0;
    for (; i < n; i++) {
        good = good && isfinite(x[i]);
    }
    return good;
}

/* The largest value first, then the first place that equals it. */
size_t argmax_neon(const float *x, size_t n)
{
    float32x4_t most = vdupq_n_f32(-INFINITY);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        most = vmaxq_f32(most, vld1q_f32(x + i));
    }
    float best = vmaxvq_f32(most);
    for (; i < n; i++) {
        best = x[i] > best ? x[i] : best;
    }
    for (i = 0; i + 4 <= n && vmaxvq_u32(vceqq_f32(vld1q_f32(x + i), vdupq_n_f32(best))) == 0; i += 4) {
    }
    while (i < n && x[i] != best) {
        i++;
    }
    return i < n ? i : 0; /* only a NaN equals nothing */
}

void scale_tops_neon(float *y, float *tops, const float *x, float t, size_t n)
{
    const float32x4_t by = vdupq_n_f32(t);
    for (size_t i = 0; i < n; tops += 16) {
        const size_t end = n - i < KERN_TOPS_RUN ? n : i + KERN_TOPS_RUN;
        float32x4_t top[4];
        for (size_t v = 0; v < 4; v++) {
            top[v] = vdupq_n_f32(-INFINITY);
        }
        for (; i + 16 <= end; i += 16) {
            for (size_t v = 0; v < 4; v++) {
                float32x4_t scaled = vdivq_f32(vld1q_f32(x + i + 4 * v), by);
                if (y) {
                    vst1q_f32(y + i + 4 * v, scaled);
                }
                top[v] = vmaxq_f32(top[v], scaled);
            }
        }
        for (size_t v = 0; v < 4; v++) {
            vst1q_f32(tops + 4 * v, top[v]);
        }
        for (; i < end; i++) {
            const float scaled = x[i] / t;
            tops[i % 16] = scaled > tops[i % 16] ? scaled : tops[i % 16];
            if (y) {
                y[i] = scaled;
            }
        }
    }
}

float softmax_terms_neon(float *y, const float *x, float max, size_t n)
{
    float lane[16];
    float32x4_t sum[4];
    size_t i = 0;
    for (size_t v = 0; v < 4; v++) {
        sum[v] = vdupq_n_f32(0);
    }
    for (; i + 16 <= n; i += 16) {
        for (size_t v = 0; v < 4; v++) {
            float32x4_t term = n4_exp(vsubq_f32(vld1q_f32(x + i + 4 * v), vdupq_n_f32(max)));
            vst1q_f32(y + i + 4 * v, term);
            sum[v] = vaddq_f32(sum[v], term);
        }
    }
    for (size_t v = 0; v < 4; v++) {
        vst1q_f32(lane + 4 * v, sum[v]);
    }
    for (; i < n; i++) {
        y[i] = fm_exp(x[i] - max);
        lane[i % 16] += y[i];
    }
    return neon_lanes_sum(lane);
}
