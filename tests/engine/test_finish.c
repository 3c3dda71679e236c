/* The finish reason as DESIGN 6 has it, every pair of causes included. */
#include "engine/test_main.h"

#include "engine/finish.h"

enum { DEADLINE, CANCELLED, BUDGET, CONTEXT, GUARD, END_TOKEN, STOP_STRING, TOOL_CALLS, N_CAUSES };

static void set(finish_causes *c, int cause)
{
    bool *const fields[N_CAUSES] = {&c->deadline, &c->cancelled, &c->budget,      &c->context,
                                    &c->guard,    &c->end_token, &c->stop_string, &c->tool_calls_closed};
    *fields[cause] = true;
}

/*
 * Row and column are causes that hold in the same step, the diagonal is one alone; written down from the
 * sentence in DESIGN 6: deadline → timeout (T); cancelled → cancelled (C); budget, context, guard → length
 * (L); else it ended by itself (S).
 */
static const char pairs[N_CAUSES][N_CAUSES + 1] = {
    /*             D C B X G E S T */
    [DEADLINE] = "TTTTTTTT",    /**/
    [CANCELLED] = "TCCCCCCC",   /**/
    [BUDGET] = "TCLLLLLL",      /**/
    [CONTEXT] = "TCLLLLLL",     /**/
    [GUARD] = "TCLLLLLL",       /**/
    [END_TOKEN] = "TCLLLSSS",   /**/
    [STOP_STRING] = "TCLLLSSS", /**/
    [TOOL_CALLS] = "TCLLLSSS",  /**/
};

static finish_reason meaning(char letter, int n_calls)
{
    switch (letter) {
    case 'T':
        return FINISH_TIMEOUT;
    case 'C':
        return FINISH_CANCELLED;
    case 'L':
        return FINISH_LENGTH;
    default: /* complete calls make its own end tool_calls; a cut stays a cut */
        return n_calls > 0 ? FINISH_TOOL_CALLS : FINISH_STOP;
    }
}

static void test_pairs(void **state)
{
    for (int a = 0; a < N_CAUSES; a++) {
        for (int b = 0; b < N_CAUSES; b++) {
            for (int calls = 0; calls <= 2; calls++) {
                finish_causes c = {.n_tool_calls = calls};
                set(&c, a);
                set(&c, b);
                assert_int_equal(finish_of(&c), meaning(pairs[a][b], calls));
            }
        }
    }
}

/* No cause at all is no end, whatever was called; it is what a running sequence looks like, and else a bug.
 */
static void test_nothing(void **state)
{
    for (int calls = 0; calls <= 2; calls++) {
        finish_causes c = {.n_tool_calls = calls};
        assert_int_equal(finish_of(&c), FINISH_NONE);
    }
}

/* Total, and decided by the strongest cause alone: all 256 sets agree with the pairs in them. */
static void test_total(void **state)
{
    for (unsigned bits = 1; bits < 1u << N_CAUSES; bits++) {
        finish_causes c = {.n_tool_calls = 1};
        int first = -1;
        for (int i = 0; i < N_CAUSES; i++) {
            if (bits & 1u << i) {
                set(&c, i);
                first = first < 0 ? i : first;
            }
        }
        assert_int_equal(finish_of(&c), meaning(pairs[first][first], 1));
    }
}

static void test_names(void **state)
{
    static const struct {
        finish_reason reason;
        const char *name, *plain;
    } rows[] = {
        {FINISH_STOP, "stop", "stop"},
        {FINISH_LENGTH, "length", "length"},
        {FINISH_TOOL_CALLS, "tool_calls", "stop"},
        {FINISH_TIMEOUT, "timeout", "length"},
        {FINISH_CANCELLED, "cancelled", "stop"},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        assert_string_equal(finish_name(rows[i].reason), rows[i].name);
        assert_string_equal(finish_plain_name(rows[i].reason), rows[i].plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_total),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
