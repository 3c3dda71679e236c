/*
 * hearth render: one case through a chat template, so that others can check what we render.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "cmd/read_text.h"
#include "gguf/reader.h"
#include "text/jinja.h"
#include "text/tokenizer.h"

/* The case's own keys; those of `extra` come on top. */
typedef struct render_case {
    const json *root;
    const tokenizer *tok; /* says the tokens that the case does not; NULL: nobody does */
    jinja_var *vars;      /* owned */
    size_t n_vars, cap_vars;
    bool failed; /* out of memory */
} render_case;

static void add_var(render_case *c, const char *name, const json *v, bool trusted)
{
    if (c->n_vars == c->cap_vars) {
        size_t cap = c->cap_vars ? 2 * c->cap_vars : 16;
        jinja_var *grown = mem_realloc(c->vars, cap * sizeof *grown);
        if (!grown) {
            c->failed = true;
            return;
        }
        c->vars = grown;
        c->cap_vars = cap;
    }
    c->vars[c->n_vars++] = (jinja_var){.name = name, .value = v, .trusted = trusted};
}

/* A token of the model's, where the case says none. */
static void add_token(render_case *c, const char *name, int32_t id)
{
    if (!json_get(c->root, name, NULL)) {
        size_t len = 0;
        const char *text = id == TOKEN_NONE ? "" : tokenizer_piece(c->tok, id, &len);
        add_var(c, name, NULL, true);
        if (!c->failed) {
            c->vars[c->n_vars - 1].text = text;
            c->vars[c->n_vars - 1].text_len = len;
        }
    }
}

static bool add_extra(void *ctx, const char *key, size_t key_len, const json *v)
{
    add_var(ctx, key, v, false);
    return true;
}

static bool read_case(render_case *c)
{
    static const struct {
        const char *name;
        bool trusted, null_is_absent;
    } rows[] = {{"messages", false, false},
                {"tools", false, true},
                {"add_generation_prompt", false, false},
                {"bos_token", true, false},
                {"eos_token", true, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const json *v;
        if (json_get(c->root, rows[i].name, &v) && !(rows[i].null_is_absent && !v)) {
            add_var(c, rows[i].name, v, rows[i].trusted);
        }
    }
    if (c->tok) {
        add_token(c, "bos_token", tokenizer_bos(c->tok));
        add_token(c, "eos_token", tokenizer_eos(c->tok));
    }
    const json *extra;
    if (json_get(c->root, "extra", &extra) && json_kind(extra) == JSON_OBJECT) {
        json_each(extra, add_extra, c);
    }
    return !c->failed;
}

/* "2026-01-02" at 00:00:00 UTC; absent: the time of this machine. false if it is no date. */
static bool read_now(const json *root, int64_t *now_s)
{
    const json *v;
    size_t len;
    struct tm tm = {0};
    if (!json_get(root, "now", &v) || !v) {
        *now_s = (int64_t)time(NULL);
        return true;
    }
    const char *s = json_string(v, &len);
    const char *end = s ? strptime(s, "%Y-%m-%d", &tm) : NULL;
    if (!end || (size_t)(end - s) != len) {
        return false;
    }
    *now_s = (int64_t)timegm(&tm);
    return true;
}

static int render(const jinja_template *t, const tokenizer *tok, const json *root)
{
    render_case c = {.root = root, .tok = tok};
    jinja_options o = {0};
    jinja_output out = {0};
    err e = {.offset = ERR_NO_OFFSET};
    int rc = EXIT_FAILED;
    if (!read_now(root, &o.now_s)) {
        fprintf(stderr, "hearth: render: now is not a date (YYYY-MM-DD)\n");
        return EXIT_FAILED;
    }
    status st = read_case(&c) ? jinja_render(t, c.vars, c.n_vars, &o, &out, &e) : ST_NOMEM;
    if (st == ST_OK) {
        fwrite(buf_str(&out.text), 1, out.text.len, stdout);
        rc = EXIT_OK;
    } else if (st == ST_TEMPLATE) {
        fprintf(stderr, "%s%s\n", out.raised ? "" : "hearth: render: ", buf_str(&out.error));
    } else {
        fprintf(stderr, "hearth: render: %s\n", status_text(st));
    }
    jinja_output_release(&out);
    mem_free(c.vars);
    return rc;
}

/* The template of a file, or of a model: then *tok is the model's. */
static int load_template(const char *file, const char *model, buf *out, tokenizer **tok)
{
    if (file) {
        return read_prompt(NULL, file, out);
    }
    char path[4096];
    int rc = model_path_find(model, path, sizeof path);
    if (rc != EXIT_OK) {
        return rc;
    }
    err e = {.offset = ERR_NO_OFFSET};
    gguf_file *f = NULL;
    gguf_str s;
    status st = gguf_open(path, &f, &e);
    st = st == ST_OK ? gguf_get_str(f, "tokenizer.chat_template", &s, &e) : st;
    st = st == ST_OK ? buf_append(out, s.data, s.len) : st;
    st = st == ST_OK ? tokenizer_open(f, tok, &e) : st;
    gguf_close(f);
    if (st != ST_OK) {
        print_err(path, &e);
    }
    return st == ST_OK ? EXIT_OK : EXIT_FAILED;
}

static int run(const char *file, const char *model, const char *case_file)
{
    buf source = {0}, text = {0};
    jinja_template *t = NULL;
    tokenizer *tok = NULL;
    json_doc *doc = NULL;
    err e = {.offset = ERR_NO_OFFSET};
    int rc = load_template(file, model, &source, &tok);
    rc = rc == EXIT_OK ? read_prompt(NULL, case_file, &text) : rc;
    if (rc == EXIT_OK && jinja_compile(buf_str(&source), source.len, &t, &e) != ST_OK) {
        print_err(file ? file : "chat template", &e);
        rc = EXIT_FAILED;
    }
    if (rc == EXIT_OK && json_parse(buf_str(&text), text.len, JSON_MAX_DEPTH, &doc, &e) != ST_OK) {
        print_err(case_file, &e);
        rc = EXIT_FAILED;
    }
    rc = rc == EXIT_OK ? render(t, tok, json_root(doc)) : rc;
    json_doc_free(doc);
    jinja_free(t);
    tokenizer_free(tok);
    buf_release(&source);
    buf_release(&text);
    return rc;
}

int cmd_render(int argc, char **argv)
{
    const char *model = NULL, *file = NULL, *case_file = NULL;
    const cli_arg table[] = {
        {"model", 'm', ARG_TEXT, &model, 0, 0, "FILE  the model whose template is used"},
        {"template", 0, ARG_TEXT, &file, 0, 0, "FILE  a template (-: stdin)"},
        {"case", 0, ARG_TEXT, &case_file, 0, 0,
         "FILE  a JSON object: messages, tools, add_generation_prompt, bos_token, eos_token, extra, now (-: "
         "stdin)"},
    };
    const char *pos[1];
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "render (-m FILE | --template FILE) --case FILE", table,
                    sizeof table / sizeof table[0], pos, 0, &n_pos, &rc)) {
        return rc;
    }
    if (!case_file || (model && file)) {
        fprintf(stderr, "hearth: render: %s\n",
                case_file ? "-m and --template exclude each other" : "--case is missing");
        return EXIT_USAGE;
    }
    return run(file, model, case_file);
}
