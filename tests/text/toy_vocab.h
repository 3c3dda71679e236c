/*
 * toy_vocab: small vocabularies for tests, written as GGUF files through the writer and opened again.
 *
 * Fill with toy_token, toy_merge and the gguf_writer functions on toy.w, then toy_open (once). The scores,
 * types and merges are written unless toy.no_scores … say otherwise; `n_scores`, `n_types` shorten the
 * arrays.
 */
#ifndef HEARTH_TESTS_TEXT_TOY_VOCAB_H
#define HEARTH_TESTS_TEXT_TOY_VOCAB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "gguf/writer.h"
#include "text/tokenizer.h"

#define TOY_MAX_TOKENS 2048
#define TOY_MAX_MERGES 512
#define N_OF(array)    (sizeof(array) / sizeof((array)[0]))

typedef struct toy_vocab {
    gguf_writer *w;
    gguf_str tokens[TOY_MAX_TOKENS]; /* owned copies */
    float scores[TOY_MAX_TOKENS];
    int32_t types[TOY_MAX_TOKENS];
    size_t n;
    gguf_str merges[TOY_MAX_MERGES];
    size_t n_merges;
    bool no_tokens, no_scores, no_types, no_merges;
    size_t n_less_scores, n_less_types; /* entries left out at the end */
} toy_vocab;

static inline gguf_str toy_copy(const char *s, size_t n)
{
    char *copy = malloc(n + 1);
    assert_non_null(copy);
    memcpy(copy, s, n);
    copy[n] = '\0';
    return (gguf_str){copy, n};
}

/* model and pre may be NULL: the key is then not written. */
static inline toy_vocab *toy_new(const char *model, const char *pre)
{
    toy_vocab *v = calloc(1, sizeof *v);
    assert_non_null(v);
    assert_int_equal(gguf_writer_new(&v->w), ST_OK);
    assert_int_equal(gguf_writer_str(v->w, "general.architecture", "llama", 5), ST_OK);
    if (model) {
        assert_int_equal(gguf_writer_str(v->w, "tokenizer.ggml.model", model, strlen(model)), ST_OK);
    }
    if (pre) {
        assert_int_equal(gguf_writer_str(v->w, "tokenizer.ggml.pre", pre, strlen(pre)), ST_OK);
    }
    return v;
}

static inline int32_t toy_token_n(toy_vocab *v, const char *text, size_t len, double score, token_kind kind)
{
    assert_true(v->n < TOY_MAX_TOKENS);
    v->tokens[v->n] = toy_copy(text, len);
    v->scores[v->n] = (float)score;
    v->types[v->n] = (int32_t)kind;
    return (int32_t)v->n++;
}

static inline int32_t toy_token(toy_vocab *v, const char *text, double score, token_kind kind)
{
    return toy_token_n(v, text, strlen(text), score, kind);
}

static inline void toy_merge(toy_vocab *v, const char *pair)
{
    assert_true(v->n_merges < TOY_MAX_MERGES);
    v->merges[v->n_merges++] = toy_copy(pair, strlen(pair));
}

/* <unk> <s> </s> and the 256 byte tokens: ids 0 to 258, byte b is 3 + b. */
static inline void toy_spm_base(toy_vocab *v)
{
    toy_token(v, "<unk>", 0, TOKEN_UNKNOWN);
    toy_token(v, "<s>", 0, TOKEN_CONTROL);
    toy_token(v, "</s>", 0, TOKEN_CONTROL);
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        toy_token(v, text, 0, TOKEN_BYTE);
    }
}

/* GPT-2's bytes_to_unicode, written from its own loop: printable bytes first, the others take 256, 257 ... */
static inline uint32_t toy_byte_char(unsigned b)
{
    uint32_t next = 256;
    for (unsigned i = 0; i < 256; i++) {
        bool printable = (i >= '!' && i <= '~') || (i >= 0xA1 && i <= 0xAC) || i >= 0xAE;
        uint32_t cp = printable ? i : next++;
        if (i == b) {
            return cp;
        }
    }
    return 0;
}

/* The way a byte-level vocabulary writes these bytes; in a static buffer. */
static inline gguf_str toy_byte_text(const char *bytes, size_t n)
{
    static char *text;
    size_t len = 0;
    free(text);
    text = malloc(4 * n + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) {
        len += utf8_encode(toy_byte_char((unsigned char)bytes[i]), text + len);
    }
    text[len] = '\0';
    return (gguf_str){text, len};
}

