#include "kv/page_pool.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"

#define SYSTEM_PAGE 4096u

typedef struct page_state {
    uint32_t refs;     /* 0 = free */
    page_id next_free; /* valid while free: the page below in its stack, or -1 */
    bool was_shared;   /* had a second reference since it was taken */
} page_state;

struct page_pool {
    /* owned */
    unsigned char *mem; /* [n_pages][page_bytes] */
    page_state *state;  /* [n_pages] */
    size_t page_bytes;
    size_t n_pages;
    size_t n_used;
    size_t n_backed; /* used ones and those of the first stack */
    size_t limit;
    page_id top;   /* of the stack of free pages that have memory, or -1 */
    page_id bare;  /* of the stack of free pages whose memory has gone back */
    page_id fresh; /* pages from here on were never handed out */
};

status page_pool_new(size_t page_bytes, size_t n_pages, page_pool **out, err *e)
{
    size_t total;
    if (page_bytes == 0) {
        return err_set(e, ST_INVALID_FIELD, "page_bytes", "a page pool needs pages of at least one byte");
    }
    if (n_pages == 0 || n_pages > INT32_MAX) {
        return err_set(e, ST_INVALID_FIELD, "n_pages", "a page pool holds 1 to %d pages, not %zu", INT32_MAX,
                       n_pages);
    }
    if (!size_mul(page_bytes, n_pages, &total)) {
        return err_set(e, ST_NOMEM, NULL, "%zu pages of %zu bytes exceed the address space", n_pages,
                       page_bytes);
    }
    page_pool *p = mem_calloc(1, sizeof *p);
    if (!p) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for a page pool");
    }
    p->page_bytes = page_bytes;
    p->n_pages = n_pages;
    p->limit = n_pages;
    p->top = p->bare = -1;
    p->state = mem_calloc(n_pages, sizeof *p->state);
    p->mem = p->state ? mem_reserve(total) : NULL;
    if (!p->mem) {
        page_pool_free(p);
        return err_set(e, ST_NOMEM, NULL, "out of memory for %zu pages of %zu bytes", n_pages, page_bytes);
    }
    *out = p;
    return ST_OK;
}

void page_pool_free(page_pool *p)
{
    if (!p) {
        return;
    }
    mem_unreserve(p->mem, p->page_bytes * p->n_pages);
    mem_free(p->state);
    mem_free(p);
}

size_t page_pool_total(const page_pool *p)
{
    return p->n_pages;
}

size_t page_pool_used(const page_pool *p)
{
    return p->n_used;
}

size_t page_pool_available(const page_pool *p)
{
    return p->limit > p->n_used ? p->limit - p->n_used : 0;
}

size_t page_pool_backed(const page_pool *p)
{
    return p->n_backed;
}

size_t page_pool_limit(const page_pool *p)
{
    return p->limit;
}

size_t page_pool_page_bytes(const page_pool *p)
{
    return p->page_bytes;
}

static page_state *state_of(const page_pool *p, page_id id)
{
    assert(id >= 0 && (size_t)id < p->n_pages);
    return &p->state[id];
}

/* The page that is to be handed out next: one that has memory, if there is. */
static page_id next_free(page_pool *p)
{
    page_id id = p->top >= 0 ? p->top : p->bare;
    if (p->top >= 0) {
        p->top = p->state[id].next_free;
        return id;
    }
    p->n_backed++;
    if (id < 0) {
        return p->fresh++;
    }
    p->bare = p->state[id].next_free;
    return id;
}

status page_pool_take(page_pool *p, page_id *out)
{
    if (p->n_used >= p->limit) {
        return ST_CAPACITY;
    }
    page_id id = next_free(p);
    page_state *s = state_of(p, id);
    assert(s->refs == 0);
    s->refs = 1;
    s->was_shared = false;
    p->n_used++;
#ifdef HEARTH_DEBUG
    memset(page_pool_addr(p, id), 0xFF, p->page_bytes); /* NaN in every KV type: an unwritten row shows */
#endif
    *out = id;
    return ST_OK;
}

void page_pool_ref(page_pool *p, page_id id)
{
    page_state *s = state_of(p, id);
    assert(s->refs > 0 && s->refs < UINT32_MAX);
    s->refs++;
    s->was_shared = true;
}

/* The system pages that lie wholly inside. */
static void drop_memory(const page_pool *p, page_id id)
{
    uintptr_t from = (uintptr_t)page_pool_addr(p, id), to = from + p->page_bytes;
    from = (from + SYSTEM_PAGE - 1) / SYSTEM_PAGE * SYSTEM_PAGE;
    to = to / SYSTEM_PAGE * SYSTEM_PAGE;
    if (from < to) {
        (void)madvise((void *)from, to - from, MADV_DONTNEED); /* refused: it stays, and is counted as gone */
    }
}

/* Memory of free pages beyond the limit. */
static void give_back(page_pool *p)
{
    while (p->n_backed > p->limit && p->top >= 0) {
        page_id id = p->top;
        p->top = p->state[id].next_free;
        drop_memory(p, id);
        p->state[id].next_free = p->bare;
        p->bare = id;
        p->n_backed--;
    }
}

void page_pool_set_limit(page_pool *p, size_t n_pages)
{
    p->limit = n_pages < 1 ? 1 : n_pages < p->n_pages ? n_pages : p->n_pages;
    give_back(p);
}

void page_pool_unref(page_pool *p, page_id id)
{
    page_state *s = state_of(p, id);
    assert(s->refs > 0);
    s->refs--;
    if (s->refs == 0) {
        s->next_free = p->top;
        p->top = id;
        p->n_used--;
        give_back(p);
    }
}

uint32_t page_pool_refs(const page_pool *p, page_id id)
{
    return state_of(p, id)->refs;
}

bool page_pool_may_write(const page_pool *p, page_id id)
{
    const page_state *s = state_of(p, id);
    return s->refs == 1 && !s->was_shared;
}

void *page_pool_addr(const page_pool *p, page_id id)
{
    assert(id >= 0 && (size_t)id < p->n_pages);
    return p->mem + (size_t)id * p->page_bytes;
}
