/*
 * frame: what a worker says, one JSON object per line: encoders for the worker, one decoder for the daemon
 * (PROTOCOL 1 and 2, plain dialect).
 *
 * An encoder appends exactly one whole line, '\n' included, or (ST_NOMEM) leaves the buffer as it was.
 * Strings are repaired to valid UTF-8. Clients tell frames apart by the keys `token`, `done`, `error`, in
 * this order, so no other key has these names and no statistic takes a name that the protocol uses:
 * FRAME_KEYS and FRAME_STATISTICS are the only keys an encoder can write, and a name that is in both, or
 * twice in one, does not compile.
 *
 * Pure functions: any thread. Ownership: encoders borrow all; a decoded frame owns its document, and the
 * strings in it live until frame_release.
 */
#ifndef HEARTH_WIRE_FRAME_H
#define HEARTH_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

#define WIRE_PROTOCOL 2

/* Names with a meaning in the protocol, both dialects. */
/* clang-format off */
#define FRAME_KEYS(X)                                                                                        \
    X(token) X(done) X(error) X(id) X(code) X(field) X(value) X(session_id) X(opened) X(closed) X(reset)     \
    X(prompt_tokens) X(completion_tokens) X(finish_reason) X(reused_prompt_tokens)                           \
    X(prefilled_prompt_tokens) X(session_reset_reason) X(prefill_ms) X(decode_ms) X(total_ms)                \
    X(prefill_tok_s) X(decode_tok_s) X(seed) X(reason) X(generated_token_ids) X(cancelled) X(guard)          \
    X(limit) X(need) X(have) X(path) X(retry_after) X(ready) X(max_sessions) X(max_named_sessions)           \
    X(supports_cancel) X(protocol) X(pid) X(model) X(name) X(arch) X(quant) X(params) X(digest)              \
    X(context_length) X(vocab_size) X(modalities) X(capabilities) X(kernels) X(kv_pages) X(accepted)         \
    X(delta) X(ids) X(logprobs) X(prompt_logprobs) X(progress) X(attach) X(embedding)

/* Extra statistics of a done frame. */
#define FRAME_STATISTICS(X) X(queue_ms) X(ttft_ms) X(tail_repaired)
/* clang-format on */

enum frame_key {
#define X(name) FRAME_KEY_##name,
    FRAME_KEYS(X) FRAME_STATISTICS(X) FRAME_KEY_COUNT
#undef X
};

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
    const char *kernels;
    uint64_t kv_pages;
} frame_ready;

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
    bool has_ids;       /* false after a stop-string cut or a cancel */
    const int32_t *ids; /* [completion_tokens] generated tokens; NULL in a decoded frame */
    bool cancelled;
    bool tail_repaired; /* an unfinished last character became U+FFFD */
} frame_done;

#define FRAME_NO_NUMBER (-1)

typedef struct frame_error {
    status code;       /* its wire name; what is not public is `internal` */
    const char *msg;   /* one line */
    const char *field; /* "" = none */
    bool has_value;    /* `value` is the value at fault (NULL = null): long ones are abridged */
    const json *value;
    int64_t prompt_tokens, limit; /* FRAME_NO_NUMBER = absent */
    bool has_session;             /* the answer carries session_id */
    const char *session_id;       /* NULL = null: the line named none that is a string */
    size_t session_id_len;
    const char *id; /* of the refused line, NULL = absent */
    size_t id_len;
} frame_error;

/* An error without any extra: code, message and field from e. */
frame_error frame_error_of(const err *e);

status frame_put_ready(buf *out, const frame_ready *r);
status frame_put_token(buf *out, const char *text, size_t len);
status frame_put_done(buf *out, const frame_done *d);
status frame_put_error(buf *out, const frame_error *e);
/* A value at fault, abridged: scalars as they are, of a string the beginning, of a container only what it is.
 */
void frame_put_value(json_w *w, const json *v);

typedef enum frame_kind {
    FRAME_UNKNOWN, /* an object without any of the keys below: a later protocol */
    FRAME_TOKEN,
    FRAME_DONE,
    FRAME_ERROR,
    FRAME_READY,
    FRAME_OPENED,
    FRAME_CLOSED,
    FRAME_RESET
} frame_kind;

/* kind: FRAME_OPENED, FRAME_CLOSED or FRAME_RESET. */
status frame_put_session(buf *out, frame_kind kind, const char *session_id, size_t len);

typedef struct frame {
    frame_kind kind;
    json_doc *doc;    /* owned */
    const char *text; /* FRAME_TOKEN: the piece; FRAME_ERROR: the message; else NULL. May hold NUL bytes. */
    size_t text_len;
    const char *id; /* NULL if absent */
    size_t id_len;
    const char *session_id; /* NULL if absent */
    size_t session_id_len;
    status code;                  /* FRAME_ERROR: ST_INTERNAL if the code is absent or unknown */
    const char *field;            /* FRAME_ERROR: "" if absent */
    int64_t prompt_tokens, limit; /* FRAME_ERROR: FRAME_NO_NUMBER if absent */
    frame_done done;
    frame_ready ready;
} frame;

/* line: one line without its '\n'. ST_BAD_REQUEST if it is not exactly one JSON object, or a known frame
 * lacks a field or has one of the wrong type: the peer broke the protocol. *out is written only on ST_OK. */
status frame_decode(const char *line, size_t len, frame *out, err *e);
void frame_release(frame *f);

#endif
