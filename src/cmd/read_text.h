/*
 * read_text: whole texts from the command line, a file or stdin, for commands. Limit: READ_TEXT_MAX_BYTES.
 */
#ifndef HEARTH_CMD_READ_TEXT_H
#define HEARTH_CMD_READ_TEXT_H

#include "base/buf.h"

#define READ_TEXT_MAX_BYTES ((size_t)1 << 30)

/* Appends text if given, else the file if given ("-" is stdin), else stdin. EXIT_USAGE if both are given,
 * EXIT_FAILED if it cannot be read; the reason is printed. A person at a terminal is told that stdin is
 * read. */
int read_prompt(const char *text, const char *file, buf *out);

/* A chat template's file ("-" is stdin), which is not empty and has no zero byte. Errors as above. */
int read_template(const char *file, buf *out);

#endif
