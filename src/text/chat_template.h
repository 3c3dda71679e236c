/*
 * chat_template: from a conversation to the text that a model was trained on, and to its token ids.
 *
 * A template is the Jinja source of a model (tokenizer.chat_template), or a file that takes its place; a model
 * without one gets the layout of chatml.h. Rendering gives it the variables that transformers gives:
 *
 *   messages               as they are, but: content null is "", a list of text parts is one string where the
 *                          template does not look at parts, arguments of a call that are the text of a JSON object
 *                          are that object (any other text stays a string)
 *   tools                  none if there are none
 *   add_generation_prompt  true, but with continue_final
 *   bos_token, eos_token   the vocabulary's; "" if it has none
 *   enable_thinking, thinking, reasoning_effort   where the input says them
 *   each member of kwargs  goes before the three above, never before the others
 *
 * Reasoning that the input has for a message without any is put under the name by which the template asks for it
 * (reasoning_content, thinking or reasoning); where it asks for none, or cannot render with it, it is left out.
 *
 * The text knows which of its bytes stem from the conversation (`plain`): they never become control tokens
 * (FAILURES T5). As long as they spell none, the ids are those of the text tokenised whole. There is one BOS at
 * the start if the template or the vocabulary wants one, never two. Stretches whose ids are known already may be
 * given: what is between them is tokenised by itself.
 *
 * Immutable: any thread. Errors: ST_TEMPLATE with the template's own text where it raised one, ST_UNSUPPORTED
 * (tools for a template that knows none; field `tools`), ST_NOMEM.
 */
#ifndef HEARTH_TEXT_CHAT_TEMPLATE_H
#define HEARTH_TEXT_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"
#include "base/vec.h"
#include "text/reply_format.h"
#include "text/special.h"
#include "text/tokenizer.h"

typedef struct chat_template chat_template;

/* source: NULL or empty = the built-in layout. tok is borrowed. ST_TEMPLATE if it cannot be compiled. */
status chat_template_new(const char *source, size_t len, const tokenizer *tok, chat_template **out, err *e);
void chat_template_free(chat_template *t);
bool chat_template_is_builtin(const chat_template *t);
/* Replies spell calls and reasoning in that style, whatever the template looks like. Before another thread has it. */
void chat_template_set_style(chat_template *t, reply_style style);
/* How its replies spell calls and reasoning. */
const reply_format *chat_template_format(const chat_template *t);

typedef enum chat_toggle { CHAT_UNSAID, CHAT_OFF, CHAT_ON } chat_toggle;

typedef struct chat_words { /* borrowed; data NULL: none */
    const char *data;
    size_t len;
} chat_words;

typedef struct chat_input {      /* borrowed */
    const json *messages;        /* an array of objects with a role, at least one */
    const chat_words *reasoning; /* [messages], of those that have none of their own; NULL: of none */
    const json *tools;           /* an array that is not empty, or NULL */
    const json *kwargs;          /* an object, or NULL */
    const char *effort;          /* NULL = unsaid */
    chat_toggle thinking;
    bool continue_final; /* ends inside the last message, behind its content */
    int64_t now_s;       /* seconds since 1970 */
} chat_input;

/* All zero before the first use. */
typedef struct chat_text {
    /* owned */
    buf text;
    special_range *plain; /* [n_plain] ascending, apart */
    size_t n_plain;
    bool reasoning_open; /* it ends inside reasoning */
} chat_text;

status chat_template_render(const chat_template *t, const chat_input *in, chat_text *out, err *e);
/* Appends text of the template's own. */
status chat_text_append(chat_text *c, const char *text, size_t len);
/* Appends text of which `name` (all of it, if it is not found) stays plain. */
status chat_text_append_named(chat_text *c, const char *text, size_t len, const char *name);
void chat_text_release(chat_text *c);
/* Appends the ids to out. */
status chat_template_encode(const chat_template *t, const chat_text *c, ivec *out);

typedef struct chat_splice {
    size_t from, to;    /* bytes [from, to) of the text, from > 0 */
    const int32_t *ids; /* borrowed: they spell them */
    size_t n_ids;
} chat_splice;
/* The same, with these ids for those stretches. splices: ascending, apart. */
status chat_template_encode_spliced(const chat_template *t, const chat_text *c, const chat_splice *splices,
                                    size_t n, ivec *out);

#endif
