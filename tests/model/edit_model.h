/*
 * edit_model: a copy of a GGUF file with some keys and tensors changed: how tests make files that are wrong
 * in one place.
 */
#ifndef HEARTH_TESTS_MODEL_EDIT_MODEL_H
#define HEARTH_TESTS_MODEL_EDIT_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "gguf/blocks.h"

typedef enum edit_kind {
    EDIT_NONE,
    EDIT_DROP,   /* the key or tensor `name` */
    EDIT_U32,    /* key = number */
    EDIT_F32,    /* key = number */
    EDIT_STR,    /* key = text */
    EDIT_ARRAY,  /* key = list as array of i32 */
    EDIT_TENSOR, /* replaces or adds: type, dims, data */
} edit_kind;

#define EDIT_MAX_LIST 4

typedef struct model_edit {
    edit_kind kind;
    const char *name;
    double number;
    const char *text;
    int32_t list[EDIT_MAX_LIST];
    size_t n_list;
    gguf_type type;
    uint64_t dims[2]; /* dims[1] = 0: a vector */
    const void *data; /* NULL: zeros, of which there is 1 MiB */
} model_edit;

status edit_model(const char *in, const char *out, const model_edit *edits, size_t n_edits, err *e);

#endif
