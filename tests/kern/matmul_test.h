/*
 * matmul_test: what the tests of the matrix products share: the weight types, random weights as raw blocks
 * (no quantiser takes part), prepared activations in guarded buffers, and one call of a product.
 */
#ifndef HEARTH_TESTS_MATMUL_TEST_H
#define HEARTH_TESTS_MATMUL_TEST_H

#include "kern/pack.h"
#include "kern_test.h"

static const gguf_type mm_types[] = {
    GGUF_TYPE_F32,   GGUF_TYPE_F16,    GGUF_TYPE_BF16,   GGUF_TYPE_Q8_0,  GGUF_TYPE_Q4_0,  GGUF_TYPE_Q4_K,
    GGUF_TYPE_Q6_K,  GGUF_TYPE_Q4_1,   GGUF_TYPE_Q5_0,   GGUF_TYPE_Q5_1,  GGUF_TYPE_Q2_K,  GGUF_TYPE_Q3_K,
    GGUF_TYPE_Q5_K,  GGUF_TYPE_IQ4_NL, GGUF_TYPE_IQ4_XS, GGUF_TYPE_TQ1_0, GGUF_TYPE_TQ2_0, GGUF_TYPE_MXFP4,
    GGUF_TYPE_NVFP4, GGUF_TYPE_Q1_0,   GGUF_TYPE_Q2_0};
#define MM_TYPE_COUNT (sizeof mm_types / sizeof *mm_types)

static inline size_t mm_row_bytes(gguf_type type, size_t k)
{
    gguf_type_info info = gguf_type_info_of(type);
    assert_int_equal(k % info.block_values, 0);
    return k / info.block_values * info.block_bytes;
}

static inline void put16(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

/* Where the binary16 values of a block lie: its scale and its minimum; SIZE_MAX: it has none. */
static inline size_t mm_scale_at(gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_Q2_K:
        return offsetof(block_q2_k, d);
    case GGUF_TYPE_Q3_K:
        return offsetof(block_q3_k, d);
    case GGUF_TYPE_Q6_K:
        return offsetof(block_q6_k, d);
    case GGUF_TYPE_TQ1_0:
        return offsetof(block_tq1_0, d);
    case GGUF_TYPE_TQ2_0:
        return offsetof(block_tq2_0, d);
    case GGUF_TYPE_MXFP4:
    case GGUF_TYPE_NVFP4:
        return SIZE_MAX;
    default:
        return 0;
    }
}

static inline size_t mm_minimum_at(gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_Q4_1:
    case GGUF_TYPE_Q5_1:
        return offsetof(block_q4_1, m); /* the same in both */
    case GGUF_TYPE_Q4_K:
    case GGUF_TYPE_Q5_K:
        return offsetof(block_q4_k, dmin);
    case GGUF_TYPE_Q2_K:
        return offsetof(block_q2_k, dmin);
    default:
        return SIZE_MAX;
    }
}

/* The scale of a block to d; MXFP4 and NVFP4 have other scales: bytes made of the same bits. */
static inline void mm_scale_put(gguf_type type, uint8_t *p, uint16_t d)
{
    if (type == GGUF_TYPE_MXFP4) {
        p[0] = d & 0x7FFF ? (uint8_t)(113 + (d >> 10 & 31)) : 0; /* 2 ^ (exponent - 15), or denormal */
    } else if (type == GGUF_TYPE_NVFP4) {
        put16(p, d);
        put16(p + 2, (uint16_t)~d);
    } else {
        put16(p + mm_scale_at(type), d);
    }
}

/* One block of random codes and integer scales; float scales within a factor of four of `scale` (MXFP4: of one,
 * NVFP4: any), either sign. */
static inline void mm_block_fill(gguf_type type, uint8_t *p, float scale, uint64_t *rng)
{
    size_t n_bytes = gguf_type_info_of(type).block_bytes;
    float f = rng_float(rng);
    for (size_t i = 0; i < n_bytes; i++) {
        p[i] = (uint8_t)(rng_next(rng) >> 33);
    }
    float d = scale * (f < 0 ? f - 0.25f : f + 0.25f);
    switch ((int)type) {
    case GGUF_TYPE_F32:
        f *= scale;
        memcpy(p, &f, sizeof f);
        return;
    case GGUF_TYPE_F16:
        put16(p, fp16_from_f32(f * scale));
        return;
    case GGUF_TYPE_BF16:
        put16(p, bf16_from_f32(f * scale));
        return;
    case GGUF_TYPE_MXFP4:
        p[0] = (uint8_t)(126 + p[0] % 4);
        return;
    case GGUF_TYPE_NVFP4:
        return;
    default:
        break;
    }
    if (mm_minimum_at(type) != SIZE_MAX) {
        put16(p + mm_minimum_at(type), fp16_from_f32(rng_float(rng) * scale));
    }
    mm_scale_put(type, p, fp16_from_f32(d));
}

static inline void mm_weights_fill(gguf_type type, uint8_t *p, size_t n_bytes, float scale, uint64_t *rng)
{
    size_t block = gguf_type_info_of(type).block_bytes;
    for (size_t at = 0; at < n_bytes; at += block) {
        mm_block_fill(type, p + at, scale, rng);
    }
}

