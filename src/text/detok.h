/*
 * detok: the incremental detokenising stream: ids in, whole UTF-8 characters out.
 *
 * The text emitted after any number of pushes plus the flush equals utf8_repair of all pieces joined; how ids
 * are split over pushes never shows. At most 3 bytes (an unfinished character) are held. One owner thread;
 * plain data, copied by assignment (parking a sequence).
 */
#ifndef HEARTH_TEXT_DETOK_H
#define HEARTH_TEXT_DETOK_H

#include <stdint.h>

#include "base/buf.h"
#include "text/tokenizer.h"

typedef struct detok {
    const tokenizer *tok; /* borrowed */
    unsigned char tail[4];
    unsigned n_tail;
} detok;

void detok_init(detok *d, const tokenizer *tok);
/* Appends the characters that id completes to out (possibly none). */
status detok_push(detok *d, int32_t id, buf *out);
/* Appends U+FFFD for an unfinished character, if any; the stream is then as after init. */
status detok_flush(detok *d, buf *out);

#endif
