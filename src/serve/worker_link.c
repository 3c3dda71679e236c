#include "serve/worker_link.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "serve/worker_proc.h"
#include "wire/line.h"

#define SERVE_MAX_WAITING 256u
#define DRAIN_S 1 /* between the end of a worker and the end of its stdout, whichever comes first */

typedef enum link_state { LINK_DOWN, LINK_STARTING, LINK_READY, LINK_LOSING, LINK_STOPPED } link_state;

struct worker_link {
    worker_link_config cfg;
    struct event_base *base; /* borrowed */
    link_state state;
    bool stopping;
    unsigned n_started, n_failed_starts;
    bool was_ready;   /* this worker */
    bool load_failed; /* this worker has said so */
    uint64_t ready_ns;
    worker_model model;
    char why[512]; /* what ended this worker, as far as is known */

    /* owned */
    pid_t pid; /* 0 = none, or reaped */
    struct bufferevent *to, *from;
    line_splitter lines;
    struct event *child_signal;
    struct event *timer; /* DOWN: restart; stopping: grace; else DRAIN_S */

    /* jobs, not owned */
    bool busy;           /* the worker computes a reply … */
    worker_job *running; /* … and this job wants it (NULL = dropped) */
    worker_job *first, *last;
    size_t n_waiting, waiting_bytes;
};

/* Reaped means pid 0, which kill would take for our own group. */
static void signal_worker(const worker_link *l, int sig)
{
    if (l->pid > 0) {
        kill(-l->pid, sig);
    }
}

/*
 * Jobs.
 */
static void unlink_job(worker_link *l, worker_job *job)
{
    if (job->prev) {
        job->prev->next = job->next;
    } else {
        l->first = job->next;
    }
    if (job->next) {
        job->next->prev = job->prev;
    } else {
        l->last = job->prev;
    }
    job->prev = job->next = NULL;
    job->place = JOB_OUTSIDE;
    l->n_waiting--;
    l->waiting_bytes -= job->line_bytes;
}

static void send_next(worker_link *l)
{
    worker_job *job = l->first;
    if (l->state != LINK_READY || l->stopping || l->busy || !job) {
        return;
    }
    unlink_job(l, job);
    l->busy = true;
    l->running = job;
    job->place = JOB_RUNNING;
    if (bufferevent_write(l->to, job->line.data, job->line.len) != 0) {
        snprintf(l->why, sizeof l->why, "out of memory while writing a request");
        signal_worker(l, SIGKILL); /* its end is noticed as any other */
    }
    buf_release(&job->line);
}

static void fail_jobs(worker_link *l, const err *why)
{
    worker_job *job = l->running;
    l->running = NULL;
    l->busy = false;
    if (job) {
        job->place = JOB_OUTSIDE;
        job->on_lost(job->ctx, why);
    }
    while ((job = l->first)) {
        unlink_job(l, job);
        buf_release(&job->line);
        job->on_lost(job->ctx, why);
    }
}

status worker_link_submit(worker_link *l, worker_job *job, err *e)
{
    if (l->stopping || l->state == LINK_STOPPED) {
        return err_set(e, ST_DRAINING, NULL, "the server is shutting down");
    }
    if (l->n_waiting >= SERVE_MAX_WAITING || job->line.len > LINK_MAX_WAITING_BYTES - l->waiting_bytes) {
        return err_set(e, ST_QUEUE_FULL, NULL, "too many requests are waiting (%zu)", l->n_waiting);
    }
    job->place = JOB_WAITING;
    job->line_bytes = job->line.len;
    job->next = NULL;
    job->prev = l->last;
    if (l->last) {
        l->last->next = job;
    } else {
        l->first = job;
    }
    l->last = job;
    l->n_waiting++;
    l->waiting_bytes += job->line_bytes;
    send_next(l);
    return ST_OK;
}

void worker_link_drop(worker_link *l, worker_job *job)
{
    if (job->place == JOB_WAITING) {
        unlink_job(l, job);
        buf_release(&job->line);
    } else if (job->place == JOB_RUNNING) {
        job->place = JOB_OUTSIDE;
        l->running = NULL; /* busy stays: the worker must finish it first */
    }
}

const worker_model *worker_link_model(const worker_link *l)
{
    return l->state == LINK_READY ? &l->model : NULL;
}

/*
 * The end of a worker.
 */
static void set_timer(worker_link *l, int seconds)
{
    const struct timeval tv = {seconds, 0};
    evtimer_del(l->timer);
    evtimer_add(l->timer, &tv);
}

static void close_pipes(worker_link *l)
{
    if (l->to) {
        bufferevent_free(l->to);
    }
    if (l->from) {
        bufferevent_free(l->from);
    }
    l->to = l->from = NULL;
    line_release(&l->lines);
}

static void give_up(worker_link *l)
{
    err why;
    l->state = LINK_STOPPED;
    err_set(&why, ST_WORKER_CRASHED, NULL, "the worker cannot be started");
    fail_jobs(l, &why);
    l->cfg.failed(l->cfg.ctx);
}

