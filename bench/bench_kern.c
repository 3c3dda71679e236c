/*
 * bench_kern: `hearth bench --kernels` for those who work on kernels, built without the rest of the program.
 *
 *     bench_kern [-t THREADS] [SET [TYPE [ROWS]]]      SET: ref, avx2 …; default the best, all types, several ROWS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu_limit.h"
#include "base/mem_limit.h"
#include "cmd/int8_speed.h"
#include "cmd/kernel_speed.h"
#include "cmd/read_speed.h"
#include "gguf/quant.h"

static void print_speed(void *ctx, const kernel_speed *s)
{
    (void)ctx;
    printf("%-7s %4zu rows %8.2f ms %8.1f GB/s %8.3f Tops%s\n", gguf_type_info_of((uint32_t)s->type).name,
           s->rows, s->ms, s->gbs, s->tops, s->packed ? "" : " (unpacked)");
    fflush(stdout);
}

static int usage(const char *why)
{
    fprintf(stderr, "bench_kern: %s\nbench_kern [-t THREADS] [SET [TYPE [ROWS]]]\n", why);
    return 2;
}

int main(int argc, char **argv)
{
    static const size_t several[] = {1, 2, 4, 8, 16, 32, 128, 512};
    kern_set set = KERN_SET_COUNT - 1;
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
    const char *only = at < argc ? argv[at++] : NULL;
    rows = at < argc ? strtol(argv[at++], NULL, 10) : 0;
    if (threads < 0 || rows < 0 || rows > KERNEL_SPEED_MAX_ROWS) {
        return usage("a number is out of range");
    }
    size_t one = (size_t)rows;
    cpu_limit limit;
    mem_limit memory;
    cpu_limit_read("/", &limit);
    mem_limit_read("/", &memory);
    kernel_speed_plan plan = {.kern = kern_select(set),
                              .max_bytes = mem_limit_bytes(&memory) / 8,
                              .rows = rows ? &one : several,
                              .n_rows = rows ? 1 : sizeof several / sizeof several[0],
                              .each = print_speed};
    if (pool_new(cpu_limit_threads(&limit, (size_t)threads), true, &plan.p, &e) != ST_OK) {
        return usage(e.msg);
    }
    printf("set %s, %zu threads\nread   %8.1f GB/s\nint8   %8.3f Tops\n", plan.kern->name,
           pool_threads(plan.p), read_speed_measure(plan.p, plan.max_bytes),
           int8_speed_pass(plan.p, plan.kern));
    int rc = 0;
    for (size_t i = 0; kernel_speed_type(i) != GGUF_TYPE_COUNT && rc == 0; i++) {
        gguf_type type = kernel_speed_type(i);
        if (!only || strcmp(only, gguf_type_info_of((uint32_t)type).name) == 0) {
            rc = kernel_speed_measure(&plan, type, &e) != ST_OK;
        }
    }
    pool_free(plan.p);
    return rc;
}
