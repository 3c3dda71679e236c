#include <string.h>

#include "base/hash.h"
#include "base/json_int.h"
#include "base/mem.h"
#include "base/utf8.h"

#define MIN_SLOTS 64

void json_keys_release(json_keys *k) {
    mem_free(k->slots);
    buf_release(&k->decoded);
    memset(k, 0, sizeof *k);
}

static uint32_t hex4(const char *s) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        unsigned c = (unsigned char)s[i];
        v = v << 4 | (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return v;
}

/* One \uXXXX or a pair of them, known to be well formed; returns the source bytes it took. */
static size_t unicode_escape(const char *s, uint32_t *cp) {
    *cp = hex4(s + 2);
    if (*cp < 0xD800 || *cp > 0xDBFF) {
        return 6;
    }
    *cp = 0x10000 + ((*cp - 0xD800) << 10) + (hex4(s + 8) - 0xDC00);
    return 12;
}

static char plain_escape(char c) {
    switch (c) {
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return c; /* quote, backslash, slash */
    }
}

/* Appends the decoded form of the checked source s[0..n). */
static status decode(buf *out, const char *s, size_t n) {
    status st = buf_reserve(out, n); /* a decoded key is never longer than its source */
    for (size_t i = 0; st == ST_OK && i < n;) {
        const char *esc = memchr(s + i, '\\', n - i);
        size_t run = esc ? (size_t)(esc - (s + i)) : n - i;
        st = buf_append(out, s + i, run);
        i += run;
        if (st != ST_OK || !esc) {
            break;
        }
        if (esc[1] == 'u') {
            uint32_t cp;
            char bytes[4];
            i += unicode_escape(esc, &cp);
            st = buf_append(out, bytes, utf8_encode(cp, bytes));
        } else {
            i += 2;
            st = buf_append_char(out, plain_escape(esc[1]));
        }
    }
    return st;
}

static const char *key_bytes(const json_keys *k, const json_key *key) {
    return (key->kind == JSON_KEY_DECODED ? buf_str(&k->decoded) : k->text) + key->at;
}

/* The slot of an equal key, or the free one where it would go. */
static json_key *find(const json_keys *k, const json_key *want) {
    size_t mask = k->n_slots - 1;
    size_t i = (size_t)want->hash & mask;
    for (; k->slots[i].kind != JSON_KEY_FREE; i = (i + 1) & mask) {
        const json_key *s = &k->slots[i];
        if (s->hash == want->hash && s->object == want->object && s->len == want->len &&
            memcmp(key_bytes(k, s), key_bytes(k, want), s->len) == 0) {
            break;
        }
    }
    return &k->slots[i];
}

static status grow(json_keys *k) {
    if (k->count < k->n_slots / 2) {
        return ST_OK;
    }
    json_keys bigger = *k;
    bigger.n_slots = k->n_slots ? k->n_slots * 2 : MIN_SLOTS;
    bigger.slots = mem_calloc(bigger.n_slots, sizeof *bigger.slots);
    if (!bigger.slots) {
        return ST_NOMEM;
    }
    for (size_t i = 0; i < k->n_slots; i++) {
        if (k->slots[i].kind != JSON_KEY_FREE) {
            *find(&bigger, &k->slots[i]) = k->slots[i];
        }
    }
    mem_free(k->slots);
    *k = bigger;
    return ST_OK;
}

status json_keys_add(json_keys *k, uint32_t object, size_t at, size_t len, err *e) {
    json_key key = {.object = object, .at = (uint32_t)at, .len = (uint32_t)len, .kind = JSON_KEY_IN_TEXT};
    const char *source = k->text + at;
    status st = grow(k);
    if (st == ST_OK && memchr(source, '\\', len)) {
        key.kind = JSON_KEY_DECODED;
        key.at = (uint32_t)k->decoded.len;
        st = decode(&k->decoded, source, len);
        key.len = (uint32_t)(k->decoded.len - key.at);
    }
    if (st != ST_OK) {
        return err_set(e, st, NULL, "out of memory while reading JSON");
    }
    const char *bytes = key_bytes(k, &key);
    if (memchr(bytes, '\0', key.len)) {
        return err_at(e, ST_BAD_REQUEST, at, NULL, "a key holds U+0000");
    }
    /* Keyed, so that a client cannot prepare keys that fall into one slot; the odd factor spreads the
     * objects. */
    key.hash = hash64_keyed(bytes, key.len) ^ (object * UINT64_C(0x9E3779B97F4A7C15));
    json_key *slot = find(k, &key);
    if (slot->kind != JSON_KEY_FREE) {
        int shown = key.len < 64 ? (int)key.len : 64;
        return err_at(e, ST_BAD_REQUEST, at, bytes, "the key \"%.*s\" occurs twice in one object", shown,
                      bytes);
    }
    *slot = key;
    k->count++;
    return ST_OK;
}
