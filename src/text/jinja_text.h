/*
 * jinja_text: what filters and methods share of Python's str. Each byte of a result keeps the mark of the byte it
 * was made of. See jinja_value.h for memory.
 */
#ifndef HEARTH_TEXT_JINJA_TEXT_H
#define HEARTH_TEXT_JINJA_TEXT_H

#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

jstr *jtext_map(jrt *rt, const jstr *s, unicode_case to);
jstr *jtext_capitalize(jrt *rt, jstr *s);
/* chars NULL: white space. */
jstr *jtext_strip(jrt *rt, jstr *s, const jstr *chars, bool left, bool right);
/* max < 0: all. */
jstr *jtext_replace(jrt *rt, jstr *s, const jstr *from, const jstr *to, int64_t max);
jstr *jtext_join(jrt *rt, const jstr *sep, const jseq *texts);
/* fill: one character. */
typedef enum jtext_align { JTEXT_LEFT, JTEXT_RIGHT, JTEXT_CENTER } jtext_align;
jstr *jtext_pad(jrt *rt, jstr *s, int64_t width, jtext_align align, const jstr *fill);
jseq *jtext_split(jrt *rt, jstr *s, const jstr *sep, int64_t max,
                  bool from_right); /* sep NULL: white space */
jseq *jtext_split_lines(jrt *rt, jstr *s, bool keep_ends);
/* Byte offset of the first (last) place of `what` in s[from, to), or SIZE_MAX. */
size_t jtext_find(jrt *rt, const jstr *s, const jstr *what, size_t from, size_t to, bool last);

#endif