/* No process and no pipe is left. */
static void worker_gone(worker_link *l)
{
    uint64_t steady_ns = (uint64_t)LINK_STEADY_S * 1000000000u;
    bool steady = l->was_ready && clock_mono_ns(l->cfg.clock) - l->ready_ns >= steady_ns;
    evtimer_del(l->timer);
    if (l->stopping) {
        l->state = LINK_STOPPED;
        l->cfg.stopped(l->cfg.ctx);
        return;
    }
    l->state = LINK_DOWN;
    l->n_failed_starts = l->was_ready ? 0 : l->n_failed_starts + 1;
    log_emit(LOG_WARN, "serve", "worker=gone was_ready=%d failed_starts=%u cause=\"%s\"", l->was_ready,
             l->n_failed_starts, l->why);
    if ((l->load_failed && l->n_started == 1) || l->n_failed_starts >= LINK_MAX_FAILED_STARTS) {
        give_up(l);
    } else if (steady) {
        worker_link_start(l);
    } else {
        set_timer(l, LINK_RESTART_S);
    }
}

/* STARTING or READY: the worker is of no use any more. */
static void lose_worker(worker_link *l)
{
    err why;
    l->state = LINK_LOSING;
    close_pipes(l);
    err_set(&why, ST_WORKER_CRASHED, NULL, "the worker has crashed");
    fail_jobs(l, &why);
    if (l->pid == 0) {
        worker_gone(l);
    } else if (!l->stopping) {
        set_timer(l, DRAIN_S); /* it has ended, or is about to: why is worth waiting for */
    }
}

static void note_cause(worker_link *l, const char *cause)
{
    if (l->why[0] == '\0') {
        snprintf(l->why, sizeof l->why, "%s", cause);
    }
}

