/*
 * utf8: decoding, checking and repairing UTF-8 (RFC 3629: no surrogates, nothing over U+10FFFF, shortest
 * form). Pure functions, any thread. "Maximal bad subsequence" is the Unicode practice (Standard, 3.9, U+FFFD
 * substitution of maximal subparts).
 */
#ifndef HEARTH_BASE_UTF8_H
#define HEARTH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define UTF8_REPLACEMENT 0xFFFDu

/* Decodes one character of s[0..n), n > 0. Returns the bytes it took (1..4) and *cp; for bad bytes the length
 * of the maximal bad subsequence, *cp = U+FFFD and *ok = false. cp and ok may be NULL. */
size_t utf8_decode(const char *s, size_t n, uint32_t *cp, bool *ok);
size_t utf8_encode(uint32_t cp, char out[4]); /* bytes written; cp must be a scalar value */
/* true if valid; else *bad (may be NULL) is the offset of the first bad byte. */
bool utf8_valid(const char *s, size_t n, size_t *bad);
/* Bytes at the end of s that begin a character which more bytes could complete (0..3). */
size_t utf8_incomplete_tail(const char *s, size_t n);
/* Appends s with every maximal bad subsequence replaced by U+FFFD. */
status utf8_repair(buf *out, const char *s, size_t n);
/* In place: each bad subsequence, control character (C0, DEL, C1) and line separator (U+2028/9) becomes one
 * '?', so that s fits on one line of a log. Returns the new length (<= n). */
size_t utf8_make_printable(char *s, size_t n);

#endif
