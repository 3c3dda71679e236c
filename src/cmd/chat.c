/*
 * hearth chat: a conversation with a model, through the public library. On a terminal with history and line
 * editing; otherwise each line of stdin is a message. Replies go to stdout, everything else to stderr.
 *
 * Ctrl-C ends a running reply, drops a line that is being written, hints on an empty one, and leaves when it
 * comes there again. SIGINT is blocked but in replies and where input is waited for, so none is missed.
 */
#include <errno.h>
#include <hearth.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/folder.h"
#include "base/utf8.h"
#include "cmd/answer.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/conversation.h"
#include "cmd/model_options.h"
#include "cmd/read_text.h"
#include "cmd/terminal.h"

#define MAX_LINE_BYTES ((size_t)1 << 20) /* without line editing; a message with all its lines */
#define HISTORY_LINES  1000
#define KEY_INTERRUPT  3 /* what Ctrl-C sends */

typedef struct chat_args {
    model_options_args model;
    const char *system, *template_file;
    int64_t max_tokens, top_k;
    double temp, top_p;
    uint64_t seed;
    bool quiet;
} chat_args;

typedef struct chat {
    conversation talk;
    hearth_generate_options options;
    EditLine *editor; /* NULL: stdin or stdout is no terminal */
    History *history;
    HistEvent event;
    char history_path[4096]; /* "": none is kept */
    char block[4096];        /* without an editor: of stdin, [n_taken, n_block) are still to be read */
    size_t n_taken, n_block;
    bool terminal_out;
    bool line_interrupted; /* the editor's last line was ended by Ctrl-C … */
    bool line_empty;       /* … with nothing written in it */
    bool goes_on;          /* the line being read continues one that ended in a backslash */
    bool failed;           /* something said was not answered */
    bool leaving;
} chat;

static hearth_session *volatile running; /* what SIGINT cancels */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    hearth_session *s = running;
    (void)sig;
    interrupted = 1; /* hearth_cancel is forgotten if the reply has not begun: take_token looks here */
    if (s) {
        hearth_cancel(s); /* hearth.h promises that a handler may; NOLINT(bugprone-signal-handler) */
    }
}

static void let_interrupts(bool through)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(through ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL);
}

static void catch_interrupt(void)
{
    /* A write that it meets goes on; ppoll, which waits for input, is never restarted. */
    struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    let_interrupts(false);
    sigaction(SIGINT, &sa, NULL);
}

/* Replies */

static bool take_token(void *ctx, const hearth_token *t)
{
    const chat *c = ctx;
    if (c->terminal_out) {
        terminal_put(stdout, t->text, t->text_len, true);
    } else {
        fwrite(t->text, 1, t->text_len, stdout);
    }
    return answer_flush() && !interrupted;
}

/* Says a message and prints its reply, with a line feed behind it, also behind one that was ended. */
static void say(chat *c, const char *text, size_t len)
{
    running = c->talk.session;
    let_interrupts(true);
    bool answered = conversation_say(&c->talk, text, len, &c->options, take_token, c);
    let_interrupts(false);
    running = NULL;
    interrupted = 0;
    if (!answered) {
        c->failed = true;
        return;
    }
    putchar('\n');
    if (!answer_flush()) {
        c->leaving = c->failed = true; /* nobody listens any more */
        return;
    }
    const turn_stats *last = &c->talk.last;
    if (strcmp(last->finish_reason, "cancelled") == 0) {
        fprintf(stderr, "[stopped]\n");
    } else if (strcmp(last->finish_reason, "length") == 0) {
        bool full = conversation_tokens(&c->talk) >= (size_t)conversation_context(&c->talk);
        fprintf(stderr, full ? "[the context is full: the reply was cut; /reset begins anew]\n"
                             : "[the reply was cut at the limit of -n]\n");
    }
}

/* Commands */

static void do_help(chat *c, const char *arg);

static void do_reset(chat *c, const char *arg)
{
    if (conversation_reset(&c->talk)) {
        fprintf(stderr, "[a new conversation]\n");
    }
}

