/*
 * The table of named sessions, and what names go over the wire.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test_main.h"
#include "serve/session_table.h"

#define TTL 1000

/* Models are only compared. */
static int places[2];
#define M0 ((struct model_service *)&places[0])
#define M1 ((struct model_service *)&places[1])

static session_table *table(size_t per_key)
{
    session_table *t;
    const session_caps caps = {.per_key = per_key, .ttl_ns = TTL};
    assert_int_equal(session_table_new(&caps, &t), ST_OK);
    return t;
}

static session_row *add(session_table *t, uint32_t key, struct model_service *m, const char *name,
                        uint64_t now)
{
    session_row *r = NULL;
    err e;
    assert_int_equal(session_table_add(t, key, m, name, SESSION_TURN, now, &r, &e), ST_OK);
    r->opened = true;
    return r;
}

/* A turn from now to now. */
static session_row *used(session_table *t, uint32_t key, const char *name, uint64_t now)
{
    session_row *r = add(t, key, M0, name, now);
    assert_false(session_table_release(t, r, SESSION_TURN, true, now));
    return r;
}

static void test_owners(void **state)
{
    bool several;
    session_table *t = table(10);
    session_row *a = add(t, 1, M0, "a", 5), *b = add(t, 2, M0, "a", 5), *c = add(t, 1, M1, "a", 5);
    assert_ptr_equal(session_table_find(t, 1, M0, "a", NULL), a);
    assert_ptr_equal(session_table_find(t, 1, M1, "a", NULL), c);
    assert_ptr_equal(session_table_find(t, 2, M0, "a", NULL), b);
    assert_null(session_table_find(t, 2, M1, "a", NULL));
    assert_null(session_table_find(t, 3, M0, "a", NULL));
    assert_null(session_table_find(t, 1, M0, "A", NULL));
    assert_null(session_table_find(t, 1, M0, "", NULL));
    assert_ptr_equal(session_table_find(t, 2, NULL, "a", &several), b);
    assert_false(several);
    assert_non_null(session_table_find(t, 1, NULL, "a", &several));
    assert_true(several);
    assert_null(session_table_find(t, 3, NULL, "a", &several));
    assert_false(several);
    assert_ptr_equal(session_table_next(t, 1, NULL), a);
    assert_ptr_equal(session_table_next(t, 1, a), c);
    assert_null(session_table_next(t, 1, c));
    assert_ptr_equal(session_table_next(t, 2, NULL), b);
    assert_null(session_table_next(t, 3, NULL));
    assert_int_equal(session_table_count(t, M0), 2);
    assert_int_equal(session_table_count(t, M1), 1);
    session_table_free(t); /* held or not */
}

static void test_holders(void **state)
{
    session_table *t = table(10);
    session_row *a = add(t, 1, M0, "a", 5);
    assert_int_equal(session_table_due_ns(t), UINT64_MAX);
    assert_null(session_table_expired(t, UINT64_MAX)); /* one that is held does not expire */
    session_table_hold(t, a, SESSION_OP);
    assert_int_equal(a->n_turns, 1);
    assert_int_equal(a->n_ops, 1);
    a->opened = false;
    assert_false(session_table_release(t, a, SESSION_TURN, true, 7)); /* somebody else has it */
    assert_ptr_equal(session_table_find(t, 1, M0, "a", NULL), a);
    assert_true(session_table_release(t, a, SESSION_OP, false, 8)); /* no worker knows of it */
    assert_null(session_table_find(t, 1, M0, "a", NULL));
    assert_null(session_table_next(t, 1, NULL));
    assert_int_equal(session_table_count(t, M0), 0);

    /* closed while a turn waits: the turn keeps it */
    a = used(t, 1, "a", 10);
    session_table_hold(t, a, SESSION_OP);
    session_table_hold(t, a, SESSION_TURN);
    a->opened = false;
    assert_false(session_table_release(t, a, SESSION_OP, false, 11));
    a->opened = true;
    assert_false(session_table_release(t, a, SESSION_TURN, true, 12));
    assert_int_equal(session_table_due_ns(t), 12 + TTL);
    session_table_free(t);
}

