#include "worker/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/vec.h"
#include "wire/frame.h"
#include "worker/bell.h"
#include "worker/greeting.h"
#include "worker/halt.h"
#include "worker/inbox.h"
#include "worker/input.h"
#include "worker/output.h"
#include "worker/reply.h"
#include "worker/sessions.h"

typedef struct worker {
    halt halt;
    bell bell;
    input input;
    reply reply;
    /* owned */
    output *out;
    instance *model;
    sessions *sessions;
    inbox *inbox;
    ivec prefix;
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
    };
}

/*
 * One line
 */
static void say_session_error(worker *w, wire_string id, const err *e)
{
    frame_error f = frame_error_of(e);
    f.has_session = true;
    f.session_id = id.data;
    f.session_id_len = id.len;
    output_check(w->out, frame_put_error(output_stage(w->out), &f));
}

static void do_session_op(worker *w, const wire_request *r)
{
    err e;
    session *s = sessions_find(w->sessions, r->session_id);
    frame_kind kind = FRAME_RESET;
    status st = ST_OK;
    err_clear(&e);
    if (r->op == WIRE_OPEN) {
        kind = FRAME_OPENED;
        st = sessions_open(w->sessions, r->session_id, &s, NULL, &e);
    } else if (r->op == WIRE_CLOSE) {
        kind = FRAME_CLOSED;
        sessions_close(w->sessions, r->session_id);
    } else if (s) { /* an unknown id is answered true and creates nothing */
        st = session_reset(s);
        if (st != ST_OK) {
            err_set(&e, st, NULL, "the session cannot be reset: %s", status_text(st));
        }
    }
    if (st != ST_OK) {
        say_session_error(w, r->session_id, &e);
        return;
    }
    output_check(w->out,
                 frame_put_session(output_stage(w->out), kind, r->session_id.data, r->session_id.len));
}

static void answer_line(worker *w, inbox_item *item)
{
    static const char no_memory[] =
        "{\"error\":\"out of memory while reading a line\",\"code\":\"internal\"}\n";
    if (item->request && item->request->op == WIRE_GENERATE) {
        reply_start(&w->reply, item->request);
    } else if (item->request) {
        do_session_op(w, item->request);
    } else if (item->answer) {
        output_check(w->out, buf_append(output_stage(w->out), item->answer, item->answer_len));
    } else {
        output_check(w->out, buf_append_str(output_stage(w->out), no_memory));
    }
    inbox_item_release(item);
}

/*
 * The engine thread: as long as there is room for what a step may say, it takes the next line when nothing
 * runs, and computes a step when something does. It only ever waits for the bell.
 */
static void answer_lines(worker *w)
{
    while (!halt_asked(&w->halt)) {
        inbox_item item;
        bool room = output_has_room(w->out), worked = false;
        reply_hold(&w->reply, !room);
        if (room && !reply_running(&w->reply)) {
            if (inbox_take(w->inbox, &item)) {
                answer_line(w, &item);
                worked = true;
            } else if (inbox_ended(w->inbox)) {
                return;
            }
        }
        if (room && reply_running(&w->reply)) {
            worked = engine_step(instance_engine(w->model)) || !reply_running(&w->reply) || worked;
        }
        output_commit(w->out);
        if (!worked) {
            bell_wait(&w->bell, &w->halt);
        }
    }
}