static void do_save(chat *c, const char *arg)
{
    if (!*arg) {
        fprintf(stderr, "hearth: /save needs a file\n");
        c->failed = true;
    } else if (conversation_save(&c->talk, arg)) {
        fprintf(stderr, "[saved as %s]\n", arg);
    } else {
        c->failed = true;
    }
}

static void do_system(chat *c, const char *arg)
{
    if (!*arg) {
        const buf *now = &c->talk.system;
        terminal_put(stderr, now->len > 0 ? buf_str(now) : "[no system message]",
                     now->len > 0 ? now->len : 19, true);
        fputc('\n', stderr);
    } else if (conversation_instruct(&c->talk, arg, strlen(arg))) {
        fprintf(stderr, "[the system message is set]\n");
    }
}

static double rate(size_t n, double ms)
{
    return ms > 0 ? (double)n * 1e3 / ms : 0;
}

static void do_stats(chat *c, const char *arg)
{
    const conversation *t = &c->talk;
    const turn_stats *s = &t->last;
    fprintf(stderr, "context: %zu of %d tokens, %zu messages\n", conversation_tokens(t),
            (int)conversation_context(t), t->n_said);
    if (!s->finish_reason) {
        return;
    }
    size_t n_read = s->prompt_tokens - s->reused_tokens;
    fprintf(stderr, "last prompt: %zu tokens, %zu of them kept from before, %zu read (%.1f/s)\n",
            s->prompt_tokens, s->reused_tokens, n_read, rate(n_read, s->prefill_ms));
    fprintf(stderr, "last reply: %zu tokens (%.1f/s), the first after %.0f ms, %s\n", s->reply_tokens,
            rate(s->reply_tokens, s->decode_ms), s->ttft_ms, s->finish_reason);
}

static void do_quit(chat *c, const char *arg)
{
    c->leaving = true;
}

static const struct command {
    const char *name;
    const char *arg;
    const char *help;
    void (*run)(chat *c, const char *arg);
} commands[] = {
    {"help", "", "this list", do_help},
    {"reset", "", "begin a new conversation; the system message stays", do_reset},
    {"save", "FILE", "write the conversation to a file, as JSON", do_save},
    {"system", "TEXT", "set the system message; without TEXT: show it", do_system},
    {"stats", "", "tokens and speed", do_stats},
    {"quit", "", "leave (Ctrl-D does too)", do_quit},
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

static void do_help(chat *c, const char *arg)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        fprintf(stderr, "/%-6s %-5s %s\n", commands[i].name, commands[i].arg, commands[i].help);
    }
    fprintf(
        stderr,
        "A line that ends in \\ goes on in the next one. // at the start is a message that begins with /.\n"
        "Ctrl-C ends a reply that is running.\n");
}

/* line: behind the slash. */
static void obey(chat *c, const char *line)
{
    size_t n = strcspn(line, " \t");
    const char *arg = line + n + strspn(line + n, " \t");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strlen(commands[i].name) == n && strncmp(commands[i].name, line, n) == 0) {
            if (*arg && !*commands[i].arg) {
                fprintf(stderr, "hearth: /%s takes nothing behind it\n", commands[i].name);
                c->failed = true;
                return;
            }
            commands[i].run(c, arg);
            return;
        }
    }
    fprintf(stderr, "hearth: no command /%.*s (/help lists them; // begins a message with /)\n",
            (int)(n < 32 ? n : 32), line);
    c->failed = true;
}

/* Input */

typedef enum read_end { READ_LINE, READ_EOF, READ_INTERRUPTED, READ_FAILED } read_end;

/* Up to n bytes of stdin. Only here, while it waits, and in replies SIGINT gets through. Bytes, 0 at the end, -1:
 * failed, with EINTR: interrupted. */
static ssize_t wait_input(void *to, size_t n)
{
    struct pollfd in = {STDIN_FILENO, POLLIN, 0};
    sigset_t open_mask;
    sigemptyset(&open_mask);
    for (;;) {
        errno = 0;
        ssize_t got = interrupted ? -1 : ppoll(&in, 1, NULL, &open_mask);
        got = got < 0 ? got : read(STDIN_FILENO, to, n);
        if (interrupted) {
            errno = EINTR;
            return -1;
        }
        if (got >= 0 || errno != EINTR) {
            return got;
        }
    }
}

