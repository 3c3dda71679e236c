#include "worker/alloc_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/worker.h"

#define PATIENCE_MS 60000

static const char layout[] =
    "{%- if tools %}<tools>{% for t in tools %}{{ t | tojson }}\n{% endfor %}</tools>{% endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>{% endif %}{% "
    "endif %}";

typedef struct start {
    alloc_rig *r;
    const char *model, *folder;
    int in, out;
} start;

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "alloc_rig: %s\n", what);
        abort();
    }
}

static void *run(void *arg)
{
    start *s = arg;
    worker_config cfg = worker_config_default(s->model);
    cfg.max_sessions = 4;
    cfg.instance.context = 512;
    cfg.instance.threads = 1;
    cfg.in_fd = s->in;
    cfg.out_fd = s->out;
    cfg.store_dir = s->folder;
    cfg.chat_template = layout;
    cfg.tool_format = "hermes";
    cfg.sandbox = false;
    s->r->rc = worker_run(&cfg);
    close(s->in);
    close(s->out);
    free(s);
    return NULL;
}

/*
 * Frames
 */
static void append(char **to, size_t *n, const char *data, size_t len)
{
    *to = realloc(*to, *n + len + 1);
    must(*to != NULL, "no memory");
    memcpy(*to + *n, data, len);
    *n += len;
    (*to)[*n] = '\0';
}

static const char *find(const char *text, size_t n, const char *what)
{
    return memmem(text, n, what, strlen(what));
}

/* Without what time, or what is at hand in memory, has a part in. */
static void append_lasting(char **to, size_t *n, const char *line, size_t len)
{
    static const char *const passing[] = {"prefill_ms",
                                          "decode_ms",
                                          "total_ms",
                                          "prefill_tok_s",
                                          "decode_tok_s",
                                          "queue_ms",
                                          "ttft_ms",
                                          "reused_prompt_tokens",
                                          "prefilled_prompt_tokens",
                                          "cached_prompt_tokens",
                                          "session_reset_reason",
                                          "cache_miss",
                                          "preemptions",
                                          "in_memory",
                                          "stored",
                                          "prefilled"};
    for (size_t i = 0; i < len;) {
        size_t skip = 0;
        for (size_t k = 0; line[i] == '"' && k < sizeof passing / sizeof passing[0]; k++) {
            size_t n_key = strlen(passing[k]);
            if (len - i > n_key + 3 && memcmp(line + i + 1, passing[k], n_key) == 0 &&
                memcmp(line + i + 1 + n_key, "\":", 2) == 0) {
                skip = n_key + 3;
            }
        }
        if (skip == 0) {
            append(to, n, line + i++, 1);
            continue;
        }
        bool object = line[i + skip] == '{';
        for (i += skip; i < len && line[i] != '}' && (object || line[i] != ','); i++) {
        }
        i += object;
        i += i < len && line[i] == ',';
    }
}

/* The number behind a key, or 0. */
static size_t number_of(const char *line, size_t n, const char *key)
{
    const char *at = find(line, n, key);
    return at ? (size_t)strtoull(at + strlen(key), NULL, 10) : 0;
}

/* Whose frame it is: ALLOC_MAX_REQUESTS = nobody's that waits for one. *rest: behind the id. */
static size_t whose(const alloc_rig *r, const char *line, size_t n, const char **rest)
{
    static const char start_of_id[] = "{\"id\":\"";
    size_t n_start = sizeof start_of_id - 1;
    const char *id = "";
    size_t n_id = 0;
    *rest = line + 1;
    if (n > n_start && memcmp(line, start_of_id, n_start) == 0) {
        id = line + n_start;
        n_id = (size_t)((const char *)memchr(id, '"', n - n_start) - id);
        *rest = id + n_id + 2;
    }
    for (size_t i = 0; i < r->n; i++) {
        if (!r->all[i].last && strlen(r->ids[i]) == n_id && memcmp(r->ids[i], id, n_id) == 0) {
            return i;
        }
    }
    return ALLOC_MAX_REQUESTS;
}

static bool is_last(const char *rest)
{
    static const char *const others[] = {"\"accepted\"", "\"token\"", "\"delta\"", "\"progress\"",
                                         "\"prompt_logprobs\""};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strncmp(rest, others[i], strlen(others[i])) == 0) {
            return false;
        }
    }
    return true;
}

