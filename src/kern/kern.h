/*
 * kern: the kernel table. All arithmetic on tensors goes through it; a table is filled once per process for
 * one instruction set: the reference first (`ref/` defines what is right), then each set overrides what it
 * has, in rising order. Every set gives the same bits (DESIGN 4): the tests compare with ==.
 *
 * Kernels are pure functions of their arguments: any thread, no allocation, no errors. Buffers need no
 * alignment and no padding unless said; nothing outside the stated extents is read or written. Callers split
 * work over threads by the index ranges; a range never changes a result.
 *
 * Numerics: the rules are written out in kern/README.md (NUMERICS) next to their reference implementation.
 */
#ifndef HEARTH_KERN_KERN_H
#define HEARTH_KERN_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "gguf/blocks.h"
#include "kern/act.h"
#include "kern/kv_layout.h"

#define NUMERICS_VERSION 2
#define KERN_PANEL       16 /* outputs that are packed and computed together */

/* In rising order on each machine; x86 and ARM have nothing but the reference in common. */
typedef enum kern_set {
    KERN_REF,
    KERN_AVX2,
    KERN_AVX512,
    KERN_AMX,
    KERN_DOTPROD, /* ARM: NEON with int8 dot products */
    KERN_I8MM,    /* ARM: int8 matrix products beside them */
    KERN_SET_COUNT
} kern_set;

/*
 * A weight matrix: n rows (outputs) of k > 0 values (inputs). data is as it lies in the file; packed as kern/pack.h
 * lays it out, which a table's product wants where wants_packed says so; the other one may be NULL.
 */
typedef struct kern_matrix {
    gguf_type type;
    size_t n;
    size_t k;
    size_t row_bytes;   /* of data */
    const void *data;   /* borrowed */
    const void *packed; /* borrowed; any alignment, 64 bytes are fastest */
} kern_matrix;

/* y[r * y_stride + i] for all rows r of a and i in [n0, n1): output element i of activation row r. n0 is a
 * multiple of KERN_PANEL, n1 is one or n (the reference takes any). */
typedef void (*kern_matmul_fn)(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                               size_t y_stride);

/* The positions that a row sees are first … last, both included; 0 <= first <= last. */
typedef struct kern_attn_seen {
    int32_t first;
    int32_t last;
} kern_attn_seen;

/*
 * Attention (rule 3) of rows of one sequence over one KV head. The rows, and the query heads that share the head, are
 * done together, each with the bits it has alone. Only pages that hold a position which some row sees are looked at
 * (others may be NULL), and no value of a position has an influence on a row that does not see it.
 */
typedef struct kern_attn {
    const float *q;  /* row r at q + r * q_stride: [n_q][k_dim] */
    size_t q_stride; /* in floats */
    float *out;      /* row r at out + r * out_stride: [n_q][v_dim] */
    size_t out_stride;
    size_t n_rows;
    size_t n_q;                 /* query heads of this KV head, or some of them */
    const kern_attn_seen *seen; /* [n_rows]; neither first nor last falls from a row to the next */
    const kv_layer *layer;      /* where K and V lie in a page */
    kv_type type;
    size_t kv_head;
    const void *const *pages; /* page p holds positions [32 p, 32 p + 32) */
    float scale;
    float soft_cap;     /* 0 = none: else cap * tanh(score / cap) */
    const float *sinks; /* [n_q] one logit without a value per query head, or NULL */
    const void *next;   /* what this thread is likely to read next (a hint to the caches), or NULL */
    float *scratch; /* [KERN_ATTN_SCRATCH(n_rows * n_q, k_dim, v_dim)] floats; 64-byte alignment is fastest */
} kern_attn;

#define KERN_SPAN 256 /* positions merged as one (rule 3) */
/* A score this far below the largest of its span has the weight +0 instead of exp of the distance. Weights stay above
 * 2^-100, so that no product with a value is denormal: those take a hundred times longer. */
#define KERN_ATTN_FLOOR (-69.0f)
/* From the scores of one query head to those of the next: not a multiple of what the first cache folds onto itself. */
#define KERN_ATTN_P_PITCH (KERN_SPAN + 16)
#define KERN_ATTN_SCRATCH(n, k_dim, v_dim)                     \
    ((size_t)KERN_SPAN * ((size_t)(k_dim) + (size_t)(v_dim)) + \
     8 * ((size_t)KERN_ATTN_P_PITCH + (size_t)(v_dim)) +       \
     (size_t)(n) * ((size_t)(k_dim) + (size_t)(v_dim) + 2))
/* What a span comes to, for one query head: o [v_dim], m, l. */
#define KERN_ATTN_PART(v_dim) ((size_t)(v_dim) + 2)

#define KERN_TOPS_RUN 512
#define KERN_TOPS(n)  (((size_t)(n) + KERN_TOPS_RUN - 1) / KERN_TOPS_RUN * 16)

typedef enum kern_rope_style {
    KERN_ROPE_PAIRS,
    KERN_ROPE_HALVES
} kern_rope_style; /* (2i, 2i+1) or (i, i+n/2) */