static void test_time(void **state)
{
    session_table *t = table(10);
    session_row *a = used(t, 1, "a", 100), *b = used(t, 1, "b", 200), *c = used(t, 2, "c", 300);
    assert_int_equal(session_table_due_ns(t), 100 + TTL);
    assert_int_equal(session_row_end_ns(t, b), 200 + TTL);
    assert_null(session_table_expired(t, 99 + TTL));
    assert_ptr_equal(session_table_expired(t, 100 + TTL), a);

    /* looked at: no use; it goes back to its place */
    session_table_hold(t, a, SESSION_OP);
    assert_int_equal(session_row_end_ns(t, a), 100 + TTL); /* it may have to go as soon as that is over */
    session_table_hold(t, a, SESSION_TURN);
    assert_int_equal(session_row_end_ns(t, a), UINT64_MAX);
    assert_false(session_table_release(t, a, SESSION_TURN, false, 400));
    assert_int_equal(session_table_due_ns(t), 200 + TTL);
    assert_false(session_table_release(t, a, SESSION_OP, false, 400));
    assert_ptr_equal(session_table_expired(t, 100 + TTL), a);
    session_table_hold(t, b, SESSION_OP);
    assert_false(session_table_release(t, b, SESSION_OP, false, 400));
    assert_int_equal(session_table_room_ns(t, 2), 300 + TTL);

    /* used: the last one now */
    session_table_hold(t, a, SESSION_TURN);
    assert_false(session_table_release(t, a, SESSION_TURN, true, 500));
    assert_int_equal(a->created_ns, 100);
    session_row *order[] = {b, c, a};
    const uint64_t ends[] = {200 + TTL, 300 + TTL, 500 + TTL};
    for (size_t i = 0; i < N_OF(order); i++) {
        assert_int_equal(session_table_due_ns(t), ends[i]);
        session_row *r = session_table_expired(t, ends[i]);
        assert_ptr_equal(r, order[i]);
        session_table_hold(t, r, SESSION_OP);
        r->opened = false;
        assert_true(session_table_release(t, r, SESSION_OP, false, ends[i]));
    }
    assert_int_equal(session_table_due_ns(t), UINT64_MAX);
    session_table_free(t);

    /* a time to live without end */
    const session_caps caps = {.per_key = 1, .ttl_ns = UINT64_MAX};
    assert_int_equal(session_table_new(&caps, &t), ST_OK);
    used(t, 1, "a", 100);
    assert_int_equal(session_table_due_ns(t), UINT64_MAX);
    assert_null(session_table_expired(t, UINT64_MAX - 1));
    session_table_free(t);
}

static void test_caps(void **state)
{
    session_row *r = NULL;
    err e;
    session_table *t = table(2);
    session_row *a = used(t, 1, "a", 100), *b = add(t, 1, M1, "b", 150);
    assert_int_equal(session_table_add(t, 1, M0, "c", SESSION_TURN, 200, &r, &e), ST_CAPACITY);
    assert_null(r);
    assert_string_equal(e.field, "session_id");
    used(t, 2, "c", 200); /* another key has its own */
    assert_int_equal(session_table_room_ns(t, 1), 100 + TTL);
    session_table_hold(t, a, SESSION_TURN);
    assert_int_equal(session_table_room_ns(t, 1), UINT64_MAX);
    a->opened = false;
    assert_true(session_table_release(t, a, SESSION_TURN, true, 300));
    used(t, 1, "c", 300);
    assert_int_equal(session_table_add(t, 1, M0, "d", SESSION_TURN, 300, &r, &e), ST_CAPACITY);
    (void)b;
    session_table_free(t);

    t = table(SESSION_MAX_ROWS);
    for (uint32_t i = 0; i < SESSION_MAX_ROWS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", (unsigned)i);
        assert_int_equal(session_table_add(t, i % 3, M0, name, SESSION_OP, 1, &r, &e), ST_OK);
    }
    assert_int_equal(session_table_add(t, 3, M0, "a", SESSION_OP, 1, &r, &e), ST_CAPACITY);
    assert_int_equal(session_table_count(t, M0), SESSION_MAX_ROWS);
    session_table_free(t);
}

