/*
 * generation: what a body of /v1/completions or /v1/chat/completions asks for, checked, and the lines of the
 * wire it becomes: one for each choice. completion.h and chat.h read what is their own, this file what the
 * two share.
 *
 * Shared fields: model, n, seed, temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty,
 * frequency_penalty, logit_bias, min_tokens, ignore_eos, priority, repetition_guard, stop, stop_token_ids, stream,
 * stream_options (include_usage, include_obfuscation false), user (cannot affect the output, ignored), session_id,
 * hearth.progress, hearth.deadline_ms. Ranges stand in docs/http.md.
 *
 * Choice i belongs to prompt i / n and has the seed that was asked for + i % n, so that each prompt of a list
 * is answered as if it had been sent alone.
 *
 * Pure functions, any thread. The strings of a generation lie in the document it owns or in its arena.
 * Limits: below, and the size of the body, which the HTTP layer bounds.
 */
#ifndef HEARTH_SERVE_GENERATION_H
#define HEARTH_SERVE_GENERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"
#include "wire/frame.h"
#include "wire/request.h"

#define GENERATION_TEMPERATURE 1 /* where neither request nor model says one */
#define GENERATION_MAX_N       16
#define GENERATION_MAX_CHOICES 128 /* n for each of all prompts */
#define GENERATION_MAX_STOPS   1000
#define GENERATION_MAX_SEED    (INT64_MAX - 1) /* of the API; on the wire it is one more */
#define GENERATION_MAX_MS      INT32_MAX       /* of a deadline */

typedef struct generation {
    wire_request common; /* all but id, seed and prompt; its arena is not used */
    uint64_t seed;       /* of the first choice, as on the wire: >= 1 */
    int32_t n;
    const wire_segment *prompts; /* completions */
    size_t n_prompts;            /* chat: 1 */
    const char *model;           /* NULL = the default one */
    size_t model_len;
    const char *session; /* a good name (session_names.h); NULL = none */
    bool stream, include_usage;
    bool echo;
    bool progress;
    uint64_t deadline_ms; /* 0 = none */

    /* owned */
    json_doc *doc;
    json_doc *talk; /* of a chat: what its conversation points to */
    buf request;    /* of a response: what the answer repeats of the request, a JSON object */
    arena mem;
} generation;

/* The names of the shared fields, for fields_only. */
#define GENERATION_FIELDS                                                                              \
    "model", "n", "seed", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",              \
        "presence_penalty", "frequency_penalty", "logit_bias", "min_tokens", "ignore_eos", "priority", \
        "repetition_guard", "stop", "stop_token_ids", "stream", "stream_options", "user", "hearth",    \
        "session_id"

/* drawn_seed (1 … 2^63-1, as on the wire) is used if the body names none. Parses the body into *g, everything
 * at its default. ST_BAD_REQUEST, ST_NOMEM: g needs no release. */
status generation_begin(generation *g, wire_op op, const char *body, size_t len, uint64_t drawn_seed, err *e);
void generation_release(generation *g);
/* The shared fields, after n_prompts is known. False: *e says why. */
bool generation_read_shared(generation *g, err *e);
/* What the header X-Hearth-Session says, NULL = it is not there: the same as session_id in the body; both must agree.
 * Then checks what a session asks for: one prompt and one choice. */
bool generation_read_session(generation *g, const char *header, err *e);
/* What the body does not say of sampling is as the model says. */
void generation_adopt_sampling(generation *g, const frame_sampling *s);
/* The same of a request; root NULL: of one that says nothing. */
void generation_default_sampling(wire_request *r, const json *root, const frame_sampling *s);
size_t generation_n_choices(const generation *g);
/* Appends the line of choice i, '\n' included, without its deadline. ST_NOMEM, ST_BAD_REQUEST (longer than the
 * wire allows): line is as it was. */
status generation_put_line(const generation *g, size_t i, const char *id, buf *line, err *e);

#endif
