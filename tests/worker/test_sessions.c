#include "base/test_main.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/engine_rig.h"
#include "worker/sessions.h"

static wire_string name_of(const char *s)
{
    return (wire_string){s, strlen(s)};
}

typedef struct table {
    engine_rig rig;
    sessions *t;
} table;

static void table_open(table *x, size_t n_named)
{
    rig_config cfg = rig_config_default();
    rig_open(&x->rig, &cfg);
    assert_int_equal(sessions_new(x->rig.en, n_named, &x->t), ST_OK);
}

static void table_close(table *x)
{
    sessions_free(x->t);
    assert_int_equal(rig_stats(&x->rig).sessions, 0);
    rig_close(&x->rig);
}

static void test_slots(void **state)
{
    table x;
    session *a, *b, *s;
    bool opened;
    err e;
    table_open(&x, 2);
    assert_null(sessions_find(x.t, name_of("a")));
    assert_int_equal(sessions_open(x.t, name_of("a"), SESSION_KEEPS_LANE, &a, &opened, &e), ST_OK);
    assert_true(opened);
    assert_int_equal(sessions_open(x.t, name_of("b"), SESSION_KEEPS_LANE, &b, NULL, &e), ST_OK);
    assert_ptr_not_equal(a, b);
    s = NULL;
    assert_int_equal(sessions_open(x.t, name_of("c"), SESSION_KEEPS_LANE, &s, &opened, &e), ST_CAPACITY);
    assert_null(s);
    /* an existing one is found before capacity is looked at */
    assert_int_equal(sessions_open(x.t, name_of("a"), SESSION_KEEPS_LANE, &s, &opened, &e), ST_OK);
    assert_ptr_equal(s, a);
    assert_false(opened);
    assert_int_equal(sessions_count(x.t), 2);
    sessions_close(x.t, name_of("nobody"));
    sessions_close(x.t, name_of("a"));
    sessions_close(x.t, name_of("a"));
    assert_null(sessions_find(x.t, name_of("a")));
    assert_ptr_equal(sessions_find(x.t, name_of("b")), b);
    assert_int_equal(sessions_open(x.t, name_of("c"), SESSION_KEEPS_LANE, &s, NULL, &e), ST_OK);
    assert_int_equal(rig_stats(&x.rig).sessions, 2);
    table_close(&x);
    sessions_free(NULL);
}

static void test_no_named_slots(void **state)
{
    table x;
    session *s = NULL;
    err e;
    table_open(&x, 0);
    assert_int_equal(sessions_open(x.t, name_of("a"), SESSION_KEEPS_LANE, &s, NULL, &e),
                     ST_UNSUPPORTED_SESSION);
    assert_null(s);
    sessions_close(x.t, name_of("a"));
    table_close(&x);
}

static void test_names_are_bytes(void **state)
{
    static const wire_string names[] = {{"a", 1}, {"a\0", 2}, {"a\0b", 3}, {"\0", 1}, {"\xff", 1}, {"A", 1}};
    table x;
    session *made[N_OF(names)];
    table_open(&x, N_OF(names));
    for (size_t i = 0; i < N_OF(names); i++) {
        assert_int_equal(sessions_open(x.t, names[i], SESSION_KEEPS_LANE, &made[i], NULL, NULL), ST_OK);
    }
    for (size_t i = 0; i < N_OF(names); i++) {
        assert_ptr_equal(sessions_find(x.t, names[i]), made[i]);
    }
    for (size_t i = 0; i < N_OF(names); i += 2) {
        sessions_close(x.t, names[i]);
    }
    for (size_t i = 0; i < N_OF(names); i++) {
        assert_ptr_equal(sessions_find(x.t, names[i]), i % 2 ? made[i] : NULL);
    }
    table_close(&x);
}

