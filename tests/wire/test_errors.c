#include "base/test_main.h"

#include <string.h>

#include "wire/errors.h"

/* The table of PROTOCOL 4, typed again. */
static const struct {
    status code;
    const char *name;
    int http;
    const char *fields[WIRE_ERROR_EXTRA_FIELDS];
} want[] = {
    {ST_BAD_REQUEST, "bad_request", 400, {"", ""}},
    {ST_INVALID_FIELD, "invalid_field", 400, {"field", "value"}},
    {ST_CONTEXT_LENGTH, "context_length_exceeded", 400, {"prompt_tokens", "limit"}},
    {ST_UNSUPPORTED, "unsupported", 400, {"field", ""}},
    {ST_TEMPLATE, "template_error", 400, {"", ""}},
    {ST_CONSTRAINT, "constraint_error", 400, {"path", ""}},
    {ST_NEVER_FITS, "never_fits", 400, {"need", "have"}},
    {ST_UNKNOWN_ID, "unknown_id", 404, {"", ""}},
    {ST_CAPACITY, "capacity_exhausted", 429, {"", ""}},
    {ST_QUEUE_FULL, "queue_full", 429, {"retry_after", ""}},
    {ST_UNSUPPORTED_SESSION, "unsupported_session", 400, {"", ""}},
    {ST_TIMEOUT, "timeout", 504, {"", ""}},
    {ST_LOAD_FAILED, "load_failed", 503, {"", ""}},
    {ST_MODEL_CHANGED, "model_changed", 503, {"", ""}},
    {ST_WORKER_CRASHED, "worker_crashed", 503, {"", ""}},
    {ST_DRAINING, "draining", 503, {"", ""}},
    {ST_RESUME_MISMATCH, "resume_mismatch", 500, {"", ""}},
    {ST_NONFINITE, "nonfinite", 500, {"", ""}},
    {ST_INTERNAL, "internal", 500, {"", ""}},
};

static void test_table(void **state)
{
    for (size_t i = 0; i < N_OF(want); i++) {
        status back = ST_OK;
        assert_string_equal(wire_error_name(want[i].code), want[i].name);
        assert_int_equal(wire_error_http(want[i].code), want[i].http);
        assert_int_equal(wire_error_public(want[i].code), want[i].code);
        for (size_t f = 0; f < WIRE_ERROR_EXTRA_FIELDS; f++) {
            assert_string_equal(wire_error_field(want[i].code, f), want[i].fields[f]);
        }
        assert_string_equal(wire_error_field(want[i].code, WIRE_ERROR_EXTRA_FIELDS), "");
        assert_true(wire_error_from_name(want[i].name, strlen(want[i].name), &back));
        assert_int_equal(back, want[i].code);
    }
}

static void test_every_status_has_an_answer(void **state)
{
    size_t n_public = 0;
#define X(status, number, text)                                   \
    if (wire_error_public(status) == (status)) {                  \
        n_public++;                                               \
    } else {                                                      \
        assert_string_equal(wire_error_name(status), "internal"); \
        assert_int_equal(wire_error_http(status), 500);           \
    }
    STATUS_LIST(X)
#undef X
    assert_int_equal(n_public, N_OF(want));
    assert_string_equal(wire_error_name((status)999), "internal");
}

static void test_unknown_names(void **state)
{
    static const char *const names[] = {"", "bad", "bad_requests", "BAD_REQUEST", "ok", "ST_TIMEOUT"};
    for (size_t i = 0; i < N_OF(names); i++) {
        status out = ST_OK;
        assert_false(wire_error_from_name(names[i], strlen(names[i]), &out));
        assert_int_equal(out, ST_OK);
    }
    status out = ST_OK;
    assert_true(wire_error_from_name("timeouts", 7, &out)); /* the length counts, not a NUL */
    assert_int_equal(out, ST_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_every_status_has_an_answer),
        cmocka_unit_test(test_unknown_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
