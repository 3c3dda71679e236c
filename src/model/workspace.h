/*
 * workspace: every buffer a forward pass needs, taken once for the most rows a step may have. One forward
 * call at a time uses it. Rows of width floats lie workspace_pitch(width) apart.
 *
 * In debug builds workspace_begin fills what the coming step may use, and what the last one used, with NaN
 * (0xFF): a value that is read before it is written, or kept from another step, then shows in the logits.
 */
#ifndef HEARTH_MODEL_WORKSPACE_H
#define HEARTH_MODEL_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/pool.h"
#include "base/status.h"
#include "kern/kern.h"
#include "model/attend.h"
#include "model/hparams.h"
#include "model/weights.h"

#define WORKSPACE_ROW_BUFFERS 9

typedef struct workspace {       /* all in the model's arena; rows = max_rows */
    float *x;                    /* [rows][n_embd] residual stream */
    float *h;                    /* [rows][n_embd] normed input, then what a block adds */
    float *q;                    /* [rows][n_heads * k_dim] */
    float *k;                    /* [rows][n_kv_heads * k_dim] */
    float *v;                    /* [rows][n_kv_heads * v_dim] */
    float *mix;                  /* [rows][n_heads * v_dim] what attention gives */
    float *gate;                 /* [rows][n_ff] */
    float *up;                   /* [rows][n_ff] */
    float *cos_sin;              /* [rows][n_rot / 2][2] */
    void *act[KERN_ACT_NONE];    /* per kind, NULL if no matrix wants it: prepared activations of the widest
                                    input but what comes out of the gate */
    size_t act_k[KERN_ACT_NONE]; /* that input's width */
    void *gated[KERN_ACT_NONE];  /* likewise of that: it is written while the gate's own input is read */
    size_t gated_k[KERN_ACT_NONE];
    float *attn; /* [POOL_MAX_THREADS][attn_floats] scratch */
    size_t attn_floats;
    attend_tile *attn_tiles; /* [rows] */
    float *attn_parts;       /* [ATTEND_PARTS] */
    int32_t *logit_index;    /* [rows] which row of the logits a row of the batch gets, or -1 */
    int32_t *hidden_index;   /* [rows] which row of the hidden states, or -1 */
    uint8_t *logit_bad;      /* [rows] by row of the logits */
    int32_t *seq_groups;     /* [rows] scratch of batch_check */
    size_t max_rows;
    size_t used_rows;                          /* of the last step */
    float *row_buffers[WORKSPACE_ROW_BUFFERS]; /* x … cos_sin again, with their widths */
    size_t row_widths[WORKSPACE_ROW_BUFFERS];
} workspace;

/* Rows that are a multiple of 4 KB apart would share the low bits of their addresses, and a load would wait for
 * a store to another row (it costs the matrix unit's kernels 5 to 20 %). */
static inline size_t workspace_pitch(size_t width)
{
    return width % 1024 == 0 ? width + 16 : width;
}

static inline float *workspace_row(float *rows, size_t row, size_t width)
{
    return rows + row * workspace_pitch(width);
}

/* ST_NOMEM, also if sizes overflow. */
status workspace_init(workspace *ws, const hparams *hp, const model_weights *w, size_t max_rows, arena *mem,
                      err *e);
void workspace_begin(workspace *ws, size_t n_rows, size_t n_threads);

#endif
