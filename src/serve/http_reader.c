#include "serve/http_reader.h"

#include <string.h>
#include <strings.h>

static int refuse(http_reader *r, int http_status, const char *message)
{
    if (r->fault.status == 0) {
        r->fault.status = http_status;
        r->fault.message = message;
    }
    return -1;
}

/* Stops the parser; http_reader_push resumes it. */
static int stop_at(http_reader *r, http_step step)
{
    r->stop = step;
    http_parser_pause(&r->parser, 1);
    return 0;
}

static int on_url(http_parser *p, const char *at, size_t n)
{
    http_reader *r = p->data;
    if (n > HTTP_MAX_TARGET_BYTES - r->request.path.len) {
        return refuse(r, 414, "the request target is too long");
    }
    return buf_append(&r->request.path, at, n) == ST_OK ? 0 : refuse(r, 503, "out of memory");
}

static bool header_is(const http_reader *r, const char *name)
{
    size_t n = strlen(name);
    return r->name_len == n && strncasecmp(r->name, name, n) == 0;
}

static const char *const kept_names[HTTP_N_KEPT] = {
#define X(name) name,
    HTTP_KEPT_HEADERS(X)
#undef X
};

const char *http_request_header(const http_request *r, const char *lower_case_name)
{
    for (size_t i = 0; i < HTTP_N_KEPT; i++) {
        if (strcmp(lower_case_name, kept_names[i]) == 0) {
            return r->kept_at[i] > 0 ? r->values.data + r->kept_at[i] - 1 : NULL;
        }
    }
    return NULL;
}

/* The name of a header is complete, its value begins. A value is built at the end of `values`. */
static int begin_value(http_reader *r)
{
    http_request *q = &r->request;
    r->in_value = true;
    r->kept = -1;
    for (int i = 0; i < HTTP_N_KEPT && r->kept < 0; i++) {
        r->kept = header_is(r, kept_names[i]) ? i : -1;
    }
    if (r->kept < 0) {
        return 0;
    }
    if (q->kept_at[r->kept] == 0) {
        r->value_at = q->values.len;
    } else if (strcmp(kept_names[r->kept], "accept") == 0) {
        r->kept = -1;
    } else {
        return refuse(r, 400, "a header that may come once comes twice");
    }
    return 0;
}

static int end_kept(http_reader *r)
{
    buf *v = &r->request.values;
    while (v->len > r->value_at && (v->data[v->len - 1] == ' ' || v->data[v->len - 1] == '\t')) {
        buf_truncate(v, v->len - 1);
    }
    r->request.kept_at[r->kept] = (uint32_t)r->value_at + 1; /* not before: half a value is none */
    return buf_append_char(v, '\0') == ST_OK ? 0 : refuse(r, 503, "out of memory");
}

/* The current header, if any, is complete. */
static int end_header(http_reader *r)
{
    static const char continue_100[] = "100-continue";
    size_t n = sizeof continue_100 - 1;
    int rc = 0;
    if (header_is(r, "host")) {
        r->n_hosts++;
    } else if (header_is(r, "expect")) {
        r->request.expect_100 = r->value_len == n && strncasecmp(r->value, continue_100, n) == 0;
    } else if (r->in_value && r->kept >= 0) {
        rc = end_kept(r);
    }
    r->in_value = false;
    r->name_len = r->value_len = 0;
    return rc;
}

static int on_header_field(http_parser *p, const char *at, size_t n)
{
    http_reader *r = p->data;
    if (r->in_value && end_header(r) != 0) {
        return -1;
    }
    if (memchr(at, ' ', n)) { /* Debian's http_parser is not built strict; RFC 9112, 5.1 */
        return refuse(r, 400, "a header name holds a space");
    }
    for (size_t i = 0; i < n; i++, r->name_len++) {
        if (r->name_len < HTTP_NAME_BYTES) {
            r->name[r->name_len] = at[i];
        }
    }
    return 0;
}

static int on_header_value(http_parser *p, const char *at, size_t n)
{
    http_reader *r = p->data;
    if (!r->in_value && begin_value(r) != 0) {
        return -1;
    }
    if (r->kept >= 0) {
        r->value_len += n;
        if (r->value_len > HTTP_MAX_VALUE_BYTES) {
            return refuse(r, 431, "a header is too long");
        }
        return buf_append(&r->request.values, at, n) == ST_OK ? 0 : refuse(r, 503, "out of memory");
    }
    for (size_t i = 0; i < n; i++, r->value_len++) {
        if (r->value_len < HTTP_VALUE_BYTES) {
            r->value[r->value_len] = at[i];
        }
    }
    return 0;
}

/* The target, kept in `path` so far, is split into path and query ("http://host/path?query" is allowed too). */
static int cut_target(http_reader *r)
{
    struct http_parser_url u;
    buf *path = &r->request.path;
    if (strcmp(buf_str(path), "*") == 0) { /* of OPTIONS */
        return 0;
    }
    http_parser_url_init(&u);
    if (http_parser_parse_url(buf_str(path), path->len, r->request.method == HTTP_CONNECT, &u) != 0) {
        return refuse(r, 400, "the request target is malformed");
    }
    if ((u.field_set & (1u << UF_QUERY)) &&
        buf_append(&r->request.query, path->data + u.field_data[UF_QUERY].off, u.field_data[UF_QUERY].len) !=
            ST_OK) {
        return refuse(r, 503, "out of memory");
    }
    bool has_path = u.field_set & (1u << UF_PATH);
    size_t begin = has_path ? u.field_data[UF_PATH].off : path->len;
    buf_truncate(path, has_path ? begin + u.field_data[UF_PATH].len : begin);
    buf_consume(path, begin);
    return 0;
}

