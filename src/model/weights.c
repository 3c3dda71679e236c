#include "model/weights.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "gguf/quant.h"

typedef struct loader {
    const gguf_file *f;     /* borrowed */
    const kern_table *kern; /* borrowed */
    const hparams *hp;      /* borrowed */
    arena *mem;             /* borrowed */
    err *e;
} loader;

static status refuse_unknown_tensors(const loader *l)
{
    for (size_t i = 0; i < gguf_n_tensors(l->f); i++) {
        gguf_str name = gguf_tensor_at(l->f, i)->name;
        if (!arch_find_tensor(l->hp->arch, name, l->hp->shape.n_layers)) {
            char text[128];
            snprintf(text, sizeof text, "%.*s", (int)(name.len < 100 ? name.len : 100), name.data);
            return err_set(
                l->e, ST_UNSUPPORTED, text,
                "tensor %s has no place in architecture %s of %u layers: leaving it out would change "
                "the results",
                text, l->hp->arch->name, l->hp->shape.n_layers);
        }
    }
    return ST_OK;
}

static void dims_text(char *out, size_t size, const uint64_t *dims, uint32_t n_dims)
{
    size_t len = 0;
    for (uint32_t i = 0; i < n_dims && len < size; i++) {
        len += (size_t)snprintf(out + len, size - len, "%s%llu", i ? " x " : "", (unsigned long long)dims[i]);
    }
}

static status check_shape(const loader *l, const char *name, const gguf_tensor *t, const arch_tensor *want)
{
    uint64_t dims[GGUF_MAX_DIMS] = {arch_dim_size(want->k, &l->hp->shape),
                                    arch_dim_size(want->n, &l->hp->shape), 1, 1};
    uint32_t n_dims = want->use == ARCH_VECTOR ? 1 : 2;
    if (memcmp(dims, t->dims, sizeof dims) == 0) {
        return ST_OK;
    }
    char has[96], should[48];
    dims_text(has, sizeof has, t->dims, t->n_dims);
    dims_text(should, sizeof should, dims, n_dims);
    return err_set(l->e, ST_LOAD_FAILED, name, "tensor %s is %s, it must be %s", name, has, should);
}

static status bad_type(const loader *l, const char *name, const gguf_tensor *t, const char *why)
{
    return err_set(l->e, ST_UNSUPPORTED, name, "tensor %s has type %s: %s", name,
                   gguf_type_info_of((uint32_t)t->type).name, why);
}

static status load_matrix(const loader *l, const char *name, const gguf_tensor *t, arch_use use,
                          kern_matrix *out)
{
    if (use == ARCH_MATRIX && !l->kern->matmul[t->type]) {
        return bad_type(l, name, t, "no kernel multiplies it");
    }
    if (use == ARCH_TABLE && !quant_supported(t->type)) {
        return bad_type(l, name, t, "its rows cannot be decoded");
    }
    size_t row_bytes = quant_row_bytes(t->type, (size_t)t->dims[0]);
    if (row_bytes == 0) {
        return err_set(l->e, ST_LOAD_FAILED, name,
                       "tensor %s has rows of %llu values, which are not whole blocks of %s", name,
                       (unsigned long long)t->dims[0], gguf_type_info_of((uint32_t)t->type).name);
    }
    *out = (kern_matrix){.type = t->type,
                         .n = (size_t)t->dims[1],
                         .k = (size_t)t->dims[0],
                         .row_bytes = row_bytes,
                         .data = t->data};
    return ST_OK;
}

static status load_vector(const loader *l, const char *name, const gguf_tensor *t, const float **out)
{
    if (t->type == GGUF_TYPE_F32) {
        *out = t->data; /* the reader refuses data that is not aligned for its type */
        return ST_OK;
    }
    if (t->type != GGUF_TYPE_F16 && t->type != GGUF_TYPE_BF16) {
        return bad_type(l, name, t, "it must be F32, F16 or BF16");
    }
    float *wide = arena_alloc_array(l->mem, (size_t)t->dims[0], sizeof *wide);
    if (!wide) {
        return err_set(l->e, ST_NOMEM, name, "out of memory for tensor %s", name);
    }
    quant_dequantise(t->type, t->data, wide, (size_t)t->dims[0]);
    *out = wide;
    return ST_OK;
}

