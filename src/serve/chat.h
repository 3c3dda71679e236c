/*
 * chat: the body of POST /v1/chat/completions, read and checked, and its answers.
 *
 * Fields: generation.h's; messages (roles system, developer, user, assistant; content a string or a list of
 * text parts), max_completion_tokens or max_tokens (absent: the rest of the context), logprobs, top_logprobs
 * (0 … 20), response_format of type text. Everything else is refused by name: tools, tool_choice, functions,
 * audio …
 *
 * Pure functions, any thread.
 */
#ifndef HEARTH_SERVE_CHAT_H
#define HEARTH_SERVE_CHAT_H

#include "serve/answer.h"
#include "serve/generation.h"

#define CHAT_MAX_MESSAGES 4096

/* As completion_read. */
status chat_read(const char *body, size_t len, uint64_t drawn_seed, generation *out, err *e);

extern const answer_shape chat_shape;

#endif
