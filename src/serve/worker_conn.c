#include "serve/worker_conn.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "serve/held_bytes.h"
#include "serve/loop_memory.h"
#include "serve/worker_proc.h"
#include "wire/line.h"

#define SPARE_BYTES ((size_t)64 << 10)

typedef enum conn_state { CONN_NONE, CONN_RUNNING, CONN_LOSING } conn_state;

struct worker_conn {
    worker_conn_config cfg;
    struct event_base *base; /* borrowed */
    conn_state state;
    bool suspended;
    bool noted; /* cause and detail are true; else the exit will tell */
    bool write_failed;
    worker_cause cause;
    char detail[384];
    int end;
    uint64_t n_written;

    /* owned */
    pid_t pid; /* 0 = none, or reaped */
    struct bufferevent *to, *from;
    line_splitter lines;
    void *spare;    /* [SPARE_BYTES], or NULL: it was needed */
    frame awaiting; /* its attachment is being read; none: attach_bytes 0 */
    status_page *page;
    struct event *child_signal;
    struct event
        *losing; /* RUNNING: lose it, now or after CONN_DRAIN_S; LOSING: out of patience, or all is done */
};

/* Reaped means pid 0, which kill would take for our own group. */
static void signal_worker(const worker_conn *c, int sig)
{
    if (c->pid > 0) {
        kill(-c->pid, sig);
    }
}

static void call_soon(worker_conn *c, int seconds)
{
    const struct timeval tv = {seconds, 0};
    evtimer_del(c->losing);
    evtimer_add(c->losing, &tv);
}

void worker_conn_note(worker_conn *c, worker_cause cause, const char *detail)
{
    if (!c->noted) {
        c->noted = true;
        c->cause = cause;
        snprintf(c->detail, sizeof c->detail, "%s", detail);
    }
}

void worker_conn_kill(worker_conn *c, worker_cause cause, const char *detail)
{
    worker_conn_note(c, cause, detail);
    signal_worker(c, SIGKILL);
    if (c->state == CONN_RUNNING) {
        call_soon(c, 0);
    }
}

void worker_conn_terminate(worker_conn *c)
{
    signal_worker(c, SIGTERM);
    signal_worker(c, SIGCONT); /* one that is suspended hears nothing else */
}

/*
 * The end of a worker.
 */
static void close_pipes(worker_conn *c)
{
    if (c->to) {
        bufferevent_free(c->to);
    }
    if (c->from) {
        bufferevent_free(c->from);
    }
    c->to = c->from = NULL;
    frame_release(&c->awaiting);
    line_release(&c->lines);
}

static void lose(worker_conn *c)
{
    c->state = CONN_LOSING;
    close_pipes(c);
    call_soon(c, c->pid == 0 ? 0 : CONN_DRAIN_S); /* it has ended, or is about to: why is worth waiting for */
    c->cfg.lost(c->cfg.ctx);
}

static void note_exit(worker_conn *c, int wait_status)
{
    char text[96];
    bool was_noted = c->noted;
    if (!WIFSIGNALED(wait_status)) {
        snprintf(text, sizeof text, "exit status %d", WEXITSTATUS(wait_status));
        worker_conn_note(c, WORKER_EXITED, text);
        c->end = WEXITSTATUS(wait_status);
    } else {
        c->end = WTERMSIG(wait_status);
        snprintf(text, sizeof text, "signal %d (%s)", c->end, strsignal(c->end));
        worker_conn_note(c, WORKER_KILLED, text);
    }
    c->end = was_noted ? 0 : c->end;
}

/* It lives, and has closed one of its pipes. */
static void kill_half(worker_conn *c)
{
    worker_conn_note(c, WORKER_BROKEN,
                     c->write_failed ? "it does not read any more" : "it does not speak any more");
    signal_worker(c, SIGKILL);
}

static void note_suspension(worker_conn *c)
{
    siginfo_t info = {0};
    while (waitid(P_PID, (id_t)c->pid, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid != 0) {
        c->suspended = info.si_code != CLD_CONTINUED;
        info.si_pid = 0;
    }
}

static void on_child(evutil_socket_t sig, short what, void *ctx)
{
    worker_conn *c = ctx;
    siginfo_t info = {0};
    int wait_status = 0;
    if (c->pid == 0) {
        return;
    }
    note_suspension(c);
    if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
        return;
    }
    signal_worker(c, SIGKILL); /* its children; before the number is free for others */
    waitpid(c->pid, &wait_status, 0);
    c->pid = 0;
    c->suspended = false;
    note_exit(c, wait_status);
    if (c->state == CONN_LOSING) {
        call_soon(c, 0);
    } else {
        call_soon(c, CONN_DRAIN_S); /* its last frames are still in the pipe, then EOF comes */
    }
}

