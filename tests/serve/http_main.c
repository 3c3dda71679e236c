/*
 * http_main [NAME=VALUE …]: a server over serve/http.h alone, for http_script.py. NAME is a number of
 * http_config, or host, or unix. It prints "listening URL", then what happens, a line each:
 *
 *   head METHOD PATH | gone PATH | slow PATH 0|1 | exchange METHOD PATH STATUS BYTES GONE ID USER
 *
 * Routes (any method):
 *   /echo                 the body back
 *   /headers              the kept headers and the request's id, "name=value" lines
 *   /stream/N/BYTES/GAP   N events of BYTES bytes, one each GAP ms (0: all at once)
 *   /polite/N/BYTES/GAP   the same, but it rests while its reader is slow
 *   /slow                 answered when "answer" comes on stdin; all that wait, each with the number it has had
 *                         in the order of arrival
 *   /refuse/STATUS        refused at its head
 *   /limit/BYTES          as /echo, with that limit
 *   /named/NAME           as /echo, for the key NAME
 * On stdin: "answer", "stats" (prints "stats CONNECTIONS WAITING BODY", BODY: the bytes of bodies that are held),
 * "drain", "fail N" (the N-th allocation from now on fails; prints "fails"); its end ends the server.
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "serve/http.h"
#include "serve/http_int.h" /* the budget of bodies */

typedef struct waiting { /* a request that is answered later */
    http_conn *conn;
    struct waiting *prev, *next;
    struct event *timer; /* of a stream */
    char path[64];
    unsigned long n, bytes, gap_ms, number;
    bool rests;
} waiting;

static struct event_base *base;
static http_server *server;
static waiting list = {.prev = &list, .next = &list};
static unsigned long n_slow;

static void end(waiting *w)
{
    w->prev->next = w->next;
    w->next->prev = w->prev;
    if (w->timer) {
        event_free(w->timer);
    }
    free(w);
}

static void on_gone(void *ctx)
{
    waiting *w = ctx;
    printf("gone %s\n", w->path);
    end(w);
}

static void on_slow(void *ctx, bool is_slow)
{
    waiting *w = ctx;
    printf("slow %s %d\n", w->path, is_slow);
    w->rests = is_slow && strncmp(w->path, "/polite/", 8) == 0;
    if (!w->rests && !evtimer_pending(w->timer, NULL)) {
        event_active(w->timer, 0, 0);
    }
}

static void send_event(const waiting *w)
{
    char *text = malloc(w->bytes + 16);
    int n = sprintf(text, "data: ");
    memset(text + n, 'x', w->bytes);
    memcpy(text + n + w->bytes, "\n\n", 2);
    http_conn_stream_write(w->conn, text, w->bytes + (size_t)n + 2);
    free(text);
}

static void on_stream_timer(evutil_socket_t fd, short what, void *ctx)
{
    waiting *w = ctx;
    const struct timeval gap = {(time_t)(w->gap_ms / 1000), (suseconds_t)(w->gap_ms % 1000 * 1000)};
    do {
        if (w->n == 0) {
            http_conn_stream_end(w->conn);
            end(w);
            return;
        }
        send_event(w);
        w->n--;
    } while (w->gap_ms == 0);
    if (!w->rests) {
        evtimer_add(w->timer, &gap);
    }
}

static waiting *wait_for(http_conn *c, const http_request *r)
{
    waiting *w = calloc(1, sizeof *w);
    w->conn = c;
    snprintf(w->path, sizeof w->path, "%s", buf_str(&r->path));
    w->next = &list;
    w->prev = list.prev;
    list.prev->next = w;
    list.prev = w;
    http_conn_on_gone(c, on_gone, w);
    http_conn_on_slow(c, on_slow, w);
    return w;
}

static void reply(http_conn *c, int http_status, const char *body, size_t len)
{
    http_conn_reply(c, &(http_reply){.status = http_status,
                                     .content_type = "text/plain",
                                     .allow = http_status == 204 || http_status == 405 ? "GET, HEAD" : NULL,
                                     .body = body,
                                     .body_len = len});
}

static void reply_headers(http_conn *c, const http_request *r)
{
    static const char *const names[] = {
#define X(name) name,
        HTTP_KEPT_HEADERS(X)
#undef X
    };
    buf out = {0};
    for (size_t i = 0; i < HTTP_N_KEPT; i++) {
        const char *value = http_request_header(r, names[i]);
        if (value) {
            buf_printf(&out, "%s=%s\n", names[i], value);
        }
    }
    buf_printf(&out, "id=%s\n", http_conn_request_id(c));
    reply(c, 200, buf_str(&out), out.len);
    buf_release(&out);
}

static void on_head(void *ctx, http_conn *c, const http_request *r)
{
    int http_status;
    size_t limit;
    char name[100];
    printf("head %s %s\n", http_method_str(r->method), buf_str(&r->path));
    if (sscanf(buf_str(&r->path), "/refuse/%d", &http_status) == 1) {
        reply(c, http_status, "refused", 7);
    } else if (sscanf(buf_str(&r->path), "/limit/%zu", &limit) == 1) {
        http_conn_limit_body(c, limit);
    } else if (sscanf(buf_str(&r->path), "/named/%99[^\n]", name) == 1) {
        http_conn_set_user(c, name);
    } else if (r->method == HTTP_OPTIONS) {
        reply(c, 204, "no body may follow", 18);
    }
}

