/*
 * Byte-level BPE: each piece of the pre-tokenizer starts as single bytes, and the pair that stands first in
 * the list of merges is joined until no pair of the piece is in the list.
 *
 * Merging takes two symbols apart (see merge.h) where no merge ever puts those two bytes side by side.
 */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/tokenizer_int.h"

/* Merges are loaded in batches, so that the cache misses of the tables overlap (a third of the time). */
#define BATCH 32

typedef struct merge_line { /* one entry of the file's list */
    gguf_str text, left, right;
    bpe_merge merge;
} merge_line;

static size_t merge_home(const bpe_tables *b, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(h >> 32) & b->mask;
}

static size_t merge_slot(const bpe_tables *b, int32_t left, int32_t right)
{
    size_t i = merge_home(b, left, right);
    while (b->merges[i].left != TOKEN_NONE && (b->merges[i].left != left || b->merges[i].right != right)) {
        i = (i + 1) & b->mask;
    }
    return i;
}

static status merges_alloc(tokenizer *t, size_t n, err *e)
{
    size_t slots = 16, want;
    if (n >= UINT32_MAX / 2 || !size_mul(n, 3, &want)) {
        return tokenizer_no_memory(e);
    }
    while (slots < want / 2) {
        slots *= 2;
    }
    t->bpe.merges = arena_alloc_array(&t->mem, slots, sizeof *t->bpe.merges);
    if (!t->bpe.merges) {
        return tokenizer_no_memory(e);
    }
    for (size_t i = 0; i < slots; i++) {
        t->bpe.merges[i].left = TOKEN_NONE;
    }
    t->bpe.mask = slots - 1;
    return ST_OK;
}

/* The byte that the first (or last) character of a vocabulary text stands for, or BYTE_LEVEL_NONE. */
static int edge_byte(const char *s, size_t n, bool last)
{
    size_t at = 0;
    if (last) {
        for (at = n - 1; at > 0 && ((unsigned char)s[at] & 0xC0) == 0x80; at--) {
        }
    }
    uint32_t cp;
    bool ok;
    utf8_decode(s + at, n - at, &cp, &ok);
    return ok ? byte_level_byte(cp) : BYTE_LEVEL_NONE;
}

static status line_bad(const merge_line *l, const char *why, err *e)
{
    return err_set(e, ST_LOAD_FAILED, KEY_MERGES, "%s: entry %u, '%.*s', %s", KEY_MERGES, l->merge.rank,
                   (int)(l->text.len < 64 ? l->text.len : 64), l->text.data, why);
}

/* "left right" with the first space behind the first byte between them. */
static status line_split(const tokenizer *t, merge_line *l, err *e)
{
    gguf_str s = l->text;
    const char *space = s.len > 1 ? memchr(s.data + 1, ' ', s.len - 1) : NULL;
    if (!space || space + 1 == s.data + s.len) {
        return line_bad(l, "is not two tokens with a space between", e);
    }
    size_t n_left = (size_t)(space - s.data);
    l->left = (gguf_str){s.data, n_left};
    l->right = (gguf_str){space + 1, s.len - n_left - 1};
    vocab_prefetch(&t->vocab, l->left.data, l->left.len);
    vocab_prefetch(&t->vocab, l->right.data, l->right.len);
    return ST_OK;
}

/* The token of a text. Lists of merges come in the order of the tokens they make, or give all ways to make
 * one token in a row: the token made last, or the one after it, is tried first. */
static int32_t find_joined(const tokenizer *t, const buf *text, int32_t guess)
{
    for (int32_t id = guess; id >= 0 && id <= guess + 1 && (size_t)id < t->n_vocab; id++) {
        gguf_str s = t->vocab.text[id];
        if (s.len == text->len && memcmp(s.data, text->data, s.len) == 0) {
            return id;
        }
    }
    return tokenizer_find(t, text->data, text->len);
}

static status line_find(const tokenizer *t, merge_line *l, buf *joined, int32_t *guess, err *e)
{
    buf_reset(joined);
    if (buf_append(joined, l->left.data, l->left.len) != ST_OK ||
        buf_append(joined, l->right.data, l->right.len) != ST_OK) {
        return tokenizer_no_memory(e);
    }
    bpe_merge *m = &l->merge;
    m->left = tokenizer_find(t, l->left.data, l->left.len);
    m->right = tokenizer_find(t, l->right.data, l->right.len);
    m->joined = *guess = find_joined(t, joined, *guess);
    if (m->left == TOKEN_NONE || m->right == TOKEN_NONE || m->joined == TOKEN_NONE) {
        return line_bad(l, m->joined == TOKEN_NONE ? "makes no token" : "names no token", e);
    }
    __builtin_prefetch(&t->bpe.merges[merge_home(&t->bpe, m->left, m->right)]);
    return ST_OK;
}

