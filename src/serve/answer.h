/*
 * answer: the objects that /v1/completions and /v1/chat/completions answer with: chunks of a stream, its
 * usage, and the whole. What the two routes write differently is an answer_shape (completion.h, chat.h).
 *
 * finish_reason is OpenAI's: stop, length or (of a chat) tool_calls; the true reason stands in `hearth.finish`
 * (these, timeout, cancelled), with its guard. `hearth` is what the API has no name for: of the one choice, or of the first,
 * and then `choices` has one for each.
 *
 * Pure functions, any thread; all is borrowed. An appender that fails (ST_NOMEM) leaves out as it was.
 */
#ifndef HEARTH_SERVE_ANSWER_H
#define HEARTH_SERVE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "serve/logprobs.h"
#include "serve/speech.h"
#include "wire/frame.h"

typedef struct answer_choice {
    size_t index;
    const char *text; /* all of it, or what a chunk adds */
    size_t text_len;
    speech_kind kind;       /* of a chunk: what its text is; SPEECH_CALL: `call` says it */
    const frame_call *call; /* of a chunk: the call that begins (its name is told), or goes on */
    const char *thoughts;   /* of the whole: its reasoning */
    size_t thoughts_len;
    const speech *said;           /* of the whole: its calls; NULL = none */
    const logprob_list *logprobs; /* NULL: not asked for, or none in this chunk */
    const char *finish_reason;    /* NULL: it goes on */
    bool first;                   /* chunk of a stream: the choice begins */
} answer_choice;

typedef struct answer_shape {
    const char *id_prefix;
    const char *object, *chunk_object;
    bool is_chat; /* shape of log probabilities, details in usage */
    void (*put_text)(json_w *w,
                     const answer_choice *c); /* the members that hold the text of a whole choice */
    void (*put_delta)(json_w *w, const answer_choice *c); /* and of a chunk */
} answer_shape;

typedef struct answer_head {
    const answer_shape *shape;
    const char *id, *model;
    int64_t created_s;
} answer_head;

typedef struct answer_result { /* how a choice ended */
    char reason[16], guard[32];
    uint64_t seed; /* as on the wire */
    int32_t prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens;
    int32_t preemptions;   /* how often its pages served others */
    char reset_reason[16]; /* of a turn of a session: what became of what it held; "" = no session */
    char miss_reason[16];  /* why not all that was known was at hand; "" = it was */
    int32_t miss_at;       /* the first position that was computed though it was known */
    double queue_ms, ttft_ms, prefill_ms, decode_ms, total_ms;
} answer_result;

/* Strings are copied, cut to fit. */
void answer_result_of(answer_result *out, const frame_done *d);
/* A choice that ends without its done frame: reason is timeout or cancelled; seed and tokens stay, as far as they were known. */
void answer_result_cut(answer_result *out, const char *reason);
const char *answer_finish_reason(const answer_result *r); /* "stop", "length" or "tool_calls" */
/* "seed", "queue_ms" …, as they stand in `hearth`. */
void answer_put_own(json_w *w, const answer_result *results, size_t n);

/* A chunk. result: of the choice that ends with it, else NULL; usage_null: usage was asked for and comes later. */
status answer_put_chunk(buf *out, const answer_head *h, const answer_choice *c, const answer_result *result,
                        bool usage_null);
/* The last chunk if usage was asked for: no choices. n results, per_prompt of them for each prompt: its tokens
 * count once. */
status answer_put_usage(buf *out, const answer_head *h, const answer_result *results, size_t n,
                        size_t per_prompt);
status answer_put_whole(buf *out, const answer_head *h, const answer_choice *choices,
                        const answer_result *results, size_t n, size_t per_prompt);

#endif
