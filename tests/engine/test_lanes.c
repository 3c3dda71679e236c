/*
 * PROTOCOL 5, sentence by sentence, with native state that fails where it is told to; then long random lives beside
 * a naive model of the same rules.
 */
#include "engine/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/lanes.h"

#define MOST_LANES 16

/* Native state of lanes, as memory of a few bytes; what it was asked, and where it fails. */
typedef struct native {
    lane_table *t;
    clock_fake clock;
    size_t n_creates, n_failed, n_resets, n_destroys; /* n_failed: of the creates */
    size_t fail_create_at;                            /* the so manieth from the start, 0 = none */
    bool fail_reset;
    const char *reset_says; /* NULL = the reset explains nothing */
    uint64_t reset_ms;
    bool present[MOST_LANES];
    bool index_was_taken; /* of the last destroyed one, while it was destroyed */
    lane_event last;
    size_t n_events;
    char last_reason[64];
} native;

static status native_create(void *ctx, lane *l)
{
    native *n = ctx;
    if (++n->n_creates == n->fail_create_at) {
        n->n_failed++;
        return ST_NOMEM;
    }
    assert_false(n->present[l->index]);
    assert_int_equal(l->owner, 0);
    assert_int_equal(l->kv.ids.len, 0);
    assert_int_equal(l->kv.n_pages, 0);
    n->present[l->index] = true;
    return ivec_reserve(&l->kv.ids, 4);
}

static status native_reset(void *ctx, lane *l, err *e)
{
    native *n = ctx;
    n->n_resets++;
    assert_true(n->present[l->index]);
    clock_fake_advance_ms(&n->clock, n->reset_ms);
    l->kv.ids.len = 0;
    l->kv.n_pages = 0;
    if (!n->fail_reset) {
        return ST_OK;
    }
    return n->reset_says ? err_set(e, ST_IO, NULL, "%s", n->reset_says) : ST_INTERNAL;
}

static void native_destroy(void *ctx, lane *l)
{
    native *n = ctx;
    n->n_destroys++;
    assert_true(n->present[l->index]);
    n->present[l->index] = false;
    ivec_release(&l->kv.ids);
    n->index_was_taken = lanes_at(n->t, l->index) == l;
}

static void native_event(void *ctx, const lane_event *ev)
{
    native *n = ctx;
    n->last = *ev;
    snprintf(n->last_reason, sizeof n->last_reason, "%s", ev->reason);
    n->n_events++;
}

static void open_lanes(native *n, size_t n_lanes, size_t idle_cap)
{
    memset(n, 0, sizeof *n);
    clock_fake_init(&n->clock, 1000, 0);
    const lanes_config cfg = {.n_lanes = n_lanes,
                              .idle_cap = idle_cap,
                              .ops = {n, native_create, native_reset, native_destroy},
                              .clock = &n->clock.src,
                              .event = native_event,
                              .event_ctx = n};
    assert_int_equal(lanes_new(&cfg, &n->t), ST_OK);
}

static void close_lanes(native *n)
{
    lanes_free(n->t);
    for (size_t i = 0; i < MOST_LANES; i++) {
        assert_false(n->present[i]);
    }
    assert_int_equal(n->n_creates - n->n_failed, n->n_destroys);
}

static lane *acquire(native *n, uint64_t owner)
{
    lane *l = NULL;
    assert_int_equal(lanes_acquire(n->t, owner, false, &l), ST_OK);
    assert_int_equal(l->owner, owner);
    return l;
}

static void expect_stats(const native *n, size_t live, size_t idle)
{
    lanes_stats st = lanes_stats_read(n->t);
    assert_int_equal(st.live, live);
    assert_int_equal(st.idle, idle);
    assert_int_equal(st.tracked, live);
    assert_int_equal(st.created - st.destroyed, live + idle);
    assert_int_equal(st.lanes, lanes_count(n->t));
}

