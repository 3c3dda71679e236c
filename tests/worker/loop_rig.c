#include "worker/loop_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

#define PATIENCE_NAPS 20000

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "loop_rig: %s\n", what);
        abort();
    }
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* After a prompt that ends in the mark the bytes of `says`, then the end token. */
static int32_t say(void *ctx, const int32_t *tokens, size_t n)
{
    const loop_rig *r = ctx;
    size_t at = n;
    while (at > 0 && tokens[at - 1] != r->mark) {
        at--;
    }
    size_t k = n - at;
    return k < strlen(r->says) ? (unsigned char)r->says[k] : r->eos;
}

static void open_engine(loop_rig *r)
{
    rig_config cfg = rig_config_default();
    r->tok = byte_tokenizer_open(&r->eos);
    cfg.tok = r->tok;
    cfg.max_sequences = RIG_LANES;
    cfg.prewarm = true; /* as an instance does */
    cfg.n_pages = r->n_pages ? r->n_pages : cfg.n_pages;
    cfg.before_step = loop_before_step;
    cfg.before_step_ctx = r->page;
    rig_open(&r->engine, &cfg);
    r->engine.model.script = say;
    r->engine.model.script_ctx = r;
}

static void open_control(loop_rig *r)
{
    int fds[2];
    char text[16];
    must(pipe(fds) == 0, "no pipe");
    snprintf(text, sizeof text, "%d", fds[0]);
    control_open(&r->control, text);
    r->control_to = fds[1];
    must(r->control.supported, "no control pipe");
}

static void open_still(loop_rig *r)
{
    open_control(r);
    must(status_page_open(-1, &r->page, NULL) == ST_OK, "no page");
    open_engine(r);
    must(pipe2(r->ends, O_CLOEXEC) == 0, "no pipe");
    must(fcntl(r->ends[0], F_SETPIPE_SZ, 1 << 20) > 0, "no large pipe");
    must(fcntl(r->ends[0], F_SETFL, O_NONBLOCK) == 0, "no mode");
    must(halt_open(&r->halt, NULL) == ST_OK && bell_open(&r->bell, NULL) == ST_OK, "no bell");
    must(output_open(r->ends[1], &r->halt, &r->bell, &r->out, NULL) == ST_OK, "no output");
    must(sessions_new(r->engine.en, 2, &r->sessions) == ST_OK, "no sessions");
    must(inbox_new(&r->bell, &r->box, NULL) == ST_OK, "no inbox");
    must(tasks_open(&r->tasks, r->box, TASKS_URGENT_PER_LANE * RIG_LANES) == ST_OK, "no tasks");
    must(chat_template_new(r->chat_source, r->chat_source ? strlen(r->chat_source) : 0, r->tok, &r->chat,
                           NULL) == ST_OK,
         "no chat template");
    must(turns_new(TURNS_DEFAULT_BYTES, &r->kept) == ST_OK, "no memory");
    prepare_with with = {r->tok,  &r->prefix, r->engine.cfg.n_ctx, r->chat, NULL, &r->engine.clock.src,
                         r->kept, r->saved};
    must(preparer_new(&with, &r->bell, r->page, &r->preparer, NULL) == ST_OK, "no preparer");
    r->loop = (loop){
        .desk = {.en = r->engine.en,
                 .tok = r->tok,
                 .chat = r->chat,
                 .clock = &r->engine.clock.src,
                 .n_ctx = r->engine.cfg.n_ctx,
                 .n_lanes = RIG_LANES,
                 .kept = r->kept,
                 .saved = r->saved,
                 .sessions = r->sessions,
                 .tasks = &r->tasks,
                 .out = r->out,
                 .halt = &r->halt,
                 .control = &r->control,
                 .page = r->page},
        .box = r->box,
        .preparer = r->preparer,
        .bell = &r->bell,
        .slow_reader_ms = 120000,
    };
}

void loop_rig_open_still(loop_rig *r, const char *says)
{
    memset(r, 0, sizeof *r);
    r->says = says;
    r->mark = '>';
    open_still(r);
}

void loop_rig_open_small(loop_rig *r, const char *says, size_t n_pages)
{
    memset(r, 0, sizeof *r);
    r->says = says;
    r->mark = '>';
    r->n_pages = n_pages;
    open_still(r);
}

void loop_rig_open_saving(loop_rig *r, const char *says, const saved *where)
{
    memset(r, 0, sizeof *r);
    r->says = says;
    r->mark = '>';
    r->saved = where;
    open_still(r);
}

void loop_rig_open_chat(loop_rig *r, const char *says, const char *chat_source)
{
    memset(r, 0, sizeof *r);
    r->says = says;
    r->mark = RIG_CHAT_MARK;
    r->chat_source = chat_source;
    open_still(r);
    loop_rig_start_preparer(r);
    loop_rig_start_writer(r);
}

void loop_rig_start_preparer(loop_rig *r)
{
    must(preparer_start(r->preparer, NULL) == ST_OK, "no preparing thread");
    r->preparing = true;
}

void loop_rig_start_writer(loop_rig *r)
{
    must(output_start(r->out, r->page, NULL) == ST_OK, "no writer");
    r->writing = true;
}

void loop_rig_open(loop_rig *r, const char *says)
{
    loop_rig_open_still(r, says);
    loop_rig_start_preparer(r);
    loop_rig_start_writer(r);
}

void loop_rig_close(loop_rig *r)
{
    loop_rig_forget(r);
    buf_release(&r->bytes);
    preparer_free(r->preparer);
    output_close(r->out);
    tasks_close(&r->tasks);
    turns_free(r->kept);
    sessions_free(r->sessions);
    inbox_free(r->box);
    ivec_release(&r->prefix);
    rig_close(&r->engine);
    chat_template_free(r->chat);
    tokenizer_free(r->tok);
    status_page_close(r->page);
    bell_close(&r->bell);
    halt_close(&r->halt);
    control_close(&r->control);
    close(r->control_to);
    close(r->ends[0]);
    close(r->ends[1]);
}

