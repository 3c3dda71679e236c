/*
 * python_literal: reads one Python literal, byte by byte, and writes it as JSON.
 *
 * Strings (all four quotes, r and u prefixes, escapes but \N{...}, neighbours joined), numbers (also hex, octal,
 * binary and with underscores), True, False, None and their JSON spellings, lists, tuples (arrays), dicts (keys:
 * strings or numbers, which become strings), parentheses. Not: sets, bytes, f-strings, names, complex numbers.
 *
 * JSON is appended to `out`; the caller may take it out whenever `n_open` is 0: while a '(' may still turn out to be
 * a tuple or a mere parenthesis its byte in `out` is undecided. One thread; `out` is released by the caller.
 */
#ifndef HEARTH_TEXT_PYTHON_LITERAL_H
#define HEARTH_TEXT_PYTHON_LITERAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define PYTHON_MAX_DEPTH  128u
#define PYTHON_MAX_NUMBER 512u /* characters */

typedef enum python_result {
    PYTHON_MORE,
    PYTHON_END, /* the literal ended before this byte, which is not part of it */
    PYTHON_BAD
} python_result;

typedef struct python_literal {
    buf out;   /* owned by the caller */
    status st; /* ST_NOMEM: sticky */
    uint8_t state;
    uint8_t quote, n_quote; /* of the string being read; closing quotes seen so far (triple ones) */
    bool triple, raw;
    bool may_be_string; /* the word began behind a string: it must be a string's prefix */
    uint8_t escape;     /* kind of the escape being read */
    uint8_t n_digits;
    uint32_t code;
    bool need_comma;
    uint16_t depth;
    uint16_t n_open;                  /* undecided parentheses */
    uint8_t kind[PYTHON_MAX_DEPTH];   /* of the open brackets */
    size_t at[PYTHON_MAX_DEPTH];      /* undecided ones: their byte in out */
    char word[PYTHON_MAX_NUMBER + 1]; /* number or word being read */
    size_t n_word;
} python_literal;

/* Keeps out's memory, empties it. */
void python_literal_begin(python_literal *v);
python_result python_literal_push(python_literal *v, unsigned char c);
/* Whether the text so far is a whole literal if nothing follows; completes out then. */
bool python_literal_finish(python_literal *v);

#endif
