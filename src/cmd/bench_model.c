/*
 * bench_model: starting, prefill and decode through the engine, with sampling, over lists of sizes. Before each
 * run the two limits are measured again: on a machine with neighbours they change from minute to minute, and a
 * share is of what the machine gave in the same seconds.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cmd/bench.h"
#include "cmd/bench_lanes.h"
#include "cmd/bench_work.h"
#include "cmd/cmd.h"
#include "cmd/int8_speed.h"
#include "cmd/model_options.h"

#define WARM_UP_TOKENS 64

/* Rows of figures: what was measured in each run of one test, or in all runs with one number of threads. */
typedef enum series { RATE, SHARE, LIMIT, MS, TEST_READ, TEST_INT8, READ, INT8, N_SERIES } series;

typedef struct bench {
    const bench_args *args; /* borrowed */
    bench_report report;
    instance *in; /* owned */
    bench_work work;
    double *at[N_SERIES]; /* owned, [cap] each */
    size_t len[N_SERIES];
    size_t runs, runs_done; /* for the progress bar */
    char doing[64];
    err *e; /* borrowed */
} bench;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the series; 0 of none. */
static double median(bench *b, series s)
{
    double *at = b->at[s];
    size_t n = b->len[s];
    if (n == 0) {
        return 0;
    }
    qsort(at, n, sizeof *at, compare);
    return n % 2 ? at[n / 2] : (at[n / 2 - 1] + at[n / 2]) / 2;
}

static void note(bench *b, series s, double x)
{
    b->at[s][b->len[s]++] = x;
}

static void forget(bench *b, series from, series to)
{
    for (int s = (int)from; s <= (int)to; s++) {
        b->len[s] = 0;
    }
}

/* Starting */

static size_t context_needed(const bench_args *a)
{
    size_t prompt = size_list_max(&a->depth) + size_list_max(&a->prefill) + 1;
    size_t reply = size_list_max(&a->depth) + size_list_max(&a->decode) + 2;
    return prompt > reply ? prompt : reply;
}

static status start_once(bench *b, size_t threads, double *load_ms, double *first_token_ms)
{
    const clock_src *c = clock_system();
    instance_options opt = b->args->open;
    bench_lanes *lanes = NULL;
    double ms;
    opt.threads = threads;
    opt.context = (int32_t)context_needed(b->args);
    opt.max_sequences = size_list_max(&b->args->batch);
    uint64_t t0 = clock_mono_ns(c);
    status st = instance_open(b->args->path, &opt, &b->in, b->e);
    *load_ms = clock_ms_between(t0, clock_mono_ns(c));
    if (st == ST_OK) {
        st = bench_lanes_open(b->in, 1, 1, &lanes, b->e);
    }
    if (st == ST_OK) {
        st = bench_lanes_prefill(lanes, 0, 1, &ms, b->e);
    }
    *first_token_ms = clock_ms_between(t0, clock_mono_ns(c));
    bench_lanes_close(lanes);
    return st;
}

/* Opens the model, several times for the first number of threads: starting is measured then. */
static status start(bench *b, size_t threads, bool measure)
{
    status st = ST_OK;
    size_t n = measure ? b->args->repeats : 1;
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        double load_ms = 0, first_token_ms = 0;
        instance_close(b->in);
        b->in = NULL;
        st = start_once(b, threads, &load_ms, &first_token_ms);
        note(b, RATE, load_ms); /* the series are free between tests */
        note(b, SHARE, first_token_ms);
        b->report.start.first_ms = measure && i == 0 ? load_ms : b->report.start.first_ms;
    }
    if (st == ST_OK && measure) {
        b->report.start.load_ms = median(b, RATE);
        b->report.start.first_token_ms = median(b, SHARE);
    }
    return st;
}

static void describe(bench *b)
{
    const instance_info *i = instance_describe(b->in);
    bench_report *r = &b->report;
    snprintf(r->name, sizeof r->name, "%s", i->name);
    snprintf(r->quant, sizeof r->quant, "%s", i->quant);
    snprintf(r->kernels, sizeof r->kernels, "%s", i->kernels);
    r->kv_type = kv_type_name(b->args->open.kv_type);
    r->params = i->params;
    r->bytes_per_token = b->work.layer_bytes + b->work.output_bytes;
    r->own_weights = b->work.own_weights;
    r->repeats = b->args->repeats;
}

/* Tests */

static status run_once(bench *b, bench_lanes *lanes, bench_result *r)
{
    pool *p = instance_pool(b->in);
    double gbs = read_speed_pass(p, b->work.pieces, b->work.n_pieces);
    double tops = int8_speed_pass(p, b->work.kern);
    double ms = 0;
    status st = r->test == BENCH_PREFILL ? bench_lanes_prefill(lanes, r->depth, r->n, &ms, b->e)
                                         : bench_lanes_decode(lanes, r->depth, r->n, &ms, b->e);
    double tok_s = ms > 0 ? (double)r->n * (double)r->batch / ms * 1e3 : 0;
    double limit = bench_work_limit(&b->work, r, gbs, tops, &r->by_matrix);
    note(b, READ, gbs);
    note(b, INT8, tops);
    note(b, TEST_READ, gbs);
    note(b, TEST_INT8, tops);
    note(b, RATE, tok_s);
    note(b, LIMIT, limit);
    note(b, SHARE, limit > 0 ? tok_s / limit : 0);
    note(b, MS, r->test == BENCH_PREFILL ? ms : ms / (double)r->n);
    progress_bar(b->doing, (double)++b->runs_done / (double)(b->runs + 1));
    return st;
}

