/*
 * Offsets in the bytes (all numbers little-endian):
 *
 *      0  8   "hearthkv"
 *      8  4   version
 *     12  4   KV type
 *     16 32   identity
 *     48  8   from
 *     56  8   count, at least 1
 *     64  4   layers
 *     68  4   0
 *     72 16   of each layer: KV heads, width of K, width of V, 1 if V is a part of K
 *        4    of each position 0 … from + count - 1: its id
 *             rows, one after another
 *     n-8  8   XXH3 of all bytes before it
 *
 * A row is, for each layer and head, K then V: of Q8_0 the scales and then the codes, of all others the values.
 */
#include "kv/exchange.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/hash.h"
#include "base/le.h"
#include "base/mem.h"

#define VERSION      1u
#define HEADER_BYTES ((size_t)72)
#define LAYER_BYTES  ((size_t)16)
#define ID_BYTES     sizeof(int32_t)
#define SUM_BYTES    sizeof(uint64_t)
#define AT_VERSION   8
#define AT_TYPE      12
#define AT_IDENTITY  16
#define AT_FROM      48
#define AT_COUNT     56
#define AT_LAYERS    64

static const char magic[8] = {'h', 'e', 'a', 'r', 't', 'h', 'k', 'v'};

/*
 * Rows
 */

/* n values of one position: in a row they follow each other, in the page they lie stride_bytes apart, and the next
 * position's slot_bytes further. */
typedef struct piece {
    size_t at; /* of the first position in the page */
    size_t n, value_bytes, stride_bytes, slot_bytes;
} piece;

#define MAX_PIECES 4 /* of one head */

static size_t value_bytes_of(kv_type type)
{
    return type == KV_F32 ? sizeof(float) : type == KV_Q8_0 ? 1 : sizeof(uint16_t);
}

static size_t blocks_of(size_t dim)
{
    return (dim + KV_BLOCK - 1) / KV_BLOCK;
}

/* Of K: the positions lie side by side. */
static piece across(size_t at, size_t n, size_t value_bytes)
{
    return (piece){at, n, value_bytes, KV_PAGE_TOKENS * value_bytes, value_bytes};
}

/* Of V: the values of a position do. */
static piece along(size_t at, size_t n, size_t value_bytes)
{
    return (piece){at, n, value_bytes, value_bytes, n * value_bytes};
}

/* Fills out[MAX_PIECES] with those of one head that begins at `at`; returns how many. */
static size_t pieces_of_head(kv_type type, const kv_layer *l, size_t at, piece *out)
{
    size_t n = 0, value = value_bytes_of(type), v_at = at + l->v_bytes;
    bool scaled = type == KV_Q8_0;
    if (scaled) {
        out[n++] = across(at, blocks_of(l->k_dim), sizeof(uint16_t));
        at += kv_q8_scale_bytes(l->k_dim);
    }
    out[n++] = across(at, l->k_dim, value);
    if (l->v_in_k) {
        return n;
    }
    if (scaled) {
        out[n++] = along(v_at, blocks_of(l->v_dim), sizeof(uint16_t));
        v_at += kv_q8_scale_bytes(l->v_dim);
    }
    out[n++] = along(v_at, l->v_dim, value);
    return n;
}

/* n values of one size: those at `from` lie from_stride bytes apart, those at `to` to_stride. Any alignment. */
#define MOVE_VALUES(bytes)                                             \
    do {                                                               \
        for (size_t i = 0; i < n; i++) {                               \
            memcpy(to + i * to_stride, from + i * from_stride, bytes); \
        }                                                              \
    } while (0)

static void move_values(uint8_t *to, size_t to_stride, const uint8_t *from, size_t from_stride, size_t n,
                        size_t value_bytes)
{
    if (to_stride == value_bytes && from_stride == value_bytes) {
        memcpy(to, from, n * value_bytes);
    } else if (value_bytes == 1) {
        MOVE_VALUES(1);
    } else if (value_bytes == 2) {
        MOVE_VALUES(2);
    } else {
        MOVE_VALUES(4);
    }
}

/* Of some positions of a page between it and their rows; all zero: nothing is moved. */
typedef struct transfer {
    size_t first, n; /* slots of the page */
    size_t row_bytes;
    const uint8_t *page, *rows;
    uint8_t *to_page, *to_rows; /* one of them */
} transfer;

/* One piece of each position: what they share of the page stays in the cache meanwhile. */
static void move_piece(const transfer *t, const piece *p, size_t at_row)
{
    for (size_t i = 0; i < t->n; i++) {
        size_t at_page = p->at + (t->first + i) * p->slot_bytes, row = i * t->row_bytes + at_row;
        if (t->to_rows) {
            move_values(t->to_rows + row, p->value_bytes, t->page + at_page, p->stride_bytes, p->n,
                        p->value_bytes);
        } else {
            move_values(t->to_page + at_page, p->stride_bytes, t->rows + row, p->value_bytes, p->n,
                        p->value_bytes);
        }
    }
}

