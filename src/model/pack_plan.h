/*
 * pack_plan: which matrices of a model a kernel table wants packed (kern/pack.h), where each one lies in the
 * packed image, and in which pieces the work is done.
 *
 *     image = matrices in the order of the model's files, each at a multiple of PACK_ALIGN
 *
 * A slice is a run of panels of one matrix, the unit of parallel work. A step is a run of slices of one part of
 * the model, or a piece of a part that no slice reads: taken in order, the steps pass over every byte of every
 * part exactly once and, slices put one after the other, fill the image from its beginning to its end.
 *
 * A pure function of the weights and the table; immutable afterwards, in the arena that was given; it borrows
 * the gguf_file and the weights.
 */
#ifndef HEARTH_MODEL_PACK_PLAN_H
#define HEARTH_MODEL_PACK_PLAN_H

#include <stdint.h>

#include "base/arena.h"
#include "gguf/reader.h"
#include "kern/kern.h"
#include "model/weights.h"

#define PACK_ALIGN      64u
#define PACK_STEP_BYTES (8u << 20) /* of the model in one step, about */

typedef struct pack_item {
    const kern_matrix *w; /* borrowed */
    size_t matrix;        /* its number (weights_matrix) */
    uint64_t offset;      /* in the image */
    uint64_t bytes;
    size_t panel_bytes;
} pack_item;

typedef struct pack_slice {
    const pack_item *item;
    size_t p0; /* panels [p0, p1) */
    size_t p1;
} pack_slice;

typedef struct pack_step {
    size_t part;
    uint64_t from; /* bytes [from, to) of the part */
    uint64_t to;
    size_t slice0; /* slices [slice0, slice1); none if equal */
    size_t slice1;
    uint64_t image_from; /* bytes [image_from, image_to) of the image, gaps for alignment included */
    uint64_t image_to;
} pack_step;

typedef struct pack_plan {
    const gguf_file *file; /* borrowed */
    const pack_item *items;
    const pack_slice *slices;
    const pack_step *steps;
    size_t n_items;
    size_t n_slices;
    size_t n_steps;
    uint64_t image_bytes;           /* 0: the table wants nothing packed */
    bool unpacked[GGUF_TYPE_COUNT]; /* matrices of this type are used as they lie in the file */
} pack_plan;

/* ST_NOMEM; ST_LOAD_FAILED if the sizes overflow. */
status pack_plan_make(const gguf_file *f, model_weights *w, uint32_t n_layers, const kern_table *kern,
                      arena *mem, pack_plan *out, err *e);
/* Image bytes of one slice: where they begin, how many. */
uint64_t pack_slice_offset(const pack_slice *s);
uint64_t pack_slice_bytes(const pack_slice *s);

#endif