static status run_test(bench *b, bench_lanes *lanes, bench_result *r)
{
    status st = ST_OK;
    snprintf(b->doing, sizeof b->doing, "%s %zu x %zu at %zu",
             r->test == BENCH_PREFILL ? "prefill" : "decode", r->n, r->batch, r->depth);
    forget(b, RATE, TEST_INT8);
    for (size_t i = 0; st == ST_OK && i < b->args->repeats; i++) {
        st = run_once(b, lanes, r);
    }
    if (st != ST_OK) {
        return st;
    }
    r->tok_s = median(b, RATE); /* sorted now */
    r->spread = r->tok_s > 0 ? (b->at[RATE][b->len[RATE] - 1] - b->at[RATE][0]) / r->tok_s : 0;
    r->limit_tok_s = median(b, LIMIT);
    r->limit_share = median(b, SHARE);
    r->ms = median(b, MS);
    bench_work_limit(&b->work, r, median(b, TEST_READ), median(b, TEST_INT8), &r->by_matrix);
    b->report.results[b->report.n_results++] = *r;
    if (!b->args->as_json) {
        progress_bar(b->doing, 1);
        bench_report_print_result(r);
    }
    return ST_OK;
}

/* All sizes of prefill, then of decode, with so many lanes at such a depth. */
static status run_sizes(bench *b, size_t n_lanes, size_t depth)
{
    bench_lanes *lanes = NULL;
    const bench_args *a = b->args;
    bench_result r = {.batch = n_lanes, .depth = depth, .threads = instance_describe(b->in)->threads};
    status st = bench_lanes_open(b->in, n_lanes, context_needed(a), &lanes, b->e);
    for (size_t i = 0; st == ST_OK && i < a->prefill.n; i++) {
        r.test = BENCH_PREFILL;
        r.n = a->prefill.at[i];
        st = run_test(b, lanes, &r);
    }
    for (size_t i = 0; st == ST_OK && i < a->decode.n; i++) {
        r.test = BENCH_DECODE;
        r.n = a->decode.at[i];
        st = run_test(b, lanes, &r);
    }
    bench_lanes_close(lanes);
    return st;
}

/* Touches the workspace of a whole batch, so that the first test does not pay for its pages. */
static status warm_up(bench *b)
{
    size_t longest = size_list_max(&b->args->prefill);
    size_t n = longest > 0 && longest < WARM_UP_TOKENS ? longest : longest > 0 ? WARM_UP_TOKENS : 1;
    bench_lanes *lanes = NULL;
    double ms;
    status st = bench_lanes_open(b->in, size_list_max(&b->args->batch), n, &lanes, b->e);
    if (st == ST_OK) {
        st = bench_lanes_prefill(lanes, 0, n, &ms, b->e);
    }
    bench_lanes_close(lanes);
    return st;
}

static status run_threads(bench *b, size_t threads, bool first)
{
    const bench_args *a = b->args;
    status st = start(b, threads, first);
    if (st == ST_OK) {
        st = bench_work_init(&b->work, b->in, kern_select(a->open.cpu), b->e);
    }
    if (st == ST_OK) {
        describe(b);
        if (first && !a->as_json) {
            bench_report_print_head(&b->report);
        }
        size_t got = instance_describe(b->in)->threads;
        if (threads > got) {
            fprintf(stderr, "hearth: -t %zu: this process may use %zu\n", threads, got);
        }
        st = warm_up(b);
    }
    forget(b, READ, INT8);
    for (size_t d = 0; st == ST_OK && d < a->depth.n; d++) {
        for (size_t i = 0; st == ST_OK && i < a->batch.n; i++) {
            st = run_sizes(b, a->batch.at[i], a->depth.at[d]);
        }
    }
    if (st == ST_OK) {
        bench_limits l = {instance_describe(b->in)->threads, median(b, READ), median(b, INT8)};
        b->report.limits[b->report.n_limits++] = l;
        if (!a->as_json) {
            bench_report_print_limits(&l);
        }
    }
    bench_work_release(&b->work);
    return st;
}

static status allocate(bench *b)
{
    const bench_args *a = b->args;
    size_t tests = a->batch.n * a->depth.n * (a->prefill.n + a->decode.n), cap;
    if (!size_mul(tests, a->repeats, &cap)) {
        return ST_NOMEM;
    }
    b->runs = cap * a->threads.n;
    b->report.results = mem_alloc_array(tests * a->threads.n, sizeof *b->report.results);
    b->report.limits = mem_alloc_array(a->threads.n, sizeof *b->report.limits);
    bool all = b->report.results && b->report.limits;
    for (int s = 0; s < N_SERIES; s++) {
        b->at[s] = mem_alloc_array(cap, sizeof *b->at[s]);
        all = all && b->at[s];
    }
    return all ? ST_OK : ST_NOMEM;
}

int bench_model(const bench_args *a)
{
    err e = {.offset = ERR_NO_OFFSET};
    bench b = {.args = a, .e = &e};
    int rc = EXIT_FAILED;
    status st = allocate(&b);
    if (st != ST_OK) {
        err_set(&e, st, NULL, "out of memory for the results");
    }
    for (size_t i = 0; st == ST_OK && i < a->threads.n; i++) {
        st = run_threads(&b, a->threads.at[i], i == 0);
    }
    progress_bar(b.doing, 1);
    if (st != ST_OK) {
        print_err(b.in ? "bench" : a->path, &e);
    } else {
        rc = a->as_json ? bench_report_print_json(&b.report) : EXIT_OK;
    }
    instance_close(b.in);
    for (int s = 0; s < N_SERIES; s++) {
        mem_free(b.at[s]);
    }
    mem_free(b.report.results);
    mem_free(b.report.limits);
    return rc;
}
