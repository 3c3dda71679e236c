/*
 * quantize_stream: the values of one tensor after the other, decoded, checked and encoded again while they are
 * written. Memory is one slice, whatever the size of the tensor: rows are whole blocks and lie one after the
 * other, so any run of 256 values begins and ends with blocks. The chunks of a slice are shared among the
 * pool; the bytes, and the error that is counted, do not depend on how.
 *
 * One owner thread. Errors: ST_NONFINITE (a value that is not finite, in the file or once it is written: the
 * message has tensor, row and column), ST_MODEL_CHANGED, ST_CANCELLED.
 */
#ifndef HEARTH_CMD_QUANTIZE_STREAM_H
#define HEARTH_CMD_QUANTIZE_STREAM_H

#include <signal.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "cmd/quantize_plan.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

typedef struct quantize_stream quantize_stream;

/* Borrows all three until free. A stop that is not 0 ends the work with ST_CANCELLED. */
status quantize_stream_new(const gguf_file *f, pool *p, const volatile sig_atomic_t *stop,
                           quantize_stream **out, err *e);
void quantize_stream_free(quantize_stream *s);
/* Adds the next tensor of the file (in order, all of them) to the writer, which then asks for its data. */
status quantize_stream_add(quantize_stream *s, gguf_writer *w, const quantize_step *step, err *e);
/* Once all is written: the root of the mean squared difference, over the values of all matrices; 0 without. */
double quantize_stream_rms(const quantize_stream *s);

#endif
