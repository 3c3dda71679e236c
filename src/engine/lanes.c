#include "engine/lanes.h"

#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

#define NO_LANE UINT32_MAX

typedef struct slot {
    lane l;        /* its generation outlives the native state, so that none comes twice */
    bool exists;   /* has native state: idle or live */
    uint32_t next; /* of the owners with the same hash, while live */
} slot;

struct lane_table {
    lanes_config cfg;
    /* owned; [n_lanes] each */
    slot *slots;
    uint32_t *free_list; /* indices below the high-water mark without native state; the last freed is next */
    uint32_t *idle_list; /* the last that became idle is next: its memory is the warmest */
    uint32_t *heads;     /* [n_heads] first live lane of each hash, or NO_LANE */
    size_t n_heads;      /* a power of two */
    size_t n_free, n_idle;
    size_t high_water;
    uint64_t created, destroyed;
};

static size_t head_of(const lane_table *t, uint64_t owner)
{
    return (size_t)((owner * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (t->n_heads - 1);
}

/* The link that names the owner's lane, or the last link of its chain. */
static uint32_t *link_to(const lane_table *t, uint64_t owner)
{
    uint32_t *at = &t->heads[head_of(t, owner)];
    while (*at != NO_LANE && t->slots[*at].l.owner != owner) {
        at = &t->slots[*at].next;
    }
    return at;
}

status lanes_new(const lanes_config *cfg, lane_table **out)
{
    assert(cfg->n_lanes >= 1 && cfg->n_lanes <= UINT32_MAX);
    lane_table *t = mem_calloc(1, sizeof *t);
    if (!t) {
        return ST_NOMEM;
    }
    t->cfg = *cfg;
    t->cfg.idle_cap = cfg->idle_cap > 0 && cfg->idle_cap < cfg->n_lanes ? cfg->idle_cap : cfg->n_lanes;
    t->n_heads = 1;
    while (t->n_heads < cfg->n_lanes) {
        t->n_heads *= 2;
    }
    t->slots = mem_calloc(cfg->n_lanes, sizeof *t->slots);
    t->free_list = mem_alloc_array(cfg->n_lanes, sizeof *t->free_list);
    t->idle_list = mem_alloc_array(cfg->n_lanes, sizeof *t->idle_list);
    t->heads = mem_alloc_array(t->n_heads, sizeof *t->heads);
    if (!t->slots || !t->free_list || !t->idle_list || !t->heads) {
        lanes_free(t);
        return ST_NOMEM;
    }
    memset(t->heads, 0xFF, t->n_heads * sizeof *t->heads); /* NO_LANE */
    *out = t;
    return ST_OK;
}

static size_t n_live(const lane_table *t)
{
    return t->high_water - t->n_free - t->n_idle;
}

void lanes_free(lane_table *t)
{
    if (!t) {
        return;
    }
    assert(n_live(t) == 0);
    for (size_t i = 0; t->slots && i < t->high_water; i++) {
        if (t->slots[i].exists) {
            t->cfg.ops.destroy(t->cfg.ops.ctx, &t->slots[i].l);
        }
    }
    mem_free(t->heads);
    mem_free(t->idle_list);
    mem_free(t->free_list);
    mem_free(t->slots);
    mem_free(t);
}

/* Makes native state at an index of the free list, else at the high-water mark; neither moves if that fails. */
static status create(lane_table *t, uint32_t *out)
{
    bool reused = t->n_free > 0;
    if (!reused && t->high_water == t->cfg.n_lanes) {
        return ST_CAPACITY;
    }
    uint32_t index = reused ? t->free_list[t->n_free - 1] : (uint32_t)t->high_water;
    slot *s = &t->slots[index];
    s->l = (lane){.index = index, .generation = s->l.generation};
    status st = t->cfg.ops.create(t->cfg.ops.ctx, &s->l);
    if (st != ST_OK) {
        return st;
    }
    t->n_free -= reused;
    t->high_water += !reused;
    s->l.tokens = &s->l.kv.ids;
    s->exists = true;
    t->created++;
    *out = index;
    return ST_OK;
}

/* Native state first, then the index. */
static void destroy(lane_table *t, slot *s)
{
    t->cfg.ops.destroy(t->cfg.ops.ctx, &s->l);
    s->l.kv = (resident){0};
    s->exists = false;
    t->free_list[t->n_free++] = s->l.index;
    t->destroyed++;
}

status lanes_acquire(lane_table *t, uint64_t owner, bool named, lane **out)
{
    uint32_t index;
    uint32_t *link = link_to(t, owner);
    assert(owner != 0 && *link == NO_LANE);
    if (t->n_idle > 0) {
        index = t->idle_list[--t->n_idle];
    } else {
        status st = create(t, &index);
        if (st != ST_OK) {
            return st;
        }
    }
    slot *s = &t->slots[index];
    s->l.owner = owner;
    s->l.named = named;
    s->l.generation++;
    s->next = NO_LANE;
    *link = index;
    *out = &s->l;
    return ST_OK;
}

static void say(const lane_table *t, lane_event_kind kind, uint32_t index, uint64_t owner, const char *reason)
{
    const lane_event ev = {.kind = kind, .index = index, .owner = owner, .reason = reason};
    if (t->cfg.event) {
        t->cfg.event(t->cfg.event_ctx, &ev);
    }
}

lane_cleanup lanes_release(lane_table *t, uint64_t owner)
{
    lane_cleanup c = {.reason = ""};
    err e = {.offset = ERR_NO_OFFSET};
    uint32_t *link = link_to(t, owner);
    if (*link == NO_LANE) {
        return c;
    }
    slot *s = &t->slots[*link];
    *link = s->next;
    uint64_t began_ns = clock_mono_ns(t->cfg.clock);
    status st = t->cfg.ops.reset(t->cfg.ops.ctx, &s->l, &e);
    c.reset_ms = clock_ms_between(began_ns, clock_mono_ns(t->cfg.clock));
    c.was_live = true;
    s->l.owner = 0;
    s->l.named = false;
    s->l.tokens = &s->l.kv.ids;
    if (st != ST_OK) {
        c.reason = "reset failed";
    } else if (t->n_idle >= t->cfg.idle_cap) {
        c.reason = "idle pool full";
    }
    c.discarded = c.reason[0] != '\0';
    if (c.discarded) {
        destroy(t, s);
    } else {
        assert(s->l.kv.n_pages == 0 && s->l.kv.ids.len == 0);
        t->idle_list[t->n_idle++] = s->l.index;
    }
    if (st == ST_OK) {
        say(t, LANE_RESET, s->l.index, owner, "");
    } else {
        const char *why = e.msg[0] ? e.msg : status_text(st);
        log_emit(LOG_WARN, "lanes", "event=lane_reclaimed lane=%u owner=%llu reason=\"reset failed: %s\"",
                 s->l.index, (unsigned long long)owner, why);
        say(t, LANE_RECLAIMED, s->l.index, owner, why);
    }
    return c;
}

status lanes_prewarm(lane_table *t, size_t target, size_t *made)
{
    size_t room = t->cfg.n_lanes - n_live(t);
    size_t n = 0;
    status st = ST_OK;
    target = target < t->cfg.idle_cap ? target : t->cfg.idle_cap;
    target = target < room ? target : room;
    while (t->n_idle < target) {
        uint32_t index;
        st = create(t, &index);
        if (st != ST_OK) {
            break;
        }
        t->idle_list[t->n_idle++] = index;
        n++;
    }
    if (made) {
        *made = n;
    }
    return st;
}

bool lanes_is_current(const lane_table *t, uint32_t index, uint64_t generation)
{
    const lane *l = lanes_at(t, index);
    return l && l->owner != 0 && l->generation == generation;
}

lanes_stats lanes_stats_read(const lane_table *t)
{
    lanes_stats st = {.lanes = t->cfg.n_lanes, .created = t->created, .destroyed = t->destroyed};
    for (size_t i = 0; i < t->high_water; i++) {
        const slot *s = &t->slots[i];
        st.live += s->exists && s->l.owner != 0;
        st.idle += s->exists && s->l.owner == 0;
        size_t n_tokens = s->exists ? s->l.tokens->len : 0;
        st.total_tokens += n_tokens;
        st.largest_tokens = n_tokens > st.largest_tokens ? n_tokens : st.largest_tokens;
        st.pages += s->l.kv.n_pages;
    }
    for (size_t h = 0; h < t->n_heads; h++) {
        for (uint32_t at = t->heads[h]; at != NO_LANE; at = t->slots[at].next) {
            st.tracked++;
        }
    }
    return st;
}

const lane *lanes_at(const lane_table *t, size_t index)
{
    return index < t->high_water && t->slots[index].exists ? &t->slots[index].l : NULL;
}

size_t lanes_count(const lane_table *t)
{
    return t->cfg.n_lanes;
}
