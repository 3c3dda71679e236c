#include "cmd/quantize_stream.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/model_options.h"
#include "gguf/quant.h"

#define CHUNK_VALUES 1024u /* whole blocks of every type */
#define SLICE_CHUNKS 64u

typedef struct tensor_source {
    quantize_stream *stream; /* borrowed */
    const gguf_tensor *t;    /* borrowed */
    quantize_step step;
} tensor_source;

typedef struct chunk_result {
    double error; /* sum of squares */
    size_t bad;   /* first value that is not finite; CHUNK_VALUES if all are */
    float value;  /* that one as it stands in the file */
} chunk_result;

struct quantize_stream {
    /* owned */
    tensor_source *sources; /* [n_tensors] */
    float *values;          /* [threads][2][CHUNK_VALUES]: before, after */
    uint8_t *blocks;        /* of a slice */

    /* borrowed */
    const gguf_file *file;
    pool *pool;
    const volatile sig_atomic_t *stop;

    size_t n_added;
    double error;                   /* sum of squares */
    uint64_t n_values;              /* of the matrices */
    uint64_t bytes_done, bytes_all; /* of the file's tensors */

    /* the slice that the pool works on */
    const tensor_source *now;
    uint64_t first; /* value of the tensor */
    size_t n;
    chunk_result results[SLICE_CHUNKS];
};

status quantize_stream_new(const gguf_file *f, pool *p, const volatile sig_atomic_t *stop,
                           quantize_stream **out, err *e)
{
    quantize_stream *s = mem_calloc(1, sizeof *s);
    if (s) {
        s->file = f;
        s->pool = p;
        s->stop = stop;
        s->sources = mem_calloc(gguf_n_tensors(f) + 1, sizeof *s->sources);
        s->values = mem_alloc_array(pool_threads(p), 2 * CHUNK_VALUES * sizeof *s->values);
        s->blocks = mem_alloc_array(SLICE_CHUNKS * CHUNK_VALUES, sizeof(float)); /* F32 is the widest */
    }
    if (!s || !s->sources || !s->values || !s->blocks) {
        quantize_stream_free(s);
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    for (size_t i = 0; i < gguf_n_tensors(f); i++) {
        s->bytes_all += gguf_tensor_at(f, i)->n_bytes;
    }
    *out = s;
    return ST_OK;
}

void quantize_stream_free(quantize_stream *s)
{
    if (s) {
        mem_free(s->blocks);
        mem_free(s->values);
        mem_free(s->sources);
        mem_free(s);
    }
}

/* Bytes before value `at` of a tensor, the first of a block. Fits: the file's table was checked. */
static uint64_t offset_of(gguf_type type, uint64_t at)
{
    gguf_type_info info = gguf_type_info_of((uint32_t)type);
    assert(info.block_values > 0);
    return at / info.block_values * info.block_bytes;
}

static size_t first_bad(const float *x, size_t n)
{
    size_t i = 0;
    while (i < n && isfinite(x[i])) {
        i++;
    }
    return i < n ? i : CHUNK_VALUES;
}

static double squared_error(const float *x, const float *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i] - (double)y[i];
        sum += d * d;
    }
    return sum;
}

static void encode_chunk(void *arg, size_t task, size_t thread)
{
    quantize_stream *s = arg;
    const tensor_source *src = s->now;
    size_t at = task * CHUNK_VALUES;
    size_t n = s->n - at < CHUNK_VALUES ? s->n - at : CHUNK_VALUES;
    float *before = s->values + thread * 2 * CHUNK_VALUES;
    float *after = before + CHUNK_VALUES;
    uint8_t *blocks = s->blocks + offset_of(src->step.type, at);
    chunk_result r = {0};

    quant_dequantise(src->t->type, (const uint8_t *)src->t->data + offset_of(src->t->type, s->first + at),
                     before, n);
    r.bad = first_bad(before, n);
    if (r.bad == CHUNK_VALUES) {
        quant_quantise(src->step.type, before, blocks, n);
        quant_dequantise(src->step.type, blocks, after, n);
        r.bad = first_bad(after, n); /* F16 and BF16 may round to infinity */
        r.error = squared_error(before, after, n);
    }
    r.value = r.bad < n ? before[r.bad] : 0;
    s->results[task] = r;
}

