/*
 * shape: the sizes of a model, as plain data. kv/ and engine/ include this and nothing else of model/'s
 * insides.
 */
#ifndef HEARTH_MODEL_SHAPE_H
#define HEARTH_MODEL_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#define MODEL_MAX_LAYERS   1024
#define MODEL_MAX_HEADS    1024
#define MODEL_MAX_HEAD_DIM 1024

typedef struct model_shape {
    char arch[32]; /* general.architecture */
    uint32_t n_layers;
    uint32_t n_embd;
    uint32_t n_ff;
    uint32_t n_heads; /* query heads */
    uint32_t n_kv_heads;
    uint32_t k_dim;       /* head size of Q and K */
    uint32_t v_dim;       /* head size of V */
    uint32_t n_rot;       /* values of a head that rotary embedding turns */
    uint32_t n_vocab;     /* rows of the embedding = width of the logits */
    uint32_t n_ctx_train; /* <arch>.context_length */
} model_shape;

#endif