/* The editor's source of keys: one UTF-8 character, U+FFFD for what is none. */
static int next_key(EditLine *el, wchar_t *key)
{
    char bytes[4];
    uint32_t cp;
    bool valid = false;
    size_t n = 0, want = 1;
    *key = KEY_INTERRUPT;
    while (n < want) {
        ssize_t got = wait_input(&bytes[n], 1);
        if (got <= 0) {
            return got < 0 && errno == EINTR ? 1 : (int)got;
        }
        unsigned char b = (unsigned char)bytes[n++];
        if (n == 1 && b >= 0xC0) {
            want = b >= 0xF0 ? 4 : b >= 0xE0 ? 3 : 2;
        }
    }
    utf8_decode(bytes, n, &cp, &valid);
    *key = (wchar_t)(valid ? cp : 0xFFFD);
    return 1;
}

static unsigned char interrupt_line(EditLine *el, int key)
{
    chat *c = NULL;
    el_get(el, EL_CLIENTDATA, &c);
    const LineInfo *li = el_line(el);
    c->line_interrupted = true;
    c->line_empty = li->lastchar == li->buffer;
    interrupted = 0;
    return CC_EOF;
}

static char *prompt_text(EditLine *el)
{
    static char first[] = "> ", more[] = ". ";
    chat *c = NULL;
    el_get(el, EL_CLIENTDATA, &c);
    return c->goes_on ? more : first;
}

/* One line without its line feed, appended to line. *empty: nothing was written before Ctrl-C. */
static read_end read_edited(chat *c, buf *line, bool *empty)
{
    int n = 0;
    c->line_interrupted = false;
    const char *text = el_gets(c->editor, &n);
    if (c->line_interrupted) {
        *empty = c->line_empty;
        fputs("^C\n", stdout);
        fflush(stdout);
        return READ_INTERRUPTED;
    }
    if (!text || n <= 0) {
        putchar('\n');
        return READ_EOF;
    }
    size_t len = strlen(text);
    len -= len > 0 && text[len - 1] == '\n';
    return buf_append(line, text, len) == ST_OK ? READ_LINE : READ_FAILED;
}

static read_end read_plain(chat *c, buf *line)
{
    for (;;) {
        const char *from = c->block + c->n_taken;
        size_t left = c->n_block - c->n_taken;
        const char *end = left > 0 ? memchr(from, '\n', left) : NULL;
        size_t n = end ? (size_t)(end - from) : left;
        if (line->len + n > MAX_LINE_BYTES || buf_append(line, from, n) != ST_OK) {
            fprintf(stderr, "hearth: chat: a message longer than %zu bytes\n", MAX_LINE_BYTES);
            return READ_FAILED;
        }
        c->n_taken += n + (end != NULL);
        if (end) {
            return READ_LINE;
        }
        ssize_t got = wait_input(c->block, sizeof c->block);
        if (got <= 0) {
            int why = errno;
            if (got < 0 && why != EINTR) {
                fprintf(stderr, "hearth: chat: stdin: %s\n", strerror(why));
            }
            return got == 0 ? READ_EOF : why == EINTR ? READ_INTERRUPTED : READ_FAILED;
        }
        c->n_block = (size_t)got;
        c->n_taken = 0;
    }
}

/* A message: lines as long as they end in a backslash, which becomes a line feed. */
static read_end read_message(chat *c, buf *text, bool *empty)
{
    buf_reset(text);
    c->goes_on = false;
    for (;;) {
        read_end how = c->editor ? read_edited(c, text, empty) : read_plain(c, text);
        *empty = *empty && !c->goes_on;
        if (how != READ_LINE || text->len == 0 || text->data[text->len - 1] != '\\') {
            return how == READ_EOF && text->len > 0 ? READ_LINE : how;
        }
        text->data[text->len - 1] = '\n';
        c->goes_on = true;
    }
}

/* History */