static void test_indices(void **state)
{
    native n;
    open_lanes(&n, 3, 1);
    assert_int_equal(lanes_count(n.t), 3);
    for (uint32_t i = 0; i < 3; i++) { /* nothing is free: the high-water mark */
        assert_null(lanes_at(n.t, i));
        assert_int_equal(acquire(&n, 10 + i)->index, i);
        assert_int_equal(lanes_at(n.t, i)->owner, 10 + i);
    }
    assert_null(lanes_at(n.t, 3));
    expect_stats(&n, 3, 0);
    lane *l = NULL;
    assert_int_equal(lanes_acquire(n.t, 99, false, &l), ST_CAPACITY);
    assert_null(l);
    expect_stats(&n, 3, 0);
    assert_int_equal(n.n_creates, 3);
    lanes_release(n.t, 11); /* stays, idle */
    lanes_release(n.t, 10); /* the pool is full: its index is free */
    assert_non_null(lanes_at(n.t, 1));
    assert_null(lanes_at(n.t, 0));
    assert_int_equal(acquire(&n, 20)->index, 1); /* the idle one first, nothing is made */
    assert_int_equal(n.n_creates, 3);
    assert_int_equal(acquire(&n, 21)->index, 0); /* then a free index */
    assert_int_equal(n.n_creates, 4);
    expect_stats(&n, 3, 0);
    lanes_release(n.t, 12);
    lanes_release(n.t, 20);
    lanes_release(n.t, 21);
    close_lanes(&n);
}

/* A creation that fails changes nothing, at a fresh index or at a free one. */
static void test_creation_fails(void **state)
{
    native n;
    lane *l = NULL;
    open_lanes(&n, 2, 1);
    n.fail_create_at = 1;
    assert_int_equal(lanes_acquire(n.t, 5, true, &l), ST_NOMEM);
    assert_null(l);
    expect_stats(&n, 0, 0);
    assert_null(lanes_at(n.t, 0));
    lane_cleanup c = lanes_release(n.t, 5); /* no bookkeeping of it was left */
    assert_false(c.was_live);
    assert_int_equal(n.n_events, 0);
    assert_int_equal(acquire(&n, 5)->index, 0); /* the mark did not rise */
    assert_int_equal(acquire(&n, 6)->index, 1);
    lanes_release(n.t, 6);
    lanes_release(n.t, 5); /* destroyed: index 0 is free */
    assert_int_equal(acquire(&n, 7)->index, 1);
    n.fail_create_at = n.n_creates + 1;
    assert_int_equal(lanes_acquire(n.t, 8, false, &l), ST_NOMEM);
    expect_stats(&n, 1, 0);
    assert_int_equal(acquire(&n, 8)->index, 0); /* the popped index went back */
    assert_int_equal(lanes_acquire(n.t, 9, false, &l), ST_CAPACITY);
    lanes_release(n.t, 7);
    lanes_release(n.t, 8);
    close_lanes(&n);
}

static void test_generations(void **state)
{
    native n;
    open_lanes(&n, 2, 1);
    lane *a = acquire(&n, 1);
    uint64_t first = a->generation;
    assert_true(first > 0); /* a result that names nothing (0) is never current */
    assert_true(lanes_is_current(n.t, a->index, first));
    assert_false(lanes_is_current(n.t, a->index, first - 1));
    assert_false(lanes_is_current(n.t, a->index, first + 1));
    assert_false(lanes_is_current(n.t, 1, first)); /* no lane there */
    assert_false(lanes_is_current(n.t, 2, first)); /* no such index */
    assert_false(lanes_is_current(n.t, UINT32_MAX, first));
    lanes_release(n.t, 1);
    assert_false(lanes_is_current(n.t, 0, first)); /* idle: nobody's */
    lane *b = acquire(&n, 2);
    assert_int_equal(b->index, 0);
    assert_true(b->generation > first);
    assert_false(lanes_is_current(n.t, 0, first));
    uint64_t second = b->generation;
    n.fail_reset = true; /* destroyed and made again: no generation comes twice */
    lanes_release(n.t, 2);
    assert_false(lanes_is_current(n.t, 0, second));
    n.fail_reset = false;
    assert_int_equal(acquire(&n, 1)->index, 0);
    assert_true(lanes_at(n.t, 0)->generation > second);
    assert_false(lanes_is_current(n.t, 0, second));
    lanes_release(n.t, 1);
    close_lanes(&n);
}

