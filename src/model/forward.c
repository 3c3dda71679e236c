/*
 * The forward pass of a pre-norm decoder over a ragged batch:
 *
 *     x = embedding[token]
 *     for each layer:
 *         h = rms_norm(x)
 *         q, k, v = Wq h, Wk h, Wv h;  [norm of each head of q and k];  rope(q), rope(k)
 *         pages <- k, v of all rows
 *         x += Wo attention(q, pages)
 *         h = rms_norm(x)
 *         x += Wdown (silu(Wgate h) * Wup h)
 *     hidden = rms_norm(x), only for the rows that want it
 *     logits = Wout rms_norm(x), only for the rows that want them
 *
 * Every step is one pool_run whose tasks write to places of their own: rows, heads or columns of a product.
 * Between two steps all tasks are done, so a row may attend to what other rows of its sequence stored just
 * before.
 *
 * A non-finite value stays in its row: preparing activations marks the row and hands zeros to the products.
 * What later rows of the same sequence saw of it is worthless, so they are marked too, at the end. No other
 * sequence ever reads that sequence's rows or pages.
 */
#include <string.h>

#include "base/mem.h"
#include "gguf/quant.h"
#include "model/attend.h"
#include "model/batch.h"
#include "model/model_int.h"
#include "model/product.h"

/* Rows of floats on their way into activations. Rows of a tile share cache lines, so a tile is divided by values. */
typedef struct encode_job {
    float *src; /* [n_rows][width] */
    size_t n_rows;
    size_t tile;    /* rows */
    size_t part;    /* values: a multiple of KERN_ACT_STEP */
    size_t n_parts; /* of a tile */
    size_t n_tasks;
    bool norms;   /* the task norms its rows first: it has whole ones */
    uint8_t *bad; /* [n_rows] */
} encode_job;

typedef struct pass {
    const model *m;
    workspace *ws;
    const batch *b;
    pool *p;
    float *logits; /* [n_logits][n_vocab] */
    uint8_t *bad;  /* [n_rows] */
    size_t n_logits;
    const layer_weights *lw;
    const kv_layer *kv;
    attend attn;
    kern_act act[KERN_ACT_NONE]; /* the present input in every kind that its matrices want */
    /* The present input's preparation. */
    float *src;        /* [rows][width] */
    const float *norm; /* [width], or NULL to take src as it is */
    size_t width;
    unsigned kinds; /* bit set of kern_act_kind */
    encode_job encode;
} pass;

static unsigned kind_bit(const kern_matrix *w)
{
    return 1u << kern_act_kind_of(w->type);
}

static const kern_act *act_for(const pass *ps, const kern_matrix *w)
{
    return &ps->act[kern_act_kind_of(w->type)];
}

static void acts_init(pass *ps, size_t n_rows, size_t width, unsigned kinds)
{
    ps->width = width;
    ps->kinds = kinds;
    for (size_t kind = 0; kind < KERN_ACT_NONE; kind++) {
        if (kinds & 1u << kind) {
            kern_act_init(&ps->act[kind], (kern_act_kind)kind, n_rows, width, ps->ws->act[kind]);
        }
    }
}

/* Values that are worth a task. */
#define ENCODE_WORTH ((size_t)4096)

/* How the present input, n_rows of src, is divided: tiles of rows, each in parts of part values. One row, or few
 * values, are one task. */
static void encode_plan(pass *ps, float *src, size_t n_rows, uint8_t *bad)
{
    size_t tile = n_rows <= KERN_ACT_SMALL ? n_rows : KERN_ACT_TILE;
    size_t n_tiles = tile > 0 ? (n_rows + tile - 1) / tile : 0;
    size_t most = tile * ps->width / ENCODE_WORTH; /* tasks of a tile */
    size_t threads = pool_threads(ps->p);
    size_t wanted = n_tiles > 0 && n_tiles < 2 * threads ? (4 * threads + n_tiles - 1) / n_tiles : 1;
    size_t n_parts = most < wanted ? most : wanted;
    n_parts = n_parts > 1 ? n_parts : 1;
    size_t part = (ps->width + n_parts - 1) / n_parts;
    ps->encode = (encode_job){.src = src, .n_rows = n_rows, .tile = tile, .bad = bad};
    ps->encode.part = (part + KERN_ACT_STEP - 1) / KERN_ACT_STEP * KERN_ACT_STEP;
    ps->encode.n_parts = (ps->width + ps->encode.part - 1) / ps->encode.part;
    ps->encode.n_tasks = n_tiles * ps->encode.n_parts;
}

