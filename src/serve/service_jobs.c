/* model_service: its jobs. */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "serve/held_bytes.h"
#include "serve/model_service_int.h"

#define MEAN_WEIGHT 0.2 /* of the newest job in the mean time */

/*
 * Entries.
 */
static size_t bucket(const char *id, size_t len)
{
    return hash64_keyed(id, len) % SERVICE_HASH_BUCKETS;
}

service_entry *service_entry_find(const model_service *s, const char *id, size_t len)
{
    service_entry *en = s->hash[bucket(id, len)];
    while (en && (en->id_len != len || memcmp(en->id, id, len) != 0)) {
        en = en->next_hashed;
    }
    return en;
}

static void list_remove(model_service *s, service_entry *en)
{
    entry_list *list = &s->at[en->place];
    if (en->prev) {
        en->prev->next = en->next;
    } else {
        list->first = en->next;
    }
    if (en->next) {
        en->next->prev = en->prev;
    } else {
        list->last = en->prev;
    }
    en->prev = en->next = NULL;
}

/* Those to be sent again stand in the order in which they were first sent. */
static service_entry *last_before(const model_service *s, const service_entry *en, entry_place place)
{
    service_entry *before = s->at[place].last;
    while (place == ENTRY_AGAIN && before && before->serial > en->serial) {
        before = before->prev;
    }
    return before;
}

static void list_add(model_service *s, service_entry *en, entry_place place)
{
    entry_list *list = &s->at[place];
    en->place = place;
    en->prev = last_before(s, en, place);
    en->next = en->prev ? en->prev->next : list->first;
    *(en->prev ? &en->prev->next : &list->first) = en;
    *(en->next ? &en->next->prev : &list->last) = en;
}

/* Out of its place and of what is counted there. */
static void leave_place(model_service *s, service_entry *en)
{
    if (en->turn.of) {
        fair_queue_remove(&s->queue, &en->turn);
    }
    s->n_full -= en->place == ENTRY_SENT && !en->light;
    s->n_again -= en->place == ENTRY_AGAIN && !en->light;
    list_remove(s, en);
}

void service_entry_move(model_service *s, service_entry *en, entry_place place)
{
    leave_place(s, en);
    list_add(s, en, place);
    s->n_full += place == ENTRY_SENT && !en->light;
    s->n_again += place == ENTRY_AGAIN && !en->light;
}

static void release_text(model_service *s, service_entry *en)
{
    service_job *job = en->job;
    buf_release(&job->line);
    held_bytes_free(job->behind);
    job->behind = NULL;
    s->kept_bytes -= en->kept_bytes;
    en->kept_bytes = 0;
}

static void forget(model_service *s, service_entry *en)
{
    service_entry **at = &s->hash[bucket(en->id, en->id_len)];
    while (*at != en) {
        at = &(*at)->next_hashed;
    }
    *at = en->next_hashed;
    if (en->light) {
        s->n_light--;
        s->light_bytes -= en->n_bytes;
    }
    if (en->job) {
        en->job->entry = NULL;
        release_text(s, en);
    }
    reply_journal_release(&en->told);
    mem_free(en);
}

void service_entry_end(model_service *s, service_entry *en)
{
    if (en->place == ENTRY_SENT && !en->light) {
        double t = clock_ms_between(en->sent_ns, service_now(s)) / 1000;
        s->job_s = s->job_s > 0 ? s->job_s + MEAN_WEIGHT * (t - s->job_s) : t;
    }
    leave_place(s, en);
    forget(s, en);
}

void service_entry_lose(model_service *s, service_entry *en, status why, const char *text)
{
    leave_place(s, en);
    if (!en->job) {
        forget(s, en);
        return;
    }
    en->lost = why;
    en->lost_text = text;
    list_add(s, en, ENTRY_LOST);
    event_active(s->lost, EV_TIMEOUT, 1);
}

void service_lose_all(model_service *s, entry_place place, status why, const char *text)
{
    while (s->at[place].first) {
        service_entry_lose(s, s->at[place].first, why, text);
    }
}

