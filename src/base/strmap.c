#include "base/strmap.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define MIN_SLOTS 16

typedef struct slot {
    const char *key; /* borrowed; NULL = free */
    size_t len;
    uint32_t hash; /* its low bits choose the slot, so there are at most 2^32 of them */
    int32_t value;
} slot;

struct strmap {
    slot *slots; /* owned; n_slots is a power of two, at most 3/4 in use */
    size_t n_slots;
    size_t count;
};

/* Smallest power of two that holds n entries; false if there is none. */
static bool slots_for(size_t n, size_t *n_slots)
{
    size_t want = MIN_SLOTS;
    while (want / 4 * 3 < n) {
        if (want > UINT32_MAX / 2) {
            return false;
        }
        want *= 2;
    }
    *n_slots = want;
    return true;
}

status strmap_new(size_t expected, strmap **out)
{
    size_t n_slots;
    if (!slots_for(expected, &n_slots)) {
        return ST_NOMEM;
    }
    strmap *m = mem_calloc(1, sizeof *m);
    if (!m) {
        return ST_NOMEM;
    }
    m->slots = mem_calloc(n_slots, sizeof *m->slots);
    if (!m->slots) {
        mem_free(m);
        return ST_NOMEM;
    }
    m->n_slots = n_slots;
    *out = m;
    return ST_OK;
}

void strmap_free(strmap *m)
{
    if (m) {
        mem_free(m->slots);
        mem_free(m);
    }
}

/* The slot that holds the key, or the free one where it would go. */
static size_t find(const strmap *m, const char *key, size_t len, uint32_t hash)
{
    size_t mask = m->n_slots - 1;
    size_t i = hash & mask;
    while (m->slots[i].key) {
        const slot *s = &m->slots[i];
        if (s->hash == hash && s->len == len && memcmp(s->key, key, len) == 0) {
            break;
        }
        i = (i + 1) & mask;
    }
    return i;
}

static uint32_t hash_of(const char *key, size_t len)
{
    return (uint32_t)hash64_keyed(key, len);
}

static status grow(strmap *m)
{
    size_t n_slots;
    if (!slots_for(m->count + 1, &n_slots)) {
        return ST_NOMEM;
    }
    if (n_slots <= m->n_slots) {
        return ST_OK;
    }
    strmap bigger = {mem_calloc(n_slots, sizeof(slot)), n_slots, m->count};
    if (!bigger.slots) {
        return ST_NOMEM;
    }
    for (size_t i = 0; i < m->n_slots; i++) {
        const slot *s = &m->slots[i];
        if (s->key) {
            bigger.slots[find(&bigger, s->key, s->len, s->hash)] = *s;
        }
    }
    mem_free(m->slots);
    *m = bigger;
    return ST_OK;
}

status strmap_put(strmap *m, const char *key, size_t len, int32_t value, bool *existed)
{
    if (len == 0) {
        key = ""; /* an empty key may come as NULL, which marks a free slot here */
    }
    uint32_t hash = hash_of(key, len);
    size_t i = find(m, key, len, hash);
    bool there = m->slots[i].key != NULL;
    if (!there) {
        status st = grow(m);
        if (st != ST_OK) {
            return st;
        }
        i = find(m, key, len, hash);
        m->slots[i] = (slot){key, len, hash, value};
        m->count++;
    }
    if (existed) {
        *existed = there;
    }
    return ST_OK;
}

bool strmap_get(const strmap *m, const char *key, size_t len, int32_t *value)
{
    if (len == 0) {
        key = "";
    }
    const slot *s = &m->slots[find(m, key, len, hash_of(key, len))];
    if (!s->key) {
        return false;
    }
    if (value) {
        *value = s->value;
    }
    return true;
}

bool strmap_remove(strmap *m, const char *key, size_t len)
{
    size_t mask = m->n_slots - 1;
    if (len == 0) {
        key = "";
    }
    size_t hole = find(m, key, len, hash_of(key, len));
    if (!m->slots[hole].key) {
        return false;
    }
    /* Backward shift: an entry behind the hole moves into it unless its home lies cyclically in (hole, i]. */
    for (size_t i = (hole + 1) & mask; m->slots[i].key; i = (i + 1) & mask) {
        size_t home = m->slots[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole].key = NULL;
    m->count--;
    return true;
}

size_t strmap_count(const strmap *m)
{
    return m->count;
}
