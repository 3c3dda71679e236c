/*
 * Rule 3 as it stands: spans of 256 absolute positions, each with its own largest score m, sum l and weighted
 * values o, merged from left to right (the running softmax of Milakov and Gimelshein, arXiv 1805.02867, over
 * fixed spans), the sink last. One query head of one row after the other.
 */
#include <math.h>
#include <string.h>

#include "kern/fmath.h"
#include "kern/ref/ref.h"

/* What a run of positions has come to. */
typedef struct partial {
    float m;  /* largest score */
    float l;  /* sum of exp(score - m) */
    float *o; /* [v_dim] values weighted by it */
} partial;

static const unsigned char *head_of(const kern_attn *a, int32_t pos)
{
    const kv_layer *l = a->layer;
    return (const unsigned char *)a->pages[pos / KV_PAGE_TOKENS] + l->offset_bytes +
           a->kv_head * l->head_bytes;
}

static float score_of(const kern_attn *a, const float *q, int32_t pos)
{
    const unsigned char *head = head_of(a, pos);
    size_t slot = (size_t)pos % KV_PAGE_TOKENS;
    float s = 0;
    for (size_t d = 0; d < a->layer->k_dim; d++) {
        s = fmaf(q[d], kv_key_ref(head, a->layer, a->type, slot, d), s);
    }
    s *= a->scale;
    return a->soft_cap > 0 ? a->soft_cap * fm_tanh(s / a->soft_cap) : s;
}

/* The visible positions first … last of one span. p: [256], room for the scores. */
static void span_visit(const kern_attn *a, const float *q, int32_t first, int32_t last, float *p,
                       partial *out)
{
    float lane[16] = {0};
    for (int32_t pos = first; pos <= last; pos++) {
        float s = score_of(a, q, pos);
        p[pos % KERN_SPAN] = s;
        out->m = pos == first || s > out->m ? s : out->m;
    }
    for (int32_t pos = first; pos <= last; pos++) {
        float below = p[pos % KERN_SPAN] - out->m;
        float e = below < KERN_ATTN_FLOOR ? 0.0f : fm_exp(below);
        p[pos % KERN_SPAN] = e;
        lane[pos % 16] += e; /* 16 divides 256: counted within the span */
    }
    out->l = lanes_sum_ref(lane);
    for (size_t d = 0; d < a->layer->v_dim; d++) {
        float o = 0;
        for (int32_t pos = first; pos <= last; pos++) {
            size_t slot = (size_t)pos % KV_PAGE_TOKENS;
            o = fmaf(p[pos % KERN_SPAN], kv_value_ref(head_of(a, pos), a->layer, a->type, slot, d), o);
        }
        out->o[d] = o;
    }
}

/* What of a span a row sees; false if nothing. */
static bool span_seen(const kern_attn_seen *seen, size_t span, int32_t *first, int32_t *last)
{
    int32_t begin = (int32_t)span * KERN_SPAN, end = begin + (KERN_SPAN - 1);
    *first = seen->first > begin ? seen->first : begin;
    *last = seen->last < end ? seen->last : end;
    return *first <= *last;
}

/* Takes `next` in at the right. */
static void merge(partial *run, const partial *next, size_t v_dim)
{
    float m = next->m > run->m ? next->m : run->m;
    float a = fm_exp(run->m - m);
    float b = fm_exp(next->m - m);
    run->m = m;
    run->l = fmaf(run->l, a, next->l * b);
    for (size_t d = 0; d < v_dim; d++) {
        run->o[d] = fmaf(run->o[d], a, next->o[d] * b);
    }
}

/* The sink, and the division. next: room. */
static void finish(const kern_attn *a, size_t row, size_t head, partial *run, partial *next)
{
    size_t v_dim = a->layer->v_dim;
    float *out = a->out + row * a->out_stride + head * v_dim;
    if (a->sinks) {
        next->m = a->sinks[head];
        next->l = 1;
        memset(next->o, 0, v_dim * sizeof(float));
        merge(run, next, v_dim);
    }
    for (size_t d = 0; d < v_dim; d++) {
        out[d] = run->o[d] / run->l;
    }
}

static void head_attend(const kern_attn *a, size_t row, size_t head)
{
    const kern_attn_seen *seen = &a->seen[row];
    const float *q = a->q + row * a->q_stride + head * a->layer->k_dim;
    float *p = a->scratch;
    partial run = {.o = p + KERN_SPAN};
    partial next = {.o = run.o + a->layer->v_dim};
    size_t span0 = (size_t)seen->first / KERN_SPAN;
    for (size_t span = span0; span <= (size_t)seen->last / KERN_SPAN; span++) {
        int32_t first, last;
        span_seen(seen, span, &first, &last);
        span_visit(a, q, first, last, p, span == span0 ? &run : &next);
        if (span != span0) {
            merge(&run, &next, a->layer->v_dim);
        }
    }
    finish(a, row, head, &run, &next);
}

void attention_ref(const kern_attn *a)
{
    for (size_t i = 0; i < a->n_rows * a->n_q; i++) {
        head_attend(a, i / a->n_q, i % a->n_q);
    }
}

void attention_spans_ref(const kern_attn *a, size_t span0, size_t span1, float *parts)
{
    size_t n = a->n_rows * a->n_q;
    for (size_t i = 0; i < (span1 - span0) * n; i++) {
        size_t row = i % n / a->n_q, head = i % a->n_q;
        float *part = parts + i * KERN_ATTN_PART(a->layer->v_dim);
        partial out = {.o = part};
        int32_t first, last;
        if (span_seen(&a->seen[row], span0 + i / n, &first, &last)) {
            span_visit(a, a->q + row * a->q_stride + head * a->layer->k_dim, first, last, a->scratch, &out);
            part[a->layer->v_dim] = out.m;
            part[a->layer->v_dim + 1] = out.l;
        }
    }
}

static partial part_of(const kern_attn *a, const float *parts, size_t i, float *o)
{
    size_t v_dim = a->layer->v_dim;
    const float *part = parts + i * KERN_ATTN_PART(v_dim);
    memcpy(o, part, v_dim * sizeof(float));
    return (partial){.m = part[v_dim], .l = part[v_dim + 1], .o = o};
}

void attention_join_ref(const kern_attn *a, size_t span0, const float *parts)
{
    size_t n = a->n_rows * a->n_q;
    float *next_o = a->scratch + a->layer->v_dim;
    for (size_t i = 0; i < n; i++) {
        const kern_attn_seen *seen = &a->seen[i / a->n_q];
        size_t span = (size_t)seen->first / KERN_SPAN;
        partial run = part_of(a, parts, (span - span0) * n + i, a->scratch);
        partial next = {.o = next_o};
        for (span++; span <= (size_t)seen->last / KERN_SPAN; span++) {
            next = part_of(a, parts, (span - span0) * n + i, next_o);
            merge(&run, &next, a->layer->v_dim);
        }
        finish(a, i / a->n_q, i % a->n_q, &run, &next);
    }
}