/* The 256 single bytes: byte b is id b. */
static inline void toy_bpe_base(toy_vocab *v)
{
    for (int b = 0; b < 256; b++) {
        char byte[1] = {(char)b};
        gguf_str s = toy_byte_text(byte, 1);
        toy_token_n(v, s.data, s.len, 0, TOKEN_NORMAL);
    }
}

static inline void toy_u32(toy_vocab *v, const char *key, uint32_t value)
{
    assert_int_equal(gguf_writer_u32(v->w, key, value), ST_OK);
}

static inline void toy_bool(toy_vocab *v, const char *key, bool value)
{
    assert_int_equal(gguf_writer_bool(v->w, key, value), ST_OK);
}

static inline gguf_file *toy_write(toy_vocab *v)
{
    char path[256];
    const char *dir = getenv("TMPDIR");
    err e = {0};
    gguf_file *f = NULL;
    snprintf(path, sizeof path, "%s/hearth-toy-%ld.gguf", dir ? dir : "/tmp", (long)getpid());
    if (!v->no_tokens) {
        assert_int_equal(gguf_writer_str_array(v->w, "tokenizer.ggml.tokens", v->tokens, v->n), ST_OK);
    }
    if (!v->no_scores) {
        assert_int_equal(
            gguf_writer_array(v->w, "tokenizer.ggml.scores", GGUF_F32, v->scores, v->n - v->n_less_scores),
            ST_OK);
    }
    if (!v->no_types) {
        assert_int_equal(
            gguf_writer_array(v->w, "tokenizer.ggml.token_type", GGUF_I32, v->types, v->n - v->n_less_types),
            ST_OK);
    }
    if (!v->no_merges) {
        assert_int_equal(gguf_writer_str_array(v->w, "tokenizer.ggml.merges", v->merges, v->n_merges), ST_OK);
    }
    if (gguf_writer_finish(v->w, path, &e) != ST_OK || gguf_open(path, &f, &e) != ST_OK) {
        fail_msg("%s: %s", path, e.msg);
    }
    unlink(path);
    return f;
}

static inline void toy_free(toy_vocab *v)
{
    for (size_t i = 0; i < v->n; i++) {
        free((void *)(uintptr_t)v->tokens[i].data);
    }
    for (size_t i = 0; i < v->n_merges; i++) {
        free((void *)(uintptr_t)v->merges[i].data);
    }
    toy_byte_text("", 0);
    gguf_writer_free(v->w);
    free(v);
}

/* Writes the file, opens it, frees the toy. */
static inline status toy_open(toy_vocab *v, tokenizer **t, err *e)
{
    gguf_file *f = toy_write(v);
    status st = tokenizer_open(f, t, e);
    gguf_close(f); /* the tokenizer keeps nothing of it */
    toy_free(v);
    return st;
}

static inline tokenizer *toy_open_ok(toy_vocab *v)
{
    tokenizer *t = NULL;
    err e = {0};
    if (toy_open(v, &t, &e) != ST_OK) {
        fail_msg("does not open: %s", e.msg);
    }
    return t;
}

/* Encodes and compares with a list of ids that ends in -1. */
static inline void toy_expect_n(const tokenizer *t, const char *text, size_t len, unsigned flags,
                                const int32_t *want, const char *file, int line)
{
    ivec ids = {0};
    size_t n = 0;
    if (tokenizer_encode(t, text, len, flags, &ids) != ST_OK) {
        fail_msg("%s:%d: encoding fails", file, line);
    }
    while (want[n] >= 0) {
        n++;
    }
    bool same = ids.len == n;
    for (size_t i = 0; same && i < n; i++) {
        same = ids.data[i] == want[i];
    }
    if (!same) {
        print_error("'%.*s' becomes", (int)len, text);
        for (size_t i = 0; i < ids.len; i++) {
            print_error(" %d", ids.data[i]);
        }
        print_error("\n");
        fail_msg("%s:%d: wrong ids", file, line);
    }
    ivec_release(&ids);
}

#define EXPECT_IDS(t, text, flags, ...) \
    toy_expect_n(t, text, strlen(text), flags, (const int32_t[]){__VA_ARGS__, -1}, __FILE__, __LINE__)
#define EXPECT_NO_IDS(t, text, flags) \
    toy_expect_n(t, text, strlen(text), flags, (const int32_t[]){-1}, __FILE__, __LINE__)
#define EXPECT_IDS_N(t, text, len, flags, ...) \
    toy_expect_n(t, text, len, flags, (const int32_t[]){__VA_ARGS__, -1}, __FILE__, __LINE__)

#endif
