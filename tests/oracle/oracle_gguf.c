/*
 * Just enough GGUF (version 2 and 3, little-endian) to find metadata and tensors in a file held in memory.
 *
 *   "GGUF" | u32 version | u64 n_tensors | u64 n_kv | kv... | tensor headers... | pad | tensor data
 *   kv: string key, u32 type, value; string: u64 length, bytes; array: u32 item type, u64 count, items
 *   tensor header: string name, u32 n_dims, u64 dims[n_dims] (row width first), u32 type, u64 offset in data
 */
#include "oracle_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KV_BOOL = 7, KV_FLOAT32 = 6, KV_STRING = 8, KV_ARRAY = 9, KV_FLOAT64 = 12 };

/* bytes of each scalar kind by type number; 0 for string and array */
static const size_t scalar_bytes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* Reading past the end sets bad and gives zeros, so that a caller checks once at the end of a record. */
struct cursor {
    const uint8_t *p;
    size_t left;
    bool bad;
};

void *oracle_alloc(size_t n, size_t item_bytes)
{
    void *p = calloc(n ? n : 1, item_bytes);

    if (!p) {
        fprintf(stderr, "oracle: out of memory (%zu x %zu bytes)\n", n, item_bytes);
        abort();
    }
    return p;
}

static const uint8_t *take_bytes(struct cursor *c, uint64_t n)
{
    const uint8_t *at = c->p;

    if (c->bad || n > c->left) {
        c->bad = true;
        return NULL;
    }
    c->p += n;
    c->left -= (size_t)n;
    return at;
}

static uint64_t load_uint(const uint8_t *p, size_t n_bytes)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n_bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static uint64_t take_uint(struct cursor *c, size_t n_bytes)
{
    const uint8_t *p = take_bytes(c, n_bytes);

    return p ? load_uint(p, n_bytes) : 0;
}

static const char *take_string(struct cursor *c, size_t *len)
{
    uint64_t n = take_uint(c, 8);
    const uint8_t *p = take_bytes(c, n);

    *len = p ? (size_t)n : 0;
    return (const char *)p;
}

static void skip_value(struct cursor *c, uint32_t type)
{
    size_t len;
    uint32_t item;
    uint64_t count;

    if (type == KV_STRING) {
        take_string(c, &len);
    } else if (type == KV_ARRAY) {
        item = (uint32_t)take_uint(c, 4);
        count = take_uint(c, 8);
        if (item == KV_STRING) {
            for (uint64_t i = 0; i < count && !c->bad; i++)
                take_string(c, &len);
        } else if (item < 13 && scalar_bytes[item] > 0 && count <= c->left) {
            take_bytes(c, count * scalar_bytes[item]);
        } else {
            c->bad = true; /* arrays of arrays do not occur */
        }
    } else if (type < 13) {
        take_bytes(c, scalar_bytes[type]);
    } else {
        c->bad = true;
    }
}

static bool read_kvs(struct oracle_file *file, struct cursor *c)
{
    for (size_t i = 0; i < file->n_kv; i++) {
        struct oracle_kv *kv = &file->kv[i];
        kv->key = take_string(c, &kv->key_len);
        kv->type = (uint32_t)take_uint(c, 4);
        kv->value = c->p;
        skip_value(c, kv->type);
        if (c->bad)
            return false;
    }
    return true;
}

/* Leaves the offset inside the data section in *offset; data is set once the section's start is known. */
static bool read_tensor_header(struct oracle_tensor *t, struct cursor *c, uint64_t *offset)
{
    uint64_t n_dims;

    t->name = take_string(c, &t->name_len);
    n_dims = take_uint(c, 4);
    if (c->bad || n_dims < 1 || n_dims > 4)
        return false;
    t->k = (size_t)take_uint(c, 8);
    t->rows = 1;
    for (uint64_t d = 1; d < n_dims; d++) {
        uint64_t dim = take_uint(c, 8);
        if (dim != 0 && t->rows > SIZE_MAX / dim)
            return false;
        t->rows *= (size_t)dim;
    }
    t->type = oracle_type_find((uint32_t)take_uint(c, 4));
    *offset = take_uint(c, 8);
    return !c->bad;
}

/* Points t->data into the data section, if all of its rows are there. */
static bool place_tensor(struct oracle_tensor *t, const uint8_t *data, size_t n_data, uint64_t offset)
{
    size_t row_bytes;

    if (!t->type)
        return true; /* refused with a better message when the model asks for it */
    if (t->k == 0 || t->rows == 0 || t->k % t->type->values != 0 || offset > n_data)
        return false;
    if (t->k / t->type->values > n_data / t->type->bytes)
        return false;
    row_bytes = t->k / t->type->values * t->type->bytes;
    if (t->rows > (n_data - (size_t)offset) / row_bytes)
        return false;
    t->data = data + offset;
    return true;
}

