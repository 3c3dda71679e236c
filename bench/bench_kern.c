/*
 * bench_kern: how fast the matrix products run beside what memory gives. For each weight type and number of
 * activation rows: GB/s of weights read (what counts for few rows) and 10^12 operations a second (for many), on a
 * matrix larger than the caches. The first line is plain reading of the same kind of memory.
 *
 *     bench_kern [-t THREADS] [SET [TYPE [ROWS]]]      SET: ref, avx2 …; default the best, all types, several ROWS
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu_limit.h"
#include "base/mem.h"
#include "base/philox.h"
#include "base/pool.h"
#include "cmd/read_speed.h"
#include "gguf/quant.h"
#include "kern/kern.h"
#include "kern/pack.h"

#define OUTPUTS   32768u
#define INPUTS    2048u
#define MAX_BATCH 512u
#define CHUNK     512u /* outputs of a task */
#define REPEATS   5

typedef struct job {
    const kern_table *kern;
    const kern_matrix *w;
    const kern_act *act;
    float *y;
    size_t n; /* outputs */
} job;

static void matmul_task(void *arg, size_t task, size_t thread)
{
    const job *j = arg;
    (void)thread;
    j->kern->matmul[j->w->type](j->w, j->act, task * CHUNK, (task + 1) * CHUNK, j->y, j->n + 16);
}

/* Best of REPEATS: the machine's other users only ever add time. */
static double best_seconds(pool *p, pool_fn fn, void *arg, size_t n_tasks)
{
    double best = 1e30;
    for (int r = 0; r < REPEATS; r++) {
        uint64_t t0 = clock_mono_ns(clock_system());
        pool_run(p, fn, arg, n_tasks);
        double s = clock_ms_between(t0, clock_mono_ns(clock_system())) / 1e3;
        best = s < best ? s : best;
    }
    return best;
}

/* One quantised random row, repeated: speed does not depend on the codes. */
static void fill_blocks(gguf_type type, uint8_t *data, size_t n_bytes)
{
    uint32_t key[2] = {1, 2};
    float row[INPUTS];
    size_t row_bytes = quant_row_bytes(type, INPUTS);
    for (size_t i = 0; i < INPUTS; i += 4) {
        uint32_t out[4], ctr[4] = {(uint32_t)i, 0, 0, 0};
        philox4x32_10(ctr, key, out);
        for (size_t l = 0; l < 4; l++) {
            row[i + l] = ((float)(out[l] >> 8) * 0x1p-24f - 0.5f) * 0.1f;
        }
    }
    quant_quantise(type, row, data, INPUTS);
    for (size_t o = row_bytes; o < n_bytes; o += row_bytes) {
        memcpy(data + o, data, row_bytes);
    }
}

typedef struct bench {
    const kern_table *kern;
    pool *p;
    const float *x; /* [MAX_BATCH][INPUTS] */
    float *y;       /* [MAX_BATCH][OUTPUTS + 16] */
    void *act_mem;
    size_t rows; /* 0: several */
} bench;

static void bench_rows(const bench *b, const kern_matrix *w, size_t n_bytes, size_t m)
{
    kern_act act;
    uint8_t bad[MAX_BATCH] = {0};
    size_t n = m > 64 ? w->n / 8 : w->n; /* many rows take long */
    kern_act_init(&act, kern_act_kind_of(w->type), m, INPUTS, b->act_mem);
    b->kern->act_prepare(&act, b->x, 0, m, bad);
    job j = {b->kern, w, &act, b->y, n};
    double s = best_seconds(b->p, matmul_task, &j, n / CHUNK);
    double share = (double)n / (double)w->n;
    printf("%-7s %4zu rows %8.2f ms %8.1f GB/s %8.3f Tops\n", gguf_type_info_of((uint32_t)w->type).name, m,
           s * 1e3, (double)n_bytes * share / s / 1e9, 2 * (double)n * INPUTS * (double)m / s / 1e12);
    fflush(stdout);
}

