#include "serve/health.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "serve/api_reply.h"
#include "serve/generation.h"
#include "serve/idempotency.h"
#include "wire/status_page.h"

static const char *state_name(service_state s)
{
    switch (s) {
    case SERVICE_LOADING:
        return "loading";
    case SERVICE_READY:
        return "ready";
    case SERVICE_RESTARTING:
        return "restarting";
    case SERVICE_STALLED:
        return "stalled";
    case SERVICE_FAILED:
        return "failed";
    case SERVICE_DRAINING:
        return "draining";
    }
    return "failed";
}

static const char *phase_name(uint64_t phase)
{
    static const char *const names[] = {"starting", "loading", "packing",  "idle",
                                        "prefill",  "decode",  "draining", "weights_gone"};
    return phase < sizeof names / sizeof names[0] ? names[phase] : "unknown"; /* a worker is not trusted */
}

static void put_text(json_w *w, const char *key, const char *text)
{
    json_w_key(w, key);
    json_w_cstr(w, text);
}

static void put_u64(json_w *w, const char *key, uint64_t v)
{
    json_w_key(w, key);
    json_w_u64(w, v);
}

static void put_health(json_w *w, const service_info *info, const status_snapshot *page)
{
    json_w_obj_open(w);
    put_text(w, "id", info->id);
    put_text(w, "status", state_name(info->state));
    put_text(w, "phase", phase_name(page->row[STATUS_ROW_PHASE]));
    put_u64(w, "loaded_bytes", page->row[STATUS_ROW_LOADED_BYTES]);
    put_u64(w, "load_total_bytes", page->row[STATUS_ROW_LOAD_TOTAL_BYTES]);
    put_u64(w, "steps", page->row[STATUS_ROW_TICK]);
    put_u64(w, "tokens_generated", page->row[STATUS_ROW_TOKENS_GENERATED]);
    put_u64(w, "lanes_live", page->row[STATUS_ROW_LANES_LIVE]);
    put_u64(w, "lanes_idle", page->row[STATUS_ROW_LANES_IDLE]);
    put_u64(w, "parked", page->row[STATUS_ROW_PARKED]);
    put_u64(w, "preemptions", page->row[STATUS_ROW_PREEMPTIONS]);
    put_u64(w, "running", info->n_with_worker);
    put_u64(w, "queued", info->n_waiting);
    put_u64(w, "starts", info->n_starts);
    if (info->failure[0] != '\0') {
        put_text(w, "failure", info->failure);
    }
    json_w_obj_close(w);
}

/* What stands for all: the worst of them. */
static service_state worst(models *m)
{
    static const service_state order[] = {SERVICE_FAILED, SERVICE_STALLED, SERVICE_DRAINING,
                                          SERVICE_RESTARTING, SERVICE_LOADING};
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++) {
        for (size_t i = 0; i < models_count(m); i++) {
            if (service_state_now(models_at(m, i)) == order[k]) {
                return order[k];
            }
        }
    }
    return SERVICE_READY;
}

void health_reply(const api_context *api, http_conn *c)
{
    static const char ok[] = "{\"status\":\"ok\"}";
    buf out = {0};
    json_w w;
    service_state state = worst(api->models);
    if (state == SERVICE_READY) {
        http_conn_reply(c, &(http_reply){.status = 200, .body = ok, .body_len = sizeof ok - 1});
        return;
    }
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    put_text(&w, "status", state_name(state));
    json_w_key(&w, "models");
    json_w_arr_open(&w);
    for (size_t i = 0; i < models_count(api->models); i++) {
        service_info info;
        status_snapshot page;
        service_read(models_at(api->models, i), &info);
        service_page(models_at(api->models, i), &page);
        put_health(&w, &info, &page);
    }
    json_w_arr_close(&w);
    json_w_obj_close(&w);
    api_reply_take(c, 503, &out, json_w_end(&w));
}

static void put_f64(json_w *w, const char *key, double v)
{
    json_w_key(w, key);
    json_w_f64(w, v);
}

/* What a request that names none of them gets. */
static void put_sampling(json_w *w, const frame_sampling *sampling)
{
    wire_request r = wire_request_default(WIRE_CHAT);
    r.temperature = GENERATION_TEMPERATURE;
    generation_default_sampling(&r, NULL, sampling);
    json_w_key(w, "sampling");
    json_w_obj_open(w);
    put_f64(w, "temperature", r.temperature);
    put_f64(w, "top_p", r.top_p);
    put_u64(w, "top_k", (uint64_t)r.top_k);
    put_f64(w, "min_p", r.min_p);
    put_f64(w, "repetition_penalty", r.repetition_penalty);
    put_f64(w, "presence_penalty", r.presence_penalty);
    put_f64(w, "frequency_penalty", r.frequency_penalty);
    json_w_obj_close(w);
}

