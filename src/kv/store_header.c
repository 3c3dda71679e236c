#include "kv/store_header.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/hash.h"
#include "base/le.h"

enum {
    AT_VERSION = 8,
    AT_N_IDS = 12,
    AT_PAGE_BYTES = 16,
    AT_ROOT = 24,
    AT_PARENT = 56,
    AT_LAYOUT = 88,
    AT_IDS = 120,
    AT_ZEROS = 248,
    AT_PAGE_SUM = 496,
    AT_HEADER_SUM = 504,
};

static const char magic[AT_VERSION] = "hearthpg"; /* no NUL behind it */

_Static_assert(AT_IDS + KV_PAGE_TOKENS * sizeof(int32_t) == AT_ZEROS, "the table of offsets");
_Static_assert(AT_HEADER_SUM + sizeof(uint64_t) == STORE_HEADER_BYTES, "the table of offsets");

void store_header_make(store_header *h, const kv_root_key *root, const store_key *parent, const int32_t *ids,
                       size_t n)
{
    assert(n >= 1 && n <= KV_PAGE_TOKENS);
    memset(h, 0, sizeof *h);
    h->root = *root;
    if (parent) {
        h->parent = *parent;
    }
    h->n_ids = (uint32_t)n;
    memcpy(h->ids, ids, n * sizeof *ids);
}

store_key store_header_key(const store_header *h)
{
    return store_chain(&h->root, &h->parent, h->ids, h->n_ids);
}

store_key store_chain(const kv_root_key *root, const store_key *parent, const int32_t *ids, size_t n)
{
    uint8_t text[sizeof *root + sizeof *parent + KV_PAGE_TOKENS * sizeof *ids] = {0};
    store_key key = {{0}};
    assert(n >= 1 && n <= KV_PAGE_TOKENS);
    memcpy(text, root, sizeof *root);
    if (parent) {
        memcpy(text + sizeof *root, parent, sizeof *parent);
    }
    memcpy(text + sizeof *root + sizeof *parent, ids, n * sizeof *ids);
    if (sha256_once(text, sizeof *root + sizeof *parent + n * sizeof *ids, key.bytes) != ST_OK) {
        memset(&key, 0, sizeof key);
    }
    return key;
}

static void put_fields(const store_header *h, uint8_t *out)
{
    const uint32_t version = STORE_FORMAT_VERSION;
    memset(out, 0, STORE_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    memcpy(out + AT_VERSION, &version, sizeof version);
    memcpy(out + AT_N_IDS, &h->n_ids, sizeof h->n_ids);
    memcpy(out + AT_PAGE_BYTES, &h->page_bytes, sizeof h->page_bytes);
    memcpy(out + AT_ROOT, &h->root, sizeof h->root);
    memcpy(out + AT_PARENT, &h->parent, sizeof h->parent);
    memcpy(out + AT_LAYOUT, h->layout, sizeof h->layout);
    memcpy(out + AT_IDS, h->ids, h->n_ids * sizeof *h->ids);
}

static void put_sums(uint8_t *out, uint64_t page_sum)
{
    memcpy(out + AT_PAGE_SUM, &page_sum, sizeof page_sum);
    uint64_t sum = hash64(out, AT_HEADER_SUM);
    memcpy(out + AT_HEADER_SUM, &sum, sizeof sum);
}

uint64_t store_sum_step(uint64_t sum, const void *bytes, size_t n)
{
    const uint64_t both[2] = {sum, hash64(bytes, n)};
    return hash64(both, sizeof both);
}

uint64_t store_sum(const void *page, size_t n)
{
    const uint8_t *p = page;
    uint64_t sum = 0;
    for (size_t at = 0; at < n; at += STORE_STEP_BYTES) {
        sum = store_sum_step(sum, p + at, n - at < STORE_STEP_BYTES ? n - at : STORE_STEP_BYTES);
    }
    return sum;
}

void store_header_put(const store_header *h, uint64_t page_sum, uint8_t out[STORE_HEADER_BYTES])
{
    put_fields(h, out);
    put_sums(out, page_sum);
}

static bool all_zero(const uint8_t *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] == 0) {
        i++;
    }
    return i == n;
}

