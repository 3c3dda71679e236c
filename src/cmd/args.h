/*
 * args: reading a command line. A table of options in, values out; every fault names the option and the
 * value.
 *
 * Long options take "--name value" or "--name=value", short ones "-n value"; "--" ends them. What is left are
 * the positional arguments. Limits: each number has its range in the table.
 */
#ifndef HEARTH_CMD_ARGS_H
#define HEARTH_CMD_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum arg_kind { ARG_FLAG, ARG_INT, ARG_SEED, ARG_FLOAT, ARG_TEXT, ARG_TEXTS } arg_kind;

#define ARG_MAX_TEXTS 64

typedef struct arg_texts { /* of an option that may stand several times */
    const char *at[ARG_MAX_TEXTS];
    size_t n;
} arg_texts;

typedef struct cli_arg {
    const char *name; /* "temp" for --temp */
    char letter;      /* 'n' for -n, 0 for none */
    arg_kind kind;
    void *out;       /* bool, int64_t, uint64_t, double, const char *, arg_texts; untouched when the option is
                        absent */
    double min, max; /* of ARG_INT and ARG_FLOAT */
    const char *help; /* "N  tokens at most"; what stands before two blanks is the value's name */
} cli_arg;

/* Parses argv[1..]. Positionals go to pos (at most max_pos; *n_pos written). Returns true if the command
 * shall go on; false after an error or --help, with *status set to EXIT_USAGE or EXIT_OK and the text
 * printed. `usage` is the first line of the help, after "usage: hearth ". */
bool args_parse(int argc, char **argv, const char *usage, const cli_arg *table, size_t n_table,
                const char **pos, size_t max_pos, size_t *n_pos, int *status);

#endif
