/*
 * What ids on the control pipe mean: one test for each sentence of PROTOCOL 3(b).
 */
#include "base/test_main.h"

#include <string.h>

#include "worker/cancel_gate.h"

/* Nothing is active, the slot is empty and ids up to `used_up` are used up. */
static cancel_gate fresh(uint64_t used_up)
{
    cancel_gate g;
    memset(&g, 0, sizeof g);
    if (used_up > 0) {
        cancel_gate_spend(&g, used_up);
    }
    return g;
}

static void test_id_0_is_ignored(void **state)
{
    cancel_gate g = fresh(0);
    assert_false(cancel_gate_id(&g, 0, 0));
    assert_int_equal(g.pending, 0);
    assert_false(cancel_gate_allows(&g, 0));
}

static void test_stale_ids_are_ignored(void **state)
{
    cancel_gate g = fresh(7);
    assert_false(cancel_gate_id(&g, 6, 0));
    assert_false(cancel_gate_id(&g, 7, 0));
    assert_int_equal(g.pending, 0);
    assert_false(cancel_gate_begin(&g, 8));
}

static void test_own_id_cancels(void **state)
{
    cancel_gate g = fresh(0);
    assert_false(cancel_gate_begin(&g, 5));
    assert_true(cancel_gate_id(&g, 5, 0));
    assert_true(cancel_gate_id(&g, 5, 0)); /* repeated: the same again */
}

static void test_others_are_dropped_while_one_is_active(void **state)
{
    cancel_gate g = fresh(0);
    assert_false(cancel_gate_begin(&g, 5));
    assert_false(cancel_gate_id(&g, 4, 0));
    assert_false(cancel_gate_id(&g, 6, 0));
    assert_false(cancel_gate_id(&g, UINT64_MAX, 0));
    cancel_gate_seal(&g, 10);
    assert_false(cancel_gate_begin(&g, 6)); /* never queued */
}

static void test_first_id_takes_the_slot(void **state)
{
    cancel_gate g = fresh(3);
    assert_false(cancel_gate_id(&g, 9, 0));
    assert_false(cancel_gate_id(&g, 4, 0)); /* later ones are dropped */
    assert_false(cancel_gate_id(&g, 9, 0));
    assert_int_equal(g.pending, 9);
    assert_true(cancel_gate_begin(&g, 9)); /* same id: cancelled before its first token */
    assert_int_equal(g.pending, 0);
}

static void test_another_id_forgets_the_pending_one(void **state)
{
    cancel_gate g = fresh(0);
    cancel_gate_id(&g, 9, 0);
    assert_false(cancel_gate_begin(&g, 4));
    cancel_gate_seal(&g, 1);
    assert_false(cancel_gate_id(&g, 2, 1)); /* stale; but it shows that nothing is active */
    assert_false(cancel_gate_begin(&g, 9));
}

static void test_a_failed_request_empties_the_slot(void **state)
{
    cancel_gate g = fresh(0);
    cancel_gate_id(&g, 9, 0);
    cancel_gate_spend(&g, 4);
    assert_false(cancel_gate_begin(&g, 9));
}

static void test_ids_must_rise(void **state)
{
    cancel_gate g = fresh(0);
    assert_true(cancel_gate_allows(&g, 1));
    cancel_gate_begin(&g, 10);
    assert_false(cancel_gate_allows(&g, 10));
    assert_false(cancel_gate_allows(&g, 9));
    assert_true(cancel_gate_allows(&g, 11));
    cancel_gate_spend(&g, 20);
    assert_false(cancel_gate_allows(&g, 20));
    assert_true(cancel_gate_allows(&g, 21));
}

static void test_the_largest_id(void **state)
{
    cancel_gate g = fresh(UINT64_MAX - 1);
    assert_true(cancel_gate_allows(&g, UINT64_MAX));
    assert_false(cancel_gate_id(&g, UINT64_MAX, 0));
    assert_true(cancel_gate_begin(&g, UINT64_MAX));
    assert_true(cancel_gate_id(&g, UINT64_MAX, 0));
    cancel_gate_seal(&g, 0);
    assert_false(cancel_gate_allows(&g, UINT64_MAX)); /* none is left */
    assert_false(cancel_gate_id(&g, UINT64_MAX, 0));
    assert_int_equal(g.pending, 0);
}

