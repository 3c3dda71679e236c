/*
 * terminal: text of strangers (a model file, a model's reply) on its way to a terminal. Control characters in
 * it could move the cursor, rename the window or answer for the user, so they become '?'.
 */
#ifndef HEARTH_CMD_TERMINAL_H
#define HEARTH_CMD_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Writes s with every control character (C0, DEL, C1) and bad UTF-8 sequence as '?'; newline and tab too,
 * unless `lines`. Whether `to` could be written is for the caller to ask (ferror). */
void terminal_put(FILE *to, const char *s, size_t n, bool lines);

#endif
