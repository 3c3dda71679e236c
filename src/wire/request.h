/*
 * request: one line that a worker reads, decoded and checked; and the encoder of the daemon's lines
 * (PROTOCOL 2 and 4). A line with a key `id` belongs to the multiplexed dialect, any other to the plain one.
 *
 * wire_request_decode gives a request, or the one error frame that answers the line. Checked is everything
 * that needs no model but its vocabulary size: exactly one JSON object, the op, presence, type and range of
 * each field (null is a wrong type, a float literal is no integer). What needs the model (empty prompt,
 * context) is the worker's.
 * Plain: unknown fields are ignored. Multiplexed: unknown fields are errors that name them, an id that is not
 * a string of 1 to WIRE_MAX_ID_BYTES bytes is one, a line longer than WIRE_MAX_MUX_LINE_BYTES (one with
 * `resume`: WIRE_MAX_RESUME_LINE_BYTES) is one, and every error frame carries the id if that is a string.
 * What PROTOCOL 4 has and this build has not is refused by name with ST_UNSUPPORTED: the fields in
 * request_fields.c without a reader (grammar, response_format …) and the ops embed, score and adapter. An attachment has
 * a place in `session import` only.
 *
 * op            fields besides op and id                                   answer
 * generate      as plain (no cancel_request_id) + the sampling fields      accepted, token …, done
 * chat          a conversation + the same (no prompt, prompt_segments,     accepted, delta …, done
 *               add_special)
 * tokenize      text, add_special (false), parse_special (true)            {id, ids, pieces}
 * detokenize    ids                                                        {id, text}
 * count         one of text (as tokenize), messages (a conversation, as    {id, count}
 *               chat lays it out)
 * render        a conversation                                             {id, text, count}
 * session       session_id, cache_namespace, action: get | reset | close   {id, session} | {id, reset} |
 *                                                                          {id, closed}
 *                   | prewarm                                              {id, prewarmed}
 *                   | probe, from (0), count (to the end)                  {id, probe}
 *                   | export, from, count                                  {id, export} and bytes
 *                   | import, attach (the line is followed by the bytes)   {id, import}
 *                   | save | restore | drop, name                          {id, saved} | {id, restored} |
 *                                                                          {id, dropped}
 * stats                                                                    {id, stats}
 * kv_limit      pages                                                      {id, kv_limit}
 * cancel, pause, continue   (the id is that of the request meant)          none
 * drain, shutdown           (the id may be absent)                         none: the worker exits
 *
 * A conversation is messages, tools, tool_choice, parallel_tool_calls, template_kwargs, reasoning,
 * continue_final_message and now. A message is an object; checked is what is known of it, the rest is the
 * template's affair: role (a string, not empty), content (a string, null, absent, or parts {"type":"text",
 * "text":…}; other types are ST_UNSUPPORTED), tool_calls (null, or objects with "function":{"name","arguments"},
 * arguments absent, null, an object or a string, beside "id" and "type":"function"), tool_call_id, name,
 * reasoning_content (strings or null). A tool is {"type":"function","function":{"name",…}} or flat {"name",…}.
 *
 * A request is immutable plain data of its own (nothing of the line is borrowed): one thread makes it, another
 * may use and free it. Limits: line.h's line length, JSON_MAX_DEPTH and those below.
 */
#ifndef HEARTH_WIRE_REQUEST_H
#define HEARTH_WIRE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"
#include "wire/text.h"

#define WIRE_MAX_MUX_LINE_BYTES ((size_t)8 << 20)
/* What was a line of the size above when it was first sent, and the ids of its prompt and of its reply. */
#define WIRE_MAX_RESUME_LINE_BYTES ((size_t)24 << 20)
#define WIRE_MAX_ID_BYTES          ((size_t)256)
#define WIRE_MAX_SESSION_ID_BYTES  ((size_t)64 << 10)
#define WIRE_MAX_NAMESPACE_BYTES   ((size_t)256)
#define WIRE_MIN_PRIORITY          (-10)
#define WIRE_MAX_PRIORITY          10
#define WIRE_MIN_REPETITION_GUARD  16
#define WIRE_MAX_REPETITION_GUARD  4096
#define WIRE_MAX_SEED              ((uint64_t)INT64_MAX)
#define WIRE_MAX_STOP_IDS          64
#define WIRE_MAX_BIAS              1024
#define WIRE_MAX_TOP_LOGPROBS      20
#define WIRE_MAX_MESSAGES          4096
#define WIRE_MAX_TOOLS             1024
#define WIRE_MAX_CALLS             256 /* in one message */
#define WIRE_MAX_NAME_BYTES        256 /* of a tool or a role */
#define WIRE_MAX_SAVE_NAME_BYTES \
    64 /* what a session is saved as: of [A-Za-z0-9._-], not beginning with a dot */
/* Presence and frequency penalties and biases beyond these would overflow a logit: refused, resp. clamped. */
#define WIRE_MAX_PENALTY    1e6
#define WIRE_MAX_BIAS_VALUE 1e30
/* 31 years, so that it fits into 64 bits of nanoseconds; more is clamped. */
#define WIRE_MAX_DEADLINE_MS ((uint64_t)1000000000000)

