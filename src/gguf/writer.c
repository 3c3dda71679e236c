/*
 * The writer. Keys are serialised as they come (they are small); tensors are remembered and written at
 * finish.
 *
 *   header | pairs | tensor records | padding | data, each tensor padded to the alignment
 *
 * A failed call leaves the writer as it was: room is taken first, then nothing can fail.
 */
#include "gguf/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/strmap.h"
#include "base/utf8.h"
#include "gguf/reader_int.h"

#define WRITER_VERSION  3u
#define MAX_WRITE_BYTES (1u << 30) /* Linux writes at most 2^31 - 4096 bytes in one call */
#define MAX_TEMP_NAMES  100u
#define ALIGNMENT_KEY   "general.alignment"
#define FIRST_TENSORS   64u
#define ARENA_CHUNK     (16u << 10)

typedef struct out_tensor {
    const char *name; /* in the arena */
    size_t name_len;
    gguf_type type;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS];
    const void *data; /* borrowed until finish */
    gguf_piece_fn fn; /* gives the data instead; else NULL */
    void *ctx;
    uint64_t n_bytes;
} out_tensor;

struct gguf_writer {
    /* owned */
    arena mem;
    buf pairs;
    strmap *keys;
    strmap *names;
    out_tensor *tensors;

    size_t n_kv;
    size_t n_tensors;
    size_t cap_tensors;
    uint64_t alignment;
};

status gguf_writer_new(gguf_writer **out)
{
    gguf_writer *w = mem_calloc(1, sizeof *w);
    if (!w) {
        return ST_NOMEM;
    }
    arena_init(&w->mem, ARENA_CHUNK);
    buf_init(&w->pairs);
    w->alignment = GGUF_DEFAULT_ALIGNMENT;
    if (strmap_new(FIRST_TENSORS, &w->keys) != ST_OK || strmap_new(FIRST_TENSORS, &w->names) != ST_OK) {
        gguf_writer_free(w);
        return ST_NOMEM;
    }
    *out = w;
    return ST_OK;
}

void gguf_writer_free(gguf_writer *w)
{
    if (!w) {
        return;
    }
    mem_free(w->tensors);
    strmap_free(w->names);
    strmap_free(w->keys);
    buf_release(&w->pairs);
    arena_release(&w->mem);
    mem_free(w);
}

static bool name_ok(const char *s, size_t len, size_t max)
{
    return len > 0 && len <= max && utf8_valid(s, len, NULL) && !memchr(s, 0, len);
}

/* Callers have reserved the room: nothing here can fail. */
static void put(buf *b, const void *data, size_t n)
{
    status st = buf_append(b, data, n);
    (void)st;
}

