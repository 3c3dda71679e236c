#include "engine/park.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

struct park {
    size_t budget_bytes;
    size_t used_bytes;
    size_t n_images;
};

struct park_image {
    unsigned char
        *bytes; /* owned: [n_pages][page_bytes]; a mapping, so that it goes back to the system whole */
    size_t n_tokens;
    size_t n_pages;
    size_t page_bytes;
};

status park_new(size_t budget_bytes, park **out)
{
    park *p = mem_calloc(1, sizeof *p);
    if (!p) {
        return ST_NOMEM;
    }
    p->budget_bytes = budget_bytes;
    *out = p;
    return ST_OK;
}

void park_free(park *p)
{
    assert(!p || p->n_images == 0);
    mem_free(p);
}

void park_set_budget(park *p, size_t budget_bytes)
{
    p->budget_bytes = budget_bytes;
}

bool park_is_over(const park *p)
{
    return p->used_bytes > p->budget_bytes;
}

size_t park_bytes_used(const park *p)
{
    return p->used_bytes;
}

size_t park_images(const park *p)
{
    return p->n_images;
}

static size_t image_bytes(const park_image *img)
{
    return img->n_pages * img->page_bytes;
}

status park_save(park *p, const resident *kv, const page_pool *pool, park_image **out)
{
    size_t n_pages = resident_pages_for(kv->ids.len), page_bytes = page_pool_page_bytes(pool), total;
    assert(kv->n_pages >= n_pages);
    if (!size_mul(n_pages, page_bytes, &total) || park_is_over(p) ||
        total > p->budget_bytes - p->used_bytes) {
        return ST_CAPACITY;
    }
    park_image *img = mem_calloc(1, sizeof *img);
    unsigned char *bytes = img && total > 0 ? mem_reserve(total) : NULL;
    if (!img || (total > 0 && !bytes)) {
        mem_free(img);
        return ST_NOMEM;
    }
    *img =
        (park_image){.bytes = bytes, .n_tokens = kv->ids.len, .n_pages = n_pages, .page_bytes = page_bytes};
    for (size_t i = 0; bytes && i < n_pages; i++) {
        memcpy(bytes + i * page_bytes, kv->addrs[i], page_bytes);
    }
    p->used_bytes += total;
    p->n_images++;
    *out = img;
    return ST_OK;
}

size_t park_image_tokens(const park_image *img)
{
    return img->n_tokens;
}

status park_load(const park_image *img, resident *kv, page_pool *pool, const int32_t *ids, size_t max_pages,
                 bool *complete)
{
    assert(max_pages >= 1 && page_pool_page_bytes(pool) == img->page_bytes);
    assert(kv->n_pages == resident_pages_for(kv->ids.len) && kv->ids.len <= img->n_tokens);
    for (size_t n = 0; n < max_pages && kv->n_pages < img->n_pages; n++) {
        size_t at = kv->n_pages, first = at * KV_PAGE_TOKENS;
        size_t left = img->n_tokens - first;
        status st = resident_cover(kv, pool, first + 1);
        if (st != ST_OK) {
            return st;
        }
        memcpy(kv->addrs[at], img->bytes + at * img->page_bytes, img->page_bytes);
        st = ivec_append(&kv->ids, ids + first, left < KV_PAGE_TOKENS ? left : KV_PAGE_TOKENS);
        assert(st == ST_OK); /* reserved */
        (void)st;
    }
    *complete = kv->ids.len == img->n_tokens;
    return ST_OK;
}

void park_drop(park *p, park_image *img)
{
    if (!img) {
        return;
    }
    assert(p->n_images > 0 && p->used_bytes >= image_bytes(img));
    p->used_bytes -= image_bytes(img);
    p->n_images--;
    mem_unreserve(img->bytes, image_bytes(img));
    mem_free(img);
}
