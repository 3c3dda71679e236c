#include "worker/input.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/frame.h"

#define READ_BYTES ((size_t)64 << 10)

/* Waits until stdin is readable (if with_stdin) or there may be room in the inbox; reads the control pipe
 * meanwhile. Returns whether stdin is readable; sets `stopped` when the worker is halted or wants no more. */
static bool wait_for(input *in, bool with_stdin)
{
    for (;;) {
        struct pollfd fds[4] = {
            {.fd = in->halt->fd, .events = POLLIN},
            {.fd = control_fd(in->control), .events = POLLIN},
            {.fd = inbox_room_fd(in->box), .events = POLLIN},
            {.fd = with_stdin ? in->fd : -1, .events = POLLIN},
        };
        if (poll(fds, 4, -1) < 0) {
            continue; /* EINTR */
        }
        if (fds[0].revents) {
            in->stopped = true;
            return false;
        }
        if (fds[1].revents && control_read(in->control, output_written(in->out))) {
            bell_ring(in->bell);
        }
        if (fds[2].revents) {
            in->stopped = !inbox_heard_room(in->box);
            return false;
        }
        if (fds[3].revents) {
            return true;
        }
    }
}

/* Into the inbox; while that is full only the control pipe is read. */
static void push(input *in, inbox_item *item)
{
    status st = inbox_push(in->box, item);
    while (st == ST_FULL && !in->stopped) {
        wait_for(in, false);
        st = inbox_push(in->box, item);
    }
    if (st != ST_OK) {
        in->stopped = true;
        inbox_item_release(item);
    }
}

/* The answer to a line that is too long to be kept. Empty if there is no memory for it. */
static void refuse_line(buf *answer)
{
    err e;
    err_set(&e, ST_BAD_REQUEST, NULL, "line is longer than %zu bytes", WIRE_MAX_LINE_BYTES);
    frame_error f = frame_error_of(&e);
    (void)frame_put_error(answer, &f);
}

static bool needs_no_memory(wire_op op)
{
    return op == WIRE_CANCEL || op == WIRE_PAUSE || op == WIRE_CONTINUE || op == WIRE_DRAIN ||
           op == WIRE_SHUTDOWN;
}

/* A line for which there was no memory: what can be known of it goes on. What is asked about another request is done,
 * and is not answered: an error would be taken for that request's. */
static void keep_stub(const wire_stub *stub, inbox_item *item)
{
    item->acts = needs_no_memory(stub->op);
    item->op = stub->op;
    item->id_len = stub->id_len;
    memcpy(item->id_bytes, stub->id, stub->id_len);
}

static bool shut_down(input *in, inbox_item *item)
{
    halt_ask(in->halt, HALT_SHUTDOWN);
    inbox_item_release(item);
    in->stopped = true;
    return false;
}

/* Puts the answer in and pushes it, or the request if there is none. */
static bool hand_over(input *in, inbox_item *item, buf *answer)
{
    if (item->acts) { /* there is nothing to answer */
        buf_release(answer);
    }
    item->answer = buf_detach(answer, &item->answer_len);
    if (item->answer_len == 0) {
        mem_free(item->answer);
        item->answer = NULL;
    }
    push(in, item);
    return !in->stopped;
}

/* What follows the line of a request that waits for it. */
static bool on_attachment(input *in, line_kind kind, const char *text, size_t len)
{
    inbox_item item = in->awaiting;
    buf answer = {0};
    err e;
    memset(&in->awaiting, 0, sizeof in->awaiting);
    err_clear(&e);
    if (kind == LINE_ATTACHMENT) {
        item.request->attached = line_take_attachment(&in->lines, text, len);
    } else if (kind == LINE_TRUNCATED) {
        err_set(&e, ST_BAD_REQUEST, "attach", "the input ends inside an attachment of %llu bytes",
                (unsigned long long)item.request->attach_bytes);
    }
    if (e.code == ST_OK && !item.request->attached) {
        err_set(&e, ST_NOMEM, "attach", "out of memory for an attachment");
    }
    if (e.code != ST_OK) {
        frame_error f = frame_error_of(&e);
        f.id = item.request->id;
        (void)frame_put_error(&answer, &f); /* without memory for it the id is enough */
        item.id_len = item.request->id.len;
        memcpy(item.id_bytes, item.request->id.data, item.id_len);
        wire_request_free(item.request);
        item.request = NULL;
    }
    return hand_over(in, &item, &answer);
}

