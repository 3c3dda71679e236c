/*
 * vec: a growable array of int32_t (token ids and positions). One owner thread; all-zero is a valid empty
 * vector.
 */
#ifndef HEARTH_BASE_VEC_H
#define HEARTH_BASE_VEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ivec {
    int32_t *data; /* owned */
    size_t len;
    size_t cap;
} ivec;

void ivec_release(ivec *v);
void ivec_reset(ivec *v); /* length 0, memory kept */
status ivec_reserve(ivec *v, size_t n_more);
status ivec_push(ivec *v, int32_t x);
status ivec_append(ivec *v, const int32_t *x, size_t n);
void ivec_truncate(ivec *v, size_t n); /* n <= len */

#endif
