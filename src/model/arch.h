/*
 * arch: the architecture table. One row says everything that sets a family of models apart: its name, the
 * style of its rotary embedding, and the list of tensors a file of it holds, each with its shape. A new
 * family is a row, a list, and where its arithmetic differs a small block in forward.c driven by the tensors
 * that are there.
 *
 * The name is also the prefix of its keys: "llama.block_count". A file may hold no tensor that its row does
 * not list: what is not understood is refused by name, because leaving it out would change every result.
 *
 * Static data, any thread.
 */
#ifndef HEARTH_MODEL_ARCH_H
#define HEARTH_MODEL_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gguf/reader.h"
#include "kern/kern.h"
#include "model/shape.h"

/* Sizes of tensors, as the hyper-parameters give them. */
typedef enum arch_dim {
    ARCH_ONE,
    ARCH_EMBD,
    ARCH_FF,
    ARCH_VOCAB,
    ARCH_Q,        /* n_heads * k_dim */
    ARCH_K,        /* n_kv_heads * k_dim */
    ARCH_V,        /* n_kv_heads * v_dim */
    ARCH_MIX,      /* n_heads * v_dim: what attention hands on */
    ARCH_HEAD,     /* k_dim */
    ARCH_ROT_HALF, /* n_rot / 2 */
} arch_dim;

typedef enum arch_use {
    ARCH_MATRIX, /* multiplies activations: needs a kernel for its type */
    ARCH_TABLE,  /* rows are looked up: needs a dequantiser for its type */
    ARCH_VECTOR, /* floats, widened to F32 */
} arch_use;

typedef struct arch_tensor {
    const char *name; /* behind "blk.<layer>." for tensors of a layer */
    size_t slot;      /* offset of the kern_matrix or const float * in layer_weights or model_weights */
    arch_use use;
    arch_dim k; /* row length: dims[0] */
    arch_dim n; /* rows: dims[1], ARCH_ONE for vectors */
    bool optional;
} arch_tensor;

typedef struct arch {
    const char *name;
    kern_rope_style rope;
    const arch_tensor *globals;
    size_t n_globals;
    const arch_tensor *layer;
    size_t n_layer;
} arch;

const arch *arch_at(size_t i);                       /* NULL past the end */
const arch *arch_find(const char *name, size_t len); /* NULL if unknown */
/* The row of a tensor name of a model of n_layers, or NULL if the family has no such tensor. */
const arch_tensor *arch_find_tensor(const arch *a, gguf_str name, uint32_t n_layers);
/* The size of dim in a model of this shape; products fit (shape.h bounds their factors). */
uint64_t arch_dim_size(arch_dim dim, const model_shape *s);

#endif
