/*
 * hparams: the keys of a GGUF file that give a model its sizes and constants, read once and checked: every
 * value in range, every pair that must fit together fitting. Keys that would change the arithmetic in a way
 * this build does not know are refused by name; a key with its neutral value is not.
 *
 * Plain data, any thread. Errors: ST_LOAD_FAILED (missing, out of range, does not fit), ST_UNSUPPORTED
 * (architecture, scaling, feature), with err.field = the key.
 */
#ifndef HEARTH_MODEL_HPARAMS_H
#define HEARTH_MODEL_HPARAMS_H

#include "base/status.h"
#include "gguf/reader.h"
#include "model/arch.h"
#include "model/shape.h"

#define HPARAMS_MAX_EMBD    (1u << 20)
#define HPARAMS_MAX_FF      (1u << 24)
#define HPARAMS_MAX_VOCAB   (1u << 24)
#define HPARAMS_MAX_CONTEXT (1u << 30)

typedef struct hparams {
    const arch *arch;
    model_shape shape;
    float rms_eps;
    double rope_base;
    double rope_divisor; /* linear scaling: positions are divided by it; 1 = none */
} hparams;

status hparams_read(const gguf_file *f, hparams *out, err *e);

#endif
