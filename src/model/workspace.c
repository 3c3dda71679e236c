#include "model/workspace.h"

#include <string.h>

#include "base/mem.h"

#define FLOATS_PER_LINE 16

typedef struct act_widths {
    const model_weights *w;
    uint32_t n_layers;
    workspace *ws;
} act_widths;

static bool is_down(const act_widths *a, const kern_matrix *m)
{
    for (uint32_t i = 0; i < a->n_layers; i++) {
        if (m == &a->w->layers[i].down) {
            return true;
        }
    }
    return false;
}

static void note_act_width(void *ctx, const kern_matrix *m)
{
    const act_widths *a = ctx;
    size_t *widths = is_down(a, m) ? a->ws->gated_k : a->ws->act_k;
    kern_act_kind kind = kern_act_kind_of(m->type);
    if (kind != KERN_ACT_NONE && m->k > widths[kind]) {
        widths[kind] = m->k;
    }
}

static bool take_rows(workspace *ws, const model_shape *s, arena *mem)
{
    const struct {
        float **at;
        size_t width;
    } list[WORKSPACE_ROW_BUFFERS] = {
        {&ws->x, s->n_embd},
        {&ws->h, s->n_embd},
        {&ws->q, (size_t)s->n_heads * s->k_dim},
        {&ws->k, (size_t)s->n_kv_heads * s->k_dim},
        {&ws->v, (size_t)s->n_kv_heads * s->v_dim},
        {&ws->mix, (size_t)s->n_heads * s->v_dim},
        {&ws->gate, s->n_ff},
        {&ws->up, s->n_ff},
        {&ws->cos_sin, s->n_rot},
    };
    for (size_t i = 0; i < WORKSPACE_ROW_BUFFERS; i++) {
        size_t n;
        if (list[i].width > SIZE_MAX / 2 || !size_mul(ws->max_rows, workspace_pitch(list[i].width), &n)) {
            return false;
        }
        *list[i].at = arena_alloc_array(mem, n, sizeof(float));
        if (!*list[i].at) {
            return false;
        }
        ws->row_buffers[i] = *list[i].at;
        ws->row_widths[i] = list[i].width;
    }
    return true;
}

static bool take_acts(size_t max_rows, void **acts, const size_t *widths, arena *mem)
{
    for (size_t kind = 0; kind < KERN_ACT_NONE; kind++) {
        if (widths[kind] == 0) {
            continue;
        }
        size_t n = kern_act_bytes((kern_act_kind)kind, max_rows, widths[kind]);
        acts[kind] = n ? arena_alloc(mem, n) : NULL;
        if (!acts[kind]) {
            return false;
        }
    }
    return true;
}

/* A thread's part begins on a cache line of its own. */
static bool take_scratch(workspace *ws, const model_shape *s, arena *mem)
{
    size_t n = attend_scratch(s);
    size_t total;
    ws->attn_floats = (n + FLOATS_PER_LINE - 1) / FLOATS_PER_LINE * FLOATS_PER_LINE;
    if (!size_mul(ws->attn_floats, POOL_MAX_THREADS, &total)) {
        return false;
    }
    ws->attn = arena_alloc_array(mem, total, sizeof(float));
    ws->attn_tiles = arena_alloc_array(mem, ws->max_rows, sizeof *ws->attn_tiles);
    ws->attn_parts = arena_alloc_array(mem, ATTEND_PARTS, sizeof(float));
    ws->logit_index = arena_alloc_array(mem, ws->max_rows, sizeof *ws->logit_index);
    ws->hidden_index = arena_alloc_array(mem, ws->max_rows, sizeof *ws->hidden_index);
    ws->logit_bad = arena_alloc_array(mem, ws->max_rows, sizeof *ws->logit_bad);
    ws->seq_groups = arena_alloc_array(mem, ws->max_rows, sizeof *ws->seq_groups);
    return ws->attn && ws->attn_tiles && ws->attn_parts && ws->logit_index && ws->hidden_index &&
           ws->logit_bad && ws->seq_groups;
}

status workspace_init(workspace *ws, const hparams *hp, const model_weights *w, size_t max_rows, arena *mem,
                      err *e)
{
    workspace made = {.max_rows = max_rows};
    act_widths widths = {w, hp->shape.n_layers, &made};
    weights_each_matrix(w, hp->shape.n_layers, note_act_width, &widths);
    if (!take_rows(&made, &hp->shape, mem) || !take_acts(max_rows, made.act, made.act_k, mem) ||
        !take_acts(max_rows, made.gated, made.gated_k, mem) || !take_scratch(&made, &hp->shape, mem)) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the work buffers of %zu rows", max_rows);
    }
    *ws = made;
    return ST_OK;
}

#ifdef HEARTH_DEBUG
static void acts_spoil(void *const *acts, const size_t *widths, size_t rows)
{
    for (size_t kind = 0; kind < KERN_ACT_NONE; kind++) {
        if (acts[kind]) {
            memset(acts[kind], 0xFF, kern_act_bytes((kern_act_kind)kind, rows, widths[kind]));
        }
    }
}
#endif

void workspace_begin(workspace *ws, size_t n_rows, size_t n_threads)
{
#ifdef HEARTH_DEBUG
    size_t rows = ws->used_rows > n_rows ? ws->used_rows : n_rows;
    for (size_t i = 0; i < WORKSPACE_ROW_BUFFERS; i++) {
        memset(ws->row_buffers[i], 0xFF, rows * workspace_pitch(ws->row_widths[i]) * sizeof(float));
    }
    acts_spoil(ws->act, ws->act_k, rows);
    acts_spoil(ws->gated, ws->gated_k, rows);
    memset(ws->attn, 0xFF, n_threads * ws->attn_floats * sizeof(float));
#endif
    ws->used_rows = n_rows;
}
