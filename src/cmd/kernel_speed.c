#include "cmd/kernel_speed.h"

#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/philox.h"
#include "gguf/quant.h"
#include "kern/pack.h"

#define INPUTS       2048u
#define WEIGHT_BYTES ((uint64_t)512 << 20)
#define CHUNK        512u /* outputs of a task */
#define REPEATS      5
#define ENOUGH_MS    1500.0 /* a slow path is not run five times */
#define FEW_ROWS     64u

typedef struct product {
    const kern_table *kern;
    kern_matrix w;
    size_t n_bytes; /* of w, as it is read */
    kern_act act;
    float *y;
    size_t n; /* outputs computed */
} product;

static void matmul_task(void *arg, size_t task, size_t thread)
{
    const product *j = arg;
    size_t n0 = task * CHUNK, n1 = n0 + CHUNK < j->n ? n0 + CHUNK : j->n;
    (void)thread;
    j->kern->matmul[j->w.type](&j->w, &j->act, n0, n1, j->y, j->n + KERN_PANEL);
}

static double best_ms(pool *p, product *j)
{
    double best = 0, all = 0;
    for (int r = 0; r < REPEATS && all < ENOUGH_MS; r++) {
        uint64_t t0 = clock_mono_ns(clock_system());
        pool_run(p, matmul_task, j, (j->n + CHUNK - 1) / CHUNK);
        double ms = clock_ms_between(t0, clock_mono_ns(clock_system()));
        best = r == 0 || ms < best ? ms : best;
        all += ms;
    }
    return best;
}

/* One panel of random rows in the type's blocks. */
static void fill_panel(gguf_type type, uint8_t *data)
{
    uint32_t key[2] = {1, 2};
    float row[INPUTS];
    size_t row_bytes = quant_row_bytes(type, INPUTS);
    for (uint32_t r = 0; r < KERN_PANEL; r++) {
        for (uint32_t i = 0; i < INPUTS; i += 4) {
            uint32_t out[4], ctr[4] = {i, r, 0, 0};
            philox4x32_10(ctr, key, out);
            for (size_t l = 0; l < 4; l++) {
                row[i + l] = ((float)(out[l] >> 8) * 0x1p-24f - 0.5f) * 0.1f;
            }
        }
        quant_quantise(type, row, data + r * row_bytes, INPUTS);
    }
}

/* A matrix of w->n outputs that repeats one panel, as the table wants it: speed does not depend on the codes. */
static status make_matrix(product *j, uint64_t max_bytes, void **mem, err *e)
{
    gguf_type type = j->w.type;
    size_t row_bytes = quant_row_bytes(type, INPUTS);
    bool packed = j->kern->wants_packed[type];
    size_t panel = packed ? kern_packed_panel_bytes(type, INPUTS) : KERN_PANEL * row_bytes;
    uint64_t bytes = max_bytes < WEIGHT_BYTES ? max_bytes : WEIGHT_BYTES;
    size_t n_panels = bytes / panel > 8 ? (size_t)(bytes / panel) / 8 * 8 : 8;
    j->n_bytes = n_panels * panel;
    uint8_t *rows = mem_alloc_aligned(64, KERN_PANEL * row_bytes);
    uint8_t *all = mem_reserve(j->n_bytes);
    *mem = all;
    if (!rows || !all) {
        mem_free(rows);
        return err_set(e, ST_NOMEM, NULL, "out of memory for a matrix of %zu bytes", j->n_bytes);
    }
    (void)madvise(all, j->n_bytes, MADV_HUGEPAGE); /* as packed weights are kept */
    fill_panel(type, rows);
    kern_matrix one = {type, KERN_PANEL, INPUTS, row_bytes, rows, NULL};
    if (packed) {
        kern_pack(&one, 0, 1, all);
    } else {
        memcpy(all, rows, panel);
    }
    for (size_t i = 1; i < n_panels; i++) {
        memcpy(all + i * panel, all, panel);
    }
    j->w = (kern_matrix){type,      n_panels * KERN_PANEL, INPUTS,
                         row_bytes, packed ? NULL : all,   packed ? all : NULL};
    mem_free(rows);
    return ST_OK;
}

static status measure_rows(const kernel_speed_plan *plan, product *j, size_t m, err *e)
{
    kern_act_kind kind = kern_act_kind_of(j->w.type);
    float *x = mem_alloc_array(m * INPUTS, sizeof *x);
    uint8_t *bad = mem_calloc(m, 1);
    void *act_mem = mem_alloc_aligned(64, kern_act_bytes(kind, m, INPUTS));
    j->n = m > FEW_ROWS ? j->w.n / 8 : j->w.n;
    j->y = mem_alloc_array(m * (j->n + KERN_PANEL), sizeof *j->y);
    bool all = x && bad && act_mem && j->y;
    if (all) {
        for (size_t i = 0; i < m * INPUTS; i++) {
            x[i] = (float)(i % 61) * 0.03f - 0.9f;
        }
        kern_act_init(&j->act, kind, m, INPUTS, act_mem);
        kern_act_rows(plan->kern, &j->act, x, 0, m, bad);
        double ms = best_ms(plan->p, j);
        double share = (double)j->n / (double)j->w.n;
        plan->each(plan->ctx, &(kernel_speed){.type = j->w.type,
                                              .packed = j->w.packed != NULL,
                                              .rows = m,
                                              .ms = ms,
                                              .gbs = (double)j->n_bytes * share / ms / 1e6,
                                              .tops = 2.0 * (double)j->n * INPUTS * (double)m / ms / 1e9});
    }
    mem_free(j->y);
    mem_free(act_mem);
    mem_free(bad);
    mem_free(x);
    return all ? ST_OK : err_set(e, ST_NOMEM, NULL, "out of memory for %zu rows", m);
}

gguf_type kernel_speed_type(size_t i)
{
    static const gguf_type types[] = {GGUF_TYPE_F32,  GGUF_TYPE_F16,    GGUF_TYPE_BF16,   GGUF_TYPE_Q8_0,
                                      GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_1,   GGUF_TYPE_Q5_0,   GGUF_TYPE_Q5_1,
                                      GGUF_TYPE_Q2_K, GGUF_TYPE_Q3_K,   GGUF_TYPE_Q4_K,   GGUF_TYPE_Q5_K,
                                      GGUF_TYPE_Q6_K, GGUF_TYPE_IQ4_NL, GGUF_TYPE_IQ4_XS, GGUF_TYPE_MXFP4};
    return i < sizeof types / sizeof types[0] ? types[i] : GGUF_TYPE_COUNT;
}

status kernel_speed_measure(const kernel_speed_plan *plan, gguf_type type, err *e)
{
    product j = {.kern = plan->kern, .w = {.type = type}};
    void *mem = NULL;
    status st = make_matrix(&j, plan->max_bytes, &mem, e);
    for (size_t i = 0; st == ST_OK && i < plan->n_rows; i++) {
        st = measure_rows(plan, &j, plan->rows[i], e);
    }
    mem_unreserve(mem, j.n_bytes);
    return st;
}