/* Sealed it is still active until its last frame is written, however long that takes. */
static void test_seal(void **state)
{
    cancel_gate g = fresh(0);
    cancel_gate_begin(&g, 5);
    cancel_gate_seal(&g, 100);
    assert_false(cancel_gate_id(&g, 5, 40)); /* its own comes too late */
    assert_false(cancel_gate_id(&g, 6, 99)); /* the next one's is dropped */
    assert_int_equal(g.pending, 0);
    cancel_gate_seal(&g, 200); /* sealed is sealed */
    assert_false(cancel_gate_id(&g, 6, 100));
    assert_int_equal(g.pending, 6);
    assert_true(cancel_gate_begin(&g, 6));
}

static void test_nothing_to_seal(void **state)
{
    cancel_gate g = fresh(0);
    cancel_gate_seal(&g, 100); /* a request without a cancel id ended: it was never active */
    cancel_gate_id(&g, 1, 0);
    assert_true(cancel_gate_begin(&g, 1));
}

static void test_the_next_one_begins_before_the_last_frame_is_written(void **state)
{
    cancel_gate g = fresh(0);
    cancel_gate_begin(&g, 1);
    cancel_gate_seal(&g, 100);
    assert_false(cancel_gate_begin(&g, 2));
    assert_false(cancel_gate_id(&g, 1, 50));
    assert_true(cancel_gate_id(&g, 2, 50));
    assert_true(cancel_gate_id(&g, 2, 100));
}

/* Frames may arrive split at any byte; numbers are little-endian. */
static void test_split_frames(void **state)
{
    static const unsigned char bytes[] = {
        1,    2,    3,    4,    5,    6,    7,    8,    /* 0x0807060504030201 */
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, /* 2^64 - 1 */
        0x39, 0x30, 0,    0,    0,    0,    0,    0,    /* 12345 */
    };
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        cancel_gate g = fresh(0);
        cancel_gate_begin(&g, 12345);
        bool first = cancel_gate_bytes(&g, bytes, cut, 0);
        bool second = cancel_gate_bytes(&g, bytes + cut, sizeof bytes - cut, 0);
        assert_int_equal(first, cut == sizeof bytes);
        assert_int_equal(second, cut < sizeof bytes);
        g = fresh(0);
        cancel_gate_bytes(&g, bytes, cut, 0);
        assert_true(g.pending == (cut >= 8 ? UINT64_C(0x0807060504030201) : 0));
        cancel_gate_bytes(&g, bytes + cut, sizeof bytes - cut, 0);
        assert_true(g.pending == UINT64_C(0x0807060504030201));
    }
}

static void test_many_in_one_read(void **state)
{
    unsigned char bytes[8 * 100];
    memset(bytes, 0, sizeof bytes);
    for (size_t i = 0; i < 100; i++) {
        bytes[8 * i] = (unsigned char)i;
    }
    cancel_gate g = fresh(0);
    cancel_gate_begin(&g, 50);
    assert_true(cancel_gate_bytes(&g, bytes, sizeof bytes, 0)); /* one among them acts */
    assert_false(cancel_gate_bytes(&g, bytes, 8 * 50, 0));
    assert_int_equal(g.pending, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_id_0_is_ignored),
        cmocka_unit_test(test_stale_ids_are_ignored),
        cmocka_unit_test(test_own_id_cancels),
        cmocka_unit_test(test_others_are_dropped_while_one_is_active),
        cmocka_unit_test(test_first_id_takes_the_slot),
        cmocka_unit_test(test_another_id_forgets_the_pending_one),
        cmocka_unit_test(test_a_failed_request_empties_the_slot),
        cmocka_unit_test(test_ids_must_rise),
        cmocka_unit_test(test_the_largest_id),
        cmocka_unit_test(test_seal),
        cmocka_unit_test(test_nothing_to_seal),
        cmocka_unit_test(test_the_next_one_begins_before_the_last_frame_is_written),
        cmocka_unit_test(test_split_frames),
        cmocka_unit_test(test_many_in_one_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