static int bench_type(const bench *b, gguf_type type)
{
    static const size_t batches[] = {1, 2, 4, 8, 16, 32, 128, 512};
    size_t row_bytes = quant_row_bytes(type, INPUTS);
    size_t n_bytes = row_bytes * OUTPUTS;
    size_t packed_bytes = kern_packed_bytes(type, OUTPUTS, INPUTS);
    uint8_t *data = mem_alloc_aligned(64, n_bytes);
    uint8_t *packed = packed_bytes ? mem_alloc_aligned(64, packed_bytes) : NULL;
    if (!data || (packed_bytes && !packed)) {
        return 1;
    }
    fill_blocks(type, data, n_bytes);
    kern_matrix w = {type, OUTPUTS, INPUTS, row_bytes, data, packed};
    if (packed) {
        kern_pack(&w, 0, OUTPUTS / KERN_PANEL, packed);
    }
    bool slow = !b->kern->wants_packed[type];
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        if (b->rows ? batches[i] == 1 : !slow || batches[i] == 1) {
            bench_rows(b, &w, b->kern->wants_packed[type] ? packed_bytes : n_bytes,
                       b->rows ? b->rows : batches[i]);
        }
    }
    mem_free(packed);
    mem_free(data);
    return 0;
}

static int usage(const char *why)
{
    fprintf(stderr, "bench_kern: %s\nbench_kern [-t THREADS] [SET [TYPE [ROWS]]]\n", why);
    return 2;
}

static const gguf_type types[] = {GGUF_TYPE_F32,  GGUF_TYPE_F16,    GGUF_TYPE_BF16,   GGUF_TYPE_Q8_0,
                                  GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_1,   GGUF_TYPE_Q5_0,   GGUF_TYPE_Q5_1,
                                  GGUF_TYPE_Q2_K, GGUF_TYPE_Q3_K,   GGUF_TYPE_Q4_K,   GGUF_TYPE_Q5_K,
                                  GGUF_TYPE_Q6_K, GGUF_TYPE_IQ4_NL, GGUF_TYPE_IQ4_XS, GGUF_TYPE_MXFP4};

int main(int argc, char **argv)
{
    kern_set set = KERN_SET_COUNT - 1;
    const char *only = NULL;
    long threads = 0, rows = 0;
    err e = {0};
    int at = 1;
    if (at + 1 < argc && strcmp(argv[at], "-t") == 0) {
        threads = strtol(argv[at + 1], NULL, 10);
        at += 2;
    }
    if (at < argc && kern_set_parse(argv[at++], &set, &e) != ST_OK) {
        return usage(e.msg);
    }
    if (at < argc) {
        only = argv[at++];
    }
    if (at < argc) {
        rows = strtol(argv[at++], NULL, 10);
    }
    if (threads < 0 || rows < 0 || rows > (long)MAX_BATCH) {
        return usage("a number is out of range");
    }
    cpu_limit limit;
    cpu_limit_read("/", &limit);
    bench b = {.kern = kern_select(set), .rows = (size_t)rows};
    if (pool_new(cpu_limit_threads(&limit, (size_t)threads), true, &b.p, &e) != ST_OK) {
        return usage(e.msg);
    }
    float *x = mem_alloc_array((size_t)MAX_BATCH * INPUTS, sizeof *x);
    b.y = mem_alloc_array((size_t)MAX_BATCH * (OUTPUTS + 16), sizeof *b.y);
    b.act_mem = mem_alloc_aligned(64, kern_act_bytes(KERN_ACT_F32, MAX_BATCH, INPUTS));
    if (!x || !b.y || !b.act_mem) {
        return 1;
    }
    for (size_t i = 0; i < (size_t)MAX_BATCH * INPUTS; i++) {
        x[i] = (float)(i % 61) * 0.03f - 0.9f;
    }
    b.x = x;
    double gbs = read_speed_measure(b.p, limit.memory_total_bytes / 8);
    printf("set %s, %zu threads\nread   %8.1f GB/s\n", b.kern->name, pool_threads(b.p), gbs);
    int rc = 0;
    for (size_t i = 0; i < sizeof types / sizeof types[0] && rc == 0; i++) {
        if (!only || strcmp(only, gguf_type_info_of((uint32_t)types[i]).name) == 0) {
            rc = bench_type(&b, types[i]);
        }
    }
    mem_free(b.act_mem);
    mem_free(b.y);
    mem_free(x);
    pool_free(b.p);
    return rc;
}