static void put_u32(buf *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static void put_u64(buf *b, uint64_t v)
{
    put(b, &v, sizeof v);
}

static void put_str(buf *b, const char *s, size_t len)
{
    put_u64(b, len);
    put(b, s, len);
}

/* Checks the key, takes room for the pair, writes key and type. The caller puts exactly n_bytes behind. */
static status pair_begin(gguf_writer *w, const char *key, size_t key_len, gguf_value_type type,
                         size_t n_bytes)
{
    bool existed = false;
    size_t room;
    if (!name_ok(key, key_len, GGUF_MAX_KEY_BYTES) || w->n_kv >= GGUF_MAX_KEYS ||
        strmap_get(w->keys, key, key_len, &(int32_t){0})) {
        return ST_INVALID_FIELD;
    }
    char *own = arena_strndup(&w->mem, key, key_len);
    if (!own || !size_add(n_bytes, key_len + 12, &room) || buf_reserve(&w->pairs, room) != ST_OK ||
        strmap_put(w->keys, own, key_len, (int32_t)w->n_kv, &existed) != ST_OK) {
        return ST_NOMEM;
    }
    w->n_kv++;
    put_str(&w->pairs, key, key_len);
    put_u32(&w->pairs, (uint32_t)type);
    return ST_OK;
}

static bool alignment_ok(uint64_t v)
{
    return v > 0 && v <= GGUF_MAX_ALIGNMENT && (v & (v - 1)) == 0;
}

static status add_scalar(gguf_writer *w, const char *key, size_t key_len, gguf_value_type type,
                         const void *value)
{
    size_t n = gguf_value_bytes(type);
    bool is_alignment = key_len == strlen(ALIGNMENT_KEY) && memcmp(key, ALIGNMENT_KEY, key_len) == 0;
    uint32_t alignment = 0;
    if (type == GGUF_BOOL && *(const uint8_t *)value > 1) {
        return ST_INVALID_FIELD;
    }
    if (is_alignment) { /* the file that says it must also be laid out so */
        if (type != GGUF_U32) {
            return ST_INVALID_FIELD;
        }
        memcpy(&alignment, value, sizeof alignment);
        if (!alignment_ok(alignment)) {
            return ST_INVALID_FIELD;
        }
    }
    status st = pair_begin(w, key, key_len, type, n);
    if (st != ST_OK) {
        return st;
    }
    put(&w->pairs, value, n);
    if (is_alignment) {
        w->alignment = alignment;
    }
    return ST_OK;
}

static status add_str(gguf_writer *w, const char *key, size_t key_len, const char *s, size_t len)
{
    if (len > GGUF_MAX_STRING_BYTES) {
        return ST_INVALID_FIELD;
    }
    status st = pair_begin(w, key, key_len, GGUF_STR, 8 + len);
    if (st == ST_OK) {
        put_str(&w->pairs, s, len);
    }
    return st;
}

static status add_array(gguf_writer *w, const char *key, size_t key_len, gguf_value_type elem,
                        const void *data, size_t n)
{
    size_t size = gguf_value_bytes(elem);
    const uint8_t *bytes = data;
    if (size == 0 || n > GGUF_MAX_ARRAY_VALUES) {
        return ST_INVALID_FIELD;
    }
    for (size_t i = 0; elem == GGUF_BOOL && i < n; i++) {
        if (bytes[i] > 1) {
            return ST_INVALID_FIELD;
        }
    }
    status st = pair_begin(w, key, key_len, GGUF_ARRAY, 12 + n * size);
    if (st == ST_OK) {
        put_u32(&w->pairs, (uint32_t)elem);
        put_u64(&w->pairs, n);
        put(&w->pairs, data, n * size);
    }
    return st;
}

static status add_str_array(gguf_writer *w, const char *key, size_t key_len, const gguf_str *strs, size_t n)
{
    size_t room = 12;
    if (n > GGUF_MAX_STRINGS) {
        return ST_INVALID_FIELD;
    }
    for (size_t i = 0; i < n; i++) {
        if (strs[i].len > GGUF_MAX_STRING_BYTES) {
            return ST_INVALID_FIELD;
        }
        if (!size_add(room, 8 + strs[i].len, &room)) {
            return ST_NOMEM;
        }
    }
    status st = pair_begin(w, key, key_len, GGUF_ARRAY, room);
    if (st != ST_OK) {
        return st;
    }
    put_u32(&w->pairs, GGUF_STR);
    put_u64(&w->pairs, n);
    for (size_t i = 0; i < n; i++) {
        put_str(&w->pairs, strs[i].data, strs[i].len);
    }
    return ST_OK;
}

status gguf_writer_u32(gguf_writer *w, const char *key, uint32_t v)
{
    return add_scalar(w, key, strlen(key), GGUF_U32, &v);
}

status gguf_writer_i32(gguf_writer *w, const char *key, int32_t v)
{
    return add_scalar(w, key, strlen(key), GGUF_I32, &v);
}

status gguf_writer_u64(gguf_writer *w, const char *key, uint64_t v)
{
    return add_scalar(w, key, strlen(key), GGUF_U64, &v);
}

status gguf_writer_f32(gguf_writer *w, const char *key, float v)
{
    return add_scalar(w, key, strlen(key), GGUF_F32, &v);
}

status gguf_writer_bool(gguf_writer *w, const char *key, bool v)
{
    uint8_t byte = v;
    return add_scalar(w, key, strlen(key), GGUF_BOOL, &byte);
}

status gguf_writer_str(gguf_writer *w, const char *key, const char *s, size_t len)
{
    return add_str(w, key, strlen(key), s, len);
}

status gguf_writer_array(gguf_writer *w, const char *key, gguf_value_type elem, const void *data, size_t n)
{
    return add_array(w, key, strlen(key), elem, data, n);
}

status gguf_writer_str_array(gguf_writer *w, const char *key, const gguf_str *strs, size_t n)
{
    return add_str_array(w, key, strlen(key), strs, n);
}

status gguf_writer_copy_kv(gguf_writer *w, const gguf_kv *kv)
{
    const char *key = kv->key.data;
    size_t len = kv->key.len;
    if (kv->type == GGUF_STR) {
        return add_str(w, key, len, kv->strs->data, kv->strs->len);
    }
    if (kv->type == GGUF_ARRAY && kv->elem == GGUF_STR) {
        return add_str_array(w, key, len, kv->strs, (size_t)kv->n);
    }
    if (kv->type == GGUF_ARRAY) {
        return add_array(w, key, len, kv->elem, kv->data, (size_t)kv->n);
    }
    return gguf_value_bytes(kv->type) ? add_scalar(w, key, len, kv->type, kv->data) : ST_INVALID_FIELD;
}

static status tensor_bytes(const char *name, gguf_type type, const uint64_t *dims, uint32_t n_dims,
                           uint64_t *out, err *e)
{
    gguf_type_info info = gguf_type_info_of((uint32_t)type);
    if (!info.name) {
        return err_set(e, ST_INVALID_FIELD, name, "tensor %.100s: unknown type %u", name, (unsigned)type);
    }
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS) {
        return err_set(e, ST_INVALID_FIELD, name, "tensor %.100s: %u dimensions", name, n_dims);
    }
    uint64_t n_bytes = 1;
    bool fits = true;
    for (uint32_t i = 0; i < n_dims; i++) {
        if (dims[i] < 1 || dims[i] > GGUF_MAX_DIM) {
            return err_set(e, ST_INVALID_FIELD, name, "tensor %.100s: dimension %u is %llu", name, i,
                           (unsigned long long)dims[i]);
        }
        fits = fits && u64_mul(n_bytes, i == 0 ? dims[0] / info.block_values : dims[i], &n_bytes);
    }
    if (dims[0] % info.block_values != 0) {
        return err_set(e, ST_INVALID_FIELD, name,
                       "tensor %.100s: a row of %llu values is not whole %s blocks", name,
                       (unsigned long long)dims[0], info.name);
    }
    if (!fits || !u64_mul(n_bytes, info.block_bytes, &n_bytes) || n_bytes > INT64_MAX) {
        return err_set(e, ST_INVALID_FIELD, name, "tensor %.100s: too large", name);
    }
    *out = n_bytes;
    return ST_OK;
}

