#include "worker/worker.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/vec.h"
#include "engine/session_range.h"
#include "text/chat_template.h"
#include "wire/frame.h"
#include "wire/status_page.h"
#include "worker/bell.h"
#include "worker/control.h"
#include "worker/greeting.h"
#include "worker/halt.h"
#include "worker/inbox.h"
#include "worker/input.h"
#include "worker/loop.h"
#include "worker/output.h"
#include "worker/own_folder.h"
#include "worker/plan_line.h"
#include "worker/prepare.h"
#include "worker/sandbox.h"
#include "worker/saved.h"
#include "worker/sessions.h"
#include "worker/task.h"
#include "worker/weights_gone.h"

typedef struct worker {
    halt halt;
    bell bell;
    control control;
    input input;
    loop loop;
    tasks tasks;
    /* owned */
    output *out;
    instance_source *source; /* until the instance has it */
    instance *model;
    chat_template *chat; /* NULL: chat_error says why */
    turns *kept;         /* NULL: nothing is remembered (--no-warm) */
    sessions *sessions;
    inbox *inbox;
    preparer *preparer;
    status_page *page;
    ivec prefix;
    err source_error; /* why there is no source */
    err chat_error;
    err seal_error; /* why the sandbox is not sealed; ST_OK if nothing failed */
    uint64_t model_bytes;
    saved saved;               /* the sessions saved in there; folder -1: there is no store */
    char own_folder[PATH_MAX]; /* of this model; "" = nothing is kept on disk */
} worker;

worker_config worker_config_default(const char *model_path)
{
    return (worker_config){
        .model_path = model_path,
        .max_sessions = WORKER_DEFAULT_SESSIONS,
        .warm = true,
        .instance = instance_options_default(),
        .in_fd = STDIN_FILENO,
        .out_fd = STDOUT_FILENO,
        .status_fd = -1,
        .slow_reader_ms = WORKER_SLOW_READER_MS,
        .sandbox = true,
    };
}

/*
 * Start and end
 */
static status check_prefix(const worker_config *cfg, const instance_info *info, err *e)
{
    for (size_t i = 0; i < cfg->n_prefix_ids; i++) {
        if (cfg->prefix_ids[i] < 0 || cfg->prefix_ids[i] >= info->n_vocab) {
            return err_set(e, ST_INVALID_FIELD, "prefix_ids", "prefix_ids: %d is not in the vocabulary of %d",
                           (int)cfg->prefix_ids[i], (int)info->n_vocab);
        }
    }
    if (cfg->n_prefix_ids >= (size_t)info->context) {
        return err_set(e, ST_INVALID_FIELD, "prefix_ids", "prefix_ids: %zu ids fill the context of %d",
                       cfg->n_prefix_ids, (int)info->context);
    }
    return ST_OK;
}

static void note_progress(void *ctx, double done)
{
    worker *w = ctx;
    status_page_set(w->page, STATUS_ROW_LOADED_BYTES, (uint64_t)(done * (double)w->model_bytes));
}

static void note_sizes(void *ctx, const instance_sizes *sizes)
{
    worker *w = ctx;
    const memory_plan *p = sizes->plan;
    log_emit(LOG_INFO, "worker",
             "event=plan context=%d kv_pages=%zu kv_bytes=%llu mapped_bytes=%llu packed_bytes=%llu "
             "anonymous_bytes=%llu scratch_bytes=%llu total_bytes=%llu limit_bytes=%llu",
             (int)p->context, p->pages, (unsigned long long)p->kv_bytes,
             (unsigned long long)p->needs.mapped_bytes, (unsigned long long)p->needs.packed_bytes,
             (unsigned long long)p->needs.anonymous_bytes, (unsigned long long)p->scratch_bytes,
             (unsigned long long)p->total_bytes, (unsigned long long)p->limit_bytes);
    (void)sandbox_seal(sizes->file_bytes, sizes->kv_bytes, sizes->threads, &w->seal_error);
}

static void note_lane(void *ctx, const lane_event *ev)
{
    const worker *w = ctx;
    sessions_note_lane(w->sessions, ev);
}

static void ring(void *ctx)
{
    bell_ring(&((worker *)ctx)->bell);
}

