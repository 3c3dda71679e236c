/*
 * routes: which request gets which answer. GET /health, GET /v1/models, POST /v1/completions; another method
 * on these is 405, everything else 404.
 *
 * Loop thread only.
 */
#ifndef HEARTH_SERVE_ROUTES_H
#define HEARTH_SERVE_ROUTES_H

#include "serve/completion_run.h"
#include "serve/http.h"

/* ctx of both is a completion_service. */
void routes_head(void *ctx, http_conn *c, const http_request *r);
void routes_request(void *ctx, http_conn *c, const http_request *r);

#endif
