/* tree with a fake recurrent model (FAILURES P2): where snapshots are taken, what regenerating, editing and going
 * back cost, how they thin out. */
#include <string.h>

#include "base/mem.h"
#include "kv/snapshot_plan.h"
#include "kv/tree_rig.h"

#define SPACING 128 /* tests: 1/8 of the least that a real model has */

static void test_spacing(void **state)
{
    static const struct {
        size_t snapshot, kv, want;
    } cases[] = {
        {0, 1000, 1024},
        {1000, 0, 1024},                    /* no attention at all */
        {100 << 20, 32768, 3200},           /* 100 MiB beside 32 KiB a token: 3,200 exactly */
        {(100 << 20) + 32768, 32768, 3232}, /* 3,201: the next whole page */
        {1024 * 512, 512, 1024},
        {1025 * 512, 512, 1056},
        {SIZE_MAX, 1, SIZE_MAX - 31}, /* never, and no overflow */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(kv_snapshot_spacing(cases[i].snapshot, cases[i].kv), cases[i].want);
    }
}

static void test_stops(void **state)
{
    static const struct {
        size_t from, n, at;
        bool snapshot, spaced;
    } cases[] = {
        {0, 1, 1, false, false},   /* no boundary before its end */
        {0, 32, 32, false, false}, /* the page's end is the prompt's */
        {0, 33, 32, true, false},  /* the last boundary */
        {32, 33, 33, false, false},
        {0, 64, 32, true, false}, /* a token must be left to compute */
        {0, 1000, 1000 / 32 * 32, true, false},
        {0, 3000, 1024, true, true},
        {1024, 3000, 2048, true, true},
        {1030, 3000, 2048, true, true},
        {2048, 3000, 2976, true, false},
        {2976, 3000, 3000, false, false},
        {0, 1025, 1024, true, false},  /* both meet */
        {992, 1024, 1024, true, true}, /* spaced, at the prompt's end */
        {0, 1024, 992, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kv_snapshot_stop s = kv_snapshot_next(cases[i].from, cases[i].n, 1024);
        assert_int_equal(s.at, cases[i].at);
        assert_int_equal(s.snapshot, cases[i].snapshot);
        assert_int_equal(s.spaced, cases[i].spaced);
    }
    assert_int_equal(kv_snapshot_next(5, 50, SIZE_MAX - 31).at, 32);
}

/* One conversation with a model whose state is a sum over all ids, and whose replies depend on it alone. */
typedef struct chat {
    tree_rig rig;
    int32_t ids[RIG_MAX_TOKENS];
    size_t n;
    size_t ends[32]; /* of turns */
    size_t n_turns;
} chat;

static void chat_open(chat *c, size_t snapshots)
{
    static const size_t windows[2] = {0, 100};
    *c = (chat){.n = 0};
    rig_open(&c->rig, 2, windows, 2000, snapshots);
    kv_tree_free(c->rig.tree);
    c->rig.cfg.snapshot_spacing = SPACING;
    assert_int_equal(kv_tree_new(&c->rig.cfg, &c->rig.tree), ST_OK);
}

static void keep(chat *c, size_t n, uint64_t state, bool spaced, kv_node **hold)
{
    const kv_root_key key = rig_root(0);
    assert_int_equal(rig_enter(&c->rig, 0, c->ids, n, hold), n);
    uint64_t *copy = rig_state(&c->rig, 0, c->ids, n);
    assert_int_equal(*copy, state); /* what was gone on from was right */
    kv_tree_put_snapshot(c->rig.tree, &key, c->ids, n, copy, spaced);
    rig_check(&c->rig);
}

/* Answers what stands in ids[0, n) with n_reply tokens; returns how many tokens of the prompt were computed. */
static size_t answer(chat *c, size_t n_reply)
{
    uint64_t state = rig_state_begin(0);
    size_t at, from, n_prompt = c->n;
    kv_match m = rig_match_sound(&c->rig, 0, c->ids, n_prompt, n_prompt - 1);
    kv_node *hold = m.node;
    kv_tree_hold(c->rig.tree, hold);
    from = at = m.n_usable;
    state = hold ? *(uint64_t *)kv_tree_snapshot(hold) : state;
    while (at < n_prompt) {
        kv_snapshot_stop stop = kv_snapshot_next(at, n_prompt, SPACING);
        for (; at < stop.at; at++) {
            state = rig_state_step(state, c->ids[at]);
        }
        if (stop.snapshot) {
            keep(c, at, state, stop.spaced, &hold);
        }
    }
    for (size_t i = 0; i < n_reply; i++) {
        c->ids[c->n++] = (int32_t)(state % 997);
        state = rig_state_step(state, c->ids[at++]);
        if (at % SPACING == 0) {
            keep(c, at, state, true, &hold);
        }
    }
    keep(c, at, state, false, &hold);
    kv_tree_release(c->rig.tree, hold);
    c->ends[c->n_turns++] = c->n;
    return n_prompt - from;
}

static size_t say(chat *c, size_t n, int32_t from, size_t n_reply)
{
    rig_ids(c->ids, c->n, c->n + n, from, 1);
    c->n += n;
    return answer(c, n_reply);
}

static void go_back_to(chat *c, size_t n, size_t turns)
{
    c->n = n;
    c->n_turns = turns;
}

static void five_turns(chat *c, size_t snapshots)
{
    chat_open(c, snapshots);
    assert_int_equal(say(c, 500, 1000, 77), 500); /* a system prompt and the first message */
    for (int32_t i = 1; i < 5; i++) {
        /* Nothing is read twice: the snapshot at the turn's end is just where the next message begins. */
        assert_int_equal(say(c, 41, 2000 + 100 * i, 77), 41);
    }
}

static void test_a_turn_costs_its_message(void **state)
{
    static chat c;
    five_turns(&c, 100);
    rig_close(&c.rig);
}

static void test_regenerate(void **state)
{
    static chat c;
    five_turns(&c, 100);
    size_t n_prompt = c.ends[3] + 41;
    int32_t before[77];
    memcpy(before, c.ids + n_prompt, sizeof before);
    go_back_to(&c, n_prompt, 4);
    /* From the last page boundary before the prompt's end. */
    assert_int_equal(answer(&c, 77), n_prompt - (n_prompt - 1) / 32 * 32);
    assert_memory_equal(c.ids + n_prompt, before, sizeof before);
    rig_close(&c.rig);
}

static void test_edit_the_last_message(void **state)
{
    static chat c;
    five_turns(&c, 100);
    go_back_to(&c, c.ends[3], 4);
    assert_int_equal(say(&c, 60, 5000, 77), 60);
    rig_close(&c.rig);
}

static void test_go_back_two_turns(void **state)
{
    static chat c;
    five_turns(&c, 100);
    go_back_to(&c, c.ends[1], 2);
    assert_int_equal(say(&c, 30, 6000, 77), 30);
    /* And the other branch is still there. */
    rig_close(&c.rig);
}

/* With room for few, turns' ends stay while spaced ones go. */
static void test_turns_outlive_the_spaced(void **state)
{
    static chat c;
    chat_open(&c, 8);
    say(&c, 1500, 1000, 40);
    for (int32_t i = 1; i < 4; i++) {
        assert_int_equal(say(&c, 100, 3000 + 1000 * i, 40), 100);
    }
    for (size_t i = 4; i-- > 0;) {
        kv_match m = rig_match(&c.rig, 0, c.ids, c.ends[i]);
        assert_int_equal(m.n_usable, c.ends[i]);
    }
    /* Over their number, the oldest turn's goes first. */
    for (int32_t i = 4; i < 8; i++) {
        say(&c, 10, 9000 + 20 * i, 5);
    }
    assert_true(rig_match(&c.rig, 0, c.ids, c.ends[0]).n_usable < c.ends[0]);
    assert_int_equal(rig_match(&c.rig, 0, c.ids, c.ends[7]).n_usable, c.ends[7]);
    kv_tree_stats s = kv_tree_stats_read(c.rig.tree);
    assert_int_equal(s.snapshots, 8);
    assert_int_equal(s.snapshots, c.rig.snapshots_out);
    assert_true(s.dropped_snapshots > 0);
    rig_close(&c.rig);
}

/* A spaced snapshot that a turn turns out to end at stays as long as a turn's end; put twice it is there once. */
static void test_a_spaced_one_becomes_a_turns_end(void **state)
{
    static chat c;
    const kv_root_key key = rig_root(0);
    chat_open(&c, 3);
    rig_ids(c.ids, 0, 6 * SPACING, 0, 1);
    kv_node *hold = NULL;
    assert_int_equal(rig_enter(&c.rig, 0, c.ids, 6 * SPACING, &hold), 6 * SPACING);
    for (size_t i = 1; i <= 6; i++) {
        void *one = rig_state(&c.rig, 0, c.ids, i * SPACING);
        assert_true(kv_tree_put_snapshot(c.rig.tree, &key, c.ids, i * SPACING, one, true));
        if (i == 1) {
            one = rig_state(&c.rig, 0, c.ids, SPACING);
            assert_true(kv_tree_put_snapshot(c.rig.tree, &key, c.ids, SPACING, one, false));
            assert_int_equal(c.rig.snapshots_out, 1);
            one = rig_state(&c.rig, 0, c.ids, SPACING);
            assert_true(kv_tree_put_snapshot(c.rig.tree, &key, c.ids, SPACING, one, true));
        }
    }
    kv_tree_release(c.rig.tree, hold);
    assert_int_equal(rig_match(&c.rig, 0, c.ids, SPACING).n_usable, SPACING);
    assert_int_equal(rig_match(&c.rig, 0, c.ids, 6 * SPACING).n_usable, 6 * SPACING);
    assert_int_equal(kv_tree_stats_read(c.rig.tree).snapshots, 3);
    rig_close(&c.rig);
}

/* Editing anywhere in a long prompt costs the tail and at most the spacing. */
static void test_edit_inside_a_long_prompt(void **state)
{
    static const size_t at[] = {130, 1000, 1023, 1024, 1025, 2900};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        static chat c;
        chat_open(&c, 100);
        say(&c, 3000, 1000, 10);
        go_back_to(&c, 3000, 0);
        c.ids[at[i]] = -1;
        assert_int_equal(answer(&c, 10), 3000 - at[i] / SPACING * SPACING);
        rig_close(&c.rig);
    }
}