static void find_history(chat *c)
{
    const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (xdg && xdg[0] == '/') {
        n = snprintf(c->history_path, sizeof c->history_path, "%s/hearth/history", xdg);
    } else if (home && home[0] == '/') {
        n = snprintf(c->history_path, sizeof c->history_path, "%s/.local/state/hearth/history", home);
    }
    if (n < 0 || (size_t)n >= sizeof c->history_path) {
        c->history_path[0] = 0;
        return;
    }
    char *name = strrchr(c->history_path, '/');
    *name = '\0';
    (void)folder_make(c->history_path, NULL); /* one that is missing shows when the file is written */
    *name = '/';
}

/* Saved after each line: a terminal that is closed loses none. */
static void remember(chat *c, const buf *text)
{
    if (!c->history || text->len == 0 || memchr(text->data, '\n', text->len)) {
        return;
    }
    history(c->history, &c->event, H_ENTER, buf_str(text));
    if (c->history_path[0]) {
        history(c->history, &c->event, H_SAVE, c->history_path); /* it is a comfort: failure is silent */
    }
}

/* Line editing, if both ends are a terminal. */
static void open_editor(chat *c)
{
    if (!isatty(STDIN_FILENO) || !c->terminal_out) {
        return;
    }
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) {
        setlocale(LC_CTYPE, "C.UTF-8"); /* what is typed is UTF-8 in any case */
    }
    c->editor = el_init("hearth", stdin, stdout, stderr);
    c->history = history_init();
    if (!c->editor) {
        return;
    }
    el_set(c->editor, EL_CLIENTDATA, c);
    el_set(c->editor, EL_PROMPT, prompt_text);
    el_set(c->editor, EL_EDITOR, "emacs");
    el_set(c->editor, EL_GETCFN, next_key);
    /* Wide: of narrow strings libedit keeps copies that it never frees. */
    el_wset(c->editor, EL_ADDFN, L"hearth-interrupt", L"end the line as Ctrl-C does", interrupt_line);
    if (c->history) {
        find_history(c);
        history(c->history, &c->event, H_SETSIZE, HISTORY_LINES);
        history(c->history, &c->event, H_SETUNIQUE, 1);
        history(c->history, &c->event, H_LOAD, c->history_path);
        el_set(c->editor, EL_HIST, history, c->history);
    }
    el_source(c->editor, NULL); /* ~/.editrc */
    el_set(c->editor, EL_BIND, "^C", "hearth-interrupt", NULL);
}

static void close_editor(chat *c)
{
    if (c->editor) {
        el_end(c->editor);
    }
    if (c->history) {
        history_end(c->history);
    }
}

/* The loop */

static void take(chat *c, const buf *text)
{
    const char *s = buf_str(text);
    size_t len = text->len;
    if (len == 0) {
        return;
    }
    remember(c, text);
    if (s[0] == '/' && s[1] != '/') {
        obey(c, s + 1);
    } else {
        say(c, s + (s[0] == '/'), len - (s[0] == '/'));
    }
}

static int talk(chat *c)
{
    buf text = {0};
    bool warned = false;
    read_end how = READ_LINE;
    while (!c->leaving) {
        bool empty = true;
        how = read_message(c, &text, &empty);
        if (how == READ_LINE) {
            warned = false;
            take(c, &text);
        } else if (how == READ_INTERRUPTED && c->editor && !(empty && warned)) {
            warned = empty;
            fputs(empty ? "[Ctrl-C again or Ctrl-D leaves]\n" : "", stderr);
        } else {
            break;
        }
    }
    buf_release(&text);
    if (c->editor) {
        return answer_flush() ? EXIT_OK : EXIT_FAILED; /* whoever sits there saw what failed */
    }
    if (how == READ_INTERRUPTED) {
        return EXIT_INTERRUPTED;
    }
    return how == READ_FAILED || c->failed ? EXIT_FAILED : EXIT_OK;
}

