/*
 * Values to blocks of the IQ formats with a grid, without an importance matrix: all values count alike. Each
 * run of values with one scale gets a float scale by least squares over trials; the runs' integer scales share
 * d; points are chosen against the scales as stored, exactly the nearest of the grid.
 */
#include <math.h>
#include <string.h>

#include "base/fp16.h"
#include "gguf/quant_fit.h"
#include "gguf/quant_int.h"
#include "gguf/quant_tables.h"

#define RUN_VALUES_MAX 32
#define RUN_GROUPS_MAX 8
#define HALF_CODES_MAX 81 /* 3^4; 8^2 is less */
#define IQ1_DELTA      0.125
#define DELTA_PLUS     1u
#define DELTA_MINUS    2u

typedef enum iq_kind {
    IQ_SIGNS_EVEN,     /* signs apart from the points, an even number of minus signs in each 8 values */
    IQ_SIGNS_FREE,     /* the same without that rule */
    IQ_DELTA_PER_RUN,  /* signed points, all of a run moved by +1/8 or -1/8 */
    IQ_DELTA_PER_GROUP /* each point moved by itself */
} iq_kind;

typedef struct iq_form {
    const quant_grid *grid;
    iq_kind kind;
    size_t n_run; /* values that share a scale d * unit * (2 s + 1), s < n_scales */
    int n_scales;
    double unit;
    double first, step; /* trials put the largest magnitude on (first + step * trial) times the last level */
    int n_trials;
} iq_form;

typedef struct iq_run { /* what the format stores of a run */
    int s;
    unsigned index[RUN_GROUPS_MAX];
    unsigned signs[RUN_VALUES_MAX / 8]; /* bit i: value i of the eight is negative */
    unsigned minus;                     /* bit g: the delta of group g is -1/8 */
} iq_run;

/* cost[c] = squared distance of t[n] to the levels that the digits of c choose. */
static unsigned half_costs(const double *t, size_t n, const double *levels, unsigned base, double *cost)
{
    unsigned n_codes = 1;
    cost[0] = 0;
    for (size_t i = 0; i < n; i++, n_codes *= base) {
        for (unsigned digit = base; digit-- > 0;) {
            double c = (t[i] - levels[digit]) * (t[i] - levels[digit]);
            for (unsigned k = 0; k < n_codes; k++) {
                cost[digit * n_codes + k] = cost[k] + c;
            }
        }
    }
    return n_codes;
}

static unsigned least_of(const double *cost, unsigned n)
{
    unsigned least = 0;
    for (unsigned i = 1; i < n; i++) {
        least = cost[i] < cost[least] ? i : least;
    }
    return least;
}

/* The nearest point of the grid to t and its squared distance. A rank is two half codes: whole rows of ranks
 * are left out as soon as their upper half alone is too far off; the row with the nearest one comes first. */
static double nearest_point(const quant_grid *grid, const double *levels, const double *t, unsigned *index)
{
    double low[HALF_CODES_MAX], high[HALF_CODES_MAX], best = HUGE_VAL;
    size_t n = grid->n_dims / 2;
    unsigned n_codes = half_costs(t, n, levels, grid->base, low), rank = 0;
    half_costs(t + n, n, levels, grid->base, high);
    double least = low[least_of(low, n_codes)];
    unsigned first = least_of(high, n_codes);
    for (unsigned k = 0; k < n_codes; k++) {
        unsigned h = (first + k) % n_codes, row = h * n_codes;
        if (high[h] + least >= best) {
            continue;
        }
        for (unsigned r = quant_grid_next(grid, row); r < row + n_codes; r = quant_grid_next(grid, r + 1)) {
            if (low[r - row] + high[h] < best) {
                best = low[r - row] + high[h];
                rank = r;
            }
        }
    }
    *index = quant_grid_index(grid, rank);
    return best;
}

