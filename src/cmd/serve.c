/*
 * hearth serve: the command line of the daemon; the work is in serve/. The workers it supervises are this
 * program, unless --worker-cmd names another.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem_limit.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "cmd/read_text.h"
#include "gguf/reader.h"
#include "kern/kern.h"
#include "serve/planner.h"
#include "serve/serve.h"
#include "text/reply_format.h"

#define MAX_MODELS        ARG_MAX_TEXTS
#define MAX_WORDS         64
#define MAX_TIMEOUT_S     86400
#define MAX_SESSION_TTL_S 31536000
#define ID_BYTES          256
#define MAX_OPTIONS       16          /* put_options adds 15 at most */
#define OWN_OPTIONS       2           /* of each worker, beside those */
#define OPTION_BYTES      (4096 + 32) /* --pack-dir=PATH */

typedef struct serve_args {
    model_options_args load;
    arg_texts models;
    const char *template_file, *tool_format;
    const char *host, *unix_path, *keys_path, *worker_cmd, *keepalive, *keepalive_kind;
    int64_t port, max_body, max_queue, max_respawns, max_sessions, slow_reader_s, named_sessions;
    double stall_s, grace_s, drain_s, session_ttl_s;
    const char *store_dir;
    int64_t store_bytes, store_daily, memory_bytes;
    const char *journal_dir;
    int64_t journal_bytes;
    bool no_store, no_sandbox;
} serve_args;

/* Everything that serve_config borrows. */
typedef struct command {
    serve_model models[MAX_MODELS];
    char ids[MAX_MODELS][ID_BYTES];
    char paths[MAX_MODELS][4096];
    char *words[MAX_MODELS][MAX_WORDS]; /* each worker's argv */
    char self[4096], worker_cmd[4096];
    char options[MAX_OPTIONS][OPTION_BYTES]; /* --NAME=VALUE, the same for all workers */
    size_t n_options;
    char own[MAX_MODELS][OWN_OPTIONS][64]; /* the same, of one worker */
} command;

static void print_listening(void *ctx, const char *url)
{
    fprintf(stderr, "listening on %s\n", url);
}

/* "/models/ember.gguf" is served as "ember", another one of that name as "ember-2". */
static void name_model(command *c, size_t i, const char *path)
{
    char base[ID_BYTES - 8];
    const char *slash = strrchr(path, '/');
    unsigned n = 1;
    snprintf(base, sizeof base, "%.200s", slash ? slash + 1 : path);
    char *dot = strrchr(base, '.');
    if (dot && dot != base && strcmp(dot, ".gguf") == 0) {
        *dot = 0;
    }
    snprintf(c->ids[i], ID_BYTES, "%s", base);
    for (size_t k = 0; k < i; k++) {
        if (strcmp(c->ids[k], c->ids[i]) == 0) {
            snprintf(c->ids[i], ID_BYTES, "%s-%u", base, ++n);
            k = SIZE_MAX; /* from the start: this name may be taken as well */
        }
    }
}

static void add_option(command *c, const char *name, long long value)
{
    snprintf(c->options[c->n_options++], OPTION_BYTES, "--%s=%lld", name, value);
}

static void add_text_option(command *c, const char *name, const char *value)
{
    snprintf(c->options[c->n_options++], OPTION_BYTES, "--%s=%s", name, value);
}

static void add_flag_option(command *c, const char *name)
{
    snprintf(c->options[c->n_options++], OPTION_BYTES, "--%s", name);
}

