/*
 * The forward pass of a pre-norm decoder, all positions at once, every number a double.
 *
 *   x = embedding
 *   each layer:  h = norm(x);  q, k, v = Wq h, Wk h, Wv h;  [norm each head of q, k];  rotate q, k
 *                x += Wo attention(q, k, v)
 *                h = norm(x);  x += Wdown (silu(Wgate h) * Wup h)
 *   logits = Wout norm(x)
 */
#include "oracle_int.h"

#include <math.h>
#include <stdlib.h>

/* Working rows of one call, [n][...] each. */
struct work {
    size_t n;
    double *x;      /* [n][n_embd] residual stream */
    double *h;      /* [n][n_embd] normed copy, later the branch's result */
    double *q;      /* [n][n_head * head_k] */
    double *k;      /* [n][n_head_kv * head_k] */
    double *v;      /* [n][n_head_kv * head_v] */
    double *mixed;  /* [n][n_head * head_v] */
    double *gate;   /* [n][n_ff] */
    double *up;     /* [n][n_ff] */
    double *scores; /* [n] */
};

/* y [n][rows of w] = x [n][k of w] times w transposed */
static bool linear(const struct oracle_tensor *w, const double *x, size_t n, double *y)
{
    return oracle_matmul_rows(w->type, w->data, w->rows, w->k, x, n, y, NULL, NULL);
}

/* Rows of width w->k, each divided by its root mean square and scaled by w. in and out may be the same. */
static void rms_norm(const struct oracle_tensor *w, double eps, const double *in, size_t n_rows, double *out)
{
    float *weight = oracle_alloc(w->k, sizeof *weight);

    oracle_dequant(w->type->id, w->data, w->k, weight);
    for (size_t r = 0; r < n_rows; r++) {
        const double *a = in + r * w->k;
        double *b = out + r * w->k;
        double squares = 0.0, scale;

        for (size_t i = 0; i < w->k; i++)
            squares += a[i] * a[i];
        scale = 1.0 / sqrt(squares / (double)w->k + eps);
        for (size_t i = 0; i < w->k; i++)
            b[i] = a[i] * scale * (double)weight[i];
    }
    free(weight);
}

/* Rotates the first n_rot dimensions of each of n_heads heads, row t by the angles of position t. */
static void rope(const oracle_model *m, double *rows, size_t n, size_t n_heads)
{
    size_t half = m->n_rot / 2;

    for (size_t t = 0; t < n; t++) {
        for (size_t h = 0; h < n_heads; h++) {
            double *head = rows + (t * n_heads + h) * m->head_k;
            for (size_t i = 0; i < half; i++) {
                double *a = &head[m->arch->rope_split_half ? i : 2 * i];
                double *b = &head[m->arch->rope_split_half ? i + half : 2 * i + 1];
                double angle = (double)t * m->rope_freq[i];
                double c = cos(angle), s = sin(angle);
                double a0 = *a, b0 = *b;
                *a = a0 * c - b0 * s;
                *b = a0 * s + b0 * c;
            }
        }
    }
}

/* Turns scores [n] into weights that sum to 1. */
static void softmax(double *scores, size_t n)
{
    double highest = scores[0], sum = 0.0;

    for (size_t j = 1; j < n; j++)
        highest = fmax(highest, scores[j]);
    for (size_t j = 0; j < n; j++) {
        scores[j] = exp(scores[j] - highest);
        sum += scores[j];
    }
    for (size_t j = 0; j < n; j++)
        scores[j] /= sum;
}

/* One query head of position t looks at positions 0..t of its key-value head. */
static void attend(const oracle_model *m, const struct work *w, size_t t, size_t head)
{
    size_t kv = head / (m->n_head / m->n_head_kv);
    const double *q = w->q + (t * m->n_head + head) * m->head_k;
    double *out = w->mixed + (t * m->n_head + head) * m->head_v;

    for (size_t j = 0; j <= t; j++) {
        const double *k = w->k + (j * m->n_head_kv + kv) * m->head_k;
        double dot = 0.0;
        for (size_t i = 0; i < m->head_k; i++)
            dot += q[i] * k[i];
        w->scores[j] = dot / sqrt((double)m->head_k);
    }
    softmax(w->scores, t + 1);
    for (size_t i = 0; i < m->head_v; i++)
        out[i] = 0.0;
    for (size_t j = 0; j <= t; j++) {
        const double *v = w->v + (j * m->n_head_kv + kv) * m->head_v;
        for (size_t i = 0; i < m->head_v; i++)
            out[i] += w->scores[j] * v[i];
    }
}

static void add(double *x, const double *branch, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += branch[i];
}

