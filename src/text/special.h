/*
 * special: finds the tokens that are taken out of a text before it is tokenised (control tokens, added
 * tokens).
 *
 * Longer tokens have the right of way over the whole text, wherever they stand; of equally long ones the
 * lower id; of one token the leftmost occurrence (what llama.cpp does, which looks for one token after the
 * other). A token may swallow the white space behind it. Time: one pass over the text plus O(1) per candidate
 * on average. Immutable: any thread. Empty texts are ignored; of equal texts the lowest id counts.
 */
#ifndef HEARTH_TEXT_SPECIAL_H
#define HEARTH_TEXT_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct special_token {
    const char *text; /* borrowed, must outlive the set only during special_set_new */
    size_t len;
    int32_t id;
    bool strips_right; /* also takes the ASCII white space that follows */
    bool everywhere;   /* special_find_outside: in the ranges too */
} special_token;

typedef struct special_set special_set;
status special_set_new(const special_token *tokens, size_t n, special_set **out);
void special_set_free(special_set *s);

typedef struct special_hit {
    uint32_t start, end; /* bytes of the text; end is behind stripped white space */
    int32_t id;
} special_hit;

/* Bytes [from, to) of a text. */
typedef struct special_range {
    size_t from, to;
} special_range;

typedef struct special_hits {
    special_hit *data; /* owned */
    size_t n;
} special_hits;

/* The hits in ascending order, not overlapping. out: zeroed by the caller, written only on success; len < 4
 * GiB. */
status special_find(const special_set *s, const char *text, size_t len, special_hits *out);
/* The same, but tokens that are not `everywhere` count only where no byte of them is in a range. ranges: ascending,
 * apart, not empty. */
status special_find_outside(const special_set *s, const char *text, size_t len, const special_range *ranges,
                            size_t n_ranges, special_hits *out);
void special_hits_release(special_hits *h);

#endif
