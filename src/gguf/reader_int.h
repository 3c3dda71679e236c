/*
 * reader_int: what the files of the reader share. Private to gguf/ (and to the fuzz target, for
 * gguf_open_memory).
 *
 *   reader.c        the outside world: files, mappings, open, close, changed
 *   reader_table.c  one part: header, keys, tensor records      (gguf_table_parse)
 *   reader_known.c  the keys whose type is fixed                (gguf_known_wanted)
 *   reader_data.c   one part: where the tensors' data may lie   (gguf_data_check)
 *   reader_split.c  names of parts; all parts together          (gguf_split_*)
 *   reader_get.c    finding keys and tensors, typed reading
 *
 * A part is parsed into its own tables first; nothing of it is handed out before every part passed every
 * check.
 */
#ifndef HEARTH_GGUF_READER_INT_H
#define HEARTH_GGUF_READER_INT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/strmap.h"
#include "gguf/reader.h"

#define GGUF_HEADER_BYTES 24u

typedef struct gguf_part {
    /* owned */
    void *map; /* NULL for a part in the caller's memory */
    int fd;    /* kept to notice changes; -1 for a part in memory */
    strmap *keys;
    /* in the arena of the file */
    const char *path;  /* NULL for a part in memory */
    const char *label; /* file name, put before messages when the part is one of several; else NULL */
    gguf_kv *kv;
    gguf_tensor *tensors;
    uint64_t *records; /* [n_tensors] offset of each tensor's record in the table */
    /* borrowed */
    const uint8_t *bytes;

    uint64_t size;
    uint64_t device;
    uint64_t inode;
    struct timespec mtime;
    struct timespec ctime;
    size_t n_kv;
    size_t n_tensors;
    uint64_t data_start; /* offset that tensor offsets count from */
    uint64_t alignment;
    uint64_t split_no;
    uint64_t split_count;   /* 1 for a file that is not split */
    uint64_t split_tensors; /* of all parts, UINT64_MAX if not told */
    uint32_t version;
} gguf_part;

struct gguf_file {
    /* owned */
    arena mem;
    strmap *tensor_index; /* name -> index in tensors */
    /* in the arena */
    gguf_part *parts;
    gguf_tensor *tensors;

    size_t n_parts;
    size_t n_tensors;
    uint64_t n_strings; /* in string arrays, all parts: held against GGUF_MAX_STRINGS */
};

/* Fails with ST_LOAD_FAILED: "<label>: <what> <name> at byte <at>: <why>". name may be empty (then what is
 * the field). */
status gguf_part_fail(const gguf_part *part, err *e, uint64_t at, const char *what, gguf_str name,
                      const char *fmt, ...) __attribute__((format(printf, 6, 7)));
status gguf_part_vfail(const gguf_part *part, err *e, uint64_t at, const char *what, gguf_str name,
                       const char *fmt, va_list args) __attribute__((format(printf, 6, 0)));

/* Fills kv, tensors (data still NULL), keys, version, alignment, split_* of a part whose bytes and size are
 * set. */
status gguf_table_parse(gguf_file *f, gguf_part *part, err *e);
/* Places every tensor of a parsed part in its bytes: alignment, bounds, overlap. */
status gguf_data_check(gguf_file *f, gguf_part *part, err *e);

/* NULL if the pair may have its type; else what the type should have been. arch may be empty. */
const char *gguf_known_wanted(const gguf_kv *kv, gguf_str arch);
/* The value of an integer scalar of any width. False if kv is no integer. */
bool gguf_kv_integer(const gguf_kv *kv, bool *negative, uint64_t *magnitude);
size_t gguf_value_bytes(gguf_value_type t); /* of one scalar; 0 for strings, arrays and unknown types */

/* Splits "STEM-00002-of-00003.gguf": stem_len, no (0-based) and count. False if the path is not named so. */
bool gguf_split_name(const char *path, size_t *stem_len, uint64_t *no, uint64_t *count);
/* "STEM-%05u-of-%05u.gguf" with no counted from 0, in the arena; NULL when out of memory. */
char *gguf_split_path(arena *mem, const char *path, size_t stem_len, uint64_t no, uint64_t count);
/* A parsed part says that it is one of a set: does its name say so too? */
status gguf_split_check_name(const gguf_part *named, err *e);
/* All parts are there and parsed: do they belong together? Then joins their tensors and indexes the names. */
status gguf_split_join(gguf_file *f, err *e);

/*
 * The same as gguf_open over parts that lie in the caller's memory, in order, each aligned to 64 bytes; they
 * must stay until gguf_close. A split set is read only if n_parts is its whole count.
 */
status gguf_open_memory(const void *const *parts, const size_t *n_bytes, size_t n_parts, gguf_file **out,
                        err *e);

#endif
