/*
 * jinja_unicode: what Python's str knows about characters. Pure functions on valid UTF-8, any thread.
 */
#ifndef HEARTH_TEXT_JINJA_UNICODE_H
#define HEARTH_TEXT_JINJA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool unicode_is_space(uint32_t cp); /* str.isspace, str.strip */
bool unicode_is_alpha(uint32_t cp);
bool unicode_is_digit(uint32_t cp);   /* str.isdigit: also superscripts */
bool unicode_is_decimal(uint32_t cp); /* str.isdecimal */
bool unicode_is_numeric(uint32_t cp);
bool unicode_is_upper(uint32_t cp);
bool unicode_is_lower(uint32_t cp);
bool unicode_is_cased(uint32_t cp);     /* has case: upper, lower or title */
bool unicode_is_printable(uint32_t cp); /* shown as it is by repr */

/* Bytes of white space at the beginning; bytes that remain when the white space at the end is gone. */
size_t unicode_lstrip(const char *s, size_t n);
size_t unicode_rstrip(const char *s, size_t n);

typedef enum unicode_case { UNICODE_UPPER, UNICODE_LOWER, UNICODE_TITLE } unicode_case;
#define UNICODE_MAP_MAX 3
/* The character in another case: 1 to 3 of them (ß -> SS). */
size_t unicode_map(uint32_t cp, unicode_case to, uint32_t out[UNICODE_MAP_MAX]);

size_t unicode_count(const char *s, size_t n); /* characters */
/* The byte at which character i begins; n if there are not so many. */
size_t unicode_offset(const char *s, size_t n, size_t i);

#endif
