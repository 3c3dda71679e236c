/*
 * Activation rows as the weight types want them (DESIGN 4 rules 1 and 2).
 *
 * Codes, per block: d = absmax / 127, q = round-half-even(x * (127 / absmax)), both divisions and the product
 * in fp32; all zero where absmax < 2^-100. The product is at most 127 (1 + 2^-23), so no code leaves -127 …
 * 127.
 */
#include <math.h>
#include <string.h>

#include "base/fp16.h"
#include "kern/ref/matmul_ref.h"

#define ABSMAX_ZERO 0x1p-100f /* blocks that stay below are zero: their scale would near the denormals */
#define SUM_RUN     16
/* Finite values from here up round to infinity in bf16: for that kind they are as bad as infinity itself. */
#define BF16_LIMIT 0x7F7F8000u
#define F32_LIMIT  0x7F800000u

static bool row_is_good(const float *x, size_t k, uint32_t limit)
{
    for (size_t c = 0; c < k; c++) {
        if ((f32_bits(x[c]) & 0x7FFFFFFFu) >= limit) {
            return false;
        }
    }
    return true;
}

/* n values of one block (fewer than its width only at the end of a row). */
static float block_encode(const float *x, size_t n, int8_t *q)
{
    float absmax = 0.0f;
    for (size_t i = 0; i < n; i++) {
        absmax = fmaxf(absmax, fabsf(x[i]));
    }
    if (absmax < ABSMAX_ZERO) {
        return 0.0f;
    }
    float inv = 127.0f / absmax;
    for (size_t i = 0; i < n; i++) {
        q[i] = (int8_t)lrintf(x[i] * inv);
    }
    return absmax / 127.0f;
}

/* Row r into codes, scales and sums; x NULL: all zero. */
static void row_encode(kern_act *a, const float *x, size_t r, size_t width)
{
    size_t padded = a->n_blocks * width;
    int8_t *q = a->q + r * padded;
    float *d = a->d + r * a->n_blocks;
    int16_t *sums = a->sums + r * (padded / SUM_RUN);
    memset(q, 0, padded);
    for (size_t b = 0; b < a->n_blocks; b++) {
        size_t at = b * width;
        size_t n = a->k - at < width ? a->k - at : width;
        d[b] = x ? block_encode(x + at, n, q + at) : 0.0f;
    }
    for (size_t s = 0; s < padded / SUM_RUN; s++) {
        int sum = 0;
        for (size_t i = 0; i < SUM_RUN; i++) {
            sum += q[s * SUM_RUN + i];
        }
        sums[s] = (int16_t)sum;
    }
}

static void row_copy(kern_act *a, const float *x, size_t r)
{
    float *out = a->f32 + r * a->k;
    if (!x) {
        memset(out, 0, a->k * sizeof *out);
        return;
    }
    if (a->kind == KERN_ACT_F32) {
        memcpy(out, x, a->k * sizeof *out);
        return;
    }
    for (size_t c = 0; c < a->k; c++) {
        out[c] = bf16_to_f32(bf16_from_f32(x[c]));
    }
}

void act_prepare_ref(kern_act *a, const float *x, size_t r0, size_t r1, uint8_t *bad)
{
    uint32_t limit = a->kind == KERN_ACT_BF16 ? BF16_LIMIT : F32_LIMIT;
    for (size_t r = r0; r < r1; r++) {
        const float *row = x + r * a->k;
        if (!row_is_good(row, a->k, limit)) {
            bad[r] = 1;
            row = NULL;
        }
        if (a->kind == KERN_ACT_Q8_32 || a->kind == KERN_ACT_Q8_256) {
            row_encode(a, row, r, a->kind == KERN_ACT_Q8_32 ? 32 : 256);
        } else {
            row_copy(a, row, r);
        }
    }
}