/* Halted: the cancel flag is set, so what runs ends at the next step, held or not. */
static void drop_running(worker *w)
{
    while (reply_running(&w->reply)) {
        engine_step(instance_engine(w->model));
    }
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

static status load(worker *w, const worker_config *cfg, err *e)
{
    instance_options opt = cfg->instance;
    if (cfg->max_sessions < 1 || cfg->max_sessions > WORKER_MAX_SESSIONS) {
        return err_set(e, ST_INVALID_FIELD, "max_sessions", "max_sessions must be in [1, %d], not %d",
                       WORKER_MAX_SESSIONS, (int)cfg->max_sessions);
    }
    opt.max_sequences = (size_t)cfg->max_sessions;
    opt.warm = cfg->warm;
    status st = instance_open(cfg->model_path, &opt, &w->model, e);
    if (st == ST_OK) {
        st = check_prefix(cfg, instance_describe(w->model), e);
    }
    if (st == ST_OK && ivec_append(&w->prefix, cfg->prefix_ids, cfg->n_prefix_ids) != ST_OK) {
        st = err_set(e, ST_NOMEM, NULL, "out of memory for prefix_ids");
    }
    if (st != ST_OK) {
        return st;
    }
    st = sessions_new(instance_engine(w->model), (size_t)cfg->max_sessions - 1, &w->sessions);
    if (st == ST_OK) {
        st = inbox_new(&w->bell, &w->inbox);
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
    w->reply = (reply){
        .en = instance_engine(w->model),
        .tok = instance_tokenizer(w->model),
        .clock = cfg->instance.clock ? cfg->instance.clock : clock_system(),
        .prefix = &w->prefix,
        .n_ctx = info->context,
        .sessions = w->sessions,
        .out = w->out,
        .halt = &w->halt,
    };
    w->input = (input){.box = w->inbox, .halt = &w->halt, .fd = cfg->in_fd, .n_vocab = info->n_vocab};
}

/* From `ready` to the last frame. */
static status serve(worker *w, const worker_config *cfg, err *e)
{
    wire_up(w, cfg);
    status st = halt_catch_signals(&w->halt, e);
    if (st == ST_OK) {
        st = input_start(&w->input, e);
    }
    if (st != ST_OK) {
        return st;
    }
    output_check(w->out, greeting_put(output_stage(w->out), cfg->model_path, instance_describe(w->model),
                                      cfg->max_sessions));
    output_commit(w->out);
    answer_lines(w);
    drop_running(w);
    inbox_abort(w->inbox);
    input_join(&w->input);
    return ST_OK;
}

static int exit_status(int cause)
{
    switch (cause) {
    case HALT_NONE:
        return WORKER_EXIT_OK;
    case HALT_OUTPUT_GONE:
        return WORKER_EXIT_OUTPUT_GONE;
    case HALT_BROKEN:
        return WORKER_EXIT_BROKEN;
    default:
        return 128 + cause; /* a signal */
    }
}

/* out, halt and bell are open. */
static int run(worker *w, const worker_config *cfg)
{
    err e;
    int rc;
    err_clear(&e);
    status st = load(w, cfg, &e);
    if (st != ST_OK) {
        say_load_failed(w, &e);
        rc = WORKER_EXIT_LOAD_FAILED;
    } else if (serve(w, cfg, &e) != ST_OK) {
        log_emit(LOG_ERROR, "worker", "event=start_failed error=\"%s\"", e.msg);
        rc = WORKER_EXIT_BROKEN;
    } else {
        rc = WORKER_EXIT_OK;
    }
    output_close(w->out); /* waits until all is written, or the worker is halted */
    return rc == WORKER_EXIT_OK ? exit_status(halt_cause(&w->halt)) : rc;
}

/* A closed descriptor would be taken by the next file that is opened, and spoken to. */
static bool descriptors_open(const worker_config *cfg)
{
    return fcntl(cfg->in_fd, F_GETFD) >= 0 && fcntl(cfg->out_fd, F_GETFD) >= 0;
}

int worker_run(const worker_config *cfg)
{
    worker w;
    err e;
    int rc = WORKER_EXIT_BROKEN;
    memset(&w, 0, sizeof w);
    status st = descriptors_open(cfg) ? halt_open(&w.halt, &e)
                                      : err_set(&e, ST_IO, NULL, "input or output is not open");
    if (st != ST_OK) {
        log_emit(LOG_ERROR, "worker", "event=start_failed error=\"%s\"", e.msg);
        return rc;
    }
    st = bell_open(&w.bell, &e);
    if (st == ST_OK) {
        st = output_open(cfg->out_fd, &w.halt, &w.bell, &w.out, &e);
        if (st == ST_OK) {
            rc = run(&w, cfg);
        }
        sessions_free(w.sessions);
        instance_close(w.model);
        inbox_free(w.inbox);
        ivec_release(&w.prefix);
        bell_close(&w.bell);
    }
    if (st != ST_OK) {
        log_emit(LOG_ERROR, "worker", "event=start_failed error=\"%s\"", e.msg);
    }
    halt_close(&w.halt);
    return rc;
}
