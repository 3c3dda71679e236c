/* temp_path: names for the files that tests make, below $TMPDIR or /tmp, one per process and name. */
#ifndef HEARTH_TESTS_MODEL_TEMP_PATH_H
#define HEARTH_TESTS_MODEL_TEMP_PATH_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TEMP_PATH_BYTES 512

static inline const char *temp_path(char out[TEMP_PATH_BYTES], const char *name)
{
    const char *dir = getenv("TMPDIR");
    snprintf(out, TEMP_PATH_BYTES, "%s/hearth-test-%ld-%s", dir ? dir : "/tmp", (long)getpid(), name);
    return out;
}

#endif
