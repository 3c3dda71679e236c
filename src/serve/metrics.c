#include "serve/metrics.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const route_paths[METRIC_ROUTES] = {
#define X(name, path) [METRIC_ROUTE_##name] = (path),
    METRIC_ROUTE_LIST(X)
#undef X
};

/* 0 is a client that left before its answer began; what is not here is counted as the last. */
static const int statuses[METRIC_STATUSES] = {0,   200, 204, 400, 401, 404, 405, 408, 409, 413, 414,
                                              417, 422, 429, 431, 500, 501, 503, 504, 505, 999};

static const char *const finishes[METRIC_FINISHES] = {"stop",      "tool_calls", "length", "timeout",
                                                      "cancelled", "error",      "gone"};

static const double bounds[METRIC_BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                              1,     2.5,  5,     10,   30,  60,   300};

const char *metric_route_path(metric_route route)
{
    return route_paths[route];
}

void metrics_count_exchange(metrics *m, metric_route route, int http_status, uint64_t bytes, bool gone)
{
    size_t i = 0;
    while (i < METRIC_STATUSES - 1 && statuses[i] != http_status) {
        i++;
    }
    m->requests[route][i]++;
    m->response_bytes += bytes;
    m->clients_gone += gone;
}

void metrics_count_finish(metrics *m, const char *reason)
{
    size_t i = 0;
    while (i < METRIC_FINISHES && strcmp(finishes[i], reason) != 0) {
        i++;
    }
    m->finished[i < METRIC_FINISHES ? i : METRIC_FINISH_ERROR]++;
}

void metrics_observe(metric_histogram *h, double seconds)
{
    size_t i = 0;
    while (i < METRIC_BUCKETS && seconds > bounds[i]) {
        i++;
    }
    h->bucket[i]++;
    h->sum_s += seconds;
}

/*
 * Text. A failed append is remembered and told at the end.
 */
typedef struct writer {
    buf *out;
    status st;
} writer;

