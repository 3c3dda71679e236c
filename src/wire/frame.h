/*
 * frame: what a worker says, one JSON object per line: encoders for the worker, one decoder for the daemon
 * (PROTOCOL 1, 2 and 4).
 *
 * An encoder appends exactly one whole line, '\n' included, or (ST_NOMEM) leaves the buffer as it was. An id
 * with data NULL (WIRE_NO_ID) means the plain dialect; otherwise the frame begins with the id.
 * Strings are repaired to valid UTF-8. Clients tell frames apart by the keys `token`, `done`, `error`, in
 * this order, so no other key has these names and no statistic takes a name that the protocol uses:
 * FRAME_KEYS and FRAME_STATISTICS are the only keys an encoder can write, and a name that is in both, or
 * twice in one, does not compile.
 *
 * Pure functions: any thread. Ownership: encoders borrow all; a decoded frame owns its document and its
 * arrays, and the strings in it live until frame_release.
 */
#ifndef HEARTH_WIRE_FRAME_H
#define HEARTH_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"
#include "wire/text.h"

#define WIRE_PROTOCOL 2

/* Numbers of the stats frame, all uint64_t. */
/* clang-format off */
#define FRAME_STATS_NUMBERS(X)                                                                               \
    X(lanes) X(lanes_live) X(sessions) X(pages_total) X(pages_used) X(queued) X(running) X(steps)            \
    X(tokens_prefilled) X(tokens_generated) X(tokens_reused) X(requests_done) X(requests_failed)             \
    X(requests_cancelled) X(lanes_idle) X(lanes_tracked) X(lanes_created) X(lanes_destroyed)                 \
    X(largest_tokens) X(total_tokens) X(tokens_evaluated) X(tokens_recomputed) X(tokens_restored) X(parked)  \
    X(preempted)

/* What a model file says of how it wants to be sampled, by the names of the request's fields. */
#define FRAME_SAMPLING_NUMBERS(X)                                                                            \
    X(temperature) X(top_p) X(top_k) X(min_p) X(repetition_penalty) X(repeat_last_n)

/* Names with a meaning in the protocol, both dialects. */
#define FRAME_KEYS(X)                                                                                        \
    X(token) X(done) X(error) X(id) X(code) X(field) X(value) X(session_id) X(opened) X(closed) X(reset)     \
    X(prompt_tokens) X(completion_tokens) X(finish_reason) X(reused_prompt_tokens)                           \
    X(prefilled_prompt_tokens) X(session_reset_reason) X(prefill_ms) X(decode_ms) X(total_ms)                \
    X(prefill_tok_s) X(decode_tok_s) X(seed) X(reason) X(generated_token_ids) X(cancelled) X(guard)          \
    X(limit) X(need) X(have) X(path) X(retry_after) X(ready) X(max_sessions) X(max_named_sessions)           \
    X(supports_cancel) X(protocol) X(pid) X(model) X(name) X(arch) X(quant) X(params) X(digest)              \
    X(context_length) X(vocab_size) X(modalities) X(capabilities) X(kernels) X(kv_pages) X(accepted)         \
    X(delta) X(content) X(reasoning) X(tool_call) X(index) X(arguments_delta) X(withdrawn) X(ids) X(logprobs) X(prompt_logprobs) X(logprob) X(text) X(bytes) X(top)             \
    X(progress) X(cached) X(processed) X(attach) X(embedding) X(now) X(prompt_digest) X(prompt_ids)          \
    X(cached_prompt_tokens) X(pieces) X(count) X(session) X(known) X(tokens) X(dirty) X(busy) X(stats)       \
    X(draining) X(rows) X(active) X(sampling) X(prewarmed) X(prefilled) X(probe) X(export) X(import) X(saved) \
    X(restored) X(dropped) X(from) X(in_memory) X(stored) X(kv_limit) X(pages) X(kv_page_bytes) FRAME_SAMPLING_NUMBERS(X) FRAME_STATS_NUMBERS(X)

/* Extra statistics of a done frame. */
#define FRAME_STATISTICS(X)                                                                                  \
    X(queue_ms) X(ttft_ms) X(tail_repaired) X(cache_miss) X(at) X(preemptions) X(drafted) X(reasoning_tokens)
/* clang-format on */

