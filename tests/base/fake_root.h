/* fake_root: a tree of files in place of / for what reads /proc and /sys. */
#ifndef HEARTH_TESTS_BASE_FAKE_ROOT_H
#define HEARTH_TESTS_BASE_FAKE_ROOT_H

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/test_main.h"

typedef struct file {
    const char *path, *text;
} file;

/* Makes its folders, too. */
static inline void write_file(const char *root, const file *f)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", root, f->path);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(f->text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

/* For nftw, depth first. */
static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

#endif