static void take_frame(alloc_rig *r, const char *line, size_t n, const char *attached, size_t n_attached)
{
    const char *rest;
    size_t i = whose(r, line, n, &rest);
    if (i == ALLOC_MAX_REQUESTS) {
        snprintf(r->shown, sizeof r->shown, "%.*s", (int)n, line);
        r->fault = "a frame that nobody waits for";
        return;
    }
    heard *h = &r->all[i];
    if (!is_last(rest)) {
        if (strncmp(rest, "\"progress\"", 10) != 0) {
            append_lasting(&h->body, &h->n_body, line, n + 1);
        }
        return;
    }
    append_lasting(&h->last, &h->n_last, line, n);
    h->failed = strncmp(rest, "\"error\"", 7) == 0;
    const char *code = find(line, n, "\"code\":\"");
    if (h->failed && code) {
        snprintf(h->code, sizeof h->code, "%.*s", (int)strcspn(code + 8, "\""), code + 8);
    }
    if (n_attached > 0) {
        h->attached = NULL;
        append(&h->attached, &h->n_attached, attached, n_attached);
    }
}

/* All whole frames that there are. */
static void take_frames(alloc_rig *r)
{
    size_t at = 0;
    for (char *end; !r->fault && (end = memchr(r->bytes + at, '\n', r->n_bytes - at)) != NULL;) {
        size_t n = (size_t)(end - (r->bytes + at)), n_attached = number_of(r->bytes + at, n, "\"attach\":");
        if (at + n + 1 + n_attached > r->n_bytes) {
            break;
        }
        take_frame(r, r->bytes + at, n, end + 1, n_attached);
        at += n + 1 + n_attached;
    }
    memmove(r->bytes, r->bytes + at, r->n_bytes - at);
    r->n_bytes -= at;
}

/* One read, and what it brings. */
static bool hear_once(alloc_rig *r)
{
    struct pollfd p = {.fd = r->from, .events = POLLIN};
    if (r->n_bytes == r->cap_bytes) {
        r->cap_bytes = r->cap_bytes ? 2 * r->cap_bytes : 1 << 16;
        r->bytes = realloc(r->bytes, r->cap_bytes);
        must(r->bytes != NULL, "no memory");
    }
    if (poll(&p, 1, PATIENCE_MS) <= 0) {
        r->fault = "it is silent";
        return false;
    }
    ssize_t n = read(r->from, r->bytes + r->n_bytes, r->cap_bytes - r->n_bytes);
    if (n <= 0) {
        r->over = true;
        r->fault = "it is gone";
        return false;
    }
    r->n_bytes += (size_t)n;
    take_frames(r);
    return !r->fault;
}

void alloc_rig_begin(alloc_rig *r)
{
    for (size_t i = 0; i < r->n; i++) {
        must(r->all[i].last != NULL || r->fault, "something is unanswered");
        free(r->all[i].body);
        free(r->all[i].last);
        free(r->all[i].attached);
    }
    memset(r->all, 0, sizeof r->all);
    r->n = 0;
}

size_t alloc_rig_expect(alloc_rig *r, const char *id)
{
    must(r->n < ALLOC_MAX_REQUESTS, "too many requests");
    r->ids[r->n] = id;
    return r->n++;
}

void alloc_rig_send(alloc_rig *r, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t took = write(r->to, bytes, n);
        must(took > 0, "it does not read");
        bytes += took;
        n -= (size_t)took;
    }
}

bool alloc_rig_hear_some(alloc_rig *r, size_t request)
{
    while (r->all[request].n_body == 0 && !r->all[request].last) {
        if (!hear_once(r)) {
            return false;
        }
    }
    return true;
}

bool alloc_rig_hear(alloc_rig *r)
{
    for (size_t i = 0; i < r->n; i++) {
        while (!r->all[i].last) {
            if (!hear_once(r)) {
                if (r->shown[0] == '\0') {
                    snprintf(r->shown, sizeof r->shown, "request %zu, \"%s\", has no answer", i, r->ids[i]);
                }
                return false;
            }
        }
    }
    return true;
}

/*
 * Start and end
 */
void alloc_rig_open(alloc_rig *r, const char *model, const char *folder)
{
    int in[2], out[2];
    memset(r, 0, sizeof *r);
    start *s = malloc(sizeof *s);
    must(s && pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "no pipes");
    (void)fcntl(in[0], F_SETPIPE_SZ, 1 << 20);
    *s = (start){r, model, folder, in[0], out[1]};
    r->to = in[1];
    r->from = out[0];
    must(pthread_create(&r->thread, NULL, run, s) == 0, "no thread");
    size_t ready = alloc_rig_expect(r, "");
    must(alloc_rig_hear(r) && strncmp(r->all[ready].last, "{\"ready\"", 8) == 0, "it does not start");
}

int alloc_rig_close(alloc_rig *r)
{
    alloc_rig_begin(r);
    close(r->to);
    must(pthread_join(r->thread, NULL) == 0, "it does not end");
    close(r->from);
    free(r->bytes);
    return r->rc;
}
