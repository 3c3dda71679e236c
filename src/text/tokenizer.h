/*
 * tokenizer: text <-> token ids, from the tokenizer.* keys of a GGUF file.
 *
 * Families: SentencePiece-style ("llama": scores, byte fallback, space-prefix rules) and byte-level BPE
 * ("gpt2": merges, pre-tokenizer patterns by tokenizer.ggml.pre). Absent keys take the family's default: SPM
 * adds BOS and the space prefix; byte-level BPE adds none, but llama 3's pre-tokenizers (llama-bpe ...) add
 * BOS if the file names one. A file without eos_token_id has no EOS.
 *
 * Immutable after opening: any thread may use it; every call works in memory of its own (freed before it
 * returns). It copies what it needs: the gguf_file may be closed. Time is linear in the text, the C stack
 * constant. Errors: opening ST_LOAD_FAILED with the key named, ST_UNSUPPORTED for a model or pre-tokenizer we
 * do not know (the value is named), ST_NOMEM. Encoding only fails for want of memory; a text of more than 1
 * GiB counts as that.
 */
#ifndef HEARTH_TEXT_TOKENIZER_H
#define HEARTH_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/vec.h"
#include "gguf/reader.h"
#include "text/special.h"

typedef struct tokenizer tokenizer;

/* Numbers as tokenizer.ggml.token_type has them. */
typedef enum token_kind {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
} token_kind;

#define TOKEN_NONE (-1)

typedef enum tokenizer_flags {
    TOKENIZE_ADD_SPECIAL = 1,   /* BOS/EOS as the metadata asks */
    TOKENIZE_PARSE_SPECIAL = 2, /* text that spells a control token becomes that token */
    TOKENIZE_NO_PREFIX =
        4, /* never the SPM space prefix, not even behind a token: this text continues a prompt */
    TOKENIZE_BEHIND_TEXT = 8 /* none where the text begins, but behind its tokens as ever */
} tokenizer_flags;

status tokenizer_open(const gguf_file *f, tokenizer **out, err *e);
void tokenizer_free(tokenizer *t);

int32_t tokenizer_n_vocab(const tokenizer *t);
size_t tokenizer_bytes(const tokenizer *t);      /* of memory, about */
const char *tokenizer_model(const tokenizer *t); /* "llama", "gpt2" */
const char *tokenizer_pre(const tokenizer *t);   /* "llama-bpe", "default" … */
int32_t tokenizer_bos(const tokenizer *t);       /* TOKEN_NONE if the model has none */
int32_t tokenizer_eos(const tokenizer *t);
bool tokenizer_adds_bos(const tokenizer *t);
bool tokenizer_adds_eos(const tokenizer *t);
bool tokenizer_adds_space_prefix(const tokenizer *t);
/* End-of-generation ids: EOS plus every turn-end token the model names (eot, eom) or has by a known name
 * (<|im_end|>, <|eot_id|>, <end_of_turn> …). Ascending, borrowed. May be empty: generating then needs a
 * limit. */
const int32_t *tokenizer_eog_ids(const tokenizer *t, size_t *n);
bool tokenizer_is_eog(const tokenizer *t, int32_t id);

/* Appends the ids of text[0..len) to out (already there: kept). Text need not be valid UTF-8: byte-level
 * BPE replaces maximal bad subsequences by U+FFFD; SPM turns bad bytes into byte tokens, a lead byte with as
 * many bytes behind it as it promises, whatever they are. */
status tokenizer_encode(const tokenizer *t, const char *text, size_t len, unsigned flags, ivec *out);
/* The same with TOKENIZE_PARSE_SPECIAL, but what is in a `plain` range stays text: a control token is recognised
 * only where no byte of it is in one (added tokens that are no control tokens are found everywhere, as in any
 * text). Apart from that the ranges change nothing: merges cross their borders. The text must be valid UTF-8
 * (ST_BAD_REQUEST). flags: TOKENIZE_NO_PREFIX, TOKENIZE_BEHIND_TEXT or 0. */
status tokenizer_encode_ranges(const tokenizer *t, const char *text, size_t len, const special_range *plain,
                               size_t n_plain, unsigned flags, ivec *out);
/* The bytes id stands for in running text (space for U+2581, the byte of a byte token, decoded byte-level
 * text; control and added tokens as the vocabulary writes them). Borrowed, not NUL-terminated; id must be in
 * range. The bytes of one id need not be valid UTF-8. */
const char *tokenizer_piece(const tokenizer *t, int32_t id, size_t *len);
token_kind tokenizer_kind(const tokenizer *t, int32_t id);
/* The id of a vocabulary entry as the vocabulary writes it (control and added tokens: their text), or
 * TOKEN_NONE; of equal entries the lowest id. */
int32_t tokenizer_find(const tokenizer *t, const char *text, size_t len);

#endif
