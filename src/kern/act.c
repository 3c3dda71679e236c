/* Memory of prepared activations (act.h): one buffer, its parts on multiples of 64 bytes. */
#include "kern/act.h"

#include <assert.h>
#include <stdbool.h>

#include "base/mem.h"

#define ALIGN   64
#define SUM_RUN 16

typedef struct act_parts {
    size_t tile;
    size_t block;
    size_t n_blocks;
    size_t n_runs;
    size_t rows_bytes; /* f32, bf16 or codes */
    size_t d_bytes;
    size_t sums_bytes;
    size_t totals_bytes;
    size_t halves_bytes;
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
    case GGUF_TYPE_IQ1_S:
    case GGUF_TYPE_IQ1_M:
    case GGUF_TYPE_IQ2_XXS:
    case GGUF_TYPE_IQ2_XS:
    case GGUF_TYPE_IQ2_S:
    case GGUF_TYPE_IQ3_XXS:
    case GGUF_TYPE_IQ3_S:
        return KERN_ACT_Q8_256;
    default:
        return KERN_ACT_NONE;
    }
}

/* m * n * size_bytes rounded up to the alignment, added to the total. */
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

static bool code_parts(kern_act_kind kind, size_t m, size_t k, act_parts *p)
{
    p->block = kind == KERN_ACT_Q8_32 ? 32 : 256;
    p->n_blocks = k / p->block + (k % p->block != 0);
    size_t sums = p->block / SUM_RUN;
    size_t padded;
    if (!size_mul(p->n_blocks, p->block, &padded)) {
        return false;
    }
    p->n_runs = padded / KERN_ACT_RUN + (padded % KERN_ACT_RUN != 0);
    if (!part_add(m, p->n_runs, KERN_ACT_RUN, &p->rows_bytes, &p->total_bytes) ||
        !part_add(m, p->n_blocks, sizeof(float), &p->d_bytes, &p->total_bytes) ||
        !part_add(m, p->n_blocks, sums * sizeof(int16_t), &p->sums_bytes, &p->total_bytes)) {
        return false;
    }
    return kind == KERN_ACT_Q8_32 ? part_add(m, p->n_blocks, sizeof(float), &p->totals_bytes, &p->total_bytes)
                                  : part_add(m, p->n_blocks, KERN_ACT_HALVES * sizeof(uint16_t),
                                             &p->halves_bytes, &p->total_bytes);
}

static bool parts_of(kern_act_kind kind, size_t m, size_t k, act_parts *p)
{
    *p = (act_parts){.tile = m <= KERN_ACT_SMALL ? m : KERN_ACT_TILE};
    if (kind == KERN_ACT_F32) {
        return part_add(m, k, sizeof(float), &p->rows_bytes, &p->total_bytes);
    }
    if (p->tile > 0) {
        size_t over = m % p->tile;
        if (over > 0 && !size_add(m, p->tile - over, &m)) {
            return false;
        }
    }
    if (kind == KERN_ACT_BF16) {
        p->n_runs = k / (KERN_ACT_RUN / 2) + (k % (KERN_ACT_RUN / 2) != 0);
        return part_add(m, p->n_runs, KERN_ACT_RUN, &p->rows_bytes, &p->total_bytes);
    }
    return (kind == KERN_ACT_Q8_32 || kind == KERN_ACT_Q8_256) && code_parts(kind, m, k, p);
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
    *a = (kern_act){.kind = kind,
                    .m = m,
                    .k = k,
                    .tile = p.tile,
                    .block = p.block,
                    .n_blocks = p.n_blocks,
                    .n_runs = p.n_runs};
    if (kind == KERN_ACT_F32) {
        a->f32 = (float *)(void *)at;
        return;
    }
    if (kind == KERN_ACT_BF16) {
        a->bf16 = (uint16_t *)(void *)at;
        return;
    }
    a->q = (int8_t *)at;
    at += p.rows_bytes;
    a->d = (float *)(void *)at;
    at += p.d_bytes;
    a->sums = (int16_t *)(void *)at;
    at += p.sums_bytes;
    if (kind == KERN_ACT_Q8_32) {
        a->totals = (float *)(void *)at;
    } else {
        a->halves = (uint16_t *)(void *)at;
    }
}