/* Positions of the spaced snapshots of ids[0, n), in units of the spacing. */
static size_t spaced_left(chat *c, size_t n, size_t *units)
{
    size_t count = 0;
    for (size_t at = SPACING; at <= n; at += SPACING) {
        if (rig_match(&c->rig, 0, c->ids, at).n_usable == at) {
            units[count++] = at / SPACING;
        }
    }
    return count;
}

/* Whoever goes back d spacings from `last` finds a snapshot no more than 2 d + 1 back (or begins anew, as far away). */
static void expect_geometric(const size_t *units, size_t n, size_t last)
{
    for (size_t back = 0; back < last; back++) {
        size_t nearest = 0;
        for (size_t i = 0; i < n && units[i] <= last - back; i++) {
            nearest = units[i];
        }
        assert_true(last - nearest <= 2 * back + 1);
    }
}

/* One path of 31 spaced snapshots, with room for 8 of them: the further back the wider apart. */
static void test_thinning_is_geometric(void **state)
{
    static chat c;
    size_t units[RIG_MAX_TOKENS / SPACING];
    chat_open(&c, 10);
    say(&c, 31 * SPACING + 40, 1000, 5);
    size_t n = spaced_left(&c, 31 * SPACING, units);
    assert_int_equal(n, 8);
    expect_geometric(units, n, 31);
    rig_close(&c.rig);
}

