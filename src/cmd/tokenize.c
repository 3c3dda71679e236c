/*
 * hearth tokenize: text to token ids, also of files that hold a vocabulary only.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "cmd/read_text.h"
#include "gguf/reader.h"
#include "text/tokenizer.h"

static status append_base64(buf *out, const char *s, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = 0;
        for (size_t l = 0; l < 3; l++) {
            v = v << 8 | (i + l < n ? (unsigned char)s[i + l] : 0);
        }
        char quad[4];
        for (int l = 0; l < 4; l++) {
            quad[l] = digits[v >> (18 - 6 * l) & 63];
        }
        for (size_t l = n - i + 1; l < 4; l++) {
            quad[l] = '=';
        }
        status st = buf_append(out, quad, 4);
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}

/* A piece that is not valid UTF-8 alone is {"b64": …}: nothing is lost. */
static void write_piece(json_w *w, const char *piece, size_t len)
{
    if (utf8_valid(piece, len, NULL)) {
        json_w_str(w, piece, len);
        return;
    }
    buf b64 = {0};
    if (append_base64(&b64, piece, len) == ST_OK) {
        json_w_obj_open(w);
        json_w_key(w, "b64");
        json_w_str(w, b64.data, b64.len);
        json_w_obj_close(w);
    } else {
        w->st = ST_NOMEM;
    }
    buf_release(&b64);
}

static status render_json(const tokenizer *t, const ivec *ids, buf *out)
{
    json_w w;
    json_w_begin(&w, out);
    json_w_obj_open(&w);
    json_w_key(&w, "ids");
    json_w_arr_open(&w);
    for (size_t i = 0; i < ids->len; i++) {
        json_w_i64(&w, ids->data[i]);
    }
    json_w_arr_close(&w);
    json_w_key(&w, "pieces");
    json_w_arr_open(&w);
    for (size_t i = 0; i < ids->len; i++) {
        size_t len;
        const char *piece = tokenizer_piece(t, ids->data[i], &len);
        write_piece(&w, piece, len);
    }
    json_w_arr_close(&w);
    json_w_obj_close(&w);
    return json_w_end(&w);
}

static status render_plain(const ivec *ids, buf *out)
{
    for (size_t i = 0; i < ids->len; i++) {
        status st = buf_printf(out, "%s%d", i ? " " : "", ids->data[i]);
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}

static int tokenize(const char *path, const buf *text, unsigned flags, bool as_json)
{
    err e = {.offset = ERR_NO_OFFSET};
    gguf_file *f = NULL;
    tokenizer *t = NULL;
    ivec ids = {0};
    buf out = {0};
    int rc = EXIT_FAILED;
    if (gguf_open(path, &f, &e) != ST_OK || tokenizer_open(f, &t, &e) != ST_OK) {
        print_err(path, &e);
        goto out;
    }
    status st = tokenizer_encode(t, buf_str(text), text->len, flags, &ids);
    if (st == ST_OK) {
        st = as_json ? render_json(t, &ids, &out) : render_plain(&ids, &out);
    }
    if (st != ST_OK) {
        fprintf(stderr, "hearth: tokenize: %s\n", status_text(st));
        goto out;
    }
    puts(buf_str(&out));
    rc = EXIT_OK;
out:
    buf_release(&out);
    ivec_release(&ids);
    tokenizer_free(t);
    gguf_close(f);
    return rc;
}

int cmd_tokenize(int argc, char **argv)
{
    const char *model = NULL;
    const char *file = NULL;
    bool no_special = false, parse_special = false, as_json = false;
    const cli_arg table[] = {
        {"model", 'm', ARG_TEXT, &model, 0, 0, "FILE  the model or vocabulary"},
        {"file", 'f', ARG_TEXT, &file, 0, 0,
         "FILE  read the text from a file (-: stdin; default: TEXT, else stdin)"},
        {"no-special", 0, ARG_FLAG, &no_special, 0, 0, "add no BOS or EOS"},
        {"parse-special", 0, ARG_FLAG, &parse_special, 0, 0,
         "control tokens spelled in the text become tokens"},
        {"json", 0, ARG_FLAG, &as_json, 0, 0, "print {\"ids\", \"pieces\"}"},
    };
    const char *pos[1];
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "tokenize -m FILE [OPTION …] [TEXT]", table, sizeof table / sizeof table[0],
                    pos, 1, &n_pos, &rc)) {
        return rc;
    }
    char path[4096];
    buf text = {0};
    rc = model_path_find(model, path, sizeof path);
    rc = rc ? rc : read_prompt(n_pos ? pos[0] : NULL, file, &text);
    if (rc == EXIT_OK) {
        unsigned flags = (no_special ? 0u : (unsigned)TOKENIZE_ADD_SPECIAL) |
                         (parse_special ? (unsigned)TOKENIZE_PARSE_SPECIAL : 0u);
        rc = tokenize(path, &text, flags, as_json);
    }
    buf_release(&text);
    return rc;
}
