/*
 * stop: finds the first stop string in a stream of text and holds back what may become one.
 *
 * stop_set is the compiled list (Aho-Corasick over bytes), immutable, shared by threads. stop_matcher is one
 * stream's position. Text is looked at byte by byte: the first stop to be complete wins, of those complete at
 * the same byte the longest; so the result never depends on how the text was cut into pushes. Empty strings
 * are ignored by stop_set_new. Held text is always a proper prefix of a stop string.
 */
#ifndef HEARTH_TEXT_STOP_H
#define HEARTH_TEXT_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

#define STOP_MAX_STRINGS     4096u
#define STOP_MAX_TOTAL_BYTES (1u << 20)

typedef struct stop_set stop_set;
typedef struct stop_string {
    const char *data;
    size_t len;
} stop_string;

/* Copies the strings. ST_INVALID_FIELD (field "stop") over the limits. n = 0 gives a set that never matches.
 */
status stop_set_new(const stop_string *strings, size_t n, stop_set **out, err *e);
void stop_set_free(stop_set *s);
size_t stop_set_longest(
    const stop_set *s); /* bytes of the longest string: held text is shorter; 0 for none */

typedef struct stop_matcher {
    const stop_set *set; /* borrowed; NULL = no stop strings */
    buf held;            /* owned: text not yet released */
    int32_t state;
    int32_t matched; /* index of the stop string found, -1 while none */
} stop_matcher;

void stop_matcher_init(stop_matcher *m, const stop_set *set);
void stop_matcher_release(stop_matcher *m);
/* Appends to out the text that is safe to show. Once matched (returns ST_OK with m->matched >= 0) out got
 * everything right before the match and the rest is dropped; later pushes add nothing. */
status stop_matcher_push(stop_matcher *m, const char *text, size_t len, buf *out);
/* Releases the held text at any end that is not a match. */
status stop_matcher_flush(stop_matcher *m, buf *out);

#endif