static status tensors_grow(gguf_writer *w)
{
    if (w->n_tensors < w->cap_tensors) {
        return ST_OK;
    }
    size_t cap = w->cap_tensors ? 2 * w->cap_tensors : FIRST_TENSORS;
    size_t n_bytes;
    if (!size_mul(cap, sizeof *w->tensors, &n_bytes)) {
        return ST_NOMEM;
    }
    out_tensor *grown = mem_realloc(w->tensors, n_bytes);
    if (!grown) {
        return ST_NOMEM;
    }
    w->tensors = grown;
    w->cap_tensors = cap;
    return ST_OK;
}

/* `source` tells where the data comes from, and nothing else. */
static status tensor_add(gguf_writer *w, const char *name, gguf_type type, const uint64_t *dims,
                         uint32_t n_dims, const out_tensor *source, err *e)
{
    size_t len = strlen(name);
    uint64_t n_bytes = 0;
    bool existed = false;
    status st = tensor_bytes(name, type, dims, n_dims, &n_bytes, e);
    if (st != ST_OK) {
        return st;
    }
    if (!name_ok(name, len, GGUF_MAX_TENSOR_NAME_BYTES) || w->n_tensors >= GGUF_MAX_TENSORS) {
        return err_set(e, ST_INVALID_FIELD, name, "tensor %.100s: bad name, or too many tensors", name);
    }
    if (strmap_get(w->names, name, len, &(int32_t){0})) {
        return err_set(e, ST_INVALID_FIELD, name, "tensor %.100s: is there already", name);
    }
    char *own = arena_strndup(&w->mem, name, len);
    if (!own || tensors_grow(w) != ST_OK ||
        strmap_put(w->names, own, len, (int32_t)w->n_tensors, &existed) != ST_OK) {
        return err_set(e, ST_NOMEM, NULL, "cannot add tensor %.100s: out of memory", name);
    }
    out_tensor *t = &w->tensors[w->n_tensors++];
    *t = *source;
    t->name = own;
    t->name_len = len;
    t->type = type;
    t->n_dims = n_dims;
    t->n_bytes = n_bytes;
    memcpy(t->dims, dims, n_dims * sizeof *dims);
    return ST_OK;
}

