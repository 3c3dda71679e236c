/*
 * model: a GGUF file as something that can be computed: hyper-parameters, architecture table, weights (where
 * they lie in the mapping), and the forward pass.
 *
 * Immutable after model_open and model_pack but for its workspace, which one forward call at a time uses. It borrows the
 * gguf_file and the kernel table: both must outlive it. Errors at opening: ST_LOAD_FAILED or ST_UNSUPPORTED
 * with the key or tensor named (missing, wrong shape with both shapes, type without kernel, sizes that do not
 * fit together, vocabulary unlike the embedding's rows); ST_INVALID_FIELD for an option out of range;
 * ST_NOMEM.
 */
#ifndef HEARTH_MODEL_MODEL_H
#define HEARTH_MODEL_MODEL_H

#include "base/pool.h"
#include "gguf/reader.h"
#include "kern/kern.h"
#include "model/forward.h"
#include "model/pack_file.h"
#include "model/shape.h"

typedef struct model model;

typedef struct model_options {
    kv_type kv_type;
    size_t max_rows;       /* 1 … 4096 */
    size_t max_logit_rows; /* 1 … max_rows */
} model_options;

status model_open(const gguf_file *f, const kern_table *kern, const model_options *opt, model **out, err *e);
void model_free(model *m);

/* How the matrices come into the layout that the kernel table wants. */
typedef struct model_pack_options {
    pack_file
        *file; /* borrowed during the call: where they are, or will be, on disk; NULL = pack in memory */
    bool huge_pages; /* copy what the file holds into memory of huge pages instead of mapping it */
    bool touch;      /* of a mapping, wait for all of it to be in memory */
    void (*progress)(void *ctx, double done); /* 0 … 1, may be NULL */
    void *progress_ctx;
} model_pack_options;

/* Once, before the first forward call: packs the matrices that the table wants packed. Nothing if it wants none.
 * A file that cannot be used is one line in the log, and they are packed in memory. ST_NOMEM. */
status model_pack(model *m, pool *p, const model_pack_options *opt, err *e);
/* Whether model_pack has something to do: matrices that the table wants packed. */
bool model_wants_packing(const model *m);
uint64_t model_packed_bytes(const model *m); /* of all of these; 0: there are none */
/* Whether the address lies in packed weights that are a mapping of a file. Async-signal-safe. */
bool model_maps(const model *m, const void *address);
/* Whether a tensor of the file is read while the model runs, packed or not. */
bool model_reads_tensor(const model *m, const gguf_tensor *t);
/* Memory of its own, beside packed weights, that forward calls on so many threads for so many replies use. */
uint64_t model_scratch_bytes(const model *m, size_t n_threads, size_t n_replies);

const model_shape *model_shape_of(const model *m);
/* The table whose ctx is m; m must outlive it. */
forward_ops model_forward_ops(model *m);
/* "llama", "qwen3" …, in the order of the table; NULL past the end (doctor, errors). */
const char *model_arch_name(size_t i);
/* Bytes of weights that one token reads (matrices of all layers and the output; one embedding row). */
uint64_t model_bytes_per_token(const model *m);
/* Calls fn for each matrix that a token is multiplied with: those of the layers in order, then the output. */
void model_each_matrix(const model *m, void (*fn)(void *ctx, const kern_matrix *w), void *ctx);
/* Parameters in all tensors. */
uint64_t model_params(const model *m);
/* SHA-256 of the model's bytes, one file after the other, if it is known without reading them (from a packed
 * file), else NULL. */
const uint8_t *model_digest(const model *m);
/* The most common matrix type, "Q4_K" …: what people call the quantisation of the file. */
const char *model_quant_name(const model *m);

#endif
