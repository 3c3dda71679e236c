/* The outside world of the reader: files and mappings. See reader.h for the contract, reader_int.h for the
 * map. */
#include "gguf/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "gguf/reader_int.h"

#define ARENA_CHUNK_BYTES   (64u << 10)
#define TABLE_AHEAD_BYTES   (4u << 20) /* the table of most models is this or less: ask for it in one go */
#define UNREADABLE_MSG_SIZE 300

status gguf_part_vfail(const gguf_part *part, err *e, uint64_t at, const char *what, gguf_str name,
                       const char *fmt, va_list args)
{
    char why[UNREADABLE_MSG_SIZE];
    char field[sizeof e->field];
    vsnprintf(why, sizeof why, fmt, args);
    if (name.len) {
        size_t n = name.len < sizeof field - 1 ? name.len : sizeof field - 1;
        for (size_t i = 0; i < n; i++) {
            field[i] = name.data[i] ? name.data[i] : '?'; /* a bad name must not end the text */
        }
        field[n] = 0;
    } else {
        snprintf(field, sizeof field, "%s", what);
    }
    return err_at(e, ST_LOAD_FAILED, at, field, "%s%s%s%s%.100s at byte %llu: %s",
                  part->label ? part->label : "", part->label ? ": " : "", what, name.len ? " " : "",
                  name.len ? field : "", (unsigned long long)at, why);
}

status gguf_part_fail(const gguf_part *part, err *e, uint64_t at, const char *what, gguf_str name,
                      const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    status st = gguf_part_vfail(part, e, at, what, name, fmt, args);
    va_end(args);
    return st;
}

static const char *file_kind(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
                            : "not a regular file";
}

