/*
 * chat: the body of POST /v1/chat/completions, read and checked, and its answers.
 *
 * Fields: generation.h's and chat_talk.h's; max_completion_tokens or max_tokens (absent: the rest of the
 * context), logprobs, top_logprobs (0 … 20), response_format of type text. Of no effect on the reply, so only
 * checked: store false, metadata, service_tier, prompt_cache_key, prompt_cache_retention, safety_identifier,
 * modalities of text, verbosity medium. Everything else is refused by name: functions, audio, prediction …
 *
 * Pure functions, any thread.
 */
#ifndef HEARTH_SERVE_CHAT_H
#define HEARTH_SERVE_CHAT_H

#include "serve/answer.h"
#include "serve/generation.h"

/* As completion_read. */
status chat_read(const char *body, size_t len, uint64_t drawn_seed, generation *out, err *e);
/* The fields that cannot change a reply, and their values that would. */
#define CHAT_IDLE_FIELDS \
    "store", "metadata", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"
bool chat_read_idle(const json *root, err *e);

extern const answer_shape chat_shape;

#endif
