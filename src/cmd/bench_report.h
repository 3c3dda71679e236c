/*
 * bench_report: what `hearth bench` found, as plain data, and how it is told: lines for people while it goes on,
 * or one JSON object at the end.
 */
#ifndef HEARTH_CMD_BENCH_REPORT_H
#define HEARTH_CMD_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_limits { /* of one number of threads; medians of all passes */
    size_t threads;
    double read_gbs;
    double int8_tops; /* 0: the set has no int8 instruction to measure */
} bench_limits;

typedef enum bench_test { BENCH_PREFILL, BENCH_DECODE } bench_test;

typedef struct bench_result {
    bench_test test;
    size_t n; /* tokens of each prompt or reply */
    size_t batch;
    size_t depth;
    size_t threads;
    double tok_s;       /* of all lanes together; median, as all that follows */
    double spread;      /* (largest - smallest) / median */
    double ms;          /* until every lane had its first token, or per step of decode */
    bool by_matrix;     /* the limit is the matrix unit's, else the memory's */
    double limit_tok_s; /* 0: nothing to measure against */
    double limit_share; /* of the limit measured right before each run */
} bench_result;

typedef struct bench_start {
    double load_ms;        /* opening; median */
    double first_ms;       /* the first opening: it may have packed the weights */
    double first_token_ms; /* from the beginning of opening to the first token after a prompt of one */
} bench_start;

typedef struct bench_report {
    char name[128]; /* of the model */
    char quant[16];
    char kernels[16];
    const char *kv_type;
    uint64_t params;
    uint64_t bytes_per_token; /* of weights, as they are read */
    bool own_weights;         /* the passes read the weights themselves, else a buffer (a small model) */
    size_t repeats;
    bench_start start;
    bench_limits *limits; /* [n_limits] owned */
    size_t n_limits;
    bench_result *results; /* [n_results] owned */
    size_t n_results;
} bench_report;

void bench_report_print_head(const bench_report *r);
void bench_report_print_limits(const bench_limits *l);
void bench_report_print_result(const bench_result *r);
int bench_report_print_json(const bench_report *r); /* exit status */

#endif