typedef struct kern_table {
    kern_set set;
    const char *name; /* "ref", "avx2" … */

    /* Values [k0, k1) of row r into a; x is that row ([k]). k0 is a multiple of KERN_ACT_STEP, k1 is one or k. Where
     * one of the values is not finite, bad[r] is set to 1 and what all of them become is zero; else bad[r] is left
     * as it is. Different threads may take different parts of a row. */
    void (*act_prepare)(kern_act *a, const float *x, size_t r, size_t k0, size_t k1, uint8_t *bad);
    kern_matmul_fn matmul[GGUF_TYPE_COUNT]; /* NULL for types without a kernel */
    bool wants_packed[GGUF_TYPE_COUNT];     /* the product reads packed, else data */

    void (*rms_norm)(float *y, const float *x, const float *w, size_t n, float eps); /* y may be x */
    void (*add)(float *y, const float *x, size_t n);                                 /* y += x */
    /* y = silu(gate) * up; y may be gate or up */
    void (*silu_mul)(float *y, const float *gate, const float *up, size_t n);
    /* Rotates the first n_rot (even) of x in place; cos_sin as rope_angles leaves it. */
    void (*rope)(float *x, const float *cos_sin, size_t n_rot, kern_rope_style style);
    /* cos_sin [n_half][2], both times magnitude, for one absolute position: angle = pos * inv_freq in double,
     * reduced, then ours. |pos * inv_freq| < 2^51. */
    void (*rope_angles)(float *cos_sin, const double *inv_freq, size_t n_half, int32_t pos, float magnitude);
    /* Writes K [n_kv_heads][k_dim] and V [n_kv_heads][v_dim] (not looked at with v_in_k) of n positions into
     * their page: slots [slot, slot + n), slot = pos % 32, rows k_stride and v_stride floats apart. */
    void (*kv_store)(void *page, const kv_layer *layer, kv_type type, size_t slot, size_t n, const float *k,
                     size_t k_stride, const float *v, size_t v_stride);
    void (*attention)(const kern_attn *a);
    /* The same in two steps, so that threads can share a row: what the spans [span0, span1) come to, each by itself,
     * into parts [span - span0][n_rows * n_q][KERN_ATTN_PART(v_dim)] (left alone where a row sees nothing of a span);
     * then out from the parts of all spans that some row sees, whose first is span0. */
    void (*attention_spans)(const kern_attn *a, size_t span0, size_t span1, float *parts);
    void (*attention_join)(const kern_attn *a, size_t span0, const float *parts);
    /* true if all of x is finite */
    bool (*all_finite)(const float *x, size_t n);
    /* Elementwise over arrays, for tests and the sampler: ours, not libm's. y may be x; s, c and x lie apart. */
    void (*exp_array)(float *y, const float *x, size_t n);
    void (*log_array)(float *y, const float *x, size_t n);
    void (*tanh_array)(float *y, const float *x, size_t n);
    void (*sin_cos_array)(float *s, float *c, const float *x, size_t n);
    /* Index of the largest value, lowest index on a tie; n > 0; no NaN. */
    size_t (*argmax)(const float *x, size_t n);

    /* For the sampler (rule 7). No NaN in x. y may be x. */
    /* y = x / t, t > 0, and tops [KERN_TOPS(n)]: tops[16 g + l] is the largest of y[KERN_TOPS_RUN g + l + 16 j]
     * over all j of the run, -inf where it has none. y NULL: the tops alone. */
    void (*scale_tops)(float *y, float *tops, const float *x, float t, size_t n);
    /* y[i] = exp(x[i] - max); returns their sum by rule 6. */
    float (*softmax_terms)(float *y, const float *x, float max, size_t n);
    /* The sum by rule 6 of the y[i] whose x[i] is at least `least`, +0 in the place of the others. */
    float (*sum_at_least)(const float *y, const float *x, size_t n, float least);
    /* Writes the indices, ascending, of the values that are at least `least`; returns how many. */
    size_t (*at_least)(int32_t *index, const float *x, size_t n, float least);
    /* The index i with the largest score x[i] + fm_gumbel(seed, position, token[i]), lowest on a tie, among those
     * whose x[i] is at least `least` (> -inf) and whose score is at least *score; *score becomes that score. n if
     * there is none. token NULL: first + i. */
    size_t (*gumbel_argmax)(const float *x, const int32_t *token, int32_t first, size_t n, uint64_t seed,
                            int32_t position, float least, float *score);

    /* For measuring, not for computing: n_rounds of the set's best int8 instruction on registers, independent of
     * each other; returns the operations done, two per multiply-add, which the caller divides by the time they
     * took. NULL: the set has none (ref). */
    uint64_t (*int8_rate)(uint64_t n_rounds);
} kern_table;

/* Whole rows [r0, r1) of x ([m][k]). */
static inline void kern_act_rows(const kern_table *t, kern_act *a, const float *x, size_t r0, size_t r1,
                                 uint8_t *bad)
{
    for (size_t r = r0; r < r1; r++) {
        t->act_prepare(a, x + r * a->k, r, 0, a->k, bad);
    }
}

/* The best set that this build has, this CPU offers and `at_most` allows. Any thread; the table is static. */
const kern_table *kern_select(kern_set at_most);
/* The table of exactly this set, or NULL if it is not built in or the CPU lacks it. */
const kern_table *kern_table_of(kern_set set);
bool kern_set_built(kern_set set);
bool kern_set_on_cpu(kern_set set); /* x86: CPUID, XGETBV and, for AMX, the kernel's permission; ARM:
                                     hardware capabilities */
const char *kern_set_name(kern_set set);
/* "ref", "avx2", "avx512", "amx", "dotprod", "i8mm"; ST_INVALID_FIELD naming `cpu` otherwise. */
status kern_set_parse(const char *name, kern_set *out, err *e);

#endif