static bool read_tensors(struct oracle_file *file, struct cursor *c)
{
    uint64_t *offsets = oracle_alloc(file->n_tensors, sizeof *offsets);
    uint64_t alignment = 32;
    size_t done, pad;
    bool ok = true;

    for (size_t i = 0; i < file->n_tensors && ok; i++)
        ok = read_tensor_header(&file->tensors[i], c, &offsets[i]);
    oracle_file_uint(file, "general.alignment", &alignment);
    ok = ok && alignment > 0 && alignment <= 1u << 20;
    if (ok) {
        done = file->n_bytes - c->left;
        pad = (size_t)((alignment - done % alignment) % alignment);
        ok = take_bytes(c, pad) != NULL;
    }
    for (size_t i = 0; i < file->n_tensors && ok; i++)
        ok = place_tensor(&file->tensors[i], c->p, c->left, offsets[i]);
    free(offsets);
    return ok;
}

bool oracle_file_parse_take(struct oracle_file *file, uint8_t *bytes, size_t n_bytes, char *err,
                            size_t err_size)
{
    struct cursor c = {bytes, n_bytes, false};
    const uint8_t *magic = take_bytes(&c, 4);
    uint64_t version = take_uint(&c, 4);
    uint64_t n_tensors = take_uint(&c, 8);
    uint64_t n_kv = take_uint(&c, 8);
    const char *why = NULL;

    memset(file, 0, sizeof *file);
    file->bytes = bytes;
    file->n_bytes = n_bytes;
    /* a kv takes at least 13 bytes and a tensor header 32, so larger counts are lies */
    if (c.bad || memcmp(magic, "GGUF", 4) != 0 || (version != 2 && version != 3)) {
        why = "not a GGUF file of version 2 or 3";
    } else if (n_kv > n_bytes / 13 || n_tensors > n_bytes / 32) {
        why = "the counts in the header do not fit the file";
    } else {
        file->n_kv = (size_t)n_kv;
        file->n_tensors = (size_t)n_tensors;
        file->kv = oracle_alloc(file->n_kv, sizeof *file->kv);
        file->tensors = oracle_alloc(file->n_tensors, sizeof *file->tensors);
        if (!read_kvs(file, &c))
            why = "the metadata is cut short or malformed";
        else if (!read_tensors(file, &c))
            why = "the tensors are cut short or malformed";
    }
    if (!why)
        return true;
    snprintf(err, err_size, "%s (near byte %zu of %zu)", why, n_bytes - c.left, n_bytes);
    oracle_file_release(file);
    return false;
}

void oracle_file_release(struct oracle_file *file)
{
    free(file->bytes);
    free(file->kv);
    free(file->tensors);
    memset(file, 0, sizeof *file);
}

uint8_t *oracle_file_read(const char *path, size_t *n_bytes, char *err, size_t err_size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = NULL;
    long end = -1;

    if (!f) {
        snprintf(err, err_size, "cannot open %s: %s", path, strerror(errno));
        return NULL;
    }
    if (fseek(f, 0, SEEK_END) == 0)
        end = ftell(f);
    if (end >= 0 && fseek(f, 0, SEEK_SET) == 0) {
        bytes = oracle_alloc((size_t)end, 1);
        if (fread(bytes, 1, (size_t)end, f) != (size_t)end) {
            free(bytes);
            bytes = NULL;
        }
    }
    if (bytes)
        *n_bytes = (size_t)end;
    else
        snprintf(err, err_size, "cannot read %s", path);
    fclose(f);
    return bytes;
}

static const struct oracle_kv *find_kv(const struct oracle_file *file, const char *key)
{
    size_t len = strlen(key);

    for (size_t i = 0; i < file->n_kv; i++) {
        if (file->kv[i].key_len == len && memcmp(file->kv[i].key, key, len) == 0)
            return &file->kv[i];
    }
    return NULL;
}

/* Signed kinds are taken as unsigned: the keys asked for are counts. */
bool oracle_file_uint(const struct oracle_file *file, const char *key, uint64_t *out)
{
    const struct oracle_kv *kv = find_kv(file, key);

    if (!kv || scalar_bytes[kv->type] == 0 || kv->type == KV_FLOAT32 || kv->type == KV_FLOAT64)
        return false;
    *out = load_uint(kv->value, scalar_bytes[kv->type]);
    return true;
}

bool oracle_file_float(const struct oracle_file *file, const char *key, double *out)
{
    const struct oracle_kv *kv = find_kv(file, key);
    float f;

    if (!kv)
        return false;
    if (kv->type == KV_FLOAT32) {
        memcpy(&f, kv->value, sizeof f);
        *out = (double)f;
        return true;
    }
    if (kv->type == KV_FLOAT64) {
        memcpy(out, kv->value, sizeof *out);
        return true;
    }
    return false;
}

bool oracle_file_string(const struct oracle_file *file, const char *key, const char **text, size_t *len)
{
    const struct oracle_kv *kv = find_kv(file, key);

    if (!kv || kv->type != KV_STRING)
        return false;
    *len = (size_t)load_uint(kv->value, 8);
    *text = (const char *)kv->value + 8;
    return true;
}

struct oracle_tensor *oracle_file_tensor(const struct oracle_file *file, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < file->n_tensors; i++) {
        if (file->tensors[i].name_len == len && memcmp(file->tensors[i].name, name, len) == 0)
            return &file->tensors[i];
    }
    return NULL;
}