/* Signs of eight values; where their number must be even the smallest value gets the wrong one. */
static unsigned signs_of(const float *x, bool is_even)
{
    unsigned signs = 0, n_minus = 0;
    size_t smallest = 0;
    for (size_t i = 0; i < 8; i++) {
        unsigned minus = x[i] < 0;
        signs |= minus << i;
        n_minus += minus;
        smallest = fabsf(x[i]) < fabsf(x[smallest]) ? i : smallest;
    }
    return is_even && n_minus % 2 ? signs ^ 1u << smallest : signs;
}

/* Points, signs and deltas (of those allowed) for a given scale; returns the squared error. */
static double choose_run(const iq_form *f, const float *x, double scale, unsigned allowed, iq_run *run)
{
    size_t n_dims = f->grid->n_dims;
    bool has_signs = f->kind == IQ_SIGNS_EVEN || f->kind == IQ_SIGNS_FREE;
    double error = 0;
    run->minus = 0;
    for (size_t at = 0, g = 0; at < f->n_run; at += n_dims, g++) {
        double t[QUANT_GRID_MAX_DIMS], best = HUGE_VAL;
        if (at % 8 == 0) {
            run->signs[at / 8] = has_signs ? signs_of(x + at, f->kind == IQ_SIGNS_EVEN) : 0;
        }
        for (size_t i = 0; i < n_dims; i++) {
            double v = (double)x[at + i] / scale;
            t[i] = run->signs[at / 8] >> (at + i) % 8 & 1u ? -v : v;
        }
        for (unsigned side = DELTA_PLUS; side <= DELTA_MINUS; side++) {
            double levels[QUANT_GRID_MAX_LEVELS], delta = side == DELTA_PLUS ? IQ1_DELTA : -IQ1_DELTA;
            unsigned index;
            if (!(allowed & side)) {
                continue;
            }
            for (size_t l = 0; l < f->grid->base; l++) {
                levels[l] = f->grid->levels[l] + (has_signs ? 0 : delta);
            }
            double distance = nearest_point(f->grid, levels, t, &index);
            if (distance < best) {
                unsigned bit = 1u << g;
                best = distance;
                run->index[g] = index;
                run->minus = side == DELTA_MINUS ? run->minus | bit : run->minus & ~bit;
            }
        }
        error += best;
    }
    return error * scale * scale;
}

/* Which deltas choose_run may choose from, in turn: for one delta a run each alone, else at once. */
static unsigned allowed_of(iq_kind kind, int turn)
{
    static const unsigned allowed[4][2] = {
        {DELTA_PLUS, 0}, {DELTA_PLUS, 0}, {DELTA_PLUS, DELTA_MINUS}, {DELTA_PLUS | DELTA_MINUS, 0}};
    return allowed[kind][turn];
}

/* The scale that is best for the chosen points: sums of point * value and of point^2. */
static void run_sums(const iq_form *f, const float *x, const iq_run *run, double *sxl, double *sll)
{
    bool has_signs = f->kind == IQ_SIGNS_EVEN || f->kind == IQ_SIGNS_FREE;
    *sxl = *sll = 0;
    for (size_t at = 0, g = 0; at < f->n_run; at += f->grid->n_dims, g++) {
        int8_t point[QUANT_GRID_MAX_DIMS];
        double delta = has_signs ? 0 : run->minus >> g & 1u ? -IQ1_DELTA : IQ1_DELTA;
        quant_grid_point(f->grid, run->index[g], point);
        for (size_t i = 0; i < f->grid->n_dims; i++) {
            bool is_minus = run->signs[at / 8] >> (at + i) % 8 & 1u;
            double l = is_minus ? -point[i] : point[i] + delta;
            *sxl += l * (double)x[at + i];
            *sll += l * l;
        }
    }
}

