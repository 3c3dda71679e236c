/*
 * matmul: every weight type in every set. The oracle (double precision, shares no code with src/) judges
 * codes and results, and with codes every bit; sets, ranges of outputs, batches and addresses may not change one bit; extremes; bad
 * rows.
 */
#include "matmul_test.h"

#include <stdlib.h>

#include "oracle.h"

static kern_matrix matrix_of(gguf_type type, size_t n, size_t k, const void *data)
{
    return (kern_matrix){.type = type, .n = n, .k = k, .row_bytes = mm_row_bytes(type, k), .data = data};
}

/* All outputs of all rows, y dense. */
static void product(const kern_table *t, const kern_matrix *w, const kern_act *a, float *y)
{
    t->matmul[w->type](w, a, 0, w->n, y, w->n);
}

/* Rounding of tiny results on top of the oracle's bound, which counts only roundings of normal numbers. */
#define TINY_PER_K 0x1p-149

static void oracle_judges(const kern_table *t, const kern_matrix *w, const mm_act *g, const float *x,
                          const float *y, size_t y_stride)
{
    double *want = calloc(w->n, sizeof *want);
    double *bound = calloc(w->n, sizeof *bound);
    float *bits = calloc(w->n, sizeof *bits);
    int8_t *codes = calloc(w->k, 1);
    int8_t *got_codes = calloc(w->k, 1);
    for (size_t r = 0; r < g->a.m; r++) {
        assert_true(oracle_matmul(w->type, w->data, w->n, w->k, x + r * w->k, want, bound, codes));
        if (g->a.q) {
            mm_act_codes(&g->a, r, got_codes);
            assert_memory_equal(got_codes, codes, w->k);
            assert_true(oracle_matmul_bits(w->type, w->data, w->n, w->k, x + r * w->k, bits));
            assert_same_floats("rule 1 by the oracle", t, y + r * y_stride, bits, w->n);
        }
        for (size_t i = 0; i < w->n; i++) {
            double got = (double)y[r * y_stride + i];
            double limit = bound[i] + TINY_PER_K * (double)w->k;
            if (!(fabs(got - want[i]) <= limit)) {
                fail_msg("%s, set %s, n %zu k %zu m %zu: y[%zu][%zu] is %a, the oracle says %a ± %g",
                         gguf_type_info_of((uint32_t)w->type).name, t->name, w->n, w->k, g->a.m, r, i, got,
                         want[i], limit);
            }
        }
    }
    free(got_codes);
    free(codes);
    free(bits);
    free(bound);
    free(want);
}

static void test_oracle(void **state)
{
    static const struct {
        size_t n, k, m;
    } shapes[] = {{1, 256, 1},   {3, 256, 2},   {7, 512, 3},   {8, 768, 5},   {9, 256, 8},
                  {17, 512, 17}, {31, 2048, 1}, {33, 1024, 2}, {16, 1280, 4}, {13, 2048, 6}};
    (void)state;
    uint64_t rng = 3;
    for (size_t i = 0; i < MM_TYPE_COUNT; i++) {
        for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++) {
            size_t n = shapes[c].n, k = shapes[c].k, m = shapes[c].m;
            guard w = guard_new(n * mm_row_bytes(mm_types[i], k), GUARD_END);
            guard x = guard_new(m * k * sizeof(float), GUARD_END);
            guard y = guard_new(m * n * sizeof(float), GUARD_END);
            mm_weights_fill(mm_types[i], w.data, w.n_bytes, 0.02f, &rng);
            rng_fill(&rng, guard_floats(&x), m * k);
            kern_matrix mat = matrix_of(mm_types[i], n, k, w.data);
            guard packed = mm_pack(&mat, GUARD_END);
            const kern_table *t;
            for (int s = -1; (t = sets_next(&s));) {
                mm_act g = mm_act_of(t, mm_types[i], guard_floats(&x), m, k, GUARD_END);
                product(t, &mat, &g.a, guard_floats(&y));
                oracle_judges(t, &mat, &g, guard_floats(&x), guard_floats(&y), n);
                mm_act_free(&g);
            }
            mm_pack_free(&packed);
            guard_free(&y);
            guard_free(&x);
            guard_free(&w);
        }
    }
}