enum frame_key {
#define X(name) FRAME_KEY_##name,
    FRAME_KEYS(X) FRAME_STATISTICS(X) FRAME_KEY_COUNT
#undef X
};

typedef enum frame_sampling_number {
#define X(name) FRAME_SAMPLING_##name,
    FRAME_SAMPLING_NUMBERS(X)
#undef X
        FRAME_SAMPLING_COUNT
} frame_sampling_number;

typedef struct frame_sampling {
    unsigned said; /* bit n: value[n] is the model's; zero: it says nothing */
    double
        value[FRAME_SAMPLING_COUNT]; /* decoded: in the range of the request's field, else it is not said */
} frame_sampling;

typedef struct frame_ready {
    int32_t max_sessions; /* slots, the anonymous one included, >= 1; one less are named */
    bool supports_cancel;
    int32_t protocol;
    int64_t pid;
    const char *name, *arch, *quant;
    uint64_t params;
    const char *digest; /* hex SHA-256 of the file, NULL = not computed (the key is left out) */
    int32_t context_length;
    int32_t vocab_size;
    frame_sampling sampling; /* left out if nothing is said */
    const char *kernels;
    uint64_t kv_pages;      /* reserved: what kv_limit may give it */
    uint64_t kv_page_bytes; /* of each; decoded: 0 = it was not said */
} frame_ready;

typedef struct frame_accepted {
    uint64_t seed; /* the one in force, never 0 */
    int64_t now_ms;
    int32_t prompt_tokens;
    const char *prompt_digest; /* SHA256_HEX_LEN digits: frame_prompt_digest */
    int32_t cached_prompt_tokens;
    /* [prompt_tokens] where the request alone does not say them (something of its conversation was remembered): what
     * `resume` has to send along. NULL: left out. */
    const int32_t *prompt_ids;
} frame_accepted;

/* One position: the token there and, unless it is itself one, the alternatives to it. */
typedef struct frame_logprob {
    int32_t token;
    double logprob;   /* written so that the same float is read back; not finite: the most negative float */
    wire_string text; /* raw bytes of its piece; what is not UTF-8 goes over the wire as `bytes` too */
    const struct frame_logprob *top; /* alternatives, best first; NULL inside an alternative */
    size_t n_top;
} frame_logprob;

typedef enum frame_delta_kind {
    FRAME_DELTA_CONTENT,
    FRAME_DELTA_REASONING,
    FRAME_DELTA_CALL
} frame_delta_kind;

/* What a delta says of one call. Each call has a first delta, with id and name; then come its arguments, which
 * joined are one JSON object; then `closed`. `withdrawn` may come instead or after it: what looked like a call
 * was none, all said of it is void and its text follows as content. A call that is neither when the reply ends
 * was cut. Calls are counted from 0 in `index`, and a withdrawn one's number is not used again. */
typedef struct frame_call {
    int32_t index;
    wire_string id, name;  /* in the first delta of a call; data NULL in the others */
    wire_string arguments; /* may be empty */
    bool closed, withdrawn;
} frame_call;

/* What one step says. The deltas of a step that says several things come in frames of their own, in order; its
 * ids (and logprobs) are in the last of them. So deltas without ids belong to the next frame with ids or, at the
 * end, to the done frame. */
typedef struct frame_step {
    wire_string text;      /* may be empty; the plain dialect never sends an empty one */
    frame_delta_kind kind; /* of a delta */
    frame_call call;       /* FRAME_DELTA_CALL: in place of text */
    const int32_t *ids;    /* multiplexed: generated ids that this step processed */
    size_t n_ids;
    const frame_logprob *logprobs; /* [n_ids], or NULL: not asked for (the key is left out) */
} frame_step;

typedef struct frame_progress {
    int32_t prompt_tokens, cached, processed; /* cached ones are processed ones too */
} frame_progress;