typedef enum wire_op {
    WIRE_GENERATE,
    WIRE_OPEN, /* WIRE_OPEN, WIRE_CLOSE and WIRE_RESET: plain only */
    WIRE_CLOSE,
    WIRE_RESET,
    WIRE_CHAT, /* from here on multiplexed */
    WIRE_TOKENIZE,
    WIRE_DETOKENIZE,
    WIRE_COUNT,
    WIRE_RENDER,
    WIRE_SESSION_GET,
    WIRE_SESSION_RESET,
    WIRE_SESSION_CLOSE,
    WIRE_SESSION_PREWARM,
    WIRE_SESSION_PROBE,
    WIRE_SESSION_EXPORT,
    WIRE_SESSION_IMPORT,
    WIRE_SESSION_SAVE,
    WIRE_SESSION_RESTORE,
    WIRE_SESSION_DROP,
    WIRE_STATS,
    WIRE_KV_LIMIT,
    WIRE_CANCEL,
    WIRE_PAUSE,
    WIRE_CONTINUE,
    WIRE_DRAIN,
    WIRE_SHUTDOWN
} wire_op;

typedef struct wire_segment { /* text, or ids where ids is not NULL */
    wire_string text;
    const int32_t *ids; /* in the vocabulary */
    size_t n_ids;
} wire_segment;

typedef enum wire_tool_choice {
    WIRE_TOOLS_AUTO,
    WIRE_TOOLS_NONE,
    WIRE_TOOLS_REQUIRED, /* on the wire only beside tools */
    WIRE_TOOLS_NAMED     /* {"name":…}, one of the tools */
} wire_tool_choice;

typedef enum wire_toggle { WIRE_UNSAID, WIRE_OFF, WIRE_ON } wire_toggle;

typedef struct wire_bias {
    int32_t token; /* in the vocabulary */
    double bias;   /* |bias| <= WIRE_MAX_BIAS_VALUE; -WIRE_MAX_BIAS_VALUE forbids the token */
} wire_bias;

/* A reply that began elsewhere (its worker is gone) goes on behind the tokens that it had. */
typedef struct wire_resume {
    const int32_t *ids; /* generated so far, in the vocabulary; may be none */
    size_t n_ids;
    uint64_t seed;             /* 1 … WIRE_MAX_SEED; in force in place of the request's */
    int64_t now_ms;            /* >= 0; the same */
    const char *prompt_digest; /* SHA256_HEX_LEN lower-case digits: frame_prompt_digest of the prompt's ids */
    /* In place of what the request's text would give; NULL: it is tokenised again. >= 1, in the vocabulary. */
    const int32_t *prompt_ids;
    size_t n_prompt_ids;
} wire_resume;

