/*
 * parse_ids: a list of token ids on the command line: whole numbers with blanks or commas between them.
 */
#ifndef HEARTH_CMD_PARSE_IDS_H
#define HEARTH_CMD_PARSE_IDS_H

#include "base/vec.h"

/* Appends to out. EXIT_USAGE if text is no such list or empty; the fault is printed, naming the option. */
int parse_ids(const char *option, const char *text, ivec *out);

#endif
