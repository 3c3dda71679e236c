/*
 * json under load: time that grows with the length and no faster, a small C stack, files that others made.
 */
#include "base/test_main.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "fixtures.h"

typedef void (*make_fn)(buf *b, size_t n);

static void put(buf *b, const char *s)
{
    assert_int_equal(buf_append_str(b, s), ST_OK);
}

static void make_numbers(buf *b, size_t n)
{
    put(b, "[0");
    while (b->len < n) {
        put(b, ",12345");
    }
    put(b, "]");
}

static void make_floats(buf *b, size_t n)
{
    put(b, "[0.5");
    while (b->len < n) {
        put(b, ",-12.25e-3");
    }
    put(b, "]");
}

static void make_keys(buf *b, size_t n)
{
    put(b, "{\"k\":0");
    for (unsigned i = 0; b->len < n; i++) {
        assert_int_equal(buf_printf(b, ",\"%u\":1", i), ST_OK);
    }
    put(b, "}");
}

static void make_objects(buf *b, size_t n)
{
    put(b, "[0");
    while (b->len < n) {
        put(b, ",{\"a\":{\"b\":1}}");
    }
    put(b, "]");
}

static void make_text(buf *b, size_t n)
{
    put(b, "\"");
    while (b->len < n) {
        put(b, "text \xE2\x82\xAC ");
    }
    put(b, "\"");
}

static void make_escapes(buf *b, size_t n)
{
    put(b, "\"");
    while (b->len < n) {
        put(b, "\\n\\u00e9\\uD83D\\uDE00");
    }
    put(b, "\"");
}

static void make_long_key(buf *b, size_t n)
{
    put(b, "{\"");
    while (b->len < n) {
        put(b, "\\u0061");
    }
    put(b, "\":1}");
}

static void make_long_float(buf *b, size_t n)
{
    put(b, "1.");
    while (b->len < n) {
        put(b, "9876543210");
    }
    put(b, "e-5");
}

static void make_space(buf *b, size_t n)
{
    while (b->len < n) {
        put(b, " \n\t\r");
    }
    put(b, "1");
}

static double parse_ms(const buf *b)
{
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        struct timespec from, to;
        json_doc *d = NULL;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        assert_int_equal(json_parse(b->data, b->len, JSON_MAX_DEPTH, &d, NULL), ST_OK);
        json_doc_free(d);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6;
        best = ms < best ? ms : best;
    }
    return best;
}

/* Ten times the text takes ten times the time; a quadratic step anywhere would make it a hundred. */
static void test_linear(void **state)
{
    static const struct {
        const char *name;
        make_fn make;
    } shapes[] = {
        {"numbers", make_numbers},   {"floats", make_floats},
        {"keys", make_keys},         {"objects", make_objects},
        {"text", make_text},         {"escapes", make_escapes},
        {"long key", make_long_key}, {"long float", make_long_float},
        {"space", make_space},
    };
    for (size_t i = 0; i < N_OF(shapes); i++) {
        buf small = {0}, large = {0};
        shapes[i].make(&small, 100000);
        shapes[i].make(&large, 1000000);
        double t_small = parse_ms(&small), t_large = parse_ms(&large);
        if (t_large > 30 * t_small + 5) { /* room for caches and a busy machine */
            fail_msg("%s: %.2f ms for 100 KB, %.2f ms for 1 MB", shapes[i].name, t_small, t_large);
        }
        buf_release(&small);
        buf_release(&large);
    }
}

static void *parse_on_small_stack(void *arg)
{
    const buf *b = arg;
    json_doc *d = NULL;
    status st = json_parse(b->data, b->len, JSON_MAX_DEPTH, &d, NULL);
    json_doc_free(d);
    return st == ST_OK ? arg : NULL;
}

static void test_small_stack(void **state)
{
    buf b = {0};
    pthread_attr_t attr;
    pthread_t t;
    void *r = NULL;
    for (int i = 0; i < JSON_MAX_DEPTH / 2; i++) {
        put(&b, "{\"a\":[");
    }
    make_numbers(&b, 1000000);
    for (int i = 0; i < JSON_MAX_DEPTH / 2; i++) {
        put(&b, "]}");
    }
    b.data[768] = ' '; /* '[' of make_numbers: its array would be level 257 */
    b.data[b.len - 257] = ' ';
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, 256 * 1024), 0);
    assert_int_equal(pthread_create(&t, &attr, parse_on_small_stack, &b), 0);
    assert_int_equal(pthread_join(t, &r), 0);
    assert_ptr_equal(r, &b);
    pthread_attr_destroy(&attr);
    buf_release(&b);
}

/* Every allocation of ours fails once: ST_NOMEM, nothing leaks (ASan), the next try is good. */
static void test_nomem(void **state)
{
    static const char text[] = "{\"a\\n\":[\"b\\u00e9\",1.5,null,{\"c\":18446744073709551615}]}";
    for (uint64_t n = 1;; n++) {
        json_doc *d = NULL;
        err e;
        uint64_t before = mem_alloc_count();
        mem_fail_at(n, true);
        status st = json_parse(text, strlen(text), JSON_MAX_DEPTH, &d, &e);
        mem_fail_at(0, false);
        if (st == ST_OK) {
            assert_true(mem_alloc_count() - before == n - 1);
            json_doc_free(d);
            assert_true(n > 2);
            return;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_int_equal(e.code, ST_NOMEM);
        assert_null(d);
    }
}

/* Each line of a file made by others is one text. */
static size_t parse_lines(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *line = NULL;
    size_t cap = 0, n = 0;
    ssize_t len;
    assert_non_null(f);
    while ((len = getline(&line, &cap, f)) > 0) {
        json_doc *d = NULL;
        err e;
        if (json_parse(line, (size_t)len, JSON_MAX_DEPTH, &d, &e) != ST_OK) {
            fail_msg("%s, line %zu: %s", path, n + 1, e.msg);
        }
        json_doc_free(d);
        n++;
    }
    free(line); /* getline's own */
    fclose(f);
    return n;
}

static void test_fixtures(void **state)
{
    static const char *const names[] = {"toolcalls/cases.jsonl", "tokenizers/gpt-2.cases.jsonl",
                                        "tokenizers/qwen3.cases.jsonl"};
    for (size_t i = 0; i < N_OF(names); i++) {
        const char *path = fixture_path(names[i]);
        if (!path) {
            skip();
        }
        assert_true(parse_lines(path) > 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_small_stack),
        cmocka_unit_test(test_nomem),
        cmocka_unit_test(test_fixtures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