/* Walks over the pieces of a row in order; returns its bytes. */
static size_t walk(const exchange_shape *s, const transfer *t)
{
    piece p[MAX_PIECES];
    size_t done = 0;
    for (size_t l = 0; l < s->n_layers; l++) {
        const kv_layer *layer = &s->layers[l];
        for (size_t h = 0; h < layer->n_kv_heads; h++) {
            size_t n = pieces_of_head(s->type, layer, layer->offset_bytes + h * layer->head_bytes, p);
            for (size_t i = 0; i < n; i++) {
                move_piece(t, &p[i], done);
                done += p[i].n * p[i].value_bytes; /* a row is less than a page: no overflow */
            }
        }
    }
    return done;
}

size_t exchange_row_bytes(const exchange_shape *s)
{
    return walk(s, &(transfer){0});
}

/*
 * Sizes
 */
typedef struct parts { /* where they begin */
    size_t ids, rows, sum;
} parts;

static bool parts_of(const exchange_shape *s, size_t from, size_t count, parts *out)
{
    size_t layers, end, ids, rows;
    if (!size_mul(s->n_layers, LAYER_BYTES, &layers) || !size_add(layers, HEADER_BYTES, &out->ids) ||
        !size_add(from, count, &end) || !size_mul(end, ID_BYTES, &ids) ||
        !size_add(out->ids, ids, &out->rows) || !size_mul(count, exchange_row_bytes(s), &rows)) {
        return false;
    }
    return size_add(out->rows, rows, &out->sum) && out->sum <= SIZE_MAX - SUM_BYTES;
}

status exchange_bytes(const exchange_shape *s, size_t from, size_t count, size_t *out)
{
    parts p;
    if (!parts_of(s, from, count, &p)) {
        return ST_NOMEM;
    }
    *out = p.sum + SUM_BYTES;
    return ST_OK;
}

/*
 * Writing
 */
static void put_u32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, sizeof v); /* base/le.h: this machine is little-endian */
}

static void put_u64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

static void put_layer(uint8_t *p, const kv_layer *l)
{
    put_u32(p, l->n_kv_heads);
    put_u32(p + 4, l->k_dim);
    put_u32(p + 8, l->v_dim);
    put_u32(p + 12, l->v_in_k);
}

static void put_header(uint8_t *p, const exchange_shape *s, size_t from, size_t count)
{
    memset(p, 0, HEADER_BYTES);
    memcpy(p, magic, sizeof magic);
    put_u32(p + AT_VERSION, VERSION);
    put_u32(p + AT_TYPE, s->type);
    memcpy(p + AT_IDENTITY, s->identity, sizeof s->identity);
    put_u64(p + AT_FROM, from);
    put_u64(p + AT_COUNT, count);
    put_u32(p + AT_LAYERS, (uint32_t)s->n_layers);
    for (size_t l = 0; l < s->n_layers; l++) {
        put_layer(p + HEADER_BYTES + l * LAYER_BYTES, &s->layers[l]);
    }
}

status exchange_write(const exchange_shape *s, const int32_t *ids, size_t from, size_t count,
                      void *const *pages, buf *out)
{
    parts p;
    assert(count > 0 && s->n_layers <= UINT32_MAX);
    if (!parts_of(s, from, count, &p) || buf_reserve(out, p.sum + SUM_BYTES) != ST_OK) {
        return ST_NOMEM;
    }
    uint8_t *at = (uint8_t *)out->data + out->len;
    size_t row_bytes = exchange_row_bytes(s), end = from + count;
    put_header(at, s, from, count);
    memcpy(at + p.ids, ids, p.rows - p.ids);
    for (size_t position = from, n; position < end; position += n) {
        size_t slot = position % KV_PAGE_TOKENS;
        n = end - position < KV_PAGE_TOKENS - slot ? end - position : KV_PAGE_TOKENS - slot;
        const transfer t = {.first = slot,
                            .n = n,
                            .row_bytes = row_bytes,
                            .page = pages[position / KV_PAGE_TOKENS],
                            .to_rows = at + p.rows + (position - from) * row_bytes};
        walk(s, &t);
    }
    put_u64(at + p.sum, hash64(at, p.sum));
    out->len += p.sum + SUM_BYTES;
    out->data[out->len] = '\0';
    return ST_OK;
}

/*
 * Reading
 */
static status damaged(err *e, const char *what)
{
    return err_set(e, ST_INVALID_FIELD, "checksum", "the range is damaged: %s", what);
}

