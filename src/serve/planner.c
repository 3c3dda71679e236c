#include "serve/planner.h"

#include <assert.h>
#include <string.h>

#define NOBODY SIZE_MAX

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t weights_of(uint64_t file_bytes)
{
    return file_bytes + file_bytes / 4 + PLANNER_SCRATCH_BYTES;
}

void planner_divide(const uint64_t *file_bytes, size_t n, uint64_t total_bytes, planner_share *shares)
{
    uint64_t all = 0;
    for (size_t i = 0; i < n; i++) {
        all += weights_of(file_bytes[i]);
    }
    uint64_t left = less(total_bytes, all);
    for (size_t i = 0; i < n; i++) {
        uint64_t own = weights_of(file_bytes[i]);
        shares[i] = (planner_share){own + left / n, own + left};
        if (left == 0) {
            shares[i].bytes = shares[i].most_bytes =
                (uint64_t)((double)total_bytes * ((double)own / (double)all));
        }
    }
}

void planner_init(planner *p, size_t n_models)
{
    assert(n_models <= PLANNER_MAX_MODELS);
    memset(p, 0, sizeof *p);
    p->n = n_models;
}

static bool is_short(const planner_view *v)
{
    bool for_pages = v->waiting > 0 && v->running < v->lanes && v->used >= v->limit / 4;
    return v->ready && v->page_bytes > 0 && (v->parked > 0 || for_pages);
}

/* Pages that it may give away. */
static uint64_t spare(const planner_model *m, const planner_view *v)
{
    uint64_t needs = v->used + v->used / 4 + 1;
    needs = needs > m->first / 8 + 1 ? needs : m->first / 8 + 1;
    bool may = v->ready && v->page_bytes > 0 && m->keep_looks == 0 && v->parked == 0 && v->limit == m->target;
    return may ? less(m->target, needs) / 2 : 0;
}

/* A worker that has just become ready: the first one of its model is believed, a later one is told. */
static bool must_be_told(planner_model *m, const planner_view *v)
{
    if (!v->ready || v->start == m->start) {
        return false;
    }
    m->start = v->start;
    if (m->first == 0) {
        m->first = m->target = v->limit;
    }
    if (m->target > v->most_pages) { /* it was started with less: what it lacks is nobody's */
        m->target = v->most_pages;
    }
    return v->limit != m->target;
}

static void count_looks(planner_model *m, const planner_view *v)
{
    m->short_looks = is_short(v) ? m->short_looks + 1 : 0;
    m->keep_looks = m->short_looks > 0 ? PLANNER_KEEP_LOOKS : m->keep_looks - (m->keep_looks > 0);
}

/* The one that has been short for longest and may have more. */
static size_t taker(const planner *p, const planner_view *v)
{
    size_t best = NOBODY;
    for (size_t i = 0; i < p->n; i++) {
        const planner_model *m = &p->models[i];
        bool may =
            m->short_looks >= PLANNER_SHORT_LOOKS && m->target < v[i].most_pages && v[i].limit >= m->target;
        if (may && (best == NOBODY || m->short_looks > p->models[best].short_looks)) {
            best = i;
        }
    }
    return best;
}

/* The one with the most bytes to spare. */
static size_t giver(const planner *p, const planner_view *v, size_t to)
{
    size_t best = NOBODY;
    for (size_t i = 0; i < p->n; i++) {
        uint64_t pages = i == to ? 0 : spare(&p->models[i], &v[i]);
        if (pages >= PLANNER_LEAST_MOVE &&
            (best == NOBODY ||
             pages * v[i].page_bytes > spare(&p->models[best], &v[best]) * v[best].page_bytes)) {
            best = i;
        }
    }
    return best;
}

/* Begins a move; *order lowers the one that gives. */
static bool begin_move(planner *p, const planner_view *v, planner_order *order)
{
    size_t to = taker(p, v), from = to == NOBODY ? NOBODY : giver(p, v, to);
    if (from == NOBODY) {
        return false;
    }
    planner_model *a = &p->models[from], *b = &p->models[to];
    uint64_t wanted = b->target / 4 + PLANNER_LEAST_MOVE;
    wanted = wanted < v[to].most_pages - b->target ? wanted : v[to].most_pages - b->target;
    uint64_t bytes = spare(a, &v[from]) * v[from].page_bytes, most = wanted * v[to].page_bytes;
    bytes = bytes < most ? bytes : most;
    uint64_t given =
        (bytes + v[from].page_bytes - 1) / v[from].page_bytes; /* whole pages, not fewer than are got */
    uint64_t got = bytes / v[to].page_bytes;
    if (got == 0) {
        return false;
    }
    a->target -= given;
    b->target += got;
    b->keep_looks = PLANNER_KEEP_LOOKS;
    p->moving = true;
    p->from = from;
    p->to = to;
    *order = (planner_order){from, a->target};
    return true;
}

/* The giver's pool has come down, or its worker is gone with all it had. */
static bool has_come_down(const planner *p, const planner_view *v)
{
    return !v[p->from].ready || v[p->from].limit <= p->models[p->from].target;
}

size_t planner_look(planner *p, const planner_view *views, planner_order *orders)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
        bool gets_later = p->moving && p->to == i;
        count_looks(&p->models[i], &views[i]);
        if (must_be_told(&p->models[i], &views[i]) && !gets_later) {
            orders[n++] = (planner_order){i, p->models[i].target};
        }
    }
    if (n > 0) {
        return n;
    }
    if (p->moving && has_come_down(p, views)) {
        p->moving = false;
        p->rest_looks = PLANNER_REST_LOOKS;
        orders[n++] = (planner_order){p->to, p->models[p->to].target};
    } else if (!p->moving && p->rest_looks > 0) {
        p->rest_looks--;
    } else if (!p->moving && begin_move(p, views, &orders[n])) {
        n++;
    }
    return n;
}

void planner_tell_again(planner *p, size_t model)
{
    p->models[model].start = 0;
}