static void send_line(loop_rig *r, const char *line, const void *bytes, size_t n)
{
    inbox_item item = {.read_ns = clock_mono_ns(&r->engine.clock.src)};
    buf answer = {0};
    wire_limits limits = {tokenizer_n_vocab(r->tok), true};
    if (wire_request_decode(line, strlen(line), &limits, &item.request, &answer, NULL, NULL) != ST_OK) {
        item.request = NULL;
    }
    if (n > 0 && item.request) {
        must(item.request->attach_bytes == n, "another attachment is announced");
        item.request->attached = mem_alloc(n);
        memcpy(item.request->attached, bytes, n);
    }
    item.answer = buf_detach(&answer, &item.answer_len);
    must(inbox_push(r->box, &item) == ST_OK, "the inbox is full");
}

void loop_rig_send(loop_rig *r, const char *line)
{
    send_line(r, line, NULL, 0);
}

void loop_rig_send_attached(loop_rig *r, const char *line, const void *bytes, size_t n)
{
    send_line(r, line, bytes, n);
}

void loop_rig_run(loop_rig *r)
{
    for (int n = 0; n < PATIENCE_NAPS; n++) {
        if (!loop_turn(&r->loop)) {
            bool room_comes = r->writing && !output_has_room(r->out);
            if (!room_comes && (!r->preparing || r->tasks.n_preparing == 0)) {
                return;
            }
            bell_wait(&r->bell, &r->halt, 10);
        }
    }
    must(false, "it does not come to rest");
}

void loop_rig_turns(loop_rig *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        loop_turn(&r->loop);
    }
}

void loop_rig_wait_prepared(loop_rig *r)
{
    status_snapshot s;
    for (int n = 0; n < PATIENCE_NAPS; n++) {
        status_page_read(r->page, &s);
        if (s.row[STATUS_ROW_PREPARED] >= r->tasks.n_preparing) {
            return;
        }
        nap();
    }
    must(false, "texts are not prepared");
}

void loop_rig_fill_output(loop_rig *r)
{
    while (output_has_room(r->out)) {
        must(output_check(r->out, buf_append_str(output_stage(r->out), "{\"filler\":true}\n")), "no memory");
    }
    output_commit(r->out);
}

void loop_rig_cancel(loop_rig *r, uint64_t id)
{
    must(write(r->control_to, &id, sizeof id) == (ssize_t)sizeof id, "the control pipe is full");
    control_read(&r->control, output_written(r->out));
}

void loop_rig_hear(loop_rig *r)
{
    char chunk[65536];
    size_t at = r->bytes.len;
    for (int n = 0; r->writing && output_written(r->out) < output_said(r->out); n++) {
        must(n < PATIENCE_NAPS, "what is said is not written");
        nap();
    }
    for (ssize_t n; (n = read(r->ends[0], chunk, sizeof chunk)) > 0;) {
        must(buf_append(&r->bytes, chunk, (size_t)n) == ST_OK, "no memory");
    }
    const char *p = buf_str(&r->bytes) + at, *end;
    while ((end = memchr(p, '\n', (size_t)(buf_str(&r->bytes) + r->bytes.len - p))) != NULL) {
        err e;
        must(r->n_frames < RIG_MAX_FRAMES, "too many frames");
        if (frame_decode(p, (size_t)(end - p), &r->frames[r->n_frames], &e) != ST_OK) {
            fprintf(stderr, "loop_rig: %s: %.*s\n", e.msg, (int)(end - p), p);
            abort();
        }
        size_t n_attached = (size_t)r->frames[r->n_frames].attach_bytes;
        r->attached_at[r->n_frames] = (size_t)(end + 1 - buf_str(&r->bytes));
        if (r->frames[r->n_frames].kind == FRAME_UNKNOWN) { /* the filler */
            frame_release(&r->frames[r->n_frames]);
        } else {
            r->n_frames++;
        }
        p = end + 1 + n_attached;
    }
}

void loop_rig_forget(loop_rig *r)
{
    for (size_t i = 0; i < r->n_frames; i++) {
        frame_release(&r->frames[i]);
    }
    r->n_frames = 0;
    buf_reset(&r->bytes);
}

static bool is_of(const frame *f, const char *id)
{
    if (!id || !f->id.data) {
        return !id && !f->id.data;
    }
    return f->id.len == strlen(id) && memcmp(f->id.data, id, f->id.len) == 0;
}

const frame *loop_rig_last(const loop_rig *r, const char *id)
{
    for (size_t i = r->n_frames; i-- > 0;) {
        if (is_of(&r->frames[i], id)) {
            return &r->frames[i];
        }
    }
    return NULL;
}

size_t loop_rig_count(const loop_rig *r, const char *id)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_frames; i++) {
        n += is_of(&r->frames[i], id);
    }
    return n;
}

void loop_rig_reply(const loop_rig *r, const char *id, buf *text, ivec *ids)
{
    buf_reset(text);
    ivec_reset(ids);
    for (size_t i = 0; i < r->n_frames; i++) {
        const frame *f = &r->frames[i];
        if (is_of(f, id) && (f->kind == FRAME_TOKEN || f->kind == FRAME_DELTA)) {
            must(buf_append(text, f->text, f->text_len) == ST_OK, "no memory");
            must(ivec_append(ids, f->ids, f->n_ids) == ST_OK, "no memory");
        }
    }
}