static double fit_run(const iq_form *f, const float *x)
{
    double extreme = fabs(quant_fit_extreme(x, f->n_run)), best = 0, best_gain = 0;
    double top = f->grid->levels[f->grid->base - 1];
    iq_run run;
    for (int trial = 0; extreme > 0 && trial < f->n_trials; trial++) {
        double scale = extreme / (top * (f->first + f->step * trial));
        for (int turn = 0; turn < 2 && allowed_of(f->kind, turn); turn++) {
            double sxl, sll;
            choose_run(f, x, scale, allowed_of(f->kind, turn), &run);
            run_sums(f, x, &run, &sxl, &sll);
            if (sxl > 0 && sxl * (sxl / sll) > best_gain) {
                best_gain = sxl * (sxl / sll);
                best = sxl / sll;
            }
        }
    }
    return best;
}

/* The best of the integer scales beside the fitted one, with its points. */
static void settle_run(const iq_form *f, const float *x, double unit, double fit, iq_run *out)
{
    int s = quant_fit_code(fit / unit - 1, 2, 0, f->n_scales - 1);
    double best = HUGE_VAL;
    for (int try = s - 1; try <= s + 1; try++) {
        for (int turn = 0; turn < 2 && allowed_of(f->kind, turn); turn++) {
            iq_run run = {.s = try};
            if (try < 0 || try >= f->n_scales) {
                continue;
            }
            double error = choose_run(f, x, unit * (2 * try + 1), allowed_of(f->kind, turn), &run);
            if (error < best) {
                best = error;
                *out = run;
            }
        }
    }
}

/* All runs of a block; returns d as stored. */
static uint16_t settle_block(const iq_form *f, const float *x, iq_run *runs)
{
    double fit[16], top = 0;
    size_t n_runs = 256 / f->n_run;
    for (size_t j = 0; j < n_runs; j++) {
        fit[j] = fit_run(f, x + f->n_run * j);
        top = fmax(top, fit[j]);
    }
    uint16_t d = quant_fit_fp16(top / (f->unit * (2 * f->n_scales - 1)));
    double unit = (double)fp16_to_f32(d) * f->unit;
    memset(runs, 0, n_runs * sizeof *runs);
    for (size_t j = 0; unit > 0 && j < n_runs; j++) {
        settle_run(f, x + f->n_run * j, unit, fit[j], &runs[j]);
    }
    return d;
}

/* The word of IQ2_XXS and IQ3_XXS: seven signs for each eight values, and the scale. */
static void put_word(uint8_t *out, const iq_run *run)
{
    uint32_t word = (uint32_t)run->s << 28;
    for (size_t k = 0; k < 4; k++) {
        word |= (run->signs[k] & 127u) << 7 * k;
    }
    memcpy(out, &word, sizeof word);
}

void quant_encode_iq2_xxs(const float *x, void *block)
{
    static const iq_form form = {&quant_grid_iq2_xxs, IQ_SIGNS_EVEN, 32, 16, 0.125, 0.7, 0.1, 7};
    block_iq2_xxs *b = block;
    iq_run runs[8];
    b->d = settle_block(&form, x, runs);
    for (size_t j = 0; j < 8; j++) {
        for (size_t g = 0; g < 4; g++) {
            b->qs[8 * j + g] = (uint8_t)runs[j].index[g];
        }
        put_word(b->qs + 8 * j + 4, &runs[j]);
    }
}

void quant_encode_iq2_xs(const float *x, void *block)
{
    static const iq_form form = {&quant_grid_iq2_xs, IQ_SIGNS_EVEN, 16, 16, 0.125, 0.7, 0.1, 7};
    block_iq2_xs *b = block;
    iq_run runs[16];
    memset(b, 0, sizeof *b);
    b->d = settle_block(&form, x, runs);
    for (size_t j = 0; j < 16; j++) {
        b->scales[j / 2] |= (uint8_t)(runs[j].s << 4 * (j % 2));
        for (size_t g = 0; g < 2; g++) {
            b->qs[2 * j + g] = (uint16_t)(runs[j].index[g] | (runs[j].signs[g] & 127u) << 9);
        }
    }
}

