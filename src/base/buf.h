/*
 * buf: a growable run of bytes. One owner thread. `data` is always followed by a NUL that is not counted, so
 * a buf of text can be read as a C string (data is "" before the first append). All-zero is a valid empty
 * buf.
 */
#ifndef HEARTH_BASE_BUF_H
#define HEARTH_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>

#include "base/status.h"

typedef struct buf {
    char *data; /* owned; NULL only in an all-zero buf that was never touched: use buf_str */
    size_t len;
    size_t cap;
} buf;

void buf_init(buf *b);
void buf_release(buf *b);
void buf_reset(buf *b);                    /* length 0, memory kept */
const char *buf_str(const buf *b);         /* never NULL */
status buf_reserve(buf *b, size_t n_more); /* room for n_more bytes beyond len */
status buf_append(buf *b, const void *data, size_t n);
status buf_append_str(buf *b, const char *s);
status buf_append_char(buf *b, char c);
status buf_printf(buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_consume(buf *b, size_t n);  /* drops the first n bytes; n <= len */
void buf_truncate(buf *b, size_t n); /* keeps the first n bytes; n <= len */
void buf_trim(buf *b, size_t n);     /* gives back what it has beyond len and n bytes, if it can; never all */
char *buf_detach(buf *b, size_t *len); /* moves the bytes out (mem_free); NULL if nothing was ever appended */

#endif
