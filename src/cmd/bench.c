/*
 * hearth bench: how fast this machine is with a model, beside what its memory and its matrix unit allow.
 */
#include "cmd/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/kernel_speed.h"
#include "cmd/model_options.h"

#define MAX_TOKENS 1048576

typedef struct bench_words { /* the command line as it stands */
    model_options_args model;
    const char *threads, *prefill, *decode, *batch, *depth;
    int64_t repeats;
    bool verify, kernels;
    char path[4096]; /* of the model */
} bench_words;

size_t size_list_max(const size_list *l)
{
    size_t max = 0;
    for (size_t i = 0; i < l->n; i++) {
        max = l->at[i] > max ? l->at[i] : max;
    }
    return max;
}

/* "1,16": EXIT_USAGE, printed, unless it is a list of numbers from min to max. */
static int read_list(const char *typed, const char *text, size_t min, size_t max, size_list *out)
{
    *out = (size_list){0};
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        unsigned long long v = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || (*end != ',' && *end != '\0')) {
            fprintf(stderr, "hearth: %s %s: not a list of whole numbers (512,1024)\n", typed, text);
            return EXIT_USAGE;
        }
        if (errno || v < min || v > max) {
            fprintf(stderr, "hearth: %s %s: must be between %zu and %zu\n", typed, text, min, max);
            return EXIT_USAGE;
        }
        if (out->n == BENCH_MAX_LIST) {
            fprintf(stderr, "hearth: %s: more than %d numbers\n", typed, BENCH_MAX_LIST);
            return EXIT_USAGE;
        }
        out->at[out->n++] = (size_t)v;
        at = end;
        if (*at == '\0') {
            return EXIT_OK;
        }
    }
}

/* 0 stands for "none of this test"; beside other numbers it says nothing. */
static void drop_zeros(size_list *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (l->at[i] > 0) {
            l->at[n++] = l->at[i];
        }
    }
    l->n = n;
}

static int read_lists(const bench_words *w, bench_args *a)
{
    size_t rows = w->kernels ? KERNEL_SPEED_MAX_ROWS : 256;
    const char *rows_or_lanes = w->kernels ? "1,2,4,8,16,32,128,512" : "1";
    int rc = read_list("-t", w->threads ? w->threads : "0", w->threads ? 1 : 0, 256, &a->threads);
    rc = rc ? rc : read_list("-p", w->prefill ? w->prefill : "512", 0, MAX_TOKENS, &a->prefill);
    rc = rc ? rc : read_list("-n", w->decode ? w->decode : "32", 0, MAX_TOKENS, &a->decode);
    rc = rc ? rc : read_list("-b", w->batch ? w->batch : rows_or_lanes, 1, rows, &a->batch);
    rc = rc ? rc : read_list("-d", w->depth ? w->depth : "0", 0, MAX_TOKENS, &a->depth);
    drop_zeros(&a->prefill);
    drop_zeros(&a->decode);
    if (rc == EXIT_OK && a->prefill.n + a->decode.n == 0) {
        fprintf(stderr, "hearth: -p 0 -n 0 leaves nothing to measure\n");
        return EXIT_USAGE;
    }
    return rc;
}

static int run(bench_words *w, bench_args *a)
{
    int rc = model_options_instance(&w->model, KV_F16, &a->open);
    rc = rc ? rc : read_lists(w, a);
    if (rc == EXIT_OK && w->kernels) {
        return bench_kernels(a);
    }
    rc = rc ? rc : model_path_find(w->model.model, w->path, sizeof w->path);
    a->path = w->path;
    a->prefill_given = w->prefill != NULL;
    return rc ? rc : w->verify ? bench_verify(a) : bench_model(a);
}

int cmd_bench(int argc, char **argv)
{
    bench_words w = {.repeats = 3};
    bench_args a = {.path = ""};
    const cli_arg table[] = {
        {"model", 'm', ARG_TEXT, &w.model.model, 0, 0,
         "FILE  the model: a path, or a name in the model folder"},
        {"threads", 't', ARG_TEXT, &w.threads, 0, 0, "LIST  compute threads (default: all that may be used)"},
        {"prefill", 'p', ARG_TEXT, &w.prefill, 0, 0,
         "LIST  tokens of a prompt, as in 512,1024 (512); 0: no such test"},
        {"decode", 'n', ARG_TEXT, &w.decode, 0, 0, "LIST  tokens of a reply (32); 0: no such test"},
        {"batch", 'b', ARG_TEXT, &w.batch, 0, 0, "LIST  prompts or replies at once (1)"},
        {"depth", 'd', ARG_TEXT, &w.depth, 0, 0, "LIST  tokens that are there already (0)"},
        {"repeats", 'r', ARG_INT, &w.repeats, 1, 1000, "N  times each test is run; medians are told (3)"},
        MODEL_HOLD_ROWS(w.model),
        {"verify", 0, ARG_FLAG, &w.verify, 0, 0,
         "compare the logits of all sets, threads and batches bit by bit"},
        {"kernels", 0, ARG_FLAG, &w.kernels, 0, 0,
         "the matrix products alone, -b rows at once; needs no model"},
        {"type", 0, ARG_TEXT, &a.type, 0, 0, "TYPE  with --kernels: of this weight type only"},
        {"json", 0, ARG_FLAG, &a.as_json, 0, 0, "print one JSON object"},
    };
    const char *pos[1];
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "bench [-m FILE] [-t LIST] [-p LIST] [-n LIST] [-b LIST] [-d LIST] [--json]",
                    table, sizeof table / sizeof table[0], pos, 0, &n_pos, &rc)) {
        return rc;
    }
    if ((w.verify && w.kernels) || (a.type && !w.kernels)) {
        fprintf(stderr, "hearth: %s\n",
                a.type && !w.kernels ? "--type goes with --kernels"
                                     : "--verify and --kernels exclude each other");
        return EXIT_USAGE;
    }
    a.repeats = (size_t)w.repeats;
    return run(&w, &a);
}