/* Two paths under a budget for one: the older has thinned out more, and neither is gone. */
static void test_the_older_path_thins_out_more(void **state)
{
    static chat c;
    static int32_t old[RIG_MAX_TOKENS];
    size_t units[RIG_MAX_TOKENS / SPACING];
    chat_open(&c, 19);
    say(&c, 15 * SPACING + 40, 1000, 5);
    memcpy(old, c.ids, sizeof old);
    assert_int_equal(spaced_left(&c, 15 * SPACING, units), 15);
    go_back_to(&c, 0, 0);
    say(&c, 15 * SPACING + 40, 50000, 5);
    size_t n_new = spaced_left(&c, 15 * SPACING, units);
    expect_geometric(units, n_new, 15);
    memcpy(c.ids, old, sizeof old);
    size_t n_old = spaced_left(&c, 15 * SPACING, units);
    assert_int_equal(n_old + n_new, 15);
    assert_true(n_old >= 2 && n_old < n_new);
    rig_close(&c.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spacing),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_a_turn_costs_its_message),
        cmocka_unit_test(test_regenerate),
        cmocka_unit_test(test_edit_the_last_message),
        cmocka_unit_test(test_go_back_two_turns),
        cmocka_unit_test(test_turns_outlive_the_spaced),
        cmocka_unit_test(test_a_spaced_one_becomes_a_turns_end),
        cmocka_unit_test(test_edit_inside_a_long_prompt),
        cmocka_unit_test(test_thinning_is_geometric),
        cmocka_unit_test(test_the_older_path_thins_out_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