static void describe_exit(int wait_status, char *out, size_t cap)
{
    if (WIFSIGNALED(wait_status)) {
        snprintf(out, cap, "signal %d (%s)", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
    } else {
        snprintf(out, cap, "exit status %d", WEXITSTATUS(wait_status));
    }
}

static void on_child(evutil_socket_t sig, short what, void *ctx)
{
    worker_link *l = ctx;
    siginfo_t info = {0};
    int wait_status = 0;
    char cause[64];
    if (l->pid == 0 || waitid(P_PID, (id_t)l->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
        return;
    }
    signal_worker(l, SIGKILL); /* its children; before the number is free for others */
    waitpid(l->pid, &wait_status, 0);
    l->pid = 0;
    describe_exit(wait_status, cause, sizeof cause);
    note_cause(l, cause);
    if (l->state == LINK_LOSING) {
        worker_gone(l);
    } else {
        set_timer(l, DRAIN_S); /* its last frames are still in the pipe, then EOF comes */
    }
}

static void on_timer(evutil_socket_t fd, short what, void *ctx)
{
    worker_link *l = ctx;
    if (l->state == LINK_DOWN) {
        worker_link_start(l);
    } else if (l->pid != 0) { /* out of patience */
        signal_worker(l, SIGKILL);
    } else {
        lose_worker(l);
    }
}

/*
 * Frames.
 */
static bool broken(worker_link *l, const char *what)
{
    note_cause(l, what);
    return false;
}

static bool take_ready(worker_link *l, const frame_ready *r)
{
    snprintf(l->model.arch, sizeof l->model.arch, "%s", r->arch);
    snprintf(l->model.quant, sizeof l->model.quant, "%s", r->quant);
    l->model.params = r->params;
    l->model.context_length = r->context_length;
    l->model.vocab_size = r->vocab_size;
    l->state = LINK_READY;
    l->was_ready = true;
    l->n_failed_starts = 0;
    l->ready_ns = clock_mono_ns(l->cfg.clock);
    log_emit(LOG_INFO, "serve", "worker=ready pid=%d arch=%s quant=%s context=%d", (int)l->pid, l->model.arch,
             l->model.quant, (int)l->model.context_length);
    l->cfg.ready(l->cfg.ctx);
    send_next(l);
    return true;
}

static bool take_start_error(worker_link *l, const frame *f)
{
    l->load_failed = f->code == ST_LOAD_FAILED;
    note_cause(l, f->text);
    return true; /* it exits by itself */
}

static bool take_reply(worker_link *l, const frame *f)
{
    worker_job *job = l->running;
    if (!l->busy) {
        return broken(l, "broken protocol: a reply without a request");
    }
    if (f->kind != FRAME_TOKEN) {
        l->busy = false;
        l->running = NULL;
        if (job) {
            job->place = JOB_OUTSIDE;
        }
    }
    if (job) {
        job->on_frame(job->ctx, f);
    }
    send_next(l);
    return true;
}

static bool take_frame(worker_link *l, const frame *f)
{
    switch (f->kind) {
    case FRAME_READY:
        return l->state == LINK_STARTING ? take_ready(l, &f->ready)
                                         : broken(l, "broken protocol: a second ready frame");
    case FRAME_ERROR:
        return l->state == LINK_STARTING ? take_start_error(l, f) : take_reply(l, f);
    case FRAME_TOKEN:
    case FRAME_DONE:
        return take_reply(l, f);
    case FRAME_OPENED:
    case FRAME_CLOSED:
    case FRAME_RESET:
        return broken(l, "broken protocol: an answer to an op that was never sent");
    case FRAME_UNKNOWN:
        break; /* of a later protocol */
    }
    return true;
}

static bool on_line(void *ctx, line_kind kind, const char *text, size_t len)
{
    worker_link *l = ctx;
    frame f;
    err e;
    char what[sizeof e.msg + 32];
    if (kind != LINE_TEXT) {
        return broken(l, kind == LINE_TOO_LONG ? "broken protocol: a frame is too long" : "out of memory");
    }
    if (frame_decode(text, len, &f, &e) != ST_OK) {
        snprintf(what, sizeof what, "broken protocol: %s", e.msg);
        return broken(l, what);
    }
    bool ok = l->stopping || take_frame(l, &f);
    frame_release(&f);
    return ok;
}

static void on_read(struct bufferevent *bev, void *ctx)
{
    worker_link *l = ctx;
    struct evbuffer *in = bufferevent_get_input(bev);
    struct evbuffer_iovec v;
    bool ok = true;
    while (ok && evbuffer_peek(in, -1, NULL, &v, 1) >= 1 && v.iov_len > 0) {
        ok = line_push(&l->lines, v.iov_base, v.iov_len, on_line, l) == ST_OK;
        evbuffer_drain(in, v.iov_len);
    }
    if (!ok) {
        signal_worker(l, SIGKILL);
        lose_worker(l);
    }
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
    worker_link *l = ctx;
    if (bev == l->from) {
        lose_worker(l);
    } else { /* a failed write; what the worker still says is read, then EOF comes */
        signal_worker(l, SIGKILL);
    }
}

/*
 * Life of the link.
 */
static bool open_pipes(worker_link *l, const worker_proc *p)
{
    l->to = bufferevent_socket_new(l->base, p->to_fd, BEV_OPT_CLOSE_ON_FREE);
    l->from = bufferevent_socket_new(l->base, p->from_fd, BEV_OPT_CLOSE_ON_FREE);
    if (!l->to) {
        close(p->to_fd);
    }
    if (!l->from) {
        close(p->from_fd);
    }
    if (!l->to || !l->from) {
        return false;
    }
    line_init(&l->lines, LINK_MAX_FRAME_BYTES);
    bufferevent_setcb(l->to, NULL, NULL, on_event, l);
    bufferevent_setcb(l->from, on_read, NULL, on_event, l);
    return bufferevent_enable(l->to, EV_WRITE) == 0 && bufferevent_enable(l->from, EV_READ) == 0;
}

void worker_link_start(worker_link *l)
{
    const worker_proc_options opt = {.argv = l->cfg.argv, .status_fd = -1};
    worker_proc p;
    err e;
    l->n_started++;
    l->was_ready = l->load_failed = false;
    l->why[0] = '\0';
    if (worker_proc_start(&opt, &p, &e) != ST_OK) {
        l->load_failed = true; /* trying again at once would not help either */
        note_cause(l, e.msg);
        worker_gone(l);
        return;
    }
    l->pid = p.pid;
    l->state = LINK_STARTING;
    log_emit(LOG_INFO, "serve", "worker=started pid=%d", (int)p.pid);
    if (!open_pipes(l, &p)) {
        note_cause(l, "out of memory");
        signal_worker(l, SIGKILL);
        lose_worker(l);
    }
}

status worker_link_open(struct event_base *base, const worker_link_config *cfg, worker_link **out, err *e)
{
    worker_link *l = mem_calloc(1, sizeof *l);
    if (!l) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    l->cfg = *cfg;
    l->base = base;
    l->timer = evtimer_new(base, on_timer, l);
    l->child_signal = evsignal_new(base, SIGCHLD, on_child, l);
    if (!l->timer || !l->child_signal || evsignal_add(l->child_signal, NULL) != 0) {
        worker_link_free(l);
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    *out = l;
    return ST_OK;
}

void worker_link_stop(worker_link *l)
{
    err why;
    if (l->stopping || l->state == LINK_STOPPED) {
        return;
    }
    l->stopping = true;
    err_set(&why, ST_DRAINING, NULL, "the server is shutting down");
    fail_jobs(l, &why);
    if (l->state == LINK_DOWN) {
        worker_gone(l);
    } else if (l->pid != 0) {
        signal_worker(l, SIGTERM);
        set_timer(l, LINK_STOP_GRACE_S);
    } /* else it has exited and the end of its stdout is on its way */
}

void worker_link_free(worker_link *l)
{
    if (!l) {
        return;
    }
    if (l->pid != 0) {
        signal_worker(l, SIGKILL);
        while (waitpid(l->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    close_pipes(l);
    if (l->child_signal) {
        event_free(l->child_signal);
    }
    if (l->timer) {
        event_free(l->timer);
    }
    mem_free(l);
}