/* One shape: the reference output by output and row by row, against a set in ranges, in batches, at odd
 * addresses. */
typedef struct shape {
    gguf_type type;
    size_t n, k, m;
    guard_side side;
    size_t shift; /* of the weights from the start of their buffer (GUARD_START only) */
} shape;

static void fill_case(const shape *c, guard *w, guard *x, uint64_t *rng)
{
    *w = guard_new(c->n * mm_row_bytes(c->type, c->k) + c->shift, c->side);
    *x = guard_new(c->m * c->k * sizeof(float), c->side);
    mm_weights_fill(c->type, w->data + c->shift, w->n_bytes - c->shift, 0.02f, rng);
    rng_fill(rng, guard_floats(x), c->m * c->k);
    memset(guard_floats(x), 0, c->k / 2 * sizeof(float)); /* whole blocks of zeros in row 0 */
}

static void reference_singly(const shape *c, const kern_matrix *mat, const float *x, float *want)
{
    const kern_table *ref = kern_table_of(KERN_REF);
    for (size_t r = 0; r < c->m; r++) {
        mm_act g = mm_act_of(ref, c->type, x + r * c->k, 1, c->k, c->side);
        for (size_t i = 0; i < c->n; i++) {
            ref->matmul[c->type](mat, &g.a, i, i + 1, want + r * c->n, 0);
        }
        mm_act_free(&g);
    }
}

/* In cuts of a random number of panels; y rows are y_stride apart, and what lies between them must stay. */
static void product_in_ranges(const kern_table *t, const shape *c, const kern_matrix *mat, const kern_act *a,
                              const float *want, uint64_t *rng)
{
    size_t y_stride = c->n + 3;
    guard y = guard_new(((c->m - 1) * y_stride + c->n) * sizeof(float), c->side);
    for (size_t at = 0; at < c->n;) {
        size_t left = c->n - at;
        size_t len = KERN_PANEL * (1 + rng_next(rng) % (left / KERN_PANEL + 1));
        len = len < left ? len : left;
        t->matmul[c->type](mat, a, at, at + len, guard_floats(&y), y_stride);
        at += len;
    }
    t->matmul[c->type](mat, a, c->n, c->n, guard_floats(&y), y_stride); /* an empty range does nothing */
    guard_check(&y);
    for (size_t r = 0; r < c->m; r++) {
        const float *row = guard_floats(&y) + r * y_stride;
        assert_same_floats("matmul in ranges", t, row, want + r * c->n, c->n);
        for (size_t i = c->n; r + 1 < c->m && i < y_stride; i++) {
            assert_int_equal(f32_bits(row[i]), 0xA5A5A5A5u);
        }
    }
    guard_free(&y);
}

static void shape_check(const shape *c, uint64_t *rng)
{
    guard w, x;
    fill_case(c, &w, &x, rng);
    kern_matrix mat = matrix_of(c->type, c->n, c->k, w.data + c->shift);
    guard packed = mm_pack(&mat, c->side);
    float *want = calloc(c->m * c->n, sizeof *want);
    reference_singly(c, &mat, guard_floats(&x), want);
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        mm_act g = mm_act_of(t, c->type, guard_floats(&x), c->m, c->k, c->side);
        guard y = guard_new(c->m * c->n * sizeof(float), c->side);
        product(t, &mat, &g.a, guard_floats(&y));
        assert_same_floats(gguf_type_info_of((uint32_t)c->type).name, t, guard_floats(&y), want, c->m * c->n);
        guard_check(&y);
        product_in_ranges(t, c, &mat, &g.a, want, rng);
        guard_free(&y);
        mm_act_free(&g);
    }
    free(want);
    mm_pack_free(&packed);
    guard_free(&x);
    guard_free(&w);
}