static void put_options(command *c, const serve_args *a)
{
    if (a->load.threads) {
        add_option(c, "threads", a->load.threads);
    }
    if (a->load.ctx) {
        add_option(c, "ctx", a->load.ctx);
    }
    if (a->load.cpu) {
        add_text_option(c, "cpu", a->load.cpu);
    }
    if (a->load.kv_type) {
        add_text_option(c, "kv-type", a->load.kv_type);
    }
    if (a->load.pack_dir) {
        add_text_option(c, "pack-dir", a->load.pack_dir);
    }
    if (a->load.no_pack_cache) {
        add_flag_option(c, "no-pack-cache");
    }
    if (a->load.huge_pages) {
        add_flag_option(c, "huge-pages");
    }
    const char *kept_in = a->no_store ? NULL : a->store_dir ? a->store_dir : model_store_dir();
    if (kept_in) {
        add_text_option(c, "store", kept_in);
        add_option(c, "store-bytes", a->store_bytes);
        add_option(c, "store-daily-bytes", a->store_daily);
    }
    if (a->template_file) {
        add_text_option(c, "chat-template", a->template_file);
    }
    if (a->tool_format) {
        add_text_option(c, "tool-format", a->tool_format);
    }
    if (a->max_sessions) {
        add_option(c, "max-sessions", a->max_sessions);
    }
    add_option(c, "slow-reader-timeout", a->slow_reader_s);
    if (a->no_sandbox) {
        add_flag_option(c, "no-sandbox");
    }
}

/* Without it the worker says what is wrong. */
static uint64_t model_bytes(const char *path)
{
    gguf_files *f = NULL;
    uint64_t bytes = gguf_files_open(path, &f, NULL) == ST_OK ? gguf_files_bytes(f) : 0;
    gguf_files_close(f);
    return bytes;
}

/* What each worker may plan with: all there is for one, its share for one of several. */
static void share_memory(command *c, const serve_args *a, size_t n_models)
{
    mem_limit limit;
    uint64_t sizes[MAX_MODELS], total = (uint64_t)a->memory_bytes;
    planner_share shares[MAX_MODELS];
    if (total == 0 && n_models > 1) {
        mem_limit_read(NULL, &limit);
        total = mem_limit_bytes(&limit);
    }
    if (total == 0 || total == MEM_LIMIT_NONE) {
        return; /* it finds out by itself, or nobody knows */
    }
    for (size_t i = 0; i < n_models; i++) {
        sizes[i] = model_bytes(c->paths[i]);
    }
    planner_divide(sizes, n_models, total, shares);
    for (size_t i = 0; i < n_models; i++) {
        snprintf(c->own[i][0], sizeof c->own[i][0], "--memory-bytes=%llu",
                 (unsigned long long)shares[i].bytes);
        snprintf(c->own[i][1], sizeof c->own[i][1], "--memory-most-bytes=%llu",
                 (unsigned long long)shares[i].most_bytes);
    }
}

/* This program as the worker of each model. */
static int own_workers(command *c, const serve_args *a)
{
    static char word[] = "worker", option_m[] = "--model";
    ssize_t len = readlink("/proc/self/exe", c->self, sizeof c->self - 1);
    if (len <= 0) {
        fprintf(stderr, "hearth: serve: cannot find this program to start workers (/proc/self/exe)\n");
        return EXIT_FAILED;
    }
    c->self[len] = 0;
    put_options(c, a);
    for (size_t i = 0; i < a->models.n || i == 0; i++) { /* without any -m: model_path_find says so */
        size_t n = 0;
        int rc = model_path_find(a->models.n ? a->models.at[i] : NULL, c->paths[i], sizeof c->paths[i]);
        if (rc != EXIT_OK) {
            return rc;
        }
        name_model(c, i, c->paths[i]);
        c->words[i][n++] = c->self;
        c->words[i][n++] = word;
        c->words[i][n++] = option_m;
        c->words[i][n++] = c->paths[i];
        for (size_t k = 0; k < c->n_options; k++) {
            c->words[i][n++] = c->options[k];
        }
    }
    size_t n_models = a->models.n ? a->models.n : 1;
    share_memory(c, a, n_models);
    for (size_t i = 0; i < n_models && c->own[i][0][0] != '\0'; i++) {
        size_t n = 4 + c->n_options;
        c->words[i][n++] = c->own[i][0];
        c->words[i][n++] = c->own[i][1];
    }
    return EXIT_OK;
}

