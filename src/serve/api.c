#include "serve/api.h"

#include <stdio.h>
#include <string.h>

#include "serve/api_reply.h"
#include "serve/chat.h"
#include "serve/completion.h"
#include "serve/generation_run.h"
#include "serve/health.h"
#include "serve/idempotency.h"
#include "serve/responses.h"
#include "serve/session_routes.h"
#include "serve/token_routes.h"

typedef struct exchange { /* a request and who made it */
    const api_context *api;
    http_conn *conn;
    const http_request *request;
    uint32_t key;
    const char *id; /* what of the path the route calls {id} */
    size_t id_len;
    session_action action;
} exchange;

static const generation_route completions = {"/v1/completions", &completion_shape, &run_chunks,
                                             completion_read};
static const generation_route chat = {"/v1/chat/completions", &chat_shape, &run_chunks, chat_read};

static const generation_route responses = {"/v1/responses", &responses_shape, &run_responses, responses_read};

const generation_route *const *api_generation_routes(size_t *n)
{
    static const generation_route *const all[] = {&completions, &chat, &responses};
    *n = sizeof all / sizeof all[0];
    return all;
}

static void generate(const exchange *x, const generation_route *route)
{
    const char *name = http_request_header(x->request, "idempotency-key");
    const char *session = http_request_header(x->request, "x-hearth-session");
    const buf *body = &x->request->body;
    if (name && x->api->promises) {
        idempotency_ask(x->api->promises, route, x->conn, x->key, name, session, buf_str(body), body->len);
    } else {
        generation_run_start(x->api, route, x->conn, x->key, session, buf_str(body), body->len);
    }
}

static void post_completions(const exchange *x)
{
    generate(x, &completions);
}

static void post_chat(const exchange *x)
{
    generate(x, &chat);
}

static void post_responses(const exchange *x)
{
    generate(x, &responses);
}

static void post_tokenize(const exchange *x)
{
    token_routes_tokenize(x->api, x->conn, x->key, buf_str(&x->request->body), x->request->body.len);
}

static void post_detokenize(const exchange *x)
{
    token_routes_detokenize(x->api, x->conn, x->key, buf_str(&x->request->body), x->request->body.len);
}

static void post_apply_template(const exchange *x)
{
    token_routes_apply_template(x->api, x->conn, x->key, buf_str(&x->request->body), x->request->body.len);
}

static void get_models(const exchange *x)
{
    health_reply_models(x->api, x->conn);
}

static void get_model(const exchange *x)
{
    health_reply_model(x->api, x->conn, x->id);
}

static void get_health(const exchange *x)
{
    health_reply(x->api, x->conn);
}

static void get_metrics(const exchange *x)
{
    health_reply_metrics(x->api, x->conn);
}

static void any_request(const exchange *x)
{
    buf out = {0};
    request_entry *entry = request_table_find(x->api->requests, x->key, x->id);
    if (!entry) {
        api_fault f;
        api_fault_http(&f, 404, "there is no such request here");
        api_reply_fault(x->conn, &f);
        return;
    }
    if (x->request->method == HTTP_DELETE && entry->cancel) {
        entry->cancel(entry->ctx);
    }
    status st = request_entry_put(entry, &out);
    api_reply_take(x->conn, 200, &out, st);
}

static void any_session(const exchange *x)
{
    session_routes_answer(x->api, x->conn, x->key, x->action, x->id, x->id_len, x->request);
}

typedef enum methods { GET, POST, PUT, GET_DELETE } methods;

static const char *const allowed[] = {[GET] = "GET, HEAD, OPTIONS",
                                      [POST] = "POST, OPTIONS",
                                      [PUT] = "PUT, OPTIONS",
                                      [GET_DELETE] = "GET, HEAD, DELETE, OPTIONS"};

