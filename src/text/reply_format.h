/*
 * reply_format: in which form a model writes its tool calls and its reasoning.
 *
 * A format is plain data, chosen from the source of the model's chat template or by the name of its style. The
 * strings are static. Pure functions, any thread.
 */
#ifndef HEARTH_TEXT_REPLY_FORMAT_H
#define HEARTH_TEXT_REPLY_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

/* X(enumerator, name) */
#define REPLY_STYLES(X)                             \
    X(REPLY_NONE, "none")                           \
    X(REPLY_HERMES, "hermes")                       \
    X(REPLY_QWEN3_CODER, "qwen3-coder")             \
    X(REPLY_LLAMA3_JSON, "llama3-json")             \
    X(REPLY_LLAMA3_PYTHON_TAG, "llama3-python-tag") \
    X(REPLY_MISTRAL, "mistral")                     \
    X(REPLY_DEEPSEEK, "deepseek")                   \
    X(REPLY_HARMONY, "harmony")                     \
    X(REPLY_GEMMA, "gemma")                         \
    X(REPLY_FUNCTIONARY_V3_2, "functionary-v3.2")   \
    X(REPLY_FUNCTIONARY_V3_1, "functionary-v3.1")

typedef enum reply_style {
#define X(enumerator, name) enumerator,
    REPLY_STYLES(X)
#undef X
} reply_style;

typedef struct reply_format {
    reply_style style;
    /* Both forms of a style are always read; an opener is written in the one of the template: Mistral's
     * name[ARGS]{...}, DeepSeek's V3.1 without a fence. */
    bool newer_form;
    const char *think_open; /* what begins reasoning and what ends it; harmony: an analysis message */
    const char *think_close;
} reply_format;

/* The style with its usual markers. */
reply_format reply_format_of(reply_style style);
/* By what the template's source spells; REPLY_NONE where it knows no form of calls that we read. */
reply_format reply_format_detect(const char *template_text, size_t len);

bool reply_style_by_name(const char *name, reply_style *out);
const char *reply_style_name(reply_style style);

/*
 * Appends the text that forces a call when it is put in front of what the model generates (tool_choice): of the
 * tool `name`, or, with NULL, of any. Appends nothing where the form has no such text (REPLY_NONE; functionary
 * v3.2 with NULL). The caller feeds it to the model and to the parser alike.
 */
status reply_format_opener(const reply_format *f, const char *name, buf *out);

/* What the engine makes the model say when its budget for reasoning is used up. It goes through the parser too. */
const char *reply_format_reasoning_end(const reply_format *f);
/* Whether a rendered prompt ends inside reasoning: with the opening marker, white space aside. */
bool reply_format_prompt_reasons(const reply_format *f, const char *prompt, size_t len);

#endif