void quant_encode_iq2_s(const float *x, void *block)
{
    static const iq_form form = {&quant_grid_iq2_s, IQ_SIGNS_FREE, 16, 16, 0.125, 0.7, 0.1, 7};
    block_iq2_s *b = block;
    iq_run runs[16];
    memset(b, 0, sizeof *b);
    b->d = settle_block(&form, x, runs);
    for (size_t j = 0; j < 16; j++) {
        b->scales[j / 2] |= (uint8_t)(runs[j].s << 4 * (j % 2));
        for (size_t g = 0; g < 2; g++) {
            size_t at = 2 * j + g;
            b->qs[at] = (uint8_t)runs[j].index[g];
            b->qh[at / 4] |= (uint8_t)(runs[j].index[g] >> 8 << 2 * (at % 4));
            b->signs[at] = (uint8_t)runs[j].signs[g];
        }
    }
}

void quant_encode_iq3_xxs(const float *x, void *block)
{
    static const iq_form form = {&quant_grid_iq3_xxs, IQ_SIGNS_EVEN, 32, 16, 0.25, 0.8, 0.08, 7};
    block_iq3_xxs *b = block;
    iq_run runs[8];
    b->d = settle_block(&form, x, runs);
    for (size_t j = 0; j < 8; j++) {
        for (size_t g = 0; g < 8; g++) {
            b->qs[8 * j + g] = (uint8_t)runs[j].index[g];
        }
        put_word(b->words + 4 * j, &runs[j]);
    }
}

void quant_encode_iq3_s(const float *x, void *block)
{
    static const iq_form form = {&quant_grid_iq3_s, IQ_SIGNS_FREE, 32, 16, 1, 0.8, 0.08, 7};
    block_iq3_s *b = block;
    iq_run runs[8];
    memset(b, 0, sizeof *b);
    b->d = settle_block(&form, x, runs);
    for (size_t j = 0; j < 8; j++) {
        b->scales[j / 2] |= (uint8_t)(runs[j].s << 4 * (j % 2));
        for (size_t g = 0; g < 8; g++) {
            b->qs[8 * j + g] = (uint8_t)runs[j].index[g];
            b->qh[j] |= (uint8_t)(runs[j].index[g] >> 8 << g);
        }
        for (size_t k = 0; k < 4; k++) {
            b->signs[4 * j + k] = (uint8_t)runs[j].signs[k];
        }
    }
}

void quant_encode_iq1_s(const float *x, void *block)
{
    static const iq_form form = {&quant_grid_iq1, IQ_DELTA_PER_RUN, 32, 8, 1, 1, 0.3, 6};
    block_iq1_s *b = block;
    iq_run runs[8];
    b->d = settle_block(&form, x, runs);
    for (size_t j = 0; j < 8; j++) {
        unsigned high = (unsigned)runs[j].s << 12 | (runs[j].minus & 1u) << 15;
        for (size_t g = 0; g < 4; g++) {
            b->qs[4 * j + g] = (uint8_t)runs[j].index[g];
            high |= runs[j].index[g] >> 8 << 3 * g;
        }
        b->qh[j] = (uint16_t)high;
    }
}

void quant_encode_iq1_m(const float *x, void *block)
{
    static const iq_form form = {&quant_grid_iq1, IQ_DELTA_PER_GROUP, 16, 8, 1, 1, 0.3, 6};
    block_iq1_m *b = block;
    iq_run runs[16];
    unsigned d = settle_block(&form, x, runs);
    memset(b, 0, sizeof *b);
    for (size_t j = 0; j < 16; j++) {
        for (size_t g = 0; g < 2; g++) {
            b->qs[2 * j + g] = (uint8_t)runs[j].index[g];
            b->qh[j] |= (uint8_t)((runs[j].index[g] >> 8 | (runs[j].minus >> g & 1u) << 3) << 4 * g);
        }
    }
    for (size_t w = 0; w < 4; w++) {
        unsigned word = (d >> 4 * w & 15u) << 12;
        for (size_t k = 0; k < 4; k++) {
            word |= (unsigned)runs[4 * w + k].s << 3 * k;
        }
        b->scales[2 * w] = (uint8_t)word;
        b->scales[2 * w + 1] = (uint8_t)(word >> 8);
    }
}
