/*
 * reader: a GGUF file (v2, v3; one file or all parts of a split) as a checked, read-only table over mmap.
 *
 * Invariants once gguf_open succeeded: every length, offset, type and alignment was checked before anything
 * was used; every key and tensor name is unique, non-empty and valid UTF-8 without NUL; every tensor lies
 * inside its file, at a multiple of the file's alignment and of its type's own (at most 8), and tensors do
 * not overlap; keys that have a fixed type (general.alignment, general.architecture, split.*,
 * tokenizer.ggml.*, the sizes of the architecture …) have that type. Memory: one arena for the tables;
 * strings and data stay in the mapping. Opening costs time in the number of keys, strings and tensors, never
 * in the size of the data.
 *
 * A gguf_file is immutable: any thread may read, the owner closes it. Every pointer handed out lives until
 * gguf_close. If the file shrinks or changes under the mapping, reading data may raise SIGBUS: gguf_changed
 * tells.
 *
 * Limits: GGUF_MAX_*; a tensor has 1 to 4 dimensions of 1 to 2^42. Errors: ST_LOAD_FAILED (or ST_NOT_FOUND,
 * ST_IO, ST_NOMEM) with err.field = key or tensor name ("header" for the fixed part, "key 7" or "tensor 7",
 * counted from 0, while the name itself is not readable, "path" when the file as such cannot be used) and
 * err.offset = byte offset in the file at fault. The message repeats both and, for one of several parts,
 * names the file.
 */
#ifndef HEARTH_GGUF_READER_H
#define HEARTH_GGUF_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "gguf/blocks.h"

#define GGUF_MAX_KEY_BYTES         65535u
#define GGUF_MAX_STRING_BYTES      (64u << 20) /* one string */
#define GGUF_MAX_ARRAY_VALUES      (64u << 20) /* one array */
#define GGUF_MAX_STRINGS           (8u << 20)  /* in all string arrays of a file together */
#define GGUF_MAX_TABLE_BYTES       (1u << 30)  /* everything before the data of one part */
#define GGUF_MAX_KEYS              65536u
#define GGUF_MAX_TENSORS           1048576u
#define GGUF_MAX_TENSOR_NAME_BYTES 255u
#define GGUF_MAX_DIMS              4
#define GGUF_MAX_DIM               (UINT64_C(1) << 42)
#define GGUF_DEFAULT_ALIGNMENT     32u
#define GGUF_MAX_ALIGNMENT         65536u /* a power of two */
#define GGUF_MAX_PARTS             1024u

typedef enum gguf_value_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STR,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_VALUE_TYPE_COUNT
} gguf_value_type;

typedef struct gguf_str { /* borrowed from the mapping; not NUL-terminated, may hold any byte */
    const char *data;
    size_t len;
} gguf_str;

typedef struct gguf_kv {
    gguf_str key;
    gguf_value_type type;
    gguf_value_type elem; /* of an array (arrays of arrays are refused) */
    uint64_t n;           /* elements of an array, 1 for a scalar */
    const void *data;     /* scalar or array of scalars, unaligned little-endian; NULL for strings */
    const gguf_str *strs; /* GGUF_STR (one) or array of strings (n); else NULL */
    uint64_t offset;      /* of the pair in its file */
} gguf_kv;

typedef struct gguf_tensor {
    gguf_str name;
    gguf_type type;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is the row length; the rest is 1 beyond n_dims */
    const void *data;             /* in the mapping */
    uint64_t n_bytes;
    uint32_t part;   /* which file of a split, 0-based */
    uint64_t offset; /* of the data in that file */
} gguf_tensor;

/*
 * Opening in two steps, for a process that goes into a sandbox in between. gguf_files_open opens and maps
 * `path` and, if it is named NAME-00001-of-00003.gguf, the parts named like it (read-only, close-on-exec,
 * regular files only); it looks at none of their bytes. gguf_files_parse_take checks the tables and needs
 * nothing from outside the process; the files are its own from the call on, also when it fails. A part that
 * is missing is its error, not the opening's: only the file itself tells whether it needs the others.
 */
typedef struct gguf_files gguf_files;
typedef struct gguf_file gguf_file;

status gguf_files_open(const char *path, gguf_files **out, err *e);
void gguf_files_close(gguf_files *s);           /* NULL is fine */
uint64_t gguf_files_bytes(const gguf_files *s); /* of all that could be opened */
/* SHA-256 of device, inode, size, mtime and ctime of all that could be opened: the same sum means the same
 * bytes, as far as that can be told without reading them. */
status gguf_files_identity(const gguf_files *s, uint8_t sum[SHA256_BYTES]);
status gguf_files_parse_take(gguf_files *s, gguf_file **out, err *e);
/* Both steps: opens `path`, and all parts named like it if it is a part of a split (split.count > 1). */
status gguf_open(const char *path, gguf_file **out, err *e);
void gguf_close(gguf_file *f);

uint32_t gguf_version(const gguf_file *f);
uint64_t gguf_file_bytes(const gguf_file *f);  /* all parts */
uint64_t gguf_table_bytes(const gguf_file *f); /* of memory, beside the mapping */
size_t gguf_parts(const gguf_file *f);
/* The bytes of one part, as the mapping shows them. */
const void *gguf_part_bytes(const gguf_file *f, size_t part, uint64_t *n_bytes);
bool gguf_holds_path(const gguf_file *f, const char *path); /* path names a part, whatever its name */
bool gguf_changed(const gguf_file *f); /* size, mtime or inode of a part is not what it was at open */

size_t gguf_n_kv(const gguf_file *f); /* of the first part */
const gguf_kv *gguf_kv_at(const gguf_file *f, size_t i);
const gguf_kv *gguf_find(const gguf_file *f, const char *key); /* NULL if absent */
size_t gguf_n_tensors(const gguf_file *f);                     /* of all parts */
const gguf_tensor *gguf_tensor_at(const gguf_file *f, size_t i);
const gguf_tensor *gguf_find_tensor(const gguf_file *f, const char *name);

/*
 * Typed reading. Absent: ST_NOT_FOUND, out untouched. Present with a type that cannot hold the value exactly
 * (integers of any width are converted when the value fits): ST_LOAD_FAILED naming key, wanted and found
 * type.
 */
status gguf_get_u32(const gguf_file *f, const char *key, uint32_t *out, err *e);
status gguf_get_u64(const gguf_file *f, const char *key, uint64_t *out, err *e);
status gguf_get_f32(const gguf_file *f, const char *key, float *out, err *e); /* F32 or F64; must be finite */
status gguf_get_bool(const gguf_file *f, const char *key, bool *out, err *e);
status gguf_get_str(const gguf_file *f, const char *key, gguf_str *out, err *e);
/* Array whose elements have type `elem` (GGUF_I32 also accepts U32 and the other way round if all values
 * fit). */
status gguf_get_array(const gguf_file *f, const char *key, gguf_value_type elem, const gguf_kv **out, err *e);
const char *gguf_value_type_name(gguf_value_type t); /* "u32", "array" … */

#endif
