/*
 * cases: reading a line of NAME.cases.jsonl, and opening the fixture's vocabulary.
 */
#ifndef HEARTH_TESTS_TEXT_CASES_H
#define HEARTH_TESTS_TEXT_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/utf8.h"
#include "base/vec.h"
#include "fixtures.h"
#include "text/tokenizer.h"

typedef struct token_case {
    buf text;
    bool add_special, parse_special;
    ivec ids;
    buf pieces; /* joined */
    ivec piece_len;
} token_case;

static inline bool file_read(const char *path, buf *out)
{
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (!f) {
        return false;
    }
    char chunk[65536];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) {
        assert_int_equal(buf_append(out, chunk, n), ST_OK);
    }
    fclose(f);
    return true;
}

static inline void base64_decode(const char *s, size_t n, buf *out)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0, n_bits = 0;
    for (size_t i = 0; i < n && s[i] != '='; i++) {
        const char *at = strchr(alphabet, s[i]);
        assert_non_null(at);
        bits = bits << 6 | (uint32_t)(at - alphabet);
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            assert_int_equal(buf_append_char(out, (char)(bits >> n_bits)), ST_OK);
        }
    }
}

/* A string, or {"b64": "..."}. */
static inline void text_append(const json *v, buf *out)
{
    size_t n;
    if (json_kind(v) == JSON_OBJECT) {
        const json *b64 = NULL;
        assert_true(json_get(v, "b64", &b64));
        const char *s = json_string(b64, &n);
        base64_decode(s, n, out);
    } else {
        const char *s = json_string(v, &n);
        assert_non_null(s);
        assert_int_equal(buf_append(out, s, n), ST_OK);
    }
}

static inline const json *member(const json *obj, const char *key)
{
    const json *v = NULL;
    assert_true(json_get(obj, key, &v));
    return v;
}

static inline void case_parse(const char *line, size_t len, token_case *c)
{
    json_doc *doc = NULL;
    err e;
    memset(c, 0, sizeof *c);
    assert_int_equal(json_parse(line, len, 8, &doc, &e), ST_OK);
    const json *root = json_root(doc), *v;
    if (json_get(root, "text_b64", &v)) {
        size_t n;
        const char *s = json_string(v, &n);
        base64_decode(s, n, &c->text);
    } else {
        text_append(member(root, "text"), &c->text);
    }
    assert_true(json_bool(member(root, "add_special"), &c->add_special));
    assert_true(json_bool(member(root, "parse_special"), &c->parse_special));
    const json *ids = member(root, "ids"), *pieces = member(root, "pieces");
    assert_int_equal(json_len(ids), json_len(pieces));
    for (size_t i = 0; i < json_len(ids); i++) {
        int64_t id;
        assert_true(json_i64(json_at(ids, i), &id));
        assert_int_equal(ivec_push(&c->ids, (int32_t)id), ST_OK);
        size_t before = c->pieces.len;
        text_append(json_at(pieces, i), &c->pieces);
        assert_int_equal(ivec_push(&c->piece_len, (int32_t)(c->pieces.len - before)), ST_OK);
    }
    json_doc_free(doc);
}

static inline void case_release(token_case *c)
{
    buf_release(&c->text);
    buf_release(&c->pieces);
    ivec_release(&c->ids);
    ivec_release(&c->piece_len);
}

/* Unpacks the file at path (its name ends in .gz) into a temporary one and gives its name. */
static inline const char *unpacked(const char *path)
{
    static char name[256];
    char command[4600];
    const char *dir = getenv("TMPDIR");
    snprintf(name, sizeof name, "%s/hearth-unpacked-%ld.gguf", dir ? dir : "/tmp", (long)getpid());
    snprintf(command, sizeof command, "gzip -dc '%s' > '%s'", path, name);
    assert_int_equal(system(command), 0);
    return name;
}

/* The vocabulary of tokenizers/NAME.gguf (or .gguf.gz); NULL if the fixture is absent. */
static inline tokenizer *tokenizer_from_fixture(const char *name)
{
    char rel[128];
    bool packed = strcmp(name, "gemma3") == 0;
    snprintf(rel, sizeof rel, "tokenizers/%s.gguf%s", name, packed ? ".gz" : "");
    const char *path = fixture_path(rel);
    gguf_file *f = NULL;
    tokenizer *t = NULL;
    err e = {0};
    if (!path) {
        return NULL;
    }
    path = packed ? unpacked(path) : path;
    if (gguf_open(path, &f, &e) != ST_OK || tokenizer_open(f, &t, &e) != ST_OK) {
        fail_msg("%s: %s", rel, e.msg);
    }
    gguf_close(f);
    if (packed) {
        unlink(path);
    }
    return t;
}

#endif
