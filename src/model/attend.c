#include "model/attend.h"

#include <assert.h>

#define TILE_QUERIES     128 /* enough that widening a page is a few percent of what is done with it */
#define TASKS_PER_THREAD 4

size_t attend_tile_rows(const model_shape *s)
{
    size_t rows = 1, n_q = s->n_heads / s->n_kv_heads;
    while (rows * 2 * n_q <= TILE_QUERIES) {
        rows *= 2;
    }
    return rows;
}

size_t attend_scratch(const model_shape *s)
{
    size_t n = attend_tile_rows(s) * (s->n_heads / s->n_kv_heads);
    return KERN_ATTN_SCRATCH(n, s->k_dim, s->v_dim);
}

/* What a row sees. */
static kern_attn_seen seen_of(const batch_row *r)
{
    return (kern_attn_seen){.first = 0, .last = r->pos};
}

static size_t tile_span0(const attend *at, const attend_tile *t)
{
    return (size_t)seen_of(&at->b->rows[t->row0]).first / KERN_SPAN;
}

static size_t tile_spans(const attend *at, const attend_tile *t)
{
    size_t last = (size_t)seen_of(&at->b->rows[t->row0 + t->n_rows - 1]).last;
    return last / KERN_SPAN + 1 - tile_span0(at, t);
}

/* Parts of one KV head of a tile, in floats. */
static size_t head_parts(const attend *at, const attend_tile *t)
{
    size_t n_q = at->shape->n_heads / at->shape->n_kv_heads;
    return tile_spans(at, t) * t->n_rows * n_q * KERN_ATTN_PART(at->shape->v_dim);
}

/* Positions that the rows see, together. */
static uint64_t tile_work(const attend *at, const attend_tile *t)
{
    uint64_t work = 0;
    for (size_t i = 0; i < t->n_rows; i++) {
        kern_attn_seen s = seen_of(&at->b->rows[t->row0 + i]);
        work += (uint64_t)(s.last - s.first) + 1;
    }
    return work;
}

