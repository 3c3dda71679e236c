/*
 * matmul_grid: products of the formats whose values are points of a grid (IQ1, IQ2, IQ3). The judge is the sum in
 * double of prepared activations times what gguf/quant.h decodes, which the fixtures hold to the last bit
 * (tests/gguf/test_quant.c); sets and batches may not change a bit; scales, signs and indices at their limits come
 * up because blocks are random bytes.
 */
#include "matmul_test.h"

#include <stdlib.h>

#include "gguf/quant.h"

static const gguf_type grid_types[] = {GGUF_TYPE_IQ1_S,  GGUF_TYPE_IQ1_M, GGUF_TYPE_IQ2_XXS,
                                       GGUF_TYPE_IQ2_XS, GGUF_TYPE_IQ2_S, GGUF_TYPE_IQ3_XXS,
                                       GGUF_TYPE_IQ3_S};

enum { N = 21, K = 768, M = 10 };

/* Random bytes, d (IQ1_M keeps its in four nibbles) made an ordinary number. */
static void random_block(gguf_type type, uint8_t *p, uint64_t *rng)
{
    for (size_t i = 0; i < gguf_type_info_of((uint32_t)type).block_bytes; i++) {
        p[i] = (uint8_t)(rng_next(rng) >> 40);
    }
    if (type == GGUF_TYPE_IQ1_M) {
        uint8_t *top = p + offsetof(block_iq1_m, scales) + 7; /* its exponent's high bits */
        *top = (uint8_t)((*top & 0x0F) | 0x20);
    } else {
        put16(p, fp16_from_f32(rng_float(rng) * 0.03f));
    }
}

static void judge(const kern_table *t, const kern_matrix *w, const kern_act *a, const float *y)
{
    float row[K];
    for (size_t i = 0; i < N; i++) {
        quant_dequantise(w->type, (const uint8_t *)w->data + i * w->row_bytes, row, K);
        for (size_t r = 0; r < M; r++) {
            double want = 0, size = 0;
            for (size_t c = 0; c < K; c++) {
                double x = (double)kern_act_q(a, r, c / 64)[c % 64] * (double)*kern_act_d(a, r, c / 256);
                want += (double)row[c] * x;
                size += fabs((double)row[c] * x);
            }
            /* a rounding of isum, of dA * dW and of the sum, per block */
            if (fabs((double)y[r * N + i] - want) > size * 4 * 0x1p-24) {
                fail_msg("%s, set %s: y[%zu][%zu] is %a, it should be %a",
                         gguf_type_info_of((uint32_t)w->type).name, t->name, r, i, (double)y[r * N + i],
                         want);
            }
        }
    }
}

static void test_products(void **state)
{
    static float x[M * K], y[M * N], want[M * N];
    (void)state;
    uint64_t rng = 71;
    for (size_t i = 0; i < sizeof grid_types / sizeof *grid_types; i++) {
        gguf_type type = grid_types[i];
        guard w = guard_new(N * mm_row_bytes(type, K), GUARD_END);
        for (size_t at = 0; at < w.n_bytes; at += gguf_type_info_of((uint32_t)type).block_bytes) {
            random_block(type, w.data + at, &rng);
        }
        rng_fill(&rng, x, M * K);
        kern_matrix mat = {.type = type, .n = N, .k = K, .row_bytes = mm_row_bytes(type, K), .data = w.data};
        guard packed = mm_pack(&mat, GUARD_END);
        const kern_table *ref = kern_table_of(KERN_REF);
        for (size_t r = 0; r < M; r++) {
            mm_act one = mm_act_of(ref, type, x + r * K, 1, K, GUARD_END);
            ref->matmul[type](&mat, &one.a, 0, N, want + r * N, N);
            mm_act_free(&one);
        }
        const kern_table *t;
        for (int s = -1; (t = sets_next(&s));) {
            mm_act g = mm_act_of(t, type, x, M, K, GUARD_END);
            assert_non_null(t->matmul[type]);
            t->matmul[type](&mat, &g.a, 0, N, y, N);
            judge(t, &mat, &g.a, y);
            assert_same_floats("matmul with a grid", t, y, want, M * N);
            mm_act_free(&g);
        }
        mm_pack_free(&packed);
        guard_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests_name("kern matmul grid", tests, NULL, NULL);
}
