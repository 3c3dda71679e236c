/*
 * merge: cuts a text into symbols and joins neighbouring ones in order of rank until no pair can be joined;
 * what SentencePiece's BPE model and byte-level BPE have in common. The lowest rank goes first, of one rank
 * the leftmost pair. What the symbols are and which of them may be joined is asked of the vocabulary's rules.
 *
 * Where no token of the vocabulary crosses a border between two symbols, what is left and right of it is a
 * run of its own (most texts fall into words so). A longer run is worked on in windows, which makes it linear
 * and keeps it in the cache. That is exact because of two facts, for any ranks:
 *   1. If the result has a border at p, then it is the result of what is left of p, followed by that of what is
 *      right.
 *   2. Tokens t1 t2 ... tk are the result of their joint text if each pair ti ti+1 alone comes out as these two.
 *      (Take the first join over one of the borders. Until then only joins inside tokens were made, and those of
 *      two neighbours in the same order as if they were alone; so they would be joined alone, too.)
 * So a window is merged as if nothing followed, and the next one begins at the token that stands a little before
 * its end.
 * If that one comes out again, fact 2 is met by fact 1; else the pair over the seam is tried alone; should it
 * not hold (or one token fill the window), the run is done again in larger windows.
 *
 * One owner thread; no recursion; ST_NOMEM.
 */
#ifndef HEARTH_TEXT_MERGE_H
#define HEARTH_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/vec.h"
#include "text/rankq.h"

#define MERGE_END       (-1)
#define MERGE_ID_UNSET  (-2) /* a first symbol whose id nobody asked for yet */
#define MERGE_RANK_NONE UINT32_MAX
#define MERGE_WINDOW    1024u /* symbols worked on at a time, unless tokens are too long for that */

typedef struct merge_symbol {
    uint32_t start; /* first byte; a symbol ends where the next begins, the last at the end of the run */
    int32_t id;
    int32_t prev, next; /* MERGE_END at the borders */
    uint32_t rank;      /* of joining it with the next one; MERGE_RANK_NONE if that is no token */
    int32_t joined;     /* the id it would get then */
} merge_symbol;

/* The rules of a vocabulary for one text; the answers depend on nothing but the bytes. */
typedef struct merge_rules {
    void *ctx;
    /* The first symbol at byte `at` (below the text's length): its length and id. *apart: no token holds it
     * together with the symbol before it, for which this was called last; ignored for the first of a run. */
    size_t (*symbol)(void *ctx, size_t at, int32_t *id, bool *apart);
    /* Whether left and right (which ends before byte `end`) may be joined; if so *rank and *id are set. */
    bool (*pair)(const void *ctx, const merge_symbol *left, const merge_symbol *right, uint32_t end,
                 uint32_t *rank, int32_t *id);
    /* Appends the ids of a symbol of the result, ending before byte `end`, to out. */
    status (*emit)(void *ctx, const merge_symbol *s, uint32_t end, ivec *out);
} merge_rules;

typedef struct merger {
    merge_symbol *symbols; /* owned: the window */
    size_t n, cap;
    rankq queue; /* owned */
} merger;

void merger_release(merger *m); /* all-zero is a valid merger */
/* Appends the ids of a text of n bytes, below 4 GiB. On failure out may have grown. */
status merge_text(merger *m, const merge_rules *rules, size_t n, ivec *out);

#endif
