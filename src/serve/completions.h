/*
 * completions: the body of POST /v1/completions, read, checked and put into one line of the plain dialect.
 *
 * Every field is honoured or refused by name; null means absent. Honoured: model (absent, or the one that is
 * served), prompt (a string, a list of token ids, or a list that holds one of these), max_tokens,
 * temperature, top_p, top_k, seed, stop, stream, stream_options.include_usage. `user` cannot affect the
 * output and is ignored. Fields that the plain dialect cannot carry are taken only with the value that means
 * nothing (n 1, echo false, presence_penalty 0 …). A prompt of text is sent with add_special; ids are sent as
 * they are.
 *
 * Pure functions, any thread. The body's size is bounded by the HTTP layer.
 */
#ifndef HEARTH_SERVE_COMPLETIONS_H
#define HEARTH_SERVE_COMPLETIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

#define COMPLETION_MAX_TOKENS 16              /* OpenAI's default */
#define COMPLETION_MAX_SEED   (INT64_MAX - 1) /* of the API; on the wire it is one more */

typedef struct completion_options {
    bool stream;
    bool include_usage;
} completion_options;

/* drawn_seed (1 … 2^63-1, as on the wire) is used if the body names none. ST_OK: *out is written and the
 * line,
 * '\n' included, appended to line. Else line is as it was: ST_BAD_REQUEST (not one JSON object),
 * ST_INVALID_FIELD, ST_UNSUPPORTED, ST_NOT_FOUND (another model), ST_NOMEM. */
status completion_read(const char *body, size_t len, const char *model_id, uint64_t drawn_seed,
                       completion_options *out, buf *line, err *e);

#endif
