/*
 * loop_rig: the engine thread's side of a worker on a scripted model, with a clock that stands still, and what
 * it says read back through the daemon's decoder. Lines go in by rig_send, frames come out by rig_heard; in
 * between the test decides when a turn is made, when texts are prepared and when the output is written.
 *
 * The model answers a prompt that ends in '>' with the bytes of `says`, then the end token (byte b is id b).
 * A rig that does not stand ends the program.
 */
#ifndef HEARTH_TESTS_WORKER_LOOP_RIG_H
#define HEARTH_TESTS_WORKER_LOOP_RIG_H

#include "engine/engine_rig.h"
#include "wire/frame.h"
#include "worker/loop.h"

#define RIG_LANES      2
#define RIG_MAX_FRAMES 4096
#define RIG_CHAT_MARK  '~' /* of loop_rig_open_chat; a forced token stands for the one said there */

typedef struct loop_rig {
    engine_rig engine;
    const char *says;
    int32_t mark;            /* it is said behind the last of these bytes */
    const char *chat_source; /* NULL: the built-in layout */
    size_t n_pages;          /* 0 = rig_config_default's */
    chat_template *chat;
    tokenizer *tok;
    int32_t eos;
    halt halt;
    bell bell;
    control control;
    int control_to; /* the cancel pipe's other end */
    int ends[2];    /* of the output: ours to read, the writer's */
    output *out;
    turns *kept;
    const saved *saved; /* borrowed; NULL = there is no store */
    sessions *sessions;
    inbox *box;
    tasks tasks;
    preparer *preparer;
    bool preparing; /* the thread runs */
    bool writing;   /* likewise */
    status_page *page;
    ivec prefix;
    loop loop;
    /* What was said, in order, since the last loop_rig_forget. */
    buf bytes;
    frame frames[RIG_MAX_FRAMES];
    size_t attached_at[RIG_MAX_FRAMES]; /* in bytes, of those with an attachment */
    size_t n_frames;
} loop_rig;

/* RIG_LANES lanes, two named sessions; texts are prepared and output is written at once. */
void loop_rig_open(loop_rig *r, const char *says);
/* The same, but with neither thread running yet. */
void loop_rig_open_still(loop_rig *r, const char *says);
/* As loop_rig_open, with a chat template. */
void loop_rig_open_chat(loop_rig *r, const char *says, const char *chat_source);
/* As loop_rig_open_still, with so many pages. */
void loop_rig_open_small(loop_rig *r, const char *says, size_t n_pages);
/* As loop_rig_open_still, with a folder for saved sessions. */
void loop_rig_open_saving(loop_rig *r, const char *says, const saved *where);
void loop_rig_start_preparer(loop_rig *r);
void loop_rig_start_writer(loop_rig *r);
void loop_rig_close(loop_rig *r); /* nothing may run; engine_rig's checks of pages, model and bugs */

void loop_rig_send(loop_rig *r, const char *line);
/* The same with n bytes behind the line, as many as it says. */
void loop_rig_send_attached(loop_rig *r, const char *line, const void *bytes, size_t n);
/* Turns until nothing can go on by itself: as the loop does, without its waiting for time. */
void loop_rig_run(loop_rig *r);
void loop_rig_turns(loop_rig *r, size_t n);
/* Waits until the preparer is done with all that it was ever given, none of which was taken back; no turn. */
void loop_rig_wait_prepared(loop_rig *r);
/* Commits so much that the output has no room (only before the writer is started). */
void loop_rig_fill_output(loop_rig *r);
/* The control pipe: one id, and what the reader thread would do with it. */
void loop_rig_cancel(loop_rig *r, uint64_t id);

/* Reads what is written by now (waits until all that was said is) and decodes it. */
void loop_rig_hear(loop_rig *r);
void loop_rig_forget(loop_rig *r);
/* After hearing: the last frame that carries this id (NULL = plain), or NULL. */
const frame *loop_rig_last(const loop_rig *r, const char *id);
size_t loop_rig_count(const loop_rig *r, const char *id); /* frames with this id */
/* Joined text of its token and delta frames, and their ids. */
void loop_rig_reply(const loop_rig *r, const char *id, buf *text, ivec *ids);

#endif