static void on_losing(evutil_socket_t fd, short what, void *ctx)
{
    worker_conn *c = ctx;
    if (c->pid != 0 && (c->state == CONN_LOSING || c->write_failed)) { /* out of patience */
        kill_half(c);
    }
    if (c->state == CONN_RUNNING) {
        lose(c);
    } else if (c->pid == 0) {
        c->state = CONN_NONE;
        c->cfg.gone(c->cfg.ctx);
    }
}

/*
 * Frames.
 */
static void broken(worker_conn *c, const char *what)
{
    worker_conn_kill(c, WORKER_BROKEN, what);
}

/* Hands it on and releases it. */
static bool tell_frame(worker_conn *c, frame *f)
{
    const char *complaint = c->cfg.frame(c->cfg.ctx, f);
    if (complaint) {
        broken(c, complaint);
    }
    frame_release(f);
    return !complaint;
}

static bool on_attachment(worker_conn *c, const char *bytes)
{
    frame f = c->awaiting;
    memset(&c->awaiting, 0, sizeof c->awaiting);
    f.attached = bytes;
    return tell_frame(c, &f);
}

/* Some memory is set aside for when there is none: a worker is not lost for one frame. */
static status decode(worker_conn *c, const char *text, size_t len, frame *f, err *e)
{
    status st = frame_decode(text, len, f, e);
    if (st == ST_NOMEM && c->spare) {
        mem_free(c->spare);
        c->spare = NULL;
        st = frame_decode(text, len, f, e);
    }
    c->spare = c->spare ? c->spare : mem_alloc(SPARE_BYTES);
    return st;
}

static bool on_line(void *ctx, line_kind kind, const char *text, size_t len)
{
    worker_conn *c = ctx;
    frame f;
    err e;
    if (kind == LINE_ATTACHMENT) {
        return on_attachment(c, text);
    }
    if (kind != LINE_TEXT) {
        if (kind == LINE_NO_MEMORY) {
            worker_conn_kill(c, WORKER_NO_MEMORY, "no memory for a frame");
        } else {
            broken(c, "a frame is too long");
        }
        return false;
    }
    status st = decode(c, text, len, &f, &e);
    if (st == ST_NOMEM) {
        worker_conn_kill(c, WORKER_NO_MEMORY, "no memory for a frame");
        return false;
    }
    if (st != ST_OK) {
        broken(c, e.msg);
        return false;
    }
    if (f.attach_bytes == 0) {
        return tell_frame(c, &f);
    }
    if (f.kind != FRAME_EXPORT) {
        broken(c, "an attachment that nobody has asked for");
        frame_release(&f);
        return false;
    }
    line_expect_attachment(&c->lines, (size_t)f.attach_bytes);
    c->awaiting = f;
    return true;
}

static void on_read(struct bufferevent *bev, void *ctx)
{
    worker_conn *c = ctx;
    struct evbuffer *in = bufferevent_get_input(bev);
    struct evbuffer_iovec v;
    bool ok = true;
    while (ok && evbuffer_peek(in, -1, NULL, &v, 1) >= 1 && v.iov_len > 0) {
        ok = line_push(&c->lines, v.iov_base, v.iov_len, on_line, c) == ST_OK;
        evbuffer_drain(in, v.iov_len);
    }
    if (!ok) {
        bufferevent_disable(bev, EV_READ); /* it is being lost: nothing that it says counts any more */
    }
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
    worker_conn *c = ctx;
    if (bev == c->from) {
        lose(c);
    } else if (
        !c->write_failed) { /* it has ended, or is about to: what it still says is read, then EOF comes */
        c->write_failed = true;
        if (!evtimer_pending(c->losing, NULL)) {
            call_soon(c, CONN_DRAIN_S);
        }
    }
}

/*
 * Life.
 */
static bool open_pipes(worker_conn *c, const worker_proc *p)
{
    c->to = bufferevent_socket_new(c->base, p->to_fd, BEV_OPT_CLOSE_ON_FREE);
    c->from = bufferevent_socket_new(c->base, p->from_fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c->to) {
        close(p->to_fd);
    }
    if (!c->from) {
        close(p->from_fd);
    }
    if (!c->to || !c->from) {
        return false;
    }
    line_init(&c->lines, WIRE_MAX_LINE_BYTES);
    (void)buf_reserve(&c->lines.partial, SPARE_BYTES); /* most lines need no more, ever */
    bufferevent_setcb(c->to, NULL, NULL, on_event, c);
    bufferevent_setcb(c->from, on_read, NULL, on_event, c);
    return bufferevent_enable(c->to, EV_WRITE) == 0 && bufferevent_enable(c->from, EV_READ) == 0;
}

