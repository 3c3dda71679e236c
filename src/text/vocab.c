#include "text/vocab.h"

#include <string.h>

#include "base/hash.h"
#include "base/le.h"
#include "base/mem.h"

#define SHORT_BYTES 8

/* A text of up to 8 bytes as a number (different for different texts of one length), or a hash of a longer
 * one. */
static uint64_t key_of(const char *s, size_t n)
{
    if (n > SHORT_BYTES) {
        return hash64_keyed(s, n);
    }
    if (n >= 4) {
        return le32_get(s) | (uint64_t)le32_get(s + n - 4) << 32;
    }
    const unsigned char *u = (const unsigned char *)s;
    return n == 0 ? 0 : u[0] | (uint64_t)u[n / 2] << 8 | (uint64_t)u[n - 1] << 16;
}

static size_t slot_of(const vocab *v, uint64_t key, size_t len)
{
    unsigned __int128 m = (unsigned __int128)(key ^ v->seed) * (UINT64_C(0x9E3779B97F4A7C15) + 2 * len);
    return (size_t)((uint64_t)(m >> 64) ^ (uint64_t)m) & v->mask;
}

/* The slot that holds the text, or the free one where it would go. */
static const vocab_slot *find(const vocab *v, const char *s, size_t n)
{
    uint64_t key = key_of(s, n);
    size_t i = slot_of(v, key, n);
    for (;; i = (i + 1) & v->mask) {
        const vocab_slot *slot = &v->slots[i];
        if (slot->len == 0 || (slot->key == key && slot->len == n &&
                               (n <= SHORT_BYTES || memcmp(v->text[slot->id].data, s, n) == 0))) {
            return slot;
        }
    }
}

int32_t vocab_find(const vocab *v, const char *text, size_t len)
{
    if (len == 0 || len > v->max_bytes) {
        return VOCAB_NONE;
    }
    const vocab_slot *slot = find(v, text, len);
    return slot->len == 0 ? VOCAB_NONE : slot->id;
}

void vocab_prefetch(const vocab *v, const char *text, size_t len)
{
    if (len > 0) {
        __builtin_prefetch(&v->slots[slot_of(v, key_of(text, len), len)]);
    }
}

static status copy_texts(vocab *v, arena *mem, const gguf_str *texts)
{
    for (size_t i = 0; i < v->n; i++) {
        size_t len = texts[i].len;
        if (len > UINT32_MAX || !size_add(v->total_bytes, len, &v->total_bytes)) {
            return ST_NOMEM;
        }
        v->max_bytes = len > v->max_bytes ? len : v->max_bytes;
    }
    char *bytes = arena_alloc(mem, v->total_bytes);
    v->text = arena_alloc_array(mem, v->n, sizeof *v->text);
    if (!bytes || !v->text) {
        return ST_NOMEM;
    }
    for (size_t i = 0; i < v->n; i++) {
        if (texts[i].len > 0) {
            memcpy(bytes, texts[i].data, texts[i].len);
        }
        v->text[i] = (gguf_str){bytes, texts[i].len};
        bytes += texts[i].len;
    }
    return ST_OK;
}

status vocab_init(vocab *v, arena *mem, const gguf_str *texts, size_t n)
{
    size_t n_slots = 16;
    memset(v, 0, sizeof *v);
    if (n > INT32_MAX / 2) {
        return ST_NOMEM;
    }
    v->n = n;
    v->seed = hash64_keyed("vocab", strlen("vocab"));
    status st = copy_texts(v, mem, texts);
    if (st != ST_OK) {
        return st;
    }
    while (n_slots < 2 * n) {
        n_slots *= 2;
    }
    v->slots = arena_calloc(mem, n_slots, sizeof *v->slots);
    if (!v->slots) {
        return ST_NOMEM;
    }
    v->mask = n_slots - 1;
    for (size_t i = 0; i < n; i++) {
        gguf_str s = v->text[i];
        if (s.len > 0) {
            vocab_slot *slot = &v->slots[find(v, s.data, s.len) - v->slots];
            if (slot->len == 0) {
                *slot = (vocab_slot){key_of(s.data, s.len), (uint32_t)s.len, (int32_t)i};
            }
        }
    }
    return ST_OK;
}
