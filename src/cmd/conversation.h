/*
 * conversation: what `hearth chat` keeps between two turns: the messages as text, and the ids of the prompt and
 * the replies so far. A turn's prompt is those ids and the new message's, so that only the new message is
 * computed. Nothing is dropped without being asked for: a message that does not fit is refused.
 *
 * Main thread; conversation_say calls its token function there. The model is borrowed. Failures are printed by
 * the functions that meet them.
 */
#ifndef HEARTH_CMD_CONVERSATION_H
#define HEARTH_CMD_CONVERSATION_H

#include <hearth.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/vec.h"

typedef struct said {
    bool by_user;
    buf text;
} said;

typedef struct turn_stats { /* of the last reply */
    const char *finish_reason;
    size_t prompt_tokens, reused_tokens, reply_tokens;
    double prefill_ms, decode_ms, ttft_ms;
} turn_stats;

typedef struct conversation {
    /* owned */
    hearth_session *session;
    buf system; /* empty: no system message */
    said *said; /* [n_said] */
    size_t n_said, cap_said;
    bool by_template; /* laid out by a template, anew for each turn */
    ivec ids;         /* of the prompt and the replies; empty: to be made of all messages */
    buf saved_as;
    /* borrowed */
    hearth_model *model;
    const char *template_text; /* in place of the model's own; NULL: that */

    turn_stats last; /* finish_reason NULL: no reply yet */
} conversation;

/* template_text: NULL, or a chat template in place of the model's, borrowed. false (printed): no session could be opened,
 * or the model has no layout for a chat. */
bool conversation_open(hearth_model *model, const char *template_text, conversation *c);
void conversation_close(conversation *c); /* all zero is fine */

/* Says text to the model; its reply goes to fn as it is made. o: sampling and max_tokens. false (printed): there
 * is no reply, and the conversation is what it was. */
bool conversation_say(conversation *c, const char *text, size_t len, const hearth_generate_options *o,
                      hearth_token_fn fn, void *ctx);
/* Replaces the system message, "" for none; what was said stays and is read again with the next turn. */
bool conversation_instruct(conversation *c, const char *text, size_t len);
/* Forgets what was said; the system message stays. */
bool conversation_reset(conversation *c);
/* Writes {"model", "messages"} to path, one message a line. An existing file is kept, unless this conversation
 * wrote it. */
bool conversation_save(conversation *c, const char *path);
size_t conversation_tokens(const conversation *c); /* that the context holds now */
int32_t conversation_context(const conversation *c);

#endif
