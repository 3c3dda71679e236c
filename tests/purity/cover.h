/*
 * cover: which cases of a table with axes are run. The full product is too much; what goes wrong goes wrong where
 * two things meet, so cases are chosen until every pair of values of different axes stands in one (a covering array,
 * found greedily), the dear ones together with few. Further rounds cover all pairs again, with the rest of each case
 * drawn so that new triples come.
 *
 * The choice depends on the axes and the seed alone. One thread.
 */
#ifndef HEARTH_TESTS_PURITY_COVER_H
#define HEARTH_TESTS_PURITY_COVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COVER_MAX_AXES 12

#define COVER_UNSET 0xFF

/* What a case costs in milliseconds; an axis at COVER_UNSET counts as its cheapest value. */
typedef double (*cover_cost)(const uint8_t *at);

typedef struct cover {
    size_t n_axes, n_values[COVER_MAX_AXES];
    /* owned */
    uint8_t *pairs;   /* [n_slots][n_slots]: both values stood in a case of this round */
    uint8_t *triples; /* [n_slots][n_slots][n_slots], ascending: in a case at all */
    size_t n_slots;   /* values of all axes */
    cover_cost cost;
    uint64_t seed;
    uint32_t drawn;
} cover;

void cover_init(cover *c, const size_t *n_values, size_t n_axes, cover_cost cost);
void cover_release(cover *c);
void cover_round(cover *c, uint64_t seed); /* pairs are uncovered again */
/* The next case that covers an uncovered pair, at [n_axes]; false: there is none. It is not covered yet. */
bool cover_next(cover *c, uint8_t *at);
/* The case has been run. */
void cover_mark(cover *c, const uint8_t *at);

typedef struct cover_count {
    size_t done, all;
} cover_count;
cover_count cover_pairs(const cover *c);
cover_count cover_triples(const cover *c);

#endif
