/*
 * text: the string of the wire: bytes with a length. Plain data; who owns the bytes is said where one is used.
 */
#ifndef HEARTH_WIRE_TEXT_H
#define HEARTH_WIRE_TEXT_H

#include <stddef.h>

/* May hold NUL bytes; in what the decoders give a NUL that is not counted follows. */
typedef struct wire_string {
    const char *data; /* NULL: absent (only where that is said to be possible) */
    size_t len;
} wire_string;

/* The id of the plain dialect: none. */
#define WIRE_NO_ID ((wire_string){NULL, 0})

#endif