/* What differs from owner to owner: an owner's fields are its own. */
static void test_owners(void **state)
{
    native n;
    lane *l;
    open_lanes(&n, 2, 0);
    assert_int_equal(lanes_acquire(n.t, UINT64_MAX, true, &l), ST_OK);
    assert_true(l->named);
    lanes_release(n.t, UINT64_MAX);
    assert_false(lanes_at(n.t, 0)->named);
    assert_int_equal(lanes_at(n.t, 0)->owner, 0);
    assert_int_equal(lanes_acquire(n.t, 2, false, &l), ST_OK);
    assert_int_equal(l->index, 0);
    assert_false(l->named);
    lanes_release(n.t, 2);
    close_lanes(&n);
}

typedef struct cleanup_case {
    const char *name;
    bool idle_first; /* another lane is idle already */
    size_t idle_cap;
    bool fail_reset;
    const char *reset_says;
    bool discarded;
    const char *reason;
    lane_event_kind event;
    const char *event_reason;
    size_t idle_after;
} cleanup_case;

static const cleanup_case cleanup_cases[] = {
    {"kept", false, 1, false, NULL, false, "", LANE_RESET, "", 1},
    {"no cap means all", true, 0, false, NULL, false, "", LANE_RESET, "", 2},
    {"a cap above all", true, 9, false, NULL, false, "", LANE_RESET, "", 2},
    {"the pool is full", true, 1, false, NULL, true, "idle pool full", LANE_RESET, "", 1},
    {"reset failed", false, 1, true, "disk on fire", true, "reset failed", LANE_RECLAIMED, "disk on fire", 0},
    {"failed without a word", false, 0, true, NULL, true, "reset failed", LANE_RECLAIMED, "internal error",
     0},
    {"failed and full", true, 1, true, "disk on fire", true, "reset failed", LANE_RECLAIMED, "disk on fire",
     1},
};

static char logged[1024];
static size_t n_logged;

static void keep_line(void *ctx, log_level level, const char *line, size_t len)
{
    assert_int_equal(level, LOG_WARN);
    snprintf(logged, sizeof logged, "%.*s", (int)len, line);
    n_logged++;
}

static void check_cleanup(const cleanup_case *c)
{
    native n;
    open_lanes(&n, 3, c->idle_cap);
    acquire(&n, 41);
    acquire(&n, 42);
    if (c->idle_first) {
        lanes_release(n.t, 41);
    }
    size_t destroys = n.n_destroys;
    n.n_events = 0;
    n_logged = 0;
    n.reset_ms = 7;
    n.fail_reset = c->fail_reset;
    n.reset_says = c->reset_says;
    lane_cleanup got = lanes_release(n.t, 42);
    assert_true(got.was_live);
    assert_int_equal(got.discarded, c->discarded);
    assert_string_equal(got.reason, c->reason);
    assert_true(got.reset_ms == 7.0);
    assert_int_equal(n.n_events, 1);
    assert_int_equal(n.last.kind, c->event);
    assert_int_equal(n.last.index, 1);
    assert_int_equal(n.last.owner, 42);
    assert_string_equal(n.last_reason, c->event_reason);
    assert_int_equal(n.n_destroys - destroys, c->discarded);
    assert_true(!c->discarded || n.index_was_taken);
    assert_int_equal(lanes_at(n.t, 1) == NULL, c->discarded);
    expect_stats(&n, !c->idle_first, c->idle_after);
    assert_int_equal(n_logged, c->fail_reset);
    if (c->fail_reset) {
        assert_non_null(strstr(logged, "lane=1 owner=42"));
        assert_non_null(strstr(logged, c->event_reason));
    }
    got = lanes_release(n.t, 42); /* again: fine, and says nothing */
    assert_false(got.was_live || got.discarded);
    assert_string_equal(got.reason, "");
    assert_true(got.reset_ms == 0.0);
    assert_int_equal(n.n_events, 1);
    n.fail_reset = false;
    lanes_release(n.t, 41);
    close_lanes(&n);
}