static void test_same_bits(void **state)
{
    static const size_t ns[] = {1, 2, 5, 7, 8, 9, 15, 16, 17, 31, 37};
    static const size_t ms[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 33};
    (void)state;
    uint64_t rng = 29;
    for (size_t i = 0; i < MM_TYPE_COUNT; i++) {
        size_t unit = gguf_type_info_of((uint32_t)mm_types[i]).block_values;
        for (size_t c = i % CASE_STEP; c < 44; c += CASE_STEP) {
            shape s = {.type = mm_types[i], .n = ns[c % 11], .m = ms[c % 10]};
            /* float types: every k from 1 up, around the vectors' and the runs' widths */
            s.k = unit == 1 ? 1 + c * c / 3 : unit * (1 + rng_next(&rng) % (unit == 256 ? 3 : 640 / unit));
            s.side = c % 2 ? GUARD_START : GUARD_END;
            s.shift = c % 2 ? c % 5 : 0;
            shape_check(&s, &rng);
        }
    }
}

/* More activation bytes than a set takes at once (AMX: 1 MiB), and groups of panels that follow each other, a larger
 * one after a smaller one; many rows of whole lines of y, which AMX writes past the caches; four panels, which AVX-512
 * takes two by two, and half a group of rows. */
static void test_many_rows(void **state)
{
    (void)state;
    uint64_t rng = 31;
    for (size_t i = 0; i < MM_TYPE_COUNT; i += CASE_STEP) {
        shape s = {.type = mm_types[i], .n = 19, .k = 32768, .m = 37, .side = GUARD_END};
        shape_check(&s, &rng);
        s = (shape){.type = mm_types[i], .n = 32, .k = 256, .m = 150, .side = GUARD_START};
        shape_check(&s, &rng);
        s = (shape){.type = mm_types[i], .n = 35, .k = 256, .m = 520, .side = GUARD_END};
        shape_check(&s, &rng);
        s = (shape){.type = mm_types[i], .n = 61, .k = 512, .m = 44, .side = GUARD_END};
        shape_check(&s, &rng);
    }
}

/*
 * Codes, integer scales and minima at their limits against activations of ±127: where a 16-bit sum would
 * overflow. The integers are known: every product has the same sign.
 */
typedef struct extreme {
    gguf_type type;
    uint8_t code;  /* of every byte of codes */
    uint8_t scale; /* of every byte of integer scales */
    double isum;   /* per block, for activation codes of 127 */
    double msum;   /* taken off */
} extreme;

static void extreme_block(const extreme *e, uint8_t *p)
{
    size_t n_bytes = gguf_type_info_of((uint32_t)e->type).block_bytes;
    memset(p, e->code, n_bytes);
    uint16_t one = fp16_from_f32(1.0f);
    switch ((int)e->type) {
    case GGUF_TYPE_Q2_K:
        memset(p + offsetof(block_q2_k, scales), e->scale, 16);
        break;
    case GGUF_TYPE_Q3_K:
        memset(p + offsetof(block_q3_k, scales), e->scale, 12);
        break;
    case GGUF_TYPE_Q4_K:
    case GGUF_TYPE_Q5_K: /* the same place in both */
        memset(p + offsetof(block_q4_k, scales), e->scale, 12);
        break;
    case GGUF_TYPE_Q6_K:
        memset(p + offsetof(block_q6_k, scales), e->scale, 16);
        break;
    case GGUF_TYPE_IQ4_XS:
        memset(p + offsetof(block_iq4_xs, scales_h), e->scale, 6);
        break;
    case GGUF_TYPE_MXFP4:
        p[0] = 128; /* 2^0: the codes are doubled */
        return;
    case GGUF_TYPE_NVFP4:
        memset(p, 0x40, 4); /* 2, and half of it 1 */
        return;
    default:
        break;
    }
    if (mm_minimum_at(e->type) != SIZE_MAX) {
        put16(p + mm_minimum_at(e->type), one);
    }
    put16(p + mm_scale_at(e->type), one);
}

