/*
 * tokenizer_int: the struct behind `tokenizer` and what its files offer one another. Private to src/text.
 */
#ifndef HEARTH_TEXT_TOKENIZER_INT_H
#define HEARTH_TEXT_TOKENIZER_INT_H

#include "base/arena.h"
#include "base/buf.h"
#include "text/merge.h"
#include "text/pretokenize.h"
#include "text/special.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

#define KEY_MODEL      "tokenizer.ggml.model"
#define KEY_PRE        "tokenizer.ggml.pre"
#define KEY_TOKENS     "tokenizer.ggml.tokens"
#define KEY_SCORES     "tokenizer.ggml.scores"
#define KEY_TOKEN_TYPE "tokenizer.ggml.token_type"
#define KEY_MERGES     "tokenizer.ggml.merges"
#define KEY_BOS        "tokenizer.ggml.bos_token_id"
#define KEY_EOS        "tokenizer.ggml.eos_token_id"

#define SPACE_MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */

/* One text; longer ones are refused as ST_NOMEM: places in a text (three bytes for a space) are 32 bits wide.
 */
#define TOKENIZER_MAX_TEXT_BYTES ((size_t)1 << 30)

typedef enum tokenizer_family { FAMILY_SPM, FAMILY_BPE } tokenizer_family;

typedef struct spm_tables {
    uint32_t *rank; /* [n_vocab]: 0 = best score; equal scores share a rank */
    int32_t byte_id[256];
    int32_t ascii_id[128]; /* token of a single character */
    uint64_t *pairs;       /* bit set over hashed pairs of neighbouring characters inside tokens */
} spm_tables;

typedef struct bpe_merge {
    int32_t left, right; /* left = TOKEN_NONE: free slot */
    uint32_t rank;
    int32_t joined;
} bpe_merge;

typedef struct bpe_tables {
    pretokenizer *pre; /* owned */
    bool ignore_merges;
    bpe_merge *merges; /* open addressing */
    size_t mask;       /* slots - 1, a power of two */
    int32_t byte_id[256];
    uint64_t joints[1024]; /* bit a * 256 + b: some merge puts byte a before byte b */
} bpe_tables;

struct tokenizer {
    arena mem; /* every table below that is not said to be owned */
    tokenizer_family family;
    char *model, *pre;
    size_t n_vocab;
    vocab vocab;        /* tokens as the file writes them */
    gguf_str *piece;    /* [n_vocab] what they stand for */
    uint8_t *kind;      /* [n_vocab] token_kind */
    uint8_t *file_kind; /* [n_vocab] the same before tokenizer_names_apply */
    int32_t bos, eos, eot, eom, unknown;
    bool add_bos, add_eos, add_space_prefix;
    int32_t *eog; /* [n_eog] ascending */
    size_t n_eog;
    special_set *special_user; /* owned: found in every text */
    special_set *special_all;  /* owned: with TOKENIZE_PARSE_SPECIAL */
    spm_tables spm;
    bpe_tables bpe;
};

/* One tokenizer_encode. */
typedef struct encoder {
    const tokenizer *t;
    ivec *out;
    merger merge;
    const char *run; /* what is being merged: in scratch (SPM), a piece (BPE) */
    size_t run_len;
    buf scratch;
    uint32_t before;           /* SPM: the symbol looked at last */
    pretokenize_cursor cursor; /* BPE */
} encoder;

/* ST_NOMEM said in an err. */
status tokenizer_no_memory(err *e);
/* Whether plain text may become this token by merging. */
bool tokenizer_is_plain(const tokenizer *t, int32_t id);
/* The token of a text, TOKEN_NONE also if plain text may not become it. */
int32_t tokenizer_find_plain(const tokenizer *t, const char *text, size_t len);
/* Token kinds and end ids that follow from well-known texts; after the special ids were read. */
status tokenizer_names_apply(tokenizer *t, err *e);

/* The two families: their tables (the vocabulary is there), and one run of text without special tokens. */
status tokenizer_spm_load(tokenizer *t, const gguf_file *f, err *e);
status tokenizer_spm_encode(encoder *enc, const char *text, size_t len, bool space_first);
status tokenizer_bpe_load(tokenizer *t, const gguf_file *f, const pretokenize_family *family, err *e);
status tokenizer_bpe_encode(encoder *enc, const char *text, size_t len);

#endif
