/*
 * The table of one part: header, keys, tensor records. All little-endian, nothing aligned.
 *
 *   header   0  4  magic "GGUF"          key     u64 + bytes           string  u64 length + bytes
 *            4  4  version               pair    key, u32 type, value  array   u32 type, u64 count, values
 *            8  8  number of tensors     tensor  name (string), u32 number of dimensions, u64 each,
 *           16  8  number of keys                u32 type, u64 offset of its data from the start of the data
 *
 * A cursor walks it once; every step first asks whether the bytes are there. Counts are believed only as far
 * as the bytes that are left could hold them, so that memory taken is bounded by the size of the file and by
 * GGUF_MAX_*.
 */
#include <stdio.h>
#include <string.h>

#include "base/le.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "gguf/reader_int.h"

#define MIN_PAIR_BYTES   14u /* key of one byte, type, value of one byte */
#define MIN_TENSOR_BYTES 33u /* name of one byte, one dimension */
#define NO_INDEX         SIZE_MAX

typedef struct table {
    gguf_file *file;
    gguf_part *part;
    err *e;
    uint64_t pos;
    uint64_t end; /* size of the part, or the limit of a table if that is less */
    /* who is being read, for messages: a name once it is known, "key 7" before */
    const char *what;
    size_t index;
    gguf_str name;
} table;

static status table_fail(const table *t, uint64_t at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static status table_fail(const table *t, uint64_t at, const char *fmt, ...)
{
    char numbered[32];
    const char *what = t->what;
    va_list args;
    if (t->name.len == 0 && t->index != NO_INDEX) {
        snprintf(numbered, sizeof numbered, "%s %zu", t->what, t->index);
        what = numbered;
    }
    va_start(args, fmt);
    (void)gguf_part_vfail(t->part, t->e, at, what, t->name, fmt, args);
    va_end(args);
    return ST_LOAD_FAILED;
}

static status table_nomem(const table *t)
{
    (void)err_at(t->e, ST_NOMEM, t->pos, NULL, "cannot read the table at byte %llu: out of memory",
                 (unsigned long long)t->pos);
    return ST_NOMEM;
}

static void table_enter(table *t, const char *what, size_t index)
{
    t->what = what;
    t->index = index;
    t->name = (gguf_str){NULL, 0};
}

/* How many of the n records that the header promises are worth room: each takes at least min_bytes of what is
 * left, so the one after those that fit fails before its end. */
static size_t table_room(const table *t, size_t n, size_t min_bytes)
{
    uint64_t fit = (t->end - t->pos) / min_bytes + 1;
    return n < fit ? n : (size_t)fit;
}

static status table_need(const table *t, uint64_t n, const char *what)
{
    if (n <= t->end - t->pos) {
        return ST_OK;
    }
    if (t->end < t->part->size && n <= t->part->size - t->pos) {
        return table_fail(t, t->pos, "the table is longer than the limit of %u bytes", GGUF_MAX_TABLE_BYTES);
    }
    return table_fail(t, t->pos, "the file ends within the %s: %llu bytes wanted, %llu left", what,
                      (unsigned long long)n, (unsigned long long)(t->part->size - t->pos));
}

static status take_u32(table *t, const char *what, uint32_t *out)
{
    status st = table_need(t, 4, what);
    if (st == ST_OK) {
        *out = le32_get(t->part->bytes + t->pos);
        t->pos += 4;
    }
    return st;
}

static status take_u64(table *t, const char *what, uint64_t *out)
{
    status st = table_need(t, 8, what);
    if (st == ST_OK) {
        *out = le64_get(t->part->bytes + t->pos);
        t->pos += 8;
    }
    return st;
}

static status take_str(table *t, const char *what, uint64_t max, gguf_str *out)
{
    uint64_t n = 0;
    status st = take_u64(t, what, &n);
    if (st != ST_OK) {
        return st;
    }
    if (n > max) {
        return table_fail(t, t->pos - 8, "the %s has %llu bytes, the limit is %llu", what,
                          (unsigned long long)n, (unsigned long long)max);
    }
    st = table_need(t, n, what);
    if (st == ST_OK) {
        *out = (gguf_str){(const char *)t->part->bytes + t->pos, (size_t)n};
        t->pos += n;
    }
    return st;
}

/* Keys and tensor names: from here on messages use the name. */
static status take_name(table *t, const char *what, uint64_t max, gguf_str *out)
{
    uint64_t at = t->pos;
    size_t bad = 0;
    status st = take_str(t, what, max, out);
    if (st != ST_OK) {
        return st;
    }
    if (out->len == 0) {
        return table_fail(t, at, "the %s is empty", what);
    }
    t->name = *out;
    if (!utf8_valid(out->data, out->len, &bad)) {
        return table_fail(t, at + 8 + bad, "the %s is not valid utf-8", what);
    }
    if (memchr(out->data, 0, out->len)) {
        return table_fail(t, at, "the %s holds a nul character", what);
    }
    return ST_OK;
}

static status check_bools(const table *t, const uint8_t *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (values[i] > 1) {
            return table_fail(t, (uint64_t)(values + i - t->part->bytes), "a bool is %u, it must be 0 or 1",
                              values[i]);
        }
    }
    return ST_OK;
}