static void extreme_check(const kern_table *t, const extreme *e, size_t m, float x_value)
{
    enum { N = 11, BLOCKS = 3, M = 21 };
    size_t width = gguf_type_info_of((uint32_t)e->type).block_values;
    size_t block_bytes = gguf_type_info_of((uint32_t)e->type).block_bytes;
    size_t k = width * BLOCKS;
    guard w = guard_new(N * BLOCKS * block_bytes, GUARD_END);
    for (size_t b = 0; b < N * BLOCKS; b++) {
        extreme_block(e, w.data + b * block_bytes);
    }
    float x[M * 3 * 256];
    for (size_t i = 0; i < m * k; i++) {
        x[i] = x_value;
    }
    kern_matrix mat = matrix_of(e->type, N, k, w.data);
    guard packed = mm_pack(&mat, GUARD_END);
    mm_act g = mm_act_of(t, e->type, x, m, k, GUARD_END);
    float y[M * N];
    product(t, &mat, &g.a, y);
    /* d of the activations is 1 (absmax 127), d of the weights 1: y is an integer below 2^31, rounded in
     * places */
    double want = (e->isum - e->msum) * BLOCKS * (x_value > 0 ? 1 : -1);
    for (size_t i = 0; i < m * N; i++) {
        assert_true(fabs((double)y[i] - want) <= fabs(want) * 8 * 0x1p-24);
    }
    oracle_judges(t, &mat, &g, x, y, N);
    mm_act_free(&g);
    mm_pack_free(&packed);
    guard_free(&w);
}

static void test_extremes(void **state)
{
    static const extreme cases[] = {
        {GGUF_TYPE_Q8_0, 0x80, 0, 32.0 * -128 * 127, 0},
        {GGUF_TYPE_Q8_0, 0x7F, 0, 32.0 * 127 * 127, 0},
        {GGUF_TYPE_Q4_0, 0xFF, 0, 32.0 * 7 * 127, 0},
        {GGUF_TYPE_Q4_0, 0x00, 0, 32.0 * -8 * 127, 0},
        {GGUF_TYPE_Q4_K, 0xFF, 0xFF, 256.0 * 15 * 63 * 127, 256.0 * 63 * 127},
        {GGUF_TYPE_Q4_K, 0x00, 0xFF, 0, 256.0 * 63 * 127},
        {GGUF_TYPE_Q4_K, 0xFF, 0x00, 0, 0},
        {GGUF_TYPE_Q6_K, 0xFF, 0x80, 256.0 * 31 * -128 * 127, 0},
        {GGUF_TYPE_Q6_K, 0xFF, 0x7F, 256.0 * 31 * 127 * 127, 0},
        {GGUF_TYPE_Q6_K, 0x00, 0x80, 256.0 * -32 * -128 * 127, 0},
        {GGUF_TYPE_Q6_K, 0x00, 0x7F, 256.0 * -32 * 127 * 127, 0},
        {GGUF_TYPE_Q6_K, 0xFF, 0x00, 0, 0},
        {GGUF_TYPE_Q4_1, 0xFF, 0, 32.0 * 15 * 127, -32.0 * 127},
        {GGUF_TYPE_Q4_1, 0x00, 0, 0, -32.0 * 127},
        {GGUF_TYPE_Q5_0, 0xFF, 0, 32.0 * 15 * 127, 0},
        {GGUF_TYPE_Q5_0, 0x00, 0, 32.0 * -16 * 127, 0},
        {GGUF_TYPE_Q5_1, 0xFF, 0, 32.0 * 31 * 127, -32.0 * 127},
        {GGUF_TYPE_Q5_1, 0x00, 0, 0, -32.0 * 127},
        {GGUF_TYPE_IQ4_NL, 0x00, 0, 32.0 * -127 * 127, 0},
        {GGUF_TYPE_IQ4_NL, 0xFF, 0, 32.0 * 113 * 127, 0},
        {GGUF_TYPE_MXFP4, 0x77, 0, 32.0 * 12 * 127, 0},
        {GGUF_TYPE_MXFP4, 0xFF, 0, 32.0 * -12 * 127, 0},
        {GGUF_TYPE_NVFP4, 0x77, 0, 64.0 * 12 * 127, 0},
        {GGUF_TYPE_NVFP4, 0xFF, 0, 64.0 * -12 * 127, 0},
        {GGUF_TYPE_Q1_0, 0xFF, 0, 128.0 * 127, 0},
        {GGUF_TYPE_Q1_0, 0x00, 0, -128.0 * 127, 0},
        {GGUF_TYPE_Q2_0, 0xFF, 0, 64.0 * 2 * 127, 0},
        {GGUF_TYPE_Q2_0, 0x00, 0, -64.0 * 127, 0},
        {GGUF_TYPE_Q2_K, 0xFF, 0xFF, 256.0 * 3 * 15 * 127, 256.0 * 15 * 127},
        {GGUF_TYPE_Q2_K, 0x00, 0xFF, 0, 256.0 * 15 * 127},
        {GGUF_TYPE_Q3_K, 0xFF, 0xFF, 256.0 * 3 * 31 * 127, 0},
        {GGUF_TYPE_Q3_K, 0x00, 0x00, 256.0 * -4 * -32 * 127, 0},
        {GGUF_TYPE_Q5_K, 0xFF, 0xFF, 256.0 * 31 * 63 * 127, 256.0 * 63 * 127},
        {GGUF_TYPE_Q5_K, 0x00, 0xFF, 0, 256.0 * 63 * 127},
        {GGUF_TYPE_IQ4_XS, 0x00, 0x00, 256.0 * -127 * -32 * 127, 0},
        {GGUF_TYPE_IQ4_XS, 0x00, 0xFF, 256.0 * -127 * 31 * 127, 0},
        {GGUF_TYPE_TQ1_0, 0xFF, 0, 256.0 * 127, 0},
        {GGUF_TYPE_TQ1_0, 0x00, 0, -256.0 * 127, 0},
        {GGUF_TYPE_TQ2_0, 0xFF, 0, 256.0 * 2 * 127, 0},
        {GGUF_TYPE_TQ2_0, 0x00, 0, -256.0 * 127, 0},
    };
    (void)state;
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            extreme_check(t, &cases[i], 5, 127.0f);
            extreme_check(t, &cases[i], 5, -127.0f);
            extreme_check(t, &cases[i], 21, 127.0f);
            extreme_check(t, &cases[i], 21, -127.0f);
        }
    }
}