static bool on_line(void *ctx, line_kind kind, const char *text, size_t len)
{
    input *in = ctx;
    inbox_item item = {.read_ns = clock_mono_ns(in->clock)};
    buf answer = {0};
    if (in->awaiting.request) {
        return on_attachment(in, kind, text, len);
    }
    status_page_add(in->page, STATUS_ROW_INPUT_LINES, 1);
    if (kind == LINE_NO_MEMORY) {
        wire_stub stub = wire_request_peek(text, len);
        keep_stub(&stub, &item);
        line_skip_attachment(&in->lines, stub.attach_bytes);
    } else if (kind != LINE_TEXT) {
        refuse_line(&answer);
    } else {
        uint64_t attached;
        status st = wire_request_decode(text, len, &in->limits, &item.request, &answer, &attached, NULL);
        if (st == ST_NOMEM || (st != ST_OK && answer.len == 0)) {
            wire_stub stub = wire_request_peek(text, len);
            keep_stub(&stub, &item);
        }
        item.request = st == ST_OK ? item.request : NULL;
        if (item.request && item.request->attach_bytes > 0) {
            line_expect_attachment(&in->lines, (size_t)item.request->attach_bytes);
            in->awaiting = item;
            return true;
        }
        line_skip_attachment(&in->lines, attached);
    }
    if (item.request ? item.request->op == WIRE_SHUTDOWN : item.acts && item.op == WIRE_SHUTDOWN) {
        buf_release(&answer);
        return shut_down(in, &item);
    }
    return hand_over(in, &item, &answer);
}

/* One read: bytes, 0 at EOF, -1 when there was nothing after all. */
static ssize_t read_some(const input *in, char *chunk)
{
    ssize_t n = read(in->fd, chunk, READ_BYTES);
    if (n >= 0) {
        return n;
    }
    if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) {
        return -1;
    }
    log_emit(LOG_WARN, "worker", "event=read_failed error=\"%s\"", strerror(errno));
    return 0; /* what cannot be read is at its end */
}

static void read_lines(input *in, char *chunk)
{
    bool open = true;
    line_init(&in->lines, WIRE_MAX_LINE_BYTES);
    while (open && !in->stopped) {
        ssize_t n = wait_for(in, true) ? read_some(in, chunk) : -1;
        if (n > 0) {
            open = line_push(&in->lines, chunk, (size_t)n, on_line, in) == ST_OK;
        } else if (n == 0) {
            line_end(&in->lines, on_line, in);
            open = false;
        }
    }
    inbox_item_release(&in->awaiting);
    line_release(&in->lines);
}

static void *run(void *arg)
{
    input *in = arg;
    char *chunk = mem_alloc(READ_BYTES);
    if (chunk) {
        read_lines(in, chunk);
    } else {
        log_emit(LOG_ERROR, "worker", "event=no_memory component=input");
    }
    mem_free(chunk);
    inbox_end(in->box);
    while (!in->stopped && control_fd(in->control) >= 0) { /* a cancel may still come */
        wait_for(in, false);
    }
    return NULL;
}

status input_start(input *in, err *e)
{
    int rc = pthread_create(&in->thread, NULL, run, in);
    return rc == 0 ? ST_OK : err_set(e, ST_IO, NULL, "cannot start the reader thread: %s", strerror(rc));
}

void input_join(input *in)
{
    pthread_join(in->thread, NULL);
}