void service_on_lost(evutil_socket_t fd, short what, void *ctx)
{
    model_service *s = ctx;
    service_entry *en;
    while ((en = s->at[ENTRY_LOST].first)) {
        service_job *job = en->job;
        err why;
        err_set(&why, en->lost, NULL, "%s", en->lost_text);
        leave_place(s, en);
        forget(s, en);
        job->on_lost(job->ctx, &why);
    }
    service_tell(s);
}

void service_entries_free(model_service *s)
{
    for (int place = 0; place < ENTRY_PLACES; place++) {
        while (s->at[place].first) {
            service_entry *en = s->at[place].first;
            leave_place(s, en);
            forget(s, en);
        }
    }
}

/*
 * To the worker.
 */
void service_put_op(model_service *s, const service_entry *en, wire_op op)
{
    buf line = {0};
    wire_request r = wire_request_default(op);
    if (en) {
        r.id = (wire_string){en->id, en->id_len};
    }
    if (wire_request_put(&line, &r) == ST_OK) {
        s->n_lines++;
        worker_conn_write(s->conn, line.data, line.len);
    } else {
        worker_conn_kill(s->conn, WORKER_NO_MEMORY, "no memory for an op to the worker");
    }
    buf_release(&line);
}

static uint64_t ms_left(const service_job *job, uint64_t now_ns)
{
    return job->deadline_ns > now_ns ? (job->deadline_ns - now_ns + SERVICE_NS_PER_MS - 1) / SERVICE_NS_PER_MS
                                     : 0;
}

static const char timed_out[] = "the deadline has passed while the request was waiting";
static const char no_memory[] = "out of memory";

/* What was not known of the model when it was submitted is now. */
static status complete_line(const model_service *s, service_job *job)
{
    status (*complete)(void *, const service_model *) = job->complete;
    job->complete = NULL;
    return complete ? complete(job->ctx, &s->model) : ST_OK;
}

/* What a line needs only when it is sent. */
static status put_rest(const model_service *s, service_entry *en, uint64_t left_ms)
{
    buf *line = &en->job->line;
    if (en->light) {
        return ST_OK;
    }
    status st = en->job->deadline_ns != 0 ? wire_request_put_deadline(line, left_ms) : ST_OK;
    return st == ST_OK ? reply_journal_put_resume(&en->told, line) : st;
}

/* Takes it off again: of the len bytes that the line had, the last two are its end. */
static void drop_rest(buf *line, size_t len)
{
    static const char end[] = "}\n";
    if (line->len != len) {
        buf_truncate(line, len - (sizeof end - 1));
        buf_append_str(line, end); /* there is room for it */
    }
}

static void write_line(model_service *s, service_job *job)
{
    s->n_lines++;
    worker_conn_write(s->conn, job->line.data, job->line.len);
    if (job->behind) {
        worker_conn_write_held(s->conn, job->behind);
        job->behind = NULL;
    }
}

static void keep_line(model_service *s, service_entry *en)
{
    if (en->light && !en->job->resend) {
        buf_release(&en->job->line);
    } else if (!en->light && en->kept_bytes == 0) {
        en->kept_bytes = en->job->line.len;
        s->kept_bytes += en->kept_bytes;
    }
}

static void count_sent(model_service *s, service_entry *en, uint64_t now_ns)
{
    if (en->serial == 0) {
        en->serial = ++s->n_sent;
        en->sent_ns = now_ns;
    } else if (!en->light) {
        s->n_resumed++;
        s->n_resumed_tokens += en->told.n_ids;
    }
}

void service_send(model_service *s, service_entry *en)
{
    service_job *job = en->job;
    uint64_t now_ns = service_now(s), left_ms = ms_left(job, now_ns);
    if (job->deadline_ns != 0 && left_ms == 0) {
        service_entry_lose(s, en, ST_TIMEOUT, timed_out);
        return;
    }
    if (complete_line(s, job) != ST_OK) {
        service_entry_lose(s, en, ST_NOMEM, no_memory);
        return;
    }
    size_t len = job->line.len;
    if (put_rest(s, en, left_ms) != ST_OK) {
        drop_rest(&job->line, len);
        service_entry_lose(s, en, ST_NOMEM, no_memory);
        return;
    }
    service_entry_move(s, en, ENTRY_SENT);
    count_sent(s, en, now_ns);
    write_line(s, job);
    drop_rest(&job->line, len);
    keep_line(s, en);
    if (en->paused && !en->marked) {
        service_put_op(s, en, WIRE_PAUSE);
    }
}

