/* Opening: the vocabulary, the special ids and the flags, checked; then the family's own tables. */
#include <ctype.h>
#include <string.h>

#include "base/le.h"
#include "base/mem.h"
#include "text/byte_level.h"
#include "text/tokenizer_int.h"

#define ARENA_CHUNK_BYTES ((size_t)64 * 1024)
#define BYTE_TEXT_LEN     6 /* <0x0A> */

/* "llama" adds BOS and the space prefix unless the file says otherwise, "gpt2" neither (see
 * pretokenize_family). */
static const struct family_name {
    const char *model;
    tokenizer_family family;
} family_names[] = {{"llama", FAMILY_SPM}, {"gpt2", FAMILY_BPE}};

static status load_family(tokenizer *t, const gguf_file *f, err *e)
{
    gguf_str model, pre = {"default", strlen("default")};
    status st = gguf_get_str(f, KEY_MODEL, &model, e);
    if (st == ST_NOT_FOUND) {
        return err_set(e, ST_LOAD_FAILED, KEY_MODEL, "key %s is not in the file", KEY_MODEL);
    }
    if (st != ST_OK) {
        return st;
    }
    st = gguf_get_str(f, KEY_PRE, &pre, e);
    if (st != ST_OK && st != ST_NOT_FOUND) {
        return st;
    }
    t->model = arena_strndup(&t->mem, model.data, model.len);
    t->pre = arena_strndup(&t->mem, pre.data, pre.len);
    if (!t->model || !t->pre) {
        return tokenizer_no_memory(e);
    }
    if (strlen(t->pre) != pre.len) { /* "gpt-2" and a NUL is not gpt-2 */
        return err_set(e, ST_UNSUPPORTED, KEY_PRE, "%s holds a NUL: '%.64s' and more", KEY_PRE, t->pre);
    }
    for (size_t i = 0; i < sizeof family_names / sizeof *family_names; i++) {
        if (strcmp(family_names[i].model, t->model) == 0 && strlen(t->model) == model.len) {
            t->family = family_names[i].family;
            return ST_OK;
        }
    }
    return err_set(e, ST_UNSUPPORTED, KEY_MODEL, "tokenizer model '%.64s' is not supported", t->model);
}

static status load_tokens(tokenizer *t, const gguf_file *f, err *e)
{
    const gguf_kv *kv;
    status st = gguf_get_array(f, KEY_TOKENS, GGUF_STR, &kv, e);
    if (st == ST_NOT_FOUND || (st == ST_OK && kv->n == 0)) {
        return err_set(e, ST_LOAD_FAILED, KEY_TOKENS, "the vocabulary %s is %s", KEY_TOKENS,
                       st == ST_OK ? "empty" : "not in the file");
    }
    if (st != ST_OK) {
        return st;
    }
    t->n_vocab = (size_t)kv->n;
    st = vocab_init(&t->vocab, &t->mem, kv->strs, t->n_vocab);
    return st == ST_OK ? st : tokenizer_no_memory(e);
}

