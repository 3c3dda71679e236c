/*
 * The table behind /v1/requests/{id}.
 */
#include <stdio.h>
#include <string.h>

#include "base/test_main.h"
#include "serve/request_table.h"

static size_t third(void *ctx, double *estimate_s)
{
    *estimate_s = 1.5;
    return 3;
}

static request_entry entry(const char *id, uint32_t key)
{
    request_entry r = {
        .key = key, .route = "/v1/completions", .model = "m", .n_choices = 1, .position = third};
    snprintf(r.id, sizeof r.id, "%s", id);
    snprintf(r.answer_id, sizeof r.answer_id, "cmpl-%s", id);
    return r;
}

static void test_find(void **state)
{
    request_table *t;
    assert_int_equal(request_table_new(&t), ST_OK);
    request_entry a = entry("a", 1), b = entry("b", 2), again = entry("a", 1);
    request_table_add(t, &a);
    request_table_add(t, &b);
    assert_ptr_equal(request_table_find(t, 1, "a"), &a);
    assert_ptr_equal(request_table_find(t, 1, "cmpl-a"), &a);
    assert_null(request_table_find(t, 2, "a")); /* another's */
    assert_null(request_table_find(t, 0, "a"));
    assert_null(request_table_find(t, 1, ""));
    assert_int_equal(request_table_n_live(t), 2);
    request_table_add(t, &again);
    assert_ptr_equal(request_table_find(t, 1, "a"), &again); /* the younger one */
    request_table_end(t, &again);
    assert_ptr_equal(request_table_find(t, 1, "a"), &a); /* live ones first */
    request_table_end(t, &a);
    request_entry *kept = request_table_find(t, 1, "a");
    assert_true(kept && kept != &a && kept != &again);
    assert_null(kept->cancel);
    assert_null(kept->position);
    request_table_end(t, &b);
    assert_int_equal(request_table_n_live(t), 0);
    assert_true(request_table_serial(t) != request_table_serial(t));
    request_table_free(t);
}

/* Only the last ones are kept. */
static void test_ring(void **state)
{
    request_table *t;
    assert_int_equal(request_table_new(&t), ST_OK);
    for (int i = 0; i <= REQUESTS_KEPT; i++) {
        char id[20];
        snprintf(id, sizeof id, "r%d", i);
        request_entry r = entry(id, 0);
        request_table_add(t, &r);
        request_table_end(t, &r);
    }
    assert_null(request_table_find(t, 0, "r0"));
    assert_non_null(request_table_find(t, 0, "r1"));
    assert_non_null(request_table_find(t, 0, "r256"));
    request_table_free(t);
}

static void test_object(void **state)
{
    buf out = {0};
    request_entry r = entry("a", 0);
    r.created_ms = 7;
    assert_int_equal(request_entry_put(&r, &out), ST_OK);
    assert_string_equal(
        buf_str(&out),
        "{\"id\":\"a\",\"object\":\"hearth.request\",\"answer_id\":\"cmpl-a\",\"route\":"
        "\"/v1/completions\",\"model\":\"m\",\"state\":\"queued\",\"ending\":null,\"position\":3,"
        "\"estimate_s\":1.500,\"n_choices\":1,\"prompt_tokens\":0,\"completion_tokens\":0,"
        "\"created_ms\":7,\"started_ms\":null,\"ended_ms\":null}");
    buf_reset(&out);
    r.state = REQUEST_DONE;
    strcpy(r.ending, "stop");
    r.started_ms = 8;
    r.ended_ms = 9;
    assert_int_equal(request_entry_put(&r, &out), ST_OK);
    assert_non_null(strstr(out.data, "\"state\":\"done\",\"ending\":\"stop\",\"n_choices\":1,"));
    assert_non_null(strstr(out.data, "\"started_ms\":8,\"ended_ms\":9}"));
    buf_reset(&out);
    r.state = REQUEST_RUNNING;
    r.cancelling = true;
    assert_int_equal(request_entry_put(&r, &out), ST_OK);
    assert_non_null(strstr(out.data, "\"state\":\"cancelling\""));
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