status gguf_writer_tensor(gguf_writer *w, const char *name, gguf_type type, const uint64_t *dims,
                          uint32_t n_dims, const void *data, err *e)
{
    return tensor_add(w, name, type, dims, n_dims, &(out_tensor){.data = data}, e);
}

status gguf_writer_tensor_pieces(gguf_writer *w, const char *name, gguf_type type, const uint64_t *dims,
                                 uint32_t n_dims, gguf_piece_fn fn, void *ctx, err *e)
{
    return tensor_add(w, name, type, dims, n_dims, &(out_tensor){.fn = fn, .ctx = ctx}, e);
}

static uint64_t padding_of(const gguf_writer *w, uint64_t n)
{
    return (0 - n) & (w->alignment - 1);
}

/* Header, pairs, tensor records and the padding before the data. */
static status table_build(const gguf_writer *w, buf *b, err *e)
{
    static const char zeros[GGUF_MAX_ALIGNMENT];
    size_t room = GGUF_HEADER_BYTES + w->pairs.len + GGUF_MAX_ALIGNMENT;
    uint64_t offset = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        room += 8 + w->tensors[i].name_len + 4 + 8 * w->tensors[i].n_dims + 4 + 8;
    }
    if (buf_reserve(b, room) != ST_OK) {
        return err_set(e, ST_NOMEM, NULL, "cannot build the table: out of memory");
    }
    put(b, "GGUF", 4);
    put_u32(b, WRITER_VERSION);
    put_u64(b, w->n_tensors);
    put_u64(b, w->n_kv);
    put(b, buf_str(&w->pairs), w->pairs.len);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const out_tensor *t = &w->tensors[i];
        put_str(b, t->name, t->name_len);
        put_u32(b, t->n_dims);
        put(b, t->dims, t->n_dims * sizeof *t->dims);
        put_u32(b, (uint32_t)t->type);
        put_u64(b, offset);
        uint64_t padded;
        if (!u64_add(t->n_bytes, padding_of(w, t->n_bytes), &padded) || !u64_add(offset, padded, &offset)) {
            return err_set(e, ST_INVALID_FIELD, t->name, "tensor %.100s: the file would be too large",
                           t->name);
        }
    }
    put(b, zeros, (size_t)padding_of(w, b->len));
    return ST_OK;
}

static status write_all(int fd, const void *data, uint64_t n, const char *path, err *e)
{
    const char *p = data;
    while (n > 0) {
        ssize_t done = write(fd, p, n < MAX_WRITE_BYTES ? (size_t)n : MAX_WRITE_BYTES);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return err_set(e, ST_IO, "path", "cannot write %s: %s", path,
                           strerror(done < 0 ? errno : ENOSPC));
        }
        p += done;
        n -= (uint64_t)done;
    }
    return ST_OK;
}

