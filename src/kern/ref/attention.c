/*
 * Rule 3 as it stands: spans of 256 absolute positions, each with its own largest score m, sum l and weighted
 * values o, merged from left to right (the running softmax of Milakov and Gimelshein, arXiv 1805.02867, over
 * fixed spans), the sink last. One query head after the other.
 */
#include <math.h>
#include <string.h>

#include "base/fp16.h"
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

static float value_load(const unsigned char *base, kv_type type, size_t index)
{
    if (type == KV_F16) {
        uint16_t h;
        memcpy(&h, base + index * sizeof h, sizeof h);
        return fp16_to_f32(h);
    }
    float x;
    memcpy(&x, base + index * sizeof x, sizeof x);
    return x;
}

static float score_of(const kern_attn *a, const float *q, int32_t pos)
{
    const unsigned char *k = head_of(a, pos);
    size_t slot = (size_t)pos % KV_PAGE_TOKENS;
    float s = 0;
    for (size_t d = 0; d < a->layer->k_dim; d++) {
        s = fmaf(q[d], value_load(k, a->type, d * KV_PAGE_TOKENS + slot), s);
    }
    s *= a->scale;
    return a->soft_cap > 0 ? a->soft_cap * fm_tanh(s / a->soft_cap) : s;
}

/* The visible positions first … last of one span. p: [256], room for the scores. */
static void span_visit(const kern_attn *a, const float *q, int32_t first, int32_t last, float *p,
                       partial *out)
{
    size_t v_dim = a->layer->v_dim;
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
    for (size_t d = 0; d < v_dim; d++) {
        float o = 0;
        for (int32_t pos = first; pos <= last; pos++) {
            const unsigned char *v = head_of(a, pos) + a->layer->v_bytes;
            size_t slot = (size_t)pos % KV_PAGE_TOKENS;
            o = fmaf(p[pos % KERN_SPAN], value_load(v, a->type, slot * v_dim + d), o);
        }
        out->o[d] = o;
    }
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

static void head_attend(const kern_attn *a, size_t i)
{
    size_t v_dim = a->layer->v_dim;
    const float *q = &a->q[i * a->layer->k_dim];
    float *p = a->scratch;
    partial run = {.o = p + KERN_SPAN};
    partial next = {.o = p + KERN_SPAN + v_dim};
    for (int32_t pos = a->first; pos <= a->last;) {
        int32_t end = pos - pos % KERN_SPAN + (KERN_SPAN - 1);
        end = end < a->last ? end : a->last;
        span_visit(a, q, pos, end, p, pos == a->first ? &run : &next);
        if (pos != a->first) {
            merge(&run, &next, v_dim);
        }
        pos = end + 1;
    }
    if (a->sinks) {
        next.m = a->sinks[i];
        next.l = 1;
        memset(next.o, 0, v_dim * sizeof(float));
        merge(&run, &next, v_dim);
    }
    for (size_t d = 0; d < v_dim; d++) {
        a->out[i * v_dim + d] = run.o[d] / run.l;
    }
}

void attention_ref(const kern_attn *a)
{
    for (size_t i = 0; i < a->n_q; i++) {
        head_attend(a, i);
    }
}
