/*
 * quantize_plan: which type each tensor of a file gets when the file is written as TYPE, and what the format
 * calls that file. Other runtimes expect what is not multiplied by activations (vectors, norms, positions,
 * the choice of experts) as F32, so TYPE is for the matrices. Pure functions, any thread.
 */
#ifndef HEARTH_CMD_QUANTIZE_PLAN_H
#define HEARTH_CMD_QUANTIZE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "gguf/reader.h"

typedef struct quantize_step {
    gguf_type type;
    bool is_matrix;   /* one of those that TYPE is for */
    bool is_fallback; /* a matrix that became F16, as its rows are not whole blocks of TYPE */
    bool is_copy;     /* integers and F64: the bytes stay as they are */
} quantize_step;

/* "q4_k" or "Q4_K"; false for what quantise cannot write. */
bool quantize_type_parse(const char *text, gguf_type *out);
/* Appends the names of all types that can be written, with blanks between them. */
status quantize_type_list(buf *out);
/* general.file_type of a file whose matrices have this type. */
uint32_t quantize_file_type(gguf_type type);
/* ST_UNSUPPORTED for a tensor that cannot be decoded, or that is quantised already and TYPE is no float
 * type: a second loss on top of the first. */
status quantize_plan(const gguf_tensor *t, gguf_type wanted, quantize_step *out, err *e);

#endif
