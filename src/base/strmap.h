/*
 * strmap: byte strings to int32_t, open addressing over xxh3. Built by one thread; afterwards any number may
 * look up. Keys are borrowed: the caller keeps their bytes alive and unchanged. Keys may hold NUL and may be
 * empty.
 */
#ifndef HEARTH_BASE_STRMAP_H
#define HEARTH_BASE_STRMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct strmap strmap;

status strmap_new(size_t expected, strmap **out);
void strmap_free(strmap *m);
/* *existed (may be NULL) tells whether the key was there; an existing key keeps its first value. */
status strmap_put(strmap *m, const char *key, size_t len, int32_t value, bool *existed);
bool strmap_get(const strmap *m, const char *key, size_t len, int32_t *value);
bool strmap_remove(strmap *m, const char *key, size_t len);
size_t strmap_count(const strmap *m);

#endif
