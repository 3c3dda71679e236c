/*
 * read_text: whole texts from the command line, a file or stdin, for commands. Limit: READ_TEXT_MAX_BYTES.
 * Each prints the reason and returns false on a fault.
 */
#ifndef HEARTH_CMD_READ_TEXT_H
#define HEARTH_CMD_READ_TEXT_H

#include <stdbool.h>

#include "base/buf.h"

#define READ_TEXT_MAX_BYTES ((size_t)1 << 30)

bool read_file(const char *path, buf *out);
/* text if given, else the file if given, else stdin. */
bool read_prompt(const char *text, const char *file, buf *out);

#endif
