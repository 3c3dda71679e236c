#include "cmd/read_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"

static bool read_stream(FILE *f, const char *name, buf *out)
{
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, f)) > 0) {
        if (out->len + n > READ_TEXT_MAX_BYTES) {
            fprintf(stderr, "hearth: %s: longer than %zu bytes\n", name, READ_TEXT_MAX_BYTES);
            return false;
        }
        if (buf_append(out, block, n) != ST_OK) {
            fprintf(stderr, "hearth: %s: out of memory\n", name);
            return false;
        }
    }
    if (ferror(f)) {
        fprintf(stderr, "hearth: %s: %s\n", name, strerror(errno));
        return false;
    }
    return true;
}

static bool read_file(const char *path, buf *out)
{
    FILE *f = fopen(path, "rbe");
    if (!f) {
        fprintf(stderr, "hearth: %s: %s\n", path, strerror(errno));
        return false;
    }
    bool ok = read_stream(f, path, out);
    fclose(f); /* nothing was written: its result says nothing */
    return ok;
}

static bool read_stdin(buf *out)
{
    if (isatty(STDIN_FILENO)) {
        fprintf(stderr, "hearth: reading the text from the terminal; Ctrl-D ends it\n");
    }
    return read_stream(stdin, "stdin", out);
}

int read_prompt(const char *text, const char *file, buf *out)
{
    if (text && file) {
        fprintf(stderr, "hearth: the text is given twice: in the command and as -f %s\n", file);
        return EXIT_USAGE;
    }
    if (text) {
        if (buf_append_str(out, text) != ST_OK) {
            fprintf(stderr, "hearth: out of memory\n");
            return EXIT_FAILED;
        }
        return EXIT_OK;
    }
    bool ok = file && strcmp(file, "-") != 0 ? read_file(file, out) : read_stdin(out);
    return ok ? EXIT_OK : EXIT_FAILED;
}

int read_template(const char *file, buf *out)
{
    int rc = read_prompt(NULL, file, out);
    if (rc == EXIT_OK && (out->len == 0 || memchr(out->data, 0, out->len))) {
        fprintf(stderr, "hearth: %s: the chat template %s\n", file,
                out->len == 0 ? "is empty" : "has a zero byte");
        return EXIT_FAILED;
    }
    return rc;
}
