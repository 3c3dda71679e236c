/*
 * Memory of prepared activations (kern.h): one buffer, its parts on multiples of 64 bytes.
 *
 *     float kinds:  f32 [m][k]
 *     code kinds:   q [m][n_blocks * block] | d [m][n_blocks] | sums [m][n_blocks * block / 16]
 */
#include <assert.h>

#include "base/mem.h"
#include "kern/kern.h"

#define ALIGN   64
#define SUM_RUN 16

typedef struct act_parts {
    size_t n_blocks;
    size_t f32_bytes;
    size_t q_bytes;
    size_t d_bytes;
    size_t sums_bytes;
    size_t total_bytes;
} act_parts;

kern_act_kind kern_act_kind_of(gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_F32:
    case GGUF_TYPE_F16:
        return KERN_ACT_F32;
    case GGUF_TYPE_BF16:
        return KERN_ACT_BF16;
    case GGUF_TYPE_Q4_0:
    case GGUF_TYPE_Q4_1:
    case GGUF_TYPE_Q5_0:
    case GGUF_TYPE_Q5_1:
    case GGUF_TYPE_Q8_0:
    case GGUF_TYPE_IQ4_NL:
    case GGUF_TYPE_MXFP4:
    case GGUF_TYPE_NVFP4:
    case GGUF_TYPE_Q1_0:
    case GGUF_TYPE_Q2_0:
        return KERN_ACT_Q8_32;
    case GGUF_TYPE_Q2_K:
    case GGUF_TYPE_Q3_K:
    case GGUF_TYPE_Q4_K:
    case GGUF_TYPE_Q5_K:
    case GGUF_TYPE_Q6_K:
    case GGUF_TYPE_IQ4_XS:
    case GGUF_TYPE_TQ1_0:
    case GGUF_TYPE_TQ2_0:
        return KERN_ACT_Q8_256;
    default:
        return KERN_ACT_NONE;
    }
}

/* m * n * size_bytes rounded up to the alignment, added to *total. */
static bool part_add(size_t m, size_t n, size_t size_bytes, size_t *part, size_t *total)
{
    size_t bytes;
    if (!size_mul(m, n, &bytes) || !size_mul(bytes, size_bytes, &bytes) ||
        !size_add(bytes, ALIGN - 1, &bytes)) {
        return false;
    }
    *part = bytes & ~(size_t)(ALIGN - 1);
    return size_add(*total, *part, total);
}

static bool parts_of(kern_act_kind kind, size_t m, size_t k, act_parts *p)
{
    *p = (act_parts){0};
    if (kind == KERN_ACT_F32 || kind == KERN_ACT_BF16) {
        return part_add(m, k, sizeof(float), &p->f32_bytes, &p->total_bytes);
    }
    if (kind != KERN_ACT_Q8_32 && kind != KERN_ACT_Q8_256) {
        return false;
    }
    size_t block = kind == KERN_ACT_Q8_32 ? 32 : 256;
    p->n_blocks = k / block + (k % block != 0);
    size_t padded;
    return size_mul(p->n_blocks, block, &padded) && part_add(m, padded, 1, &p->q_bytes, &p->total_bytes) &&
           part_add(m, p->n_blocks, sizeof(float), &p->d_bytes, &p->total_bytes) &&
           part_add(m, padded / SUM_RUN, sizeof(int16_t), &p->sums_bytes, &p->total_bytes);
}

size_t kern_act_bytes(kern_act_kind kind, size_t m, size_t k)
{
    act_parts p;
    return parts_of(kind, m, k, &p) ? p.total_bytes : 0;
}

void kern_act_init(kern_act *a, kern_act_kind kind, size_t m, size_t k, void *mem)
{
    act_parts p;
    bool fits = parts_of(kind, m, k, &p);
    assert(fits && (uintptr_t)mem % ALIGN == 0);
    (void)fits;
    uint8_t *at = mem;
    *a = (kern_act){.kind = kind, .m = m, .k = k, .n_blocks = p.n_blocks};
    if (kind == KERN_ACT_F32 || kind == KERN_ACT_BF16) {
        a->f32 = (float *)(void *)at;
        return;
    }
    a->q = (int8_t *)at;
    at += p.q_bytes;
    a->d = (float *)(void *)at;
    at += p.d_bytes;
    a->sums = (int16_t *)(void *)at;
}
