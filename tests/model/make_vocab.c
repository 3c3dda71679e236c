#include "model/make_vocab.h"

#include <stdio.h>
#include <string.h>

#define N_LETTERS  26
#define N_BYTES    256
#define SPM_FIRST  3              /* <unk> <s> </s> */
#define BPE_LAST   3              /* <|endoftext|> <|im_start|> <|im_end|> */
#define SPM_SPACE  "\xe2\x96\x81" /* U+2581 */
#define BPE_SPACE  "\xc4\xa0"     /* U+0120, how byte-level BPE writes 0x20 */
#define PIECE_SIZE 16

static const char letters[] = "etaoinshrdlcumwfgypbvkjxqz"; /* most frequent first */

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_BYTE = 6 };

typedef struct vocab {
    gguf_str *tokens;
    int32_t *types;
    float *scores;
    size_t n;
} vocab;

/* Piece i as a left and a right half: space and letter, letter and letter, two letters and one. */
static void piece_halves(size_t i, const char *space, char *left, char *right)
{
    const char *l = letters;
    if (i < N_LETTERS) {
        snprintf(left, PIECE_SIZE, "%s", space);
    } else if (i < N_LETTERS + N_LETTERS * N_LETTERS) {
        i -= N_LETTERS;
        snprintf(left, PIECE_SIZE, "%c", l[i / N_LETTERS]);
    } else {
        i -= N_LETTERS + N_LETTERS * N_LETTERS;
        size_t pair = i / N_LETTERS;
        snprintf(left, PIECE_SIZE, "%c%c", l[pair / N_LETTERS], l[pair % N_LETTERS]);
    }
    snprintf(right, PIECE_SIZE, "%c", l[i % N_LETTERS]);
}

static bool add(vocab *v, arena *mem, const char *text, int32_t type, float score)
{
    char *copy = arena_strndup(mem, text, strlen(text));
    if (!copy) {
        return false;
    }
    v->tokens[v->n] = (gguf_str){copy, strlen(text)};
    v->types[v->n] = type;
    v->scores[v->n] = score;
    v->n++;
    return true;
}

static bool init(vocab *v, arena *mem, uint32_t n)
{
    v->n = 0;
    v->tokens = arena_alloc_array(mem, n, sizeof *v->tokens);
    v->types = arena_alloc_array(mem, n, sizeof *v->types);
    v->scores = arena_alloc_array(mem, n, sizeof *v->scores);
    return v->tokens && v->types && v->scores;
}

static bool fill_spm(vocab *v, arena *mem, uint32_t n_vocab)
{
    char text[2 * PIECE_SIZE], left[PIECE_SIZE], right[PIECE_SIZE];
    bool ok = add(v, mem, "<unk>", TYPE_UNKNOWN, 0.0f) && add(v, mem, "<s>", TYPE_CONTROL, 0.0f) &&
              add(v, mem, "</s>", TYPE_CONTROL, 0.0f);
    for (int b = 0; b < N_BYTES && ok; b++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        ok = add(v, mem, text, TYPE_BYTE, 0.0f);
    }
    for (size_t i = 0; v->n < n_vocab && ok; i++) {
        if (i == 0) {
            snprintf(text, sizeof text, "%s", SPM_SPACE);
        } else if (i <= N_LETTERS) {
            snprintf(text, sizeof text, "%c", letters[i - 1]);
        } else {
            piece_halves(i - 1 - N_LETTERS, SPM_SPACE, left, right);
            snprintf(text, sizeof text, "%s%s", left, right);
        }
        ok = add(v, mem, text, TYPE_NORMAL, -(float)i);
    }
    return ok;
}

/* GPT-2's map from bytes to characters: printable bytes stand for themselves, the others follow U+00FF. */
static void byte_text(int byte, char *out)
{
    int cp = 0x100;
    for (int b = 0; b <= byte; b++) {
        bool self = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (b == byte) {
            cp = self ? b : cp;
        } else {
            cp += !self;
        }
    }
    if (cp < 0x80) {
        snprintf(out, PIECE_SIZE, "%c", cp);
    } else {
        snprintf(out, PIECE_SIZE, "%c%c", 0xC0 | cp >> 6, 0x80 | (cp & 0x3F));
    }
}

