/*
 * recall: what of a conversation that comes in was said by this worker, and how that goes back into the prompt
 * (FAILURES P3). Clients send the messages of a conversation again and again, but not as the model wrote them:
 * reasoning is left out, calls are taken apart, and text can be tokenised in more than one way.
 *
 * Keys. Messages are chained: the key of a conversation is SHA-256 of the key of what is before its last message and
 * of the normal form of that message; the first link is the namespace of the request (cache_namespace), so that
 * nothing is found across namespaces. The normal form is what a client has to send back: role, content (null is "",
 * text parts are one string), names and arguments of calls, tool_call_id, and, but for the assistant's, name. Arguments
 * are compared as JSON values: order of members, spaces, escapes and the spelling of a number do not count. Reasoning
 * does not count, ids of calls do not (clients make their own), tools, template and session do not: what they change
 * is in the rendered text.
 *
 * Reasoning. A message without any that was said here gets the one it had; the template decides what it shows
 * (text/chat_template.h).
 *
 * Splices. Where the rendered text up to the beginning of a turn is the text that it was the answer to, and goes on
 * with the text of the turn, that gets the turn's own tokens. Text between splices is tokenised by itself. So the ids
 * of a prompt and of its reply begin the ids of the next turn's prompt. Text that differs, in a space or in reasoning
 * that the template does not show, is tokenised like any other: then only the ids are not the same. Tokens that end
 * a turn are never part of it: the template writes them.
 * A control token of the turn must stand where the template's own text spells it: what the client sent never
 * becomes one (FAILURES T5); where it would, nothing is spliced. (Whether the text before is plain in the same places
 * is not asked: templates write the role of a message that is there, and the word "assistant" where one is to come. Its
 * own ids obey its own ranges anyway.)
 *
 * Kept are replies that have ended, cut ones too (length, stop string, deadline), but for cancelled ones, which
 * their client has not seen, and empty ones. Of a reply whose last token is not shown whole, or was repaired, the
 * tokens before it are kept, and the text of it.
 *
 * Thread: a recall is one thread's at a time; time is linear in the conversation. Errors: ST_NOMEM.
 */
#ifndef HEARTH_WORKER_RECALL_H
#define HEARTH_WORKER_RECALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "wire/request.h"
#include "worker/turns.h"

/* All zero before the first use. */
typedef struct recall {
    turns *from; /* borrowed; NULL: nothing is known, nothing will be kept */
    /* owned */
    const turn **said;     /* [n] of each message; NULL: not known */
    chat_words *reasoning; /* [n] for the template; borrows from said */
    chat_splice *splices;  /* [n_splices] likewise */
    buf head;              /* the content with which the reply's message begins (continue_final_message) */
    size_t n, n_splices;
    bool
        used; /* something that was found stands in the prompt: its ids are no function of the request alone */
    /* Of the reply to come: the messages before its own, and the text before it. */
    uint8_t key[SHA256_BYTES];
    size_t prompt_bytes;
    uint8_t prompt_digest[SHA256_BYTES];
} recall;

/* Finds the turns of a conversation; none for a reply that goes on (`resume`), whose prompt is what it was when it began.
 * t may be NULL: then nothing else is done either. */
status recall_look(recall *r, turns *t, const wire_request *conversation);
/* Where they stand in the text, and what the reply will follow. */
status recall_place(recall *r, const tokenizer *tok, const chat_text *text);
/* Gives the turns back, when the prompt is made; the reply may still be kept. */
void recall_settle(recall *r);
void recall_release(recall *r);

/* What the client was told. */
typedef struct recall_call {
    buf name, arguments; /* owned */
    bool withdrawn;
} recall_call;

typedef struct recall_told {
    /* owned */
    buf content, reasoning;
    recall_call *calls; /* [n_calls] */
    size_t n_calls;
} recall_told;
void recall_told_release(recall_told *t);

/* The text of a reply: of all its tokens, but no more than its first n_shown bytes. */
status recall_text(const tokenizer *tok, const int32_t *ids, size_t n_ids, size_t n_shown, buf *out);
/* Keeps a reply to the conversation; text: recall_text of its ids. */
status recall_keep(const recall *r, const tokenizer *tok, const int32_t *ids, size_t n_ids, const buf *text,
                   const recall_told *told);

#endif