typedef struct wire_request {
    wire_op op;
    wire_string id;         /* of the request (cancel, pause, continue: of the one meant); data NULL: plain */
    wire_string session_id; /* empty: anonymous (generate, chat only) */
    wire_string
        cache_namespace; /* generate, chat, count, render and session: what is kept of a request is found by those
                            of the same namespace only; empty = the common one */
    uint64_t cancel_request_id; /* plain generate: 1 … 2^64-1; 0 = none */

    /* generate: the prompt; tokenize, count: the text, one segment (count: none if it has messages) */
    const char *prompt_field; /* which it was: "prompt", "text" (one text segment) or "prompt_segments" */
    const wire_segment *segments;
    size_t n_segments;
    bool add_special;
    bool parse_special; /* tokenize; true for count */
    /* chat, count, render: a conversation. Views into `doc`; in a request to be put into any document. */
    const json *messages; /* an array of 1 … WIRE_MAX_MESSAGES; NULL: none (count of a text) */
    const json *tools;    /* an array of 1 … WIRE_MAX_TOOLS, or NULL ([] is none) */
    wire_tool_choice tool_choice;
    wire_string tool_name;        /* WIRE_TOOLS_NAMED */
    bool parallel_tool_calls;     /* true */
    const json *template_kwargs;  /* an object, or NULL */
    int32_t reasoning_budget;     /* tokens; -1 = no limit (-1) */
    const char *reasoning_effort; /* "minimal", "low", "medium" or "high" (static); NULL = unsaid */
    wire_toggle reasoning_enabled;
    bool continue_final_message; /* the last message is the assistant's: its text is how the reply begins */
    /* detokenize */
    const int32_t *ids; /* in the vocabulary */
    size_t n_ids;

    /* session */
    int64_t from;          /* probe, export: >= 0 (0); export must say it */
    int64_t count;         /* export: >= 1; probe: >= 0, or -1: to the end (-1) */
    wire_string name;      /* save, restore, drop: see WIRE_MAX_SAVE_NAME_BYTES */
    uint64_t attach_bytes; /* import: 1 … WIRE_MAX_ATTACH_BYTES raw bytes follow the line */

    uint64_t pages; /* kv_limit: >= 1 */

    /* generate, chat */
    int32_t max_new_tokens; /* >= 1, or -1: the rest of the context; multiplexed only: 0 generates nothing */
    double temperature;     /* finite, >= 0 */
    double top_p;           /* (0, 1] */
    int32_t top_k;          /* >= 0 */
    uint64_t seed;          /* 0 … WIRE_MAX_SEED; 0 = draw one */
    const wire_string *stops; /* none of them empty */
    size_t n_stops;
    /* multiplexed only; the defaults (in brackets) change nothing */
    bool has_now;
    int64_t now_ms;                             /* "now": >= 0, milliseconds since 1970 */
    double min_p;                               /* [0, 1] (0) */
    double repetition_penalty;                  /* [0.01, 100] (1) */
    double presence_penalty, frequency_penalty; /* at most WIRE_MAX_PENALTY either way (0) */
    int32_t repeat_last_n;                      /* >= -1 = all (64) */
    const wire_bias *bias;                      /* "logit_bias"; ascending token, no duplicates */
    size_t n_bias;                              /* <= WIRE_MAX_BIAS */
    int32_t min_tokens;                         /* >= 0 (0) */
    bool ignore_eos;
    const int32_t *stop_token_ids; /* in the vocabulary: end the reply like an end token */
    size_t n_stop_token_ids;       /* <= WIRE_MAX_STOP_IDS */
    int32_t top_logprobs;          /* -1: no logprobs (-1); "logprobs":true alone is 0 alternatives */
    int32_t prompt_logprobs;       /* -1: none (-1); else how many alternatives */
    uint64_t deadline_ms;          /* from now, 1 … WIRE_MAX_DEADLINE_MS; 0 = none (0) */
    bool progress;
    int32_t priority; /* WIRE_MIN_PRIORITY … WIRE_MAX_PRIORITY (0); the larger is admitted first */
    /* Ends the reply as `length`, guard `repetition`, once its last that many tokens are copies of one run: 0 = off,
     * else WIRE_MIN_REPETITION_GUARD … WIRE_MAX_REPETITION_GUARD; -1 = as wire_request_repetition_guard says (-1) */
    int32_t repetition_guard;
    const wire_resume *resume; /* NULL = a fresh reply (NULL) */

    /* owned */
    arena mem;     /* all of the above but the views */
    json_doc *doc; /* the line, if it has messages */
    char *
        attached; /* import: the attach_bytes bytes (mem_free), put here by who reads them; NULL until then */
} wire_request;

typedef struct wire_limits { /* what a line is checked against */
    int32_t n_vocab;         /* token ids must be in [0, n_vocab) */
    bool supports_cancel;    /* false: cancel_request_id is refused with ST_UNSUPPORTED */
} wire_limits;

/* ST_OK and *out (wire_request_free), or another status: then the whole error frame was appended to answer
 * (unless memory ran out even for that: answer is as it was), and *e (may be NULL) has the same code, field
 * and message. *attach_bytes (may be NULL) is always written: so many raw bytes follow the line, 0 = none. They are to
 * be kept (line_expect_attachment) if the request has attach_bytes, else skipped (line_skip_attachment). */
status wire_request_decode(const char *line, size_t len, const wire_limits *limits, wire_request **out,
                           buf *answer, uint64_t *attach_bytes, err *e);
/* What can be known, without memory, of a line for which there was none: so that its sender hears of it under its id, and
 * what needs no more than this is done all the same. line: all of it, or what line.h has kept. */
typedef struct wire_stub {
    char id[WIRE_MAX_ID_BYTES];
    size_t id_len; /* 0 = plain */
    wire_op op;    /* WIRE_GENERATE where it is unknown */
    uint64_t attach_bytes;
} wire_stub;
wire_stub wire_request_peek(const char *line, size_t len);
void wire_request_free(wire_request *r);
size_t wire_request_bytes(const wire_request *r); /* of memory that it holds, its attachment included */

/* The tokens that the guard against repetition looks at; 0 = off. Where the request says nothing: 1024 if nothing of
 * its own ends it (no max_new_tokens, no ignore_eos); a plain request, which cannot say it, has none. */
int32_t wire_request_repetition_guard(const wire_request *r);

/* Everything at its default, an arena that is all zero: to be filled with borrowed data and put. */
wire_request wire_request_default(wire_op op);
/* Appends one whole multiplexed line, '\n' included, or (ST_NOMEM) leaves out as it was. r needs an id (drain,
 * shutdown may go without) and what its op needs; mem and doc are not looked at. Fields at their defaults are left
 * out (but seed, and now if has_now), so that decoding the line gives an equal request. Plain-only ops and
 * cancel_request_id cannot be put. Strings are repaired to valid UTF-8. What attach_bytes announces the caller sends
 * behind the line. */
status wire_request_put(buf *out, const wire_request *r);
/* Adds "deadline_ms" (>= 1) to the generate or chat line, made without one, that ends the buffer. ST_NOMEM
 * leaves line as it was. */
status wire_request_put_deadline(buf *line, uint64_t ms);
/* The same of "resume". */
status wire_request_put_resume(buf *line, const wire_resume *r);

#endif