static int on_headers_complete(http_parser *p)
{
    http_reader *r = p->data;
    http_request *q = &r->request;
    bool chunked = p->flags & F_CHUNKED;
    bool sized = p->content_length != 0 && p->content_length != UINT64_MAX;
    if (end_header(r) != 0) {
        return -1;
    }
    p->upgrade = 0; /* else the parser would take what follows for another protocol */
    q->method = (enum http_method)p->method;
    q->minor = p->http_minor;
    q->keep_alive = http_should_keep_alive(p);
    q->has_body = chunked || sized;
    r->content_length = !chunked && sized ? p->content_length : 0;
    if (p->http_major != 1) {
        return refuse(r, 505, "only HTTP/1.x is spoken here");
    }
    if (r->n_hosts > 1 || (r->n_hosts == 0 && q->minor >= 1)) {
        return refuse(r, 400, "the request needs exactly one Host header");
    }
    if (cut_target(r) != 0) {
        return -1;
    }
    q->is_whole = true;
    return stop_at(r, HTTP_STEP_HEAD);
}

static int on_body(http_parser *p, const char *at, size_t n)
{
    http_reader *r = p->data;
    if (r->skip_body) {
        return 0;
    }
    if (r->content_length > r->body_limit || n > r->body_limit - r->request.body.len) {
        return refuse(r, 413, "the body is too large");
    }
    bool is_large = r->body_limit > r->max_body_bytes;
    if ((is_large && r->budget->used >= r->budget->max / 2) || !byte_budget_take(r->budget, n)) {
        return refuse(r, 429, "too many request bodies at once");
    }
    if (buf_append(&r->request.body, at, n) != ST_OK) {
        r->budget->used -= n;
        return refuse(r, 503, "out of memory");
    }
    return 0;
}

static int on_message_complete(http_parser *p)
{
    return stop_at(p->data, HTTP_STEP_DONE);
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

void http_reader_init(http_reader *r, size_t max_body_bytes, byte_budget *budget)
{
    memset(r, 0, sizeof *r);
    r->max_body_bytes = r->body_limit = max_body_bytes;
    r->budget = budget;
    http_parser_init(&r->parser, HTTP_REQUEST);
    r->parser.data = r;
}

void http_reader_limit_body(http_reader *r, size_t max_bytes)
{
    r->body_limit = max_bytes < r->body_limit ? max_bytes : r->body_limit;
}

void http_reader_allow_body(http_reader *r, size_t max_bytes)
{
    r->body_limit = max_bytes > r->body_limit ? max_bytes : r->body_limit;
}

bool http_reader_fits(const http_reader *r)
{
    return r->content_length <= r->body_limit;
}

/* A client that waits for "100 Continue" may or may not send its body after a refusal, and chunks may be
 * endless. */
bool http_reader_may_skip(const http_reader *r)
{
    return r->content_length > 0 && r->content_length <= HTTP_SKIP_BYTES && !r->request.expect_100;
}

void http_reader_skip_body(http_reader *r)
{
    r->skip_body = true;
}

void http_reader_drop_body(http_reader *r)
{
    r->budget->used -= r->request.body.len;
    buf_release(&r->request.body);
}

held_bytes *http_reader_take_body(http_reader *r)
{
    buf *body = &r->request.body;
    return held_bytes_new(body, r->budget, body->len);
}

void http_reader_release(http_reader *r)
{
    if (r && r->budget) {
        http_reader_drop_body(r);
        buf_release(&r->request.path);
        buf_release(&r->request.query);
        buf_release(&r->request.values);
    }
}

void http_reader_next(http_reader *r)
{
    http_reader_drop_body(r);
    buf_release(&r->request.path);
    buf_release(&r->request.query);
    buf_release(&r->request.values); /* an idle connection keeps nothing of them */
    memset(&r->request, 0, sizeof r->request);
    r->body_limit = r->max_body_bytes;
    r->content_length = 0;
    r->started = r->skip_body = false;
    r->n_hosts = 0;
    r->in_value = false;
    r->name_len = r->value_len = 0;
    r->stop = HTTP_STEP_MORE;
}

bool http_reader_started(const http_reader *r)
{
    return r->started;
}

static http_step bad(http_reader *r)
{
    enum http_errno code = HTTP_PARSER_ERRNO(&r->parser);
    if (code == HPE_HEADER_OVERFLOW) {
        refuse(r, 431, "the headers are too long");
    } else {
        refuse(r, 400, http_errno_description(code)); /* unless a callback has said why */
    }
    return HTTP_STEP_BAD;
}

size_t http_reader_push(http_reader *r, const char *data, size_t n, http_step *step)
{
    if (r->fault.status != 0 || r->stop == HTTP_STEP_DONE || n == 0) {
        *step = r->fault.status != 0        ? HTTP_STEP_BAD
                : r->stop == HTTP_STEP_DONE ? HTTP_STEP_DONE
                                            : HTTP_STEP_MORE;
        return 0;
    }
    r->stop = HTTP_STEP_MORE;
    if (HTTP_PARSER_ERRNO(&r->parser) == HPE_PAUSED) {
        http_parser_pause(&r->parser, 0);
    }
    size_t used = http_parser_execute(&r->parser, &settings, data, n);
    enum http_errno code = HTTP_PARSER_ERRNO(&r->parser);
    r->started = r->started || used > 0;
    if (code == HPE_OK) {
        *step = HTTP_STEP_MORE;
    } else if (code == HPE_PAUSED) {
        *step = r->stop;
    } else {
        *step = bad(r);
    }
    return used;
}
