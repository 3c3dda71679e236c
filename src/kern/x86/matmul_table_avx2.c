/*
 * The walk over groups and tiles, and the AVX2 share of the kernel table.
 */
#include <string.h>

#include "kern/fill.h"
#include "kern/x86/matmul_avx2.h"

/* Activation rows are taken in runs of about this size, so that they stay in L2 while the weights pass. */
#define ACT_RUN_BYTES ((size_t)256 * 1024)

static size_t act_row_bytes(const kern_act *a)
{
    switch (a->kind) {
    case KERN_ACT_Q8_32:
        return a->n_blocks * 32;
    case KERN_ACT_Q8_256:
        return a->n_blocks * 256;
    default:
        return a->k * sizeof(float);
    }
}

static void group_set(mm_group *g, const kern_matrix *w, size_t first, size_t lanes, size_t width)
{
    const uint8_t *data = w->data;
    for (size_t i = 0; i < width; i++) {
        g->row[i] = data + (first + (i < lanes ? i : lanes - 1)) * w->row_bytes;
    }
    g->row_bytes = w->row_bytes;
    g->wrap_bytes = (width - 1) * w->row_bytes;
}

/* acc: [width / 8][rows] vectors; y: output 0 of the first row. */
static void tile_store(const __m256 *acc, size_t rows, size_t lanes, float *y, size_t y_stride)
{
    for (size_t v = 0; v * MM_LANES < lanes; v++) {
        size_t left = lanes - v * MM_LANES;
        for (size_t i = 0; i < rows; i++) {
            float *out = y + i * y_stride + v * MM_LANES;
            if (left >= MM_LANES) {
                _mm256_storeu_ps(out, acc[v * rows + i]);
                continue;
            }
            float part[MM_LANES];
            _mm256_storeu_ps(part, acc[v * rows + i]);
            memcpy(out, part, left * sizeof *part);
        }
    }
}

void mm_run(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride,
            size_t width, const mm_tile_fn tiles[MM_ROWS])
{
    size_t row_bytes = act_row_bytes(a);
    size_t run = ACT_RUN_BYTES / (row_bytes ? row_bytes : 1) / MM_ROWS * MM_ROWS;
    if (run < MM_ROWS) {
        run = MM_ROWS;
    }
    for (size_t m0 = 0; m0 < a->m; m0 += run) {
        size_t m1 = a->m - m0 < run ? a->m : m0 + run;
        for (size_t i = n0; i < n1; i += width) {
            size_t lanes = n1 - i < width ? n1 - i : width;
            mm_group g;
            group_set(&g, w, i, lanes, width);
            for (size_t r = m0; r < m1; r += MM_ROWS) {
                size_t rows = m1 - r < MM_ROWS ? m1 - r : MM_ROWS;
                __m256 acc[2 * MM_ROWS];
                tiles[rows - 1](&g, a, r, acc);
                tile_store(acc, rows, lanes, y + r * y_stride + i, y_stride);
            }
        }
    }
}

void kern_fill_avx2_matmul(kern_table *t)
{
    t->act_prepare = act_prepare_avx2;
    t->matmul[GGUF_TYPE_F32] = matmul_avx2_f32;
    t->matmul[GGUF_TYPE_F16] = matmul_avx2_f16;
    t->matmul[GGUF_TYPE_BF16] = matmul_avx2_bf16;
    t->matmul[GGUF_TYPE_Q8_0] = matmul_avx2_q8_0;
    t->matmul[GGUF_TYPE_Q4_0] = matmul_avx2_q4_0;
    t->matmul[GGUF_TYPE_Q4_K] = matmul_avx2_q4_k;
    t->matmul[GGUF_TYPE_Q6_K] = matmul_avx2_q6_k;
}
