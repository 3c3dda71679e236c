#include "model/pack_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kern/pack.h"

#define SLICE_BYTES (256u << 10) /* of the model, at least one panel */

/* Where a matrix lies in the files. */
typedef struct source {
    pack_item item;
    size_t part;
    uint64_t from;
    uint64_t to;
} source;

typedef struct planner {
    const gguf_file *file;
    source *sources; /* [n], by place in the files */
    size_t n;
    /* what is made; NULL while the pieces are only counted */
    pack_slice *slices;
    pack_step *steps;
    size_t n_slices;
    size_t n_steps;
    uint64_t image;
    pack_item *items;
    bool unpacked[GGUF_TYPE_COUNT];
} planner;

uint64_t pack_slice_offset(const pack_slice *s)
{
    return s->item->offset + (uint64_t)s->p0 * s->item->panel_bytes;
}

uint64_t pack_slice_bytes(const pack_slice *s)
{
    return (uint64_t)(s->p1 - s->p0) * s->item->panel_bytes;
}

static size_t panels_of(const kern_matrix *w)
{
    return w->n / KERN_PANEL + (w->n % KERN_PANEL != 0);
}

static void find_source(const gguf_file *f, const kern_matrix *w, source *s)
{
    const unsigned char *data = w->data;
    for (size_t i = 0; i < gguf_parts(f); i++) {
        uint64_t n;
        const unsigned char *bytes = gguf_part_bytes(f, i, &n);
        if (data >= bytes && data < bytes + n) {
            s->part = i;
            s->from = (uint64_t)(data - bytes);
            s->to = s->from + (uint64_t)w->n * w->row_bytes;
        }
    }
}

static int by_place(const void *a, const void *b)
{
    const source *x = a, *y = b;
    if (x->part != y->part) {
        return x->part < y->part ? -1 : 1;
    }
    return x->from < y->from ? -1 : x->from > y->from;
}

static status find_sources(planner *p, model_weights *w, uint32_t n_layers, const kern_table *kern, err *e)
{
    for (size_t i = 0; i < weights_n_matrices(n_layers); i++) {
        const kern_matrix *m = weights_matrix(w, n_layers, i);
        if (!kern->wants_packed[m->type]) {
            p->unpacked[m->type] = true;
            continue;
        }
        size_t bytes = kern_packed_bytes(m->type, m->n, m->k);
        if (bytes == 0) {
            return err_set(e, ST_LOAD_FAILED, NULL, "a matrix of %zu x %zu is too large to be packed", m->n,
                           m->k);
        }
        source *s = &p->sources[p->n++];
        s->item = (pack_item){
            .w = m, .matrix = i, .bytes = bytes, .panel_bytes = kern_packed_panel_bytes(m->type, m->k)};
        find_source(p->file, m, s);
    }
    qsort(p->sources, p->n, sizeof *p->sources, by_place);
    return ST_OK;
}

static bool place_items(planner *p)
{
    for (size_t i = 0; i < p->n; i++) {
        uint64_t end;
        p->sources[i].item.offset = p->image;
        if (!u64_add(p->image, p->sources[i].item.bytes, &end) || !u64_add(end, PACK_ALIGN - 1, &end)) {
            return false;
        }
        p->image = end / PACK_ALIGN * PACK_ALIGN;
        if (p->items) {
            p->items[i] = p->sources[i].item;
        }
    }
    return p->image <= SIZE_MAX;
}

static void add_step(planner *p, const pack_step *s)
{
    if (p->steps) {
        p->steps[p->n_steps] = *s;
    }
    p->n_steps++;
}

/* Bytes that no slice reads. */
static void add_gap(planner *p, size_t part, uint64_t from, uint64_t to)
{
    for (uint64_t end; from < to; from = end) {
        end = to - from < PACK_STEP_BYTES ? to : from + PACK_STEP_BYTES;
        add_step(p, &(pack_step){.part = part,
                                 .from = from,
                                 .to = end,
                                 .slice0 = p->n_slices,
                                 .slice1 = p->n_slices,
                                 .image_from = p->image,
                                 .image_to = p->image});
    }
}

