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
    part->ctime = sb.st_ctim;
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

/* Opens and maps the part; path is in the arena. */
static status part_open(gguf_part *part, const char *path, err *e)
{
    size_t stem_len;
    uint64_t no, count;
    part->path = path;
    if (gguf_split_name(path, &stem_len, &no, &count)) {
        const char *slash = strrchr(path, '/');
        part->label = slash ? slash + 1 : path;
    }
    return part_map(part, e);
}

static status part_parse(gguf_file *f, gguf_part *part, err *e)
{
    status st = gguf_table_parse(f, part, e);
    return st == ST_OK ? gguf_data_check(f, part, e) : st;
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

/*
 * Files before they are looked into
 */
struct gguf_files {
    gguf_file *f; /* owned: as many parts as the name tells, opened as far as that went; nothing parsed */
    size_t named; /* the part that was asked for */
    /* The first of the others that cannot be used, if one cannot: parts from here on are not open. It is no
     * error before the named part says that it is one of a set. */
    size_t failed; /* n_parts: none */
    err failure;
};

static void open_others(gguf_files *s, const char *path, size_t stem_len)
{
    gguf_file *f = s->f;
    for (size_t i = 0; i < f->n_parts; i++) {
        if (i == s->named) {
            continue;
        }
        const char *other = gguf_split_path(&f->mem, path, stem_len, i, f->n_parts);
        status st = other ? part_open(&f->parts[i], other, &s->failure)
                          : err_set(&s->failure, ST_NOMEM, NULL, "cannot open %s: out of memory", path);
        if (st != ST_OK) {
            s->failed = i;
            return;
        }
    }
}

status gguf_files_open(const char *path, gguf_files **out, err *e)
{
    size_t stem_len = 0;
    uint64_t no = 0, count = 1;
    if (!gguf_split_name(path, &stem_len, &no, &count) || count > GGUF_MAX_PARTS) {
        no = 0;
        count = 1; /* too many: what the file itself says will be refused */
    }
    gguf_files *s = mem_calloc(1, sizeof *s);
    gguf_file *f = s ? file_new((size_t)count) : NULL;
    const char *own_path = f ? arena_strndup(&f->mem, path, strlen(path)) : NULL;
    if (!own_path) {
        gguf_close(f);
        mem_free(s);
        return err_set(e, ST_NOMEM, NULL, "cannot open %s: out of memory", path);
    }
    *s = (gguf_files){.f = f, .named = (size_t)no, .failed = f->n_parts};
    status st = part_open(&f->parts[s->named], own_path, e);
    if (st != ST_OK) {
        gguf_files_close(s);
        return st;
    }
    open_others(s, own_path, stem_len);
    *out = s;
    return ST_OK;
}

void gguf_files_close(gguf_files *s)
{
    if (s) {
        gguf_close(s->f);
        mem_free(s);
    }
}

uint64_t gguf_files_bytes(const gguf_files *s)
{
    return gguf_file_bytes(s->f);
}

status gguf_files_identity(const gguf_files *s, uint8_t sum[SHA256_BYTES])
{
    sha256 *hash;
    status st = sha256_new(&hash);
    if (st != ST_OK) {
        return st;
    }
    for (size_t i = 0; st == ST_OK && i < s->f->n_parts; i++) {
        const gguf_part *p = &s->f->parts[i];
        const uint64_t facts[] = {p->device,
                                  p->inode,
                                  p->size,
                                  (uint64_t)p->mtime.tv_sec,
                                  (uint64_t)p->mtime.tv_nsec,
                                  (uint64_t)p->ctime.tv_sec,
                                  (uint64_t)p->ctime.tv_nsec};
        st = sha256_update(hash, facts, sizeof facts);
    }
    if (st == ST_OK) {
        st = sha256_final(hash, sum);
    }
    sha256_free(hash);
    return st;
}

static status parse_others(gguf_file *f, const gguf_files *s, err *e)
{
    status st = gguf_split_check_name(&f->parts[s->named], e);
    for (size_t i = 0; i < f->n_parts && st == ST_OK; i++) {
        if (i == s->failed) {
            if (e) {
                *e = s->failure;
            }
            st = s->failure.code;
        } else if (i != s->named) {
            st = part_parse(f, &f->parts[i], e);
        }
    }
    return st;
}

/* A file that is whole by itself, whatever its name: the neighbours are none of its own. */
static void keep_only(gguf_file *f, size_t named)
{
    gguf_part part = f->parts[named];
    for (size_t i = 0; i < f->n_parts; i++) {
        if (i != named) {
            part_close(&f->parts[i]);
        }
    }
    f->parts[0] = part;
    f->n_parts = 1;
}

status gguf_files_parse_take(gguf_files *s, gguf_file **out, err *e)
{
    gguf_file *f = s->f;
    s->f = NULL;
    status st = part_parse(f, &f->parts[s->named], e);
    if (st == ST_OK && f->parts[s->named].split_count > 1) {
        st = parse_others(f, s, e);
    } else if (st == ST_OK) {
        keep_only(f, s->named);
    }
    gguf_files_close(s);
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

status gguf_open(const char *path, gguf_file **out, err *e)
{
    gguf_files *s = NULL;
    status st = gguf_files_open(path, &s, e);
    return s ? gguf_files_parse_take(s, out, e) : st;
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
        st = part_parse(f, &f->parts[i], e);
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

bool gguf_holds_path(const gguf_file *f, const char *path)
{
    struct stat sb;
    if (stat(path, &sb) != 0) {
        return false;
    }
    for (size_t i = 0; i < f->n_parts; i++) {
        const gguf_part *p = &f->parts[i];
        if (p->fd >= 0 && p->device == (uint64_t)sb.st_dev && p->inode == (uint64_t)sb.st_ino) {
            return true;
        }
    }
    return false;
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

const void *gguf_part_bytes(const gguf_file *f, size_t part, uint64_t *n_bytes)
{
    *n_bytes = f->parts[part].size;
    return f->parts[part].bytes;
}

uint64_t gguf_table_bytes(const gguf_file *f)
{
    return sizeof *f + f->mem.used_bytes;
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