static void on_request(void *ctx, http_conn *c, const http_request *r)
{
    const char *path = buf_str(&r->path);
    waiting w;
    if (sscanf(path, "/%*[a-z]/%lu/%lu/%lu", &w.n, &w.bytes, &w.gap_ms) == 3) {
        waiting *s = wait_for(c, r);
        s->n = w.n;
        s->bytes = w.bytes;
        s->gap_ms = w.gap_ms;
        s->timer = evtimer_new(base, on_stream_timer, s);
        if (!s->timer) {
            reply(c, 503, "", 0);
            end(s);
            return;
        }
        http_conn_stream_begin(c);
        on_stream_timer(-1, 0, s);
    } else if (strcmp(path, "/slow") == 0) {
        wait_for(c, r)->number = n_slow++;
    } else if (strcmp(path, "/headers") == 0) {
        reply_headers(c, r);
    } else {
        reply(c, 200, buf_str(&r->body), r->body.len);
    }
}

static void on_exchange(void *ctx, const http_exchange *x)
{
    printf("exchange %s %s %d %llu %d %s %s\n", x->method, x->path, x->status,
           (unsigned long long)x->bytes_out, x->gone, x->id, x->user);
}

static void answer_all(void)
{
    for (waiting *w = list.next, *next; w != &list; w = next) {
        char body[24];
        next = w->next;
        if (strcmp(w->path, "/slow") == 0) {
            int n = snprintf(body, sizeof body, "%lu", w->number);
            reply(w->conn, 200, body, (size_t)n);
            end(w);
        }
    }
}

static void command(const char *line)
{
    size_t n = 0;
    if (strcmp(line, "answer") == 0) {
        answer_all();
    } else if (strcmp(line, "drain") == 0) {
        http_server_drain(server);
    } else if (strncmp(line, "fail ", 5) == 0) {
        mem_fail_at(strtoul(line + 5, NULL, 10), false);
        printf("fails\n");
    } else if (strcmp(line, "stats") == 0) {
        for (const waiting *w = list.next; w != &list; w = w->next) {
            n++;
        }
        printf("stats %zu %zu %zu\n", http_server_n_connections(server), n, server->bodies->used);
    }
}

/* Without libevent's buffers: it must work while memory fails. */
static void on_stdin(evutil_socket_t fd, short what, void *ctx)
{
    static char text[4096];
    static size_t n;
    ssize_t got = read(fd, text + n, sizeof text - 1 - n);
    if (got <= 0) {
        event_base_loopbreak(base);
        return;
    }
    n += (size_t)got;
    text[n] = '\0';
    for (char *end; (end = strchr(text, '\n'));) {
        *end = '\0';
        command(text);
        n -= (size_t)(end + 1 - text);
        memmove(text, end + 1, n + 1);
    }
}

static bool set_number(http_config *cfg, const char *name, size_t value)
{
    static byte_budget bodies = {.max = HTTP_BODY_BUDGET};
    const struct {
        const char *name;
        size_t *size;
        int *seconds;
    } fields[] = {
        {"max_body_bytes", &cfg->max_body_bytes, NULL},
        {"max_connections", &cfg->max_connections, NULL},
        {"head_s", NULL, &cfg->head_s},
        {"body_s", NULL, &cfg->body_s},
        {"idle_s", NULL, &cfg->idle_s},
        {"write_s", NULL, &cfg->write_s},
        {"linger_s", NULL, &cfg->linger_s},
        {"max_unsent", &cfg->max_unsent, NULL},
        {"body_budget", &bodies.max, NULL},
        {"pause_at", &cfg->pause_at, NULL},
        {"continue_at", &cfg->continue_at, NULL},
    };
    cfg->bodies = &bodies;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(fields[i].name, name) == 0) {
            if (fields[i].size) {
                *fields[i].size = value;
            } else {
                *fields[i].seconds = (int)value;
            }
            return true;
        }
    }
    return false;
}

static bool set_option(http_config *cfg, char *option)
{
    char *value = strchr(option, '=');
    if (!value) {
        return false;
    }
    *value++ = '\0';
    if (strcmp(option, "host") == 0) {
        cfg->host = value;
    } else if (strcmp(option, "unix") == 0) {
        cfg->unix_path = value;
    } else {
        return set_number(cfg, option, strtoul(value, NULL, 10));
    }
    return true;
}

int main(int argc, char **argv)
{
    static int log_fd = STDERR_FILENO;
    err e;
    http_config cfg = http_config_default();
    cfg.handler = (http_handler){on_head, on_request, NULL};
    cfg.on_exchange = on_exchange;
    for (int i = 1; i < argc; i++) {
        if (!set_option(&cfg, argv[i])) {
            fprintf(stderr, "what is %s?\n", argv[i]);
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    log_set_sink(log_fd_sink, &log_fd, LOG_INFO);
    event_set_mem_functions(mem_alloc, mem_realloc, mem_free);
    base = event_base_new();
    if (http_server_open(base, &cfg, &server, &e) != ST_OK) {
        fprintf(stderr, "%s\n", e.msg);
        event_base_free(base);
        return 1;
    }
    struct event *in = event_new(base, STDIN_FILENO, EV_READ | EV_PERSIST, on_stdin, NULL);
    event_add(in, NULL);
    printf("listening %s\n", http_server_url(server));
    event_base_dispatch(base);
    http_server_free(server);
    event_free(in);
    event_base_free(base);
    return 0;
}