static status take_scalars(table *t, gguf_value_type type, uint64_t n, const void **out)
{
    uint64_t n_bytes = n * gguf_value_bytes(type); /* n is at most GGUF_MAX_ARRAY_VALUES: no overflow */
    status st = table_need(t, n_bytes, "value");
    if (st != ST_OK) {
        return st;
    }
    const uint8_t *values = t->part->bytes + t->pos;
    if (type == GGUF_BOOL) {
        st = check_bools(t, values, n);
    }
    if (st == ST_OK) {
        *out = values;
        t->pos += n_bytes;
    }
    return st;
}

static status take_strings(table *t, uint64_t n, const gguf_str **out)
{
    if (n > GGUF_MAX_STRINGS - t->file->n_strings) {
        return table_fail(t, t->pos, "%llu more strings, the limit is %u in a file", (unsigned long long)n,
                          GGUF_MAX_STRINGS);
    }
    if (n > (t->end - t->pos) / 8) { /* each has at least its length */
        return table_need(t, n * 8, "strings");
    }
    gguf_str *strs = arena_alloc_array(&t->file->mem, (size_t)n, sizeof *strs);
    if (!strs) {
        return table_nomem(t);
    }
    for (uint64_t i = 0; i < n; i++) {
        status st = take_str(t, "string", GGUF_MAX_STRING_BYTES, &strs[i]);
        if (st != ST_OK) {
            return st;
        }
    }
    t->file->n_strings += n;
    *out = strs;
    return ST_OK;
}

static status take_array(table *t, gguf_kv *kv)
{
    uint64_t at = t->pos;
    uint32_t elem = 0;
    uint64_t n = 0;
    status st = take_u32(t, "element type", &elem);
    if (st == ST_OK) {
        st = take_u64(t, "element count", &n);
    }
    if (st != ST_OK) {
        return st;
    }
    if (elem == GGUF_ARRAY) {
        return table_fail(t, at, "an array of arrays, which is not supported");
    }
    if (elem >= GGUF_VALUE_TYPE_COUNT) {
        return table_fail(t, at, "unknown element type %u", elem);
    }
    if (n > GGUF_MAX_ARRAY_VALUES) {
        return table_fail(t, at + 4, "an array of %llu values, the limit is %u", (unsigned long long)n,
                          GGUF_MAX_ARRAY_VALUES);
    }
    kv->elem = (gguf_value_type)elem;
    kv->n = n;
    return elem == GGUF_STR ? take_strings(t, n, &kv->strs) : take_scalars(t, kv->elem, n, &kv->data);
}

static status take_pair(table *t, gguf_kv *kv)
{
    uint32_t type = 0;
    *kv = (gguf_kv){.offset = t->pos};
    status st = take_name(t, "key", GGUF_MAX_KEY_BYTES, &kv->key);
    if (st == ST_OK) {
        st = take_u32(t, "value type", &type);
    }
    if (st != ST_OK) {
        return st;
    }
    if (type >= GGUF_VALUE_TYPE_COUNT) {
        return table_fail(t, t->pos - 4, "unknown value type %u", type);
    }
    kv->type = kv->elem = (gguf_value_type)type;
    kv->n = 1;
    if (type == GGUF_ARRAY) {
        return take_array(t, kv);
    }
    if (type != GGUF_STR) {
        return take_scalars(t, kv->type, 1, &kv->data);
    }
    gguf_str *s = arena_alloc(&t->file->mem, sizeof *s);
    if (!s) {
        return table_nomem(t);
    }
    kv->strs = s;
    return take_str(t, "value", GGUF_MAX_STRING_BYTES, s);
}

static status take_pairs(table *t)
{
    gguf_part *part = t->part;
    size_t room = table_room(t, part->n_kv, MIN_PAIR_BYTES);
    status st = strmap_new(room, &part->keys);
    if (st != ST_OK) {
        return table_nomem(t);
    }
    part->kv = arena_alloc_array(&t->file->mem, room, sizeof *part->kv);
    if (!part->kv) {
        return table_nomem(t);
    }
    for (size_t i = 0; i < part->n_kv; i++) {
        gguf_kv *kv = &part->kv[i];
        bool existed = false;
        table_enter(t, "key", i);
        st = take_pair(t, kv);
        if (st != ST_OK) {
            return st;
        }
        if (strmap_put(part->keys, kv->key.data, kv->key.len, (int32_t)i, &existed) != ST_OK) {
            return table_nomem(t);
        }
        if (existed) {
            return table_fail(t, kv->offset, "the key is there twice");
        }
    }
    return ST_OK;
}

