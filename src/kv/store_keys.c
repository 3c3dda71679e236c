#include "kv/store_keys.h"

#include <assert.h>
#include <string.h>

#include "base/le.h"
#include "base/mem.h"

#define FIRST_CAP 256u

void store_keys_release(store_keys *k)
{
    mem_free(k->slots);
    memset(k, 0, sizeof *k);
}

bool store_keys_full(const store_keys *k)
{
    return k->n >= k->cap / 4 * 3;
}

static size_t home(const store_keys *k, const store_key *key)
{
    return (size_t)le64_get(key->bytes) & (k->cap - 1);
}

/* Its slot, or the free one where it belongs. */
static store_key_slot *slot_of(const store_keys *k, const store_key *key)
{
    size_t i = home(k, key);
    while (k->slots[i].state != STORE_KEY_NONE && memcmp(&k->slots[i].key, key, sizeof *key) != 0) {
        i = (i + 1) & (k->cap - 1);
    }
    return &k->slots[i];
}

bool store_keys_grown(const store_keys *k, store_keys *out)
{
    store_keys bigger = {.cap = k->cap ? 2 * k->cap : FIRST_CAP, .n = k->n};
    bigger.slots = mem_calloc(bigger.cap, sizeof *bigger.slots);
    if (!bigger.slots) {
        return false;
    }
    for (size_t i = 0; i < k->cap; i++) {
        if (k->slots[i].state != STORE_KEY_NONE) {
            *slot_of(&bigger, &k->slots[i].key) = k->slots[i];
        }
    }
    *out = bigger;
    return true;
}

store_key_slot *store_keys_find(const store_keys *k, const store_key *key)
{
    store_key_slot *s = k->cap ? slot_of(k, key) : NULL;
    return s && s->state != STORE_KEY_NONE ? s : NULL;
}

void store_keys_put(store_keys *k, const store_key *key, store_key_state state, uint8_t round)
{
    assert(k->cap > k->n && state != STORE_KEY_NONE);
    store_key_slot *s = slot_of(k, key);
    k->n += s->state == STORE_KEY_NONE;
    s->key = *key;
    s->state = (uint8_t)state;
    s->round = round;
}

/* What follows moves up, so that no search ends at the gap. */
void store_keys_remove(store_keys *k, const store_key *key)
{
    store_key_slot *found = store_keys_find(k, key);
    if (!found) {
        return;
    }
    size_t gap = (size_t)(found - k->slots);
    for (size_t i = (gap + 1) & (k->cap - 1); k->slots[i].state != STORE_KEY_NONE;
         i = (i + 1) & (k->cap - 1)) {
        size_t from_home = (i - home(k, &k->slots[i].key)) & (k->cap - 1);
        size_t from_gap = (i - gap) & (k->cap - 1);
        if (from_home >= from_gap) {
            k->slots[gap] = k->slots[i];
            gap = i;
        }
    }
    memset(&k->slots[gap], 0, sizeof k->slots[gap]);
    k->n--;
}
