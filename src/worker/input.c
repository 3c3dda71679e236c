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
#include "wire/line.h"

#define READ_BYTES ((size_t)64 << 10)

/* The answer to a line that could not even be kept. Empty if there is no memory for it. */
static void refuse_line(line_kind kind, buf *answer)
{
    err e;
    if (kind == LINE_TOO_LONG) {
        err_set(&e, ST_BAD_REQUEST, NULL, "line is longer than %zu bytes", WIRE_MAX_LINE_BYTES);
    } else {
        err_set(&e, ST_NOMEM, NULL, "out of memory while reading a line");
    }
    frame_error f = frame_error_of(&e);
    (void)frame_put_error(answer, &f);
}

static bool on_line(void *ctx, line_kind kind, const char *text, size_t len)
{
    input *in = ctx;
    inbox_item item = {0};
    buf answer = {0};
    if (kind != LINE_TEXT) {
        refuse_line(kind, &answer);
    } else if (wire_request_decode(text, len, in->n_vocab, &item.request, &answer, NULL) != ST_OK) {
        item.request = NULL;
    }
    item.answer = buf_detach(&answer, &item.answer_len);
    if (item.answer_len == 0) {
        mem_free(item.answer);
        item.answer = NULL;
    }
    if (inbox_push(in->box, &item) != ST_OK) {
        inbox_item_release(&item);
        return false;
    }
    return true;
}

/* Waits until there is something to read; false when the worker is halted. */
static bool wait_readable(const input *in)
{
    struct pollfd fds[2] = {{.fd = in->fd, .events = POLLIN}, {.fd = in->halt->fd, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR) {
    }
    return fds[1].revents == 0;
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
    line_splitter lines;
    bool open = true;
    line_init(&lines, WIRE_MAX_LINE_BYTES);
    while (open && wait_readable(in)) {
        ssize_t n = read_some(in, chunk);
        if (n > 0) {
            open = line_push(&lines, chunk, (size_t)n, on_line, in) == ST_OK;
        } else if (n == 0) {
            line_end(&lines, on_line, in);
            open = false;
        }
    }
    line_release(&lines);
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
