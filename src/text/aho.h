/*
 * aho: finds every one of many byte strings in one pass (Aho and Corasick, 1975).
 *
 * A state is the longest suffix of the bytes seen that begins some string; AHO_ROOT is the empty one. A hit
 * is a state that is a whole string. Time per byte is constant on average (a binary search over at most 256
 * branches), memory about 25 bytes per byte of the strings. Immutable after aho_new: any thread. Empty
 * strings are ignored; of equal strings the first one is reported. Errors: ST_NOMEM, also for 2 GiB of
 * strings or more.
 */
#ifndef HEARTH_TEXT_AHO_H
#define HEARTH_TEXT_AHO_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define AHO_ROOT 0
#define AHO_NONE (-1)

typedef struct aho aho;
typedef struct aho_string {
    const char *data;
    size_t len;
} aho_string;

status aho_new(const aho_string *strings, size_t n, aho **out); /* copies what it needs */
void aho_free(aho *a);

int32_t aho_step(const aho *a, int32_t state, unsigned char byte);
/* Bytes in the state: what may still become a string. */
size_t aho_depth(const aho *a, int32_t state);
/* The longest string that ends in this state, as a hit, or AHO_NONE. */
int32_t aho_hit(const aho *a, int32_t state);
int32_t aho_hit_shorter(const aho *a, int32_t hit); /* the next shorter one, or AHO_NONE */
size_t aho_hit_string(const aho *a, int32_t hit);   /* its index in the strings given to aho_new */

#endif