static void test_cleanup(void **state)
{
    log_set_sink(keep_line, NULL, LOG_DEBUG);
    for (size_t i = 0; i < N_OF(cleanup_cases); i++) {
        print_message("  %s\n", cleanup_cases[i].name);
        check_cleanup(&cleanup_cases[i]);
    }
    log_set_sink(NULL, NULL, LOG_DEBUG);
}

/* Owners that never had a lane, 0 included, and nobody who listens. */
static void test_cleanup_of_strangers(void **state)
{
    native n;
    memset(&n, 0, sizeof n);
    clock_fake_init(&n.clock, 0, 0);
    const lanes_config cfg = {
        .n_lanes = 1, .ops = {&n, native_create, native_reset, native_destroy}, .clock = &n.clock.src};
    assert_int_equal(lanes_new(&cfg, &n.t), ST_OK);
    assert_false(lanes_release(n.t, 0).was_live);
    assert_false(lanes_release(n.t, 7).was_live);
    acquire(&n, 7);
    assert_false(lanes_release(n.t, 8).was_live);
    assert_false(lanes_release(n.t, 0).was_live);
    expect_stats(&n, 1, 0);
    assert_int_equal(n.n_resets, 0);
    assert_true(lanes_release(n.t, 7).was_live);
    assert_false(lanes_release(n.t, 0).was_live); /* the idle lane is nobody's, not owner 0's */
    close_lanes(&n);
}

typedef struct prewarm_case {
    size_t n_lanes, idle_cap, live, idle, target, fail_after; /* fail_after: creations that work; 99 = all */
    size_t made, idle_after;
} prewarm_case;

static const prewarm_case prewarm_cases[] = {
    {4, 0, 0, 0, 0, 99, 0, 0}, /* nothing asked for */
    {4, 0, 0, 0, 3, 99, 3, 3}, /* the target */
    {4, 0, 0, 0, 9, 99, 4, 4}, /* no cap: the number of lanes */
    {4, 2, 0, 0, 9, 99, 2, 2}, /* the cap */
    {4, 0, 3, 0, 9, 99, 1, 1}, /* lanes - live */
    {4, 0, 4, 0, 9, 99, 0, 0}, /* all live */
    {4, 0, 0, 2, 3, 99, 1, 3}, /* idle ones count */
    {4, 0, 1, 2, 2, 99, 0, 2}, /* enough are there */
    {4, 0, 1, 3, 1, 99, 0, 3}, /* more than enough: none is taken away */
    {4, 0, 0, 0, 4, 2, 2, 2},  /* a creation fails: what was made stays */
    {4, 0, 0, 0, 4, 0, 0, 0},  /* the first one fails */
};

static void test_prewarm(void **state)
{
    for (size_t i = 0; i < N_OF(prewarm_cases); i++) {
        const prewarm_case *c = &prewarm_cases[i];
        native n;
        size_t made = 77;
        open_lanes(&n, c->n_lanes, c->idle_cap);
        for (size_t j = 1; j <= c->live + c->idle; j++) {
            acquire(&n, j);
        }
        for (size_t j = 1; j <= c->idle; j++) {
            lanes_release(n.t, j);
        }
        n.fail_create_at = c->fail_after == 99 ? 0 : n.n_creates + c->fail_after + 1;
        assert_int_equal(lanes_prewarm(n.t, c->target, &made), c->fail_after == 99 ? ST_OK : ST_NOMEM);
        assert_int_equal(made, c->made);
        expect_stats(&n, c->live, c->idle_after);
        assert_int_equal(n.n_events, c->idle);
        if (c->fail_after == 99) { /* once more: nothing to do; and nobody asks how many */
            assert_int_equal(lanes_prewarm(n.t, c->target, NULL), ST_OK);
            expect_stats(&n, c->live, c->idle_after);
        }
        for (size_t j = c->idle + 1; j <= c->live + c->idle; j++) {
            lanes_release(n.t, j);
        }
        close_lanes(&n);
    }
}

