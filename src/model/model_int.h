/*
 * model_int: what model.c opens and forward.c computes with.
 */
#ifndef HEARTH_MODEL_MODEL_INT_H
#define HEARTH_MODEL_MODEL_INT_H

#include <stdbool.h>

#include "base/arena.h"
#include "model/hparams.h"
#include "model/model.h"
#include "model/pack_plan.h"
#include "model/weights.h"
#include "model/workspace.h"

struct model {
    /* borrowed */
    const gguf_file *file;
    const kern_table *kern;
    /* owned */
    arena mem;   /* vectors that were widened, layer lists, workspace */
    void *image; /* packed matrices [plan.image_bytes], or NULL */
    /* in mem */
    kv_layer *kv_layers; /* [n_layers] */
    double *inv_freq;    /* [n_rot / 2] radians per position, scaling and divisors applied */
    workspace ws;
    hparams hp;
    model_weights w;
    pack_plan plan;
    model_options opt;
    size_t page_bytes;
    float attn_scale;
    bool packed;       /* by model_pack, or nothing is to be packed */
    bool image_mapped; /* it is a mapping of a file, not memory */
    bool has_digest;
    uint8_t digest[SHA256_BYTES];
};

/* Gives the image back, if there is one. */
void model_unpack(model *m);
/* forward_ops.forward; ctx is the model. */
status model_forward(void *ctx, pool *p, const batch *b, float *logits, uint8_t *bad, err *e);

#endif
