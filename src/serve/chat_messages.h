/*
 * chat_messages: the messages of a chat, checked one by one, and the JSON that the wire takes of them: what a
 * chat template is rendered from, and nothing else.
 *
 * Roles: system, developer (written as system), user, assistant, tool. Content is a string or a list of text
 * parts, which are joined as they are; null only beside tool_calls. An assistant's message may have
 * reasoning_content and tool_calls (function ones; arguments a string, as it was said, or an object). Members
 * that say nothing are dropped: refusal, audio and function_call of null, an empty list of annotations or
 * tool_calls. Everything else is refused by name: "messages[3].tool_calls[0].type".
 *
 * Pure functions, any thread.
 */
#ifndef HEARTH_SERVE_CHAT_MESSAGES_H
#define HEARTH_SERVE_CHAT_MESSAGES_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

#define CHAT_MAX_MESSAGES 4096
#define CHAT_MAX_CALLS    128 /* in one message */

/* Appends the list to out. *ends_with_assistant: of the last one. False: *e says why. */
bool chat_messages_read(const json *list, buf *out, bool *ends_with_assistant, err *e);

#endif