typedef struct frame_done {
    int32_t prompt_tokens, completion_tokens;
    int32_t reused_prompt_tokens, prefilled_prompt_tokens;
    const char *finish_reason; /* "stop" or "length" */
    const char *reason;        /* the true one */
    const char *guard;         /* what cut the reply, "" = none (the key is left out) */
    const char *session_reset_reason;
    double prefill_ms, decode_ms, total_ms; /* the rates are computed from these */
    double queue_ms, ttft_ms;
    uint64_t seed;      /* the one in force, never 0 */
    bool has_ids;       /* plain: false after a stop-string cut or a cancel */
    const int32_t *ids; /* plain: [completion_tokens] generated tokens; NULL in a decoded frame */
    bool cancelled;
    bool tail_repaired; /* an unfinished last character became U+FFFD */
    /* multiplexed only; absent ones are read as 0 */
    int32_t cached_prompt_tokens;  /* decoded only: written is reused_prompt_tokens */
    const char *cache_miss_reason; /* NULL or "" = no miss (the key is left out) */
    int32_t cache_miss_at;         /* position of the first token that differs */
    int32_t preemptions, drafted, accepted, reasoning_tokens;
} frame_done;

#define FRAME_NO_NUMBER (-1)

typedef struct frame_error {
    wire_string id;    /* of the refused line; WIRE_NO_ID = plain, or it had none that is a string */
    status code;       /* its wire name; what is not public is `internal` */
    const char *msg;   /* one line */
    const char *field; /* "" = none */
    bool has_value;    /* `value` is the value at fault (NULL = null): long ones are abridged */
    const json *value;
    int64_t prompt_tokens, limit; /* FRAME_NO_NUMBER = absent, these five */
    int64_t need, have;
    int64_t retry_after;    /* seconds */
    const char *path;       /* NULL or "" = absent */
    bool has_session;       /* the answer carries session_id */
    const char *session_id; /* NULL = null: the line named none that is a string */
    size_t session_id_len;
} frame_error;

/* An error without any extra: code, message and field from e. */
frame_error frame_error_of(const err *e);

typedef struct frame_session {
    wire_string session_id;
    bool known;     /* false: all else is 0 */
    int64_t tokens; /* resident */
    bool dirty;
    bool busy; /* a request runs on it or waits for it */
} frame_session;

/* What there is of a session's tokens: the answers to prewarm, probe, export, import, save, restore and drop. What a
 * kind does not say is 0, a string data NULL. */
typedef struct frame_extent {
    wire_string session_id;
    wire_string name; /* saved, restored, dropped */
    int64_t tokens;   /* that the session knows; saved, restored and dropped: that are saved under the name */
    int64_t from, count;       /* probe, export, import: the range */
    int64_t in_memory, stored; /* probe: how many of the range, from its start on without a hole */
    int64_t prefilled;         /* prewarmed: that had to be computed */
} frame_extent;

/* One lane that may be. */
typedef struct frame_lane {
    uint64_t index;
    bool active;            /* it has an owner: all else is of that */
    wire_string session_id; /* of a named session; data NULL: the owner has no name (the key is left out) */
    uint64_t tokens;        /* resident */
} frame_lane;

typedef struct frame_stats {
#define X(name) uint64_t name;
    FRAME_STATS_NUMBERS(X)
#undef X
    bool draining;
    const frame_lane *rows; /* borrowed; decoded: the frame's */
    size_t n_rows;
} frame_stats;

typedef struct frame_kv_limit {
    uint64_t pages; /* that may be in use from now on */
    uint64_t pages_used;
} frame_kv_limit;

typedef enum frame_kind {
    FRAME_UNKNOWN, /* an object without any of the keys below: a later protocol */
    FRAME_TOKEN,
    FRAME_DONE,
    FRAME_ERROR,
    FRAME_READY,
    FRAME_OPENED,
    FRAME_CLOSED,
    FRAME_RESET,
    /* multiplexed only: they need an id */
    FRAME_ACCEPTED,
    FRAME_DELTA,
    FRAME_PROMPT_LOGPROBS,
    FRAME_PROGRESS,
    FRAME_TOKENS,
    FRAME_TEXT,
    FRAME_COUNT,
    FRAME_SESSION_INFO,
    FRAME_STATS,
    /* frame_extent */
    FRAME_PREWARMED,
    FRAME_PROBE,
    FRAME_EXPORT, /* decoded: attach_bytes > 0 (kv/exchange.h) */
    FRAME_IMPORT,
    FRAME_SAVED,
    FRAME_RESTORED,
    FRAME_DROPPED,
    FRAME_KV_LIMIT
} frame_kind;