static void __attribute__((format(printf, 2, 3))) put(writer *w, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (w->st == ST_OK && n >= 0) {
        w->st = buf_append(w->out, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    }
}

static void put_head(writer *w, const char *name, const char *type, const char *help)
{
    put(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(writer *w, const char *name, const char *type, const char *help, uint64_t value)
{
    put_head(w, name, type, help);
    put(w, "%s %llu\n", name, (unsigned long long)value);
}

/* A label's value: backslash, quote and line feed are escaped. */
static void put_label(writer *w, const char *name, const char *value)
{
    put(w, "%s=\"", name);
    for (; *value != '\0'; value++) {
        if (*value == '\n') {
            put(w, "\\n");
        } else if (*value == '"' || *value == '\\') {
            put(w, "\\%c", *value);
        } else {
            put(w, "%c", *value);
        }
    }
    put(w, "\"");
}

static void put_exchanges(writer *w, const metrics *m)
{
    static const char name[] = "hearth_requests_total";
    put_head(w, name, "counter",
             "HTTP requests that have ended, by route and status; status 0: gone unanswered.");
    for (size_t r = 0; r < METRIC_ROUTES; r++) {
        for (size_t s = 0; s < METRIC_STATUSES; s++) {
            if (m->requests[r][s] > 0) {
                put(w, "%s{", name);
                put_label(w, "route", route_paths[r]);
                put(w, ",status=\"%d\"} %llu\n", statuses[s], (unsigned long long)m->requests[r][s]);
            }
        }
    }
}

static void put_finishes(writer *w, const metrics *m)
{
    static const char name[] = "hearth_choices_total";
    put_head(w, name, "counter", "Choices of generations that have ended, by how.");
    for (size_t i = 0; i < METRIC_FINISHES; i++) {
        put(w, "%s{finish=\"%s\"} %llu\n", name, finishes[i], (unsigned long long)m->finished[i]);
    }
}

static void put_histogram(writer *w, const char *name, const char *help, const metric_histogram *h)
{
    uint64_t n = 0;
    put_head(w, name, "histogram", help);
    for (size_t i = 0; i < METRIC_BUCKETS; i++) {
        n += h->bucket[i];
        put(w, "%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], (unsigned long long)n);
    }
    n += h->bucket[METRIC_BUCKETS];
    put(w, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", name, (unsigned long long)n, name,
        h->sum_s, name, (unsigned long long)n);
}

/*
 * One series for each model.
 */
static void put_model_value(writer *w, const char *name, const metric_model *m, uint64_t value)
{
    put(w, "%s{", name);
    put_label(w, "model", m->id);
    put(w, "} %llu\n", (unsigned long long)value);
}

static uint64_t is_ready(const metric_model *m)
{
    return m->ready ? 1 : 0;
}

static uint64_t n_running(const metric_model *m)
{
    return m->running;
}

static uint64_t n_queued(const metric_model *m)
{
    return m->queued;
}

static uint64_t n_cancelled(const metric_model *m)
{
    return m->cancelled;
}

static uint64_t n_resumed(const metric_model *m)
{
    return m->resumed;
}

static uint64_t n_resumed_tokens(const metric_model *m)
{
    return m->resumed_tokens;
}

static uint64_t n_blamed(const metric_model *m)
{
    return m->blamed;
}

static uint64_t n_sessions(const metric_model *m)
{
    return m->sessions;
}

static uint64_t n_starts(const metric_model *m)
{
    return m->starts;
}

static const struct {
    const char *name, *type, *help;
    uint64_t (*value)(const metric_model *m);
} model_rows[] = {
    {"hearth_model_ready", "gauge", "1 if the model's worker can answer.", is_ready},
    {"hearth_requests_running", "gauge", "Requests that are with the worker.", n_running},
    {"hearth_requests_queued", "gauge", "Requests that wait in the daemon.", n_queued},
    {"hearth_cancelled_total", "counter", "Requests that were given up or cancelled.", n_cancelled},
    {"hearth_replies_resumed_total", "counter", "Replies that went on with another worker.", n_resumed},
    {"hearth_tokens_resumed_total", "counter", "Tokens that these had by then.", n_resumed_tokens},
    {"hearth_requests_blamed_total", "counter", "Requests ended for a worker's death.", n_blamed},
    {"hearth_sessions_open", "gauge", "Named sessions.", n_sessions},
    {"hearth_worker_starts_total", "counter", "Worker processes started.", n_starts},
};

static const struct {
    const char *name, *type, *help;
    status_row row;
} page_rows[] = {
    {"hearth_worker_steps_total", "counter", "Engine steps begun.", STATUS_ROW_TICK},
    {"hearth_worker_phase", "gauge",
     "What the worker does: 0 starting, 1 loading, 2 packing, 3 idle, 4 prefill, 5 decode, 6 draining, 7 its "
     "model's file is gone.",
     STATUS_ROW_PHASE},
    {"hearth_worker_loaded_bytes", "gauge", "Bytes of the model loaded so far.", STATUS_ROW_LOADED_BYTES},
    {"hearth_worker_load_total_bytes", "gauge", "Bytes of the model to load.", STATUS_ROW_LOAD_TOTAL_BYTES},
    {"hearth_worker_prepared_total", "counter", "Prompts made into tokens.", STATUS_ROW_PREPARED},
    {"hearth_worker_tokens_prefilled_total", "counter", "Prompt tokens computed.",
     STATUS_ROW_TOKENS_PREFILLED},
    {"hearth_worker_tokens_generated_total", "counter", "Tokens generated.", STATUS_ROW_TOKENS_GENERATED},
    {"hearth_worker_tokens_reused_total", "counter", "Prompt tokens that were not computed again.",
     STATUS_ROW_TOKENS_REUSED},
    {"hearth_worker_lanes", "gauge", "Lanes: sequences that can run at once.", STATUS_ROW_LANES_TOTAL},
    {"hearth_worker_lanes_live", "gauge", "Lanes with an owner.", STATUS_ROW_LANES_LIVE},
    {"hearth_worker_lanes_idle", "gauge", "Lanes made and without an owner.", STATUS_ROW_LANES_IDLE},
    {"hearth_worker_pages", "gauge", "Pages of the KV pool.", STATUS_ROW_PAGES_TOTAL},
    {"hearth_worker_pages_used", "gauge", "Pages in use.", STATUS_ROW_PAGES_USED},
    {"hearth_worker_queued", "gauge", "Requests that wait in the worker.", STATUS_ROW_QUEUED},
    {"hearth_worker_running", "gauge", "Requests that the worker computes.", STATUS_ROW_RUNNING},
    {"hearth_worker_parked", "gauge", "Sequences whose pages serve others until they go on.",
     STATUS_ROW_PARKED},
    {"hearth_worker_preemptions_total", "counter", "Sequences parked.", STATUS_ROW_PREEMPTIONS},
    {"hearth_worker_tokens_recomputed_total", "counter", "Tokens of parked sequences computed again.",
     STATUS_ROW_TOKENS_RECOMPUTED},
    {"hearth_worker_tokens_restored_total", "counter", "Tokens of parked sequences copied back.",
     STATUS_ROW_TOKENS_RESTORED},
    {"hearth_worker_pages_cached", "gauge", "Pages that only what ended has left.", STATUS_ROW_PAGES_CACHED},
    {"hearth_worker_tokens_fetched_total", "counter", "Tokens read back from disk.",
     STATUS_ROW_TOKENS_FETCHED},
    {"hearth_worker_requests_done_total", "counter", "Requests the worker finished.",
     STATUS_ROW_REQUESTS_DONE},
    {"hearth_worker_requests_failed_total", "counter", "Requests the worker answered with an error.",
     STATUS_ROW_REQUESTS_FAILED},
    {"hearth_worker_requests_cancelled_total", "counter", "Requests the worker cut for a cancel.",
     STATUS_ROW_REQUESTS_CANCELLED},
    {"hearth_worker_input_lines_total", "counter", "Lines the worker has read.", STATUS_ROW_INPUT_LINES},
    {"hearth_worker_output_bytes_total", "counter", "Bytes the worker has written.", STATUS_ROW_OUTPUT_BYTES},
};

static void put_deaths(writer *w, const metric_view *v)
{
    static const char name[] = "hearth_worker_deaths_total";
    put_head(w, name, "counter", "Workers that were lost, by cause.");
    for (size_t i = 0; i < v->n_models; i++) {
        const metric_model *m = &v->models[i];
        for (size_t k = 0; k < WORKER_CAUSE_COUNT; k++) {
            put(w, "%s{", name);
            put_label(w, "model", m->id);
            put(w, ",cause=\"%s\"} %llu\n", worker_cause_label((worker_cause)k),
                (unsigned long long)m->deaths[k]);
        }
    }
}

static void put_models(writer *w, const metric_view *v)
{
    for (size_t k = 0; k < sizeof model_rows / sizeof model_rows[0]; k++) {
        put_head(w, model_rows[k].name, model_rows[k].type, model_rows[k].help);
        for (size_t i = 0; i < v->n_models; i++) {
            put_model_value(w, model_rows[k].name, &v->models[i], model_rows[k].value(&v->models[i]));
        }
    }
    put_deaths(w, v);
    for (size_t k = 0; k < sizeof page_rows / sizeof page_rows[0]; k++) {
        put_head(w, page_rows[k].name, page_rows[k].type, page_rows[k].help);
        for (size_t i = 0; i < v->n_models; i++) {
            put_model_value(w, page_rows[k].name, &v->models[i], v->models[i].page[page_rows[k].row]);
        }
    }
}

static void put_journal(writer *w, const metric_journal *j)
{
    put_one(w, "hearth_journal_on", "gauge", "1 if requests can be journaled.", j->is_on);
    put_one(w, "hearth_journal_entries", "gauge", "Idempotency keys that are known.", j->entries);
    put_one(w, "hearth_journal_unanswered", "gauge", "Those of them without an answer.", j->unanswered);
    put_one(w, "hearth_journal_bytes", "gauge", "Bytes of the journal's files.", j->bytes);
    put_one(w, "hearth_journal_replayed_total", "counter",
            "Requests answered with the answer of an earlier one.", j->replayed);
    put_one(w, "hearth_journal_recovered_total", "counter", "Requests begun again after a restart.",
            j->recovered);
    put_one(w, "hearth_journal_conflicts_total", "counter",
            "Requests with the idempotency key of another one.", j->conflicts);
    put_one(w, "hearth_journal_bad_total", "counter",
            "Records and ends of files that were not what had been written.", j->bad);
}

status metrics_put(const metrics *m, const metric_view *v, buf *out)
{
    size_t before = out->len;
    writer w = {out, ST_OK};
    put_head(&w, "hearth_build_info", "gauge", "Always 1; the version is a label.");
    put(&w, "hearth_build_info{version=\"%s\"} 1\n", v->version);
    put_head(&w, "hearth_uptime_seconds", "gauge", "Since the daemon was started.");
    put(&w, "hearth_uptime_seconds %.3f\n", (double)v->uptime_ms / 1e3);
    put_one(&w, "hearth_http_connections", "gauge", "Open connections.", v->connections);
    put_one(&w, "hearth_generations_live", "gauge", "Generation requests that are not answered in full.",
            v->live_requests);
    put_exchanges(&w, m);
    put_one(&w, "hearth_clients_gone_total", "counter", "Clients that left before their answer was complete.",
            m->clients_gone);
    put_one(&w, "hearth_response_bytes_total", "counter", "Bytes of answers, headers included.",
            m->response_bytes);
    put_one(&w, "hearth_keys_refused_total", "counter", "Requests without a key that is known.",
            m->refused_keys);
    put_finishes(&w, m);
    put_one(&w, "hearth_tokens_prompt_total", "counter", "Prompt tokens of choices that have ended.",
            m->tokens_prompt);
    put_one(&w, "hearth_tokens_cached_total", "counter", "Those of them that were not computed again.",
            m->tokens_cached);
    put_one(&w, "hearth_tokens_generated_total", "counter", "Generated tokens of choices that have ended.",
            m->tokens_generated);
    put_histogram(&w, "hearth_ttft_seconds", "From a generation's request to its first token.", &m->ttft);
    put_histogram(&w, "hearth_request_seconds", "From a generation's request to its end.", &m->request);
    put_journal(&w, &v->journal);
    put_models(&w, v);
    if (w.st != ST_OK) {
        buf_truncate(out, before);
    }
    return w.st;
}
