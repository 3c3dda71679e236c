/*
 * talk: a reply to a conversation as it is generated: its text taken apart into content, reasoning and calls, a
 * budget for reasoning, and the end that closing the last call makes. It is the engine's watcher of a chat
 * request; what it finds goes out as delta frames, one late, so that the ids of a step are in the last of its
 * frames (wire/frame.h).
 *
 * Everything here is a function of the ids generated so far: a reply that is replayed says the same.
 *
 * Reasoning tokens are those behind which the reply is inside reasoning and was so before. When `budget` of them
 * are generated the ids of the format's closing text are forced; a budget of 0 closes as soon as reasoning opens.
 *
 * Thread: the engine's. The request, the format and the ids are borrowed.
 */
#ifndef HEARTH_WORKER_TALK_H
#define HEARTH_WORKER_TALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/vec.h"
#include "engine/engine.h"
#include "text/reply_format.h"
#include "wire/frame.h"
#include "wire/request.h"
#include "worker/recall.h"

typedef struct talk_options {
    const wire_request *request;
    const reply_format *format;
    const buf *opening;    /* how the reply begins already, at the end of the prompt */
    bool reasoning_open;   /* before that */
    int32_t budget;        /* reasoning tokens; -1 = no limit */
    const ivec *close_ids; /* what ends reasoning */
    /* Says one frame. */
    void (*say)(void *ctx, const frame_step *s);
    void *ctx;
} talk_options;

typedef struct talk talk;

status talk_new(const talk_options *o, talk **out);
void talk_free(talk *t);

/* gen_sink's watch. */
status talk_watch(talk *t, gen_moment when, const char *text, size_t len, gen_verdict *v);
/* Says what waits, with the ids and logprobs of s, also if there is no text. */
void talk_say_ids(talk *t, const frame_step *s);
/* Says what waits, if anything does. */
void talk_say_rest(talk *t);
int32_t talk_reasoning_tokens(const talk *t);

/* Keeps a reply that has ended (recall.h). It is taken apart a second time: nothing is gathered while it runs. */
status talk_keep(const talk *t, const tokenizer *tok, const recall *before, const int32_t *ids, size_t n_ids);

#endif
