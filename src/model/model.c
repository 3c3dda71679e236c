#include "model/model_int.h"

#include <math.h>

#include "base/mem.h"
#include "kern/fmath.h"

#define MODEL_MAX_ROWS 4096

static status check_options(const model_options *opt, err *e)
{
    if (opt->max_rows < 1 || opt->max_rows > MODEL_MAX_ROWS) {
        return err_set(e, ST_INVALID_FIELD, "max_rows", "max_rows is %zu, it must be 1 to %d", opt->max_rows,
                       MODEL_MAX_ROWS);
    }
    if (opt->max_logit_rows < 1 || opt->max_logit_rows > opt->max_rows) {
        return err_set(e, ST_INVALID_FIELD, "max_logit_rows",
                       "max_logit_rows is %zu, it must be 1 to max_rows (%zu)", opt->max_logit_rows,
                       opt->max_rows);
    }
    return ST_OK;
}

/* All layers alike today; the layout takes them one by one because later families differ between layers. */
static status lay_out_pages(model *m, err *e)
{
    const model_shape *s = &m->hp.shape;
    kv_dims dims[MODEL_MAX_LAYERS];
    m->kv_layers = arena_calloc(&m->mem, s->n_layers, sizeof *m->kv_layers);
    if (!m->kv_layers) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the page layout of %u layers", s->n_layers);
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        dims[i] = (kv_dims){.n_kv_heads = s->n_kv_heads, .k_dim = s->k_dim, .v_dim = s->v_dim};
    }
    return kv_layout_init(m->opt.kv_type, dims, s->n_layers, m->kv_layers, &m->page_bytes);
}

/* Linear scaling divides the position, a rope divisor divides its frequency: both end in the inverse
 * frequency. */
static status make_inv_freq(model *m, err *e)
{
    size_t n_half = m->hp.shape.n_rot / 2;
    m->inv_freq = arena_alloc_array(&m->mem, n_half, sizeof *m->inv_freq);
    if (!m->inv_freq) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for %zu frequencies", n_half);
    }
    for (size_t i = 0; i < n_half; i++) {
        double f = fm_rope_inv_freq(m->hp.rope_base, (int)i, (int)m->hp.shape.n_rot);
        double divisor = m->w.rope_divisors ? (double)m->w.rope_divisors[i] : 1.0;
        m->inv_freq[i] = f / divisor / m->hp.rope_divisor;
    }
    return ST_OK;
}

status model_open(const gguf_file *f, const kern_table *kern, const model_options *opt, model **out, err *e)
{
    status st = check_options(opt, e);
    if (st != ST_OK) {
        return st;
    }
    model *m = mem_calloc(1, sizeof *m);
    if (!m) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for a model");
    }
    m->file = f;
    m->kern = kern;
    m->opt = *opt;
    arena_init(&m->mem, 0);
    st = hparams_read(f, &m->hp, e);
    if (st == ST_OK) {
        m->attn_scale = (float)(1.0 / sqrt((double)m->hp.shape.k_dim));
        st = weights_load(f, kern, &m->hp, &m->mem, &m->w, e);
    }
    if (st == ST_OK) {
        st = make_inv_freq(m, e);
    }
    if (st == ST_OK) {
        st = pack_plan_make(f, &m->w, m->hp.shape.n_layers, kern, &m->mem, &m->plan, e);
        m->packed = m->plan.image_bytes == 0;
    }
    if (st == ST_OK) {
        st = lay_out_pages(m, e);
    }
    if (st == ST_OK) {
        st = workspace_init(&m->ws, &m->hp, &m->w, opt->max_rows, &m->mem, e);
    }
    if (st != ST_OK) {
        model_free(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

void model_free(model *m)
{
    if (m) {
        model_unpack(m);
        arena_release(&m->mem);
        mem_free(m);
    }
}

uint64_t model_scratch_bytes(const model *m, size_t n_threads, size_t n_replies)
{
    const model_shape *s = &m->hp.shape;
    uint64_t unused = (uint64_t)(POOL_MAX_THREADS - n_threads) * m->ws.attn_floats;
    /* Rows of replies are cut into spans, and pieces of prompts that are as few. */
    uint64_t spans = (uint64_t)s->n_ctx_train / KERN_SPAN + 1;
    uint64_t parts = 2 * n_replies * spans * s->n_heads * KERN_ATTN_PART(s->v_dim);
    unused += parts < ATTEND_PARTS ? ATTEND_PARTS - parts : 0;
    return sizeof *m + m->mem.used_bytes - unused * sizeof(float);
}

const model_shape *model_shape_of(const model *m)
{
    return &m->hp.shape;
}

forward_ops model_forward_ops(model *m)
{
    return (forward_ops){.ctx = m,
                         .shape = &m->hp.shape,
                         .page_bytes = m->page_bytes,
                         .max_rows = m->opt.max_rows,
                         .max_logit_rows = m->opt.max_logit_rows,
                         .kv_layers = m->kv_layers,
                         .n_kv_layers = m->hp.shape.n_layers,
                         .kv_type = m->opt.kv_type,
                         .forward = model_forward};
}

const char *model_arch_name(size_t i)
{
    const arch *a = arch_at(i);
    return a ? a->name : NULL;
}

static void add_bytes(void *ctx, const kern_matrix *w)
{
    uint64_t *sum = ctx;
    *sum += (uint64_t)w->n * w->row_bytes;
}

uint64_t model_bytes_per_token(const model *m)
{
    uint64_t sum = m->w.embd.row_bytes;
    weights_each_matrix(&m->w, m->hp.shape.n_layers, add_bytes, &sum);
    return sum;
}

void model_each_matrix(const model *m, void (*fn)(void *ctx, const kern_matrix *w), void *ctx)
{
    weights_each_matrix(&m->w, m->hp.shape.n_layers, fn, ctx);
}

uint64_t model_params(const model *m)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < gguf_n_tensors(m->file); i++) {
        const uint64_t *dims = gguf_tensor_at(m->file, i)->dims;
        sum += dims[0] * dims[1] * dims[2] * dims[3];
    }
    return sum;
}

static void count_type(void *ctx, const kern_matrix *w)
{
    uint64_t *values = ctx;
    values[w->type] += (uint64_t)w->n * w->k;
}

const char *model_quant_name(const model *m)
{
    uint64_t values[GGUF_TYPE_COUNT] = {0};
    uint32_t best = 0;
    weights_each_matrix(&m->w, m->hp.shape.n_layers, count_type, values);
    for (uint32_t i = 1; i < GGUF_TYPE_COUNT; i++) {
        best = values[i] > values[best] ? i : best;
    }
    return gguf_type_info_of(best).name;
}
