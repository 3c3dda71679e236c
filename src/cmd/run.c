/*
 * hearth run: one reply, through the public library. Text streams to stdout as it is made; --json prints one
 * object at the end instead. Ctrl-C ends the reply cleanly and keeps what was said.
 */
#include <hearth.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "cmd/answer.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "cmd/read_text.h"
#include "cmd/terminal.h"

typedef struct run_args {
    model_options_args model;
    const char *prompt;
    const char *file;
    int64_t max_tokens;
    double temp, top_p, min_p, repeat_penalty, presence, frequency;
    int64_t top_k, repeat_last_n;
    uint64_t seed;
    arg_texts stop;
    bool raw, json, ignore_eos, quiet;
    const char *template_file, *template_text;
} run_args;

static hearth_session *volatile running; /* what SIGINT cancels */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    hearth_session *s = running;
    interrupted = 1; /* hearth_cancel is forgotten if the reply has not begun: take_token looks here */
    if (s) {
        hearth_cancel(s); /* hearth.h promises that a handler may; NOLINT(bugprone-signal-handler) */
    }
    signal(sig, SIG_DFL); /* a second Ctrl-C kills */
}

typedef struct listener {
    bool silent;   /* --json: nothing is printed on the way */
    bool terminal; /* stdout is one */
    bool failed;   /* stdout could not be written */
} listener;

static bool take_token(void *ctx, const hearth_token *t)
{
    listener *l = ctx;
    if (!l->silent) {
        if (l->terminal) {
            terminal_put(stdout, t->text, t->text_len, true);
        } else {
            fwrite(t->text, 1, t->text_len, stdout);
        }
        l->failed = !answer_flush();
    }
    return !l->failed && !interrupted;
}

static void report_error(const char *what, const hearth_error *e)
{
    err out = {.code = (status)e->code, .offset = e->offset};
    snprintf(out.msg, sizeof out.msg, "%s", e->message);
    print_err(what, &out);
}

static void write_ids(json_w *w, const char *key, const int32_t *ids, size_t n)
{
    json_w_key(w, key);
    json_w_arr_open(w);
    for (size_t i = 0; i < n; i++) {
        json_w_i64(w, ids[i]);
    }
    json_w_arr_close(w);
}

static double rate(size_t n, double ms)
{
    return ms > 0 ? (double)n * 1e3 / ms : 0;
}

static int print_json(const hearth_result *r)
{
    buf out = {0};
    json_w w;
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    json_w_key(&w, "text");
    json_w_str(&w, r->text, r->text_len);
    write_ids(&w, "ids", r->ids, r->n_ids);
    write_ids(&w, "prompt_ids", r->prompt_ids, r->n_prompt_ids);
    json_w_key(&w, "finish_reason");
    json_w_cstr(&w, r->finish_reason);
    json_w_key(&w, "seed");
    json_w_u64(&w, r->seed);
    json_w_key(&w, "prompt_tokens");
    json_w_u64(&w, r->n_prompt_ids);
    json_w_key(&w, "completion_tokens");
    json_w_u64(&w, r->n_ids);
    size_t prefilled = r->n_prompt_ids - (size_t)r->reused_tokens;
    const struct {
        const char *key;
        double value;
    } times[] = {{"prefill_ms", r->prefill_ms},
                 {"decode_ms", r->decode_ms},
                 {"total_ms", r->total_ms},
                 {"ttft_ms", r->ttft_ms},
                 {"prefill_tok_s", rate(prefilled, r->prefill_ms)},
                 {"decode_tok_s", rate(r->n_ids, r->decode_ms)}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        json_w_key(&w, times[i].key);
        json_w_fixed(&w, times[i].value, 3);
    }
    json_w_obj_close(&w);
    return answer_json(&w, &out);
}

static void print_timings(const hearth_result *r)
{
    fprintf(stderr, "[%zu prompt tokens, %.1f/s; %zu tokens, %.1f/s; %s]\n", r->n_prompt_ids,
            rate(r->n_prompt_ids - (size_t)r->reused_tokens, r->prefill_ms), r->n_ids,
            rate(r->n_ids, r->decode_ms), r->finish_reason);
}