status worker_conn_start(worker_conn *c, err *e)
{
    bool more = c->cfg.more && c->cfg.more[0] != '\0';
    worker_proc_options opt = {.argv = c->cfg.argv, .more = more ? c->cfg.more : NULL, .status_fd = -1};
    worker_proc p;
    status_page *page;
    status st = status_page_create(&opt.status_fd, &page, e);
    if (st != ST_OK) {
        return st;
    }
    st = worker_proc_start(&opt, &p, e);
    close(opt.status_fd);
    if (st != ST_OK) {
        status_page_close(page);
        return st;
    }
    status_page_close(c->page);
    c->page = page;
    c->pid = p.pid;
    c->state = CONN_RUNNING;
    c->noted = c->write_failed = c->suspended = false;
    c->n_written = 0;
    c->end = 0;
    c->detail[0] = '\0';
    if (!open_pipes(c, &p)) {
        worker_conn_kill(c, WORKER_NO_MEMORY, "no memory for the connection to a worker");
    }
    return ST_OK;
}

static bool write_soon(worker_conn *c, const char *lines, size_t n)
{
    return bufferevent_write(c->to, lines, n) == 0 && loop_memory_will_write(c->to);
}

void worker_conn_write(worker_conn *c, const char *lines, size_t n)
{
    if (c->state != CONN_RUNNING || !c->to) {
        return;
    }
    if (!write_soon(c, lines, n)) {
        worker_conn_kill(c, WORKER_NO_MEMORY, "no memory for a request to the worker");
        return;
    }
    c->n_written += n;
}

void worker_conn_write_held(worker_conn *c, held_bytes *h)
{
    size_t n = h->bytes.len;
    if (c->state != CONN_RUNNING || !c->to) {
        held_bytes_free(h);
    } else if (!held_bytes_send(h, bufferevent_get_output(c->to)) || !loop_memory_will_write(c->to)) {
        worker_conn_kill(c, WORKER_NO_MEMORY, "no memory for an attachment to the worker");
    } else {
        c->n_written += n;
    }
}

uint64_t worker_conn_written(const worker_conn *c)
{
    return c->n_written;
}

uint64_t worker_conn_taken(const worker_conn *c)
{
    return c->to ? c->n_written - evbuffer_get_length(bufferevent_get_output(c->to)) : c->n_written;
}

status worker_conn_open(struct event_base *base, const worker_conn_config *cfg, worker_conn **out, err *e)
{
    worker_conn *c = mem_calloc(1, sizeof *c);
    if (!c) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    c->cfg = *cfg;
    c->base = base;
    c->losing = evtimer_new(base, on_losing, c);
    c->child_signal = evsignal_new(base, SIGCHLD, on_child, c);
    if (!c->losing || !c->child_signal || evsignal_add(c->child_signal, NULL) != 0) {
        worker_conn_free(c);
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    *out = c;
    return ST_OK;
}

void worker_conn_free(worker_conn *c)
{
    if (!c) {
        return;
    }
    if (c->pid != 0) {
        signal_worker(c, SIGKILL);
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    close_pipes(c);
    mem_free(c->spare);
    status_page_close(c->page);
    if (c->child_signal) {
        event_free(c->child_signal);
    }
    if (c->losing) {
        event_free(c->losing);
    }
    mem_free(c);
}

pid_t worker_conn_pid(const worker_conn *c)
{
    return c->pid;
}

bool worker_conn_suspended(const worker_conn *c)
{
    return c->suspended;
}

worker_cause worker_conn_cause(const worker_conn *c)
{
    return c->cause;
}

const char *worker_conn_detail(const worker_conn *c)
{
    return c->detail;
}

int worker_conn_end(const worker_conn *c)
{
    return c->end;
}

void worker_conn_left(const worker_conn *c, status_snapshot *out)
{
    if (c->page) {
        status_page_read(c->page, out);
    } else {
        memset(out, 0, sizeof *out);
    }
}

void worker_conn_page(const worker_conn *c, status_snapshot *out)
{
    if (c->state != CONN_NONE) {
        status_page_read(c->page, out);
    } else {
        memset(out, 0, sizeof *out);
    }
}
