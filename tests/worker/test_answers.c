/*
 * PROTOCOL 4: tokenize, detokenize and count, many at once: their answers are bounded (each can have 64 MiB),
 * and a prompt that was read behind them waits for a few of them only.
 */
#include "base/test_main.h"

#include <stdio.h>

#include "worker/loop_rig.h"

#define N_ASKED 20

/* With the preparer not running: what it was given is what it could hold. */
static void test_few_at_a_time(void **state)
{
    static loop_rig r;
    loop_rig_open_still(&r, "ab");
    for (int i = 0; i < N_ASKED; i++) {
        static const char *const asks[] = {"\"tokenize\",\"text\":\"abc\"", "\"count\",\"text\":\"abc\"",
                                           "\"detokenize\",\"ids\":[97]"};
        char line[96];
        snprintf(line, sizeof line, "{\"id\":\"t%d\",\"op\":%s}", i, asks[i % 3]);
        loop_rig_send(&r, line);
    }
    loop_rig_send(&r, "{\"id\":\"g\",\"op\":\"generate\",\"prompt\":\"x>\",\"max_new_tokens\":1}");
    loop_rig_turns(&r, 3);
    assert_int_equal(r.tasks.n_answers, TASKS_MAX_ANSWERS);
    assert_int_equal(r.tasks.n_preparing, TASKS_MAX_ANSWERS + 1); /* and the prompt */
    loop_rig_send(&r, "{\"id\":\"t0\",\"op\":\"cancel\"}");       /* the preparer has it still */
    loop_rig_turns(&r, 1);
    assert_int_equal(r.tasks.n_preparing, TASKS_MAX_ANSWERS + 1);
    loop_rig_start_writer(&r);
    loop_rig_start_preparer(&r);
    loop_rig_run(&r);
    loop_rig_hear(&r);
    for (int i = 0; i < N_ASKED; i++) { /* each is answered, once */
        char id[8];
        snprintf(id, sizeof id, "t%d", i);
        assert_int_equal(loop_rig_count(&r, id), 1);
        assert_true((loop_rig_last(&r, id)->kind == FRAME_DONE) == (i == 0));
    }
    assert_int_equal(loop_rig_last(&r, "g")->kind, FRAME_DONE);
    assert_int_equal(r.tasks.n, 0);
    assert_int_equal(r.tasks.n_answers, 0);
    assert_int_equal(r.tasks.n_preparing, 0);
    loop_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