/* Another program, the same for each model; -m is only a name then. */
static int foreign_workers(command *c, const serve_args *a)
{
    size_t n = 0;
    snprintf(c->worker_cmd, sizeof c->worker_cmd, "%s", a->worker_cmd);
    for (char *rest = NULL, *w = strtok_r(c->worker_cmd, " \t", &rest); w; w = strtok_r(NULL, " \t", &rest)) {
        if (n == MAX_WORDS - 1) {
            fprintf(stderr, "hearth: --worker-cmd: more than %d words\n", MAX_WORDS - 1);
            return EXIT_USAGE;
        }
        c->words[0][n++] = w;
    }
    if (n == 0) {
        fprintf(stderr, "hearth: --worker-cmd: names no program\n");
        return EXIT_USAGE;
    }
    for (size_t i = 0; i < a->models.n || i == 0; i++) {
        memcpy(c->words[i], c->words[0], sizeof c->words[0]);
        name_model(c, i, a->models.n ? a->models.at[i] : "stub");
    }
    return EXIT_OK;
}

/* It is told here, not by a worker that cannot start, when there is no such format. */
static int check_tool_format(const char *name)
{
    reply_style style;
    if (name && !reply_style_by_name(name, &style)) {
        fprintf(stderr, "hearth: --tool-format %.64s: must be one of", name);
        for (int i = REPLY_NONE; i <= REPLY_FUNCTIONARY_V3_1; i++) {
            fprintf(stderr, " %s", reply_style_name((reply_style)i));
        }
        fprintf(stderr, "\n");
        return EXIT_USAGE;
    }
    return EXIT_OK;
}

/* The same of a template that cannot be read. */
static int check_template(const char *file)
{
    buf text = {0};
    if (file && (strcmp(file, "-") == 0 || strlen(file) >= 4096)) {
        fprintf(stderr, "hearth: --chat-template %.64s: must name a file\n", file);
        return EXIT_USAGE;
    }
    int rc = file ? read_template(file, &text) : EXIT_OK;
    buf_release(&text);
    return rc;
}

static int check_store(const serve_args *a)
{
    if (a->store_dir && (a->no_store || !*a->store_dir || strlen(a->store_dir) >= 4096)) {
        fprintf(stderr, "hearth: --store: %s\n",
                a->no_store     ? "it says the opposite of --no-store"
                : *a->store_dir ? "the path is too long"
                                : "the path is empty");
        return EXIT_USAGE;
    }
    return EXIT_OK;
}

static int check_journal(const serve_args *a)
{
    if (a->journal_dir && (!*a->journal_dir || strlen(a->journal_dir) >= 4096)) {
        fprintf(stderr, "hearth: --journal: the path is %s\n", *a->journal_dir ? "too long" : "empty");
        return EXIT_USAGE;
    }
    return EXIT_OK;
}

static int read_keepalive(const serve_args *a, serve_config *cfg)
{
    char *end;
    if (a->keepalive && strcmp(a->keepalive, "off") == 0) {
        cfg->sse_keepalive_ms = 0;
    } else if (a->keepalive) {
        double s = strtod(a->keepalive, &end);
        if (end == a->keepalive || *end || !(s >= 0.1 && s <= MAX_TIMEOUT_S)) {
            fprintf(stderr, "hearth: --sse-keepalive %s: must be off or 0.1 to %d seconds\n", a->keepalive,
                    MAX_TIMEOUT_S);
            return EXIT_USAGE;
        }
        cfg->sse_keepalive_ms = (uint64_t)(s * 1000);
    }
    if (a->keepalive_kind && strcmp(a->keepalive_kind, "delta") == 0) {
        cfg->sse_keepalive_kind = SSE_KEEPALIVE_DELTA;
    } else if (a->keepalive_kind && strcmp(a->keepalive_kind, "comment") != 0) {
        fprintf(stderr, "hearth: --sse-keepalive-kind %s: must be comment or delta\n", a->keepalive_kind);
        return EXIT_USAGE;
    }
    return EXIT_OK;
}

