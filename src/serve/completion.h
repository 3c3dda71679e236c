/*
 * completion: the body of POST /v1/completions, read and checked, and its answers.
 *
 * Fields: generation.h's; prompt (a string, a list of token ids, or a list of several of these), max_tokens
 * (16; 0 generates nothing), echo, logprobs (0 … 20), best_of (only equal to n). A prompt of text is sent
 * with add_special, ids are sent as they are. Everything else is refused by name.
 *
 * Pure functions, any thread.
 */
#ifndef HEARTH_SERVE_COMPLETION_H
#define HEARTH_SERVE_COMPLETION_H

#include "serve/answer.h"
#include "serve/generation.h"

#define COMPLETION_MAX_TOKENS 16 /* OpenAI's default */

/* ST_OK and *out (generation_release); else ST_BAD_REQUEST (not one JSON object), ST_INVALID_FIELD,
 * ST_UNSUPPORTED, ST_NOMEM. */
status completion_read(const char *body, size_t len, uint64_t drawn_seed, generation *out, err *e);

extern const answer_shape completion_shape;

#endif
