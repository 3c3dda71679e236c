/*
 * From a seed to a scenario. Each has a theme, so that what is rare in general (pages that run out while replies
 * grow, sessions that go back and forth) happens in many.
 */
#include <string.h>

#include "sim/scenario.h"

typedef enum theme {
    THEME_ANY,
    THEME_PRESSURE,
    THEME_SESSIONS,
    THEME_TEXT,
    THEME_FAULTS,
    THEME_CUTS,
    THEME_SHARED,
    THEME_DISK,
    THEME_COUNT
} theme;

typedef struct dice {
    uint64_t state;
} dice;

/* splitmix64 */
static uint64_t next(dice *d)
{
    uint64_t z = d->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* low … high, both included */
static int64_t pick(dice *d, int64_t low, int64_t high)
{
    return low + (int64_t)(next(d) % (uint64_t)(high - low + 1));
}

static bool once_in(dice *d, int64_t n)
{
    return pick(d, 1, n) == 1;
}

static int64_t one_of(dice *d, const int64_t *values, size_t n)
{
    return values[pick(d, 0, (int64_t)n - 1)];
}
#define ONE_OF(d, ...) \
    one_of(d, (const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* A moment within the first n steps. */
static int64_t moment(dice *d, const sim_config *c, int64_t n)
{
    return pick(d, 0, n * (c->step_cost + c->row_cost));
}

static void make_config(dice *d, theme t, sim_config *c)
{
    sim_set_simplest(&sim_config_kind, (int64_t *)c);
    c->n_ctx = ONE_OF(d, 40, 96, 160, 256, 320);
    c->pages = once_in(d, 3) ? pick(d, 3, 12) : pick(d, 10, 60);
    c->lanes = pick(d, 1, 6);
    if (t == THEME_PRESSURE || t == THEME_SHARED) {
        c->n_ctx = ONE_OF(d, 200, 320, 400);
        c->lanes = pick(d, 2, 6);
        c->pages = c->lanes * pick(d, 2, 4) + pick(d, 0, 3);
    }
    c->chunk = ONE_OF(d, 1, 3, 8, 16, 32, 33, 48);
    c->logit_rows = c->lanes + (once_in(d, 2) ? 0 : pick(d, 1, 8));
    c->max_rows = once_in(d, 3) ? c->logit_rows + pick(d, 0, 4) : 64;
    c->step_cost = ONE_OF(d, 20, 200, 2000, 30000);
    c->row_cost = c->step_cost / ONE_OF(d, 2, 10, 40);
    c->read_cost_ns = once_in(d, 2) ? 0 : c->row_cost * 1000 / ONE_OF(d, 20, 200);
    c->max_step = once_in(d, 3) ? 0 : c->step_cost * pick(d, 1, 12);
    c->idle_lanes = once_in(d, 2) ? 0 : pick(d, 1, c->lanes);
    c->prewarm = once_in(d, 2) ? 0 : pick(d, 1, c->lanes);
    c->park_pages = ONE_OF(d, 0, 0, 1, 3, 6, 60);
    c->cold = once_in(d, 8);
    c->tok = t == THEME_TEXT || once_in(d, 4);
    c->fail_new = once_in(d, 20) ? pick(d, 1, 30) : 0;
    if (t == THEME_DISK || once_in(d, 6)) {
        c->store_room = once_in(d, 3) ? pick(d, 1, 20) : 500;
        c->store_delay = ONE_OF(d, 0, 1, 10, 30) * c->step_cost / 10;
        c->store_ready = once_in(d, 2) ? 0 : moment(d, c, once_in(d, 8) ? 4000 : 20);
        c->stored = once_in(d, 3) ? 0 : pick(d, 1, c->n_ctx - 2 < 120 ? c->n_ctx - 2 : 120);
    }
}

static void make_prompt(dice *d, theme t, const sim_config *c, size_t i, sim_request *r)
{
    int64_t most = c->n_ctx < 120 ? c->n_ctx - 1 : 120;
    r->conv = pick(d, 0, 2);
    r->salt = pick(d, 0, 3);
    r->shared = once_in(d, 3) ? 0 : pick(d, 0, most * 2 / 3);
    r->own = pick(d, 1, once_in(d, 2) ? 8 : most - r->shared > 8 ? most - r->shared : 8);
    if (once_in(d, 6)) { /* the borders of pages and of the context */
        r->own = ONE_OF(d, 1, 31, 32, 33, 63, 64, 65) - r->shared;
        r->own = r->own < 1 ? 1 : r->own;
    }
    if (once_in(d, 40)) {
        r->shared = 0;
        r->own = c->n_ctx + pick(d, -2, 2);
    }
    if (i > 0 && once_in(d, t == THEME_SESSIONS ? 2 : 6)) {
        r->follows = pick(d, 1, (int64_t)i);
        r->shared = 0;
        r->own = once_in(d, 8) ? 0 : pick(d, 1, 12);
    }
    if (r->shared + r->own > 0 && once_in(d, t == THEME_FAULTS ? 8 : 60)) {
        r->poison = pick(d, 1, r->shared + r->own);
    }
    if (once_in(d, 12)) {
        r->looped = pick(d, 1, 6);
        r->repeat_span = once_in(d, 3) ? 0 : ONE_OF(d, 16, 24, 32, 48, 50, 64);
    }
}

static void make_sampling(dice *d, theme t, sim_request *r)
{
    if (once_in(d, 2)) {
        r->temp = ONE_OF(d, 20, 80, 100, 150);
        r->sample_seed = pick(d, 0, 3);
        r->top_k = once_in(d, 2) ? 0 : pick(d, 1, 20);
    }
    r->penalty = once_in(d, 4) ? pick(d, 80, 150) : 100;
    r->min_tokens = once_in(d, 6) ? pick(d, 1, 20) : 0;
    r->ignore_eos = once_in(d, 4);
    r->stops = once_in(d, t == THEME_TEXT ? 2 : 8) ? pick(d, 1, 4) : 0;
    r->stop_ids = once_in(d, 8) ? pick(d, 1, 4) : 0;
    r->logprobs = once_in(d, 6) ? pick(d, 0, 3) : -1;
    r->prompt_logprobs = once_in(d, 20) ? pick(d, 0, 2) : -1;
    if (r->repeat_span == 0 && once_in(d, 6)) {
        r->repeat_span = ONE_OF(d, 16, 32, 64);
    }
}

static void make_cuts(dice *d, theme t, const sim_config *c, sim_request *r)
{
    bool often = t == THEME_CUTS;
    int64_t late = t == THEME_PRESSURE ? 500 : 100; /* steps; parked ones live long */
    if (once_in(d, often ? 3 : t == THEME_PRESSURE ? 5 : 12)) {
        r->deadline = 1 + moment(d, c, once_in(d, 3) ? 8 : late);
    }
    if (once_in(d, often ? 2 : 8)) {
        r->cancel = pick(d, 1, CANCEL_KINDS - 1);
        r->cancel_at = r->cancel >= CANCEL_IN_TOKEN ? pick(d, 1, 30) : moment(d, c, once_in(d, 3) ? 6 : late);
    }
    if (r->session > 0 && r->max_new > 0 && once_in(d, 12)) { /* with nothing left to say */
        r->hold_token = r->max_new;
        r->hold_for = 1 + moment(d, c, 100);
    } else if (once_in(d, often ? 4 : t == THEME_SHARED ? 3 : 10)) {
        r->hold_for = 1 + moment(d, c, t == THEME_SHARED ? 300 : 60);
        if (once_in(d, 2)) {
            r->hold_token = pick(d, 1, 30);
        } else {
            r->hold_at = moment(d, c, 40);
        }
    }
}

/* The next turn of the conversation that its session has had so far. */
static void make_turn(dice *d, const sim_config *c, const sim_request *all, size_t i, sim_request *r)
{
    for (size_t k = i; k-- > 0;) {
        if (all[k].session == r->session) {
            r->follows = (int64_t)k + 1;
            r->space = once_in(d, 8) ? pick(d, 0, 2) : all[k].space;
            r->at = all[k].at + moment(d, c, 60);
            r->own = pick(d, 0, 12);
            r->shared = r->poison = r->looped = 0;
            return;
        }
    }
}

/* A reply that outgrows what is reserved for it. */
static void make_long(dice *d, sim_request *r)
{
    r->shared = 0;
    r->own = pick(d, 1, 40);
    r->max_new = once_in(d, 2) ? -1 : pick(d, 65, 250);
    r->ignore_eos = !once_in(d, 4);
    r->stops = r->stop_ids = r->plan = 0;
}

/* Many begin as the first one did, and grow; readers are slow. */
static void make_shared(dice *d, size_t i, sim_request *r)
{
    make_long(d, r);
    r->conv = r->space = r->follows = r->poison = 0;
    r->prompt_logprobs = -1;
    r->shared = ONE_OF(d, 33, 50, 64, 70, 96);
    r->own = pick(d, 1, 20);
    r->session = once_in(d, 4) ? r->session : 0;
    if (i == 0) {
        r->at = 0;
        r->shared = 96;
        r->max_new = 1;
    }
}

static void make_request(dice *d, theme t, const sim_config *c, const sim_request *all, size_t i,
                         sim_request *r)
{
    sim_set_simplest(&sim_request_kind, (int64_t *)r);
    r->at = once_in(d, 3) ? 0 : moment(d, c, once_in(d, 4) ? 300 : 60);
    make_prompt(d, t, c, i, r);
    r->max_new = once_in(d, 20)                            ? 0
                 : once_in(d, t == THEME_PRESSURE ? 2 : 5) ? -1
                                                           : pick(d, 1, once_in(d, 3) ? 120 : 30);
    r->session = once_in(d, t == THEME_SESSIONS ? 6 : 2) ? 0 : pick(d, 1, SIM_MAX_SESSIONS);
    r->space = once_in(d, 6) ? pick(d, 1, 2) : 0;
    if (r->session > 0 && once_in(d, t == THEME_SESSIONS ? 1 : 3)) {
        make_turn(d, c, all, i, r);
    }
    r->priority = once_in(d, 3) ? pick(d, -10, 10) : 0;
    r->plan = once_in(d, 12) ? pick(d, 1, 2) : 0;
    r->n_labels = pick(d, 1, 5);
    make_sampling(d, t, r);
    if (t == THEME_PRESSURE && !once_in(d, 4)) {
        make_long(d, r);
    }
    if (t == THEME_SHARED) {
        make_shared(d, i, r);
    }
    make_cuts(d, t, c, r);
    r->fail_submit = once_in(d, t == THEME_FAULTS ? 4 : 30) ? pick(d, 1, 14) : 0;
    r->had = once_in(d, 5) ? pick(d, 1, once_in(d, 3) ? 100 : 12) : 0;
}

static void make_event(dice *d, theme t, const scenario *s, sim_event *v)
{
    sim_set_simplest(&sim_event_kind, (int64_t *)v);
    v->at = moment(d, &s->config, 120);
    v->kind = pick(d, 1, EVENT_KINDS - 1);
    if (t == THEME_SESSIONS && once_in(d, 2)) {
        v->kind = pick(d, EVENT_SESSION_RESET, EVENT_SESSION_CLOSE);
    }
    switch (v->kind) {
    case EVENT_SESSION_RESET:
    case EVENT_SESSION_CLOSE:
        v->arg = pick(d, 0, SIM_MAX_SESSIONS - 1);
        break;
    case EVENT_FORWARD_FAILS:
        v->span = pick(d, 0, 1);
        v->arg = pick(d, 0, (int64_t)s->n_requests - 1);
        break;
    case EVENT_BAD_ROW:
        v->arg = pick(d, 0, (int64_t)s->n_requests - 1);
        break;
    case EVENT_NO_MEMORY:
        v->arg = pick(d, 1, 4);
        break;
    case EVENT_DISK_DAMAGED:
        v->arg = pick(d, 1, 5);
        break;
    case EVENT_DISK_FULL:
        v->span = pick(d, 0, 2);
        break;
    case EVENT_DISK_STUCK:
        v->span = moment(d, &s->config, once_in(d, 8) ? 4000 : 100);
        break;
    case EVENT_RING_FULL:
    case EVENT_STALL:
        v->span = moment(d, &s->config, 40);
        break;
    default:
        break;
    }
}

void scenario_make(uint64_t seed, scenario *out)
{
    dice d = {seed};
    theme t = (theme)pick(&d, 0, THEME_COUNT); /* pressure twice */
    t = t == THEME_COUNT ? THEME_PRESSURE : t;
    memset(out, 0, sizeof *out);
    out->seed = seed;
    make_config(&d, t, &out->config);
    out->n_requests = (size_t)pick(&d, 1, once_in(&d, 3) ? SIM_MAX_REQUESTS : 9);
    for (size_t i = 0; i < out->n_requests; i++) {
        make_request(&d, t, &out->config, out->requests, i, &out->requests[i]);
    }
    out->n_events = t == THEME_FAULTS || t == THEME_SESSIONS || t == THEME_DISK ? (size_t)pick(&d, 1, 8)
                    : once_in(&d, 3)                                            ? (size_t)pick(&d, 1, 3)
                                                                                : 0;
    for (size_t i = 0; i < out->n_events; i++) {
        make_event(&d, t, out, &out->events[i]);
    }
    scenario_mend(out);
}