/* Checked before the sum is: they say more. */
static status check_kind(const uint8_t *bytes, err *e)
{
    uint32_t version = le32_get(bytes + AT_VERSION), n_ids = le32_get(bytes + AT_N_IDS);
    if (memcmp(bytes, magic, sizeof magic) != 0) {
        return err_at(e, ST_BAD_FORMAT, 0, "magic", "this is no page file");
    }
    if (version != STORE_FORMAT_VERSION) {
        return err_at(e, ST_BAD_FORMAT, AT_VERSION, "version", "format version %u, this is %u", version,
                      STORE_FORMAT_VERSION);
    }
    if (le64_get(bytes + AT_HEADER_SUM) != hash64(bytes, AT_HEADER_SUM)) {
        return err_at(e, ST_BAD_FORMAT, AT_HEADER_SUM, "checksum", "the header's checksum is wrong");
    }
    if (n_ids == 0 || n_ids > KV_PAGE_TOKENS) {
        return err_at(e, ST_BAD_FORMAT, AT_N_IDS, "ids", "%u ids", n_ids);
    }
    return ST_OK;
}

status store_header_get(const uint8_t bytes[STORE_HEADER_BYTES], store_header *out, err *e)
{
    status st = check_kind(bytes, e);
    if (st != ST_OK) {
        return st;
    }
    size_t ids_end = AT_IDS + le32_get(bytes + AT_N_IDS) * sizeof(int32_t);
    if (!all_zero(bytes + ids_end, AT_PAGE_SUM - ids_end)) {
        return err_at(e, ST_BAD_FORMAT, ids_end, "ids", "there is something behind the last id");
    }
    memset(out, 0, sizeof *out);
    out->n_ids = le32_get(bytes + AT_N_IDS);
    out->page_bytes = le64_get(bytes + AT_PAGE_BYTES);
    memcpy(&out->root, bytes + AT_ROOT, sizeof out->root);
    memcpy(&out->parent, bytes + AT_PARENT, sizeof out->parent);
    memcpy(out->layout, bytes + AT_LAYOUT, sizeof out->layout);
    memcpy(out->ids, bytes + AT_IDS, out->n_ids * sizeof *out->ids);
    return ST_OK;
}

/* The first field in which two valid headers differ; NULL: none. */
static const char *difference(const uint8_t *a, const uint8_t *b)
{
    static const struct {
        const char *name;
        size_t at, end;
    } fields[] = {
        {"page_bytes", AT_PAGE_BYTES, AT_ROOT}, {"layout", AT_LAYOUT, AT_IDS},
        {"root", AT_ROOT, AT_PARENT},           {"parent", AT_PARENT, AT_LAYOUT},
        {"ids", AT_N_IDS, AT_PAGE_BYTES},       {"ids", AT_IDS, AT_ZEROS},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (memcmp(a + fields[i].at, b + fields[i].at, fields[i].end - fields[i].at) != 0) {
            return fields[i].name;
        }
    }
    return NULL;
}

status store_header_check(const uint8_t bytes[STORE_HEADER_BYTES], const store_header *want,
                          uint64_t page_sum, err *e)
{
    uint8_t wanted[STORE_HEADER_BYTES];
    store_header got;
    status st = store_header_get(bytes, &got, e);
    if (st != ST_OK) {
        return st;
    }
    put_fields(want, wanted);
    const char *other = difference(bytes, wanted);
    if (other) {
        return err_set(e, ST_BAD_FORMAT, other, "it belongs to other %s", other);
    }
    if (le64_get(bytes + AT_PAGE_SUM) != page_sum) {
        return err_at(e, ST_BAD_FORMAT, AT_PAGE_SUM, "checksum", "the page's checksum is wrong");
    }
    put_sums(wanted, page_sum);
    return memcmp(bytes, wanted, sizeof wanted) == 0
               ? ST_OK
               : err_set(e, ST_BAD_FORMAT, NULL, "its header is spelled differently");
}