static void line_store(bpe_tables *b, const merge_line *l)
{
    bpe_merge *slot = &b->merges[merge_slot(b, l->merge.left, l->merge.right)];
    if (slot->left == TOKEN_NONE) { /* of equal merges the first counts */
        *slot = l->merge;
    }
    int last = edge_byte(l->left.data, l->left.len, true),
        first = edge_byte(l->right.data, l->right.len, false);
    if (last != BYTE_LEVEL_NONE && first != BYTE_LEVEL_NONE) {
        unsigned joint = (unsigned)last * 256 + (unsigned)first;
        b->joints[joint / 64] |= UINT64_C(1) << joint % 64;
    }
}

static status load_batch(tokenizer *t, const gguf_str *texts, size_t first, size_t n, buf *joined,
                         int32_t *guess, err *e)
{
    merge_line lines[BATCH];
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        lines[i] = (merge_line){.text = texts[first + i], .merge.rank = (uint32_t)(first + i)};
        st = line_split(t, &lines[i], e);
    }
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        st = line_find(t, &lines[i], joined, guess, e);
    }
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        line_store(&t->bpe, &lines[i]);
    }
    return st;
}

static status load_merges(tokenizer *t, const gguf_file *f, err *e)
{
    const gguf_kv *kv;
    status st = gguf_get_array(f, KEY_MERGES, GGUF_STR, &kv, e);
    if (st == ST_NOT_FOUND) {
        return err_set(e, ST_LOAD_FAILED, KEY_MERGES, "key %s is not in the file", KEY_MERGES);
    }
    if (st == ST_OK) {
        st = merges_alloc(t, (size_t)kv->n, e);
    }
    buf joined = {0};
    int32_t guess = TOKEN_NONE;
    for (size_t i = 0; st == ST_OK && i < kv->n; i += BATCH) {
        size_t n = kv->n - i < BATCH ? (size_t)kv->n - i : BATCH;
        st = load_batch(t, kv->strs, i, n, &joined, &guess, e);
    }
    buf_release(&joined);
    return st;
}

status tokenizer_bpe_load(tokenizer *t, const gguf_file *f, const pretokenize_family *family, err *e)
{
    t->bpe.ignore_merges = family->ignore_merges;
    /* A byte without a token is left out. The unknown token is no stand-in: StarCoder lacks bytes F1 to F3
     * and names <|endoftext|> as unknown, so plain text would end the document. */
    for (int b = 0; b < 256; b++) {
        char text[4];
        size_t len = utf8_encode(byte_level_char((unsigned char)b), text);
        t->bpe.byte_id[b] = tokenizer_find_plain(t, text, len);
    }
    status st = load_merges(t, f, e);
    return st == ST_OK ? pretokenizer_new(family, &t->bpe.pre, e) : st;
}

static size_t bpe_symbol(void *ctx, size_t at, int32_t *id, bool *apart)
{
    const encoder *enc = ctx;
    const bpe_tables *b = &enc->t->bpe;
    unsigned byte = (unsigned char)enc->run[at], before = at > 0 ? (unsigned char)enc->run[at - 1] : 0;
    unsigned joint = before * 256 + byte;
    *id = b->byte_id[byte];
    *apart = !(b->joints[joint / 64] >> joint % 64 & 1);
    return 1;
}

static bool bpe_pair(const void *ctx, const merge_symbol *left, const merge_symbol *right, uint32_t end,
                     uint32_t *rank, int32_t *id)
{
    const encoder *enc = ctx;
    const bpe_tables *b = &enc->t->bpe;
    const bpe_merge *m = &b->merges[merge_slot(b, left->id, right->id)];
    if (m->left == TOKEN_NONE) {
        return false;
    }
    *rank = m->rank;
    *id = m->joined;
    return true;
}

static status bpe_emit(void *ctx, const merge_symbol *s, uint32_t end, ivec *out)
{
    return s->id == TOKEN_NONE ? ST_OK : ivec_push(out, s->id);
}

static status encode_piece(encoder *enc, const char *s, size_t n)
{
    const bpe_tables *b = &enc->t->bpe;
    if (b->ignore_merges && n <= enc->t->vocab.max_bytes) {
        buf_reset(&enc->scratch);
        status st = buf_reserve(&enc->scratch, 2 * n);
        if (st != ST_OK) {
            return st;
        }
        size_t len = byte_level_encode(s, n, enc->scratch.data);
        int32_t id = tokenizer_find_plain(enc->t, enc->scratch.data, len);
        if (id != TOKEN_NONE) {
            return ivec_push(enc->out, id);
        }
    }
    enc->run = s;
    enc->run_len = n;
    const merge_rules rules = {enc, bpe_symbol, bpe_pair, bpe_emit};
    return merge_text(&enc->merge, &rules, n, enc->out);
}

status tokenizer_bpe_encode(encoder *enc, const char *text, size_t len)
{
    pretokenize_start(&enc->cursor, text, len);
    for (;;) {
        size_t start, end;
        status st = pretokenize_next(&enc->cursor, &start, &end);
        if (st != ST_OK || start == end) {
            return st;
        }
        st = encode_piece(enc, text + start, end - start);
        if (st != ST_OK) {
            return st;
        }
    }
}