/* A Unix socket alone, unless an address or a port is asked for too. */
static void choose_sockets(const serve_args *a, serve_config *cfg)
{
    cfg->unix_path = a->unix_path;
    if (a->unix_path && !a->host && a->port < 0) {
        cfg->host = NULL;
    } else {
        cfg->host = a->host ? a->host : "127.0.0.1";
        cfg->port = a->port < 0 ? 8080 : (uint16_t)a->port;
    }
}

static int serve(const serve_args *a, command *c)
{
    instance_options checked; /* faults of --cpu and --kv-type are told here, not by the worker */
    serve_config cfg = serve_config_default();
    int rc = model_options_instance(&a->load, KV_F16, &checked);
    rc = rc ? rc : read_keepalive(a, &cfg);
    rc = rc ? rc : check_template(a->template_file);
    rc = rc ? rc : check_tool_format(a->tool_format);
    rc = rc ? rc : check_store(a);
    rc = rc ? rc : check_journal(a);
    rc = rc ? rc : a->worker_cmd ? foreign_workers(c, a) : own_workers(c, a);
    if (rc != EXIT_OK) {
        return rc;
    }
    cfg.models = c->models;
    cfg.n_models = a->models.n ? a->models.n : 1;
    for (size_t i = 0; i < cfg.n_models; i++) {
        c->models[i] = (serve_model){.id = c->ids[i], .worker_argv = c->words[i]};
    }
    choose_sockets(a, &cfg);
    cfg.keys_path = a->keys_path;
    cfg.max_body_bytes = (size_t)a->max_body;
    cfg.limits.max_waiting = (size_t)a->max_queue;
    cfg.limits.max_respawns = (unsigned)a->max_respawns;
    cfg.limits.stall_ms = (uint64_t)(a->stall_s * 1000);
    cfg.limits.cancel_grace_ms = (uint64_t)(a->grace_s * 1000);
    cfg.drain_ms = (uint64_t)(a->drain_s * 1000);
    cfg.slow_reader_s = (int)a->slow_reader_s;
    cfg.session_ttl_ms = (uint64_t)(a->session_ttl_s * 1000);
    cfg.max_sessions_per_key = (size_t)a->named_sessions;
    cfg.journal_dir = a->journal_dir;
    cfg.journal_bytes = (uint64_t)a->journal_bytes;
    cfg.numerics = a->worker_cmd ? 0 : NUMERICS_VERSION;
    cfg.listening = print_listening;
    return serve_run(&cfg) == 0 ? EXIT_OK : EXIT_FAILED;
}