/* Opens and maps part->path. What was taken stays in the part for part_close, also on failure. */
static status part_map(gguf_part *part, err *e)
{
    struct stat sb;
    const char *path = part->path;

    /* O_NONBLOCK: a pipe without a writer must be refused, not waited for. It does nothing to regular files.
     */
    part->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (part->fd < 0) {
        int why = errno;
        return err_set(e, why == ENOENT ? ST_NOT_FOUND : ST_IO, "path", "cannot open %s: %s", path,
                       strerror(why));
    }
    if (fstat(part->fd, &sb) != 0) {
        return err_set(e, ST_IO, "path", "cannot look at %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(sb.st_mode)) {
        return err_set(e, ST_LOAD_FAILED, "path", "cannot load %s: it is %s", path, file_kind(sb.st_mode));
    }
    part->size = (uint64_t)sb.st_size;
    part->device = (uint64_t)sb.st_dev;
    part->inode = (uint64_t)sb.st_ino;
    part->mtime = sb.st_mtim;
    if (part->size == 0) {
        return err_at(e, ST_LOAD_FAILED, 0, "header", "cannot load %s: the file is empty", path);
    }
    if (part->size > SIZE_MAX) {
        return err_at(e, ST_LOAD_FAILED, 0, "header",
                      "cannot map %s: its %llu bytes exceed the address space", path,
                      (unsigned long long)part->size);
    }
    void *map = mmap(NULL, (size_t)part->size, PROT_READ, MAP_PRIVATE, part->fd, 0);
    if (map == MAP_FAILED) {
        int why = errno;
        return err_set(e, why == ENOMEM ? ST_NOMEM : ST_IO, "path", "cannot map %s (%llu bytes): %s", path,
                       (unsigned long long)part->size, strerror(why));
    }
    part->map = map;
    part->bytes = map;
    /* A hint, so its result does not matter. The data is left to the default: who reads it knows how. */
    (void)madvise(map, part->size < TABLE_AHEAD_BYTES ? (size_t)part->size : TABLE_AHEAD_BYTES,
                  MADV_WILLNEED);
    return ST_OK;
}

static void part_close(gguf_part *part)
{
    strmap_free(part->keys);
    if (part->map) {
        munmap(part->map, (size_t)part->size);
    }
    if (part->fd >= 0) {
        close(part->fd);
    }
}

/* path is in the arena. */
static status part_open(gguf_file *f, gguf_part *part, const char *path, err *e)
{
    size_t stem_len;
    uint64_t no, count;
    part->path = path;
    if (gguf_split_name(path, &stem_len, &no, &count)) {
        const char *slash = strrchr(path, '/');
        part->label = slash ? slash + 1 : path;
    }
    status st = part_map(part, e);
    if (st == ST_OK) {
        st = gguf_table_parse(f, part, e);
    }
    if (st == ST_OK) {
        st = gguf_data_check(f, part, e);
    }
    return st;
}

static gguf_file *file_new(size_t n_parts)
{
    gguf_file *f = mem_calloc(1, sizeof *f);
    if (!f) {
        return NULL;
    }
    arena_init(&f->mem, ARENA_CHUNK_BYTES);
    f->parts = arena_calloc(&f->mem, n_parts, sizeof *f->parts);
    if (!f->parts) {
        gguf_close(f);
        return NULL;
    }
    f->n_parts = n_parts;
    for (size_t i = 0; i < n_parts; i++) {
        f->parts[i].fd = -1;
    }
    return f;
}

void gguf_close(gguf_file *f)
{
    if (!f) {
        return;
    }
    for (size_t i = 0; f->parts && i < f->n_parts; i++) { /* no parts: half-built */
        part_close(&f->parts[i]);
    }
    strmap_free(f->tensor_index);
    arena_release(&f->mem);
    mem_free(f);
}

/* f->parts[0] holds the part that was named; makes room for all of its set and opens the others. */
static status open_others(gguf_file *f, err *e)
{
    gguf_part named = f->parts[0];
    gguf_str key = {"split.count", strlen("split.count")};
    size_t stem_len;
    uint64_t no, count;

    if (!gguf_split_name(named.path, &stem_len, &no, &count)) {
        return gguf_part_fail(&named, e, 0, "key", key,
                              "the file is part %llu of %llu but is not named NAME-%05llu-of-%05llu.gguf",
                              (unsigned long long)named.split_no + 1, (unsigned long long)named.split_count,
                              (unsigned long long)named.split_no + 1, (unsigned long long)named.split_count);
    }
    if (no != named.split_no || count != named.split_count) {
        return gguf_part_fail(&named, e, 0, "key", key,
                              "the file says it is part %llu of %llu, its name says %llu of %llu",
                              (unsigned long long)named.split_no + 1, (unsigned long long)named.split_count,
                              (unsigned long long)no + 1, (unsigned long long)count);
    }
    gguf_part *parts = arena_calloc(&f->mem, (size_t)count, sizeof *parts);
    if (!parts) {
        return err_set(e, ST_NOMEM, NULL, "cannot open %s: out of memory", named.path);
    }
    for (size_t i = 0; i < count; i++) {
        parts[i].fd = -1;
    }
    parts[no] = named;
    f->parts = parts;
    f->n_parts = (size_t)count;
    for (size_t i = 0; i < count; i++) {
        if (i == no) {
            continue;
        }
        const char *path = gguf_split_path(&f->mem, named.path, stem_len, i, count);
        status st = path ? part_open(f, &parts[i], path, e)
                         : err_set(e, ST_NOMEM, NULL, "cannot open %s: out of memory", named.path);
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}

status gguf_open(const char *path, gguf_file **out, err *e)
{
    gguf_file *f = file_new(1);
    const char *own_path = f ? arena_strndup(&f->mem, path, strlen(path)) : NULL;
    if (!own_path) {
        gguf_close(f);
        return err_set(e, ST_NOMEM, NULL, "cannot open %s: out of memory", path);
    }
    status st = part_open(f, &f->parts[0], own_path, e);
    if (st == ST_OK && f->parts[0].split_count > 1) {
        st = open_others(f, e);
    }
    if (st == ST_OK) {
        st = gguf_split_join(f, e);
    }
    if (st != ST_OK) {
        gguf_close(f);
        return st;
    }
    *out = f;
    return ST_OK;
}

status gguf_open_memory(const void *const *parts, const size_t *n_bytes, size_t n_parts, gguf_file **out,
                        err *e)
{
    gguf_file *f = file_new(n_parts);
    status st = ST_OK;
    if (!f) {
        return err_set(e, ST_NOMEM, NULL, "cannot open a file in memory: out of memory");
    }
    for (size_t i = 0; st == ST_OK && i < n_parts; i++) {
        f->parts[i].bytes = parts[i];
        f->parts[i].size = n_bytes[i];
        st = gguf_table_parse(f, &f->parts[i], e);
        if (st == ST_OK) {
            st = gguf_data_check(f, &f->parts[i], e);
        }
    }
    if (st == ST_OK) {
        st = gguf_split_join(f, e);
    }
    if (st != ST_OK) {
        gguf_close(f);
        return st;
    }
    *out = f;
    return ST_OK;
}

static bool part_changed(const gguf_part *part)
{
    struct stat sb;
    if (part->fd < 0) {
        return false;
    }
    /* The descriptor tells about the bytes under the mapping, whatever the working folder or sandbox is by
     * now. */
    if (fstat(part->fd, &sb) != 0 || (uint64_t)sb.st_size != part->size || sb.st_nlink == 0 ||
        sb.st_mtim.tv_sec != part->mtime.tv_sec || sb.st_mtim.tv_nsec != part->mtime.tv_nsec) {
        return true;
    }
    /* The name tells whether another file was put in its place while a second link keeps ours alive. */
    return stat(part->path, &sb) == 0 &&
           ((uint64_t)sb.st_dev != part->device || (uint64_t)sb.st_ino != part->inode);
}

bool gguf_changed(const gguf_file *f)
{
    for (size_t i = 0; i < f->n_parts; i++) {
        if (part_changed(&f->parts[i])) {
            return true;
        }
    }
    return false;
}

uint32_t gguf_version(const gguf_file *f)
{
    return f->parts[0].version;
}

uint64_t gguf_file_bytes(const gguf_file *f)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < f->n_parts; i++) {
        sum += f->parts[i].size;
    }
    return sum;
}

size_t gguf_parts(const gguf_file *f)
{
    return f->n_parts;
}
