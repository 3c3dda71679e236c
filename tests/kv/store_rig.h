/*
 * store_rig: a folder for a store, conversations made of numbers, and what one does with both. Pages are small; what is
 * in one is a function of its conversation and place, so that a page of somebody else's shows.
 */
#ifndef HEARTH_TESTS_KV_STORE_RIG_H
#define HEARTH_TESTS_KV_STORE_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "kv/store.h"
#include "kv/store_header.h"

#define RIG_PAGE_BYTES 8192u
#define RIG_FILE_BYTES (RIG_PAGE_BYTES + STORE_HEADER_BYTES)
#define RIG_PATH_BYTES 512u

typedef struct store_rig {
    char dir[RIG_PATH_BYTES];
    clock_fake clock; /* changed only while no store is at work */
    store_config cfg;
    store *s;
} store_rig;

/* An empty folder of its own, and a configuration without limits; nothing is open yet. */
void rig_init(store_rig *r);
void rig_open(store_rig *r);  /* and waits until the folder was looked through */
void rig_close(store_rig *r); /* all is written */
void rig_end(store_rig *r);   /* closes it if it is open; the folder goes */

typedef struct rig_page {
    kv_root_key root;
    store_key parent, key;
    bool has_parent;
    int32_t ids[KV_PAGE_TOKENS];
    size_t n_ids;
    uint8_t bytes[RIG_PAGE_BYTES];
} rig_page;

/* Page i of conversation c. */
void rig_page_make(rig_page *p, unsigned c, unsigned i);
bool rig_put_page(store_rig *r, const rig_page *p);
bool rig_put(store_rig *r, unsigned c, unsigned i);
/* Puts pages [from, to) of it, each when the one before is written. */
void rig_put_all(store_rig *r, unsigned c, unsigned from, unsigned to);
/* Waits for the result; if it is there its bytes must be right. */
bool rig_get_page(store_rig *r, const rig_page *p);
bool rig_get(store_rig *r, unsigned c, unsigned i);
/* How many pages from the first on can be had. */
unsigned rig_prefix(store_rig *r, unsigned c, unsigned most);
store_stats rig_stats(const store_rig *r);

/* The path of its file, or of another name in the folder. */
void rig_path(const store_rig *r, const rig_page *p, char out[RIG_PATH_BYTES]);
void rig_name(const store_rig *r, const char *name, char out[RIG_PATH_BYTES]);
size_t rig_count_files(const store_rig *r, const char *ending);

/* Forgets what was logged (rig_init does it too). While no store is open. */
void rig_catch_log(void);
/* How often this text was logged since. */
unsigned rig_lines(const char *text);

#endif