static size_t max_full(const model_service *s)
{
    return SERVICE_JOBS_PER_LANE * (size_t)s->model.lanes;
}

/* What ranks behind it does not hold it back. */
static bool may_send(const model_service *s, const fair_item *next)
{
    size_t n_before = s->n_again, n_full = s->n_full + s->n_again;
    if (n_full < max_full(s)) {
        return true;
    }
    if (n_full >= SERVICE_URGENT_PER_LANE * (size_t)s->model.lanes) {
        return false;
    }
    for (const service_entry *en = s->at[ENTRY_SENT].first; en; en = en->next) {
        n_before += !en->light && en->turn.rank <= next->rank;
    }
    return n_before < max_full(s);
}

static void send_light(model_service *s)
{
    for (service_entry *en = s->at[ENTRY_WAITING].first, *next; en; en = next) {
        next = en->next;
        if (en->light) {
            service_send(s, en);
        }
    }
}

void service_dispatch(model_service *s)
{
    const fair_item *first;
    if (s->life != LIFE_READY) {
        return;
    }
    service_again_dispatch(s);
    while (!s->draining && (first = fair_queue_next(&s->queue)) != NULL && may_send(s, first) &&
           !service_again_holds(s, ((const service_entry *)first)->job)) {
        service_send(s, (service_entry *)fair_queue_pop(&s->queue));
    }
    if (!s->draining) {
        send_light(s);
    }
    service_want_tick(s);
}

/* The frames of this one do not count any more; its terminal one is still to come. */
static service_job *give_up(model_service *s, service_entry *en)
{
    service_job *job = en->job;
    release_text(s, en);
    en->job = NULL;
    job->entry = NULL;
    return job;
}

static bool expired(const service_entry *en, uint64_t now_ns)
{
    return en->job && en->job->deadline_ns != 0 && en->job->deadline_ns <= now_ns;
}

/* A light one that the worker has: nobody else watches it. True if there was one: the list may be another. */
static bool expire_light(model_service *s, uint64_t now_ns)
{
    for (service_entry *en = s->at[ENTRY_SENT].first; en; en = en->next) {
        if (en->light && expired(en, now_ns)) {
            service_job *job = give_up(s, en);
            err why;
            err_set(&why, ST_TIMEOUT, NULL, "the deadline has passed");
            job->on_lost(job->ctx, &why);
            return true;
        }
    }
    return false;
}

void service_sweep(model_service *s, uint64_t now_ns)
{
    static const entry_place places[] = {ENTRY_WAITING, ENTRY_AGAIN};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        for (service_entry *en = s->at[places[i]].first, *next; en; en = next) {
            next = en->next;
            if (expired(en, now_ns)) {
                service_entry_lose(s, en, ST_TIMEOUT, timed_out);
            }
        }
    }
    while (expire_light(s, now_ns)) {
    }
}

/*
 * From the owners.
 */
static status enqueue(model_service *s, service_entry *en, err *e)
{
    const service_limits *lim = &s->cfg.limits;
    size_t held =
        s->queue.n_bytes + s->kept_bytes; /* may be more than the limit: `complete` makes lines longer */
    if (!en->light && (held > lim->max_waiting_bytes || en->n_bytes > lim->max_waiting_bytes - held)) {
        return err_set(e, ST_QUEUE_FULL, NULL, "too many requests are waiting or running (%zu bytes)", held);
    }
    if (!en->light) {
        return fair_queue_push(&s->queue, &en->turn, e);
    }
    if (s->n_light >= lim->max_waiting || en->n_bytes > lim->max_light_bytes - s->light_bytes) {
        return err_set(e, ST_QUEUE_FULL, NULL, "too many requests are waiting (%zu)", s->n_light);
    }
    s->n_light++;
    s->light_bytes += en->n_bytes;
    return ST_OK;
}