static void test_stats(void **state)
{
    native n;
    open_lanes(&n, 4, 0);
    assert_int_equal(lanes_prewarm(n.t, 1, NULL), ST_OK);
    for (uint64_t owner = 1; owner <= 3; owner++) {
        lane *l = acquire(&n, owner);
        for (uint64_t i = 0; i < 10 * (owner == 2 ? 5 : owner); i++) {
            assert_int_equal(ivec_push(&l->kv.ids, 1), ST_OK);
        }
        l->kv.n_pages = (size_t)owner;
    }
    lanes_release(n.t, 1);
    lanes_stats st = lanes_stats_read(n.t);
    assert_int_equal(st.lanes, 4);
    assert_int_equal(st.live, 2);
    assert_int_equal(st.idle, 1);
    assert_int_equal(st.tracked, 2);
    assert_int_equal(st.total_tokens, 80);
    assert_int_equal(st.largest_tokens, 50);
    assert_int_equal(st.pages, 5);
    assert_int_equal(st.created, 3);
    assert_int_equal(st.destroyed, 0);
    lanes_release(n.t, 2);
    lanes_release(n.t, 3);
    close_lanes(&n);
}

static void test_out_of_memory(void **state)
{
    native n = {0};
    const lanes_config cfg = {
        .n_lanes = 3, .ops = {&n, native_create, native_reset, native_destroy}, .clock = clock_system()};
    lane_table *t = NULL;
    uint64_t before = mem_alloc_count();
    assert_int_equal(lanes_new(&cfg, &t), ST_OK);
    uint64_t n_allocs = mem_alloc_count() - before;
    lanes_free(t);
    for (uint64_t at = 1; at <= n_allocs; at++) {
        t = NULL;
        mem_fail_at(at, false);
        assert_int_equal(lanes_new(&cfg, &t), ST_NOMEM);
        mem_fail_at(0, false);
        assert_null(t);
    }
    lanes_free(NULL);
}

/*
 * Random lives. The naive model knows for each index what is there, and for each owner which index; the lists and
 * marks of the real one have no counterpart in it.
 */
typedef struct naive {
    bool there[MOST_LANES];
    bool touched[MOST_LANES]; /* had native state at some time */
    uint64_t owner[MOST_LANES];
    uint64_t generation[MOST_LANES];
    size_t n, cap;
} naive;

static size_t count_idle(const naive *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        n += m->there[i] && m->owner[i] == 0;
    }
    return n;
}

static size_t count_live(const naive *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        n += m->owner[i] != 0;
    }
    return n;
}

/* Whether a lane made new may have this index: a free one that was used before, else the lowest never used. */
static bool may_be_new(const naive *m, size_t index)
{
    bool reusable = false;
    size_t fresh = m->n;
    for (size_t i = m->n; i-- > 0;) {
        reusable = reusable || (m->touched[i] && !m->there[i]);
        fresh = m->touched[i] ? fresh : i;
    }
    return !m->there[index] && (reusable ? m->touched[index] : index == fresh);
}

static void random_acquire(native *n, naive *m, uint64_t owner, bool fail)
{
    lane *l = NULL;
    size_t creates = n->n_creates;
    bool has_idle = count_idle(m) > 0, full = count_live(m) == m->n;
    n->fail_create_at = fail ? n->n_creates + 1 : 0;
    status st = lanes_acquire(n->t, owner, owner % 2, &l);
    n->fail_create_at = 0;
    assert_int_equal(st, full ? ST_CAPACITY : !has_idle && fail ? ST_NOMEM : ST_OK);
    assert_int_equal(n->n_creates - creates, !full && !has_idle);
    if (st != ST_OK) {
        return;
    }
    assert_true(has_idle ? m->there[l->index] && m->owner[l->index] == 0 : may_be_new(m, l->index));
    assert_true(l->generation > m->generation[l->index]);
    m->there[l->index] = m->touched[l->index] = true;
    m->owner[l->index] = owner;
    m->generation[l->index] = l->generation;
    assert_int_equal(ivec_push(&l->kv.ids, 1), ST_OK);
}

