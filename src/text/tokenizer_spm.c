/*
 * SentencePiece's BPE: characters are joined, best score first, while the joined text is a token; what no
 * token covers becomes byte tokens.
 *
 * Merging takes two symbols apart (see merge.h) that never stand side by side inside any token.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "base/mem.h"
#include "text/tokenizer_int.h"

#define PAIR_BITS 20 /* 128 KB of bits: a vocabulary of 256k tokens has about 2^17 different pairs */

/* Length of the character that begins with this byte, as SentencePiece counts: by the high half of the first
 * byte alone. What follows a broken first byte is therefore swallowed with it and comes out as byte tokens.
 */
static size_t symbol_len(char lead)
{
    static const unsigned char len_of[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
    return len_of[(unsigned char)lead >> 4];
}

/* Length of the symbol at s[0..n), n > 0, and its bytes as a number. */
static size_t symbol_at(const char *s, size_t n, uint32_t *value)
{
    size_t len = symbol_len(s[0]);
    len = len < n ? len : n;
    uint32_t v = 0;
    for (size_t i = 0; i < len; i++) {
        v = v << 8 | (unsigned char)s[i];
    }
    *value = v;
    return len;
}

static uint32_t pair_bit(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(h >> (64 - PAIR_BITS));
}

static void bit_set(uint64_t *bits, size_t i)
{
    bits[i / 64] |= UINT64_C(1) << i % 64;
}

static bool bit_get(const uint64_t *bits, size_t i)
{
    return bits[i / 64] >> i % 64 & 1;
}

/* A number that is smaller the better the score. */
static uint32_t score_key(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are one score */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

static int key_cmp(const void *pa, const void *pb)
{
    uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return (a > b) - (a < b);
}

/* scores: NULL, or one little-endian float for each token. */
static status load_ranks(tokenizer *t, const void *scores, err *e)
{
    uint64_t *keys = mem_alloc_array(t->n_vocab, sizeof *keys);
    t->spm.rank = arena_alloc_array(&t->mem, t->n_vocab, sizeof *t->spm.rank);
    status st = ST_OK;
    if (!keys || !t->spm.rank) {
        st = tokenizer_no_memory(e);
        goto out;
    }
    for (size_t i = 0; i < t->n_vocab; i++) {
        float score = scores ? lef32_get((const char *)scores + 4 * i) : 0.0f;
        if (!isfinite(score)) {
            st =
                err_set(e, ST_LOAD_FAILED, KEY_SCORES, "%s: entry %zu is not a finite number", KEY_SCORES, i);
            goto out;
        }
        keys[i] = (uint64_t)score_key(score) << 32 | i;
    }
    qsort(keys, t->n_vocab, sizeof *keys, key_cmp);
    uint32_t rank = 0;
    for (size_t i = 0; i < t->n_vocab; i++) {
        rank += i > 0 && keys[i] >> 32 != keys[i - 1] >> 32;
        t->spm.rank[(uint32_t)keys[i]] = rank;
    }
out:
    mem_free(keys);
    return st;
}

static void load_pairs(tokenizer *t)
{
    for (size_t i = 0; i < t->n_vocab; i++) {
        gguf_str s = t->vocab.text[i];
        if (s.len == 0 || !tokenizer_is_plain(t, (int32_t)i)) {
            continue;
        }
        uint32_t left, right;
        for (size_t at = symbol_at(s.data, s.len, &left); at < s.len; left = right) {
            at += symbol_at(s.data + at, s.len - at, &right);
            bit_set(t->spm.pairs, pair_bit(left, right));
        }
    }
}

static void load_small_ids(tokenizer *t)
{
    for (int c = 0; c < 128; c++) {
        char text[1] = {(char)c};
        t->spm.ascii_id[c] = tokenizer_find_plain(t, text, 1);
    }
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        int32_t id = tokenizer_find(t, text, strlen(text));
        if (id == TOKEN_NONE) {
            text[0] = (char)b;
            id = tokenizer_find_plain(t, text, 1);
        }
        t->spm.byte_id[b] = id == TOKEN_NONE ? t->unknown : id;
    }
}

status tokenizer_spm_load(tokenizer *t, const gguf_file *f, err *e)
{
    const gguf_kv *kv = NULL;
    status st = gguf_get_array(f, KEY_SCORES, GGUF_F32, &kv, e);
    if (st != ST_OK && st != ST_NOT_FOUND) {
        return st;
    }
    if (kv && kv->n != t->n_vocab) {
        return err_set(e, ST_LOAD_FAILED, KEY_SCORES, "%s has %llu entries for %zu tokens", KEY_SCORES,
                       (unsigned long long)kv->n, t->n_vocab);
    }
    st = load_ranks(t, kv ? kv->data : NULL, e);
    if (st != ST_OK) {
        return st;
    }
    t->spm.pairs = arena_calloc(&t->mem, (size_t)1 << PAIR_BITS >> 6, sizeof *t->spm.pairs);
    if (!t->spm.pairs) {
        return tokenizer_no_memory(e);
    }
    load_pairs(t);
    load_small_ids(t);
    return ST_OK;
}

static size_t spm_symbol(void *ctx, size_t at, int32_t *id, bool *apart)
{
    encoder *enc = ctx;
    uint32_t value;
    size_t len = symbol_at(enc->run + at, enc->run_len - at, &value);
    *id = MERGE_ID_UNSET;
    *apart = !bit_get(enc->t->spm.pairs, pair_bit(enc->before, value));
    enc->before = value;
    return len;
}

static bool spm_pair(const void *ctx, const merge_symbol *left, const merge_symbol *right, uint32_t end,
                     uint32_t *rank, int32_t *id)
{
    const encoder *enc = ctx;
    *id = tokenizer_find_plain(enc->t, enc->run + left->start, end - left->start);
    if (*id == TOKEN_NONE) {
        return false;
    }
    *rank = enc->t->spm.rank[*id];
    return true;
}

/* One symbol that nothing could be joined to. */
static status emit_symbol(const tokenizer *t, const char *s, size_t len, ivec *out)
{
    int32_t id = len == 1 && (unsigned char)s[0] < 128 ? t->spm.ascii_id[(unsigned char)s[0]]
                                                       : tokenizer_find_plain(t, s, len);
    if (id != TOKEN_NONE) {
        return ivec_push(out, id);
    }
    for (size_t i = 0; i < len; i++) {
        int32_t byte = t->spm.byte_id[(unsigned char)s[i]];
        if (byte == TOKEN_NONE) {
            continue; /* a vocabulary without byte tokens and without an unknown token cannot say this */
        }
        status st = ivec_push(out, byte);
        if (st != ST_OK || byte == t->unknown) {
            return st; /* one unknown token stands for the whole character */
        }
    }
    return ST_OK;
}

static status spm_emit(void *ctx, const merge_symbol *s, uint32_t end, ivec *out)
{
    const encoder *enc = ctx;
    if (s->id != MERGE_ID_UNSET) {
        return ivec_push(out, s->id);
    }
    return emit_symbol(enc->t, enc->run + s->start, end - s->start, out);
}

/* Writes the text with its spaces marked to enc->scratch. */
static status mark_spaces(encoder *enc, const char *text, size_t len, bool space_first)
{
    const size_t mark = strlen(SPACE_MARK);
    size_t n_spaces = space_first;
    for (size_t i = 0; i < len; i++) {
        n_spaces += text[i] == ' ';
    }
    buf_reset(&enc->scratch);
    status st = buf_reserve(&enc->scratch, len + n_spaces * mark); /* far from overflow: see the text limit */
    if (st == ST_OK && space_first) {
        st = buf_append(&enc->scratch, SPACE_MARK, mark);
    }
    for (size_t i = 0; st == ST_OK && i < len;) {
        const char *space = memchr(text + i, ' ', len - i);
        size_t n = space ? (size_t)(space - text) - i : len - i;
        st = buf_append(&enc->scratch, text + i, n);
        if (st == ST_OK && space) {
            st = buf_append(&enc->scratch, SPACE_MARK, mark);
        }
        i += n + (space != NULL);
    }
    return st;
}

status tokenizer_spm_encode(encoder *enc, const char *text, size_t len, bool space_first)
{
    status st = mark_spaces(enc, text, len, space_first);
    if (st != ST_OK) {
        return st;
    }
    enc->run = enc->scratch.data;
    enc->run_len = enc->scratch.len;
    const merge_rules rules = {enc, spm_symbol, spm_pair, spm_emit};
    return merge_text(&enc->merge, &rules, enc->run_len, enc->out);
}