static status refuse(const tensor_source *src, uint64_t at, float value, err *e)
{
    char name[GGUF_MAX_TENSOR_NAME_BYTES + 1];
    memcpy(name, src->t->name.data, src->t->name.len);
    name[src->t->name.len] = 0;
    unsigned long long row = at / src->t->dims[0], column = at % src->t->dims[0];
    if (isfinite(value)) {
        return err_set(e, ST_NONFINITE, name, "tensor %s, row %llu, column %llu: %g is too large for %s",
                       name, row, column, (double)value, gguf_type_info_of((uint32_t)src->step.type).name);
    }
    return err_set(e, ST_NONFINITE, name, "tensor %s, row %llu, column %llu: the value is %s", name, row,
                   column, isnan(value) ? "not a number" : "infinite");
}

/* Adds up in order, so that the sum does not depend on the threads. */
static status take_results(quantize_stream *s, size_t n_chunks, err *e)
{
    for (size_t i = 0; i < n_chunks; i++) {
        const chunk_result *r = &s->results[i];
        if (r->bad < CHUNK_VALUES) {
            return refuse(s->now, s->first + i * CHUNK_VALUES + r->bad, r->value, e);
        }
        s->error += r->error; /* 0 for what became F32 */
    }
    s->n_values += s->now->step.is_matrix ? s->n : 0;
    return ST_OK;
}

static status encode_slice(quantize_stream *s, const tensor_source *src, uint64_t offset, err *e)
{
    const gguf_type_info to = gguf_type_info_of((uint32_t)src->step.type);
    assert(to.block_bytes > 0); /* the plan knows the type */
    uint64_t n_all = src->t->dims[0] * src->t->dims[1] * src->t->dims[2] * src->t->dims[3];
    s->now = src;
    s->first = offset / to.block_bytes * to.block_values;
    uint64_t left = n_all - s->first;
    s->n = left < SLICE_CHUNKS * CHUNK_VALUES ? (size_t)left : SLICE_CHUNKS * CHUNK_VALUES;
    size_t n_chunks = (s->n + CHUNK_VALUES - 1) / CHUNK_VALUES;
    pool_run(s->pool, encode_chunk, s, n_chunks);
    return take_results(s, n_chunks, e);
}

static status next_piece(void *ctx, uint64_t offset, const void **data, uint64_t *n_bytes, err *e)
{
    static char label[] = "quantizing";
    const tensor_source *src = ctx;
    quantize_stream *s = src->stream;
    if (*s->stop) {
        return err_set(e, ST_CANCELLED, NULL, "interrupted");
    }
    if (src->step.is_copy) {
        *data = src->t->data;
        *n_bytes = src->t->n_bytes;
        s->bytes_done += src->t->n_bytes;
    } else {
        status st = encode_slice(s, src, offset, e);
        if (st != ST_OK) {
            return st;
        }
        *data = s->blocks;
        *n_bytes = quant_row_bytes(src->step.type, s->n);
        s->bytes_done += quant_row_bytes(src->t->type, s->n);
    }
    if (gguf_changed(s->file)) { /* what was just read may be of neither version */
        return err_set(e, ST_MODEL_CHANGED, NULL, "the file was changed while it was read");
    }
    progress_bar(label, (double)s->bytes_done / (double)s->bytes_all);
    return ST_OK;
}

status quantize_stream_add(quantize_stream *s, gguf_writer *w, const quantize_step *step, err *e)
{
    const gguf_tensor *t = gguf_tensor_at(s->file, s->n_added);
    char name[GGUF_MAX_TENSOR_NAME_BYTES + 1];
    memcpy(name, t->name.data, t->name.len);
    name[t->name.len] = 0;
    tensor_source *src = &s->sources[s->n_added];
    *src = (tensor_source){.stream = s, .t = t, .step = *step};
    status st = gguf_writer_tensor_pieces(w, name, step->type, t->dims, t->n_dims, next_piece, src, e);
    s->n_added += st == ST_OK;
    return st;
}

double quantize_stream_rms(const quantize_stream *s)
{
    return s->n_values ? sqrt(s->error / (double)s->n_values) : 0;
}
