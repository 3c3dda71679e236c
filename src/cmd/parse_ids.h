/*
 * parse_ids: a list of token ids on the command line: whole numbers with blanks or commas between them.
 */
#ifndef HEARTH_CMD_PARSE_IDS_H
#define HEARTH_CMD_PARSE_IDS_H

#include <stdbool.h>

#include "base/vec.h"

/* Appends to out. Prints the fault, naming the option, and returns false if text is no such list or empty. */
bool parse_ids(const char *option, const char *text, ivec *out);

#endif