/* The byte of "<0x0A>"; -1 if the text is not of that form. */
static int byte_of_text(gguf_str s)
{
    if (s.len != BYTE_TEXT_LEN || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>' ||
        !isxdigit((unsigned char)s.data[3]) || !isxdigit((unsigned char)s.data[4])) {
        return -1;
    }
    int v = 0;
    for (int i = 3; i < 5; i++) {
        char c = s.data[i];
        v = v * 16 + (isdigit((unsigned char)c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return v;
}

static status kind_check(const tokenizer *t, size_t i, int32_t kind, err *e)
{
    if (kind < 0 || kind > TOKEN_BYTE) {
        return err_set(e, ST_LOAD_FAILED, KEY_TOKEN_TYPE, "%s: entry %zu is %d, no known type",
                       KEY_TOKEN_TYPE, i, kind);
    }
    if (kind == TOKEN_BYTE && byte_of_text(t->vocab.text[i]) < 0) {
        return err_set(e, ST_LOAD_FAILED, KEY_TOKENS, "%s: entry %zu is typed as a byte, but reads '%.*s'",
                       KEY_TOKENS, i, (int)(t->vocab.text[i].len < 32 ? t->vocab.text[i].len : 32),
                       t->vocab.text[i].data);
    }
    return ST_OK;
}

static status load_kinds(tokenizer *t, const gguf_file *f, err *e)
{
    const gguf_kv *kv = NULL;
    status st = gguf_get_array(f, KEY_TOKEN_TYPE, GGUF_I32, &kv, e);
    if (st != ST_OK && st != ST_NOT_FOUND) {
        return st;
    }
    if (kv && kv->n != t->n_vocab) {
        return err_set(e, ST_LOAD_FAILED, KEY_TOKEN_TYPE, "%s has %llu entries for %zu tokens",
                       KEY_TOKEN_TYPE, (unsigned long long)kv->n, t->n_vocab);
    }
    t->kind = arena_alloc(&t->mem, t->n_vocab);
    t->file_kind = arena_alloc(&t->mem, t->n_vocab);
    if (!t->kind || !t->file_kind) {
        return tokenizer_no_memory(e);
    }
    for (size_t i = 0; i < t->n_vocab; i++) {
        int32_t kind = TOKEN_NORMAL;
        if (kv) {
            kind = (int32_t)le32_get((const char *)kv->data + 4 * i);
            st = kind_check(t, i, kind, e);
            if (st != ST_OK) {
                return st;
            }
        } else if (t->family == FAMILY_SPM && byte_of_text(t->vocab.text[i]) >= 0) {
            kind = TOKEN_BYTE;
        }
        t->kind[i] = t->file_kind[i] = (uint8_t)(kind == 0 ? TOKEN_NORMAL : kind); /* 0: "undefined" */
    }
    return ST_OK;
}

static status load_id(const tokenizer *t, const gguf_file *f, const char *key, int32_t *id, err *e)
{
    uint32_t v;
    status st = gguf_get_u32(f, key, &v, e);
    if (st == ST_NOT_FOUND) {
        return ST_OK;
    }
    if (st == ST_OK && v >= t->n_vocab) {
        return err_set(e, ST_LOAD_FAILED, key, "%s is %u, but there are %zu tokens", key, v, t->n_vocab);
    }
    if (st == ST_OK) {
        *id = (int32_t)v;
    }
    return st;
}

/* SentencePiece's usual place of a token, where it really is there. No such guess is made for EOS: a file
 * that names no end token has none. */
static int32_t spm_default(const tokenizer *t, int32_t id, const char *text)
{
    bool there = t->family == FAMILY_SPM && (size_t)id < t->n_vocab &&
                 t->vocab.text[id].len == strlen(text) &&
                 memcmp(t->vocab.text[id].data, text, t->vocab.text[id].len) == 0;
    return there ? id : TOKEN_NONE;
}

static status load_ids(tokenizer *t, const gguf_file *f, err *e)
{
    t->unknown = spm_default(t, 0, "<unk>");
    t->bos = spm_default(t, 1, "<s>");
    t->eos = t->eot = t->eom = TOKEN_NONE;
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {{KEY_BOS, &t->bos},
               {KEY_EOS, &t->eos},
               {"tokenizer.ggml.eot_token_id", &t->eot},
               {"tokenizer.ggml.eom_token_id", &t->eom},
               {"tokenizer.ggml.unknown_token_id", &t->unknown}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        status st = load_id(t, f, ids[i].key, ids[i].id, e);
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}

static status load_flag(const gguf_file *f, const char *key, bool *flag, err *e)
{
    status st = gguf_get_bool(f, key, flag, e);
    return st == ST_NOT_FOUND ? ST_OK : st;
}

static status load_flags(tokenizer *t, const gguf_file *f, const pretokenize_family *pre, err *e)
{
    bool spm = t->family == FAMILY_SPM;
    t->add_bos = spm || (pre && pre->adds_bos && t->bos != TOKEN_NONE);
    t->add_space_prefix = spm;
    status st = load_flag(f, "tokenizer.ggml.add_bos_token", &t->add_bos, e);
    if (st == ST_OK) {
        st = load_flag(f, "tokenizer.ggml.add_eos_token", &t->add_eos, e);
    }
    if (st == ST_OK) {
        st = load_flag(f, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, e);
    }
    if (st != ST_OK) {
        return st;
    }
    if (t->add_bos && t->bos == TOKEN_NONE) {
        return err_set(e, ST_LOAD_FAILED, KEY_BOS, "the model adds a start token, but %s is not in the file",
                       KEY_BOS);
    }
    if (t->add_eos && t->eos == TOKEN_NONE) {
        return err_set(e, ST_LOAD_FAILED, KEY_EOS, "the model adds an end token, but %s is not in the file",
                       KEY_EOS);
    }
    return ST_OK;
}

/* Writes the bytes token i stands for to out (never more than its text has) and returns their number. */
static size_t piece_write(const tokenizer *t, size_t i, char *out)
{
    gguf_str s = t->vocab.text[i];
    if (t->kind[i] == TOKEN_BYTE) {
        out[0] = (char)byte_of_text(s);
        return 1;
    }
    if (t->kind[i] != TOKEN_NORMAL && t->kind[i] != TOKEN_UNUSED) {
        memcpy(out, s.data, s.len);
        return s.len;
    }
    if (t->family == FAMILY_BPE) {
        return byte_level_decode(s.data, s.len, out);
    }
    const size_t mark = strlen(SPACE_MARK);
    size_t w = 0;
    for (size_t k = 0; k < s.len;) {
        bool space = s.len - k >= mark && memcmp(s.data + k, SPACE_MARK, mark) == 0;
        out[w++] = space ? ' ' : s.data[k];
        k += space ? mark : 1;
    }
    return w;
}

static status make_pieces(tokenizer *t, err *e)
{
    char *bytes = arena_alloc(&t->mem, t->vocab.total_bytes);
    t->piece = arena_alloc_array(&t->mem, t->n_vocab, sizeof *t->piece);
    if (!bytes || !t->piece) {
        return tokenizer_no_memory(e);
    }
    for (size_t i = 0; i < t->n_vocab; i++) {
        t->piece[i] = (gguf_str){bytes, piece_write(t, i, bytes)};
        bytes += t->piece[i].len;
    }
    return ST_OK;
}

/* Phi-3 was trained with the white space behind its tokens dropped, which no key says; its name does. */
static bool strips_right(const gguf_file *f)
{
    static const char *const marks[] = {"phi-3", "phi3"};
    gguf_str name = {"", 0};
    if (gguf_get_str(f, "general.name", &name, NULL) != ST_OK) {
        return false;
    }
    for (size_t m = 0; m < sizeof marks / sizeof *marks; m++) {
        size_t len = strlen(marks[m]);
        for (size_t i = 0; i + len <= name.len; i++) {
            if (strncasecmp(name.data + i, marks[m], len) == 0) {
                return true;
            }
        }
    }
    return false;
}

static bool text_is(gguf_str s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static status make_specials(tokenizer *t, const gguf_file *f, err *e)
{
    bool strips = strips_right(f);
    size_t n = 0, n_user = 0;
    for (size_t i = 0; i < t->n_vocab; i++) {
        uint8_t k = t->kind[i];
        n += k == TOKEN_CONTROL || k == TOKEN_UNKNOWN || k == TOKEN_USER_DEFINED;
    }
    special_token *all = mem_alloc_array(n, sizeof *all);
    if (!all) {
        return tokenizer_no_memory(e);
    }
    n = 0;
    for (int pass = 0; pass < 2; pass++) { /* the ones that are always found come first */
        for (size_t i = 0; i < t->n_vocab; i++) {
            uint8_t k = t->kind[i];
            bool user = k == TOKEN_USER_DEFINED;
            if (pass == 0 ? user : k == TOKEN_CONTROL || k == TOKEN_UNKNOWN) {
                gguf_str s = t->vocab.text[i];
                bool strip =
                    strips && !text_is(s, "<unk>") && !text_is(s, "<s>") && !text_is(s, "<|endoftext|>");
                all[n++] = (special_token){s.data, s.len, (int32_t)i, strip, user};
                n_user += user;
            }
        }
    }
    status st = special_set_new(all, n_user, &t->special_user);
    if (st == ST_OK) {
        st = special_set_new(all, n, &t->special_all);
    }
    mem_free(all);
    return st == ST_OK ? st : tokenizer_no_memory(e);
}

static status load(tokenizer *t, const gguf_file *f, err *e)
{
    const pretokenize_family *pre = NULL;
    status st = load_family(t, f, e);
    if (st == ST_OK && t->family == FAMILY_BPE) {
        pre = pretokenize_find(t->pre, strlen(t->pre));
        if (!pre) {
            st = err_set(e, ST_UNSUPPORTED, KEY_PRE, "pre-tokenizer '%.64s' is not supported", t->pre);
        }
    }
    if (st == ST_OK) {
        st = load_tokens(t, f, e);
    }
    if (st == ST_OK) {
        st = load_kinds(t, f, e);
    }
    if (st == ST_OK) {
        st = load_ids(t, f, e);
    }
    if (st == ST_OK) {
        st = load_flags(t, f, pre, e);
    }
    if (st == ST_OK) {
        st = tokenizer_names_apply(t, e);
    }
    if (st == ST_OK) {
        st = make_pieces(t, e);
    }
    if (st == ST_OK) {
        st = make_specials(t, f, e);
    }
    if (st != ST_OK) {
        return st;
    }
    return t->family == FAMILY_SPM ? tokenizer_spm_load(t, f, e) : tokenizer_bpe_load(t, f, pre, e);
}

status tokenizer_open(const gguf_file *f, tokenizer **out, err *e)
{
    tokenizer *t = mem_calloc(1, sizeof *t);
    if (!t) {
        return tokenizer_no_memory(e);
    }
    arena_init(&t->mem, ARENA_CHUNK_BYTES);
    status st = load(t, f, e);
    if (st == ST_OK) {
        *out = t;
    } else {
        tokenizer_free(t);
    }
    return st;
}
