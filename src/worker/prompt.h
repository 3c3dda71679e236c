/*
 * prompt: from a request to the token ids that the engine gets (PROTOCOL 2 and 4).
 *
 * Segments: each text is tokenised alone: no merge crosses a border. Control tokens in it are recognised
 * (`tokenize` may ask otherwise). The space prefix of a SentencePiece vocabulary is added only where text
 * begins the prompt. With add_special the ids that the model wants at both ends (BOS, EOS) are added; a prompt
 * of one empty text is then BOS alone.
 * Messages: laid out as ChatML; what they say is tokenised without special parsing.
 *
 * Pure functions of any thread. dropped (may be NULL) is looked at between texts: once it is set
 * ST_CANCELLED is returned. ST_NOMEM too.
 */
#ifndef HEARTH_WORKER_PROMPT_H
#define HEARTH_WORKER_PROMPT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/vec.h"
#include "text/tokenizer.h"
#include "wire/request.h"

/* Appends the ids of the request's segments or messages. */
status prompt_encode(const tokenizer *tok, const wire_request *r, const atomic_bool *dropped, ivec *out,
                     err *e);
/* For generate and chat: out gets prefix and prompt (what it held is dropped). The prefix (NULL = none) comes
 * before everything and changes nothing of the above. ST_INVALID_FIELD: the request's own prompt is empty;
 * ST_CONTEXT_LENGTH: with the prefix it leaves no room for a token; out is complete then too, so that the
 * answer can tell its length. */
status prompt_build(const tokenizer *tok, const ivec *prefix, const wire_request *r, int32_t n_ctx,
                    const atomic_bool *dropped, ivec *out, err *e);

#endif
