#include "model/pack_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "kern/pack.h"

#define ENDING "hpack"

status pack_folder_path(const char *folder, const pack_key *key, char path[PACK_PATH_MAX], err *e)
{
    char source[SHA256_HEX_LEN + 1];
    hex_encode(key->source, SHA256_BYTES, source);
    source[SHA256_HEX_LEN / 2] = '\0'; /* half of it tells models apart; the header has all of it */
    int n = snprintf(path, PACK_PATH_MAX, "%s/%s-p%d-v%d-%llx." ENDING, folder, source, KERN_PACK_VERSION,
                     NUMERICS_VERSION, (unsigned long long)key->types);
    return n > 0 && n < (int)PACK_PATH_MAX
               ? ST_OK
               : err_set(e, ST_IO, NULL, "the path of the folder for packed weights is too long");
}

typedef struct found_file {
    char name[NAME_MAX + 1];
    uint64_t bytes;
    struct timespec used;
} found_file;

typedef struct found_list {
    found_file *at; /* owned */
    size_t n;
    size_t cap;
    uint64_t bytes; /* of all */
} found_list;

static bool is_packed_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot + 1, ENDING) == 0;
}

static bool list_add(found_list *l, const char *name, const struct stat *sb)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 16, bytes;
        found_file *at = size_mul(cap, sizeof *at, &bytes) ? mem_realloc(l->at, bytes) : NULL;
        if (!at) {
            return false;
        }
        l->at = at;
        l->cap = cap;
    }
    found_file *f = &l->at[l->n++];
    snprintf(f->name, sizeof f->name, "%s", name);
    f->bytes = (uint64_t)sb->st_blocks * 512;
    f->used = sb->st_mtim;
    l->bytes += f->bytes;
    return true;
}

/* Removes a file unless somebody writes it: only who holds its lock may. */
static bool remove_file(int dir, const char *name, bool only_unfinished)
{
    unsigned char start[sizeof(uint64_t)] = {0};
    static const unsigned char zeros[sizeof start] = {0};
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    bool gone = flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                (!only_unfinished ||
                 (pread(fd, start, sizeof start, 0) >= 0 && memcmp(start, zeros, sizeof start) == 0)) &&
                unlinkat(dir, name, 0) == 0;
    close(fd);
    return gone;
}

static bool list_files(int dir_fd, found_list *l)
{
    int fd = dup(dir_fd); /* closedir closes it */
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    bool ok = d != NULL;
    if (!d) {
        close(fd);
        return false;
    }
    for (const struct dirent *entry = readdir(d); ok && entry; entry = readdir(d)) {
        struct stat sb;
        if (!is_packed_name(entry->d_name) || fstatat(dir_fd, entry->d_name, &sb, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(sb.st_mode) || remove_file(dir_fd, entry->d_name, true)) {
            continue;
        }
        ok = list_add(l, entry->d_name, &sb);
    }
    closedir(d);
    return ok;
}

static int by_use(const void *a, const void *b)
{
    const found_file *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) {
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    }
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

static uint64_t default_budget(int dir, uint64_t held)
{
    struct statvfs v;
    uint64_t free_bytes = fstatvfs(dir, &v) == 0 ? (uint64_t)v.f_bavail * v.f_frsize : 0;
    return free_bytes / 2 + held / 2;
}

/* Least recently used first, until the rest and wanted_bytes are within the budget. */
static void remove_oldest(int dir, const char *folder, found_list *l, uint64_t wanted_bytes, uint64_t budget)
{
    if (l->n > 0) {
        qsort(l->at, l->n, sizeof *l->at, by_use);
    }
    for (size_t i = 0; i < l->n && l->bytes > budget - wanted_bytes; i++) {
        const found_file *f = &l->at[i];
        if (remove_file(dir, f->name, false)) {
            l->bytes -= f->bytes;
            log_emit(LOG_INFO, "pack", "event=removed reason=budget path=\"%s/%s\" bytes=%llu", folder,
                     f->name, (unsigned long long)f->bytes);
        }
    }
}

status pack_folder_make_room(const char *folder, uint64_t wanted_bytes, uint64_t budget_bytes, err *e)
{
    found_list l = {0};
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return err_set(e, ST_IO, NULL, "cannot open %s: %s", folder, strerror(errno));
    }
    status st =
        list_files(dir, &l) ? ST_OK : err_set(e, ST_IO, NULL, "cannot list %s: %s", folder, strerror(errno));
    if (st == ST_OK) {
        uint64_t budget = budget_bytes ? budget_bytes : default_budget(dir, l.bytes);
        if (wanted_bytes <= budget) {
            remove_oldest(dir, folder, &l, wanted_bytes, budget);
        }
        if (wanted_bytes > budget || l.bytes > budget - wanted_bytes) {
            st = err_set(
                e, ST_FULL, NULL, "no room in %s: %llu bytes beside %llu are over its budget of %llu", folder,
                (unsigned long long)wanted_bytes, (unsigned long long)l.bytes, (unsigned long long)budget);
        }
    }
    mem_free(l.at);
    close(dir);
    return st;
}
