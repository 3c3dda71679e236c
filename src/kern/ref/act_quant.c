/*
 * Activation rows as the weight types want them (DESIGN 4 rules 1 and 2).
 *
 * Codes, per block: d = absmax / 127, q = round-half-even(x * (127 / absmax)), both divisions and the product
 * in fp32; all zero where absmax < 2^-100. The product is at most 127 (1 + 2^-23), so no code leaves -127 …
 * 127.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/fp16.h"
#include "kern/ref/matmul_ref.h"

#define ABSMAX_ZERO 0x1p-100f /* blocks that stay below are zero: their scale would near the denormals */
#define SUM_RUN     16
#define BLOCK_MAX   256
#define BF16_RUN    32
/* Finite values from here up round to infinity in bf16: for that kind they are as bad as infinity itself. */
#define BF16_LIMIT 0x7F7F8000u
#define F32_LIMIT  0x7F800000u

static bool part_is_good(const float *x, size_t k, uint32_t limit)
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

/* The sums of one block and what is derived from them. */
static void sums_encode(kern_act *a, size_t r, size_t b, const int8_t *q)
{
    int16_t *sums = kern_act_sums(a, r, b);
    int total = 0;
    for (size_t s = 0; s < a->block / SUM_RUN; s++) {
        int sum = 0;
        for (size_t i = 0; i < SUM_RUN; i++) {
            sum += q[s * SUM_RUN + i];
        }
        sums[s] = (int16_t)sum;
        total += sum;
        if (a->halves) {
            int high = (sum + 2048 + 8) / 16 * 16 - 2048; /* nearest multiple of 16, half up */
            kern_act_halves(a, r, b)[2 * s] = bf16_from_f32((float)high);
            kern_act_halves(a, r, b)[2 * s + 1] = bf16_from_f32((float)(sum - high));
        }
    }
    if (a->totals) {
        *kern_act_total(a, r, b) = (float)total;
    }
}

/* Values [k0, k1) of row r into codes, scales and sums; x NULL: all zero. */
static void part_encode(kern_act *a, const float *x, size_t r, size_t k0, size_t k1)
{
    const size_t block = a->block;
    assert(block > 0);
    for (size_t run = k0 / KERN_ACT_RUN; run < a->n_runs && run * KERN_ACT_RUN < k1; run++) {
        memset(kern_act_q(a, r, run), 0, KERN_ACT_RUN);
    }
    for (size_t at = k0; at < k1; at += block) {
        int8_t q[BLOCK_MAX] = {0};
        size_t b = at / block;
        size_t n = k1 - at < block ? k1 - at : block;
        *kern_act_d(a, r, b) = x ? block_encode(x + at, n, q) : 0.0f;
        sums_encode(a, r, b, q);
        for (size_t i = 0; i < block; i += 32) {
            memcpy(kern_act_q(a, r, (at + i) / KERN_ACT_RUN) + (at + i) % KERN_ACT_RUN, q + i, 32);
        }
    }
}

static void part_round(kern_act *a, const float *x, size_t r, size_t k0, size_t k1)
{
    for (size_t at = k0; at < k1; at += BF16_RUN) {
        uint16_t *out = kern_act_bf16(a, r, at / BF16_RUN);
        for (size_t i = 0; i < BF16_RUN; i++) {
            out[i] = x && at + i < k1 ? bf16_from_f32(x[at + i]) : 0;
        }
    }
}

void act_prepare_ref(kern_act *a, const float *x, size_t r, size_t k0, size_t k1, uint8_t *bad)
{
    if (!part_is_good(x + k0, k1 - k0, a->kind == KERN_ACT_BF16 ? BF16_LIMIT : F32_LIMIT)) {
        __atomic_store_n(&bad[r], 1, __ATOMIC_RELAXED); /* several threads may say so of one row */
        x = NULL;
    }
    if (a->block) {
        part_encode(a, x, r, k0, k1);
    } else if (a->kind == KERN_ACT_BF16) {
        part_round(a, x, r, k0, k1);
    } else if (x) {
        memcpy(a->f32 + r * a->k + k0, x + k0, (k1 - k0) * sizeof *x);
    } else {
        memset(a->f32 + r * a->k + k0, 0, (k1 - k0) * sizeof *a->f32);
    }
}
