/*
 * chat_talk: the conversation of a request (PROTOCOL 4): messages, tools and how the reply begins, as
 * /v1/chat/completions and /apply-template have them.
 *
 * Fields: messages, tools, tool_choice, parallel_tool_calls, chat_template_kwargs, enable_thinking,
 * reasoning_effort, the budget of reasoning under any of its names (reasoning_budget, thinking_budget,
 * thinking_budget_tokens, thinking_token_budget: -1 no limit, 0 none), continue_final_message,
 * add_generation_prompt.
 *
 * Pure functions, any thread.
 */
#ifndef HEARTH_SERVE_CHAT_TALK_H
#define HEARTH_SERVE_CHAT_TALK_H

#include <stdbool.h>

#include "base/json.h"
#include "wire/request.h"

/* The names, for fields_only. */
#define CHAT_TALK_FIELDS                                                                                  \
    "messages", "tools", "tool_choice", "parallel_tool_calls", "chat_template_kwargs", "enable_thinking", \
        "reasoning_effort", "reasoning_budget", "thinking_budget", "thinking_budget_tokens",              \
        "thinking_token_budget", "continue_final_message", "add_generation_prompt"

/* Into the conversation of r, which has its defaults; *doc (json_doc_free) holds what r then points to, and root
 * too. False: *e says why. */
bool chat_talk_read(const json *root, wire_request *r, json_doc **doc, err *e);

/* The parts that /v1/responses has too. text: one object with the members messages, tools, template_kwargs. */
bool chat_talk_adopt(wire_request *r, const buf *text, json_doc **doc, err *e);
/* none, minimal, low, medium or high; v may be NULL. */
bool chat_talk_effort(wire_request *r, const char *path, const json *v, err *e);

#endif
