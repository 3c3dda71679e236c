/*
 * health: what the daemon says about itself: GET /health and /ready (200 when every model can answer, else 503
 * with the state of each), GET /v1/models and /v1/models/{id}, GET /metrics.
 *
 * All is answered from memory and the status pages: quick whatever the workers do. Loop thread only.
 */
#ifndef HEARTH_SERVE_HEALTH_H
#define HEARTH_SERVE_HEALTH_H

#include "serve/api.h"
#include "serve/http.h"

void health_reply(const api_context *api, http_conn *c);
void health_reply_models(const api_context *api, http_conn *c);
void health_reply_model(const api_context *api, http_conn *c, const char *id);
void health_reply_metrics(const api_context *api, http_conn *c);

#endif
