#include "serve/api_error.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "wire/errors.h"

static void set(api_fault *f, int http_status, const char *code, const char *param)
{
    memset(f, 0, sizeof *f);
    f->http_status = http_status;
    f->code = code;
    f->prompt_tokens = f->limit = f->need = f->have = FRAME_NO_NUMBER;
    f->retry_after_s = http_status == 429 ? API_RETRY_AFTER_S : 0;
    snprintf(f->param, sizeof f->param, "%s", param);
}

static const char *http_code(int http_status)
{
    switch (http_status) {
    case 401:
        return "invalid_api_key";
    case 404:
        return "not_found";
    case 405:
        return "method_not_allowed";
    case 408:
        return "request_timeout";
    case 413:
        return "body_too_large";
    case 429:
        return wire_error_name(ST_QUEUE_FULL);
    case 431:
        return "headers_too_large";
    case 501:
        return "not_implemented";
    case 503:
        return wire_error_name(ST_INTERNAL);
    default:
        return wire_error_name(ST_BAD_REQUEST);
    }
}

void api_fault_http(api_fault *f, int http_status, const char *message)
{
    set(f, http_status, http_code(http_status), "");
    snprintf(f->message, sizeof f->message, "%s", message);
}

void api_fault_err(api_fault *f, const err *e)
{
    if (e->code == ST_NOT_FOUND) {
        set(f, 404, "model_not_found", e->field);
    } else if (e->code == ST_NOMEM) {
        set(f, 503, wire_error_name(ST_INTERNAL), ""); /* it may go better later */
    } else {
        set(f, wire_error_http(e->code), wire_error_name(e->code), e->field);
    }
    snprintf(f->message, sizeof f->message, "%s", e->msg);
}

/* What the API calls a field of the wire; *rest is what follows it in s ("" if s names none that differs). */
static const char *api_name(const char *s, const char **rest)
{
    static const char *const names[][2] = {{"prompt_segments", "prompt"},
                                           {"max_new_tokens", "max_tokens"},
                                           {"template_kwargs", "chat_template_kwargs"},
                                           {"reasoning.effort", "reasoning_effort"},
                                           {"reasoning.budget", "reasoning_budget"},
                                           {"reasoning.enabled", "enable_thinking"},
                                           {"text", "content"},
                                           {"ids", "tokens"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t n = strlen(names[i][0]);
        if (strncmp(s, names[i][0], n) == 0 && !isalnum((unsigned char)s[n]) && s[n] != '_') {
            *rest = s + n;
            return names[i][1];
        }
    }
    *rest = "";
    return s;
}

void api_fault_frame(api_fault *f, const frame *refusal)
{
    const char *rest;
    const char *name = api_name(refusal->field, &rest);
    set(f, wire_error_http(refusal->code), wire_error_name(refusal->code), name);
    f->prompt_tokens = refusal->prompt_tokens;
    f->limit = refusal->limit;
    f->need = refusal->need;
    f->have = refusal->have;
    if (f->retry_after_s > 0 && refusal->retry_after > 0) {
        f->retry_after_s =
            refusal->retry_after < API_MAX_RETRY_S ? (int)refusal->retry_after : API_MAX_RETRY_S;
    }
    name = api_name(refusal->text, &rest); /* the message may begin with it */
    snprintf(f->message, sizeof f->message, "%s%s", name, rest);
}

static const char *type_of(int http_status)
{
    if (http_status >= 500) {
        return "server_error";
    }
    if (http_status == 401) {
        return "authentication_error";
    }
    return http_status == 429 ? "rate_limit_error" : "invalid_request_error";
}

static void put_number(json_w *w, const char *key, int64_t v)
{
    if (v != FRAME_NO_NUMBER) {
        json_w_key(w, key);
        json_w_i64(w, v);
    }
}

status api_fault_put(const api_fault *f, buf *out)
{
    size_t len = out->len;
    json_w w;
    json_w_begin(&w, out);
    json_w_obj_open(&w);
    json_w_key(&w, "error");
    json_w_obj_open(&w);
    json_w_key(&w, "message");
    json_w_cstr(&w, f->message);
    json_w_key(&w, "type");
    json_w_cstr(&w, type_of(f->http_status));
    json_w_key(&w, "param");
    if (f->param[0] != '\0') {
        json_w_cstr(&w, f->param);
    } else {
        json_w_null(&w);
    }
    json_w_key(&w, "code");
    json_w_cstr(&w, f->code);
    put_number(&w, "prompt_tokens", f->prompt_tokens);
    put_number(&w, "limit", f->limit);
    put_number(&w, "need", f->need);
    put_number(&w, "have", f->have);
    json_w_obj_close(&w);
    json_w_obj_close(&w);
    status st = json_w_end(&w);
    if (st != ST_OK) {
        buf_truncate(out, len);
    }
    return st;
}
