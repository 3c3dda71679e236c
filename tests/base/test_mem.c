/*
 * mem, arena, buf, vec: the four ways to hold memory, with allocations that fail at every place.
 */
#include "base/test_main.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/vec.h"

static void test_sizes(void **state)
{
    static const struct {
        size_t a, b;
        bool mul_ok, add_ok;
    } cases[] = {
        {0, SIZE_MAX, true, true},
        {1, SIZE_MAX, true, false},
        {2, SIZE_MAX / 2, true, true},
        {2, SIZE_MAX / 2 + 1, false, true},
        {(size_t)1 << 32, (size_t)1 << 32, false, true},
        {((size_t)1 << 32) - 1, ((size_t)1 << 32) + 1, true, true},
        {SIZE_MAX, SIZE_MAX, false, false},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t a = cases[i].a, b = cases[i].b, r = 77;
        uint64_t u = 77;
        assert_int_equal(size_mul(a, b, &r), cases[i].mul_ok);
        assert_true(r == (cases[i].mul_ok ? a * b : 77));
        assert_int_equal(u64_mul(a, b, &u), cases[i].mul_ok);
        assert_true(u == (cases[i].mul_ok ? a * b : 77));
        r = u = 77;
        assert_int_equal(size_add(a, b, &r), cases[i].add_ok);
        assert_true(r == (cases[i].add_ok ? a + b : 77));
        assert_int_equal(u64_add(b, a, &u), cases[i].add_ok);
        assert_true(u == (cases[i].add_ok ? a + b : 77));
    }
}

static void test_alloc(void **state)
{
    char *a = mem_alloc(0), *b = mem_alloc(0);
    assert_true(a && b && a != b);
    a = mem_realloc(a, 0);
    assert_non_null(a);
    mem_free(a);
    mem_free(b);
    mem_free(NULL);
    uint8_t *z = mem_calloc(100, 3);
    for (size_t i = 0; i < 300; i++) {
        assert_int_equal(z[i], 0);
    }
    mem_free(z);
    assert_null(mem_calloc(SIZE_MAX / 2, 3));
    assert_null(mem_alloc_array(SIZE_MAX / 2, 3));
    for (size_t align = 1; align <= 4096; align *= 2) {
        char *p = mem_alloc_aligned(align, 10);
        assert_int_equal((uintptr_t)p % align, 0);
        memset(p, 1, 10);
        mem_free(p);
    }
    char *s = mem_strndup("ab\0cd", 4);
    assert_memory_equal(s, "ab\0c", 5);
    mem_free(s);
    s = mem_strdup("text");
    assert_string_equal(s, "text");
    mem_free(s);
}

/* One allocation by each function; all of them obey the hook. */
static void *by_function(size_t which)
{
    switch (which) {
    case 0:
        return mem_alloc(8);
    case 1:
        return mem_calloc(2, 4);
    case 2:
        return mem_realloc(NULL, 8);
    case 3:
        return mem_alloc_array(2, 4);
    case 4:
        return mem_alloc_aligned(64, 8);
    case 5:
        return mem_strdup("seven77");
    default:
        return mem_strndup("seven77", 7);
    }
}

static void test_fail_at(void **state)
{
    for (size_t which = 0; which < 7; which++) {
        for (int sticky = 0; sticky < 2; sticky++) {
            uint64_t before = mem_alloc_count();
            mem_fail_at(2, sticky);
            void *first = by_function(which), *second = by_function(which), *third = by_function(which);
            mem_fail_at(0, false);
            void *fourth = by_function(which);
            assert_non_null(first);
            assert_null(second);
            assert_int_equal(third == NULL, sticky);
            assert_non_null(fourth);
            assert_true(mem_alloc_count() - before == 4);
            mem_free(first);
            mem_free(third);
            mem_free(fourth);
        }
    }
    char *p = mem_alloc(4);
    memcpy(p, "abc", 4);
    mem_fail_at(1, false);
    assert_null(mem_realloc(p, 1000));
    mem_fail_at(0, false);
    assert_string_equal(p, "abc"); /* still valid */
    mem_free(p);
}