static void tiles_cut(attend *at)
{
    const batch_row *rows = at->b->rows;
    int32_t unit = (int32_t)attend_tile_rows(at->shape);
    at->n_tiles = 0;
    at->alone = true;
    for (size_t i = 0; i < at->b->n_rows; i++) {
        if (i == 0 || rows[i].seq != rows[i - 1].seq || rows[i].pos % unit == 0) {
            at->tiles[at->n_tiles++] = (attend_tile){.row0 = i};
        }
        at->tiles[at->n_tiles - 1].n_rows++;
        at->alone = at->alone && (i == 0 || rows[i].seq != rows[i - 1].seq);
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/*
 * Into about `wanted` tasks: by heads first, which costs nothing, then by spans.
 */
static void tile_split(const attend *at, attend_tile *t, size_t wanted, size_t *parts_used)
{
    size_t n_kv = at->shape->n_kv_heads, spans = tile_spans(at, t);
    t->n_groups = least(n_kv, wanted);
    t->n_pieces = least(spans, (wanted + t->n_groups - 1) / t->n_groups);
    size_t need = t->n_pieces > 1 ? head_parts(at, t) * n_kv : 0;
    if (need > ATTEND_PARTS - *parts_used) {
        t->n_groups = least(n_kv, wanted);
        t->n_pieces = 1;
        need = 0;
    }
    t->part0 = *parts_used;
    *parts_used += need;
}

void attend_plan(attend *at, size_t n_threads)
{
    uint64_t all = 0;
    size_t parts_used = 0;
    tiles_cut(at);
    for (size_t i = 0; i < at->n_tiles; i++) {
        all += tile_work(at, &at->tiles[i]);
    }
    assert(all > 0); /* a batch has rows, and each sees itself */
    at->n_tasks = at->n_joins = 0;
    for (size_t i = 0; i < at->n_tiles; i++) {
        attend_tile *t = &at->tiles[i];
        uint64_t pieces = n_threads > 1 ? n_threads * TASKS_PER_THREAD : 1;
        tile_split(at, t, (size_t)((tile_work(at, t) * pieces + all - 1) / all), &parts_used);
        t->first_task = at->n_tasks;
        t->first_join = at->n_joins;
        at->n_tasks += t->n_groups * t->n_pieces;
        at->n_joins += t->n_pieces > 1 ? at->shape->n_kv_heads : 0;
    }
}

/* One KV head of a tile; seen: [its rows], filled here. */
static kern_attn head_attn(const attend *at, const attend_tile *t, size_t head, size_t thread,
                           kern_attn_seen *seen)
{
    const batch_row *rows = &at->b->rows[t->row0];
    size_t n_q = at->shape->n_heads / at->shape->n_kv_heads;
    for (size_t i = 0; i < t->n_rows; i++) {
        seen[i] = seen_of(&rows[i]);
    }
    return (kern_attn){
        .q = at->q + t->row0 * at->q_stride + head * n_q * at->shape->k_dim,
        .q_stride = at->q_stride,
        .out = at->mix + t->row0 * at->mix_stride + head * n_q * at->shape->v_dim,
        .out_stride = at->mix_stride,
        .n_rows = t->n_rows,
        .n_q = n_q,
        .seen = seen,
        .layer = at->kv,
        .type = at->type,
        .kv_head = head,
        .pages = (const void *const *)at->b->seqs[rows->seq].pages,
        .scale = at->scale,
        .scratch = at->scratch + thread * at->scratch_floats,
    };
}

/* What is read after the present head: the next one, in the first page of a span. */
static const void *next_head(const attend *at, const kern_attn *a, size_t span)
{
    const unsigned char *page = a->pages[span * (KERN_SPAN / KV_PAGE_TOKENS)];
    return page ? page + at->kv->offset_bytes + (a->kv_head + 1) * at->kv->head_bytes : NULL;
}

/* Spans [s0, s1) of KV heads [h0, h1). */
static void piece_run(const attend *at, const attend_tile *t, size_t h0, size_t h1, size_t s0, size_t s1,
                      size_t thread)
{
    kern_attn_seen seen[TILE_QUERIES];
    size_t span0 = tile_span0(at, t), one_head = head_parts(at, t), one_span = one_head / tile_spans(at, t);
    for (size_t head = h0; head < h1; head++) {
        kern_attn a = head_attn(at, t, head, thread, seen);
        a.next = head + 1 < h1 ? next_head(at, &a, s0) : NULL;
        at->kern->attention_spans(&a, s0, s1,
                                  at->parts + t->part0 + head * one_head + (s0 - span0) * one_span);
    }
}

static void heads_run(const attend *at, const attend_tile *t, size_t h0, size_t h1, size_t thread)
{
    kern_attn_seen seen[TILE_QUERIES];
    for (size_t head = h0; head < h1; head++) {
        kern_attn a = head_attn(at, t, head, thread, seen);
        a.next = head + 1 < h1 ? next_head(at, &a, tile_span0(at, t)) : NULL;
        at->kern->attention(&a);
    }
}

static size_t task_first(const attend_tile *t)
{
    return t->first_task;
}

static size_t join_first(const attend_tile *t)
{
    return t->first_join;
}

/* The last tile whose number is at most n: numbers rise, and a tile without any shares the next one's. */
static const attend_tile *tile_of(const attend *at, size_t n, size_t (*number)(const attend_tile *))
{
    size_t lo = 0, hi = at->n_tiles;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (number(&at->tiles[mid]) <= n) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return &at->tiles[lo];
}

/* KV heads [h0, h1) of a tile, page by page: rows of a page share cache lines, so one thread takes them together. */
static void tile_store(const attend *at, const attend_tile *t, size_t h0, size_t h1)
{
    kv_layer part = *at->kv;
    part.offset_bytes += h0 * part.head_bytes;
    part.n_kv_heads = (uint32_t)(h1 - h0);
    for (size_t i = t->row0, n; i < t->row0 + t->n_rows; i += n) {
        const batch_row *r = &at->b->rows[i];
        size_t page = (size_t)r->pos / KV_PAGE_TOKENS, slot = (size_t)r->pos % KV_PAGE_TOKENS;
        n = least(t->row0 + t->n_rows - i, KV_PAGE_TOKENS - slot);
        at->kern->kv_store(at->b->seqs[r->seq].pages[page], &part, at->type, slot, n,
                           at->k + i * at->k_stride + h0 * part.k_dim, at->k_stride,
                           at->v + i * at->v_stride + h0 * part.v_dim, at->v_stride);
    }
}

/* Whether the task of a head is the only one that looks at its queries. */
static bool turns_late(const attend *at)
{
    return at->alone && at->n_joins == 0;
}

static void turn_task(void *arg, size_t row, size_t thread)
{
    const attend *at = arg;
    (void)thread;
    at->turn(at->turn_ctx, row, 0, at->shape->n_kv_heads);
}

/* The last rows see the most and come first, so that no long task is left to the end. */
static void attend_task(void *arg, size_t task, size_t thread)
{
    const attend *at = arg;
    const attend_tile *t = tile_of(at, at->n_tasks - 1 - task, task_first);
    size_t n = at->n_tasks - 1 - task - t->first_task;
    size_t group = n / t->n_pieces, piece = n % t->n_pieces, n_kv = at->shape->n_kv_heads;
    size_t h0 = n_kv * group / t->n_groups, h1 = n_kv * (group + 1) / t->n_groups;
    if (at->alone && piece == t->n_pieces - 1) { /* the only one that comes to the row's own position */
        if (turns_late(at)) {
            at->turn(at->turn_ctx, t->row0, h0, h1);
        }
        tile_store(at, t, h0, h1);
    }
    if (t->n_pieces == 1) {
        heads_run(at, t, h0, h1, thread);
        return;
    }
    size_t spans = tile_spans(at, t), span0 = tile_span0(at, t);
    piece_run(at, t, h0, h1, span0 + spans * piece / t->n_pieces, span0 + spans * (piece + 1) / t->n_pieces,
              thread);
}

static void join_task(void *arg, size_t task, size_t thread)
{
    const attend *at = arg;
    const attend_tile *t = tile_of(at, task, join_first);
    size_t head = task - t->first_join;
    kern_attn_seen seen[TILE_QUERIES];
    kern_attn a = head_attn(at, t, head, thread, seen);
    at->kern->attention_join(&a, tile_span0(at, t), at->parts + t->part0 + head * head_parts(at, t));
}

static void store_task(void *arg, size_t task, size_t thread)
{
    const attend *at = arg;
    size_t n_kv = at->shape->n_kv_heads;
    (void)thread;
    tile_store(at, &at->tiles[task / n_kv], task % n_kv, task % n_kv + 1);
}

void attend_store(attend *at, pool *p, const kv_layer *kv, const float *k, size_t k_stride, const float *v,
                  size_t v_stride)
{
    at->kv = kv;
    at->k = k;
    at->k_stride = k_stride;
    at->v = v;
    at->v_stride = v_stride;
    if (!turns_late(at)) {
        pool_run(p, turn_task, at, at->b->n_rows);
    }
    if (!at->alone) {
        pool_run(p, store_task, at, at->n_tiles * at->shape->n_kv_heads);
    }
}

void attend_run(attend *at, pool *p, const kv_layer *kv)
{
    at->kv = kv;
    pool_run(p, attend_task, at, at->n_tasks);
    pool_run(p, join_task, at, at->n_joins);
}
