/*
 * pack_rig: a random model and the plan of packing it, for a table that wants every type packed that can be, on
 * any CPU; and the image as kern_pack makes it matrix by matrix. What does not stand ends the test.
 */
#ifndef HEARTH_TESTS_MODEL_PACK_RIG_H
#define HEARTH_TESTS_MODEL_PACK_RIG_H

#include "base/arena.h"
#include "base/pool.h"
#include "gguf/reader.h"
#include "kern/kern.h"
#include "model/hparams.h"
#include "model/make_model.h"
#include "model/pack_header.h"
#include "model/weights.h"

typedef struct pack_rig {
    gguf_file *file;
    arena mem;
    kern_table kern;
    hparams hp;
    model_weights w;
    pack_plan plan;
    pack_key key;
    pool *p;
} pack_rig;

void pack_rig_open(pack_rig *r, const char *path, size_t threads);
void pack_rig_close(pack_rig *r);
/* [plan.image_bytes], zeros between the matrices; freed by the caller (mem_free). */
unsigned char *pack_rig_image(const pack_rig *r);

#endif