/* Both dialects. */
status frame_put_ready(buf *out, const frame_ready *r);
status frame_put_token(buf *out, wire_string id, const frame_step *s); /* plain: {"token"}, nothing else */
/* Multiplexed: without generated_token_ids and with the statistics of that dialect. */
status frame_put_done(buf *out, wire_string id, const frame_done *d);
status frame_put_error(buf *out, const frame_error *e);
/* kind: FRAME_OPENED, FRAME_CLOSED or FRAME_RESET. */
status frame_put_session(buf *out, wire_string id, frame_kind kind, wire_string session_id);
/* A value at fault, abridged: scalars as they are, of a string the beginning, of a container only what it is.
 */
void frame_put_value(json_w *w, const json *v);

/* Multiplexed: id is never WIRE_NO_ID. */
status frame_put_accepted(buf *out, wire_string id, const frame_accepted *a);
/* Lower-case hex of SHA-256 over the ids as little-endian int32, and a NUL. */
status frame_prompt_digest(const int32_t *ids, size_t n, char hex[SHA256_HEX_LEN + 1]);
/* {"delta":{"content" | "reasoning" | "tool_call"},"ids", …} */
status frame_put_delta(buf *out, wire_string id, const frame_step *s);
/* lp[i] is about prompt token i + 1; what is written begins with a null for token 0. */
status frame_put_prompt_logprobs(buf *out, wire_string id, const frame_logprob *lp, size_t n);
status frame_put_progress(buf *out, wire_string id, const frame_progress *p);
status frame_put_tokens(buf *out, wire_string id, const int32_t *ids, const wire_string *pieces, size_t n);
status frame_put_text(buf *out, wire_string id, wire_string text);
status frame_put_rendered(buf *out, wire_string id, wire_string text,
                          int64_t count); /* decoded: FRAME_TEXT */
status frame_put_count(buf *out, wire_string id, int64_t count);
status frame_put_session_info(buf *out, wire_string id, const frame_session *s);
status frame_put_kv_limit(buf *out, wire_string id, const frame_kv_limit *k);
status frame_put_stats(buf *out, wire_string id, const frame_stats *s);
/* kind: FRAME_PREWARMED … FRAME_DROPPED. The line of FRAME_EXPORT is to get its bytes by line_attach. */
status frame_put_extent(buf *out, wire_string id, frame_kind kind, const frame_extent *x);

typedef struct frame {
    frame_kind kind;
    wire_string id;         /* data NULL if absent */
    wire_string session_id; /* data NULL if absent */
    const char *text; /* token, delta, text: the text ("" in a delta of a call); error: the message; else
                               NULL. May hold NULs. */
    size_t text_len;
    frame_delta_kind delta; /* delta */
    frame_call call;        /* FRAME_DELTA_CALL */
    const int32_t *ids;     /* token and delta (plain: none), tokens */
    size_t n_ids;
    const frame_logprob *logprobs; /* token and delta: [n_ids] or NULL; prompt_logprobs: from token 1 on */
    size_t n_logprobs;
    const wire_string *pieces; /* tokens: [n_ids] */
    uint64_t attach_bytes;     /* so many raw bytes follow the line, <= WIRE_MAX_ATTACH_BYTES; 0 = none */
    const char *attached;      /* these bytes, put here by who reads them (borrowed); else NULL */
    /* error */
    status code;                                           /* ST_INTERNAL if the code is absent or unknown */
    const char *field;                                     /* "" if absent */
    bool has_value;                                        /* `value` is present (NULL = null) */
    const json *value;                                     /* borrowed from doc */
    int64_t prompt_tokens, limit, need, have, retry_after; /* FRAME_NO_NUMBER if absent */
    const char *path;                                      /* "" if absent */

    frame_accepted accepted;
    frame_progress progress;
    frame_done done;
    frame_ready ready;
    int64_t count; /* count; text: of a rendered conversation, else FRAME_NO_NUMBER */
    frame_session session;
    frame_stats stats;
    frame_extent extent;
    frame_kv_limit kv_limit;

    /* owned */
    json_doc *doc;
    arena mem; /* the arrays */
} frame;

/* line: one line without its '\n'. A worker is not trusted: ST_BAD_REQUEST if it is not exactly one JSON
 * object, or a known frame lacks a field or has one of the wrong type or out of its range: the peer broke the
 * protocol. Also an id that is not a string, and a multiplexed frame without one. Unknown fields are ignored.
 * *out is written only on ST_OK. Memory is bounded by the line. */
status frame_decode(const char *line, size_t len, frame *out, err *e);
void frame_release(frame *f);

#endif