static status open_model(worker *w, const worker_config *cfg, err *e)
{
    instance_options opt = cfg->instance;
    opt.store_dir = w->own_folder[0] ? w->own_folder : NULL;
    opt.store_wake = ring;
    opt.store_wake_ctx = w;
    opt.max_sequences = (size_t)cfg->max_sessions;
    opt.warm = cfg->warm;
    opt.plan_only = cfg->plan_only;
    opt.progress = note_progress;
    opt.progress_ctx = w;
    opt.sized = note_sizes;
    opt.sized_ctx = w;
    opt.before_step = loop_before_step;
    opt.before_step_ctx = w->page;
    opt.lane_event = note_lane;
    opt.lane_event_ctx = w;
    instance_source *source = w->source;
    w->source = NULL;
    status_page_set(w->page, STATUS_ROW_PHASE, STATUS_LOADING);
    status st = instance_open_take(source, &opt, &w->model, e);
    if (st == ST_OK && w->seal_error.code != ST_OK) {
        *e = w->seal_error;
        st = e->code;
    }
    return st;
}

/* One of the model that cannot be compiled costs conversations only; one that was asked for is a fault. */
static status load_template(worker *w, const worker_config *cfg, err *e)
{
    const char *own = instance_describe(w->model)->chat_template;
    const char *source = cfg->chat_template ? cfg->chat_template : own;
    reply_style style;
    if (cfg->tool_format && !reply_style_by_name(cfg->tool_format, &style)) {
        return err_set(e, ST_INVALID_FIELD, "tool_format", "there is no tool format \"%.64s\"",
                       cfg->tool_format);
    }
    status st =
        chat_template_new(source, strlen(source), instance_tokenizer(w->model), &w->chat, &w->chat_error);
    if (st != ST_OK && (cfg->chat_template || st == ST_NOMEM)) {
        *e = w->chat_error;
        return st;
    }
    if (st == ST_OK && cfg->tool_format) {
        chat_template_set_style(w->chat, style);
    }
    if (st != ST_OK) {
        log_emit(LOG_WARN, "worker", "event=chat_template_broken error=\"%s\"", w->chat_error.msg);
    } else if (chat_template_is_builtin(w->chat)) {
        log_emit(LOG_INFO, "worker",
                 "event=chat_template_builtin layout=chatml reason=\"the model has none\"");
    }
    return ST_OK;
}

/* Where sessions are saved; without it they are not. */
static void open_saved(worker *w)
{
    const engine *en = instance_engine(w->model);
    err e;
    err_clear(&e);
    if (!instance_store(w->model)) {
        return;
    }
    if (saved_open(&w->saved, w->own_folder, &e) != ST_OK) {
        log_emit(LOG_WARN, "worker", "event=nothing_saved error=\"%s\"", e.msg);
        return;
    }
    w->saved.kv_type = engine_kv_type(en);
    memcpy(w->saved.identity, engine_identity(en)->bytes, sizeof w->saved.identity);
    w->saved.max_ids = (size_t)instance_describe(w->model)->context;
}

/* What can be asked of a model before it is brought into memory. */
static status begin_load(worker *w, const worker_config *cfg, err *e)
{
    if (cfg->max_sessions < 1 || cfg->max_sessions > WORKER_MAX_SESSIONS) {
        return err_set(e, ST_INVALID_FIELD, "max_sessions", "max_sessions must be in [1, %d], not %d",
                       WORKER_MAX_SESSIONS, (int)cfg->max_sessions);
    }
    if (!w->source) {
        *e = w->source_error;
        return e->code;
    }
    return open_model(w, cfg, e);
}

static status load(worker *w, const worker_config *cfg, err *e)
{
    status st = begin_load(w, cfg, e);
    if (st == ST_OK) {
        st = check_prefix(cfg, instance_describe(w->model), e);
    }
    if (st == ST_OK && ivec_append(&w->prefix, cfg->prefix_ids, cfg->n_prefix_ids) != ST_OK) {
        st = err_set(e, ST_NOMEM, NULL, "out of memory for prefix_ids");
    }
    if (st != ST_OK) {
        return st;
    }
    st = load_template(w, cfg, e);
    if (st != ST_OK) {
        return st;
    }
    open_saved(w);
    st = sessions_new(instance_engine(w->model), (size_t)cfg->max_sessions - 1, &w->sessions);
    if (st == ST_OK) {
        st = tasks_open(&w->tasks, w->inbox, TASKS_URGENT_PER_LANE * (size_t)cfg->max_sessions);
    }
    if (st == ST_OK && cfg->warm) {
        st = turns_new(TURNS_DEFAULT_BYTES, &w->kept);
    }
    return st == ST_OK ? ST_OK : err_set(e, st, NULL, "out of memory for the worker's tables");
}

