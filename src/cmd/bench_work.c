#include "cmd/bench_work.h"

#include "base/mem.h"
#include "base/mem_limit.h"
#include "kern/pack.h"
#include "model/model.h"

#define SMALL_BYTES ((uint64_t)64 << 20)

/* Called for each matrix, the output last: what it was before belongs to the layers. */
static void add_size(void *ctx, const kern_matrix *m)
{
    bench_work *w = ctx;
    bool packed = w->kern->wants_packed[m->type] && m->packed;
    w->layer_bytes += w->output_bytes;
    w->layer_values += w->output_values;
    w->output_bytes = packed ? kern_packed_bytes(m->type, m->n, m->k) : (uint64_t)m->n * m->row_bytes;
    kern_act_kind kind = kern_act_kind_of(m->type);
    w->output_values = kind == KERN_ACT_Q8_32 || kind == KERN_ACT_Q8_256 ? (uint64_t)m->n * m->k : 0;
    w->n_pieces += read_pieces_cut(NULL, (size_t)w->output_bytes, NULL, 0);
}

static void add_pieces(void *ctx, const kern_matrix *m)
{
    bench_work *w = ctx;
    bool packed = w->kern->wants_packed[m->type] && m->packed;
    uint64_t n_bytes = packed ? kern_packed_bytes(m->type, m->n, m->k) : (uint64_t)m->n * m->row_bytes;
    w->n_pieces +=
        read_pieces_cut(packed ? m->packed : m->data, (size_t)n_bytes, w->pieces + w->n_pieces, SIZE_MAX);
}

static void choose_buffer(bench_work *w)
{
    mem_limit memory;
    mem_limit_read(NULL, &memory);
    read_buffer_init(&w->buffer, mem_limit_bytes(&memory) / 8);
    w->n_pieces = w->buffer.data ? read_pieces_cut(w->buffer.data, w->buffer.n_bytes, NULL, 0) : 0;
}

status bench_work_init(bench_work *w, instance *in, const kern_table *kern, err *e)
{
    const forward_ops *ops = instance_forward(in);
    const model *m = ops->ctx; /* model_forward_ops says so */
    *w = (bench_work){
        .kern = kern, .kv_bytes = (double)ops->page_bytes / KV_PAGE_TOKENS, .max_rows = ops->max_rows};
    model_each_matrix(m, add_size, w);
    w->own_weights = w->layer_bytes + w->output_bytes >= SMALL_BYTES;
    if (!w->own_weights) {
        choose_buffer(w);
    }
    w->pieces = mem_alloc_array(w->n_pieces, sizeof *w->pieces);
    if (!w->pieces) {
        bench_work_release(w);
        return err_set(e, ST_NOMEM, NULL, "out of memory for %zu pieces to read", w->n_pieces);
    }
    if (w->own_weights) {
        w->n_pieces = 0;
        model_each_matrix(m, add_pieces, w);
    } else {
        read_pieces_cut(w->buffer.data, w->buffer.n_bytes, w->pieces, w->n_pieces);
    }
    return ST_OK;
}

void bench_work_release(bench_work *w)
{
    read_buffer_release(&w->buffer);
    mem_free(w->pieces);
    *w = (bench_work){0};
}

double bench_work_limit(const bench_work *w, const bench_result *what, double gbs, double tops,
                        bool *by_matrix)
{
    double n = (double)what->n, lanes = (double)what->batch, depth = (double)what->depth;
    double weights = (double)w->layer_bytes + (double)w->output_bytes;
    double bytes, ops;
    if (what->test == BENCH_DECODE) {
        double positions = (depth > 0 ? depth : 1) + (n + 1) / 2; /* seen by a token, on average */
        bytes = n * (weights + lanes * positions * w->kv_bytes);
        ops = 2 * n * lanes * ((double)w->layer_values + (double)w->output_values);
    } else {
        size_t steps = (what->n * what->batch + w->max_rows - 1) / w->max_rows;
        bytes =
            (double)steps * (double)w->layer_bytes + (double)w->output_bytes + lanes * depth * w->kv_bytes;
        ops = 2 * lanes * (n * (double)w->layer_values + (double)w->output_values);
    }
    double read_s = gbs > 0 ? bytes / (gbs * 1e9) : 0;
    double matrix_s = tops > 0 ? ops / (tops * 1e12) : 0;
    *by_matrix = matrix_s > read_s;
    return gbs > 0 ? n * lanes / (*by_matrix ? matrix_s : read_s) : 0;
}
