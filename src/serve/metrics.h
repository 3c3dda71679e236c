/*
 * metrics: what the daemon counts, and its text in Prometheus' exposition format 0.0.4. docs/metrics.md has one
 * row for each name; a test compares the two.
 *
 * Labels hold only what the daemon itself chose: routes and statuses of the tables here, names of models, causes
 * of deaths. Nothing a client sends becomes a label.
 *
 * Counting: loop thread. metrics_put is a pure function of its arguments.
 */
#ifndef HEARTH_SERVE_METRICS_H
#define HEARTH_SERVE_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "serve/worker_cause.h"
#include "wire/status_page.h"

/* X(name, path): the routes as a label; METRIC_ROUTE_other is everything else. */
#define METRIC_ROUTE_LIST(X)                        \
    X(other, "other")                               \
    X(completions, "/v1/completions")               \
    X(chat, "/v1/chat/completions")                 \
    X(responses, "/v1/responses")                   \
    X(models, "/v1/models")                         \
    X(model, "/v1/models/{id}")                     \
    X(request, "/v1/requests/{id}")                 \
    X(sessions, "/v1/sessions")                     \
    X(session, "/v1/sessions/{id}")                 \
    X(session_reset, "/v1/sessions/{id}/reset")     \
    X(session_prewarm, "/v1/sessions/{id}/prewarm") \
    X(session_save, "/v1/sessions/{id}/save")       \
    X(session_restore, "/v1/sessions/{id}/restore") \
    X(session_drop, "/v1/sessions/{id}/drop")       \
    X(session_probe, "/v1/sessions/{id}/probe")     \
    X(session_export, "/v1/sessions/{id}/export")   \
    X(session_import, "/v1/sessions/{id}/import")   \
    X(tokenize, "/tokenize")                        \
    X(detokenize, "/detokenize")                    \
    X(apply_template, "/apply-template")            \
    X(health, "/health")                            \
    X(ready, "/ready")                              \
    X(metrics, "/metrics")

typedef enum metric_route {
#define X(name, path) METRIC_ROUTE_##name,
    METRIC_ROUTE_LIST(X)
#undef X
        METRIC_ROUTES
} metric_route;

/* Endings of a choice. */
typedef enum metric_finish {
    METRIC_FINISH_STOP,
    METRIC_FINISH_TOOL_CALLS,
    METRIC_FINISH_LENGTH,
    METRIC_FINISH_TIMEOUT,
    METRIC_FINISH_CANCELLED,
    METRIC_FINISH_ERROR,
    METRIC_FINISH_GONE, /* its client left */
    METRIC_FINISHES
} metric_finish;

#define METRIC_STATUSES 21
#define METRIC_BUCKETS  14

typedef struct metric_histogram {
    uint64_t bucket[METRIC_BUCKETS + 1]; /* not cumulative; the last one is beyond all bounds */
    double sum_s;
} metric_histogram;

typedef struct metrics { /* all-zero is nothing counted */
    uint64_t requests[METRIC_ROUTES][METRIC_STATUSES];
    uint64_t clients_gone;
    uint64_t response_bytes;
    uint64_t finished[METRIC_FINISHES];
    uint64_t tokens_prompt, tokens_cached, tokens_generated;
    uint64_t refused_keys;
    metric_histogram ttft, request;
} metrics;

void metrics_count_exchange(metrics *m, metric_route route, int http_status, uint64_t bytes, bool gone);
void metrics_count_finish(metrics *m, const char *reason); /* as hearth.finish says it; "error", "gone" too */
void metrics_observe(metric_histogram *h, double seconds);
const char *metric_route_path(metric_route route);

typedef struct metric_model { /* one model, as its service knows it */
    const char *id;
    bool ready;
    uint64_t running, queued;
    uint64_t cancelled;
    uint64_t resumed, resumed_tokens, blamed;
    uint64_t sessions; /* named ones, of all keys */
    uint64_t starts;
    uint64_t deaths[WORKER_CAUSE_COUNT];
    uint64_t page[STATUS_ROW_TOKENS_FETCHED + 1]; /* rows of its status page */
} metric_model;

typedef struct metric_journal { /* all zero without one */
    bool is_on;
    uint64_t entries, unanswered, bytes;
    uint64_t replayed, recovered, conflicts, bad;
} metric_journal;

typedef struct metric_view { /* what is not counted but read */
    const char *version;
    uint64_t uptime_ms;
    uint64_t connections;
    uint64_t live_requests;
    metric_journal journal;
    const metric_model *models;
    size_t n_models;
} metric_view;

status metrics_put(const metrics *m, const metric_view *view, buf *out);

#endif