static void norm_task(void *arg, size_t row, size_t thread)
{
    const pass *ps = arg;
    (void)thread;
    ps->m->kern->rms_norm(workspace_row(ps->ws->h, row, ps->width), workspace_row(ps->src, row, ps->width),
                          ps->norm, ps->width, ps->m->hp.rms_eps);
}

/* Part of a tile, in every kind wanted. */
static void encode_task(void *arg, size_t task, size_t thread)
{
    pass *ps = arg;
    const encode_job *e = &ps->encode;
    size_t r0 = task / e->n_parts * e->tile, k0 = task % e->n_parts * e->part;
    size_t r1 = e->n_rows - r0 < e->tile ? e->n_rows : r0 + e->tile;
    size_t k1 = ps->width - k0 < e->part ? ps->width : k0 + e->part;
    for (size_t r = r0; e->norms && r < r1; r++) {
        norm_task(ps, r, thread);
    }
    for (size_t kind = 0; kind < KERN_ACT_NONE; kind++) {
        for (size_t r = r0; ps->kinds & 1u << kind && r < r1; r++) {
            ps->m->kern->act_prepare(&ps->act[kind], workspace_row(e->src, r, ps->width), r, k0, k1, e->bad);
        }
    }
}

/* Makes ps->act the present input: src, through norm if there is one, for matrices that want kinds. */
static void prepare(pass *ps, float *src, const float *norm, size_t width, unsigned kinds)
{
    size_t n_rows = ps->b->n_rows;
    ps->src = src;
    ps->norm = norm;
    acts_init(ps, n_rows, width, kinds);
    encode_plan(ps, norm ? ps->ws->h : src, n_rows, ps->bad);
    ps->encode.norms = norm && ps->encode.n_parts == 1;
    if (norm && !ps->encode.norms) {
        pool_run(ps->p, norm_task, ps, n_rows);
    }
    pool_run(ps->p, encode_task, ps, ps->encode.n_tasks);
}

static void embed_task(void *arg, size_t row, size_t thread)
{
    const pass *ps = arg;
    const model *m = ps->m;
    const kern_matrix *table = &m->w.embd;
    const batch_row *r = &ps->b->rows[row];
    const unsigned char *data = table->data;
    size_t n_rot = m->hp.shape.n_rot;
    (void)thread;
    quant_dequantise(table->type, data + (size_t)r->token * table->row_bytes,
                     workspace_row(ps->ws->x, row, table->k), table->k);
    m->kern->rope_angles(workspace_row(ps->ws->cos_sin, row, n_rot), m->inv_freq, n_rot / 2, r->pos, 1.0f);
}

/* heads [n][k_dim] of one row: norm of each head if there is one, then rotation. */
static void turn_heads(const pass *ps, size_t row, float *heads, size_t n, const float *norm)
{
    const model *m = ps->m;
    size_t k_dim = m->hp.shape.k_dim, n_rot = m->hp.shape.n_rot;
    for (size_t i = 0; i < n; i++) {
        float *head = heads + i * k_dim;
        if (norm) {
            m->kern->rms_norm(head, head, norm, k_dim, m->hp.rms_eps);
        }
        m->kern->rope(head, workspace_row(ps->ws->cos_sin, row, n_rot), n_rot, m->hp.arch->rope);
    }
}

/* KV heads [h0, h1) of a row, and the query heads that share them. */
static void turn(const void *ctx, size_t row, size_t h0, size_t h1)
{
    const pass *ps = ctx;
    const model_shape *s = &ps->m->hp.shape;
    float *k = workspace_row(ps->ws->k, row, (size_t)s->n_kv_heads * s->k_dim);
    float *q = workspace_row(ps->ws->q, row, (size_t)s->n_heads * s->k_dim);
    size_t n_q = s->n_heads / s->n_kv_heads;
    turn_heads(ps, row, q + h0 * n_q * s->k_dim, (h1 - h0) * n_q, ps->lw->q_norm);
    turn_heads(ps, row, k + h0 * s->k_dim, h1 - h0, ps->lw->k_norm);
}

