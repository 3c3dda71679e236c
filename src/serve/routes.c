#include "serve/routes.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "serve/api_error.h"

static void reply_json(http_conn *c, int http_status, json_w *w, const char *allow)
{
    bool ok = json_w_end(w) == ST_OK;
    http_conn_reply(c, &(http_reply){.status = ok ? http_status : 503,
                                     .allow = allow,
                                     .body = ok ? buf_str(w->out) : "",
                                     .body_len = ok ? w->out->len : 0});
    buf_release(w->out);
}

static void get_health(const completion_service *s, http_conn *c, const http_request *r)
{
    buf out = {0};
    json_w w;
    bool ok = worker_link_model(s->link);
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    json_w_key(&w, "status");
    json_w_cstr(&w, ok ? "ok" : "loading");
    json_w_obj_close(&w);
    reply_json(c, ok ? 200 : 503, &w, NULL);
}

/* The model is listed once its worker is ready. */
static void get_models(const completion_service *s, http_conn *c, const http_request *r)
{
    buf out = {0};
    json_w w;
    const worker_model *m = worker_link_model(s->link);
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    json_w_key(&w, "object");
    json_w_cstr(&w, "list");
    json_w_key(&w, "data");
    json_w_arr_open(&w);
    if (m) {
        json_w_obj_open(&w);
        json_w_key(&w, "id");
        json_w_cstr(&w, s->model_id);
        json_w_key(&w, "object");
        json_w_cstr(&w, "model");
        json_w_key(&w, "created");
        json_w_i64(&w, 0); /* when a model was made is not in its file */
        json_w_key(&w, "owned_by");
        json_w_cstr(&w, "hearth");
        json_w_key(&w, "hearth");
        json_w_obj_open(&w);
        json_w_key(&w, "arch");
        json_w_cstr(&w, m->arch);
        json_w_key(&w, "quant");
        json_w_cstr(&w, m->quant);
        json_w_key(&w, "params");
        json_w_u64(&w, m->params);
        json_w_key(&w, "context_length");
        json_w_i64(&w, m->context_length);
        json_w_key(&w, "vocab_size");
        json_w_i64(&w, m->vocab_size);
        json_w_obj_close(&w);
        json_w_obj_close(&w);
    }
    json_w_arr_close(&w);
    json_w_obj_close(&w);
    reply_json(c, 200, &w, NULL);
}

static void post_completions(const completion_service *s, http_conn *c, const http_request *r)
{
    completion_run_start(s, c, buf_str(&r->body), r->body.len);
}

static const struct route {
    const char *path;
    enum http_method method;
    void (*answer)(const completion_service *s, http_conn *c, const http_request *r);
} routes[] = {
    {"/health", HTTP_GET, get_health},
    {"/v1/models", HTTP_GET, get_models},
    {"/v1/completions", HTTP_POST, post_completions},
};

static const struct route *find(const http_request *r)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(buf_str(&r->path), routes[i].path) == 0) {
            return &routes[i];
        }
    }
    return NULL;
}

static void refuse(http_conn *c, int http_status, const char *allow, const char *message)
{
    api_fault f;
    buf body = {0};
    api_fault_http(&f, http_status, message);
    api_fault_put(&f, &body); /* without memory: an empty body */
    http_conn_reply(
        c,
        &(http_reply){.status = http_status, .allow = allow, .body = buf_str(&body), .body_len = body.len});
    buf_release(&body);
}

void routes_head(void *ctx, http_conn *c, const http_request *r)
{
    char message[160];
    const struct route *route = find(r);
    const char *method = http_method_str(r->method);
    if (!route) {
        snprintf(message, sizeof message, "there is no %s %.100s here", method, buf_str(&r->path));
        refuse(c, 404, NULL, message);
    } else if (route->method != r->method) {
        const char *allow = http_method_str(route->method);
        snprintf(message, sizeof message, "%s takes %s, not %s", route->path, allow, method);
        refuse(c, 405, allow, message);
    }
}

void routes_request(void *ctx, http_conn *c, const http_request *r)
{
    find(r)->answer(ctx, c, r); /* routes_head has refused the rest */
}