static status check_submit(model_service *s, const service_job *job, size_t id_len, err *e)
{
    if (s->draining) {
        return err_set(e, ST_DRAINING, NULL, "the server is shutting down");
    }
    if (service_entry_find(s, job->id, id_len)) {
        return err_set(e, ST_BAD_REQUEST, NULL, "the request id %s is in use", job->id);
    }
    if (s->life == LIFE_FAILED && service_now(s) < s->start_ns) {
        return err_set(e, s->failed_code, NULL, "%s", s->failure);
    }
    return ST_OK;
}

status service_submit(model_service *s, service_job *job, err *e)
{
    size_t id_len = strlen(job->id);
    status st = check_submit(s, job, id_len, e);
    service_entry *en = st == ST_OK ? mem_calloc(1, sizeof *en) : NULL;
    if (!en) {
        return st == ST_OK ? err_set(e, ST_NOMEM, NULL, no_memory) : st;
    }
    en->light = job->light;
    en->n_bytes = en->turn.n_bytes = job->line.len;
    en->turn.key = job->key;
    en->turn.rank = (int64_t)service_now(s) - job->priority * (int64_t)SERVICE_AGEING_NS;
    en->id_len = id_len;
    memcpy(en->id, job->id, id_len);
    st = enqueue(s, en, e);
    if (st != ST_OK) {
        mem_free(en);
        return st;
    }
    size_t b = bucket(en->id, id_len);
    en->next_hashed = s->hash[b];
    s->hash[b] = en;
    en->job = job;
    job->entry = en;
    list_add(s, en, ENTRY_WAITING);
    if (s->life == LIFE_FAILED) {
        service_life_asked(s);
    }
    service_dispatch(s);
    service_want_tick(s);
    return ST_OK;
}

/* SENT. A light one is not worth it: it ends by itself. */
static void send_cancel(model_service *s, service_entry *en)
{
    if (!en->light && en->cancel_ns == 0) {
        en->cancel_ns = service_now(s);
        service_put_op(s, en, WIRE_CANCEL);
        en->cancel_line = s->n_lines;
        en->cancel_end = worker_conn_written(s->conn);
        service_want_tick(s);
    }
}

void service_cancel(model_service *s, service_job *job)
{
    service_entry *en = job->entry;
    if (!en) {
        return;
    }
    s->n_cancelled += en->cancel_ns == 0 && en->place != ENTRY_LOST;
    give_up(s, en);
    if (en->place == ENTRY_SENT) {
        send_cancel(s, en);
    } else {
        leave_place(s, en);
        forget(s, en);
    }
}

void service_stop(model_service *s, service_job *job)
{
    service_entry *en = job->entry;
    if (!en || en->place == ENTRY_LOST || en->cancel_ns != 0 || (en->place == ENTRY_SENT && en->light)) {
        return;
    }
    s->n_cancelled++;
    if (en->place == ENTRY_SENT) {
        send_cancel(s, en);
    } else {
        service_entry_lose(s, en, ST_CANCELLED, "the request was cancelled");
    }
}

void service_pause(model_service *s, service_job *job, bool paused)
{
    service_entry *en = job->entry;
    if (!en || en->light || en->paused == paused) {
        return;
    }
    en->paused = paused;
    if (en->place == ENTRY_SENT && !en->marked) { /* a suspect goes on, for the few tokens that clear it */
        service_put_op(s, en, paused ? WIRE_PAUSE : WIRE_CONTINUE);
    }
}

size_t service_position(const model_service *s, const service_job *job, double *estimate_s)
{
    const service_entry *en = job->entry;
    size_t n = en && en->turn.of ? s->n_again + fair_queue_position(&s->queue, &en->turn) : 0;
    for (const service_entry *at = en; at && en->place == ENTRY_AGAIN; at = at->prev) {
        n += !at->light;
    }
    if (estimate_s) {
        /* so many leave the worker in the mean time of one */
        *estimate_s = s->model.lanes > 0 ? (double)n * s->job_s / (double)max_full(s) : 0;
    }
    return n;
}