/* The present input times w, into rows of the workspace. */
static product product_of(const pass *ps, const kern_matrix *w, float *y)
{
    return (product){.w = w, .act = act_for(ps, w), .y = y, .y_stride = workspace_pitch(w->n)};
}

/* The residual stream += the present input times w. */
static void add_product(pass *ps, const kern_matrix *w)
{
    product pr = product_of(ps, w, ps->ws->h);
    pr.add_to = ps->ws->x;
    pr.add_stride = pr.y_stride;
    product_run(ps->m->kern, ps->p, &pr, 1);
}

static void attention_block(pass *ps)
{
    const layer_weights *lw = ps->lw;
    workspace *ws = ps->ws;
    prepare(ps, ws->x, lw->attn_norm, lw->q.k, kind_bit(&lw->q) | kind_bit(&lw->k) | kind_bit(&lw->v));
    const product qkv[] = {product_of(ps, &lw->q, ws->q), product_of(ps, &lw->k, ws->k),
                           product_of(ps, &lw->v, ws->v)};
    product_run(ps->m->kern, ps->p, qkv, 3);
    attend_store(&ps->attn, ps->p, ps->kv, ws->k, workspace_pitch(lw->k.n), ws->v, workspace_pitch(lw->v.n));
    attend_run(&ps->attn, ps->p, ps->kv);
    prepare(ps, ws->mix, NULL, lw->o.k, kind_bit(&lw->o));
    add_product(ps, &lw->o);
}

static void ffn_block(pass *ps)
{
    const layer_weights *lw = ps->lw;
    workspace *ws = ps->ws;
    prepare(ps, ws->x, lw->ffn_norm, lw->gate.k, kind_bit(&lw->gate) | kind_bit(&lw->up));
    const product gate = product_of(ps, &lw->gate, ws->gate);
    const product up = product_of(ps, &lw->up, ws->up);
    const kern_act_kind kind = kern_act_kind_of(lw->down.type);
    kern_act gated;
    kern_act_init(&gated, kind, ps->b->n_rows, lw->down.k, ws->gated[kind]);
    bool prepared = product_run_gated(ps->m->kern, ps->p, &gate, &up, &gated, ps->bad);
    ps->act[kind] = gated;
    if (!prepared) {
        ps->width = lw->down.k;
        ps->kinds = kind_bit(&lw->down);
        encode_plan(ps, ws->gate, ps->b->n_rows, ps->bad);
        pool_run(ps->p, encode_task, ps, ps->encode.n_tasks);
    }
    add_product(ps, &lw->down);
}

/* Layers [l0, l1) on the residual stream. */
static void layers(pass *ps, uint32_t l0, uint32_t l1)
{
    for (uint32_t i = l0; i < l1; i++) {
        ps->lw = &ps->m->w.layers[i];
        ps->kv = &ps->m->kv_layers[i];
        attention_block(ps);
        ffn_block(ps);
    }
}

static void head_task(void *arg, size_t row, size_t thread)
{
    pass *ps = arg;
    const kern_table *kern = ps->m->kern;
    const float *x = workspace_row(ps->ws->x, row, ps->width);
    const float *norm = ps->m->w.output_norm;
    int32_t at = ps->ws->logit_index[row], hidden_at = ps->ws->hidden_index[row];
    (void)thread;
    if (!kern->all_finite(x, ps->width)) {
        ps->bad[row] = 1;
    }
    if (at >= 0) {
        kern->rms_norm(workspace_row(ps->ws->h, (size_t)at, ps->width), x, norm, ps->width,
                       ps->m->hp.rms_eps);
    }
    if (hidden_at >= 0) {
        float *hidden = ps->b->hidden + (size_t)hidden_at * ps->width;
        kern->rms_norm(hidden, x, norm, ps->width, ps->m->hp.rms_eps);
        if (!kern->all_finite(hidden, ps->width)) {
            ps->bad[row] = 1;
        }
    }
}

