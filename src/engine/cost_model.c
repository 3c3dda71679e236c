/*
 * Units. A coefficient is counted in its prior (u = coefficient / prior), a step in what the prior says of its shape:
 *
 *   h = (step prior, row prior * rows, read prior * positions) / P,   z = ns / P,   P = their sum
 *
 * so h has parts in [0, 1] that sum to 1, and steps of all sizes weigh alike. Each step fades what was by a factor,
 * adds h h' and h z, and asks for the u that lowers
 *
 *   u' A u - 2 b' u + RIDGE |u - believed|^2
 *
 * The last term holds what the past steps say nothing about (all of one shape, say) at what was believed.
 */
#include "engine/cost_model.h"

#include <stdbool.h>
#include <string.h>

#define N     3
#define RIDGE 0.05
/* A step counts as at most WILD times its prediction and a little; not the first one, which has none. */
#define WILD      3.0
#define LITTLE_NS 20000.0

/* A model of 1B parameters on a few cores. What matters is how they compare with each other: the first step that is
 * seen scales all three. */
static const double prior[N] = {20e6, 5e5, 1e3};

void cost_model_init(cost_model *m)
{
    memset(m, 0, sizeof *m);
    m->step_ns = prior[0];
    m->row_ns = prior[1];
    m->read_ns = prior[2];
}

static double predict(const cost_model *m, const step_shape *s)
{
    return m->step_ns + m->row_ns * (double)s->rows + m->read_ns * (double)s->positions;
}

/* Solves a u = b for the unknowns in `in`; the others are 0. a is symmetric and positive definite. */
static void solve(const double a[N][N], const double b[N], const bool in[N], double u[N])
{
    double m[N][N + 1];
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < N; j++) {
            m[i][j] = in[i] && in[j] ? a[i][j] : i == j ? 1.0 : 0.0;
        }
        m[i][N] = in[i] ? b[i] : 0.0;
    }
    for (size_t k = 0; k < N; k++) {
        for (size_t i = k + 1; i < N; i++) {
            double f = m[i][k] / m[k][k];
            for (size_t j = k; j <= N; j++) {
                m[i][j] -= f * m[k][j];
            }
        }
    }
    for (size_t k = N; k-- > 0;) {
        u[k] = m[k][N];
        for (size_t j = k + 1; j < N; j++) {
            u[k] -= m[k][j] * u[j];
        }
        u[k] /= m[k][k];
    }
}

/* The same, with no unknown below zero: the lowest one is dropped until none is. */
static void solve_non_negative(const double a[N][N], const double b[N], double u[N])
{
    bool in[N] = {true, true, true};
    for (;;) {
        size_t low = 0;
        solve(a, b, in, u);
        for (size_t i = 1; i < N; i++) {
            low = u[i] < u[low] ? i : low;
        }
        if (!(u[low] < 0.0)) {
            return;
        }
        in[low] = false;
    }
}

/* What is kept of the sums at the n-th step: little at first, so that a bad start is soon forgotten. */
static double fading(size_t n)
{
    double memory = (double)n / 2.0;
    memory = memory < 2.0 ? 2.0 : memory > COST_MODEL_MEMORY ? COST_MODEL_MEMORY : memory;
    return 1.0 - 1.0 / memory;
}

void cost_model_observe(cost_model *m, const step_shape *s, uint64_t ns)
{
    double h[N] = {prior[0], prior[1] * (double)s->rows, prior[2] * (double)s->positions};
    double p = h[0] + h[1] + h[2];
    double most = WILD * (predict(m, s) + LITTLE_NS);
    double z = (m->n_seen > 0 && (double)ns > most ? most : (double)ns) / p;
    double believed[N] = {m->step_ns / prior[0], m->row_ns / prior[1], m->read_ns / prior[2]};
    double keep = fading(++m->n_seen);
    double a[N][N], b[N], u[N];
    for (size_t i = 0; i < N; i++) {
        h[i] /= p;
        believed[i] = m->n_seen == 1 ? z : believed[i];
    }
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < N; j++) {
            m->a[i][j] = keep * m->a[i][j] + h[i] * h[j];
            a[i][j] = m->a[i][j] + (i == j ? RIDGE : 0.0);
        }
        m->b[i] = keep * m->b[i] + h[i] * z;
        b[i] = m->b[i] + RIDGE * believed[i];
    }
    solve_non_negative(a, b, u);
    m->step_ns = u[0] * prior[0];
    m->row_ns = u[1] * prior[1];
    m->read_ns = u[2] * prior[2];
}

uint64_t cost_model_predict(const cost_model *m, const step_shape *s)
{
    double ns = predict(m, s);
    return ns < 0x1p64 ? (uint64_t)ns : UINT64_MAX;
}

size_t cost_model_rows(const cost_model *m, const step_shape *base, size_t position, uint64_t budget_ns,
                       size_t max_rows)
{
    size_t low = 0, high = max_rows; /* low fit, or are none; more than high do not, or may not be */
    while (low < high) {
        size_t n = high - (high - low) / 2;
        step_shape s = {.rows = base->rows + n, .positions = base->positions};
        s.positions += step_positions(position, n);
        if (cost_model_predict(m, &s) <= budget_ns) {
            low = n;
        } else {
            high = n - 1;
        }
    }
    return low;
}
