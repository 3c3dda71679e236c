/*
 * chat_tools: the tools that a request offers, and which of them the reply is to call.
 *
 * Only functions: {"type":"function","function":{"name","description","parameters","strict"}}, or flat, as
 * /v1/responses has them. strict true needs output that is forced into a schema: refused until there is such.
 * Other types of tools are refused by name: "tools[1].type".
 *
 * Pure functions, any thread. Strings are borrowed from the document.
 */
#ifndef HEARTH_SERVE_CHAT_TOOLS_H
#define HEARTH_SERVE_CHAT_TOOLS_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"
#include "wire/request.h"

#define CHAT_MAX_TOOLS     128 /* OpenAI's limit */
#define CHAT_MAX_TOOL_NAME WIRE_MAX_NAME_BYTES

/* list: NULL or an empty list is no tools, and nothing is appended; else the nested form as the client wrote it,
 * without strict and members of null. False: *e says why. */
bool chat_tools_read(const json *list, bool flat, buf *out, err *e);
/* tools: the list given to chat_tools_read; *name is set for WIRE_TOOLS_NAMED. v NULL is auto. */
bool chat_choice_read(const json *v, const json *tools, bool flat, wire_tool_choice *out, wire_string *name,
                      err *e);

#endif