/* Scales that are zero, negative zero, denormal or huge, and activations that are tiny, zero or -0. */
static void scale_check(gguf_type type, uint16_t d, size_t m, float x_scale, uint64_t *rng)
{
    enum { N = 9, M = 11 };
    size_t k = 512;
    size_t block = gguf_type_info_of((uint32_t)type).block_bytes;
    guard w = guard_new(N * mm_row_bytes(type, k), GUARD_END);
    mm_weights_fill(type, w.data, w.n_bytes, 1.0f, rng);
    for (size_t at = 0; at < w.n_bytes; at += 2 * block) { /* every second block */
        mm_scale_put(type, w.data + at, d);
    }
    float x[M * 512], want[M * N], y[M * N];
    rng_fill(rng, x, m * k);
    for (size_t i = 0; i < m * k; i++) {
        x[i] *= x_scale;
    }
    kern_matrix mat = matrix_of(type, N, k, w.data);
    guard packed = mm_pack(&mat, GUARD_END);
    const kern_table *ref = kern_table_of(KERN_REF);
    mm_act g = mm_act_of(ref, type, x, m, k, GUARD_END);
    product(ref, &mat, &g.a, want);
    oracle_judges(ref, &mat, &g, x, want, N);
    mm_act_free(&g);
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        g = mm_act_of(t, type, x, m, k, GUARD_END);
        product(t, &mat, &g.a, y);
        assert_same_floats("odd scales", t, y, want, m * N);
        mm_act_free(&g);
    }
    mm_pack_free(&packed);
    guard_free(&w);
}

static void test_odd_scales(void **state)
{
    static const uint16_t scales[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF};
    /* in a bf16 weight the top exponent bit would leave the range: it is taken off there */
    static const float x_scales[] = {1.0f, 0.0f, -0.0f, 0x1p-90f, 0x1p-100f, 0x1p-101f, 0x1p-149f, 0x1p60f};
    (void)state;
    uint64_t rng = 37;
    for (size_t i = 0; i < MM_TYPE_COUNT; i++) {
        for (size_t d = 0; d < sizeof scales / sizeof *scales; d++) {
            for (size_t x = (i + d) % CASE_STEP; x < sizeof x_scales / sizeof *x_scales; x += CASE_STEP) {
                uint16_t scale = mm_types[i] == GGUF_TYPE_BF16 ? scales[d] & 0xBFFF : scales[d];
                scale_check(mm_types[i], scale, (d + x) % 2 ? 11 : 3, x_scales[x], &rng);
            }
        }
    }
}