static void say_load_failed(worker *w, const err *e)
{
    frame_error f = frame_error_of(e);
    log_emit(LOG_ERROR, "worker", "event=load_failed code=%s field=%s error=\"%s\"", status_name(e->code),
             e->field, e->msg);
    f.code = ST_LOAD_FAILED;
    output_check(w->out, frame_put_error(output_stage(w->out), &f));
}

static void wire_up(worker *w, const worker_config *cfg)
{
    const instance_info *info = instance_describe(w->model);
    const clock_src *clock = cfg->instance.clock ? cfg->instance.clock : clock_system();
    w->loop = (loop){
        .desk = {.en = instance_engine(w->model),
                 .tok = instance_tokenizer(w->model),
                 .chat = w->chat,
                 .clock = clock,
                 .n_ctx = info->context,
                 .n_lanes = (size_t)cfg->max_sessions,
                 .kept = w->kept,
                 .saved = w->saved.folder >= 0 ? &w->saved : NULL,
                 .sessions = w->sessions,
                 .tasks = &w->tasks,
                 .out = w->out,
                 .halt = &w->halt,
                 .control = &w->control,
                 .page = w->page},
        .box = w->inbox,
        .bell = &w->bell,
        .slow_reader_ms = cfg->slow_reader_ms,
    };
    w->input = (input){.box = w->inbox,
                       .halt = &w->halt,
                       .control = &w->control,
                       .out = w->out,
                       .bell = &w->bell,
                       .page = w->page,
                       .clock = clock,
                       .fd = cfg->in_fd,
                       .limits = {info->n_vocab, w->control.supported}};
}

/* From `ready` to the last frame. */
static status serve(worker *w, const worker_config *cfg, err *e)
{
    wire_up(w, cfg);
    prepare_with with = {.tok = w->loop.desk.tok,
                         .prefix = &w->prefix,
                         .n_ctx = w->loop.desk.n_ctx,
                         .chat = w->chat,
                         .chat_error = &w->chat_error,
                         .clock = w->loop.desk.clock,
                         .saved = w->loop.desk.saved,
                         .kept = w->kept};
    status st = halt_catch_signals(&w->halt, e);
    st = st == ST_OK ? weights_gone_watch(w->model, w->page, e) : st;
    if (st == ST_OK) {
        st = preparer_new(&with, &w->bell, w->page, &w->preparer, e);
    }
    if (st == ST_OK) {
        st = preparer_start(w->preparer, e);
    }
    if (st == ST_OK) {
        st = input_start(&w->input, e);
    }
    if (st != ST_OK) {
        return st;
    }
    w->loop.preparer = w->preparer;
    output_check(w->out, greeting_put(output_stage(w->out), cfg->model_path, w->model, cfg->max_sessions,
                                      w->control.supported));
    output_commit(w->out);
    loop_run(&w->loop);
    inbox_abort(w->inbox);
    input_join(&w->input);
    return ST_OK;
}

static int exit_status(int cause)
{
    switch (cause) {
    case HALT_NONE:
    case HALT_SHUTDOWN:
        return WORKER_EXIT_OK;
    case HALT_OUTPUT_GONE:
        return WORKER_EXIT_OUTPUT_GONE;
    case HALT_BROKEN:
        return WORKER_EXIT_BROKEN;
    default:
        return 128 + cause; /* a signal */
    }
}

static status say_plan(worker *w, const worker_config *cfg, err *e)
{
    status st = begin_load(w, cfg, e);
    if (st == ST_OK && !output_check(w->out, plan_line_put(output_stage(w->out), w->model))) {
        st = err_set(e, ST_NOMEM, NULL, "out of memory for the plan");
    }
    output_commit(w->out);
    return st;
}

/* Everything is open and the writer runs. */
static int load_and_serve(worker *w, const worker_config *cfg)
{
    err e;
    int rc;
    err_clear(&e);
    status st = cfg->plan_only ? say_plan(w, cfg, &e) : load(w, cfg, &e);
    if (st != ST_OK) {
        say_load_failed(w, &e);
        rc = WORKER_EXIT_LOAD_FAILED;
    } else if (cfg->plan_only) {
        rc = WORKER_EXIT_OK;
    } else if (serve(w, cfg, &e) != ST_OK) {
        log_emit(LOG_ERROR, "worker", "event=start_failed error=\"%s\"", e.msg);
        rc = WORKER_EXIT_BROKEN;
    } else {
        rc = WORKER_EXIT_OK;
    }
    preparer_free(w->preparer);
    output_close(w->out); /* waits until all is written, or the worker is halted */
    w->out = NULL;
    return rc == WORKER_EXIT_OK ? exit_status(halt_cause(&w->halt)) : rc;
}

