/*
 * bench: what the files of `hearth bench` share: the command line, read, and the three things it can do. Each
 * prints its answer and returns the exit status; the caller is the engine thread of the models they open.
 */
#ifndef HEARTH_CMD_BENCH_H
#define HEARTH_CMD_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/instance.h"

#define BENCH_MAX_LIST 32

typedef struct size_list { /* "512,1024" */
    size_t at[BENCH_MAX_LIST];
    size_t n;
} size_list;

typedef struct bench_args {
    const char *path;      /* of the model; "" with --kernels */
    instance_options open; /* instruction set, KV type, progress */
    size_list threads;     /* 0 = all that may be used */
    size_list prefill;     /* tokens; empty: no such test. Likewise decode */
    size_list decode;
    size_list batch; /* --kernels: rows */
    size_list depth;
    bool prefill_given;
    size_t repeats;
    const char *type; /* --kernels: this weight type only, or NULL */
    bool as_json;
} bench_args;

/* Prefill, decode and starting, each beside its limit. */
int bench_model(const bench_args *a);
/* Promise P1 on this machine: the logits of every set, chunking, thread count and batch, bit by bit. */
int bench_verify(const bench_args *a);
/* The matrix products by themselves. */
int bench_kernels(const bench_args *a);

size_t size_list_max(const size_list *l); /* 0 if empty */

#endif