static void put_model(json_w *w, const model_service *s)
{
    service_info info;
    service_read(s, &info);
    json_w_obj_open(w);
    put_text(w, "id", info.id);
    put_text(w, "object", "model");
    put_u64(w, "created", 0); /* when a model was made is not in its file */
    put_text(w, "owned_by", "hearth");
    json_w_key(w, "hearth");
    json_w_obj_open(w);
    put_text(w, "status", state_name(info.state));
    if (info.known) {
        put_text(w, "name", info.model.name);
        put_text(w, "arch", info.model.arch);
        put_text(w, "quant", info.model.quant);
        put_u64(w, "params", info.model.params);
        if (info.model.digest[0] != '\0') {
            put_text(w, "digest", info.model.digest);
        }
        put_u64(w, "context_length", (uint64_t)info.model.context_length);
        put_u64(w, "vocab_size", (uint64_t)info.model.vocab_size);
        put_u64(w, "lanes", (uint64_t)info.model.lanes);
        put_text(w, "kernels", info.model.kernels);
    }
    put_sampling(w, &info.model.sampling);
    json_w_obj_close(w);
    json_w_obj_close(w);
}

void health_reply_models(const api_context *api, http_conn *c)
{
    buf out = {0};
    json_w w;
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    put_text(&w, "object", "list");
    json_w_key(&w, "data");
    json_w_arr_open(&w);
    for (size_t i = 0; i < models_count(api->models); i++) {
        put_model(&w, models_at(api->models, i));
    }
    json_w_arr_close(&w);
    json_w_obj_close(&w);
    api_reply_take(c, 200, &out, json_w_end(&w));
}

void health_reply_model(const api_context *api, http_conn *c, const char *id)
{
    buf out = {0};
    json_w w;
    model_service *s = id[0] != '\0' ? models_find(api->models, id) : NULL;
    if (!s) {
        err e;
        err_set(&e, ST_NOT_FOUND, "model", "the model %.64s does not exist here", id);
        api_reply_err(c, &e);
        return;
    }
    json_w_begin(&w, &out);
    put_model(&w, s);
    api_reply_take(c, 200, &out, json_w_end(&w));
}

static void read_metrics(const api_context *api, const model_service *s, metric_model *out)
{
    service_info info;
    status_snapshot page;
    service_read(s, &info);
    service_page(s, &page);
    *out = (metric_model){.id = info.id,
                          .ready = info.state == SERVICE_READY,
                          .running = info.n_with_worker,
                          .queued = info.n_waiting,
                          .cancelled = info.n_cancelled,
                          .resumed = info.n_resumed,
                          .resumed_tokens = info.n_resumed_tokens,
                          .blamed = info.n_blamed,
                          .sessions = session_table_count(session_desk_table(api->sessions), s),
                          .starts = info.n_starts};
    memcpy(out->deaths, info.n_deaths, sizeof out->deaths);
    memcpy(out->page, page.row, sizeof out->page);
}

static metric_journal read_journal(const api_context *api)
{
    journal_counts j = {0};
    idempotency_counts p = {0};
    if (api->journal) {
        journal_read_counts(api->journal, &j);
        idempotency_read_counts(api->promises, &p);
    }
    return (metric_journal){.is_on = j.is_on,
                            .entries = j.n_entries,
                            .unanswered = j.n_unanswered,
                            .bytes = j.bytes,
                            .replayed = p.replayed,
                            .recovered = p.recovered,
                            .conflicts = p.conflicts,
                            .bad = j.n_bad};
}

void health_reply_metrics(const api_context *api, http_conn *c)
{
    buf out = {0};
    size_t n = models_count(api->models);
    metric_model *list = mem_calloc(n, sizeof *list);
    if (!list) {
        api_reply_no_memory(c);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        read_metrics(api, models_at(api->models, i), &list[i]);
    }
    uint64_t uptime_ns = clock_mono_ns(api->clock) - api->started_ns;
    const metric_view view = {.version = HEARTH_VERSION,
                              .uptime_ms = uptime_ns / 1000000u,
                              .connections =
                                  api->n_connections ? api->n_connections(api->n_connections_ctx) : 0,
                              .live_requests = request_table_n_live(api->requests),
                              .journal = read_journal(api),
                              .models = list,
                              .n_models = n};
    status st = metrics_put(api->metrics, &view, &out);
    mem_free(list);
    if (st != ST_OK) {
        api_reply_no_memory(c);
    } else {
        http_conn_reply(c, &(http_reply){.status = 200,
                                         .content_type = "text/plain; version=0.0.4; charset=utf-8",
                                         .body = out.data,
                                         .body_len = out.len});
    }
    buf_release(&out);
}
