/*
 * writer: makes a GGUF v3 file. Keys and tensors are added first (copied), then gguf_writer_finish writes
 * header, table and the data in the order added, padded to the alignment, through a temporary file in the
 * same folder, fsync and rename: the target is whole or untouched. One owner thread. Duplicate keys and
 * tensors are refused.
 */
#ifndef HEARTH_GGUF_WRITER_H
#define HEARTH_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "gguf/reader.h"

typedef struct gguf_writer gguf_writer;

status gguf_writer_new(gguf_writer **out); /* alignment 32 */
void gguf_writer_free(gguf_writer *w);

status gguf_writer_u32(gguf_writer *w, const char *key, uint32_t v);
status gguf_writer_i32(gguf_writer *w, const char *key, int32_t v);
status gguf_writer_u64(gguf_writer *w, const char *key, uint64_t v);
status gguf_writer_f32(gguf_writer *w, const char *key, float v);
status gguf_writer_bool(gguf_writer *w, const char *key, bool v);
status gguf_writer_str(gguf_writer *w, const char *key, const char *s, size_t len);
status gguf_writer_array(gguf_writer *w, const char *key, gguf_value_type elem, const void *data, size_t n);
status gguf_writer_str_array(gguf_writer *w, const char *key, const gguf_str *strs, size_t n);
/* Copies one pair of a file as it stands (quantize, convert). */
status gguf_writer_copy_kv(gguf_writer *w, const gguf_kv *kv);

/* dims[0] = row length. data (n_bytes for type and dims) is borrowed until finish. */
status gguf_writer_tensor(gguf_writer *w, const char *name, gguf_type type, const uint64_t *dims,
                          uint32_t n_dims, const void *data, err *e);
/*
 * A tensor whose data finish asks for piece by piece (so that memory need not hold it): at least one byte of
 * what comes from `offset` on, no more than is left of the tensor, valid until the next call. Pieces are asked
 * for in order, on finish's thread; an error ends finish and is returned, the target untouched.
 */
typedef status (*gguf_piece_fn)(void *ctx, uint64_t offset, const void **data, uint64_t *n_bytes, err *e);
status gguf_writer_tensor_pieces(gguf_writer *w, const char *name, gguf_type type, const uint64_t *dims,
                                 uint32_t n_dims, gguf_piece_fn fn, void *ctx, err *e);
status gguf_writer_finish(gguf_writer *w, const char *path, err *e);

#endif
