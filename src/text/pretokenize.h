/*
 * pretokenize: cuts text into the pieces that byte-level BPE merges within, by the patterns that belong to
 * the value of tokenizer.ggml.pre (the table is in pretokenize_table.c).
 *
 * A family has up to PRETOKENIZE_MAX_STAGES patterns. Each stage sees every piece of the stage before as a
 * text of its own; its matches, and what lies between them, are the pieces it makes. PCRE2 in UTF and UCP
 * mode, interpreted (no writable code); the patterns are written so that an attempt never goes back over what
 * it has read: a match limit of little more than the length of the text proves it.
 *
 * pretokenizer is immutable: any thread. pretokenize_cursor is one text's walk: one thread, a few KB of heap
 * whatever the text, constant stack. The text must be valid UTF-8.
 */
#ifndef HEARTH_TEXT_PRETOKENIZE_H
#define HEARTH_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define PRETOKENIZE_MAX_STAGES 6

typedef struct pretokenize_family {
    const char *name;            /* value of tokenizer.ggml.pre */
    bool ignore_merges;          /* a piece that is a token becomes that token, whatever the merges say */
    bool adds_bos;               /* where the file does not say */
    const char *const *patterns; /* NULL-terminated */
} pretokenize_family;

/* NULL if we do not know the name. Static storage. */
const pretokenize_family *pretokenize_find(const char *name, size_t len);

typedef struct pretokenizer pretokenizer;
status pretokenizer_new(const pretokenize_family *family, pretokenizer **out, err *e);
void pretokenizer_free(pretokenizer *p);

typedef struct pretokenize_stage {
    size_t start, end;             /* the piece being cut: to the pattern, the whole text */
    size_t at;                     /* what is not cut yet begins here */
    size_t match_start, match_end; /* found but not handed on yet; start = end: none */
} pretokenize_stage;

typedef struct pretokenize_cursor {
    const pretokenizer *pre; /* borrowed */
    const char *text;        /* borrowed */
    void *match_data;        /* owned, as match_context */
    void *match_context;
    size_t depth; /* stages in use */
    pretokenize_stage stage[PRETOKENIZE_MAX_STAGES];
} pretokenize_cursor;

status pretokenize_cursor_init(pretokenize_cursor *c, const pretokenizer *p);
void pretokenize_cursor_release(pretokenize_cursor *c); /* all-zero is fine */
void pretokenize_start(pretokenize_cursor *c, const char *text, size_t len);
/* The next piece, never empty; *end = *start when there is none. ST_NOMEM. */
status pretokenize_next(pretokenize_cursor *c, size_t *start, size_t *end);

#endif
