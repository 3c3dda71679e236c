#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

const char *status_text(status st)
{
    switch (st) {
#define X(name, number, text) \
    case name:                \
        return text;
        STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

const char *status_name(status st)
{
    switch (st) {
#define X(name, number, text) \
    case name:                \
        return #name;
        STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

/* Copies s into dst[cap], cut at a character boundary, printable. */
static void copy_printable(char *dst, size_t cap, const char *s)
{
    size_t n = strnlen(s, cap);
    if (n >= cap) {
        n = cap - 1;
        n -= utf8_incomplete_tail(s, n);
    }
    memcpy(dst, s, n);
    n = utf8_make_printable(dst, n);
    dst[n] = '\0';
}

__attribute__((format(printf, 5, 0))) static status fill(err *e, status code, uint64_t offset,
                                                         const char *field, const char *fmt, va_list ap)
{
    /* Callers wrap errors: arguments may point into *e, so nothing of it is written before all is formatted.
     */
    char msg[sizeof e->msg + 1]; /* one more, so that a cut is seen by copy_printable */
    char name[sizeof e->field] = "";
    if (vsnprintf(msg, sizeof msg, fmt, ap) < 0) {
        msg[0] = '\0';
    }
    copy_printable(name, sizeof name, field ? field : "");
    e->code = code;
    e->offset = offset;
    copy_printable(e->msg, sizeof e->msg, msg);
    memcpy(e->field, name, sizeof name);
    return code;
}

status err_set(err *e, status code, const char *field, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        fill(e, code, ERR_NO_OFFSET, field, fmt, ap);
        va_end(ap);
    }
    return code;
}

status err_at(err *e, status code, uint64_t offset, const char *field, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        fill(e, code, offset, field, fmt, ap);
        va_end(ap);
    }
    return code;
}

void err_clear(err *e)
{
    if (e) {
        memset(e, 0, sizeof *e);
        e->offset = ERR_NO_OFFSET;
    }
}