/* Whether they are bytes of ours at all, whole. */
static status check_bytes(const uint8_t *bytes, size_t n, err *e)
{
    if (n < sizeof magic || memcmp(bytes, magic, sizeof magic) != 0) {
        return err_set(e, ST_INVALID_FIELD, "magic", "these bytes are no exported range");
    }
    if (n < HEADER_BYTES + SUM_BYTES) {
        return damaged(e, "it ends inside its header");
    }
    uint32_t version = le32_get(bytes + AT_VERSION);
    if (version != VERSION) {
        return err_set(e, ST_INVALID_FIELD, "version", "the range is of version %u, this build reads %u",
                       (unsigned)version, VERSION);
    }
    if (le64_get(bytes + n - SUM_BYTES) != hash64(bytes, n - SUM_BYTES)) {
        return damaged(e, "its checksum is not that of its bytes");
    }
    return ST_OK;
}

static status check_layer(const kv_layer *l, const uint8_t *p, size_t i, err *e)
{
    uint8_t want[LAYER_BYTES];
    put_layer(want, l);
    if (memcmp(p, want, LAYER_BYTES) == 0) {
        return ST_OK;
    }
    return err_set(e, ST_INVALID_FIELD, "layers",
                   "layer %zu of the range has %u KV heads of %u and %u%s, the model's has %u of %u and %u%s",
                   i, (unsigned)le32_get(p), (unsigned)le32_get(p + 4), (unsigned)le32_get(p + 8),
                   le32_get(p + 12) ? " (V in K)" : "", (unsigned)l->n_kv_heads, (unsigned)l->k_dim,
                   (unsigned)l->v_dim, l->v_in_k ? " (V in K)" : "");
}

/* What the rows depend on. The table of layers is in the bytes when this is called. */
static status check_shape(const exchange_shape *s, const uint8_t *bytes, size_t n, err *e)
{
    uint32_t type = le32_get(bytes + AT_TYPE), n_layers = le32_get(bytes + AT_LAYERS);
    if (type != (uint32_t)s->type) {
        return err_set(e, ST_INVALID_FIELD, "kv_type", "the range is of kv type %s, this model keeps %s",
                       type < KV_TYPE_COUNT ? kv_type_name((kv_type)type) : "(unknown)",
                       kv_type_name(s->type));
    }
    if (n_layers != s->n_layers) {
        return err_set(e, ST_INVALID_FIELD, "layers", "the range is of %u layers, this model has %zu",
                       (unsigned)n_layers, s->n_layers);
    }
    if (n_layers > (n - HEADER_BYTES - SUM_BYTES) / LAYER_BYTES) {
        return damaged(e, "it ends inside its layers");
    }
    for (size_t l = 0; l < n_layers; l++) {
        status st = check_layer(&s->layers[l], bytes + HEADER_BYTES + l * LAYER_BYTES, l, e);
        if (st != ST_OK) {
            return st;
        }
    }
    if (memcmp(bytes + AT_IDENTITY, s->identity, sizeof s->identity) != 0) {
        return err_set(e, ST_INVALID_FIELD, "identity",
                       "the range is of another model, or of other settings of it");
    }
    return ST_OK;
}

status exchange_read(const exchange_shape *s, const uint8_t *bytes, size_t n, exchange_range *out, err *e)
{
    parts p;
    status st = check_bytes(bytes, n, e);
    if (st == ST_OK) {
        st = check_shape(s, bytes, n, e);
    }
    if (st != ST_OK) {
        return st;
    }
    uint64_t from = le64_get(bytes + AT_FROM), count = le64_get(bytes + AT_COUNT);
    if (count == 0 || le32_get(bytes + AT_LAYERS + 4) != 0) {
        return damaged(e, "its header has a value that none can have");
    }
    if (from > SIZE_MAX || count > SIZE_MAX || !parts_of(s, (size_t)from, (size_t)count, &p) ||
        p.sum + SUM_BYTES != n) {
        return damaged(e, "its length is not that of its tokens");
    }
    *out = (exchange_range){(size_t)from, (size_t)count, bytes + p.ids, bytes + p.rows};
    return ST_OK;
}

int32_t exchange_id(const exchange_range *r, size_t position)
{
    assert(position < r->from + r->count);
    return (int32_t)le32_get(r->ids + position * ID_BYTES);
}

void exchange_put_rows(const exchange_shape *s, const exchange_range *r, size_t position, size_t n,
                       void *page)
{
    size_t row_bytes = exchange_row_bytes(s), slot = position % KV_PAGE_TOKENS;
    assert(position >= r->from && position - r->from + n <= r->count && slot + n <= KV_PAGE_TOKENS);
    const transfer t = {.first = slot,
                        .n = n,
                        .row_bytes = row_bytes,
                        .rows = r->rows + (position - r->from) * row_bytes,
                        .to_page = page};
    walk(s, &t);
}
