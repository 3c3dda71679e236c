/* folder: all that leads there, for its owner alone; what is there stays; reasons for what cannot be made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/folder.h"

#define PATH_BYTES 8192

static char top[] = "/tmp/hearth-test-folder-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    for (const char *const *at = (const char *const[]){"/a/b/c", "/a/b", "/a", "/open", "", NULL}; *at;
         at++) {
        snprintf(path, sizeof path, "%s%s", top, *at);
        rmdir(path);
    }
    return 0;
}

static mode_t mode_of(const char *path)
{
    struct stat sb;
    assert_int_equal(stat(path, &sb), 0);
    assert_true(S_ISDIR(sb.st_mode));
    return sb.st_mode & 0777;
}

static void test_what_leads_there(void **state)
{
    char path[PATH_BYTES];
    err e;
    (void)state;
    snprintf(path, sizeof path, "%s/a/b//c/", top);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(folder_make(path, &e), ST_OK);
    }
    for (const char *const *at = (const char *const[]){"/a", "/a/b", "/a/b/c", NULL}; *at; at++) {
        snprintf(path, sizeof path, "%s%s", top, *at);
        assert_int_equal(mode_of(path), 0700);
    }
}

static void test_one_that_is_there(void **state)
{
    char path[PATH_BYTES];
    (void)state;
    snprintf(path, sizeof path, "%s/open", top);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(folder_make(path, NULL), ST_OK);
    assert_int_equal(mode_of(path), 0755);
}

static void test_reasons(void **state)
{
    char path[PATH_BYTES];
    err e;
    (void)state;
    assert_int_equal(folder_make("", &e), ST_IO);
    assert_non_null(strstr(e.msg, "empty"));
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    assert_int_equal(folder_make(path, &e), ST_IO);
    assert_non_null(strstr(e.msg, "too long"));
    assert_int_equal(folder_make("/proc/self/below/it", &e), ST_IO);
    assert_non_null(strstr(e.msg, "/proc/self/below/it: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_leads_there),
                                       cmocka_unit_test(test_one_that_is_there),
                                       cmocka_unit_test(test_reasons)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
