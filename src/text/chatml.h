/*
 * chatml: the built-in layout of a conversation,
 *
 *     <|im_start|>ROLE\nCONTENT<|im_end|>\n ... <|im_start|>assistant\n
 *
 * without BOS and without a default system message. It is rendered to segments: control text, which may become
 * control tokens, and plain text (role and content), which never does, whatever a user wrote (FAILURES T5). All
 * segments joined are the text that a ChatML template gives; as long as no content spells a control token the
 * ids are those of that text tokenised whole with special parsing.
 *
 * Pure functions; any thread. ST_NOMEM: nothing was written.
 */
#ifndef HEARTH_TEXT_CHATML_H
#define HEARTH_TEXT_CHATML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/vec.h"
#include "text/tokenizer.h"

#define CHATML_START "<|im_start|>"
#define CHATML_END   "<|im_end|>"

typedef struct chatml_message {
    const char *role; /* "system", "user", "assistant"; the caller checks it */
    size_t role_len;
    const char *content;
    size_t content_len;
} chatml_message;

typedef struct chatml_segment {
    const char *text;
    size_t len;
    bool control; /* tokenised with special parsing */
} chatml_segment;

typedef enum chatml_flags {
    CHATML_GENERATION_PROMPT = 1, /* ends with the start of a reply */
    /* Begins with the end of a reply, <|im_end|>\n: the segments continue a prompt and the ids that were
     * generated after it. */
    CHATML_CLOSES_REPLY = 2
} chatml_flags;

/* The segments and the plain texts are in mem; nothing of the messages is borrowed. */
status chatml_render(const chatml_message *messages, size_t n, unsigned flags, arena *mem,
                     const chatml_segment **out, size_t *n_out);

/* Appends the ids of the segments to out. Each is tokenised alone: no merge crosses a border. SentencePiece's
 * leading space only where out was empty. */
status chatml_encode(const tokenizer *t, const chatml_segment *segments, size_t n, ivec *out);

/* Whether the vocabulary has both markers as tokens of their own: without them the layout is only text. */
bool chatml_known(const tokenizer *t);

#endif