int cmd_serve(int argc, char **argv)
{
    serve_args a = {.port = -1,
                    .max_body = (int64_t)SERVE_DEFAULT_MAX_BODY,
                    .max_queue = 256,
                    .max_respawns = 5,
                    .slow_reader_s = SERVE_DEFAULT_SLOW_READER_S,
                    .stall_s = 30,
                    .named_sessions = SERVE_DEFAULT_SESSIONS,
                    .journal_bytes = (int64_t)SERVE_DEFAULT_JOURNAL_BYTES,
                    .store_bytes = MODEL_STORE_BYTES,
                    .store_daily = MODEL_STORE_DAILY_BYTES,
                    .session_ttl_s = SERVE_DEFAULT_SESSION_TTL_S,
                    .grace_s = 2,
                    .drain_s = 3};
    /* clang-format off */
    const cli_arg table[] = {
        {"model", 'm', ARG_TEXTS, &a.models, 0, 0, "FILE  a model: a path, or a name in the model folder; may be given several times"},
        MODEL_LOAD_ROWS(a.load),
        {"chat-template", 0, ARG_TEXT, &a.template_file, 0, 0, "FILE  a Jinja template in place of the models' own"},
        {"tool-format", 0, ARG_TEXT, &a.tool_format, 0, 0,
         "NAME  how replies spell tool calls, whatever the template looks like"},
        {"max-sessions", 0, ARG_INT, &a.max_sessions, 1, 65536, "N  requests that run at once, per model (8)"},
        {"host", 0, ARG_TEXT, &a.host, 0, 0, "ADDRESS  to listen on (127.0.0.1)"},
        {"port", 'p', ARG_INT, &a.port, 0, 65535, "N  to listen on (8080; 0: any free one)"},
        {"unix", 0, ARG_TEXT, &a.unix_path, 0, 0, "PATH  listen on this socket; without --host and --port only there"},
        {"api-keys", 0, ARG_TEXT, &a.keys_path, 0, 0, "FILE  ask for a key: a name and the SHA-256 of its key per line"},
        {"max-body", 0, ARG_INT, &a.max_body, 1024, 1 << 30, "BYTES  of a request's body (6291456)"},
        {"max-queue", 0, ARG_INT, &a.max_queue, 1, 65536, "N  requests that wait, per model (256)"},
        {"stall-timeout", 0, ARG_FLOAT, &a.stall_s, 0.1, MAX_TIMEOUT_S, "SECONDS  without progress after which a worker is killed (30)"},
        {"cancel-grace", 0, ARG_FLOAT, &a.grace_s, 0.1, MAX_TIMEOUT_S, "SECONDS  a worker has to obey a cancel (2)"},
        {"session-ttl", 0, ARG_FLOAT, &a.session_ttl_s, 0.1, MAX_SESSION_TTL_S, "SECONDS  after which a named session that nobody uses ends (3600)"},
        {"max-sessions-per-key", 0, ARG_INT, &a.named_sessions, 1, 65536, "N  named sessions that each API key may have (256)"},
        {"slow-reader-timeout", 0, ARG_INT, &a.slow_reader_s, 1, MAX_TIMEOUT_S, "SECONDS  after which a reply that nobody reads ends (120)"},
        {"drain-timeout", 0, ARG_FLOAT, &a.drain_s, 0, MAX_TIMEOUT_S, "SECONDS  replies have to finish after SIGTERM (3)"},
        {"max-respawns", 0, ARG_INT, &a.max_respawns, 0, 1000000, "N  deaths of a worker without a token in between (5)"},
        {"sse-keepalive", 0, ARG_TEXT, &a.keepalive, 0, 0, "SECONDS  after which a quiet stream gets a sign of life, or off (15)"},
        {"sse-keepalive-kind", 0, ARG_TEXT, &a.keepalive_kind, 0, 0, "KIND  of that sign: comment (default) or delta"},
        {"store", 0, ARG_TEXT, &a.store_dir, 0, 0, "DIR  where what was read is kept on disk (hearth/kv in $XDG_CACHE_HOME or ~/.cache)"},
        {"store-bytes", 0, ARG_INT, &a.store_bytes, 1, MODEL_STORE_MOST, "N  bytes that may be kept there, per model (8589934592)"},
        {"store-daily-bytes", 0, ARG_INT, &a.store_daily, 0, MODEL_STORE_MOST, "N  bytes that may be written there in a day, per model (68719476736; 0: any)"},
        {"memory-bytes", 0, ARG_INT, &a.memory_bytes, 1, MODEL_MEMORY_MOST, "N  for all models together (what the machine and its control groups allow)"},
        {"no-store", 0, ARG_FLAG, &a.no_store, 0, 0, "keep nothing on disk"},
        {"journal", 0, ARG_TEXT, &a.journal_dir, 0, 0, "DIR  keep requests with an Idempotency-Key and their answers here, beyond a restart"},
        {"journal-bytes", 0, ARG_INT, &a.journal_bytes, 16 << 20, MODEL_STORE_MOST, "N  bytes that it may take there (268435456)"},
        {"no-sandbox", 0, ARG_FLAG, &a.no_sandbox, 0, 0, "for debuggers: workers keep all rights"},
        {"worker-cmd", 0, ARG_TEXT, &a.worker_cmd, 0, 0, "COMMAND  run this as the worker, words split at blanks; -m is only a name then (stub)"},
    };
    /* clang-format on */
    const char *pos[1];
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "serve -m FILE [OPTION …]", table, sizeof table / sizeof table[0], pos, 0,
                    &n_pos, &rc)) {
        return rc;
    }
    static command c; /* too big for a stack; lives as long as the daemon */
    return serve(&a, &c);
}