/* In a child: allocating inside the guard kills a debug build, and only there. */
static int child_status(bool inside)
{
    pid_t pid = fork();
    if (pid == 0) {
        void *p = mem_alloc(8);
        mem_guard_enter();
        mem_guard_enter();
        mem_guard_leave();
        if (!inside) {
            mem_guard_leave();
        }
        p = mem_realloc(p, 16);
        mem_free(p);
        _exit(0);
    }
    int st = -1;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    return st;
}

static void test_guard(void **state)
{
    assert_int_equal(child_status(false), 0);
    int st = child_status(true);
#ifdef HEARTH_DEBUG
    assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
#else
    assert_int_equal(st, 0);
#endif
}

/* Pieces of many sizes: aligned, apart from each other (each keeps its own pattern), counted. */
static void test_arena_pieces(void **state)
{
    arena a;
    uint8_t *piece[200];
    size_t size[200], total = 0;
    arena_init(&a, 1000);
    for (int round = 0; round < 3; round++) {
        total = 0;
        for (size_t i = 0; i < N_OF(piece); i++) {
            size[i] = i * 37 % 300 + (i % 50 == 49 ? 5000 : 0); /* some are larger than a chunk */
            piece[i] = arena_alloc(&a, size[i]);
            assert_non_null(piece[i]);
            assert_int_equal((uintptr_t)piece[i] % (size[i] >= 64 ? 64 : 16), 0);
            memset(piece[i], (int)i, size[i]);
            total += size[i] ? size[i] : 1;
        }
        assert_int_equal(a.used_bytes, total);
        for (size_t i = 0; i < N_OF(piece); i++) {
            for (size_t k = 0; k < size[i]; k++) {
                assert_int_equal(piece[i][k], (uint8_t)i);
            }
        }
        uint64_t before = mem_alloc_count();
        arena_reset(&a);
        assert_int_equal(a.used_bytes, 0);
        if (round > 0) {
            assert_true(mem_alloc_count() == before);
        }
    }
    uint64_t before = mem_alloc_count();
    for (size_t i = 0; i < N_OF(piece); i++) { /* a reset arena serves the same load without new chunks */
        assert_non_null(arena_alloc(&a, size[i]));
    }
    assert_true(mem_alloc_count() == before);
    arena_release(&a);
    arena_release(&a);
    arena_release(NULL);
}

/* A piece larger than a chunk does not end the chunk being filled. */
static void test_arena_large(void **state)
{
    arena a;
    arena_init(&a, 4096);
    char *first = arena_alloc(&a, 16);
    assert_non_null(arena_alloc(&a, 100000));
    char *next = arena_alloc(&a, 16);
    assert_ptr_equal(next, first + 16);
    arena_release(&a);
}

static void test_arena_forms(void **state)
{
    arena a = {0}; /* all zero is fine */
    uint8_t *z = arena_alloc(&a, 64);
    memset(z, 0xFF, 64);
    arena_reset(&a);
    z = arena_calloc(&a, 8, 8);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(z[i], 0);
    }
    char *s = arena_strndup(&a, "ab\0cd", 4);
    assert_memory_equal(s, "ab\0c", 5);
    assert_null(arena_calloc(&a, SIZE_MAX / 2, 3));
    assert_null(arena_alloc_array(&a, SIZE_MAX / 2, 3));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 64));
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    assert_non_null(arena_alloc_array(&a, 3, 5));
    mem_fail_at(1, true);
    assert_null(arena_alloc(&a, 1 << 20));
    assert_non_null(arena_alloc(&a, 8)); /* what is there still serves */
    mem_fail_at(0, false);
    arena_release(&a);
}