static status take_dims(table *t, gguf_tensor *tensor)
{
    uint32_t n_dims = 0;
    status st = take_u32(t, "number of dimensions", &n_dims);
    if (st != ST_OK) {
        return st;
    }
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS) {
        return table_fail(t, t->pos - 4, "%u dimensions, there must be 1 to %d", n_dims, GGUF_MAX_DIMS);
    }
    tensor->n_dims = n_dims;
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        tensor->dims[i] = 1;
    }
    for (uint32_t i = 0; i < n_dims; i++) {
        st = take_u64(t, "dimensions", &tensor->dims[i]);
        if (st != ST_OK) {
            return st;
        }
        if (tensor->dims[i] < 1 || tensor->dims[i] > GGUF_MAX_DIM) {
            return table_fail(t, t->pos - 8, "dimension %u is %llu, it must be 1 to %llu", i,
                              (unsigned long long)tensor->dims[i], (unsigned long long)GGUF_MAX_DIM);
        }
    }
    return ST_OK;
}

static status take_tensor_type(table *t, gguf_tensor *tensor)
{
    uint32_t type = 0;
    status st = take_u32(t, "type", &type);
    if (st != ST_OK) {
        return st;
    }
    gguf_type_info info = gguf_type_info_of(type);
    if (!info.name) {
        return table_fail(t, t->pos - 4, "unknown or removed tensor type %u", type);
    }
    if (tensor->dims[0] % info.block_values != 0) {
        return table_fail(t, t->pos - 4, "a row of %llu values is not a multiple of the %u of a %s block",
                          (unsigned long long)tensor->dims[0], info.block_values, info.name);
    }
    tensor->type = (gguf_type)type;
    uint64_t n_bytes = tensor->dims[0] / info.block_values;
    bool fits = u64_mul(n_bytes, info.block_bytes, &n_bytes);
    for (uint32_t i = 1; i < tensor->n_dims; i++) {
        fits = fits && u64_mul(n_bytes, tensor->dims[i], &n_bytes);
    }
    if (!fits) {
        return table_fail(t, t->pos - 4, "the size of its data overflows 64 bits");
    }
    tensor->n_bytes = n_bytes;
    return ST_OK;
}

