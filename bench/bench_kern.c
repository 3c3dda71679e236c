/*
 * bench_kern: how fast the matrix products run beside what memory gives. For each weight type: one activation
 * row (decode: GB/s of weights read) and 32 rows (prefill: 10^9 multiply-adds a second), on matrices larger
 * than the caches, with all threads this process may use. The first line is plain reading of the same kind of
 * memory.
 *
 *     bench_kern [SET]      SET: ref, avx2 …; default the best
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

#define ROWS    32768u /* of the matrix */
#define COLS    2048u
#define BATCH   32u
#define CHUNK   256u
#define REPEATS 5

typedef struct job {
    const kern_table *kern;
    const kern_matrix *w;
    const kern_act *act;
    float *y;
} job;

static void matmul_task(void *arg, size_t task, size_t thread)
{
    const job *j = arg;
    j->kern->matmul[j->w->type](j->w, j->act, task * CHUNK, (task + 1) * CHUNK, j->y, ROWS);
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

/* Random codes under scales that keep every value finite. */
static void fill_blocks(gguf_type type, uint8_t *data, size_t n_bytes)
{
    uint32_t key[2] = {1, 2};
    float row[COLS];
    size_t row_bytes = quant_row_bytes(type, COLS);
    for (size_t i = 0; i < COLS; i += 4) {
        uint32_t out[4], ctr[4] = {(uint32_t)i, 0, 0, 0};
        philox4x32_10(ctr, key, out);
        for (size_t l = 0; l < 4; l++) {
            row[i + l] = ((float)(out[l] >> 8) * 0x1p-24f - 0.5f) * 0.1f;
        }
    }
    quant_quantise(type, row, data, COLS);
    for (size_t o = row_bytes; o < n_bytes; o += row_bytes) {
        memcpy(data + o, data, row_bytes);
    }
}

static int bench_type(const kern_table *kern, pool *p, gguf_type type, float *x, float *y)
{
    size_t row_bytes = quant_row_bytes(type, COLS);
    size_t n_bytes = row_bytes * ROWS;
    uint8_t *data = mem_alloc_aligned(64, n_bytes);
    size_t act_bytes = kern_act_bytes(kern_act_kind_of(type), BATCH, COLS);
    void *act_mem = mem_alloc_aligned(64, act_bytes);
    if (!data || !act_mem) {
        return 1;
    }
    fill_blocks(type, data, n_bytes);
    kern_matrix w = {type, ROWS, COLS, row_bytes, data};
    double seconds[2];
    size_t batches[2] = {1, BATCH};
    for (int i = 0; i < 2; i++) {
        kern_act act;
        uint8_t bad[BATCH] = {0};
        kern_act_init(&act, kern_act_kind_of(type), batches[i], COLS, act_mem);
        kern->act_prepare(&act, x, 0, batches[i], bad);
        job j = {kern, &w, &act, y};
        seconds[i] = best_seconds(p, matmul_task, &j, ROWS / CHUNK);
    }
    printf("%-6s %8.1f GB/s at 1 row  %9.1f Gmac/s at %u rows\n", gguf_type_info_of(type).name,
           (double)n_bytes / seconds[0] / 1e9, (double)ROWS * COLS * BATCH / seconds[1] / 1e9, BATCH);
    mem_free(act_mem);
    mem_free(data);
    return 0;
}

int main(int argc, char **argv)
{
    static const gguf_type types[] = {GGUF_TYPE_F32,  GGUF_TYPE_F16,  GGUF_TYPE_BF16, GGUF_TYPE_Q8_0,
                                      GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K};
    kern_set set = KERN_SET_COUNT - 1;
    err e = {0};
    if (argc > 1 && kern_set_parse(argv[1], &set, &e) != ST_OK) {
        fprintf(stderr, "bench_kern: %s\n", e.msg);
        return 2;
    }
    const kern_table *kern = kern_select(set);
    cpu_limit limit;
    cpu_limit_read("/", &limit);
    pool *p = NULL;
    if (pool_new(cpu_limit_threads(&limit, 0), true, &p, &e) != ST_OK) {
        fprintf(stderr, "bench_kern: %s\n", e.msg);
        return 1;
    }
    float *x = mem_alloc_array(BATCH * COLS, sizeof *x);
    float *y = mem_alloc_array((size_t)BATCH * ROWS, sizeof *y);
    if (!x || !y) {
        return 1;
    }
    for (size_t i = 0; i < BATCH * COLS; i++) {
        x[i] = (float)(i % 61) * 0.03f - 0.9f;
    }
    double gbs = read_speed_measure(p, limit.memory_total_bytes / 8);
    printf("set %s, %zu threads\nread   %8.1f GB/s\n", kern->name, pool_threads(p), gbs);
    int rc = 0;
    for (size_t i = 0; i < sizeof types / sizeof types[0] && rc == 0; i++) {
        rc = bench_type(kern, p, types[i], x, y);
    }
    mem_free(y);
    mem_free(x);
    pool_free(p);
    return rc;
}
