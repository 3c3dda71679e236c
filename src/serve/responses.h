/*
 * responses: the body of POST /v1/responses, read and checked, and its answers. Nothing is kept: each request
 * brings its whole conversation.
 *
 * input is a string or a list of items: messages (content a string or text parts), function_call,
 * function_call_output, reasoning. A run of reasoning, text and calls of the assistant is one message to the
 * template. Fields: model, instructions, max_output_tokens, tools (functions), tool_choice, parallel_tool_calls,
 * reasoning.effort, temperature, top_p, stream; seed, top_k, min_p, stop, session_id, hearth as in generation.h; of no effect:
 * store false, background false, truncation disabled, text of type text, an empty include and chat.h's. All else
 * is refused by name: previous_response_id, conversation, prompt, max_tool_calls, top_logprobs …
 *
 * Answers: one response object, or its events in OpenAI's order, each with its sequence_number: created,
 * in_progress; for each item output_item.added, (content_part.added,) deltas, done events, output_item.done; then
 * completed, incomplete or failed. A call's done events come when something else begins, or at the end: until then
 * it may be withdrawn, and then they never come and the response does not list it. The response repeats what was
 * asked, but instructions and tools only up to RESPONSES_MAX_REPEATED bytes.
 *
 * Reading is pure; the voice belongs to the loop thread.
 */
#ifndef HEARTH_SERVE_RESPONSES_H
#define HEARTH_SERVE_RESPONSES_H

#include "serve/answer.h"
#include "serve/generation.h"
#include "serve/generation_run.h"

#define RESPONSES_MAX_REPEATED ((size_t)64 << 10)

/* As completion_read. */
status responses_read(const char *body, size_t len, uint64_t drawn_seed, generation *out, err *e);
/* Appends the messages of the chat, as JSON. False: *e says why. */
bool responses_input_read(const json *root, buf *out, err *e);

extern const answer_shape responses_shape;
extern const run_voice run_responses;

#endif