static void test_no_memory(void **state)
{
    session_row *r = NULL;
    err e;
    session_table *t = table(2);
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_at(n, false);
        assert_int_equal(session_table_add(t, 1, M0, "a", SESSION_TURN, 1, &r, &e), ST_NOMEM);
        mem_fail_at(0, false);
        assert_null(session_table_find(t, 1, M0, "a", NULL));
    }
    session_table_free(t);
    const session_caps caps = {0};
    mem_fail_at(1, false);
    assert_int_equal(session_table_new(&caps, &t), ST_NOMEM);
    mem_fail_at(0, false);
    session_table_free(NULL);
}

static void test_names(void **state)
{
    static const struct {
        const char *name;
        bool session, save;
    } rows[] = {
        {"a", true, true},          {"A-Z_0.9", true, true}, {"chat:1", true, false}, {".a", true, false},
        {"..", true, false},        {"", false, false},      {"a/b", false, false},   {"a b", false, false},
        {"\xC3\xA4", false, false}, {"a\n", false, false},   {"a%2f", false, false},
    };
    char long_name[SESSION_MAX_NAME + 2];
    for (size_t i = 0; i < N_OF(rows); i++) {
        if (session_name_good(rows[i].name, strlen(rows[i].name)) != rows[i].session ||
            session_save_good(rows[i].name, strlen(rows[i].name)) != rows[i].save) {
            fail_msg("\"%s\"", rows[i].name);
        }
    }
    assert_false(session_name_good("a\0b", 3));
    memset(long_name, 'x', sizeof long_name);
    assert_true(session_name_good(long_name, SESSION_MAX_NAME));
    assert_false(session_name_good(long_name, SESSION_MAX_NAME + 1));
    assert_true(session_save_good(long_name, SESSION_MAX_SAVE));
    assert_false(session_save_good(long_name, SESSION_MAX_SAVE + 1));
}

/* printf %s ann | sha256sum | cut -c1-16, and of a/b */
#define ANN_ID "49915e0d7d4b402e"
#define AB_ID  "c14cddc033f64b9d"

static void test_wire_names(void **state)
{
    static const char file[] = "ann 8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8\n"
                               "a/b f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753\n";
    keys *k;
    buf out = {0};
    assert_int_equal(keys_parse(file, sizeof file - 1, &k, NULL), ST_OK);
    assert_int_equal(session_name_put(&out, k, 1, "chat:1"), ST_OK);
    assert_string_equal(buf_str(&out), "ann/chat:1");
    buf_reset(&out);
    assert_int_equal(session_name_put(&out, k, 2, "c"), ST_OK);
    assert_string_equal(buf_str(&out), "a/b/c");
    buf_reset(&out);
    assert_int_equal(session_name_put(&out, NULL, KEYS_ANONYMOUS, "c"), ST_OK);
    assert_string_equal(buf_str(&out), "/c");
    buf_reset(&out);
    assert_int_equal(session_save_put(&out, k, 1, "monday", 6), ST_OK);
    assert_string_equal(buf_str(&out), ANN_ID "-monday");
    buf_reset(&out);
    assert_int_equal(session_save_put(&out, k, 2, "monday", 6), ST_OK);
    assert_string_equal(buf_str(&out), AB_ID "-monday");
    buf_reset(&out);
    assert_int_equal(session_save_put(&out, NULL, KEYS_ANONYMOUS, "monday", 3), ST_OK);
    assert_string_equal(buf_str(&out), "0-mon");
    keys_free(k);
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners),     cmocka_unit_test(test_holders),   cmocka_unit_test(test_time),
        cmocka_unit_test(test_caps),       cmocka_unit_test(test_no_memory), cmocka_unit_test(test_names),
        cmocka_unit_test(test_wire_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
