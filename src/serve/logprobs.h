/*
 * logprobs: log probabilities of tokens, kept until they are sent, and the two shapes that OpenAI's routes
 * give them.
 *
 * A list has one entry for each token; its texts are raw bytes (a token need not be whole characters). Each
 * entry knows where its token begins in the text of its choice, in Unicode code points.
 * Legacy: {"tokens","token_logprobs","top_logprobs","text_offset"}; a token that is not valid UTF-8 by itself
 * is shown as OpenAI does, "bytes:\xe2\x82"; top_logprobs holds the chosen token too. Chat:
 * {"content":[{"token","logprob","bytes","top_logprobs"}],"refusal":null}.
 * A probability of zero is LOGPROB_NEVER, as JSON has no infinity.
 *
 * One owner thread. All-zero is an empty list.
 */
#ifndef HEARTH_SERVE_LOGPROBS_H
#define HEARTH_SERVE_LOGPROBS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "wire/frame.h"

#define LOGPROB_NEVER (-9999.0)

typedef struct logprob_list {
    buf items;           /* owned: of logprob_item, each token followed by its alternatives */
    buf text;            /* owned: their bytes */
    int64_t next_offset; /* where the next token begins; below 0 for text that is not shown (shown as 0) */
} logprob_list;

void logprob_list_release(logprob_list *l);
void logprob_list_reset(logprob_list *l); /* empty; next_offset and the memory are kept */
/* ST_NOMEM: the list is as it was. */
status logprob_list_add(logprob_list *l, const frame_logprob *p);
/* A token that nothing came before: its log probability is null. */
status logprob_list_add_first(logprob_list *l, wire_string text);
void logprob_put_legacy(json_w *w, const logprob_list *l);
void logprob_put_chat(json_w *w, const logprob_list *l);
/* Code points of valid text, or those that begin in bytes which are not. */
int64_t logprob_count_chars(wire_string text);

#endif
