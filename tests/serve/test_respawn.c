/* respawn: the sequence of PROTOCOL 6, what ends it, and what forgets it. */

#include "base/test_main.h"
#include "serve/respawn.h"

static void back_off(void **state)
{
    static const uint64_t waits[] = {0, 250, 500, 1000, 2000, 4000, 8000, 8000, 8000};
    respawn r = {.max_respawns = 9};
    uint64_t ms;
    for (size_t i = 0; i < 9; i++) {
        assert_true(respawn_after_death(&r, false, &ms));
        assert_int_equal(ms, waits[i]);
    }
    assert_false(respawn_after_death(&r, false, &ms)); /* one more than max_respawns */
}

static void failures(void **state)
{
    static const uint64_t waits[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000};
    respawn r = {.max_respawns = 0};
    uint64_t ms;
    for (size_t i = 0; i < 7; i++) {
        assert_false(respawn_after_death(&r, false,
                                         &ms)); /* the first is one too many; each try is the next failure */
        assert_int_equal(ms, waits[i]);
    }
}

static void a_model_that_cannot_be_loaded_is_not_tried_again(void **state)
{
    respawn r = {.max_respawns = 5};
    uint64_t ms;
    assert_false(respawn_after_death(&r, true, &ms));
    assert_int_equal(ms, 1000);
    assert_false(respawn_after_death(&r, false, &ms)); /* also if it dies in another way */
    assert_int_equal(ms, 2000);
}

static void a_token_forgets(void **state)
{
    respawn r = {.max_respawns = 1};
    uint64_t ms;
    assert_true(respawn_after_death(&r, false, &ms));
    respawn_forget(&r);
    assert_true(respawn_after_death(&r, false, &ms));
    assert_int_equal(ms, 0);
    assert_false(respawn_after_death(&r, false, &ms));
    respawn_forget(&r);
    assert_true(respawn_after_death(&r, false, &ms));
    assert_int_equal(ms, 0);
}

static void many(void **state)
{
    respawn r = {.max_respawns = 3};
    uint64_t ms = 0;
    for (int i = 0; i < 100000; i++) {
        respawn_after_death(&r, false, &ms);
    }
    assert_int_equal(ms, 30000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(back_off),
        cmocka_unit_test(failures),
        cmocka_unit_test(a_model_that_cannot_be_loaded_is_not_tried_again),
        cmocka_unit_test(a_token_forgets),
        cmocka_unit_test(many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
