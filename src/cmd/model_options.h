/*
 * model_options: the options that every command which opens a model shares, and finding the file that -m
 * names.
 */
#ifndef HEARTH_CMD_MODEL_OPTIONS_H
#define HEARTH_CMD_MODEL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/instance.h"

typedef struct model_options_args {
    const char *model; /* -m */
    const char *cpu;
    const char *kv_type;
    const char *pack_dir;
    int64_t threads;
    int64_t ctx;
    bool no_pack_cache;
    bool huge_pages;
} model_options_args;

/* Rows for a command's option table; `o` is a model_options_args: how a model is held and computed; with threads and
 * context; and with -m. */
/* clang-format off */
#define MODEL_HOLD_ROWS(o)                                                                                   \
    {"cpu", 0, ARG_TEXT, &(o).cpu, 0, 0, "SET  at most this instruction set: ref, avx2, avx512, amx"},       \
    {"kv-type", 0, ARG_TEXT, &(o).kv_type, 0, 0,                                                             \
     "TYPE  keep keys and values as f16 (default; logits, perplexity: f32), f32, bf16 or q8_0"},                         \
    {"pack-dir", 0, ARG_TEXT, &(o).pack_dir, 0, 0,                                                           \
     "DIR  keep packed weights here (default: hearth/packed in $XDG_CACHE_HOME or ~/.cache)"},               \
    {"no-pack-cache", 0, ARG_FLAG, &(o).no_pack_cache, 0, 0, "pack the weights in memory, keep nothing"},    \
    {"huge-pages", 0, ARG_FLAG, &(o).huge_pages, 0, 0,                                                       \
     "copy the packed weights into huge pages: faster, and not shared with other processes"}
#define MODEL_LOAD_ROWS(o)                                                                                   \
    {"threads", 't', ARG_INT, &(o).threads, 1, 256, "N  compute threads (default: all that may be used)"},   \
    {"ctx", 'c', ARG_INT, &(o).ctx, 1, 16777216,                                                             \
     "N  context in tokens (default: as many as memory allows, up to the model's)"},                                           \
    MODEL_HOLD_ROWS(o)
#define MODEL_OPTION_ROWS(o)                                                                                 \
    {"model", 'm', ARG_TEXT, &(o).model, 0, 0, "FILE  the model: a path, or a name in the model folder"},    \
    MODEL_LOAD_ROWS(o)
/* clang-format on */

/* Path of the model that `name` means, in path[cap]: a path that exists, else NAME or NAME.gguf in
 * $HEARTH_MODELS or $XDG_DATA_HOME/hearth/models or ~/.local/share/hearth/models. NULL, and the name `ember` if
 * none of these has it, mean the bundled model: that of the source tree for a program in its build folder, else
 * the installed one. EXIT_USAGE if name is empty, or NULL and no model is bundled; EXIT_FAILED if there is no
 * such file; the reason is printed. */
int model_path_find(const char *name, char *path, size_t cap);
#define MODEL_STORE_BYTES       ((int64_t)8 << 30)  /* that the store of a model may take */
#define MODEL_STORE_DAILY_BYTES ((int64_t)64 << 30) /* that may be written there in a day */
#define MODEL_STORE_MOST        ((int64_t)1 << 53)  /* that either may be */
#define MODEL_MEMORY_MOST       ((int64_t)1 << 53)  /* that memory may be said to be, in bytes */
/* Checks and converts. EXIT_USAGE for a value that does not exist, which is printed. default_kv applies when
 * --kv-type is absent. Strings live as long as the program (the folder for packed weights comes from --pack-dir,
 * $XDG_CACHE_HOME or $HOME; NULL with --no-pack-cache or without any of them). */
int model_options_instance(const model_options_args *a, kv_type default_kv, instance_options *out);
/* Where keys and values are kept on disk if nobody says otherwise: hearth/kv in $XDG_CACHE_HOME or ~/.cache; NULL without
 * either. */
const char *model_store_dir(void);
/* Prints "hearth: what: message (at byte …)" for people, without `what` if the message names it. */
void print_err(const char *what, const err *e);
/* Draws a progress bar on stderr (only if it is a terminal); done = 1 clears it, print_err too. ctx is what
 * goes on (a string), NULL = "loading". */
void progress_bar(void *ctx, double done);

#endif
