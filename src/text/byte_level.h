/*
 * byte_level: the reversible map between bytes and printable characters that byte-level BPE vocabularies are
 * written in (GPT-2's bytes_to_unicode): printable Latin-1 stands for itself, the 68 other bytes for
 * U+0100..U+0143 in ascending order (space is U+0120, newline U+010A).
 *
 * Pure functions, any thread.
 */
#ifndef HEARTH_TEXT_BYTE_LEVEL_H
#define HEARTH_TEXT_BYTE_LEVEL_H

#include <stddef.h>
#include <stdint.h>

#define BYTE_LEVEL_NONE (-1)

uint32_t byte_level_char(unsigned char b);
int byte_level_byte(uint32_t cp); /* 0..255, or BYTE_LEVEL_NONE */
/* Room for 2 n bytes in out; returns the bytes written. */
size_t byte_level_encode(const char *bytes, size_t n, char *out);
/* Room for n bytes in out (not overlapping text); returns the bytes written. Characters that stand for no
 * byte, and bytes that are not UTF-8, are copied as they are. */
size_t byte_level_decode(const char *text, size_t n, char *out);

#endif
