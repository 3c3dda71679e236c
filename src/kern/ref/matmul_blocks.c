/*
 * Products with every block format (DESIGN 4 rule 1): integers within an activation block, then one fma per
 * float scale, blocks ascending.
 *
 * A strip is a few rows of weights by MATMUL_STRIP_VALUES: it is unpacked once and meets all rows of
 * activations while it lies in the first cache. The accumulator waits in y between strips, so no cut of rows,
 * batches or strips changes an operation.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kern/ref/matmul_codes.h"
#include "kern/ref/matmul_ref.h"

#define STRIP_ROWS 8

/* The activations of one row that meet a strip. */
typedef struct act_strip {
    int16_t q[MATMUL_STRIP_VALUES];
    int16_t sums[MATMUL_STRIP_RUNS];
    float d[MATMUL_STRIP_VALUES / 32]; /* per block */
} act_strip;

static int32_t dot_integers(const int16_t *w, const int16_t *q, size_t n)
{
    int32_t dot = 0;
    for (size_t i = 0; i < n; i++) {
        dot += w[i] * q[i];
    }
    return dot;
}

static float dot_q32(const matmul_format *f, const matmul_codes *w, const act_strip *a, size_t n, float acc)
{
    for (size_t at = 0; at < n; at += 32) {
        float d_act = a->d[at / 32];
        size_t run = at / MATMUL_RUN;
        if (f->d_per_run) {
            for (size_t j = 0; j < 2; j++) {
                size_t from = at + j * MATMUL_RUN;
                int32_t isum = dot_integers(w->q + from, a->q + from, MATMUL_RUN);
                acc = fmaf((float)isum, d_act * w->d[run + j], acc);
            }
        } else {
            acc = fmaf((float)dot_integers(w->q + at, a->q + at, 32), d_act * w->d[run], acc);
        }
        if (f->has_min) {
            acc = fmaf((float)(a->sums[run] + a->sums[run + 1]), d_act * w->min[run], acc);
        }
    }
    return acc;
}

static float dot_q256(const matmul_format *f, const matmul_codes *w, const act_strip *a, size_t n, float acc)
{
    for (size_t at = 0; at < n; at += 256) {
        float d_act = a->d[at / 256];
        size_t run = at / MATMUL_RUN;
        int32_t isum = 0;
        int32_t msum = 0;
        for (size_t j = 0; j < 256 / MATMUL_RUN; j++) {
            size_t from = at + j * MATMUL_RUN;
            isum += w->sc[run + j] * dot_integers(w->q + from, a->q + from, MATMUL_RUN);
        }
        acc = fmaf((float)isum, d_act * w->d[run], acc);
        if (f->has_min) {
            for (size_t j = 0; j < 256 / MATMUL_RUN; j++) {
                msum += w->sub_min[run + j] * a->sums[run + j];
            }
            acc = fmaf(-(float)msum, d_act * w->min[run], acc);
        }
    }
    return acc;
}

typedef float (*dot_fn)(const matmul_format *f, const matmul_codes *w, const act_strip *a, size_t n,
                        float acc);

/* What the two kinds do not share. */
typedef struct block_product {
    matmul_format format;
    dot_fn dot;
} block_product;

static void strip_unpack(const kern_matrix *w, const matmul_format *f, size_t row, size_t at, size_t n,
                         matmul_codes *out)
{
    gguf_type_info info = gguf_type_info_of((uint32_t)w->type);
    assert(info.block_values > 0);
    const uint8_t *block =
        (const uint8_t *)w->data + row * w->row_bytes + at / info.block_values * info.block_bytes;
    for (size_t i = 0; i < n; i += info.block_values, block += info.block_bytes) {
        f->decode(block, i, out);
    }
}

/* Values [at, at + n) of row r; at and n are multiples of the block. */
static void act_widen(const kern_act *a, size_t r, size_t at, size_t n, act_strip *out)
{
    for (size_t i = 0; i < n; i += 32) {
        const int8_t *q = kern_act_q(a, r, (at + i) / KERN_ACT_RUN) + (at + i) % KERN_ACT_RUN;
        for (size_t l = 0; l < 32; l++) {
            out->q[i + l] = (int16_t)q[l];
        }
    }
    size_t sums = a->block / MATMUL_RUN;
    for (size_t b = 0; b < n / a->block; b++) {
        memcpy(out->sums + b * sums, kern_act_sums(a, r, at / a->block + b), sums * sizeof *out->sums);
        out->d[b] = *kern_act_d(a, r, at / a->block + b);
    }
}

/* Rows i0 to i1 of the weights, no more than a strip has. */
static void strip_rows(const kern_matrix *w, const kern_act *a, const block_product *p, size_t i0, size_t i1,
                       float *y, size_t y_stride)
{
    matmul_codes codes[STRIP_ROWS];
    act_strip act;
    for (size_t r = 0; r < a->m; r++) {
        for (size_t i = i0; i < i1; i++) {
            y[r * y_stride + i] = 0.0f;
        }
    }
    for (size_t at = 0; at < w->k; at += MATMUL_STRIP_VALUES) {
        size_t n = w->k - at < MATMUL_STRIP_VALUES ? w->k - at : MATMUL_STRIP_VALUES;
        for (size_t i = i0; i < i1; i++) {
            strip_unpack(w, &p->format, i, at, n, &codes[i - i0]);
        }
        for (size_t r = 0; r < a->m; r++) {
            act_widen(a, r, at, n, &act);
            for (size_t i = i0; i < i1; i++) {
                float *acc = &y[r * y_stride + i];
                *acc = p->dot(&p->format, &codes[i - i0], &act, n, *acc);
            }
        }
    }
}

static void all_strips(const kern_matrix *w, const kern_act *a, const block_product *p, size_t n0, size_t n1,
                       float *y, size_t y_stride)
{
    for (size_t i = n0; i < n1; i += STRIP_ROWS) {
        strip_rows(w, a, p, i, n1 - i < STRIP_ROWS ? n1 : i + STRIP_ROWS, y, y_stride);
    }
}

void matmul_ref_q32(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    block_product p = {matmul_format_q32(w->type), dot_q32};
    all_strips(w, a, &p, n0, n1, y, y_stride);
}

void matmul_ref_q256(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y, size_t y_stride)
{
    block_product p = {matmul_format_q256(w->type), dot_q256};
    all_strips(w, a, &p, n0, n1, y, y_stride);
}
