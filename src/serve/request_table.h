/*
 * request_table: what is known about each request of a generation: the ones that run or wait, and the last
 * REQUESTS_KEPT that have ended (GET and DELETE /v1/requests/{id}).
 *
 * A live entry belongs to its run and is in the table between _add and _end; the copy that stays after _end is
 * the table's. An entry is only ever found with the key that made it. A client may use one X-Request-Id twice:
 * the younger is found.
 *
 * Loop thread only.
 */
#ifndef HEARTH_SERVE_REQUEST_TABLE_H
#define HEARTH_SERVE_REQUEST_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

#define REQUESTS_KEPT     256
#define REQUEST_ID_BYTES  80
#define REQUEST_END_BYTES 32

typedef enum request_state {
    REQUEST_QUEUED,
    REQUEST_RUNNING,
    REQUEST_DONE,
    REQUEST_FAILED,
    REQUEST_GONE
} request_state;

typedef struct request_entry {
    char id[REQUEST_ID_BYTES];        /* as X-Request-Id says it */
    char answer_id[REQUEST_ID_BYTES]; /* cmpl-…, found by it too */
    const char *route, *model;        /* borrowed, outlive the table */
    uint32_t key;
    request_state state;
    bool cancelling;
    size_t n_choices;
    int64_t prompt_tokens, completion_tokens; /* so far; of the prompt 0 until it is known */
    int64_t created_ms, started_ms, ended_ms; /* wall clock; 0 = not yet */
    char ending[REQUEST_END_BYTES]; /* reason of the first choice, or the error's code; "" = not yet */
    /* of a live one */
    void (*cancel)(void *ctx);
    size_t (*position)(void *ctx, double *estimate_s); /* in the queue; 0 = with the worker */
    void *ctx;
    struct request_entry *prev, *next;
} request_entry;

typedef struct request_table request_table;

status request_table_new(request_table **out);
void request_table_free(request_table *t); /* no entry is live any more */
/* A number for a run, never the same again. */
uint64_t request_table_serial(request_table *t);
void request_table_add(request_table *t, request_entry *r);
void request_table_end(request_table *t, request_entry *r); /* r is its owner's again */
/* NULL if there is none that this key made. */
request_entry *request_table_find(request_table *t, uint32_t key, const char *id);
size_t request_table_n_live(const request_table *t);
/* Appends the object of one entry; ST_NOMEM leaves out as it was. */
status request_entry_put(const request_entry *r, buf *out);

#endif
