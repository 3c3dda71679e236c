#include "engine/session_range.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine_int.h"
#include "kv/exchange.h"

const kv_root_key *engine_identity(const engine *en)
{
    return &en->cfg.identity;
}

const char *engine_kv_type(const engine *en)
{
    return kv_type_name(en->cfg.ops.kv_type);
}

static exchange_shape shape_of(const engine *en)
{
    exchange_shape x = {
        .type = en->cfg.ops.kv_type, .layers = en->cfg.ops.kv_layers, .n_layers = en->cfg.ops.n_kv_layers};
    _Static_assert(sizeof x.identity == sizeof en->cfg.identity.bytes, "one names the other");
    memcpy(x.identity, en->cfg.identity.bytes, sizeof x.identity);
    return x;
}

static status check_supported(const engine *en, err *e)
{
    if (!en->tree) {
        return err_set(e, ST_UNSUPPORTED, "action", "nothing is kept here (--no-warm)");
    }
    return en->cfg.ops.kv_layers
               ? ST_OK
               : err_set(e, ST_UNSUPPORTED, "action", "what this model keeps cannot be moved");
}

/* Within the session's tokens. */
static status check_range(const session *s, const session_range *r, err *e)
{
    if (r->from > s->ids.len) {
        return err_set(e, ST_INVALID_FIELD, "from", "from is %zu, the session has %zu tokens", r->from,
                       s->ids.len);
    }
    return r->count <= s->ids.len - r->from
               ? ST_OK
               : err_set(e, ST_INVALID_FIELD, "count",
                         "%zu tokens from %zu on are more than the session has: %zu", r->count, r->from,
                         s->ids.len);
}

static status root_of(const engine *en, const session_range *r, kv_root_key *root, err *e)
{
    status st = reuse_root(en, r->name_space, r->n_name_space, root);
    return st == ST_OK ? ST_OK : err_set(e, st, NULL, "out of memory for a namespace");
}

/* How much of a range the first n tokens hold. */
static size_t part_of(const session_range *r, size_t n)
{
    size_t end = n < r->from + r->count ? n : r->from + r->count;
    return end > r->from ? end - r->from : 0;
}

/*
 * Looking
 */

/* Tokens from the beginning on whose pages the store has. */
static size_t stored_tokens(const session *s, const kv_root_key *root, const session_range *r)
{
    const engine *en = s->en;
    size_t n_pages = (r->from + r->count) / KV_PAGE_TOKENS, at = 0;
    store_key key = {{0}};
    while (en->cfg.store && at < n_pages) {
        const store_key parent = key;
        key = store_chain(root, at > 0 ? &parent : NULL, s->ids.data + at * KV_PAGE_TOKENS, KV_PAGE_TOKENS);
        if (at * KV_PAGE_TOKENS + KV_PAGE_TOKENS > r->from && !store_has(en->cfg.store, &key)) {
            break;
        }
        at++;
    }
    return at * KV_PAGE_TOKENS;
}

static kv_match match_range(const session *s, const kv_root_key *root, const session_range *r)
{
    size_t end = r->from + r->count;
    return kv_tree_match(s->en->tree, root, s->ids.data, end, end);
}

status session_probe(const session *s, const session_range *r, size_t *in_memory, size_t *stored, err *e)
{
    kv_root_key root;
    assert(s->n_requests == 0);
    status st = check_range(s, r, e);
    st = st == ST_OK ? root_of(s->en, r, &root, e) : st;
    if (st == ST_OK) {
        *in_memory = s->en->tree ? part_of(r, match_range(s, &root, r).n_usable) : 0;
        *stored = part_of(r, stored_tokens(s, &root, r));
    }
    return st;
}

/*
 * Out
 */
status session_export_bytes(const session *s, const session_range *r, size_t max_bytes, size_t *bytes, err *e)
{
    size_t all, none;
    status st = check_supported(s->en, e);
    st = st == ST_OK ? check_range(s, r, e) : st;
    if (st != ST_OK) {
        return st;
    }
    if (r->count == 0) {
        return err_set(e, ST_INVALID_FIELD, "count", "count is 0: there is nothing to export");
    }
    exchange_shape x = shape_of(s->en);
    if (exchange_bytes(&x, r->from, r->count, &all) != ST_OK || all > max_bytes) {
        size_t per_token = exchange_row_bytes(&x) + sizeof(int32_t);
        bool any = exchange_bytes(&x, r->from, 0, &none) == ST_OK && none < max_bytes;
        return err_set(e, ST_INVALID_FIELD, "count", "%zu tokens are more than %zu bytes, %zu fit", r->count,
                       max_bytes, any ? (max_bytes - none) / per_token : 0);
    }
    *bytes = all;
    return ST_OK;
}

