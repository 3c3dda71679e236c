/*
 * hearth logits: the reference door. Writes n_tokens x n_vocab little-endian float32, row-major; with --embd n_tokens
 * x n_embd, the states behind the output norm.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/vec.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "cmd/parse_ids.h"
#include "cmd/reference_door.h"

typedef struct sink {
    FILE *file;
    size_t width;
} sink;

static status write_row(void *ctx, size_t pos, const float *row)
{
    sink *s = ctx;
    return fwrite(row, sizeof *row, s->width, s->file) == s->width ? ST_OK : ST_IO;
}

/* Half a file must not be taken for a whole one; a pipe or a device is left alone. */
static void remove_half(FILE *f, const char *path)
{
    struct stat st;
    if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode)) {
        unlink(path);
    }
}

static int write_rows(const char *path, const instance_options *opt, door_what what, const ivec *ids,
                      const char *out_path)
{
    err e = {.offset = ERR_NO_OFFSET};
    instance *in = NULL;
    FILE *f = NULL;
    int rc = EXIT_FAILED;
    if (instance_open(path, opt, &in, &e) != ST_OK) {
        print_err(path, &e);
        goto out;
    }
    if (door_check(in, ids->data, ids->len, &e) != ST_OK) { /* before an older file is emptied */
        print_err("--tokens", &e);
        goto out;
    }
    f = fopen(out_path, "wbe");
    if (!f) {
        fprintf(stderr, "hearth: %s: %s\n", out_path, strerror(errno));
        goto out;
    }
    sink s = {f, door_width(in, what)};
    status st = door_run(in, what, ids->data, ids->len, write_row, &s, &e);
    if (st == ST_IO) {
        fprintf(stderr, "hearth: %s: %s\n", out_path, strerror(errno));
    } else if (st != ST_OK) {
        print_err("logits", &e);
    } else {
        rc = EXIT_OK;
    }
out:
    if (f && rc == EXIT_OK && fflush(f) != 0) {
        fprintf(stderr, "hearth: %s: %s\n", out_path, strerror(errno));
        rc = EXIT_FAILED;
    }
    if (f && rc != EXIT_OK) {
        remove_half(f, out_path);
    }
    if (f && fclose(f) != 0 && rc == EXIT_OK) {
        fprintf(stderr, "hearth: %s: %s\n", out_path, strerror(errno));
        rc = EXIT_FAILED;
    }
    instance_close(in);
    return rc;
}

int cmd_logits(int argc, char **argv)
{
    model_options_args model = {0};
    const char *tokens = NULL;
    const char *out_path = NULL;
    bool embd = false;
    const cli_arg table[] = {
        MODEL_OPTION_ROWS(model),
        {"tokens", 0, ARG_TEXT, &tokens, 0, 0, "IDS  token ids with blanks between them"},
        {"out", 'o', ARG_TEXT, &out_path, 0, 0, "FILE  n_tokens x n_vocab float32, little-endian"},
        {"embd", 0, ARG_FLAG, &embd, 0, 0, "n_tokens x n_embd instead: the states behind the output norm"},
    };
    const char *pos[1];
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "logits -m FILE --tokens IDS -o FILE", table, sizeof table / sizeof table[0],
                    pos, 0, &n_pos, &rc)) {
        return rc;
    }
    if (!tokens || !out_path) {
        fprintf(stderr, "hearth: logits needs --tokens and -o (try hearth logits --help)\n");
        return EXIT_USAGE;
    }
    char path[4096];
    instance_options opt;
    ivec ids = {0};
    rc = model_path_find(model.model, path, sizeof path);
    rc = rc ? rc : model_options_instance(&model, KV_F32, &opt);
    rc = rc ? rc : parse_ids("--tokens", tokens, &ids);
    if (rc == EXIT_OK) {
        rc = write_rows(path, &opt, embd ? DOOR_HIDDEN : DOOR_LOGITS, &ids, out_path);
    }
    ivec_release(&ids);
    return rc;
}
