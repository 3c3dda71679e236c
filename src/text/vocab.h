/*
 * vocab: the texts of a vocabulary and the id of a text.
 *
 * Encoding asks for the id of some text a few times per byte, so this is not base/strmap.h: a slot holds a
 * text of up to 8 bytes itself, and such a question costs one cache miss instead of three (measured: opening
 * llama 3's vocabulary and encoding with SentencePiece's take half the time). Of equal texts the first,
 * lowest, id is found; the empty text never is.
 *
 * Built by one thread, then immutable: any thread. The texts are copied. Hashes are keyed per process, so
 * that a file cannot be made to collide. Errors: ST_NOMEM.
 */
#ifndef HEARTH_TEXT_VOCAB_H
#define HEARTH_TEXT_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "gguf/reader.h"

#define VOCAB_NONE (-1)

typedef struct vocab_slot {
    uint64_t key; /* the text, or a hash of a longer one */
    uint32_t len; /* 0: free */
    int32_t id;
} vocab_slot;

typedef struct vocab {
    gguf_str *text; /* [n] */
    size_t n;       /* fits int32_t */
    size_t max_bytes;
    size_t total_bytes;
    vocab_slot *slots;
    size_t mask; /* slots - 1, a power of two */
    uint64_t seed;
} vocab;

/* Everything lies in mem, which outlives v. */
status vocab_init(vocab *v, arena *mem, const gguf_str *texts, size_t n);
int32_t vocab_find(const vocab *v, const char *text, size_t len);
/* Asks for the memory that vocab_find will need: for many texts, first this for all, then vocab_find. */
void vocab_prefetch(const vocab *v, const char *text, size_t len);

#endif