/* The pages of the first n tokens, which end in node; NULL: no memory. */
static void **addresses(engine *en, kv_node *node, size_t n)
{
    size_t n_pages = resident_pages_for(n);
    void **pages = mem_alloc_array(n_pages, sizeof *pages);
    if (pages) {
        kv_tree_pages(en->tree, node, 0, en->path, n_pages);
        for (size_t i = 0; i < n_pages; i++) {
            pages[i] = page_pool_addr(en->pages, en->path[i]);
        }
    }
    return pages;
}

status session_export(session *s, const session_range *r, buf *out, err *e)
{
    engine *en = s->en;
    kv_root_key root;
    size_t bytes = 0, end = r->from + r->count;
    assert(s->n_requests == 0);
    status st = session_export_bytes(s, r, SIZE_MAX, &bytes, e);
    st = st == ST_OK ? root_of(en, r, &root, e) : st;
    if (st != ST_OK) {
        return st;
    }
    kv_match m = match_range(s, &root, r);
    if (m.n_usable < end) {
        return err_set(e, ST_INVALID_FIELD, "from",
                       "%zu of these %zu tokens are in memory: prewarm brings the others back",
                       part_of(r, m.n_usable), r->count);
    }
    kv_tree_hold(en->tree, m.node); /* it has been used, too */
    void **pages = addresses(en, m.node, end);
    exchange_shape x = shape_of(en);
    st = pages ? exchange_write(&x, s->ids.data, r->from, r->count, pages, out) : ST_NOMEM;
    kv_tree_release(en->tree, m.node);
    mem_free(pages);
    return st == ST_OK ? ST_OK : err_set(e, st, NULL, "out of memory for an export of %zu bytes", bytes);
}

/*
 * In
 */
typedef struct incoming { /* a range that was read, and what becomes of it */
    exchange_shape shape;
    exchange_range range;
    kv_root_key root;
    size_t end; /* tokens */
    /* owned */
    int32_t *ids;   /* [end] */
    page_id *pages; /* [pages of end]; those from first_page on are new, one reference each */
    size_t first_page, n_pages;
    kv_node *node; /* what memory has of it ends here; held */
    size_t n_had;
} incoming;

static status copy_ids(const engine *en, incoming *in, err *e)
{
    int32_t n_vocab = (int32_t)en->cfg.ops.shape->n_vocab;
    in->ids = mem_alloc_array(in->end, sizeof *in->ids);
    if (!in->ids) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for an import");
    }
    for (size_t i = 0; i < in->end; i++) {
        in->ids[i] = exchange_id(&in->range, i);
        if (in->ids[i] < 0 || in->ids[i] >= n_vocab) {
            return err_set(e, ST_INVALID_FIELD, "ids", "id %d at position %zu is not in the vocabulary of %d",
                           (int)in->ids[i], i, (int)n_vocab);
        }
    }
    return ST_OK;
}

/* Against what the session is. */
static status check_incoming(const session *s, const incoming *in, err *e)
{
    size_t n = s->ids.len;
    if (in->end > (size_t)s->en->cfg.n_ctx) {
        return err_set(e, ST_INVALID_FIELD, "count", "the range ends at %zu, the context is %d tokens",
                       in->end, (int)s->en->cfg.n_ctx);
    }
    if (in->range.from > n) {
        return err_set(e, ST_INVALID_FIELD, "from",
                       "the range begins at %zu, the session has %zu tokens: it would leave a hole",
                       in->range.from, n);
    }
    for (size_t i = 0; i < n && i < in->end; i++) {
        if (in->ids[i] != s->ids.data[i]) {
            return err_set(e, ST_INVALID_FIELD, "ids", "at position %zu the range has %d and the session %d",
                           i, (int)in->ids[i], (int)s->ids.data[i]);
        }
    }
    return ST_OK;
}

static status read_incoming(session *s, const session_range *r, const uint8_t *bytes, size_t n, incoming *in,
                            err *e)
{
    status st = check_supported(s->en, e);
    if (st != ST_OK) {
        return st;
    }
    in->shape = shape_of(s->en);
    st = exchange_read(&in->shape, bytes, n, &in->range, e);
    if (st != ST_OK) {
        return st;
    }
    in->end = in->range.from + in->range.count;
    st = copy_ids(s->en, in, e);
    st = st == ST_OK ? check_incoming(s, in, e) : st;
    st = st == ST_OK ? root_of(s->en, r, &in->root, e) : st;
    if (st == ST_OK && in->end > s->ids.len && ivec_reserve(&s->ids, in->end - s->ids.len) != ST_OK) {
        st = err_set(e, ST_NOMEM, NULL, "out of memory for an import");
    }
    return st;
}

/* A page that only cached ones make room for. */
static bool take_page(engine *en, page_id *out)
{
    while (page_pool_available(en->pages) <= en->promised_pages) {
        if (!kv_tree_evict(en->tree, 0)) {
            return false;
        }
    }
    return page_pool_take(en->pages, out) == ST_OK;
}