static hearth_generate_options options_of(const run_args *a, const buf *prompt)
{
    hearth_generate_options g = HEARTH_GENERATE_OPTIONS_INIT;
    g.prompt = buf_str(prompt);
    g.prompt_len = prompt->len;
    g.max_tokens = (int32_t)a->max_tokens;
    g.temperature = (float)a->temp;
    g.top_p = (float)a->top_p;
    g.top_k = (int32_t)a->top_k;
    g.min_p = (float)a->min_p;
    g.repetition_penalty = (float)a->repeat_penalty;
    g.presence_penalty = (float)a->presence;
    g.frequency_penalty = (float)a->frequency;
    g.repeat_last_n = (int32_t)a->repeat_last_n;
    g.seed = a->seed;
    g.ignore_eos = a->ignore_eos;
    g.stop = a->stop.at;
    g.n_stop = a->stop.n;
    return g;
}

/* Without --raw the prompt is what a user says, laid out by the chat template, if there is one. */
static hearth_status lay_out(const hearth_model *model, hearth_session *s, const run_args *a,
                             hearth_generate_options *g, hearth_error *e)
{
    hearth_model_info info = HEARTH_MODEL_INFO_INIT;
    hearth_model_info_get(model, &info);
    if (a->raw || (!info.has_chat_template && !a->template_text)) {
        return HEARTH_OK;
    }
    const hearth_message said = {"user", g->prompt, g->prompt_len};
    return hearth_template_ids(s, &said, 1, a->template_text, &g->prompt_ids, &g->n_prompt_ids, e);
}

static int generate(hearth_model *model, const run_args *a, const buf *prompt)
{
    hearth_error e = HEARTH_ERROR_INIT;
    hearth_session *conversation = NULL;
    hearth_generate_options g = options_of(a, prompt);
    if (hearth_session_open(model, &conversation, &e) != HEARTH_OK ||
        lay_out(model, conversation, a, &g, &e) != HEARTH_OK) {
        report_error("run", &e);
        hearth_session_close(conversation);
        return EXIT_FAILED;
    }
    hearth_result r = HEARTH_RESULT_INIT;
    listener l = {.silent = a->json, .terminal = isatty(STDOUT_FILENO)};
    int rc = EXIT_OK;
    running = conversation;
    signal(SIGINT, on_interrupt);
    hearth_status st = hearth_generate(conversation, &g, take_token, &l, &r, &e);
    running = NULL;
    if (st != HEARTH_OK) {
        report_error("run", &e);
        rc = EXIT_FAILED;
    } else if (a->json) {
        rc = print_json(&r);
    } else if (!l.failed) {
        putchar('\n');
        answer_flush(); /* before the timings */
        if (!a->quiet && isatty(STDERR_FILENO)) {
            print_timings(&r);
        }
    }
    hearth_session_close(conversation);
    if (interrupted) {
        return EXIT_INTERRUPTED;
    }
    return l.failed ? EXIT_FAILED : rc;
}

static hearth_status open_model(const run_args *a, const char *path, const instance_options *checked,
                                hearth_model **out, hearth_error *e)
{
    hearth_model_options o = HEARTH_MODEL_OPTIONS_INIT;
    o.cpu = a->model.cpu;
    o.kv_type = a->model.kv_type;
    o.threads = (int32_t)a->model.threads;
    o.context = (int32_t)a->model.ctx;
    o.pack_dir = checked->pack_dir;
    o.huge_pages = checked->huge_pages;
    o.max_sessions = 1;
    o.progress = progress_bar;
    return hearth_model_open(path, &o, out, e);
}