static void random_release(native *n, naive *m, uint64_t owner, bool fail)
{
    size_t at = 0, events = n->n_events;
    while (at < m->n && m->owner[at] != owner) {
        at++;
    }
    n->fail_reset = fail;
    lane_cleanup c = lanes_release(n->t, owner);
    assert_int_equal(c.was_live, at < m->n);
    assert_int_equal(n->n_events - events, at < m->n);
    if (at < m->n) {
        assert_int_equal(n->last.kind, fail ? LANE_RECLAIMED : LANE_RESET);
        assert_int_equal(n->last.index, at);
        assert_int_equal(n->last.owner, owner);
        assert_int_equal(c.discarded, fail || count_idle(m) >= m->cap);
        m->owner[at] = 0;
        m->there[at] = !c.discarded;
    }
}

static void random_prewarm(native *n, naive *m, size_t target)
{
    size_t made, want = m->n - count_live(m);
    want = want < m->cap ? want : m->cap;
    want = want < target ? want : target;
    assert_int_equal(lanes_prewarm(n->t, target, &made), ST_OK);
    assert_int_equal(made, want > count_idle(m) ? want - count_idle(m) : 0);
    for (size_t i = 0; i < m->n; i++) { /* the new ones */
        if (lanes_at(n->t, i) && !m->there[i]) {
            m->there[i] = m->touched[i] = true;
            made--;
        }
    }
    assert_int_equal(made, 0);
}

static void compare(const native *n, const naive *m)
{
    expect_stats(n, count_live(m), count_idle(m));
    for (size_t i = 0; i < m->n; i++) {
        const lane *l = lanes_at(n->t, i);
        assert_int_equal(l != NULL, m->there[i]);
        assert_int_equal(n->present[i], m->there[i]);
        assert_true(!l || l->owner == m->owner[i]);
        assert_int_equal(lanes_is_current(n->t, (uint32_t)i, m->generation[i]), m->owner[i] != 0);
    }
}

static uint32_t next(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return *x >> 8;
}

static void test_random_lives(void **state)
{
    uint32_t x = 20260730;
    for (int life = 0; life < 60; life++) {
        size_t n_lanes = next(&x) % MOST_LANES + 1, cap = next(&x) % (MOST_LANES + 2);
        naive m = {.n = n_lanes, .cap = cap > 0 && cap < n_lanes ? cap : n_lanes};
        uint64_t last_owner = next(&x); /* any numbers that are never used twice */
        native n;
        open_lanes(&n, n_lanes, cap);
        for (int step = 0; step < 500; step++) {
            uint32_t what = next(&x) % 16, fail = next(&x) % 8 == 0;
            if (what < 7) {
                last_owner += next(&x) % 1000 + 1;
                random_acquire(&n, &m, last_owner, fail);
            } else if (what < 14) {
                size_t at = next(&x) % n_lanes;
                random_release(&n, &m, m.owner[at] ? m.owner[at] : last_owner + 1, fail);
            } else {
                random_prewarm(&n, &m, next(&x) % (n_lanes + 2));
            }
            compare(&n, &m);
        }
        for (size_t i = 0; i < n_lanes; i++) {
            lanes_release(n.t, m.owner[i] ? m.owner[i] : 1);
        }
        close_lanes(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_indices),       cmocka_unit_test(test_creation_fails),
        cmocka_unit_test(test_generations),   cmocka_unit_test(test_owners),
        cmocka_unit_test(test_cleanup),       cmocka_unit_test(test_cleanup_of_strangers),
        cmocka_unit_test(test_prewarm),       cmocka_unit_test(test_stats),
        cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_random_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
