#include "engine/memory_plan.h"

#include "base/mem.h"
#include "kern/kv_layout.h"

#define SPARE_PART 16 /* of the limit */
#define KV_PART    2

/* Sums that end at UINT64_MAX instead of beginning again: such a sum fits nowhere. */
static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return u64_add(a, b, &sum) ? sum : UINT64_MAX;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return u64_mul(a, b, &product) ? product : UINT64_MAX;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t weights_of(const memory_needs *n)
{
    return plus(plus(n->mapped_bytes, n->packed_bytes), n->anonymous_bytes);
}

/* Of one page, with its share of the copies. */
static uint64_t page_cost(const memory_needs *n, const memory_wish *w)
{
    uint64_t copy = w->copies_bytes == MEMORY_PLAN_QUARTER ? n->page_bytes / 4 : 0;
    return plus(plus(n->page_bytes, copy), MEMORY_PLAN_PAGE_OVERHEAD);
}

/* Of a page's tokens of context, on every lane. */
static uint64_t lane_cost(const memory_needs *n)
{
    return times(n->lanes, KV_PAGE_TOKENS * MEMORY_PLAN_TOKEN_OVERHEAD);
}

static size_t pages_for(int32_t context)
{
    return ((size_t)context + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

/* A context, and one page to go on from inside of one that is kept. */
static uint64_t context_cost(const memory_needs *n, const memory_wish *w, int32_t context)
{
    uint64_t pages = pages_for(context);
    return plus(times(pages + 1, page_cost(n, w)), times(pages, lane_cost(n)));
}

/* The largest context whose cost is at most that. */
static int32_t context_within(const memory_needs *n, const memory_wish *w, uint64_t bytes)
{
    uint64_t pages = less(bytes, page_cost(n, w)) / plus(page_cost(n, w), lane_cost(n));
    uint64_t tokens = times(pages, KV_PAGE_TOKENS);
    return tokens < (uint64_t)n->context_train ? (int32_t)tokens : n->context_train;
}

/* What is there for pages of all that may be taken. */
static uint64_t room(const memory_needs *n, const memory_wish *w, uint64_t limit)
{
    uint64_t copies = w->copies_bytes == MEMORY_PLAN_QUARTER ? 0 : w->copies_bytes;
    return less(less(limit, limit / SPARE_PART), plus(plus(weights_of(n), n->scratch_bytes), copies));
}

static status does_not_fit(const memory_needs *n, const memory_wish *w, int32_t context, err *e)
{
    uint64_t copies = w->copies_bytes == MEMORY_PLAN_QUARTER ? 0 : w->copies_bytes;
    uint64_t need = plus(plus(weights_of(n), plus(n->scratch_bytes, copies)), context_cost(n, w, context));
    /* The least limit that leaves so much beside its spare part. */
    need = plus(need, less(need, 1) / (SPARE_PART - 1));
    return err_set(e, ST_LOAD_FAILED, "memory",
                   "weights and a context of %d tokens need %llu bytes of memory, %llu may be used",
                   (int)context, (unsigned long long)need, (unsigned long long)w->limit_bytes);
}

static status choose_context(const memory_needs *n, const memory_wish *w, int32_t *context, err *e)
{
    uint64_t all = room(n, w, w->limit_bytes);
    int32_t smallest =
        n->context_train < MEMORY_PLAN_LEAST_CONTEXT ? n->context_train : MEMORY_PLAN_LEAST_CONTEXT;
    if (w->context < 0 || w->context > n->context_train) {
        return err_set(e, ST_INVALID_FIELD, "context",
                       "a context of %d tokens is not within the model's 1 to %d", (int)w->context,
                       (int)n->context_train);
    }
    if (w->pages > 0) { /* the pool is what somebody said: a long context may be larger than it */
        all = UINT64_MAX;
    }
    *context = w->context;
    if (w->context == 0) {
        *context = context_within(n, w, least(room(n, w, w->limit_bytes), w->limit_bytes / KV_PART));
        *context = *context < smallest ? smallest : *context;
    }
    return context_cost(n, w, *context) <= all ? ST_OK : does_not_fit(n, w, *context, e);
}

/* Pages for max_sequences contexts, or what there is room for, but for one context at least. */
static size_t choose_pages(const memory_needs *n, const memory_wish *w, int32_t context, uint64_t limit,
                           uint64_t available)
{
    uint64_t one = pages_for(context) + 1, wanted = times(one, n->lanes);
    uint64_t bytes = least(room(n, w, limit), limit / KV_PART);
    bytes = least(bytes, less(available, plus(weights_of(n), n->scratch_bytes)));
    uint64_t pages = less(bytes, times(pages_for(context), lane_cost(n))) / page_cost(n, w);
    pages = least(pages > one ? pages : one, wanted);
    return (size_t)least(pages, INT32_MAX);
}

static void add_up(memory_plan *p, const memory_wish *w)
{
    const memory_needs *n = &p->needs;
    p->kv_bytes = times(p->pages, n->page_bytes);
    p->copies_bytes = w->copies_bytes == MEMORY_PLAN_QUARTER ? p->kv_bytes / 4 : w->copies_bytes;
    p->scratch_bytes = plus(n->scratch_bytes, times(p->pages, MEMORY_PLAN_PAGE_OVERHEAD));
    p->scratch_bytes = plus(p->scratch_bytes, times(pages_for(p->context), lane_cost(n)));
    p->total_bytes = plus(plus(weights_of(n), p->scratch_bytes), p->kv_bytes);
    p->limit_bytes = w->limit_bytes;
}

status memory_plan_make(const memory_needs *needs, const memory_wish *wish, memory_plan *out, err *e)
{
    memory_plan p = {.needs = *needs};
    uint64_t most = wish->most_bytes > wish->limit_bytes ? wish->most_bytes : wish->limit_bytes;
    status st = choose_context(needs, wish, &p.context, e);
    if (st != ST_OK) {
        return st;
    }
    if (wish->pages > 0) {
        p.pages = p.most_pages = wish->pages;
    } else {
        p.pages = choose_pages(needs, wish, p.context, wish->limit_bytes, wish->available_bytes);
        p.most_pages = choose_pages(needs, wish, p.context, most, UINT64_MAX);
    }
    add_up(&p, wish);
    if (plus(p.total_bytes, p.copies_bytes) > wish->limit_bytes) { /* only by pages that were asked for */
        return err_set(e, ST_LOAD_FAILED, "memory",
                       "weights and %zu pages need %llu bytes of memory, %llu may be used", p.pages,
                       (unsigned long long)plus(p.total_bytes, p.copies_bytes),
                       (unsigned long long)wish->limit_bytes);
    }
    *out = p;
    return ST_OK;
}
