/* Several parts as one file: NAME-00001-of-00003.gguf. */
#include <stdio.h>
#include <string.h>

#include "gguf/reader_int.h"

#define SUFFIX       "-00001-of-00001.gguf"
#define SUFFIX_BYTES (sizeof SUFFIX - 1)
#define DIGITS       5
#define COUNT_AT     10 /* offset of the count in the suffix */
#define EXTENSION_AT 15

static bool read_digits(const char *s, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < DIGITS; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(s[i] - '0');
    }
    *out = v;
    return true;
}

bool gguf_split_name(const char *path, size_t *stem_len, uint64_t *no, uint64_t *count)
{
    size_t len = strlen(path);
    uint64_t number, total;
    if (len < SUFFIX_BYTES) {
        return false;
    }
    const char *s = path + len - SUFFIX_BYTES;
    if (s[0] != '-' || !read_digits(s + 1, &number) || memcmp(s + 1 + DIGITS, "-of-", 4) != 0 ||
        !read_digits(s + COUNT_AT, &total) || memcmp(s + EXTENSION_AT, ".gguf", 5) != 0) {
        return false;
    }
    if (number < 1 || number > total) {
        return false;
    }
    *stem_len = len - SUFFIX_BYTES;
    *no = number - 1;
    *count = total;
    return true;
}

char *gguf_split_path(arena *mem, const char *path, size_t stem_len, uint64_t no, uint64_t count)
{
    char suffix[64];
    int n = snprintf(suffix, sizeof suffix, "-%05llu-of-%05llu.gguf", (unsigned long long)no + 1,
                     (unsigned long long)count);
    char *out = arena_alloc(mem, stem_len + (size_t)n + 1);
    if (out) {
        memcpy(out, path, stem_len);
        memcpy(out + stem_len, suffix, (size_t)n + 1);
    }
    return out;
}

status gguf_split_check_name(const gguf_part *named, err *e)
{
    gguf_str key = {"split.count", strlen("split.count")};
    size_t stem_len;
    uint64_t no, count;
    if (!gguf_split_name(named->path, &stem_len, &no, &count)) {
        return gguf_part_fail(named, e, 0, "key", key,
                              "the file is part %llu of %llu but is not named NAME-%05llu-of-%05llu.gguf",
                              (unsigned long long)named->split_no + 1, (unsigned long long)named->split_count,
                              (unsigned long long)named->split_no + 1,
                              (unsigned long long)named->split_count);
    }
    if (no != named->split_no || count != named->split_count) {
        return gguf_part_fail(named, e, 0, "key", key,
                              "the file says it is part %llu of %llu, its name says %llu of %llu",
                              (unsigned long long)named->split_no + 1, (unsigned long long)named->split_count,
                              (unsigned long long)no + 1, (unsigned long long)count);
    }
    return ST_OK;
}

static status split_fail(const gguf_part *part, err *e, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static status split_fail(const gguf_part *part, err *e, const char *key, const char *fmt, ...)
{
    int32_t i;
    uint64_t at = strmap_get(part->keys, key, strlen(key), &i) ? part->kv[i].offset : 0;
    va_list args;
    va_start(args, fmt);
    status st = gguf_part_vfail(part, e, at, "key", (gguf_str){key, strlen(key)}, fmt, args);
    va_end(args);
    return st;
}

static status check_numbers(const gguf_file *f, size_t n_tensors, err *e)
{
    for (size_t i = 0; i < f->n_parts; i++) {
        const gguf_part *part = &f->parts[i];
        if (part->split_count != f->n_parts) {
            return split_fail(part, e, "split.count", "is %llu, but the set has %zu parts",
                              (unsigned long long)part->split_count, f->n_parts);
        }
        if (part->split_no != i) {
            return split_fail(part, e, "split.no", "is %llu, but this is part %zu counted from 0",
                              (unsigned long long)part->split_no, i);
        }
        if (part->split_tensors != UINT64_MAX && part->split_tensors != n_tensors) {
            return split_fail(part, e, "split.tensors.count", "is %llu, but the parts hold %zu tensors",
                              (unsigned long long)part->split_tensors, n_tensors);
        }
    }
    return ST_OK;
}

static status index_part(gguf_file *f, size_t part_no, size_t first, err *e)
{
    const gguf_part *part = &f->parts[part_no];
    for (size_t i = 0; i < part->n_tensors; i++) {
        gguf_tensor *t = &f->tensors[first + i];
        bool existed = false;
        *t = part->tensors[i];
        t->part = (uint32_t)part_no;
        if (strmap_put(f->tensor_index, t->name.data, t->name.len, (int32_t)(first + i), &existed) != ST_OK) {
            return err_set(e, ST_NOMEM, NULL, "cannot index the tensors: out of memory");
        }
        if (existed) {
            return gguf_part_fail(part, e, part->records[i], "tensor", t->name, "the tensor is there twice");
        }
    }
    return ST_OK;
}

status gguf_split_join(gguf_file *f, err *e)
{
    size_t n_tensors = 0;
    for (size_t i = 0; i < f->n_parts; i++) {
        n_tensors += f->parts[i].n_tensors; /* at most GGUF_MAX_PARTS * GGUF_MAX_TENSORS */
    }
    status st = check_numbers(f, n_tensors, e);
    if (st != ST_OK) {
        return st;
    }
    if (n_tensors > GGUF_MAX_TENSORS) {
        return split_fail(&f->parts[0], e, "split.count", "the parts hold %zu tensors, the limit is %u",
                          n_tensors, GGUF_MAX_TENSORS);
    }
    f->n_tensors = n_tensors;
    f->tensors = arena_alloc_array(&f->mem, n_tensors, sizeof *f->tensors);
    if (!f->tensors || strmap_new(n_tensors, &f->tensor_index) != ST_OK) {
        return err_set(e, ST_NOMEM, NULL, "cannot index %zu tensors: out of memory", n_tensors);
    }
    size_t first = 0;
    for (size_t i = 0; i < f->n_parts && st == ST_OK; i++) {
        st = index_part(f, i, first, e);
        first += f->parts[i].n_tensors;
    }
    return st;
}
