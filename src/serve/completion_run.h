/*
 * completion_run: one request of /v1/completions from its body to the end of its answer.
 *
 * The answer waits for the worker's first frame, so that what the worker refuses still gets its HTTP status;
 * a stream's headers are sent then. A client that leaves takes its job with it (worker_link_drop). A run
 * frees itself when the answer is complete or the client is gone.
 *
 * Loop thread only.
 */
#ifndef HEARTH_SERVE_COMPLETION_RUN_H
#define HEARTH_SERVE_COMPLETION_RUN_H

#include "base/clock.h"
#include "serve/http.h"
#include "serve/worker_link.h"

typedef struct completion_service { /* borrowed, outlives every run */
    worker_link *link;
    const char *model_id;
    const clock_src *clock;
} completion_service;

/* Answers the request, now or later. */
void completion_run_start(const completion_service *s, http_conn *c, const char *body, size_t len);

#endif