static status take_tensors(table *t)
{
    gguf_part *part = t->part;
    size_t room = table_room(t, part->n_tensors, MIN_TENSOR_BYTES);
    part->tensors = arena_alloc_array(&t->file->mem, room, sizeof *part->tensors);
    part->records = arena_alloc_array(&t->file->mem, room, sizeof *part->records);
    if (!part->tensors || !part->records) {
        return table_nomem(t);
    }
    for (size_t i = 0; i < part->n_tensors; i++) {
        gguf_tensor *tensor = &part->tensors[i];
        *tensor = (gguf_tensor){0};
        part->records[i] = t->pos;
        table_enter(t, "tensor", i);
        status st = take_name(t, "name", GGUF_MAX_TENSOR_NAME_BYTES, &tensor->name);
        if (st == ST_OK) {
            st = take_dims(t, tensor);
        }
        if (st == ST_OK) {
            st = take_tensor_type(t, tensor);
        }
        if (st == ST_OK) {
            st = take_u64(t, "offset", &tensor->offset);
        }
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}

static status take_version(table *t)
{
    status st = take_u32(t, "version", &t->part->version);
    if (st != ST_OK) {
        return st;
    }
    uint32_t v = t->part->version;
    if (v == 2 || v == 3) {
        return ST_OK;
    }
    if (v != 0 && (v & 0xFFFFu) == 0) {
        return table_fail(t, 4,
                          "version %u with its bytes swapped: a big-endian file, which is not supported",
                          __builtin_bswap32(v));
    }
    return table_fail(t, 4, "gguf version %u, supported are 2 and 3", v);
}

static status take_header(table *t)
{
    gguf_part *part = t->part;
    uint64_t n_tensors = 0, n_kv = 0;
    status st = table_need(t, 4, "magic");
    if (st != ST_OK) {
        return st;
    }
    if (memcmp(part->bytes, "GGUF", 4) != 0) {
        return table_fail(t, 0, "not a gguf file: it begins with bytes %02x %02x %02x %02x", part->bytes[0],
                          part->bytes[1], part->bytes[2], part->bytes[3]);
    }
    t->pos = 4;
    st = take_version(t);
    if (st == ST_OK) {
        st = take_u64(t, "number of tensors", &n_tensors);
    }
    if (st == ST_OK) {
        st = take_u64(t, "number of keys", &n_kv);
    }
    if (st != ST_OK) {
        return st;
    }
    if (n_tensors > GGUF_MAX_TENSORS || n_kv > GGUF_MAX_KEYS) {
        return table_fail(t, 8, "%llu tensors and %llu keys, the limits are %u and %u",
                          (unsigned long long)n_tensors, (unsigned long long)n_kv, GGUF_MAX_TENSORS,
                          GGUF_MAX_KEYS);
    }
    part->n_tensors = (size_t)n_tensors;
    part->n_kv = (size_t)n_kv;
    return ST_OK;
}

static const gguf_kv *part_find(const gguf_part *part, const char *key)
{
    int32_t i;
    return strmap_get(part->keys, key, strlen(key), &i) ? &part->kv[i] : NULL;
}

/* Types of the keys that have one by the format. */
static status check_known(table *t)
{
    const gguf_kv *arch_kv = part_find(t->part, "general.architecture");
    gguf_str arch = arch_kv && arch_kv->type == GGUF_STR ? arch_kv->strs[0] : (gguf_str){NULL, 0};
    const gguf_kv *pairs = t->part->kv;
    for (size_t i = 0; pairs && i < t->part->n_kv; i++) {
        const gguf_kv *kv = &pairs[i];
        const char *wanted = gguf_known_wanted(kv, arch);
        if (wanted) {
            t->what = "key";
            t->name = kv->key;
            const char *of = kv->type == GGUF_ARRAY ? " of " : "";
            return table_fail(t, kv->offset, "has type %s%s%s, it must be %s", gguf_value_type_name(kv->type),
                              of, *of ? gguf_value_type_name(kv->elem) : "", wanted);
        }
    }
    return ST_OK;
}

/* An optional integer key between lo and hi; *out keeps its value when the key is absent. */
static status read_known_u64(table *t, const char *key, uint64_t lo, uint64_t hi, uint64_t *out)
{
    const gguf_kv *kv = part_find(t->part, key);
    bool negative = false;
    uint64_t v = 0;
    if (!kv) {
        return ST_OK;
    }
    if (!gguf_kv_integer(kv, &negative, &v) || negative || v < lo || v > hi) {
        t->what = "key";
        t->name = kv->key;
        return table_fail(t, kv->offset, "is %s%llu, it must be %llu to %llu", negative ? "-" : "",
                          (unsigned long long)v, (unsigned long long)lo, (unsigned long long)hi);
    }
    *out = v;
    return ST_OK;
}

static status read_layout_keys(table *t)
{
    gguf_part *part = t->part;
    part->alignment = GGUF_DEFAULT_ALIGNMENT;
    part->split_count = 1;
    part->split_tensors = UINT64_MAX;
    status st = read_known_u64(t, "general.alignment", 1, GGUF_MAX_ALIGNMENT, &part->alignment);
    if (st != ST_OK) {
        return st;
    }
    const gguf_kv *kv = part_find(part, "general.alignment");
    if (kv && (part->alignment & (part->alignment - 1)) != 0) {
        t->what = "key";
        t->name = kv->key;
        return table_fail(t, kv->offset, "is %llu, it must be a power of two",
                          (unsigned long long)part->alignment);
    }
    st = read_known_u64(t, "split.count", 0, GGUF_MAX_PARTS, &part->split_count);
    if (st == ST_OK) {
        part->split_count =
            part->split_count ? part->split_count : 1; /* 0: some tools write it for "not split" */
        st = read_known_u64(t, "split.no", 0, part->split_count - 1, &part->split_no);
    }
    if (st == ST_OK) {
        st = read_known_u64(t, "split.tensors.count", 0, GGUF_MAX_TENSORS, &part->split_tensors);
    }
    if (st == ST_OK && part->split_count > 1 && !part_find(part, "split.no")) {
        t->what = "key";
        t->name = (gguf_str){"split.no", strlen("split.no")};
        return table_fail(t, part_find(part, "split.count")->offset, "is missing, though split.count is %llu",
                          (unsigned long long)part->split_count);
    }
    return st;
}

status gguf_table_parse(gguf_file *f, gguf_part *part, err *e)
{
    table t = {.file = f, .part = part, .e = e, .what = "header", .index = NO_INDEX};
    t.end = part->size < GGUF_MAX_TABLE_BYTES ? part->size : GGUF_MAX_TABLE_BYTES;
    status st = take_header(&t);
    if (st == ST_OK) {
        st = take_pairs(&t);
    }
    if (st == ST_OK) {
        st = take_tensors(&t);
    }
    if (st == ST_OK) {
        st = check_known(&t);
    }
    if (st == ST_OK) {
        st = read_layout_keys(&t);
    }
    if (st == ST_OK) { /* pos is at most 1 GiB and alignment at most 64 KiB: no overflow */
        part->data_start = (t.pos + part->alignment - 1) & ~(part->alignment - 1);
    }
    return st;
}
