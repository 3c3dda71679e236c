/*
 * fixtures: where the reference data that nobody here computed lies. Tests that need a file which is absent
 * print a loud line and skip.
 */
#ifndef HEARTH_TESTS_FIXTURES_H
#define HEARTH_TESTS_FIXTURES_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Path of fixtures/<name> in a static buffer (valid until the next call), or NULL when the file is not there.
 */
static inline const char *fixture_path(const char *name)
{
    static char path[4096];
    const char *dir = getenv("HEARTH_FIXTURES");
    const char *root = getenv("HEARTH_ROOT");
    if (dir) {
        snprintf(path, sizeof path, "%s/%s", dir, name);
    } else {
        snprintf(path, sizeof path, "%s/../shared/fixtures/%s", root ? root : ".", name);
    }
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "SKIPPED: fixtures absent (%s)\n", path);
        return NULL;
    }
    return path;
}

#endif