/* Prepared activations whose every array lies between forbidden pages. */
typedef struct mm_act {
    kern_act a;
    guard f32, bf16, q, d, sums, totals, halves;
} mm_act;

#define MM_ACT_PARTS(g)                                                                 \
    {                                                                                   \
        &(g)->f32, &(g)->bf16, &(g)->q, &(g)->d, &(g)->sums, &(g)->totals, &(g)->halves \
    }

static inline mm_act mm_act_new(kern_act_kind kind, size_t m, size_t k, guard_side side)
{
    mm_act g = {.a = {.kind = kind, .m = m, .k = k, .tile = m <= 8 ? m : 16}};
    size_t rows = (m + g.a.tile - 1) / g.a.tile * g.a.tile;
    if (kind == KERN_ACT_F32) {
        g.f32 = guard_new(m * k * sizeof(float), side);
        g.a.f32 = guard_floats(&g.f32);
        return g;
    }
    if (kind == KERN_ACT_BF16) {
        g.a.n_runs = (k + 31) / 32;
        g.bf16 = guard_new(rows * g.a.n_runs * 64, side);
        g.a.bf16 = (uint16_t *)(void *)g.bf16.data;
        return g;
    }
    g.a.block = kind == KERN_ACT_Q8_32 ? 32 : 256;
    g.a.n_blocks = (k + g.a.block - 1) / g.a.block;
    g.a.n_runs = (g.a.n_blocks * g.a.block + 63) / 64;
    g.q = guard_new(rows * g.a.n_runs * 64, side);
    g.d = guard_new(rows * g.a.n_blocks * sizeof(float), side);
    g.sums = guard_new(rows * g.a.n_blocks * g.a.block / 16 * sizeof(int16_t), side);
    g.a.q = (int8_t *)g.q.data;
    g.a.d = guard_floats(&g.d);
    g.a.sums = (int16_t *)(void *)g.sums.data;
    if (kind == KERN_ACT_Q8_32) {
        g.totals = guard_new(rows * g.a.n_blocks * sizeof(float), side);
        g.a.totals = guard_floats(&g.totals);
    } else {
        g.halves = guard_new(rows * g.a.n_blocks * KERN_ACT_HALVES * sizeof(uint16_t), side);
        g.a.halves = (uint16_t *)(void *)g.halves.data;
    }
    return g;
}

/* The k codes of row r, one after the other. */
static inline void mm_act_codes(const kern_act *a, size_t r, int8_t *codes)
{
    for (size_t i = 0; i < a->k; i++) {
        codes[i] = kern_act_q(a, r, i / 64)[i % 64];
    }
}

static inline void mm_act_check(const mm_act *g)
{
    const guard *const parts[] = MM_ACT_PARTS(g);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i]->map) {
            guard_check(parts[i]);
        }
    }
}

static inline void mm_act_free(mm_act *g)
{
    guard *const parts[] = MM_ACT_PARTS(g);
    mm_act_check(g);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i]->map) {
            guard_free(parts[i]);
        }
    }
}

/* The same bits in every array; rows that only fill a tile are as they were made, in both. */
static inline void mm_act_equal(const kern_table *t, const mm_act *got, const mm_act *want)
{
    const guard *const a[] = MM_ACT_PARTS(got);
    const guard *const b[] = MM_ACT_PARTS(want);
    static const char *const names[] = {"f32", "bf16", "q", "d", "sums", "totals", "halves"};
    for (size_t i = 0; i < sizeof a / sizeof *a; i++) {
        assert_int_equal(a[i]->n_bytes, b[i]->n_bytes);
        if (a[i]->map && memcmp(a[i]->data, b[i]->data, a[i]->n_bytes) != 0) {
            fail_msg("activations, set %s, kind %d, m %zu, k %zu: %s differs", t->name, (int)got->a.kind,
                     got->a.m, got->a.k, names[i]);
        }
    }
}

/* The packed form of w, in guarded memory, where its type has one (else map is NULL); w->packed points to it. */
static inline guard mm_pack(kern_matrix *w, guard_side side)
{
    size_t n_bytes = kern_packed_bytes(w->type, w->n, w->k);
    guard g = {0};
    if (n_bytes > 0) {
        g = guard_new(n_bytes, side);
        kern_pack(w, 0, (w->n + KERN_PANEL - 1) / KERN_PANEL, g.data);
        guard_check(&g);
        w->packed = g.data;
    }
    return g;
}

static inline void mm_pack_free(guard *g)
{
    if (g->map) {
        guard_free(g);
    }
}

/* m rows of x prepared by table t; no row may be bad. */
static inline mm_act mm_act_of(const kern_table *t, gguf_type type, const float *x, size_t m, size_t k,
                               guard_side side)
{
    mm_act g = mm_act_new(kern_act_kind_of(type), m, k, side);
    uint8_t bad[1024] = {0};
    assert_true(m <= sizeof bad);
    kern_act_rows(t, &g.a, x, 0, m, bad);
    for (size_t r = 0; r < m; r++) {
        assert_int_equal(bad[r], 0);
    }
    return g;
}

#endif