/* Opening and closing for ever takes no slot and no memory for ever. */
static void test_churn(void **state)
{
    table x;
    session *s;
    char name[32];
    table_open(&x, 3);
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "session-%d", i);
        assert_int_equal(sessions_open(x.t, name_of(name), SESSION_KEEPS_LANE, &s, NULL, NULL), ST_OK);
        if (i >= 2) {
            snprintf(name, sizeof name, "session-%d", i - 2);
            sessions_close(x.t, name_of(name));
        }
    }
    assert_int_equal(sessions_count(x.t), 2);
    table_close(&x);
}

/* The engine cannot make the state: capacity_exhausted, the slot is free again. */
static void test_memory(void **state)
{
    table x;
    session *s = NULL;
    table_open(&x, 1);
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_at(n, true);
        assert_int_equal(sessions_open(x.t, name_of("a"), SESSION_KEEPS_LANE, &s, NULL, NULL), ST_CAPACITY);
        mem_fail_at(0, false);
        assert_null(s);
        assert_null(sessions_find(x.t, name_of("a")));
        assert_int_equal(rig_stats(&x.rig).sessions, 0);
    }
    assert_int_equal(sessions_open(x.t, name_of("a"), SESSION_KEEPS_LANE, &s, NULL, NULL), ST_OK);
    for (uint64_t n = 1; n <= 3; n++) {
        sessions *t = NULL;
        mem_fail_at(n, true);
        assert_int_equal(sessions_new(x.rig.en, 1, &t), ST_NOMEM);
        mem_fail_at(0, false);
        assert_null(t);
    }
    table_close(&x);
}

typedef struct heard {
    char text[1024];
    log_level level;
} heard;

static void hear(void *ctx, log_level level, const char *line, size_t len)
{
    heard *h = ctx;
    h->level = level;
    assert_true(len < sizeof h->text);
    memcpy(h->text, line, len);
    h->text[len] = '\0';
}

static void expect_heard(const heard *h, log_level level, const char *line)
{
    assert_int_equal(h->level, level);
    assert_string_equal(h->text, line);
}

/* The name is found by the number that the engine knows the session by, until it is closed. */
static void test_lanes_have_names(void **state)
{
    table x;
    session *a, *b;
    heard h;
    table_open(&x, 2);
    assert_int_equal(sessions_open(x.t, name_of("a"), SESSION_KEEPS_LANE, &a, NULL, NULL), ST_OK);
    assert_int_equal(sessions_open(x.t, (wire_string){"b\0\n", 3}, SESSION_KEEPS_LANE, &b, NULL, NULL),
                     ST_OK);
    wire_string name = sessions_name_of(x.t, session_owner(b));
    assert_int_equal(name.len, 3);
    assert_memory_equal(name.data, "b\0\n", 3);
    uint64_t owner = session_owner(a);
    assert_string_equal(sessions_name_of(x.t, owner).data, "a");
    assert_null(sessions_name_of(x.t, owner + 1000).data);
    assert_null(sessions_name_of(x.t, 0).data);

    log_set_sink(hear, &h, LOG_DEBUG);
    const lane_event lost = {.kind = LANE_RECLAIMED, .index = 3, .owner = owner, .reason = "no memory"};
    sessions_note_lane(x.t, &lost);
    expect_heard(&h, LOG_WARN, "warn worker event=reclaimed lane=3 session=\"a\" reason=\"no memory\"\n");
    const lane_event clean = {.kind = LANE_RESET, .index = 2, .owner = owner + 1000, .reason = ""};
    sessions_note_lane(x.t, &clean);
    expect_heard(&h, LOG_DEBUG, "debug worker event=reset lane=2 session=\"\"\n");
    sessions_note_lane(NULL, &lost);
    expect_heard(&h, LOG_WARN, "warn worker event=reclaimed lane=3 session=\"\" reason=\"no memory\"\n");
    log_set_sink(NULL, NULL, LOG_DEBUG);

    sessions_close(x.t, name_of("a"));
    assert_null(sessions_name_of(x.t, owner).data);
    table_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),           cmocka_unit_test(test_no_named_slots),
        cmocka_unit_test(test_names_are_bytes), cmocka_unit_test(test_churn),
        cmocka_unit_test(test_memory),          cmocka_unit_test(test_lanes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
