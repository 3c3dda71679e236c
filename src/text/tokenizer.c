#include "text/tokenizer.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer_int.h"

status tokenizer_no_memory(err *e)
{
    return err_set(e, ST_NOMEM, NULL, "out of memory while opening the tokenizer");
}

void tokenizer_free(tokenizer *t)
{
    if (t) {
        pretokenizer_free(t->bpe.pre);
        special_set_free(t->special_all);
        special_set_free(t->special_user);
        arena_release(&t->mem);
        mem_free(t);
    }
}

size_t tokenizer_bytes(const tokenizer *t)
{
    return sizeof *t + t->mem.used_bytes;
}

int32_t tokenizer_n_vocab(const tokenizer *t)
{
    return (int32_t)t->n_vocab;
}

const char *tokenizer_model(const tokenizer *t)
{
    return t->model;
}

const char *tokenizer_pre(const tokenizer *t)
{
    return t->pre;
}

int32_t tokenizer_bos(const tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const tokenizer *t)
{
    return t->add_bos;
}

bool tokenizer_adds_eos(const tokenizer *t)
{
    return t->add_eos;
}

bool tokenizer_adds_space_prefix(const tokenizer *t)
{
    return t->add_space_prefix;
}

const int32_t *tokenizer_eog_ids(const tokenizer *t, size_t *n)
{
    *n = t->n_eog;
    return t->eog;
}

bool tokenizer_is_eog(const tokenizer *t, int32_t id)
{
    size_t lo = 0, hi = t->n_eog;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (t->eog[mid] == id) {
            return true;
        }
        if (t->eog[mid] < id) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return false;
}

const char *tokenizer_piece(const tokenizer *t, int32_t id, size_t *len)
{
    *len = t->piece[id].len;
    return t->piece[id].data;
}

token_kind tokenizer_kind(const tokenizer *t, int32_t id)
{
    return (token_kind)t->kind[id];
}

int32_t tokenizer_find(const tokenizer *t, const char *text, size_t len)
{
    return vocab_find(&t->vocab, text, len); /* VOCAB_NONE is TOKEN_NONE */
}

bool tokenizer_is_plain(const tokenizer *t, int32_t id)
{
    uint8_t k = t->file_kind[id];
    return k != TOKEN_CONTROL && k != TOKEN_UNKNOWN && k != TOKEN_BYTE;
}

int32_t tokenizer_find_plain(const tokenizer *t, const char *text, size_t len)
{
    int32_t id = tokenizer_find(t, text, len);
    return id != TOKEN_NONE && tokenizer_is_plain(t, id) ? id : TOKEN_NONE;
}

static status encoder_init(encoder *enc, const tokenizer *t, ivec *out)
{
    memset(enc, 0, sizeof *enc);
    enc->t = t;
    enc->out = out;
    return t->family == FAMILY_SPM ? ST_OK : pretokenize_cursor_init(&enc->cursor, t->bpe.pre);
}

static void encoder_release(encoder *enc)
{
    pretokenize_cursor_release(&enc->cursor);
    buf_release(&enc->scratch);
    merger_release(&enc->merge);
}

/* Text between special tokens. SentencePiece puts its space before text that follows a special token or
 * nothing. */
static status encode_plain(encoder *enc, const char *text, size_t len, bool may_prefix)
{
    if (len == 0) {
        return ST_OK;
    }
    if (enc->t->family == FAMILY_BPE) {
        return tokenizer_bpe_encode(enc, text, len);
    }
    return tokenizer_spm_encode(enc, text, len, may_prefix && enc->t->add_space_prefix);
}

static status encode_text(const tokenizer *t, const char *text, size_t len, const special_range *plain,
                          size_t n_plain, unsigned flags, ivec *out)
{
    const special_set *set = flags & TOKENIZE_PARSE_SPECIAL ? t->special_all : t->special_user;
    bool never = flags & TOKENIZE_NO_PREFIX, may_prefix = !never && !(flags & TOKENIZE_BEHIND_TEXT);
    special_hits hits = {0};
    encoder enc;
    status st = encoder_init(&enc, t, out);
    if (st == ST_OK) {
        st = special_find_outside(set, text, len, plain, n_plain, &hits);
    }
    size_t at = 0;
    for (size_t i = 0; st == ST_OK && i < hits.n; i++) {
        st = encode_plain(&enc, text + at, hits.data[i].start - at, may_prefix);
        if (st == ST_OK) {
            st = ivec_push(out, hits.data[i].id);
        }
        may_prefix = !never;
        at = hits.data[i].end;
    }
    if (st == ST_OK) {
        st = encode_plain(&enc, text + at, len - at, may_prefix);
    }
    special_hits_release(&hits);
    encoder_release(&enc);
    return st;
}

status tokenizer_encode(const tokenizer *t, const char *text, size_t len, unsigned flags, ivec *out)
{
    size_t n_before = out->len;
    buf repaired = {0};
    status st = ST_OK;
    if (len > TOKENIZER_MAX_TEXT_BYTES) {
        return ST_NOMEM;
    }
    if (flags & TOKENIZE_ADD_SPECIAL && t->add_bos) {
        st = ivec_push(out, t->bos);
    }
    if (st == ST_OK && t->family == FAMILY_BPE && !utf8_valid(text, len, NULL)) {
        st = utf8_repair(&repaired, text, len);
        text = buf_str(&repaired);
        len = repaired.len;
    }
    if (st == ST_OK && len > 0) {
        st = encode_text(t, text, len, NULL, 0, flags, out);
    }
    if (st == ST_OK && flags & TOKENIZE_ADD_SPECIAL && t->add_eos) {
        st = ivec_push(out, t->eos);
    }
    if (st != ST_OK) {
        ivec_truncate(out, n_before);
    }
    buf_release(&repaired);
    return st;
}

status tokenizer_encode_ranges(const tokenizer *t, const char *text, size_t len, const special_range *plain,
                               size_t n_plain, unsigned flags, ivec *out)
{
    size_t n_before = out->len;
    if (len > TOKENIZER_MAX_TEXT_BYTES) {
        return ST_NOMEM;
    }
    if (!utf8_valid(text, len, NULL)) {
        return ST_BAD_REQUEST;
    }
    status st =
        len > 0 ? encode_text(t, text, len, plain, n_plain, flags | TOKENIZE_PARSE_SPECIAL, out) : ST_OK;
    if (st != ST_OK) {
        ivec_truncate(out, n_before);
    }
    return st;
}
