/*
 * store_keys: the set of keys whose files are there, in memory: a hash table of 40 bytes a key at most three quarters
 * full. The keys are SHA-256, so their first bytes are the hash.
 *
 * Thread: changes and growth by the store's thread; other threads only look, under the store's lock. Growth is in two
 * parts, so that the copy is made without the lock. All-zero is a valid empty set without room.
 */
#ifndef HEARTH_KV_STORE_KEYS_H
#define HEARTH_KV_STORE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/store.h"

typedef enum store_key_state {
    STORE_KEY_NONE,
    STORE_KEY_THERE,
    STORE_KEY_REFUSED /* a bad file that could not be removed: never asked again */
} store_key_state;

typedef struct store_key_slot {
    store_key key;
    uint8_t state; /* store_key_state; NONE: the slot is free */
    uint8_t round; /* of looking through the folder in which it was last seen */
} store_key_slot;

typedef struct store_keys {
    store_key_slot *slots; /* owned; [cap] */
    size_t cap;            /* 0 or a power of two */
    size_t n;
} store_keys;

void store_keys_release(store_keys *k);
bool store_keys_full(const store_keys *k); /* no key may be added before it has grown */
/* A larger set with the same keys; false: no memory. */
bool store_keys_grown(const store_keys *k, store_keys *out);

/* The slot of that key; NULL: none. */
store_key_slot *store_keys_find(const store_keys *k, const store_key *key);
/* Adds it or changes it. The set must not be full. */
void store_keys_put(store_keys *k, const store_key *key, store_key_state state, uint8_t round);
void store_keys_remove(store_keys *k, const store_key *key);

#endif
