/*
 * prompt: from the segments of a request to the token ids that the engine gets (PROTOCOL 2).
 *
 * Each text is tokenised alone: no merge crosses a border. Control tokens in it are recognised. The space
 * prefix of a SentencePiece vocabulary is added only where text begins the prompt. With add_special the ids
 * that the model wants at both ends (BOS, EOS) are added; a prompt of one empty text is then BOS alone. The
 * worker's fixed prefix ids come before everything and change none of this.
 *
 * Pure functions. ST_INVALID_FIELD: the request's own prompt is empty; ST_CONTEXT_LENGTH: with the prefix it
 * leaves no room for a token; ST_NOMEM.
 */
#ifndef HEARTH_WORKER_PROMPT_H
#define HEARTH_WORKER_PROMPT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/vec.h"
#include "text/tokenizer.h"
#include "wire/request.h"

/* out gets prefix and prompt (what it held is dropped); it is complete also when ST_CONTEXT_LENGTH is
 * returned, so that the answer can tell its length. */
status prompt_build(const tokenizer *tok, const ivec *prefix, const wire_request *r, int32_t n_ctx, ivec *out,
                    err *e);

#endif