/* One product with the largest code, 12 halves, and an activation of 127 * 2^shift: exact, whatever the scale. */
static double one_product(const kern_table *t, gguf_type type, const uint8_t *scale, size_t n_scale, size_t m,
                          int shift)
{
    uint8_t block[36] = {0};
    float x[9 * 64] = {ldexpf(127.0f, shift)};
    size_t k = gguf_type_info_of((uint32_t)type).block_values;
    float y[9];
    memcpy(block, scale, n_scale);
    block[n_scale] = 0x07;
    kern_matrix mat = matrix_of(type, 1, k, block);
    guard packed = mm_pack(&mat, GUARD_END);
    mm_act g = mm_act_of(t, type, x, m, k, GUARD_END);
    product(t, &mat, &g.a, y);
    mm_act_free(&g);
    mm_pack_free(&packed);
    return (double)y[0];
}

/* Every scale byte of MXFP4 (E8M0: 2^(e - 127)) and NVFP4 (E4M3 without its sign, NaN as zero). */
static void test_byte_scales(void **state)
{
    (void)state;
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        for (int i = 0; i < 512; i++) {
            int byte = i % 256;
            size_t m = i < 256 ? 1 : 9;
            uint8_t scale[4] = {(uint8_t)byte};
            int shift = byte < 127 ? 40 : -40; /* where the result is a normal number */
            assert_true(one_product(t, GGUF_TYPE_MXFP4, scale, 1, m, shift) ==
                        ldexp(6 * 127, byte - 127 + shift));
            int exponent = byte >> 3 & 15, fraction = byte & 7;
            double value = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
            assert_true(one_product(t, GGUF_TYPE_NVFP4, scale, 4, m, 0) ==
                        (byte == 0x7F ? 0 : 6 * 127 * value));
        }
    }
}

/* A row with a NaN: its results are those of a zero row, its neighbours' bits those without it. */
static void test_bad_row(void **state)
{
    enum { N = 21, M = 6, K = 512 };
    static const float poison[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    uint64_t rng = 41;
    for (size_t i = 0; i < MM_TYPE_COUNT; i++) {
        guard w = guard_new(N * mm_row_bytes(mm_types[i], K), GUARD_END);
        mm_weights_fill(mm_types[i], w.data, w.n_bytes, 0.02f, &rng);
        kern_matrix mat = matrix_of(mm_types[i], N, K, w.data);
        guard packed = mm_pack(&mat, GUARD_END);
        float x[M * K], want[M * N], y[M * N];
        rng_fill(&rng, x, M * K);
        const kern_table *t;
        for (int s = -1; (t = sets_next(&s));) {
            mm_act g = mm_act_of(t, mm_types[i], x, M, K, GUARD_END);
            product(t, &mat, &g.a, want);
            for (size_t r = 0; r < M; r++) {
                float kept = x[r * K + 77 * r];
                uint8_t bad[M] = {0};
                x[r * K + 77 * r] = poison[r % 3];
                kern_act_rows(t, &g.a, x, 0, M, bad);
                product(t, &mat, &g.a, y);
                for (size_t other = 0; other < M; other++) {
                    assert_int_equal(bad[other], other == r);
                    for (size_t o = 0; o < N; o++) {
                        float expected = other == r ? 0.0f : want[other * N + o];
                        assert_true(y[other * N + o] == expected);
                    }
                }
                x[r * K + 77 * r] = kept;
            }
            mm_act_free(&g);
        }
        mm_pack_free(&packed);
        guard_free(&w);
    }
}

/* Where the CPU has a set, every type with a packed form has a product there that reads it. */
static void test_sets_read_packed(void **state)
{
    (void)state;
    const kern_table *ref = kern_table_of(KERN_REF);
    const kern_table *t;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; t != ref && i < MM_TYPE_COUNT; i++) {
            bool packs = kern_packed_bytes(mm_types[i], 1, 256) > 0;
            assert_int_equal(t->wants_packed[mm_types[i]], packs);
            assert_true((t->matmul[mm_types[i]] != ref->matmul[mm_types[i]]) == packs);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_read_packed), cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_same_bits),        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_extremes),         cmocka_unit_test(test_odd_scales),
        cmocka_unit_test(test_byte_scales),      cmocka_unit_test(test_bad_row),
        cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests_name("kern matmul", tests, NULL, NULL);
}
