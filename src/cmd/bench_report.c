#include "cmd/bench_report.h"

#include <stdio.h>
#include <string.h>

#include "cmd/answer.h"
#include "cmd/terminal.h"

static const char *test_name(bench_test t)
{
    return t == BENCH_PREFILL ? "prefill" : "decode";
}

void bench_report_print_head(const bench_report *r)
{
    printf("model    ");
    terminal_put(stdout, r->name, strlen(r->name), false);
    printf("%s%s, %.2f G weights, %.3f GB of them read per token\n", r->name[0] ? ", " : "", r->quant,
           (double)r->params / 1e9, (double)r->bytes_per_token / 1e9);
    printf("kernels  %s, keys and values %s, medians of %zu\n", r->kernels, r->kv_type, r->repeats);
    printf("start    ready after %.0f ms (the first time %.0f), first token after %.0f ms\n\n",
           r->start.load_ms, r->start.first_ms, r->start.first_token_ms);
    printf("test         n  batch  depth  threads      tok/s  spread   of its limit\n");
    answer_flush();
}

void bench_report_print_limits(const bench_limits *l)
{
    printf("limits of %zu thread%s: read %.1f GB/s", l->threads, l->threads == 1 ? "" : "s", l->read_gbs);
    if (l->int8_tops > 0) {
        printf(", int8 %.2f Tops", l->int8_tops);
    }
    printf("\n");
    answer_flush();
}

void bench_report_print_result(const bench_result *r)
{
    printf("%-7s %6zu %6zu %6zu %8zu %10.2f %6.1f %%", test_name(r->test), r->n, r->batch, r->depth,
           r->threads, r->tok_s, r->spread * 100);
    if (r->limit_tok_s > 0) {
        printf("   %.3f of %.1f (%s)", r->limit_share, r->limit_tok_s, r->by_matrix ? "int8" : "read");
    }
    printf("\n");
    answer_flush();
}

static void write_limits(json_w *w, const bench_report *r)
{
    const bench_limits none = {0};
    const bench_limits *best = &none;
    for (size_t i = 0; i < r->n_limits; i++) {
        best = r->limits[i].threads > best->threads ? &r->limits[i] : best;
    }
    json_w_key(w, "limits");
    json_w_obj_open(w);
    for (size_t i = 0; i <= r->n_limits; i++) { /* first those of the most threads, then all by themselves */
        const bench_limits *l = i == 0 ? best : &r->limits[i - 1];
        if (i == 1) {
            json_w_key(w, "by_threads");
            json_w_arr_open(w);
        }
        if (i > 0) {
            json_w_obj_open(w);
            json_w_key(w, "threads");
            json_w_u64(w, l->threads);
        }
        json_w_key(w, "read_gbs");
        json_w_fixed(w, l->read_gbs, 2);
        json_w_key(w, "int8_tops");
        if (l->int8_tops > 0) {
            json_w_fixed(w, l->int8_tops, 3);
        } else {
            json_w_null(w);
        }
        if (i > 0) {
            json_w_obj_close(w);
        }
    }
    json_w_arr_close(w);
    json_w_obj_close(w);
}

static void write_share(json_w *w, const bench_result *r)
{
    json_w_key(w, "limit_share");
    if (r->limit_tok_s <= 0) {
        json_w_null(w);
        return;
    }
    json_w_fixed(w, r->limit_share, 4);
    json_w_key(w, "limit");
    json_w_cstr(w, r->by_matrix ? "int8" : "read");
    json_w_key(w, "limit_tok_s");
    json_w_fixed(w, r->limit_tok_s, 2);
}

static void write_result(json_w *w, const bench_result *r)
{
    json_w_obj_open(w);
    json_w_key(w, "test");
    json_w_cstr(w, test_name(r->test));
    const struct {
        const char *key;
        size_t value;
    } sizes[] = {{"n", r->n}, {"batch", r->batch}, {"depth", r->depth}, {"threads", r->threads}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        json_w_key(w, sizes[i].key);
        json_w_u64(w, sizes[i].value);
    }
    json_w_key(w, "tok_s");
    json_w_fixed(w, r->tok_s, 3);
    write_share(w, r);
    json_w_key(w, "spread");
    json_w_fixed(w, r->spread, 4);
    json_w_key(w, r->test == BENCH_PREFILL ? "first_token_ms" : "step_ms");
    json_w_fixed(w, r->ms, 3);
    json_w_obj_close(w);
}

static void write_model(json_w *w, const bench_report *r)
{
    json_w_key(w, "model");
    json_w_obj_open(w);
    json_w_key(w, "name");
    json_w_cstr(w, r->name);
    json_w_key(w, "quant");
    json_w_cstr(w, r->quant);
    json_w_key(w, "params");
    json_w_u64(w, r->params);
    json_w_key(w, "bytes_per_token");
    json_w_u64(w, r->bytes_per_token);
    json_w_obj_close(w);
    json_w_key(w, "kernels");
    json_w_cstr(w, r->kernels);
    json_w_key(w, "kv_type");
    json_w_cstr(w, r->kv_type);
    json_w_key(w, "repeats");
    json_w_u64(w, r->repeats);
    json_w_key(w, "load_ms");
    json_w_fixed(w, r->start.load_ms, 3);
    json_w_key(w, "first_load_ms");
    json_w_fixed(w, r->start.first_ms, 3);
    json_w_key(w, "first_token_ms");
    json_w_fixed(w, r->start.first_token_ms, 3);
}

int bench_report_print_json(const bench_report *r)
{
    buf out = {0};
    json_w w;
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    write_limits(&w, r);
    json_w_key(&w, "results");
    json_w_arr_open(&w);
    for (size_t i = 0; i < r->n_results; i++) {
        write_result(&w, &r->results[i]);
    }
    json_w_arr_close(&w);
    write_model(&w, r);
    json_w_obj_close(&w);
    return answer_json(&w, &out);
}
