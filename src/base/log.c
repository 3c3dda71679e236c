#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"

#define LINE_BYTES 1024 /* with the '\n' */

/* Written by log_set_sink before threads exist, read-only afterwards: no lock. */
static log_sink the_sink;
static void *the_ctx;
static log_level the_min;

void log_set_sink(log_sink sink, void *ctx, log_level min)
{
    the_sink = sink;
    the_ctx = ctx;
    the_min = min;
}

static const char *level_name(log_level level)
{
    switch (level) {
    case LOG_DEBUG:
        return "debug";
    case LOG_INFO:
        return "info";
    case LOG_WARN:
        return "warn";
    case LOG_ERROR:
        break;
    }
    return "error";
}

void log_emit(log_level level, const char *component, const char *fmt, ...)
{
    char line[LINE_BYTES + 1]; /* one more for the NUL of vsnprintf */
    if (!the_sink || level < the_min) {
        return;
    }
    int saved_errno = errno; /* callers log on their way out of a failed call */
    int n = snprintf(line, sizeof line, "%s %s ", level_name(level), component);
    size_t len = n < 0 ? 0 : (size_t)n;
    if (len < LINE_BYTES) {
        va_list ap;
        va_start(ap, fmt);
        n = vsnprintf(line + len, sizeof line - len, fmt, ap);
        va_end(ap);
        len += n < 0 ? 0 : (size_t)n;
    }
    if (len > LINE_BYTES - 1) {
        len = LINE_BYTES - 1;
        len -= utf8_incomplete_tail(line, len);
    }
    len = utf8_make_printable(line, len);
    line[len++] = '\n';
    the_sink(the_ctx, level, line, len);
    errno = saved_errno;
}

void log_fd_sink(void *ctx, log_level level, const char *line, size_t len)
{
    const int *fd = ctx;
    ssize_t n;
    do {
        n = write(*fd, line, len);
    } while (n < 0 && errno == EINTR);
    /* A log that cannot be written has nobody left to be told; a short write is not continued, lines of other
     * threads may have come between. */
}
