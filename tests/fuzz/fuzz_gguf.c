/*
 * fuzz_gguf: any bytes as a GGUF file, or as a set of up to 4 parts. What opens is walked: every key through
 * every getter, every string, the first and last byte of every tensor.
 *
 * Input: byte 0 = parts - 1 (low two bits), then a u16 length for each part but the last, then the parts. A
 * mutator rarely finds the frame of a valid file by chance: ours puts small valid files (one or two parts,
 * any value type, eight tensor types) where there is none yet, and otherwise leaves the work to libFuzzer. No
 * corpus is needed.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "gguf/quant.h"
#include "gguf/reader_int.h"

#define MAX_FUZZ_PARTS 4
#define PART_ALIGN     64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int random);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size); /* libFuzzer's own */

static volatile uint8_t sink;

static void touch(const void *p, uint64_t n)
{
    const uint8_t *bytes = p;
    if (n) {
        sink = (uint8_t)(sink + bytes[0] + bytes[n - 1]);
    }
}

static void walk_key(const gguf_file *f, const gguf_kv *kv)
{
    char key[256];
    uint32_t u32;
    uint64_t u64;
    float f32;
    bool b;
    gguf_str s;
    const gguf_kv *found;
    err e;
    touch(kv->key.data, kv->key.len);
    for (uint64_t i = 0; kv->strs && i < kv->n; i++) {
        touch(kv->strs[i].data, kv->strs[i].len);
    }
    if (kv->data) {
        touch(kv->data, kv->n * gguf_value_bytes(kv->type == GGUF_ARRAY ? kv->elem : kv->type));
    }
    if (kv->key.len >= sizeof key) {
        return;
    }
    memcpy(key, kv->key.data, kv->key.len);
    key[kv->key.len] = 0;
    if (gguf_find(f, key) != kv) {
        abort();
    }
    (void)gguf_get_u32(f, key, &u32, &e);
    (void)gguf_get_u64(f, key, &u64, &e);
    (void)gguf_get_f32(f, key, &f32, &e);
    (void)gguf_get_bool(f, key, &b, &e);
    if (gguf_get_str(f, key, &s, &e) == ST_OK) {
        touch(s.data, s.len);
    }
    for (int t = 0; t < GGUF_VALUE_TYPE_COUNT; t++) {
        (void)gguf_get_array(f, key, (gguf_value_type)t, &found, &e);
    }
}

static void walk_tensor(const gguf_file *f, const gguf_tensor *t)
{
    char name[GGUF_MAX_TENSOR_NAME_BYTES + 1];
    float values[256];
    uint32_t block_values = gguf_type_info_of((uint32_t)t->type).block_values;
    touch(t->data, t->n_bytes);
    memcpy(name, t->name.data, t->name.len);
    name[t->name.len] = 0;
    if (gguf_find_tensor(f, name) != t || t->part >= gguf_parts(f) || t->n_bytes == 0) {
        abort();
    }
    if (quant_supported(t->type)) { /* the last block, read with its own alignment */
        size_t block_bytes = quant_row_bytes(t->type, block_values);
        quant_dequantise(t->type, (const uint8_t *)t->data + t->n_bytes - block_bytes, values, block_values);
    }
}

static void run(const uint8_t *data, size_t size)
{
    void *copies[MAX_FUZZ_PARTS] = {NULL};
    const void *parts[MAX_FUZZ_PARTS];
    size_t lens[MAX_FUZZ_PARTS], n_parts = (data[0] & 3u) + 1u;
    gguf_file *f = NULL;
    err e;
    data++;
    size--;
    for (size_t i = 0; i < n_parts; i++) {
        size_t len = size;
        if (i + 1 < n_parts) {
            if (size < 2) {
                goto out;
            }
            len = le16_get(data);
            data += 2;
            size -= 2;
            len = len < size ? len : size;
        }
        /* a copy of its own, so that a read past the end is seen */
        if (posix_memalign(&copies[i], PART_ALIGN, len ? len : 1) != 0) {
            goto out;
        }
        memcpy(copies[i], data, len);
        parts[i] = copies[i];
        lens[i] = len;
        data += len;
        size -= len;
    }
    err_clear(&e);
    status st = gguf_open_memory(parts, lens, n_parts, &f, &e);
    if (st != ST_OK) {
        if (st == ST_LOAD_FAILED && (!e.field[0] || !e.msg[0] || e.offset == ERR_NO_OFFSET)) {
            abort(); /* every refusal names the place */
        }
        goto out;
    }
    for (size_t i = 0; i < gguf_n_kv(f); i++) {
        walk_key(f, gguf_kv_at(f, i));
    }
    for (size_t i = 0; i < gguf_n_tensors(f); i++) {
        walk_tensor(f, gguf_tensor_at(f, i));
    }
    gguf_close(f);
out:
    for (size_t i = 0; i < MAX_FUZZ_PARTS; i++) {
        free(copies[i]);
    }
}