/* Pages for what memory lacks. None where memory has not even what comes before the range: nothing could stand on it. */
static status take_pages(engine *en, incoming *in, err *e)
{
    size_t n_all = resident_pages_for(in->end);
    kv_match m = kv_tree_match(en->tree, &in->root, in->ids, in->end, in->end);
    in->n_had = m.n_usable;
    in->first_page = in->n_pages = m.n_usable < in->range.from ? n_all : m.n_usable / KV_PAGE_TOKENS;
    in->pages = mem_alloc_array(n_all, sizeof *in->pages);
    if (!in->pages) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for an import");
    }
    for (size_t i = 0; i < in->first_page; i++) {
        in->pages[i] = KV_NO_PAGE; /* the tree has them */
    }
    in->node = m.node;
    kv_tree_hold(en->tree, in->node);
    while (in->n_had < in->end && in->n_pages < n_all) {
        if (!take_page(en, &in->pages[in->n_pages])) {
            return err_set(e, ST_CAPACITY, NULL, "there are not enough free pages: %zu are needed",
                           n_all - in->first_page);
        }
        in->n_pages++;
    }
    return ST_OK;
}

/* Rows of the range, behind those that memory has of the first page. What memory has begins with all that is before
 * the range. */
static void fill_pages(engine *en, const incoming *in)
{
    size_t begin = in->first_page * KV_PAGE_TOKENS;
    if (in->n_pages == in->first_page) {
        return;
    }
    if (begin < in->n_had) {
        kv_tree_pages(en->tree, in->node, 0, en->path, in->first_page + 1);
        memcpy(page_pool_addr(en->pages, in->pages[in->first_page]),
               page_pool_addr(en->pages, en->path[in->first_page]), page_pool_page_bytes(en->pages));
    }
    for (size_t i = in->n_had, n; i < in->end; i += n) {
        size_t left = KV_PAGE_TOKENS - i % KV_PAGE_TOKENS;
        n = in->end - i < left ? in->end - i : left;
        exchange_put_rows(&in->shape, &in->range, i, n,
                          page_pool_addr(en->pages, in->pages[i / KV_PAGE_TOKENS]));
    }
}

/* Whole ones that are new. */
static void store_pages(engine *en, const incoming *in)
{
    store_key key = {{0}};
    for (size_t i = 0; en->cfg.store && in->n_pages > in->first_page && (i + 1) * KV_PAGE_TOKENS <= in->end;
         i++) {
        const store_key parent = key;
        const int32_t *ids = in->ids + i * KV_PAGE_TOKENS;
        key = store_chain(&in->root, i > 0 ? &parent : NULL, ids, KV_PAGE_TOKENS);
        if (i >= in->first_page && !store_has(en->cfg.store, &key)) {
            (void)store_put(en->cfg.store, &in->root, i > 0 ? &parent : NULL, ids, KV_PAGE_TOKENS,
                            page_pool_addr(en->pages, in->pages[i]));
        }
    }
}

static void incoming_release(engine *en, incoming *in)
{
    for (size_t i = in->first_page; in->pages && i < in->n_pages; i++) {
        page_pool_unref(en->pages, in->pages[i]);
    }
    if (en->tree) {
        kv_tree_release(en->tree, in->node);
    }
    mem_free(in->pages);
    mem_free(in->ids);
    engine_note_pages(en);
}

status session_import(session *s, const uint8_t *bytes, size_t n, session_range *r, err *e)
{
    engine *en = s->en;
    incoming in = {0};
    assert(s->n_requests == 0);
    status st = read_incoming(s, r, bytes, n, &in, e);
    st = st == ST_OK ? take_pages(en, &in, e) : st;
    if (st == ST_OK) {
        fill_pages(en, &in);
        store_pages(en, &in);
        kv_span span = {.pages = {in.pages}};
        (void)kv_tree_insert(en->tree, &in.root, in.ids, in.end, &span, &in.node);
        if (in.end > s->ids.len) {
            (void)ivec_append(&s->ids, in.ids + s->ids.len, in.end - s->ids.len); /* reserved */
        }
        r->from = in.range.from;
        r->count = in.range.count;
    }
    incoming_release(en, &in);
    return st;
}

/*
 * Tokens alone
 */
status session_set_tokens(session *s, const int32_t *ids, size_t n, err *e)
{
    int32_t n_vocab = (int32_t)s->en->cfg.ops.shape->n_vocab;
    assert(s->n_requests == 0);
    if (n > (size_t)s->en->cfg.n_ctx) {
        return err_set(e, ST_INVALID_FIELD, "ids", "%zu tokens are more than the context of %d", n,
                       (int)s->en->cfg.n_ctx);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= n_vocab) {
            return err_set(e, ST_INVALID_FIELD, "ids", "id %d at position %zu is not in the vocabulary of %d",
                           (int)ids[i], i, (int)n_vocab);
        }
    }
    if (n > s->ids.len && ivec_reserve(&s->ids, n - s->ids.len) != ST_OK) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the session's tokens");
    }
    ivec_reset(&s->ids);
    (void)ivec_append(&s->ids, ids, n); /* reserved */
    s->dirty = false;
    return ST_OK;
}
