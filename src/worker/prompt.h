/*
 * prompt: from a request to the token ids that the engine gets (PROTOCOL 2 and 4).
 *
 * Segments: each text is tokenised alone: no merge crosses a border. Control tokens in it are recognised
 * (`tokenize` may ask otherwise). The space prefix of a SentencePiece vocabulary is added only where text
 * begins the prompt. With add_special the ids that the model wants at both ends (BOS, EOS) are added; a prompt
 * of one empty text is then BOS alone.
 * Conversations: laid out by the model's chat template (text/chat_template.h). tool_choice none leaves the tools
 * out; required and a name add the text that a call begins with. What of a conversation was said here has its own
 * tokens and its reasoning (recall.h): that alone depends on what was before, and on nothing with `kept` NULL.
 *
 * A reply that goes on (`resume`) may bring the ids of its prompt: they are the prompt then, of a conversation too, which
 * is laid out all the same for what the reply's form depends on.
 *
 * Pure functions of any thread but for that. dropped (may be NULL) is looked at between texts: once it is set
 * ST_CANCELLED is returned. ST_NOMEM too.
 */
#ifndef HEARTH_WORKER_PROMPT_H
#define HEARTH_WORKER_PROMPT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/vec.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "wire/request.h"
#include "worker/recall.h"

/* Appends the ids of the request's segments. */
status prompt_encode(const tokenizer *tok, const wire_request *r, const atomic_bool *dropped, ivec *out,
                     err *e);
/* For generate: out gets prefix and prompt (what it held is dropped). The prefix (NULL = none) comes
 * before everything and changes nothing of the above. ST_INVALID_FIELD: the request's own prompt is empty;
 * ST_CONTEXT_LENGTH: with the prefix it leaves no room for a token; out is complete then too, so that the
 * answer can tell its length. */
status prompt_build(const tokenizer *tok, const ivec *prefix, const wire_request *r, int32_t n_ctx,
                    const atomic_bool *dropped, ivec *out, err *e);

/* ST_CONTEXT_LENGTH if that many tokens leave no room for another. */
status prompt_check_room(const char *field, size_t n_tokens, int32_t n_ctx, err *e);

/* All zero before the first use. */
typedef struct prompt_talk {
    /* owned */
    chat_text text;      /* the whole prompt */
    buf opening;         /* its end, where that counts as the beginning of the reply (tool_choice) */
    bool reasoning_open; /* before `opening` */
    recall known;        /* settled */
} prompt_talk;

/* Text and ids (appended) of a conversation. ST_TEMPLATE, ST_UNSUPPORTED (tool_choice, tools), ST_NOMEM. */
status prompt_lay_out(const chat_template *t, const tokenizer *tok, turns *kept, const wire_request *r,
                      int64_t now_ms, prompt_talk *out, ivec *ids, err *e);
void prompt_talk_release(prompt_talk *p);

#endif
