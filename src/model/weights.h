/*
 * weights: where each tensor of a model lies, checked against the architecture's list: present, of the right
 * shape, of a type that can be computed with. Matrices and tables stay in the mapping; vectors stay there too
 * if they are F32 and are widened into the arena otherwise.
 *
 * Immutable once loaded, but for the `packed` of matrices (model_pack sets it once). Borrows the gguf_file and the arena. Errors name the tensor: ST_LOAD_FAILED
 * (missing, wrong shape with both shapes, bad rope factor), ST_UNSUPPORTED (type without a kernel, tensor the
 * architecture has no use for), ST_NOMEM.
 */
#ifndef HEARTH_MODEL_WEIGHTS_H
#define HEARTH_MODEL_WEIGHTS_H

#include "base/arena.h"
#include "gguf/reader.h"
#include "kern/kern.h"
#include "model/hparams.h"

typedef struct layer_weights { /* a vector that the architecture lacks is NULL */
    const float *attn_norm;    /* [n_embd] */
    kern_matrix q;             /* [n_heads * k_dim][n_embd] */
    kern_matrix k;             /* [n_kv_heads * k_dim][n_embd] */
    kern_matrix v;             /* [n_kv_heads * v_dim][n_embd] */
    const float *q_norm;       /* [k_dim], each head by itself, before rope */
    const float *k_norm;       /* [k_dim] */
    kern_matrix o;             /* [n_embd][n_heads * v_dim] */
    const float *ffn_norm;     /* [n_embd] */
    kern_matrix gate;          /* [n_ff][n_embd] */
    kern_matrix up;            /* [n_ff][n_embd] */
    kern_matrix down;          /* [n_embd][n_ff] */
} layer_weights;

typedef struct model_weights {
    kern_matrix embd;           /* [n_vocab][n_embd], a table: one row per token */
    const float *output_norm;   /* [n_embd] */
    kern_matrix output;         /* [n_vocab][n_embd]; embd again if the file has none (tied) */
    const float *rope_divisors; /* [n_rot / 2] or NULL */
    layer_weights *layers;      /* [n_layers], in the arena */
} model_weights;

status weights_load(const gguf_file *f, const kern_table *kern, const hparams *hp, arena *mem,
                    model_weights *out, err *e);
/* The matrices of every layer, then the output matrix: number i of n. */
size_t weights_n_matrices(uint32_t n_layers);
kern_matrix *weights_matrix(model_weights *w, uint32_t n_layers, size_t i);
/* Calls fn for each of them in this order. */
void weights_each_matrix(const model_weights *w, uint32_t n_layers,
                         void (*fn)(void *ctx, const kern_matrix *m), void *ctx);

#endif