static void test_buf(void **state)
{
    buf b = {0};
    assert_string_equal(buf_str(&b), "");
    buf_consume(&b, 0);
    buf_truncate(&b, 0);
    buf_reset(&b);
    assert_null(buf_detach(&b, NULL));
    assert_int_equal(buf_append(&b, NULL, 0), ST_OK);
    assert_int_equal(buf_append_str(&b, "hello"), ST_OK);
    assert_int_equal(buf_append_char(&b, ' '), ST_OK);
    assert_int_equal(buf_printf(&b, "%d %s", 42, "worlds"), ST_OK);
    assert_string_equal(b.data, "hello 42 worlds");
    assert_int_equal(b.len, 15);
    buf_consume(&b, 6);
    assert_string_equal(b.data, "42 worlds");
    buf_truncate(&b, 2);
    assert_string_equal(b.data, "42");
    assert_int_equal(buf_append(&b, "\0x", 2), ST_OK);
    assert_int_equal(b.len, 4);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(buf_printf(&b, "%04d", i), ST_OK);
    }
    assert_int_equal(b.len, 4004);
    assert_memory_equal(b.data + 4000, "0999", 5);
    buf_trim(&b, 100000); /* it has no more than that */
    assert_true(b.cap > 4004 && b.cap <= 100000);
    mem_fail_at(1, false);
    buf_trim(&b, 0); /* cannot */
    mem_fail_at(0, false);
    assert_true(b.cap > 4005);
    buf_trim(&b, 0);
    assert_true(b.cap == 4005 && b.len == 4004);
    assert_memory_equal(b.data + 4000, "0999", 5);
    size_t len = 0;
    char *data = buf_detach(&b, &len);
    assert_int_equal(len, 4004);
    assert_int_equal(b.len, 0);
    assert_string_equal(buf_str(&b), "");
    mem_free(data);
    buf_release(&b);
    buf_release(NULL);
}

static void test_buf_limits(void **state)
{
    buf b;
    buf_init(&b);
    assert_int_equal(buf_append_str(&b, "kept"), ST_OK);
    assert_int_equal(buf_reserve(&b, SIZE_MAX), ST_NOMEM);
    assert_int_equal(buf_reserve(&b, SIZE_MAX - 4), ST_NOMEM);
    assert_int_equal(buf_reserve(&b, 10000), ST_OK);
    size_t cap = b.cap;
    buf_reset(&b);
    assert_int_equal(b.cap, cap);
    assert_int_equal(buf_append_str(&b, "kept"), ST_OK);
    mem_fail_at(1, true);
    assert_int_equal(buf_reserve(&b, 100000), ST_NOMEM);
    assert_int_equal(buf_printf(&b, "%20000d", 1), ST_NOMEM);
    mem_fail_at(0, false);
    assert_string_equal(b.data, "kept");
    buf_release(&b);
}

static void test_vec(void **state)
{
    ivec v = {0};
    const int32_t three[] = {-1, INT32_MIN, INT32_MAX};
    for (int32_t i = 0; i < 1000; i++) {
        assert_int_equal(ivec_push(&v, i), ST_OK);
    }
    assert_int_equal(ivec_append(&v, three, 3), ST_OK);
    assert_int_equal(ivec_append(&v, NULL, 0), ST_OK);
    assert_int_equal(v.len, 1003);
    for (int32_t i = 0; i < 1000; i++) {
        assert_int_equal(v.data[i], i);
    }
    assert_memory_equal(v.data + 1000, three, sizeof three);
    ivec_truncate(&v, 10);
    assert_int_equal(v.len, 10);
    size_t cap = v.cap;
    ivec_reset(&v);
    assert_int_equal(v.len, 0);
    assert_int_equal(v.cap, cap);
    assert_int_equal(ivec_reserve(&v, SIZE_MAX), ST_NOMEM);
    assert_int_equal(ivec_reserve(&v, SIZE_MAX / 2), ST_NOMEM);
    assert_int_equal(ivec_push(&v, 5), ST_OK);
    mem_fail_at(1, true);
    assert_int_equal(ivec_reserve(&v, 100000), ST_NOMEM);
    mem_fail_at(0, false);
    assert_int_equal(v.data[0], 5);
    ivec_release(&v);
    ivec_release(&v);
    ivec_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),        cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_fail_at),      cmocka_unit_test(test_guard),
        cmocka_unit_test(test_arena_pieces), cmocka_unit_test(test_arena_large),
        cmocka_unit_test(test_arena_forms),  cmocka_unit_test(test_buf),
        cmocka_unit_test(test_buf_limits),   cmocka_unit_test(test_vec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