static void head(pass *ps)
{
    const kern_matrix *out = &ps->m->w.output;
    acts_init(ps, ps->n_logits, out->k, kind_bit(out));
    memset(ps->ws->logit_bad, 0, ps->n_logits);
    pool_run(ps->p, head_task, ps, ps->b->n_rows);
    if (ps->n_logits > 0) {
        encode_plan(ps, ps->ws->h, ps->n_logits, ps->ws->logit_bad);
        pool_run(ps->p, encode_task, ps, ps->encode.n_tasks);
        const product pr = {
            .w = out, .act = act_for(ps, out), .y = ps->logits, .y_stride = out->n, .bad = ps->ws->logit_bad};
        product_run(ps->m->kern, ps->p, &pr, 1);
    }
}

/* Clears bad rows' logits and hidden states and marks what comes after a bad row in its sequence. */
static void settle_bad(pass *ps)
{
    const batch_row *rows = ps->b->rows;
    size_t n_vocab = ps->m->hp.shape.n_vocab, n_embd = ps->m->hp.shape.n_embd;
    for (size_t i = 0; i < ps->b->n_rows; i++) {
        int32_t at = ps->ws->logit_index[i];
        if (at >= 0 && ps->ws->logit_bad[at]) {
            ps->bad[i] = 1;
            memset(ps->logits + (size_t)at * n_vocab, 0, n_vocab * sizeof(float));
        }
        if (i > 0 && ps->bad[i - 1] && rows[i - 1].seq == rows[i].seq) {
            ps->bad[i] = 1;
        }
        int32_t hidden_at = ps->ws->hidden_index[i];
        if (hidden_at >= 0 && ps->bad[i]) {
            memset(ps->b->hidden + (size_t)hidden_at * n_embd, 0, n_embd * sizeof(float));
        }
    }
}

static void attend_begin(pass *ps)
{
    const model_shape *s = &ps->m->hp.shape;
    const size_t q_width = (size_t)s->n_heads * s->k_dim, mix_width = (size_t)s->n_heads * s->v_dim;
    ps->attn = (attend){
        .kern = ps->m->kern,
        .shape = s,
        .b = ps->b,
        .turn = turn,
        .turn_ctx = ps,
        .q = ps->ws->q,
        .mix = ps->ws->mix,
        .q_stride = workspace_pitch(q_width),
        .mix_stride = workspace_pitch(mix_width),
        .tiles = ps->ws->attn_tiles,
        .parts = ps->ws->attn_parts,
        .scratch = ps->ws->attn,
        .scratch_floats = ps->ws->attn_floats,
        .type = ps->m->opt.kv_type,
        .scale = ps->m->attn_scale,
    };
    attend_plan(&ps->attn, pool_threads(ps->p));
}

/* Where the rows' logits and hidden states go; the number of rows of logits. */
static size_t index_outputs(const batch *b, workspace *ws)
{
    size_t n = 0, n_hidden = 0;
    for (size_t i = 0; i < b->n_rows; i++) {
        ws->logit_index[i] = b->rows[i].want_logits ? (int32_t)n++ : -1;
        ws->hidden_index[i] = b->rows[i].want_hidden ? (int32_t)n_hidden++ : -1;
    }
    return n;
}

status model_forward(void *ctx, pool *p, const batch *b, float *logits, uint8_t *bad, err *e)
{
    model *m = ctx;
    const batch_limits limits = {.max_rows = m->opt.max_rows,
                                 .max_logit_rows = m->opt.max_logit_rows,
                                 .n_vocab = m->hp.shape.n_vocab,
                                 .groups = m->ws.seq_groups};
    status st = batch_check(b, &limits, e);
    if (st == ST_OK && !m->packed) {
        st = err_set(e, ST_INTERNAL, NULL, "a forward call before model_pack");
    }
    if (st != ST_OK) {
        return st;
    }
    mem_guard_enter();
    workspace_begin(&m->ws, b->n_rows, pool_threads(p));
    pass ps = {.m = m, .ws = &m->ws, .b = b, .p = p, .logits = logits, .bad = bad};
    ps.n_logits = index_outputs(b, &m->ws);
    attend_begin(&ps);
    memset(bad, 0, b->n_rows);
    pool_run(p, embed_task, &ps, b->n_rows);
    layers(&ps, 0, m->hp.shape.n_layers);
    head(&ps);
    settle_bad(&ps);
    mem_guard_leave();
    return ST_OK;
}
