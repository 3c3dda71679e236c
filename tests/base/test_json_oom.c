/*
 * json-c takes no allocator, so this program puts its own malloc under it: each allocation, ours or json-c's,
 * fails once. The answer must be ST_NOMEM and never a crash or a tree that lacks something. (json-c 0.16's
 * own parser dies here, see base/json_int.h.)
 */
#include "base/test_main.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"

/* A sanitizer has a malloc of its own, which must stay. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define OWN_MALLOC 0
#else
#define OWN_MALLOC 1
#endif
#else
#define OWN_MALLOC 1
#endif

#if OWN_MALLOC
/* glibc's real ones */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);

/* The project hides symbols by default; the library must find these. */
#define VISIBLE __attribute__((visibility("default")))

static unsigned long fail_in; /* one thread; 0 = never */

static bool fails(void)
{
    if (fail_in > 0 && --fail_in == 0) {
        errno = ENOMEM;
        return true;
    }
    return false;
}

VISIBLE void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

VISIBLE void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

VISIBLE void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}

/* Objects that grow their tables, arrays that grow, strings of both of json-c's kinds, escapes, all scalars.
 */
static void make_text(buf *b)
{
    assert_int_equal(buf_append_str(b, "{\"long\":\""), ST_OK);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(buf_append_char(b, 'a'), ST_OK);
    }
    assert_int_equal(
        buf_append_str(b, "\\u00e9\\n\",\"f\":1.5,\"null\":null,\"big\":18446744073709551615,\"arr\":[0"),
        ST_OK);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(buf_printf(b, ",%d", i), ST_OK);
    }
    assert_int_equal(buf_append_str(b, "]"), ST_OK);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(buf_printf(b, ",\"k%d\":{\"x\":[true]}", i), ST_OK);
    }
    assert_int_equal(buf_append_str(b, "}"), ST_OK);
}

static void test_each_allocation_fails(void **state)
{
    buf text = {0};
    make_text(&text);
    json_doc *d = NULL;
    assert_int_equal(json_parse(text.data, text.len, JSON_MAX_DEPTH, &d, NULL),
                     ST_OK); /* json-c's seed is drawn */
    json_doc_free(d);
    unsigned long n = 1;
    for (;; n++) {
        err e;
        err_clear(&e);
        d = NULL;
        fail_in = n;
        status st = json_parse(text.data, text.len, JSON_MAX_DEPTH, &d, &e);
        bool fired = fail_in == 0;
        fail_in = 0;
        if (!fired) {
            assert_int_equal(st, ST_OK);
            assert_int_equal(json_len(json_root(d)), 45);
            json_doc_free(d);
            break;
        }
        assert_int_equal(st, ST_NOMEM);
        assert_int_equal(e.code, ST_NOMEM);
        assert_null(d);
    }
    assert_true(n > 100); /* the hook did sit under json-c */
    buf_release(&text);
}
#else
static void test_each_allocation_fails(void **state)
{
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