static int run(const run_args *a)
{
    char path[4096];
    buf prompt = {0}, source = {0};
    instance_options checked; /* faults of --cpu and --kv-type are faults of the command line */
    int rc = model_path_find(a->model.model, path, sizeof path);
    rc = rc ? rc : model_options_instance(&a->model, KV_F16, &checked);
    rc = rc ? rc : read_prompt(a->prompt, a->file, &prompt);
    rc = rc || !a->template_file ? rc : read_template(a->template_file, &source);
    if (rc != EXIT_OK) {
        buf_release(&prompt);
        buf_release(&source);
        return rc;
    }
    run_args with_text = *a;
    with_text.template_text = a->template_file ? buf_str(&source) : NULL;
    a = &with_text;
    hearth_error e = HEARTH_ERROR_INIT;
    hearth_model *model = NULL;
    if (open_model(a, path, &checked, &model, &e) != HEARTH_OK) {
        report_error(path, &e);
        rc = EXIT_FAILED;
    } else {
        rc = generate(model, a, &prompt);
    }
    hearth_model_close(model);
    buf_release(&prompt);
    buf_release(&source);
    return rc;
}

int cmd_run(int argc, char **argv)
{
    run_args a = {.max_tokens = -1, .top_p = 1, .repeat_penalty = 1, .repeat_last_n = 64};
    const cli_arg table[] = {
        MODEL_OPTION_ROWS(a.model),
        {"prompt", 'p', ARG_TEXT, &a.prompt, 0, 0, "TEXT  the prompt (default: TEXT, else all of stdin)"},
        {"file", 'f', ARG_TEXT, &a.file, 0, 0, "FILE  read the prompt from a file (-: stdin)"},
        {"n", 'n', ARG_INT, &a.max_tokens, -1, INT32_MAX, "N  tokens at most (-1: up to the context)"},
        {"temp", 0, ARG_FLOAT, &a.temp, 0, 1e6, "T  temperature; 0 (default) takes the likeliest token"},
        {"top-p", 0, ARG_FLOAT, &a.top_p, 0, 1, "P  keep the likeliest tokens that make up P"},
        {"top-k", 0, ARG_INT, &a.top_k, 0, INT32_MAX, "K  keep the K likeliest tokens (0: all)"},
        {"min-p", 0, ARG_FLOAT, &a.min_p, 0, 1, "P  drop tokens below P times the likeliest"},
        {"repeat-penalty", 0, ARG_FLOAT, &a.repeat_penalty, 0.01, 100, "R  1 = off"},
        {"repeat-last-n", 0, ARG_INT, &a.repeat_last_n, -1, INT32_MAX,
         "N  tokens it looks back at (-1: all)"},
        {"presence-penalty", 0, ARG_FLOAT, &a.presence, -100, 100, "P  0 = off"},
        {"frequency-penalty", 0, ARG_FLOAT, &a.frequency, -100, 100, "P  0 = off"},
        {"seed", 0, ARG_SEED, &a.seed, 0, 0, "S  0 (default) draws one"},
        {"stop", 0, ARG_TEXTS, &a.stop, 0, 0, "TEXT  end before this text; may be given again"},
        {"ignore-eos", 0, ARG_FLAG, &a.ignore_eos, 0, 0, "go on past the model's end token"},
        {"chat-template", 0, ARG_TEXT, &a.template_file, 0, 0,
         "FILE  a Jinja template in place of the model's"},
        {"raw", 0, ARG_FLAG, &a.raw, 0, 0, "send the text as it is, without the chat layout"},
        {"json", 0, ARG_FLAG, &a.json, 0, 0, "print one JSON object at the end"},
        {"quiet", 'q', ARG_FLAG, &a.quiet, 0, 0, "nothing on stderr but errors"},
    };
    const char *pos[1];
    size_t n_pos;
    int status_code;
    if (!args_parse(argc, argv, "run [OPTION …] [TEXT]", table, sizeof table / sizeof table[0], pos, 1,
                    &n_pos, &status_code)) {
        return status_code;
    }
    if (n_pos == 1 && a.prompt) {
        fprintf(stderr, "hearth: the prompt is given twice: -p and '%s'\n", pos[0]);
        return EXIT_USAGE;
    }
    if (n_pos == 1) {
        a.prompt = pos[0];
    }
    return run(&a);
}