static bool attention_block(const oracle_model *m, const struct oracle_layer *b, struct work *w)
{
    rms_norm(b->attn_norm, m->norm_eps, w->x, w->n, w->h);
    if (!linear(b->q, w->h, w->n, w->q) || !linear(b->k, w->h, w->n, w->k) || !linear(b->v, w->h, w->n, w->v))
        return false;
    if (b->q_norm) {
        rms_norm(b->q_norm, m->norm_eps, w->q, w->n * m->n_head, w->q);
        rms_norm(b->k_norm, m->norm_eps, w->k, w->n * m->n_head_kv, w->k);
    }
    rope(m, w->q, w->n, m->n_head);
    rope(m, w->k, w->n, m->n_head_kv);
    for (size_t t = 0; t < w->n; t++) {
        for (size_t head = 0; head < m->n_head; head++)
            attend(m, w, t, head);
    }
    if (!linear(b->o, w->mixed, w->n, w->h))
        return false;
    add(w->x, w->h, w->n * m->n_embd);
    return true;
}

static bool ffn_block(const oracle_model *m, const struct oracle_layer *b, struct work *w)
{
    rms_norm(b->ffn_norm, m->norm_eps, w->x, w->n, w->h);
    if (!linear(b->gate, w->h, w->n, w->gate) || !linear(b->up, w->h, w->n, w->up))
        return false;
    for (size_t i = 0; i < w->n * m->n_ff; i++)
        w->gate[i] = w->gate[i] / (1.0 + exp(-w->gate[i])) * w->up[i];
    if (!linear(b->down, w->gate, w->n, w->h))
        return false;
    add(w->x, w->h, w->n * m->n_embd);
    return true;
}

static void embed(const oracle_model *m, const int32_t *tokens, struct work *w)
{
    size_t row_bytes = m->n_embd / m->embd->type->values * m->embd->type->bytes;
    float *row = oracle_alloc(m->n_embd, sizeof *row);

    for (size_t t = 0; t < w->n; t++) {
        oracle_dequant(m->embd->type->id, m->embd->data + (size_t)tokens[t] * row_bytes, m->n_embd, row);
        for (size_t i = 0; i < m->n_embd; i++)
            w->x[t * m->n_embd + i] = (double)row[i];
    }
    free(row);
}

static void work_init(struct work *w, const oracle_model *m, size_t n)
{
    w->n = n;
    w->x = oracle_alloc(n * m->n_embd, sizeof(double));
    w->h = oracle_alloc(n * m->n_embd, sizeof(double));
    w->q = oracle_alloc(n * m->n_head * m->head_k, sizeof(double));
    w->k = oracle_alloc(n * m->n_head_kv * m->head_k, sizeof(double));
    w->v = oracle_alloc(n * m->n_head_kv * m->head_v, sizeof(double));
    w->mixed = oracle_alloc(n * m->n_head * m->head_v, sizeof(double));
    w->gate = oracle_alloc(n * m->n_ff, sizeof(double));
    w->up = oracle_alloc(n * m->n_ff, sizeof(double));
    w->scores = oracle_alloc(n, sizeof(double));
}

static void work_release(struct work *w)
{
    double *parts[] = {w->x, w->h, w->q, w->k, w->v, w->mixed, w->gate, w->up, w->scores};

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        free(parts[i]);
}

/* The only rounding to float of the whole pass; out is written only if every logit is finite. */
static bool write_logits(const oracle_model *m, const struct work *w, float *out)
{
    double *row = oracle_alloc(w->n * m->n_vocab, sizeof *row);
    bool ok = linear(m->output, w->h, w->n, row);

    for (size_t i = 0; i < w->n * m->n_vocab && ok; i++)
        ok = isfinite((float)row[i]);
    for (size_t i = 0; i < w->n * m->n_vocab && ok; i++)
        out[i] = (float)row[i];
    free(row);
    return ok;
}

static bool write_hidden(const oracle_model *m, const struct work *w, float *out)
{
    bool ok = true;

    for (size_t i = 0; i < w->n * m->n_embd && ok; i++)
        ok = isfinite((float)w->h[i]);
    for (size_t i = 0; i < w->n * m->n_embd && ok; i++)
        out[i] = (float)w->h[i];
    return ok;
}

/* All layers and the last norm, then what `write` takes of it. */
static bool run(const oracle_model *m, const int32_t *tokens, size_t n,
                bool (*write)(const oracle_model *m, const struct work *w, float *out), float *out)
{
    struct work w;
    bool ok = true;

    if (n == 0)
        return false;
    for (size_t t = 0; t < n; t++) {
        if (tokens[t] < 0 || (size_t)tokens[t] >= m->n_vocab)
            return false;
    }
    work_init(&w, m, n);
    embed(m, tokens, &w);
    for (size_t i = 0; i < m->n_layers && ok; i++)
        ok = attention_block(m, &m->layers[i], &w) && ffn_block(m, &m->layers[i], &w);
    if (ok) {
        rms_norm(m->output_norm, m->norm_eps, w.x, n, w.h);
        ok = write(m, &w, out);
    }
    work_release(&w);
    return ok;
}

bool oracle_logits(const oracle_model *model, const int32_t *tokens, size_t n, float *out)
{
    return run(model, tokens, n, write_logits, out);
}

bool oracle_hidden(const oracle_model *model, const int32_t *tokens, size_t n, float *out)
{
    return run(model, tokens, n, write_hidden, out);
}
