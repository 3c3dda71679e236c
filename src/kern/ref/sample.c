/* What the sampler asks of a whole vocabulary (rule 7). */
#include <math.h>

#include "base/philox.h"
#include "kern/fmath.h"
#include "kern/ref/ref.h"

/* Rule 7's u = (24 bits + 1/2) 2^-24 is rounded to float, and its last value would become 1, whose noise is
 * infinite: a token without any chance would be drawn. It stays the largest float below 1. */
#define U_MAX 0x1.fffffep-1f

float fm_gumbel(uint64_t seed, int32_t position, int32_t token)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t ctr[4] = {(uint32_t)position, (uint32_t)token, 0, 0};
    uint32_t out[4];
    philox4x32_10(ctr, key, out);
    float u = ((float)(out[0] >> 8) + 0.5f) * 0x1p-24f;
    return -fm_log(-fm_log(u < U_MAX ? u : U_MAX));
}

void scale_tops_ref(float *y, float *tops, const float *x, float t, size_t n)
{
    for (size_t i = 0; i < KERN_TOPS(n); i++) {
        tops[i] = -INFINITY;
    }
    for (size_t i = 0; i < n; i++) {
        float *top = &tops[i / KERN_TOPS_RUN * 16 + i % 16];
        const float v = x[i] / t;
        *top = v > *top ? v : *top;
        if (y) {
            y[i] = v;
        }
    }
}

float softmax_terms_ref(float *y, const float *x, float max, size_t n)
{
    float lane[16] = {0};
    for (size_t i = 0; i < n; i++) {
        y[i] = fm_exp(x[i] - max);
        lane[i % 16] += y[i];
    }
    return lanes_sum_ref(lane);
}

float sum_at_least_ref(const float *y, const float *x, size_t n, float least)
{
    float lane[16] = {0};
    for (size_t i = 0; i < n; i++) {
        lane[i % 16] += x[i] >= least ? y[i] : 0.0f;
    }
    return lanes_sum_ref(lane);
}

size_t at_least_ref(int32_t *index, const float *x, size_t n, float least)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        if (x[i] >= least) {
            index[found++] = (int32_t)i;
        }
    }
    return found;
}

size_t gumbel_argmax_ref(const float *x, const int32_t *token, int32_t first, size_t n, uint64_t seed,
                         int32_t position, float least, float *score)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        if (x[i] < least || x[i] + FM_GUMBEL_MAX < *score) {
            continue;
        }
        float s = x[i] + fm_gumbel(seed, position, token ? token[i] : first + (int32_t)i);
        if (s > *score || (s == *score && best == n)) {
            best = i;
            *score = s;
        }
    }
    return best;
}
