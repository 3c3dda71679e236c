/* bench_kernels: the matrix products of one set by themselves, beside plain reading and the int8 rate. */
#include <stdio.h>
#include <string.h>

#include "base/cpu_limit.h"
#include "base/mem_limit.h"
#include "cmd/answer.h"
#include "cmd/bench.h"
#include "cmd/cmd.h"
#include "cmd/int8_speed.h"
#include "cmd/kernel_speed.h"
#include "cmd/model_options.h"
#include "cmd/read_speed.h"
#include "gguf/quant.h"

typedef struct kernels_report {
    double read_gbs;
    double int8_tops;
    json_w *json; /* NULL: lines for people */
} kernels_report;

/* Of the longer of the two times: reading the weights, multiplying on the int8 unit. */
static double limit_share(const kernels_report *r, const kernel_speed *s)
{
    double read = r->read_gbs > 0 ? s->gbs / r->read_gbs : 0;
    double matrix = r->int8_tops > 0 ? s->tops / r->int8_tops : 0;
    return matrix > read ? matrix : read;
}

static void print_speed(void *ctx, const kernel_speed *s)
{
    const kernels_report *r = ctx;
    const char *name = gguf_type_info_of((uint32_t)s->type).name;
    if (!r->json) {
        printf("%-7s %5zu %10.3f %9.1f %9.3f %9.3f%s\n", name, s->rows, s->ms, s->gbs, s->tops,
               limit_share(r, s), s->packed ? "" : "   unpacked");
        answer_flush();
        return;
    }
    json_w_obj_open(r->json);
    json_w_key(r->json, "type");
    json_w_cstr(r->json, name);
    json_w_key(r->json, "rows");
    json_w_u64(r->json, s->rows);
    json_w_key(r->json, "packed");
    json_w_bool(r->json, s->packed);
    json_w_key(r->json, "ms");
    json_w_fixed(r->json, s->ms, 4);
    json_w_key(r->json, "gbs");
    json_w_fixed(r->json, s->gbs, 2);
    json_w_key(r->json, "tops");
    json_w_fixed(r->json, s->tops, 4);
    json_w_key(r->json, "limit_share");
    json_w_fixed(r->json, limit_share(r, s), 4);
    json_w_obj_close(r->json);
}

static void write_head(json_w *w, const kernels_report *r, const kernel_speed_plan *plan)
{
    json_w_key(w, "kernels");
    json_w_cstr(w, plan->kern->name);
    json_w_key(w, "threads");
    json_w_u64(w, pool_threads(plan->p));
    json_w_key(w, "limits");
    json_w_obj_open(w);
    json_w_key(w, "read_gbs");
    json_w_fixed(w, r->read_gbs, 2);
    json_w_key(w, "int8_tops");
    if (r->int8_tops > 0) {
        json_w_fixed(w, r->int8_tops, 3);
    } else {
        json_w_null(w);
    }
    json_w_obj_close(w);
    json_w_key(w, "results");
}

static bool wanted(const char *only, gguf_type type)
{
    const char *name = gguf_type_info_of((uint32_t)type).name;
    return !only || (name && strcmp(only, name) == 0);
}

static int check_type(const char *only)
{
    size_t i = 0;
    while (kernel_speed_type(i) != GGUF_TYPE_COUNT && !wanted(only, kernel_speed_type(i))) {
        i++;
    }
    if (kernel_speed_type(i) != GGUF_TYPE_COUNT) {
        return EXIT_OK;
    }
    fprintf(stderr, "hearth: --type %s: not measured:", only);
    for (i = 0; kernel_speed_type(i) != GGUF_TYPE_COUNT; i++) {
        fprintf(stderr, " %s", gguf_type_info_of((uint32_t)kernel_speed_type(i)).name);
    }
    fprintf(stderr, " are\n");
    return EXIT_USAGE;
}

static status measure_all(kernel_speed_plan *plan, kernels_report *r, const char *only, err *e)
{
    char label[] = "measuring";
    status st = ST_OK;
    r->read_gbs = read_speed_measure(plan->p, plan->max_bytes);
    r->int8_tops = int8_speed_pass(plan->p, plan->kern);
    if (r->json) {
        write_head(r->json, r, plan);
        json_w_arr_open(r->json);
    } else {
        printf("kernels %s, %zu threads, read %.1f GB/s, int8 %.2f Tops\n\n", plan->kern->name,
               pool_threads(plan->p), r->read_gbs, r->int8_tops);
        printf("type     rows         ms      GB/s      Tops   of limit\n");
    }
    for (size_t i = 0; st == ST_OK && kernel_speed_type(i) != GGUF_TYPE_COUNT; i++) {
        if (wanted(only, kernel_speed_type(i))) {
            st = kernel_speed_measure(plan, kernel_speed_type(i), e);
        }
        if (r->json) {
            progress_bar(label, (double)(i + 1) / 17);
        }
    }
    progress_bar(label, 1);
    if (r->json) {
        json_w_arr_close(r->json);
    }
    return st;
}

int bench_kernels(const bench_args *a)
{
    err e = {.offset = ERR_NO_OFFSET};
    cpu_limit limit;
    mem_limit memory;
    buf out = {0};
    json_w w = {0};
    kernels_report r = {.json = a->as_json ? &w : NULL};
    int rc = check_type(a->type);
    if (rc != EXIT_OK) {
        return rc;
    }
    cpu_limit_read("/", &limit);
    mem_limit_read(NULL, &memory);
    kernel_speed_plan plan = {.kern = kern_select(a->open.cpu),
                              .max_bytes = mem_limit_bytes(&memory) / 8,
                              .rows = a->batch.at,
                              .n_rows = a->batch.n,
                              .each = print_speed,
                              .ctx = &r};
    status st = pool_new(cpu_limit_threads(&limit, a->threads.at[0]), limit.quota_cpus <= 0, &plan.p, &e);
    if (st != ST_OK) {
        print_err("bench", &e);
        return EXIT_FAILED;
    }
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    st = measure_all(&plan, &r, a->type, &e);
    json_w_obj_close(&w);
    pool_free(plan.p);
    if (st != ST_OK) {
        print_err("bench", &e);
        buf_release(&out);
        return EXIT_FAILED;
    }
    if (!a->as_json) {
        buf_release(&out);
        return EXIT_OK;
    }
    return answer_json(&w, &out);
}