static status write_tensor(const out_tensor *t, int fd, const char *path, err *e)
{
    if (!t->fn) {
        return write_all(fd, t->data, t->n_bytes, path, e);
    }
    status st = ST_OK;
    uint64_t n = 0;
    for (uint64_t at = 0; st == ST_OK && at < t->n_bytes; at += n) {
        const void *data = NULL;
        n = 0;
        st = t->fn(t->ctx, at, &data, &n, e);
        if (st == ST_OK && (n == 0 || n > t->n_bytes - at)) {
            st = err_set(e, ST_INTERNAL, t->name, "tensor %.100s: a piece of %llu bytes at %llu of %llu",
                         t->name, (unsigned long long)n, (unsigned long long)at,
                         (unsigned long long)t->n_bytes);
        }
        if (st == ST_OK) {
            st = write_all(fd, data, n, path, e);
        }
    }
    return st;
}

static status write_contents(const gguf_writer *w, int fd, const char *path, err *e)
{
    static const char zeros[GGUF_MAX_ALIGNMENT];
    buf head;
    buf_init(&head);
    status st = table_build(w, &head, e);
    if (st == ST_OK) {
        st = write_all(fd, head.data, head.len, path, e);
    }
    for (size_t i = 0; st == ST_OK && i < w->n_tensors; i++) {
        const out_tensor *t = &w->tensors[i];
        st = write_tensor(t, fd, path, e);
        if (st == ST_OK) {
            st = write_all(fd, zeros, padding_of(w, t->n_bytes), path, e);
        }
    }
    if (st == ST_OK && fsync(fd) != 0) {
        st = err_set(e, ST_IO, "path", "cannot sync %s: %s", path, strerror(errno));
    }
    buf_release(&head);
    return st;
}

/* A new file beside path; its name goes to temp. O_EXCL rather than mkstemp so that the umask decides the
 * mode. */
static int temp_create(const char *path, buf *temp)
{
    for (unsigned i = 0; i < MAX_TEMP_NAMES; i++) {
        buf_reset(temp);
        if (buf_printf(temp, "%s.%ld-%u.tmp", path, (long)getpid(), i) != ST_OK) {
            errno = ENOMEM;
            return -1;
        }
        int fd = open(buf_str(temp), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) {
            return fd;
        }
    }
    return -1;
}

/* The rename is on disk only when the folder is. */
static status sync_folder(const char *path, err *e)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? mem_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : mem_strdup(".");
    status st = ST_OK;
    if (!folder) {
        return err_set(e, ST_NOMEM, NULL, "cannot sync the folder of %s: out of memory", path);
    }
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) { /* EINVAL: this filesystem does not sync folders */
        st = err_set(e, ST_IO, "path", "cannot sync folder %s: %s", folder, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    mem_free(folder);
    return st;
}

status gguf_writer_finish(gguf_writer *w, const char *path, err *e)
{
    buf temp;
    buf_init(&temp);
    status st;
    int fd = temp_create(path, &temp);
    if (fd < 0) {
        int why = errno;
        st = err_set(e, why == ENOMEM ? ST_NOMEM : ST_IO, "path", "cannot create a file beside %s: %s", path,
                     strerror(why));
        goto out;
    }
    st = write_contents(w, fd, path, e);
    if (close(fd) != 0 && st == ST_OK) {
        st = err_set(e, ST_IO, "path", "cannot close %s: %s", path, strerror(errno));
    }
    if (st == ST_OK && rename(buf_str(&temp), path) != 0) {
        st = err_set(e, ST_IO, "path", "cannot rename to %s: %s", path, strerror(errno));
    }
    if (st != ST_OK) {
        unlink(buf_str(&temp));
        goto out;
    }
    st = sync_folder(path, e);
out:
    buf_release(&temp);
    return st;
}
