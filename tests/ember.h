/*
 * ember: where the bundled model lies, in the source tree. It is trained anew now and then: tests may count on a chat model
 * that answers and ends by itself, on its layout and on a byte-level vocabulary, not on a word that it says.
 */
#ifndef HEARTH_TESTS_EMBER_H
#define HEARTH_TESTS_EMBER_H

#include <stdio.h>
#include <stdlib.h>

/* In a static buffer (valid until the next call). */
static inline const char *ember_path(void)
{
    static char path[4096];
    const char *root = getenv("HEARTH_ROOT");
    snprintf(path, sizeof path, "%s/models/ember/ember.gguf", root ? root : ".");
    return path;
}

#endif
