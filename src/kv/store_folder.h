/*
 * store_folder: the page files in their folder: written beside their place and renamed, read and checked, removed.
 *
 * A page file is KEY.page (64 hexadecimal digits), a header (store_header.h) and the page. A file that is being written
 * is new-RANDOM.tmp, and whoever writes it holds its lock (flock): without one it is left over from somebody who died.
 * Nothing is synced: what a crash of the machine tears, the checksum finds.
 *
 * Thread: one at a time. Other processes may do the same in the same folder. Errors say what the caller has to do:
 *   ST_NOT_FOUND    there is no such file
 *   ST_BAD_FORMAT   the file is not what was asked for, or cannot be read: remove it
 *   ST_CAPACITY     not this time (no descriptors, no memory)
 *   ST_IO           the folder cannot be written, or read, at all
 */
#ifndef HEARTH_KV_STORE_FOLDER_H
#define HEARTH_KV_STORE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kv/store.h"
#include "kv/store_header.h"

#define STORE_AHEAD 2u /* files that the device fetches while another one is read */

typedef struct store_ahead {
    bool open;
    int fd; /* owned */
    store_key key;
} store_ahead;

typedef struct store_folder {
    int fd;                         /* owned; -1: not open */
    const store_seam *seam;         /* borrowed; may be NULL */
    store_ahead ahead[STORE_AHEAD]; /* opened already, to be read next */
} store_folder;

typedef struct store_temp {
    int fd; /* owned */
    char name[32];
} store_temp;

status store_folder_open(store_folder *f, const char *path, const store_seam *seam, err *e);
void store_folder_close(store_folder *f);
/* Whether it has no place in the file system any more. */
bool store_folder_is_gone(const store_folder *f);

/* Reads the file's page into page [want->page_bytes], which holds anything unless it is ST_OK. next: what will be read
 * after it, at most STORE_AHEAD, so that the device need not wait to be asked. */
status store_folder_read(store_folder *f, const store_key *key, const store_header *want, void *page,
                         const store_key *next, size_t n_next, err *e);

/* A file with all that belongs into it, not in its place yet. */
status store_folder_write(const store_folder *f, const store_header *h, const void *page, store_temp *out,
                          err *e);
/* Puts it there, or removes it if that fails; t is done with. */
status store_folder_place(const store_folder *f, store_temp *t, const store_key *key, err *e);
void store_folder_drop(const store_folder *f, store_temp *t);

/* ST_OK also if there was none. */
status store_folder_remove(const store_folder *f, const store_key *key, err *e);
bool store_folder_has(const store_folder *f, const store_key *key);

typedef enum store_entry_kind {
    STORE_ENTRY_OTHER, /* not ours */
    STORE_ENTRY_PAGE,  /* key holds its name */
    STORE_ENTRY_TEMP
} store_entry_kind;
store_entry_kind store_folder_kind(const char *name, store_key *key);
/* Removes a .tmp unless somebody alive writes it. */
void store_folder_sweep(const store_folder *f, const char *name);

typedef struct store_entry {
    store_key parent;
    uint64_t bytes;
    int64_t modified_ms;
} store_entry;
/* What a file's header says of it; its page is not looked at. */
status store_folder_look(const store_folder *f, const store_key *key, store_entry *out, err *e);

#endif
