/*
 * API keys. Digests are those of `printf %s KEY | sha256sum`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/test_main.h"
#include "serve/keys.h"

/* alpha, beta, and the empty key */
#define ALPHA "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8"
#define BETA  "F44E64E75F3948E9F73F8DFA94721C4CE8CBB4F265C4790C702B2D41CFBF2753"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static const char file[] = "# who\n\nann " ALPHA "\r\n \tbob\t  " BETA "  \n#ann x\n";

static void test_find(void **state)
{
    static const struct {
        const char *authorization, *x_api_key;
        uint32_t index; /* 0 = unknown */
    } rows[] = {
        {"Bearer alpha", NULL, 1},
        {"bearer   alpha", NULL, 1},
        {NULL, "alpha", 1},
        {"Bearer beta", "alpha", 2},
        {"Basic alpha", "beta", 2},
        {"Basic alpha", NULL, 0},
        {NULL, NULL, 0},
        {"Bearer alph", NULL, 0},
        {"Bearer alpha ", NULL, 0},
        {"Bearer ", NULL, 0},
        {"Bearer", "alpha", 1},
        {"Bearer gamma", "alpha", 0},
        {NULL, "", 0},
        {NULL, "Bearer alpha", 0},
        {"Bearer " ALPHA, NULL, 0},
    };
    keys *k;
    assert_int_equal(keys_parse(file, sizeof file - 1, &k, NULL), ST_OK);
    for (size_t i = 0; i < N_OF(rows); i++) {
        uint32_t index = 0;
        bool found = keys_find(k, rows[i].authorization, rows[i].x_api_key, &index);
        if (found != (rows[i].index != 0) || index != rows[i].index) {
            fail_msg("row %zu: %d, %u", i, found, index);
        }
    }
    assert_string_equal(keys_name(k, 1), "ann");
    assert_string_equal(keys_name(k, 2), "bob");
    assert_string_equal(keys_namespace(k, 2).data, "bob");
    assert_int_equal(keys_namespace(k, 2).len, 3);
    assert_int_equal(keys_namespace(k, KEYS_ANONYMOUS).len, 0);
    assert_int_equal(keys_namespace(NULL, KEYS_ANONYMOUS).len, 0);
    keys_free(k);
}

static void test_bad_files(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no key"},
        {"# nothing\n", "no key"},
        {"ann " ALPHA "0\n", "line 1"},
        {"ann " ALPHA "\nbob\n", "line 2"},
        {"ann\n" ALPHA, "line 1"},
        {ALPHA "\n", "line 1"},
        {"ann g"
         "ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8\n",
         "line 1"},
        {"ann " ALPHA " x\n", "line 1"},
        {"ann " ALPHA "\nann " BETA "\n", "line 2"},
        {"ann " ALPHA "\nbob " ALPHA "\n", "line 2"},
        {"a23456789012345678901234567890123456789012345678 " ALPHA "\n", "line 1"},
        {"an\xFFn " ALPHA "\n", "UTF-8"},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        keys *k;
        err e;
        if (keys_parse(rows[i].text, strlen(rows[i].text), &k, &e) != ST_BAD_FORMAT ||
            !strstr(e.msg, rows[i].says)) {
            fail_msg("row %zu: %s", i, e.msg);
        }
    }
}

static void test_file(void **state)
{
    char path[] = "/tmp/hearth_keys_XXXXXX";
    keys *k;
    err e;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file, sizeof file - 1), (ssize_t)(sizeof file - 1));
    assert_int_equal(keys_open(path, &k, &e), ST_OK);
    keys_free(k);
    assert_int_equal(ftruncate(fd, 20), 0);
    assert_int_equal(keys_open(path, &k, &e), ST_BAD_FORMAT);
    assert_non_null(strstr(e.msg, path));
    close(fd);
    unlink(path);
    assert_int_equal(keys_open(path, &k, &e), ST_IO);
    assert_int_equal(keys_open("/", &k, &e), ST_IO); /* a folder */
}

/* A key that is empty is a key like others, if somebody wants it. */
static void test_empty_key(void **state)
{
    keys *k;
    uint32_t index = 0;
    assert_int_equal(keys_parse("e " EMPTY, strlen("e " EMPTY), &k, NULL), ST_OK);
    assert_true(keys_find(k, NULL, "", &index));
    assert_int_equal(index, 1);
    assert_false(keys_find(k, NULL, NULL, &index));
    keys_free(k);
}

static void test_no_memory(void **state)
{
    status st = ST_NOMEM;
    for (uint64_t n = 1; st != ST_OK; n++) {
        keys *k;
        err e;
        mem_fail_at(n, false);
        st = keys_parse(file, sizeof file - 1, &k, &e);
        mem_fail_at(0, false);
        assert_true(st == ST_NOMEM || st == ST_OK);
        if (st == ST_OK) {
            keys_free(k);
        }
        assert_true(n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),      cmocka_unit_test(test_bad_files), cmocka_unit_test(test_file),
        cmocka_unit_test(test_empty_key), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