/* Loads one row of the architecture's list into its slot behind base. */
static status load_tensor(const loader *l, const char *name, const arch_tensor *want, unsigned char *base)
{
    const gguf_tensor *t = gguf_find_tensor(l->f, name);
    if (!t) {
        return want->optional ? ST_OK : err_set(l->e, ST_LOAD_FAILED, name, "tensor %s is missing", name);
    }
    status st = check_shape(l, name, t, want);
    if (st != ST_OK) {
        return st;
    }
    void *slot = base + want->slot;
    return want->use == ARCH_VECTOR ? load_vector(l, name, t, slot)
                                    : load_matrix(l, name, t, want->use, slot);
}

static status load_layers(const loader *l, model_weights *w)
{
    const arch *a = l->hp->arch;
    w->layers = arena_calloc(l->mem, l->hp->shape.n_layers, sizeof *w->layers);
    if (!w->layers) {
        return err_set(l->e, ST_NOMEM, NULL, "out of memory for %u layers", l->hp->shape.n_layers);
    }
    for (uint32_t i = 0; i < l->hp->shape.n_layers; i++) {
        for (size_t j = 0; j < a->n_layer; j++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s", i, a->layer[j].name);
            status st = load_tensor(l, name, &a->layer[j], (unsigned char *)&w->layers[i]);
            if (st != ST_OK) {
                return st;
            }
        }
    }
    return ST_OK;
}

/* Without a matrix of its own the output multiplies with the embedding, which then needs a kernel too. */
static status tie_output(const loader *l, model_weights *w)
{
    if (w->output.data) {
        return ST_OK;
    }
    w->output = w->embd;
    if (!l->kern->matmul[w->embd.type]) {
        return err_set(
            l->e, ST_UNSUPPORTED, "token_embd.weight",
            "tensor token_embd.weight has type %s: it is the output too and no kernel multiplies it",
            gguf_type_info_of((uint32_t)w->embd.type).name);
    }
    return ST_OK;
}

static status check_rope_divisors(const loader *l, const model_weights *w)
{
    for (uint32_t i = 0; w->rope_divisors && i < l->hp->shape.n_rot / 2; i++) {
        float d = w->rope_divisors[i];
        if (!(isfinite(d) && d > 0.0f)) {
            return err_set(l->e, ST_LOAD_FAILED, "rope_freqs.weight",
                           "tensor rope_freqs.weight holds %g at %u: factors must be finite and positive",
                           (double)d, i);
        }
    }
    return ST_OK;
}

status weights_load(const gguf_file *f, const kern_table *kern, const hparams *hp, arena *mem,
                    model_weights *out, err *e)
{
    loader l = {.f = f, .kern = kern, .hp = hp, .mem = mem, .e = e};
    model_weights w = {0};
    status st = refuse_unknown_tensors(&l);
    for (size_t i = 0; st == ST_OK && i < hp->arch->n_globals; i++) {
        st = load_tensor(&l, hp->arch->globals[i].name, &hp->arch->globals[i], (unsigned char *)&w);
    }
    if (st == ST_OK) {
        st = tie_output(&l, &w);
    }
    if (st == ST_OK) {
        st = check_rope_divisors(&l, &w);
    }
    if (st == ST_OK) {
        st = load_layers(&l, &w);
    }
    if (st == ST_OK) {
        *out = w;
    }
    return st;
}

static const size_t layer_slots[] = {offsetof(layer_weights, q),    offsetof(layer_weights, k),
                                     offsetof(layer_weights, v),    offsetof(layer_weights, o),
                                     offsetof(layer_weights, gate), offsetof(layer_weights, up),
                                     offsetof(layer_weights, down)};

#define N_LAYER_SLOTS (sizeof layer_slots / sizeof *layer_slots)

size_t weights_n_matrices(uint32_t n_layers)
{
    return n_layers * N_LAYER_SLOTS + 1;
}

static kern_matrix *layer_matrix(layer_weights *layers, size_t i)
{
    unsigned char *lw = (unsigned char *)&layers[i / N_LAYER_SLOTS];
    return (kern_matrix *)(void *)(lw + layer_slots[i % N_LAYER_SLOTS]);
}

kern_matrix *weights_matrix(model_weights *w, uint32_t n_layers, size_t i)
{
    return i < n_layers * N_LAYER_SLOTS ? layer_matrix(w->layers, i) : &w->output;
}

void weights_each_matrix(const model_weights *w, uint32_t n_layers,
                         void (*fn)(void *ctx, const kern_matrix *m), void *ctx)
{
    for (size_t i = 0; i < n_layers * N_LAYER_SLOTS; i++) {
        fn(ctx, layer_matrix(w->layers, i));
    }
    fn(ctx, &w->output);
}