/* {id} in a path is one segment of it, or at its end {id...} all the rest. */
static const struct route {
    const char *path;
    methods methods;
    bool open; /* asks for no key */
    metric_route label;
    void (*answer)(const exchange *x);
    size_t max_body; /* 0 = the server's limit; that of a PUT may be above it */
    session_action action;
} routes[] = {
    {"/v1/completions", POST, false, METRIC_ROUTE_completions, post_completions, 0, 0},
    {"/v1/chat/completions", POST, false, METRIC_ROUTE_chat, post_chat, 0, 0},
    {"/v1/responses", POST, false, METRIC_ROUTE_responses, post_responses, 0, 0},
    {"/v1/models", GET, false, METRIC_ROUTE_models, get_models, 0, 0},
    {"/v1/models/{id...}", GET, false, METRIC_ROUTE_model, get_model, 0, 0},
    {"/v1/requests/{id...}", GET_DELETE, false, METRIC_ROUTE_request, any_request, 0, 0},
#define SESSION_ROUTE(what, methods, action, max_body)                                                  \
    {                                                                                                   \
        "/v1/sessions/{id}/" #what, methods, false, METRIC_ROUTE_session_##what, any_session, max_body, \
            action                                                                                      \
    }
    {"/v1/sessions", GET, false, METRIC_ROUTE_sessions, any_session, 0, SESSION_LIST},
    {"/v1/sessions/{id}", GET_DELETE, false, METRIC_ROUTE_session, any_session, SESSION_MAX_BODY,
     SESSION_ONE},
    SESSION_ROUTE(reset, POST, SESSION_RESET, SESSION_MAX_BODY),
    SESSION_ROUTE(prewarm, POST, SESSION_PREWARM, SESSION_MAX_BODY),
    SESSION_ROUTE(save, POST, SESSION_SAVE, SESSION_MAX_BODY),
    SESSION_ROUTE(restore, POST, SESSION_RESTORE, SESSION_MAX_BODY),
    SESSION_ROUTE(drop, POST, SESSION_DROP, SESSION_MAX_BODY),
    SESSION_ROUTE(probe, GET, SESSION_PROBE, SESSION_MAX_BODY),
    SESSION_ROUTE(export, GET, SESSION_EXPORT, SESSION_MAX_BODY),
    SESSION_ROUTE(import, PUT, SESSION_IMPORT, SESSION_MAX_IMPORT),
#undef SESSION_ROUTE
    {"/tokenize", POST, false, METRIC_ROUTE_tokenize, post_tokenize, TOKEN_ROUTES_MAX_BODY, 0},
    {"/detokenize", POST, false, METRIC_ROUTE_detokenize, post_detokenize, TOKEN_ROUTES_MAX_BODY, 0},
    {"/apply-template", POST, false, METRIC_ROUTE_apply_template, post_apply_template, TOKEN_ROUTES_MAX_BODY,
     0},
    {"/health", GET, true, METRIC_ROUTE_health, get_health, 0, 0},
    {"/ready", GET, true, METRIC_ROUTE_ready, get_health, 0, 0},
    {"/metrics", GET, true, METRIC_ROUTE_metrics, get_metrics, 0, 0},
};

/* *id is set if the pattern has one. */
static bool matches(const char *pattern, const char *path, const char **id, size_t *id_len)
{
    const char *open = strchr(pattern, '{');
    if (!open) {
        return strcmp(pattern, path) == 0;
    }
    size_t n = (size_t)(open - pattern);
    if (strncmp(pattern, path, n) != 0) {
        return false;
    }
    *id = path + n;
    *id_len = strncmp(open, "{id...}", 7) == 0 ? strlen(*id) : strcspn(*id, "/");
    return *id_len > 0 && strcmp(strchr(open, '}') + 1, *id + *id_len) == 0;
}

static const struct route *find(const char *path, const char **id, size_t *id_len)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (matches(routes[i].path, path, id, id_len)) {
            return &routes[i];
        }
    }
    return NULL;
}

static bool takes(const struct route *route, enum http_method method)
{
    switch (method) {
    case HTTP_GET:
    case HTTP_HEAD:
        return route->methods == GET || route->methods == GET_DELETE;
    case HTTP_POST:
        return route->methods == POST;
    case HTTP_PUT:
        return route->methods == PUT;
    case HTTP_DELETE:
        return route->methods == GET_DELETE;
    default:
        return false;
    }
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

static bool find_key(const api_context *api, const http_request *r, uint32_t *key)
{
    *key = KEYS_ANONYMOUS;
    return !api->keys || keys_find(api->keys, http_request_header(r, "authorization"),
                                   http_request_header(r, "x-api-key"), key);
}

void api_head(void *ctx, http_conn *c, const http_request *r)
{
    const api_context *api = ctx;
    char message[192];
    uint32_t key;
    const char *path = buf_str(&r->path), *method = http_method_str(r->method);
    const char *id;
    size_t id_len;
    const struct route *route = find(path, &id, &id_len);
    bool known = find_key(api, r, &key);
    if (known && key != KEYS_ANONYMOUS) {
        http_conn_set_user(c, keys_name(api->keys, key));
    }
    if (r->method == HTTP_OPTIONS && route) {
        http_conn_reply(c, &(http_reply){.status = 204, .allow = allowed[route->methods], .body = ""});
    } else if (!known && !(route && route->open)) {
        api->metrics->refused_keys++;
        refuse(c, 401, NULL, "no API key, or one that is not known here (Authorization: Bearer KEY)");
    } else if (!route) {
        bool ours = strncmp(path, "/v1/", 4) == 0;
        snprintf(message, sizeof message,
                 ours ? "%s %.100s is not implemented" : "there is no %s %.100s here", method, path);
        refuse(c, ours ? 501 : 404, NULL, message);
    } else if (!takes(route, r->method)) {
        snprintf(message, sizeof message, "%s takes %s, not %s", route->path, allowed[route->methods],
                 method);
        refuse(c, 405, allowed[route->methods], message);
    } else if (route->methods == PUT) {
        http_conn_allow_body(c, route->max_body);
    } else if (route->max_body > 0) {
        http_conn_limit_body(c, route->max_body);
    }
}

void api_request(void *ctx, http_conn *c, const http_request *r)
{
    exchange x = {.api = ctx, .conn = c, .request = r};
    const struct route *route = find(buf_str(&r->path), &x.id, &x.id_len); /* api_head has refused the rest */
    x.action = route->action;
    find_key(x.api, r, &x.key);
    route->answer(&x);
}

void api_exchange(void *ctx, const http_exchange *x)
{
    const api_context *api = ctx;
    const char *id;
    size_t id_len;
    const struct route *route = find(x->path, &id, &id_len);
    metrics_count_exchange(api->metrics, route ? route->label : METRIC_ROUTE_other, x->status, x->bytes_out,
                           x->gone);
}