/* A closed descriptor would be taken by the next file that is opened, and spoken to. */
static bool descriptors_open(const worker_config *cfg)
{
    return fcntl(cfg->in_fd, F_GETFD) >= 0 && fcntl(cfg->out_fd, F_GETFD) >= 0;
}

/* The same of stderr, which the log goes to: there it is enough that nothing else has the number. */
static void hold_stderr(void)
{
    int fd = fcntl(STDERR_FILENO, F_GETFD) < 0 ? open("/dev/null", O_WRONLY | O_CLOEXEC) : STDERR_FILENO;
    if (fd >= 0 && fd != STDERR_FILENO) { /* a lower one was closed too */
        (void)dup2(fd, STDERR_FILENO);
        close(fd);
    }
}

/* Everything that comes from outside the process; no thread yet, and no byte of the model is parsed. A model
 * that cannot be opened is for `load` to say. */
static status open_all(worker *w, const worker_config *cfg, err *e)
{
    control_open(&w->control, cfg->control_fd); /* before anything else has a number */
    status st = status_page_open(cfg->status_fd, &w->page, e);
    hold_stderr();
    if (st == ST_OK) {
        st = descriptors_open(cfg) ? halt_open(&w->halt, e)
                                   : err_set(e, ST_IO, NULL, "input or output is not open");
    }
    if (st == ST_OK) {
        st = bell_open(&w->bell, e);
    }
    if (st == ST_OK) {
        st = inbox_new(&w->bell, &w->inbox, e);
    }
    if (st == ST_OK) {
        st = output_open(cfg->out_fd, &w->halt, &w->bell, &w->out, e);
    }
    if (st == ST_OK &&
        instance_source_open(cfg->model_path, &cfg->instance, &w->source, &w->source_error) == ST_OK) {
        w->model_bytes = instance_source_bytes(w->source);
        status_page_set(w->page, STATUS_ROW_LOAD_TOTAL_BYTES, w->model_bytes);
    }
    return st;
}

/* A folder that cannot be had is no reason not to serve. */
static void find_folder(worker *w, const worker_config *cfg)
{
    err e;
    err_clear(&e);
    if (!cfg->store_dir || !cfg->warm || !w->source) {
        return;
    }
    status st = own_folder_make(cfg->store_dir, instance_source_identity(w->source), w->own_folder,
                                sizeof w->own_folder, &e);
    if (st == ST_OK && cfg->sandbox) {
        st = sandbox_keep_folder(w->own_folder, &e);
    }
    if (st != ST_OK) {
        log_emit(LOG_WARN, "store", "event=store_off error=\"%s\"", e.msg);
        w->own_folder[0] = '\0';
    }
}

/* Between what comes from outside and what is read of it. */
static status shut_in(worker *w, const worker_config *cfg, err *e)
{
    status st = cfg->sandbox ? sandbox_prepare(e) : ST_OK;
    if (st != ST_OK) {
        return st;
    }
    find_folder(w, cfg);
    if (!cfg->sandbox) {
        log_emit(LOG_WARN, "worker", "event=no_sandbox reason=\"it was asked for\"");
        return ST_OK;
    }
    return sandbox_enter(w->model_bytes, e);
}

/* In any state that open_all can leave. */
static void close_all(worker *w)
{
    output_close(w->out);
    tasks_close(&w->tasks);
    turns_free(w->kept);
    sessions_free(w->sessions);
    chat_template_free(w->chat);
    weights_gone_forget();
    instance_close(w->model);
    saved_close(&w->saved);
    instance_source_close(w->source);
    inbox_free(w->inbox);
    ivec_release(&w->prefix);
    bell_close(&w->bell);
    halt_close(&w->halt);
    status_page_close(w->page);
    control_close(&w->control);
}

int worker_run(const worker_config *cfg)
{
    worker w;
    err e;
    int rc = WORKER_EXIT_BROKEN;
    memset(&w, 0, sizeof w);
    w.halt.fd = w.bell.fd = w.saved.folder = -1;
    status st = open_all(&w, cfg, &e);
    if (st == ST_OK) {
        st = shut_in(&w, cfg, &e);
    }
    if (st == ST_OK) {
        st = output_start(w.out, w.page, &e);
    }
    if (st == ST_OK) {
        rc = load_and_serve(&w, cfg);
    } else {
        log_emit(LOG_ERROR, "worker", "event=start_failed error=\"%s\"", e.msg);
    }
    close_all(&w);
    return rc;
}
