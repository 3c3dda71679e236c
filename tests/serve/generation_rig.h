/*
 * generation_rig: reads a body as a route does and its lines as the worker does: what a test says about a line
 * is said about the request that the worker decodes from it.
 */
#ifndef HEARTH_TESTS_SERVE_GENERATION_RIG_H
#define HEARTH_TESTS_SERVE_GENERATION_RIG_H

#include <stdio.h>
#include <string.h>

#include "base/test_main.h"
#include "serve/api_error.h"
#include "serve/generation.h"
#include "wire/errors.h"

#define RIG_SEED  77
#define RIG_VOCAB 1000

typedef status (*rig_read_fn)(const char *body, size_t len, uint64_t drawn_seed, generation *out, err *e);

typedef struct rig_bad {
    const char
        *members; /* after the members of `base`, or the whole body if it does not begin with a quote */
    int http_status;
    const char *param, *code;
} rig_bad;

static inline generation rig_good(rig_read_fn read, const char *body)
{
    generation g;
    err e;
    if (read(body, strlen(body), RIG_SEED, &g, &e) != ST_OK) {
        fail_msg("%s: %s", body, e.msg);
    }
    return g;
}

static inline wire_request *rig_wire(const generation *g, size_t i)
{
    const wire_limits limits = {.n_vocab = RIG_VOCAB};
    buf line = {0}, answer = {0};
    err e;
    wire_request *r = NULL;
    assert_int_equal(generation_put_line(g, i, "job.7", &line, &e), ST_OK);
    assert_true(line.len > 1 && line.data[line.len - 1] == '\n');
    assert_null(memchr(line.data, '\n', line.len - 1));
    if (wire_request_decode(line.data, line.len - 1, &limits, &r, &answer, NULL, &e) != ST_OK) {
        fail_msg("the worker refuses %s: %s", buf_str(&line), buf_str(&answer));
    }
    assert_int_equal(r->id.len, 5);
    assert_string_equal(r->id.data, "job.7");
    buf_release(&line);
    buf_release(&answer);
    return r;
}

static inline void rig_refused(rig_read_fn read, const char *base, const rig_bad *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char body[512];
        generation g;
        err e;
        api_fault f;
        if (rows[i].members[0] == '"') {
            snprintf(body, sizeof body, "{%s,%s}", base, rows[i].members);
        } else {
            snprintf(body, sizeof body, "%s", rows[i].members);
        }
        if (read(body, strlen(body), RIG_SEED, &g, &e) == ST_OK) {
            fail_msg("%s is not refused", body);
        }
        api_fault_err(&f, &e);
        if (f.http_status != rows[i].http_status || strcmp(f.param, rows[i].param) != 0 ||
            strcmp(f.code, rows[i].code) != 0 || f.message[0] == '\0') {
            fail_msg("%s: %d param \"%s\" code %s (%s)", body, f.http_status, f.param, f.code, f.message);
        }
    }
}

/* FAILURES I3: every numeric field with what is no number for it. good: what of these it takes all the same. */
typedef struct rig_number {
    const char *field, *good;
} rig_number;

static inline void rig_sweep(rig_read_fn read, const char *base, const rig_number *fields, size_t n)
{
    static const char *const values[] = {"-1",         "-2147483648",
                                         "2147483648", "9223372036854775808",
                                         "1e308",      "NaN",
                                         "1e999",      "\"x\"",
                                         "[]",         "{}",
                                         "true",       "-1e308",
                                         "-0.5",       "18446744073709551616"};
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < N_OF(values); k++) {
            char body[256], mark[40];
            generation g;
            err e;
            const char *dot = strchr(fields[i].field, '.');
            snprintf(body, sizeof body, dot ? "{%s,\"%.*s\":{\"%s\":%s}}" : "{%s,\"%.*s%s\":%s}", base,
                     dot ? (int)(dot - fields[i].field) : (int)strlen(fields[i].field), fields[i].field,
                     dot ? dot + 1 : "", values[k]);
            snprintf(mark, sizeof mark, " %s ", values[k]);
            bool want = strstr(fields[i].good, mark) != NULL;
            status st = read(body, strlen(body), RIG_SEED, &g, &e);
            if ((st == ST_OK) != want) {
                fail_msg("%s: %s", body, st == ST_OK ? "taken" : e.msg);
            }
            if (st == ST_OK) { /* the worker takes it too */
                wire_request_free(rig_wire(&g, 0));
                generation_release(&g);
            } else {
                assert_true(wire_error_http(st) == 400);
            }
        }
    }
}

#endif
