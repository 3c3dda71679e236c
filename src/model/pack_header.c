#include "model/pack_header.h"

#include <string.h>

#include "base/le.h"
#include "kern/pack.h"

#define TABLE_VERSION 1u
#define ENTRY_BYTES   48u

static const char magic[8] = {'H', 'E', 'A', 'R', 'T', 'H', 'P', 'K'};

enum { /* offsets */
       AT_VERSION = 8,
       AT_PACK = 12,
       AT_NUMERICS = 16,
       AT_COUNT = 20,
       AT_LENGTH = 24,
       AT_FILE_BYTES = 32,
       AT_TYPES = 40,
       AT_SOURCE = 48,
       AT_DIGEST = 80,
       AT_SUM = 112
};

static void put32(unsigned char *to, uint32_t v)
{
    memcpy(to, &v, sizeof v); /* little-endian: base/le.h */
}

static void put64(unsigned char *to, uint64_t v)
{
    memcpy(to, &v, sizeof v);
}

uint64_t pack_key_types(const kern_table *kern)
{
    uint64_t types = 0;
    _Static_assert(GGUF_TYPE_COUNT <= 64, "a bit for each type");
    for (size_t i = 0; i < GGUF_TYPE_COUNT; i++) {
        types |= (uint64_t)kern->wants_packed[i] << i;
    }
    return types;
}

uint64_t pack_header_bytes(const pack_plan *plan)
{
    uint64_t n = PACK_HEADER_FIXED + (uint64_t)plan->n_items * ENTRY_BYTES;
    return (n + PACK_HEADER_ALIGN - 1) / PACK_HEADER_ALIGN * PACK_HEADER_ALIGN;
}

static void put_entry(unsigned char *to, const pack_item *item)
{
    const uint64_t fields[] = {item->offset, item->bytes, item->w->n, item->w->k, (uint64_t)item->w->type,
                               item->matrix};
    _Static_assert(sizeof fields == ENTRY_BYTES, "six fields");
    memcpy(to, fields, sizeof fields);
}

/* The checksum of a header as if its own place held zeros. */
static uint64_t sum_of(const unsigned char *header, uint64_t n_bytes)
{
    unsigned char fixed[PACK_HEADER_FIXED];
    memcpy(fixed, header, sizeof fixed);
    put64(fixed + AT_SUM, hash64(header + PACK_HEADER_FIXED, (size_t)(n_bytes - PACK_HEADER_FIXED)));
    return hash64(fixed, sizeof fixed);
}

void pack_header_make(const pack_plan *plan, const pack_key *key, const uint8_t digest[SHA256_BYTES],
                      unsigned char *out)
{
    uint64_t n_bytes = pack_header_bytes(plan);
    memset(out, 0, (size_t)n_bytes);
    memcpy(out, magic, sizeof magic);
    put32(out + AT_VERSION, TABLE_VERSION);
    put32(out + AT_PACK, KERN_PACK_VERSION);
    put32(out + AT_NUMERICS, NUMERICS_VERSION);
    put32(out + AT_COUNT, (uint32_t)plan->n_items);
    put64(out + AT_LENGTH, n_bytes);
    put64(out + AT_FILE_BYTES, n_bytes + plan->image_bytes);
    put64(out + AT_TYPES, key->types);
    memcpy(out + AT_SOURCE, key->source, SHA256_BYTES);
    memcpy(out + AT_DIGEST, digest, SHA256_BYTES);
    for (size_t i = 0; i < plan->n_items; i++) {
        put_entry(out + PACK_HEADER_FIXED + i * ENTRY_BYTES, &plan->items[i]);
    }
    put64(out + AT_SUM, sum_of(out, n_bytes));
}

uint64_t pack_header_length(const unsigned char fixed[PACK_HEADER_FIXED])
{
    uint64_t n = le64_get(fixed + AT_LENGTH);
    bool possible = memcmp(fixed, magic, sizeof magic) == 0 && n >= PACK_HEADER_FIXED &&
                    n <= PACK_HEADER_MAX && n % PACK_HEADER_ALIGN == 0;
    return possible ? n : 0;
}

const char *pack_header_fault(const unsigned char *header, uint64_t n_bytes, uint64_t file_bytes,
                              const pack_key *key)
{
    if (pack_header_length(header) != n_bytes || le32_get(header + AT_VERSION) != TABLE_VERSION) {
        return "it does not begin like a packed file";
    }
    if (le64_get(header + AT_SUM) != sum_of(header, n_bytes)) {
        return "the checksum of its header is wrong";
    }
    if (le32_get(header + AT_PACK) != KERN_PACK_VERSION ||
        le32_get(header + AT_NUMERICS) != NUMERICS_VERSION || le64_get(header + AT_TYPES) != key->types) {
        return "it is of another version";
    }
    if (memcmp(header + AT_SOURCE, key->source, SHA256_BYTES) != 0) {
        return "it is of another model";
    }
    if (le64_get(header + AT_FILE_BYTES) != file_bytes) {
        return "it has another size than its header says";
    }
    return NULL;
}

const char *pack_header_plan_fault(const unsigned char *header, const pack_plan *plan)
{
    bool same = le32_get(header + AT_COUNT) == plan->n_items &&
                le64_get(header + AT_LENGTH) == pack_header_bytes(plan) &&
                le64_get(header + AT_FILE_BYTES) == pack_header_bytes(plan) + plan->image_bytes;
    for (size_t i = 0; same && i < plan->n_items; i++) {
        unsigned char want[ENTRY_BYTES];
        put_entry(want, &plan->items[i]);
        same = memcmp(want, header + PACK_HEADER_FIXED + i * ENTRY_BYTES, sizeof want) == 0;
    }
    return same ? NULL : "its matrices are not those of the model";
}

const uint8_t *pack_header_digest(const unsigned char *header)
{
    return header + AT_DIGEST;
}