static bool fill_bpe(vocab *v, arena *mem, uint32_t n_vocab, gguf_str *merges)
{
    char text[2 * PIECE_SIZE], left[PIECE_SIZE], right[PIECE_SIZE];
    bool ok = true;
    for (int b = 0; b < N_BYTES && ok; b++) {
        byte_text(b, text);
        ok = add(v, mem, text, TYPE_NORMAL, 0.0f);
    }
    for (size_t i = 0; v->n + BPE_LAST < n_vocab && ok; i++) {
        piece_halves(i, BPE_SPACE, left, right);
        snprintf(text, sizeof text, "%s %s", left, right);
        merges[i] = (gguf_str){arena_strndup(mem, text, strlen(text)), strlen(text)};
        snprintf(text, sizeof text, "%s%s", left, right);
        ok = merges[i].data && add(v, mem, text, TYPE_NORMAL, 0.0f);
    }
    return ok && add(v, mem, "<|endoftext|>", TYPE_CONTROL, 0.0f) &&
           add(v, mem, "<|im_start|>", TYPE_CONTROL, 0.0f) && add(v, mem, "<|im_end|>", TYPE_CONTROL, 0.0f);
}

/* Carries the first failure of a run of writer calls. */
static void keep(status *st, status now)
{
    *st = *st == ST_OK ? now : *st;
}

static status write_spm(gguf_writer *w, arena *mem, uint32_t n_vocab)
{
    vocab v;
    if (!init(&v, mem, n_vocab) || !fill_spm(&v, mem, n_vocab)) {
        return ST_NOMEM;
    }
    status st = gguf_writer_str(w, "tokenizer.ggml.model", "llama", 5);
    keep(&st, gguf_writer_str_array(w, "tokenizer.ggml.tokens", v.tokens, v.n));
    keep(&st, gguf_writer_array(w, "tokenizer.ggml.scores", GGUF_F32, v.scores, v.n));
    keep(&st, gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, v.types, v.n));
    keep(&st, gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0));
    keep(&st, gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1));
    keep(&st, gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2));
    return st;
}

static status write_bpe(gguf_writer *w, arena *mem, uint32_t n_vocab)
{
    vocab v;
    size_t n_merges = n_vocab - N_BYTES - BPE_LAST;
    gguf_str *merges = arena_alloc_array(mem, n_merges + 1, sizeof *merges);
    if (!merges || !init(&v, mem, n_vocab) || !fill_bpe(&v, mem, n_vocab, merges)) {
        return ST_NOMEM;
    }
    status st = gguf_writer_str(w, "tokenizer.ggml.model", "gpt2", 4);
    keep(&st, gguf_writer_str(w, "tokenizer.ggml.pre", "gpt-2", 5));
    keep(&st, gguf_writer_str_array(w, "tokenizer.ggml.tokens", v.tokens, v.n));
    keep(&st, gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_I32, v.types, v.n));
    keep(&st, gguf_writer_str_array(w, "tokenizer.ggml.merges", merges, n_merges));
    keep(&st, gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", n_vocab - 3));
    keep(&st, gguf_writer_u32(w, "tokenizer.ggml.eot_token_id", n_vocab - 1));
    keep(&st, gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", false));
    return st;
}

status make_vocab_write(gguf_writer *w, arena *mem, make_vocab kind, uint32_t n_vocab)
{
    switch (kind) {
    case MAKE_VOCAB_NONE:
        return ST_OK;
    case MAKE_VOCAB_SPM:
        return write_spm(w, mem, n_vocab);
    case MAKE_VOCAB_BPE:
        return write_bpe(w, mem, n_vocab);
    }
    return ST_INVALID_FIELD;
}