typedef struct seed {
    uint8_t data[2048];
    size_t len;
} seed;

static void seed_bytes(seed *s, const void *p, size_t n)
{
    memcpy(s->data + s->len, p, n);
    s->len += n;
}

static void seed_num(seed *s, uint64_t v, size_t n)
{
    seed_bytes(s, &v, n);
}

static void seed_str(seed *s, const char *text)
{
    seed_num(s, strlen(text), 8);
    seed_bytes(s, text, strlen(text));
}

static void seed_key(seed *s, const char *key, gguf_value_type type)
{
    seed_str(s, key);
    seed_num(s, type, 4);
    if (type == GGUF_STR) {
        seed_str(s, "text");
    } else if (type == GGUF_ARRAY) {
        seed_num(s, GGUF_STR, 4);
        seed_num(s, 2, 8);
        seed_str(s, "a");
        seed_str(s, "b");
    } else {
        seed_num(s, 1, gguf_value_bytes(type));
    }
}

static void seed_tensor(seed *s, const char *name, uint32_t type, uint64_t offset)
{
    seed_str(s, name);
    seed_num(s, 1, 4);
    seed_num(s, gguf_type_info_of(type).block_values, 8);
    seed_num(s, type, 4);
    seed_num(s, offset, 8);
}

/* Part `no` of `count`: keys, one of them of the type that is asked for, and two tensors, the later data
 * first. */
static void seed_part(seed *s, uint32_t no, uint32_t count, uint8_t kind, uint8_t type)
{
    static const uint8_t types[] = {0, 1, 2, 8, 12, 14, 30, 39};
    uint32_t id = types[type % sizeof types];
    size_t start = s->len;
    seed_bytes(s, "GGUF", 4);
    seed_num(s, 2 + kind % 2, 4);
    seed_num(s, 2, 8);
    seed_num(s, 6, 8);
    seed_key(s, "general.architecture", GGUF_STR);
    seed_key(s, "text.block_count", GGUF_U16);
    seed_key(s, "k", (gguf_value_type)(kind % GGUF_VALUE_TYPE_COUNT));
    seed_str(s, "general.alignment");
    seed_num(s, GGUF_U32, 4);
    seed_num(s, 16, 4);
    seed_str(s, "split.no");
    seed_num(s, GGUF_U16, 4);
    seed_num(s, no, 2);
    seed_str(s, "split.count");
    seed_num(s, GGUF_U8, 4);
    seed_num(s, count, 1);
    seed_tensor(s, no ? "c" : "a", 24, 224); /* I8 */
    seed_tensor(s, no ? "d" : "b", id, 0);
    while ((s->len - start) % 16) {
        seed_num(s, 0, 1);
    }
    for (uint32_t i = 0; i < 225; i++) {
        seed_num(s, i & 31, 1);
    }
}

static void seed_make(seed *s, unsigned random)
{
    uint32_t count = 1 + random % 2;
    seed_num(s, count - 1, 1);
    for (uint32_t no = 0; no < count; no++) {
        size_t length_at = s->len;
        if (no + 1 < count) {
            seed_num(s, 0, 2);
        }
        size_t start = s->len;
        seed_part(s, no, count, (uint8_t)(random >> 1), (uint8_t)(random >> 9));
        if (no + 1 < count) {
            uint16_t length = (uint16_t)(s->len - start);
            memcpy(s->data + length_at, &length, sizeof length);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0) {
        run(data, size);
    }
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int random)
{
    if (size <= GGUF_HEADER_BYTES || random % 1024 == 0) {
        seed s = {.len = 0};
        seed_make(&s, random >> 10);
        if (s.len <= max_size) {
            memcpy(data, s.data, s.len);
            return s.len;
        }
    }
    return LLVMFuzzerMutate(data, size, max_size);
}