static void add_matrix(planner *p, size_t i)
{
    const source *s = &p->sources[i];
    const kern_matrix *w = s->item.w;
    const size_t panel_source = KERN_PANEL * w->row_bytes;
    const size_t per_slice = panel_source < SLICE_BYTES ? SLICE_BYTES / panel_source : 1;
    const size_t slice_source = per_slice * panel_source;
    const size_t per_step =
        slice_source < PACK_STEP_BYTES ? PACK_STEP_BYTES / slice_source * per_slice : per_slice;
    const size_t n_panels = panels_of(w);
    for (size_t p0 = 0; p0 < n_panels; p0 += per_step) {
        size_t p1 = n_panels - p0 < per_step ? n_panels : p0 + per_step;
        pack_step step = {.part = s->part,
                          .from = s->from + (uint64_t)p0 * panel_source,
                          .to = p1 == n_panels ? s->to : s->from + (uint64_t)p1 * panel_source,
                          .slice0 = p->n_slices};
        for (size_t at = p0; at < p1; at += per_slice) {
            if (p->slices) {
                p->slices[p->n_slices] = (pack_slice){
                    .item = &p->items[i], .p0 = at, .p1 = p1 - at < per_slice ? p1 : at + per_slice};
            }
            p->n_slices++;
        }
        step.slice1 = p->n_slices;
        step.image_from = p->image;
        p->image = s->item.offset + (uint64_t)p1 * s->item.panel_bytes;
        if (p1 == n_panels) {
            p->image = (p->image + PACK_ALIGN - 1) / PACK_ALIGN * PACK_ALIGN;
        }
        step.image_to = p->image;
        add_step(p, &step);
    }
}

/* Counts slices and steps, or makes them if there is room for them. */
static void add_all(planner *p)
{
    size_t next = 0;
    p->n_slices = p->n_steps = 0;
    p->image = 0;
    for (size_t part = 0; part < gguf_parts(p->file); part++) {
        uint64_t at = 0, n_bytes;
        (void)gguf_part_bytes(p->file, part, &n_bytes);
        for (; next < p->n && p->sources[next].part == part; next++) {
            add_gap(p, part, at, p->sources[next].from);
            add_matrix(p, next);
            at = p->sources[next].to;
        }
        add_gap(p, part, at, n_bytes);
    }
}

status pack_plan_make(const gguf_file *f, model_weights *w, uint32_t n_layers, const kern_table *kern,
                      arena *mem, pack_plan *out, err *e)
{
    planner p = {.file = f};
    p.sources = mem_alloc_array(weights_n_matrices(n_layers), sizeof *p.sources);
    status st = p.sources ? find_sources(&p, w, n_layers, kern, e) : ST_NOMEM;
    if (st == ST_OK) {
        p.items = arena_alloc_array(mem, p.n + 1, sizeof *p.items); /* + 1: not nothing */
        st = p.items ? ST_OK : ST_NOMEM;
    }
    if (st == ST_OK && !place_items(&p)) {
        st = err_set(e, ST_LOAD_FAILED, NULL, "the packed matrices are too large for the address space");
    }
    if (st == ST_OK) {
        uint64_t image_bytes = p.image;
        add_all(&p);
        p.slices = arena_alloc_array(mem, p.n_slices + 1, sizeof *p.slices);
        p.steps = arena_alloc_array(mem, p.n_steps + 1, sizeof *p.steps);
        st = p.slices && p.steps ? ST_OK : ST_NOMEM;
        if (st == ST_OK) {
            add_all(&p);
            *out = (pack_plan){.file = f,
                               .items = p.items,
                               .slices = p.slices,
                               .steps = p.steps,
                               .n_items = p.n,
                               .n_slices = p.n_slices,
                               .n_steps = p.n_steps,
                               .image_bytes = image_bytes};
            memcpy(out->unpacked, p.unpacked, sizeof p.unpacked);
        }
    }
    mem_free(p.sources);
    return st == ST_NOMEM ? err_set(e, ST_NOMEM, NULL, "out of memory for the plan of packing") : st;
}
