#include "base/test_main.h"

#include <string.h>

#include "base/status.h"
#include "base/utf8.h"

/* Numbers are public: this list is written out again on purpose. */
static const struct {
    status st;
    int number;
    const char *name;
} pinned[] = {
    {ST_OK, 0, "ST_OK"},
    {ST_NOMEM, 1, "ST_NOMEM"},
    {ST_IO, 2, "ST_IO"},
    {ST_INTERNAL, 3, "ST_INTERNAL"},
    {ST_BAD_REQUEST, 4, "ST_BAD_REQUEST"},
    {ST_INVALID_FIELD, 5, "ST_INVALID_FIELD"},
    {ST_CONTEXT_LENGTH, 6, "ST_CONTEXT_LENGTH"},
    {ST_UNSUPPORTED, 7, "ST_UNSUPPORTED"},
    {ST_TEMPLATE, 8, "ST_TEMPLATE"},
    {ST_CONSTRAINT, 9, "ST_CONSTRAINT"},
    {ST_NEVER_FITS, 10, "ST_NEVER_FITS"},
    {ST_UNKNOWN_ID, 11, "ST_UNKNOWN_ID"},
    {ST_CAPACITY, 12, "ST_CAPACITY"},
    {ST_QUEUE_FULL, 13, "ST_QUEUE_FULL"},
    {ST_UNSUPPORTED_SESSION, 14, "ST_UNSUPPORTED_SESSION"},
    {ST_TIMEOUT, 15, "ST_TIMEOUT"},
    {ST_LOAD_FAILED, 16, "ST_LOAD_FAILED"},
    {ST_MODEL_CHANGED, 17, "ST_MODEL_CHANGED"},
    {ST_WORKER_CRASHED, 18, "ST_WORKER_CRASHED"},
    {ST_DRAINING, 19, "ST_DRAINING"},
    {ST_RESUME_MISMATCH, 20, "ST_RESUME_MISMATCH"},
    {ST_NONFINITE, 21, "ST_NONFINITE"},
    {ST_CANCELLED, 22, "ST_CANCELLED"},
    {ST_NOT_FOUND, 23, "ST_NOT_FOUND"},
    {ST_BAD_FORMAT, 24, "ST_BAD_FORMAT"},
    {ST_CLOSED, 25, "ST_CLOSED"},
    {ST_FULL, 26, "ST_FULL"},
};

static void test_pinned(void **state)
{
    for (size_t i = 0; i < N_OF(pinned); i++) {
        assert_int_equal(pinned[i].st, pinned[i].number);
        assert_string_equal(status_name(pinned[i].st), pinned[i].name);
        assert_true(status_text(pinned[i].st)[0] != '\0');
        assert_string_not_equal(status_text(pinned[i].st), "unknown status");
    }
    assert_string_equal(status_text((status)9999), "unknown status");
    assert_string_equal(status_text(ST_OK), "ok");
}

static void test_set(void **state)
{
    err e;
    assert_int_equal(err_set(&e, ST_IO, NULL, "cannot open %s", "x.gguf"), ST_IO);
    assert_int_equal(e.code, ST_IO);
    assert_string_equal(e.msg, "cannot open x.gguf");
    assert_string_equal(e.field, "");
    assert_true(e.offset == ERR_NO_OFFSET);
    assert_int_equal(err_at(&e, ST_BAD_FORMAT, 24, "general.name", "length %d", 7), ST_BAD_FORMAT);
    assert_string_equal(e.field, "general.name");
    assert_true(e.offset == 24);
    assert_int_equal(err_set(NULL, ST_NOMEM, "f", "text"), ST_NOMEM);
    assert_int_equal(err_at(NULL, ST_NOMEM, 1, "f", "text"), ST_NOMEM);
    err_clear(&e);
    assert_int_equal(e.code, ST_OK);
    assert_string_equal(e.msg, "");
    assert_true(e.offset == ERR_NO_OFFSET);
    err_clear(NULL);
}

/* Callers wrap: what they pass may lie in the err itself. */
static void test_wrap(void **state)
{
    err e;
    err_at(&e, ST_BAD_FORMAT, 9, "a.key", "bad length");
    err_at(&e, e.code, e.offset, e.field, "model.gguf: %s (%s)", e.msg, e.field);
    assert_string_equal(e.msg, "model.gguf: bad length (a.key)");
    assert_string_equal(e.field, "a.key");
    assert_true(e.offset == 9);
}

static void test_cleaned(void **state)
{
    err e;
    err_set(&e, ST_BAD_REQUEST, "k\n\x1b[0m",
            "a\tb\xff"
            "c \xC3\xA9 \xE2\x80\xA8 \x7f");
    assert_string_equal(e.field, "k??[0m");
    assert_string_equal(e.msg, "a?b?c \xC3\xA9 ? ?");
}

/* A cut falls between characters, whatever byte of one the limit hits. */
static void test_cut(void **state)
{
    char text[600];
    err e;
    for (size_t lead = 0; lead < 4; lead++) {
        size_t n = 0;
        while (n < lead) {
            text[n++] = 'x';
        }
        while (n + 4 < sizeof text) {
            memcpy(text + n, "\xF0\x9F\x98\x80", 4);
            n += 4;
        }
        text[n] = '\0';
        err_set(&e, ST_IO, text, "%s", text);
        size_t len = strlen(e.msg), field_len = strlen(e.field);
        assert_true(len < sizeof e.msg && len > sizeof e.msg - 5);
        assert_true(field_len < sizeof e.field && field_len > sizeof e.field - 5);
        assert_true(utf8_valid(e.msg, len, NULL));
        assert_null(strchr(e.msg, '?'));
        assert_null(strchr(e.field, '?'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pinned),  cmocka_unit_test(test_set), cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_cleaned), cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
