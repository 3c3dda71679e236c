#include "purity/cover.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"

#define N_TRIES 12  /* cases that are made up, of which the best is taken */
#define PAIR_MS 6.0 /* what covering one more pair may cost */
#define UNSET   COVER_UNSET

static size_t slot(const cover *c, size_t axis, size_t value)
{
    size_t s = value;
    for (size_t a = 0; a < axis; a++) {
        s += c->n_values[a];
    }
    return s;
}

void cover_init(cover *c, const size_t *n_values, size_t n_axes, cover_cost cost)
{
    assert(n_axes <= COVER_MAX_AXES);
    memset(c, 0, sizeof *c);
    c->n_axes = n_axes;
    c->cost = cost;
    memcpy(c->n_values, n_values, n_axes * sizeof *n_values);
    c->n_slots = slot(c, n_axes, 0);
    c->pairs = calloc(c->n_slots, c->n_slots);
    c->triples = calloc(c->n_slots * c->n_slots, c->n_slots);
    if (!c->pairs || !c->triples) {
        abort();
    }
}

void cover_release(cover *c)
{
    free(c->pairs);
    free(c->triples);
}

void cover_round(cover *c, uint64_t seed)
{
    c->seed = seed;
    c->drawn = 0;
    memset(c->pairs, 0, c->n_slots * c->n_slots);
}

static uint32_t draw(cover *c, size_t below)
{
    const uint32_t ctr[4] = {c->drawn++, 0, 0, 0}, key[2] = {(uint32_t)c->seed, 17};
    uint32_t out[4];
    philox4x32_10(ctr, key, out);
    return out[0] % (uint32_t)below;
}

static uint8_t *pair_at(const cover *c, size_t s, size_t t)
{
    return &c->pairs[s < t ? s * c->n_slots + t : t * c->n_slots + s];
}

static uint8_t *triple_at(const cover *c, size_t s, size_t t, size_t u)
{
    assert(s < t && t < u);
    return &c->triples[(s * c->n_slots + t) * c->n_slots + u];
}

/* Pairs, and a little for triples, that this value of this axis would add to what is chosen. */
static double gain(const cover *c, const uint8_t *at, size_t axis, size_t value)
{
    size_t s = slot(c, axis, value), n_pairs = 0, n_triples = 0, chosen[COVER_MAX_AXES], n = 0;
    for (size_t a = 0; a < c->n_axes; a++) {
        if (a != axis && at[a] != UNSET) {
            chosen[n++] = slot(c, a, at[a]);
            n_pairs += !*pair_at(c, s, chosen[n - 1]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n; k++) {
            size_t low = s < chosen[i] ? s : chosen[i], high = s > chosen[k] ? s : chosen[k];
            size_t mid = s + chosen[i] + chosen[k] - low - high;
            n_triples += !*triple_at(c, low, mid, high);
        }
    }
    return (double)n_pairs + 0.01 * (double)n_triples;
}

/* Chooses the axes that are not chosen, in a drawn order; returns what the case is worth. */
static double fill(cover *c, uint8_t *at)
{
    size_t order[COVER_MAX_AXES];
    double all = 0;
    for (size_t i = 0; i < c->n_axes; i++) {
        size_t k = draw(c, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    for (size_t i = 0; i < c->n_axes; i++) {
        size_t a = order[i], from = draw(c, c->n_values[a]), best = from;
        double best_worth = -HUGE_VAL;
        bool open = at[a] == UNSET;
        for (size_t k = 0; open && k < c->n_values[a]; k++) {
            at[a] = (uint8_t)((from + k) % c->n_values[a]);
            double worth = gain(c, at, a, at[a]) - c->cost(at) / PAIR_MS;
            best = worth > best_worth ? at[a] : best;
            best_worth = worth > best_worth ? worth : best_worth;
        }
        at[a] = open ? (uint8_t)best : at[a];
        all += gain(c, at, a, at[a]);
    }
    return all / 2 - c->cost(at) / PAIR_MS; /* each pair was counted from both sides */
}

/* An uncovered pair, of the axes with the most values first. */
static bool uncovered(const cover *c, uint8_t *at)
{
    size_t most = 0;
    memset(at, UNSET, c->n_axes);
    for (size_t a = 0; a < c->n_axes; a++) {
        for (size_t b = a + 1; b < c->n_axes; b++) {
            for (size_t i = 0; i < c->n_values[a] * c->n_values[b]; i++) {
                size_t va = i / c->n_values[b], vb = i % c->n_values[b];
                if (c->n_values[a] * c->n_values[b] > most && !*pair_at(c, slot(c, a, va), slot(c, b, vb))) {
                    most = c->n_values[a] * c->n_values[b];
                    memset(at, UNSET, c->n_axes);
                    at[a] = (uint8_t)va;
                    at[b] = (uint8_t)vb;
                }
            }
        }
    }
    return most > 0;
}

bool cover_next(cover *c, uint8_t *at)
{
    uint8_t start[COVER_MAX_AXES], one[COVER_MAX_AXES];
    double best = -HUGE_VAL;
    if (!uncovered(c, start)) {
        return false;
    }
    for (size_t i = 0; i < N_TRIES; i++) {
        memcpy(one, start, c->n_axes);
        double g = fill(c, one);
        if (g > best) {
            best = g;
            memcpy(at, one, c->n_axes);
        }
    }
    return true;
}

void cover_mark(cover *c, const uint8_t *at)
{
    for (size_t a = 0; a < c->n_axes; a++) {
        for (size_t b = a + 1; b < c->n_axes; b++) {
            size_t s = slot(c, a, at[a]), t = slot(c, b, at[b]);
            *pair_at(c, s, t) = 1;
            for (size_t d = b + 1; d < c->n_axes; d++) {
                *triple_at(c, s, t, slot(c, d, at[d])) = 1;
            }
        }
    }
}

cover_count cover_pairs(const cover *c)
{
    cover_count n = {0};
    for (size_t i = 0; i < c->n_slots * c->n_slots; i++) {
        n.done += c->pairs[i];
    }
    for (size_t a = 0; a < c->n_axes; a++) {
        for (size_t b = a + 1; b < c->n_axes; b++) {
            n.all += c->n_values[a] * c->n_values[b];
        }
    }
    return n;
}

cover_count cover_triples(const cover *c)
{
    cover_count n = {0};
    for (size_t i = 0; i < c->n_slots * c->n_slots * c->n_slots; i++) {
        n.done += c->triples[i];
    }
    for (size_t a = 0; a < c->n_axes; a++) {
        for (size_t b = a + 1; b < c->n_axes; b++) {
            for (size_t d = b + 1; d < c->n_axes; d++) {
                n.all += c->n_values[a] * c->n_values[b] * c->n_values[d];
            }
        }
    }
    return n;
}
