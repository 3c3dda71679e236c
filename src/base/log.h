/*
 * log: one line per event, `level component key=value …`, once, by the one who gives up. Nothing per token.
 *
 * Any thread. Nothing is written until a sink is set (cmd/ sets stderr), so the library is silent by default.
 * A line is formatted on the stack (1 KiB, cut) and handed to the sink whole; control characters become '?'.
 */
#ifndef HEARTH_BASE_LOG_H
#define HEARTH_BASE_LOG_H

#include <stddef.h>

typedef enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR } log_level;

/* line ends with '\n'; called from any thread, must not log itself. */
typedef void (*log_sink)(void *ctx, log_level level, const char *line, size_t len);

void log_set_sink(log_sink sink, void *ctx,
                  log_level min); /* at start, before threads exist; NULL = silent */
void log_emit(log_level level, const char *component, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A sink that writes each line to the file descriptor *(const int *)ctx with one write. */
void log_fd_sink(void *ctx, log_level level, const char *line, size_t len);

#endif
