/*
 * purity MODELS [--rounds N] [--case N]: P1 over the whole table (matrix.h). Runs the cases that cover all pairs of values,
 * N times with other cases (1), prints what was covered, and fails if a reply was another, or a value was not run, or
 * a way did not do what it is for. --case: that one alone. MODELS: a folder for the models that are made.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sanitized.h"
#include "purity/cover.h"
#include "purity/scene.h"

typedef struct tally {
    size_t n_run[N_AXES][PURITY_MAX_VALUES];
    size_t n_cases, n_failed;
} tally;

static void print_case(FILE *to, size_t number, const purity_case *c)
{
    fprintf(to, "case %zu:", number);
    for (purity_axis a = 0; a < N_AXES; a++) {
        fprintf(to, " %s=%s", matrix_axis_name(a), matrix_value_name(a, c->at[a]));
    }
}

static void run_one(tally *t, size_t number, const purity_case *c)
{
    const char *why = run_case(c);
    t->n_cases++;
    for (purity_axis a = 0; a < N_AXES; a++) {
        t->n_run[a][c->at[a]]++;
    }
    if (why) {
        t->n_failed++;
        print_case(stderr, number, c);
        fprintf(stderr, ": %s\n", why);
    }
}

/* Returns whether every value was run. */
static bool report(const tally *t, const cover *cov, double seconds)
{
    bool whole = true;
    printf("purity: %zu cases in %.1f s, %zu failed\n", t->n_cases, seconds, t->n_failed);
    for (purity_axis a = 0; a < N_AXES; a++) {
        size_t n = matrix_values(a), covered = 0;
        for (size_t v = 0; v < n; v++) {
            covered += t->n_run[a][v] > 0;
        }
        printf("  %-9s %zu of %zu:", matrix_axis_name(a), covered, n);
        for (size_t v = 0; v < n; v++) {
            printf(" %s=%zu", matrix_value_name(a, v), t->n_run[a][v]);
        }
        printf("\n");
        whole = whole && covered == n;
    }
    cover_count pairs = cover_pairs(cov), triples = cover_triples(cov);
    printf("  pairs     %zu of %zu (last round)\n  triples   %zu of %zu\n", pairs.done, pairs.all,
           triples.done, triples.all);
    return whole && pairs.done == pairs.all;
}

static size_t number_of(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (*text == '\0' || *end != '\0') {
        fprintf(stderr, "purity: %s is no number\n", text);
        exit(2);
    }
    return n;
}

/* A watched build takes half an hour for all: it looks at memory, the others at bits. */
#define SANITIZED_STRIDE 32

int main(int argc, char **argv)
{
    static tally t;
    size_t n_values[N_AXES], rounds = 1, only = SIZE_MAX, number = 0;
    cover cov;
    for (int i = 2; i < argc; i += 2) {
        bool more = i + 1 < argc;
        if (more && strcmp(argv[i], "--rounds") == 0) {
            rounds = number_of(argv[i + 1]);
        } else if (more && strcmp(argv[i], "--case") == 0) {
            only = number_of(argv[i + 1]);
        } else {
            argc = 0;
        }
    }
    if (argc < 2) {
        fprintf(stderr, "usage: purity MODELS [--rounds N] [--case N]\n");
        return 2;
    }
    places_open(argv[1]);
    for (purity_axis a = 0; a < N_AXES; a++) {
        n_values[a] = matrix_values(a);
    }
    uint64_t begin = clock_mono_ns(clock_system());
    cover_init(&cov, n_values, N_AXES, matrix_cost);
    for (size_t r = 0; r < rounds; r++) {
        purity_case c;
        cover_round(&cov, r);
        for (; cover_next(&cov, c.at); number++) {
            bool skipped = SANITIZED && number % SANITIZED_STRIDE != 0;
            if (only == number || (only == SIZE_MAX && !skipped)) {
                run_one(&t, number, &c);
            }
            cover_mark(&cov, c.at);
            matrix_asked(c.at);
        }
    }
    bool whole = report(&t, &cov, (double)(clock_mono_ns(clock_system()) - begin) / 1e9);
    cover_release(&cov);
    ask_references_close();
    places_close();
    return t.n_failed == 0 && (whole || SANITIZED || only != SIZE_MAX) ? 0 : 1;
}
