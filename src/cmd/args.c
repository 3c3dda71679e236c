#include "cmd/args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"

static void print_help(FILE *to, const char *usage, const cli_arg *table, size_t n)
{
    fprintf(to, "usage: hearth %s\n", usage);
    for (size_t i = 0; i < n; i++) {
        const char *gap = strstr(table[i].help, "  ");
        int value_len = table[i].kind == ARG_FLAG || !gap ? 0 : (int)(gap - table[i].help);
        char left[64];
        snprintf(left, sizeof left, "%c%c%c --%s%s%.*s", table[i].letter ? '-' : ' ',
                 table[i].letter ? table[i].letter : ' ', table[i].letter ? ',' : ' ', table[i].name,
                 value_len ? " " : "", value_len, table[i].help);
        fprintf(to, "  %-32s %s\n", left, gap && table[i].kind != ARG_FLAG ? gap + 2 : table[i].help);
    }
}

static const cli_arg *find(const cli_arg *table, size_t n, const char *word, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(table[i].name) == len && memcmp(table[i].name, word, len) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

static const cli_arg *find_letter(const cli_arg *table, size_t n, char letter)
{
    for (size_t i = 0; i < n; i++) {
        if (table[i].letter == letter) {
            return &table[i];
        }
    }
    return NULL;
}

/* `typed` is the option as it stands on the command line: -n or --n. */
static bool bad_value(const char *typed, const char *value, const char *rule)
{
    fprintf(stderr, "hearth: %s %s: %s\n", typed, value, rule);
    return false;
}

static bool store_int(const cli_arg *a, const char *typed, const char *value)
{
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (end == value || *end || errno) {
        return bad_value(typed, value, "not a whole number");
    }
    if ((double)v < a->min || (double)v > a->max) {
        char rule[96];
        snprintf(rule, sizeof rule, "must be between %.0f and %.0f", a->min, a->max);
        return bad_value(typed, value, rule);
    }
    *(int64_t *)a->out = v;
    return true;
}

static bool store_seed(const cli_arg *a, const char *typed, const char *value)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(value, &end, 10);
    if (end == value || *end || errno || value[0] == '-' || v > INT64_MAX) {
        return bad_value(typed, value, "must be a whole number from 0 to 2^63-1");
    }
    *(uint64_t *)a->out = v;
    return true;
}

static bool store_float(const cli_arg *a, const char *typed, const char *value)
{
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end || !isfinite(v)) {
        return bad_value(typed, value, "not a number");
    }
    if (v < a->min || v > a->max) {
        char rule[96];
        snprintf(rule, sizeof rule, "must be between %g and %g", a->min, a->max);
        return bad_value(typed, value, rule);
    }
    *(double *)a->out = v;
    return true;
}

static bool store(const cli_arg *a, const char *typed, const char *value)
{
    arg_texts *texts = a->out;
    switch (a->kind) {
    case ARG_FLAG:
        *(bool *)a->out = true;
        return true;
    case ARG_INT:
        return store_int(a, typed, value);
    case ARG_SEED:
        return store_seed(a, typed, value);
    case ARG_FLOAT:
        return store_float(a, typed, value);
    case ARG_TEXT:
        *(const char **)a->out = value;
        return true;
    case ARG_TEXTS:
        if (texts->n == ARG_MAX_TEXTS) {
            return bad_value(typed, value, "given too often");
        }
        texts->at[texts->n++] = value;
        return true;
    }
    return false;
}

/* One option word; *i moves over a value that stands apart. */
static bool take_option(int argc, char **argv, int *i, const cli_arg *table, size_t n_table)
{
    const char *word = argv[*i];
    const char *value = NULL;
    const cli_arg *a;
    char typed[64];
    if (word[1] == '-') {
        const char *eq = strchr(word, '=');
        a = find(table, n_table, word + 2, eq ? (size_t)(eq - word - 2) : strlen(word + 2));
        value = eq ? eq + 1 : NULL;
        snprintf(typed, sizeof typed, "--%s", a ? a->name : "");
    } else {
        a = find_letter(table, n_table, word[1]);
        value = a && word[2] ? word + 2 : NULL;
        snprintf(typed, sizeof typed, "-%c", word[1]);
    }
    if (!a) {
        fprintf(stderr, "hearth: unknown option %s (try hearth %s --help)\n", word, argv[0]);
        return false;
    }
    if (a->kind == ARG_FLAG && value) {
        return bad_value(typed, value, "takes no value");
    }
    if (a->kind != ARG_FLAG && !value) {
        if (*i + 1 >= argc) {
            fprintf(stderr, "hearth: %s needs a value (try hearth %s --help)\n", typed, argv[0]);
            return false;
        }
        value = argv[++*i];
    }
    return store(a, typed, value);
}

bool args_parse(int argc, char **argv, const char *usage, const cli_arg *table, size_t n_table,
                const char **pos, size_t max_pos, size_t *n_pos, int *status)
{
    bool options_end = false;
    *n_pos = 0;
    for (int i = 1; i < argc; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            print_help(stdout, usage, table, n_table);
            *status = EXIT_OK;
            return false;
        } else if (!options_end && argv[i][0] == '-' && argv[i][1]) {
            if (!take_option(argc, argv, &i, table, n_table)) {
                *status = EXIT_USAGE;
                return false;
            }
        } else if (*n_pos < max_pos) {
            pos[(*n_pos)++] = argv[i];
        } else {
            fprintf(stderr, "hearth: unexpected argument '%s' (try hearth %s --help)\n", argv[i], argv[0]);
            *status = EXIT_USAGE;
            return false;
        }
    }
    return true;
}