static hearth_model *open_model(const chat_args *a, const char *path, const instance_options *checked)
{
    hearth_model_options o = HEARTH_MODEL_OPTIONS_INIT;
    hearth_error e = HEARTH_ERROR_INIT;
    hearth_model *model = NULL;
    o.cpu = a->model.cpu;
    o.kv_type = a->model.kv_type;
    o.threads = (int32_t)a->model.threads;
    o.context = (int32_t)a->model.ctx;
    o.pack_dir = checked->pack_dir;
    o.huge_pages = checked->huge_pages;
    o.max_sessions = 1;
    o.progress = progress_bar;
    if (hearth_model_open(path, &o, &model, &e) != HEARTH_OK) {
        err out = {.code = (status)e.code, .offset = e.offset};
        snprintf(out.msg, sizeof out.msg, "%s", e.message);
        print_err(path, &out);
        return NULL;
    }
    return model;
}

static void greet(const hearth_model *model, const char *path)
{
    hearth_model_info info = HEARTH_MODEL_INFO_INIT;
    hearth_model_info_get(model, &info);
    const char *name = info.name[0] ? info.name : path;
    fputs("[", stderr);
    terminal_put(stderr, name, strlen(name), false);
    fprintf(stderr, ", %s, context %d. /help lists the commands, Ctrl-D leaves.]\n", info.quant,
            (int)info.context);
}

static int run(const chat_args *a)
{
    char path[4096];
    buf source = {0};
    instance_options checked; /* faults of --cpu and --kv-type are faults of the command line */
    chat c = {.options = HEARTH_GENERATE_OPTIONS_INIT, .terminal_out = isatty(STDOUT_FILENO)};
    int rc = model_path_find(a->model.model, path, sizeof path);
    rc = rc ? rc : model_options_instance(&a->model, KV_F16, &checked);
    rc = rc || !a->template_file ? rc : read_template(a->template_file, &source);
    hearth_model *model = rc == EXIT_OK ? open_model(a, path, &checked) : NULL;
    if (!model) {
        buf_release(&source);
        return rc == EXIT_OK ? EXIT_FAILED : rc;
    }
    c.options.max_tokens = (int32_t)a->max_tokens;
    c.options.temperature = (float)a->temp;
    c.options.top_p = (float)a->top_p;
    c.options.top_k = (int32_t)a->top_k;
    c.options.seed = a->seed;
    rc = EXIT_FAILED;
    if (conversation_open(model, a->template_file ? buf_str(&source) : NULL, &c.talk) &&
        (!a->system || conversation_instruct(&c.talk, a->system, strlen(a->system)))) {
        open_editor(&c);
        if (c.editor && !a->quiet) {
            greet(model, path);
        }
        catch_interrupt();
        rc = talk(&c);
        close_editor(&c);
    }
    conversation_close(&c.talk);
    hearth_model_close(model);
    buf_release(&source);
    return rc;
}

int cmd_chat(int argc, char **argv)
{
    chat_args a = {.max_tokens = -1, .top_p = 1};
    const cli_arg table[] = {
        MODEL_OPTION_ROWS(a.model),
        {"system", 's', ARG_TEXT, &a.system, 0, 0, "TEXT  the system message (default: none)"},
        {"n", 'n', ARG_INT, &a.max_tokens, -1, INT32_MAX,
         "N  tokens of a reply at most (-1: up to the context)"},
        {"temp", 0, ARG_FLOAT, &a.temp, 0, 1e6, "T  temperature; 0 (default) takes the likeliest token"},
        {"top-p", 0, ARG_FLOAT, &a.top_p, 0, 1, "P  keep the likeliest tokens that make up P"},
        {"top-k", 0, ARG_INT, &a.top_k, 0, INT32_MAX, "K  keep the K likeliest tokens (0: all)"},
        {"seed", 0, ARG_SEED, &a.seed, 0, 0, "S  of each reply; 0 (default) draws one"},
        {"chat-template", 0, ARG_TEXT, &a.template_file, 0, 0,
         "FILE  a Jinja template in place of the model's"},
        {"quiet", 'q', ARG_FLAG, &a.quiet, 0, 0, "no greeting"},
    };
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "chat [OPTION …]", table, sizeof table / sizeof table[0], NULL, 0, &n_pos,
                    &rc)) {
        return rc;
    }
    if (a.template_file && strcmp(a.template_file, "-") == 0) {
        fprintf(stderr, "hearth: --chat-template -: stdin is where the messages come from\n");
        return EXIT_USAGE;
    }
    return run(&a);
}
