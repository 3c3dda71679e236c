/*
 * attention: every set equal to the reference; the reference equal to rule 3 written a second time (over
 * plain arrays, below) and close to a plain softmax in double. K and V lie in pages in shuffled order, each
 * between forbidden pages, and every value that is not visible is NaN, in other layers and heads too.
 */
#include "kern_test.h"

#include "kern/fmath.h"

#define MAX_POS   768
#define MAX_PAGES (MAX_POS / 32)
#define MAX_Q     8
#define MAX_DIM   256

typedef struct shape {
    kv_type type;
    size_t n_q;
    uint32_t k_dim, v_dim;
    int32_t first, last;
    float soft_cap;
    bool sinks;
} shape;

/* One call of the kernel with all that it needs. */
typedef struct scene {
    shape s;
    kv_layer layers[2];
    guard pages[MAX_PAGES];
    const void *addresses[MAX_PAGES + 1];
    guard q, out, scratch, sinks;
    float k[MAX_POS][MAX_DIM]; /* as the page holds them: widened again */
    float v[MAX_POS][MAX_DIM];
    kern_attn a;
} scene;

static const size_t kv_head = 1;

static float narrowed(kv_type type, float x)
{
    return type == KV_F16 ? fp16_to_f32(fp16_from_f32(x)) : x;
}

static void value_put(unsigned char *head, kv_type type, size_t index, float x)
{
    uint16_t h = fp16_from_f32(x);
    memcpy(head + index * kv_type_bytes(type), type == KV_F16 ? (void *)&h : (void *)&x, kv_type_bytes(type));
}

static void nan_fill(guard *g, kv_type type)
{
    for (size_t i = 0; i < g->n_bytes / kv_type_bytes(type); i++) {
        value_put(g->data, type, i, NAN);
    }
}

static void pages_fill(scene *c, uint64_t *rng)
{
    const shape *s = &c->s;
    const kv_dims dims[2] = {{2, 16, 8}, {3, s->k_dim, s->v_dim}};
    size_t page_bytes, used[MAX_PAGES], n_pages = (size_t)s->last / 32 + 1;
    assert_int_equal(kv_layout_init(s->type, dims, 2, c->layers, &page_bytes), ST_OK);
    for (size_t p = 0; p < n_pages; p++) {
        c->pages[p] = guard_new(page_bytes, p % 2 ? GUARD_START : GUARD_END);
        nan_fill(&c->pages[p], s->type);
        used[p] = p;
    }
    for (size_t p = n_pages; p > 1; p--) { /* shuffle */
        size_t j = rng_next(rng) % p, kept = used[p - 1];
        used[p - 1] = used[j];
        used[j] = kept;
    }
    for (size_t p = 0; p < n_pages; p++) { /* pages before the window are gone */
        c->addresses[p] = (int32_t)p >= s->first / 32 ? c->pages[used[p]].data : NULL;
    }
    for (int32_t pos = s->first; pos <= s->last; pos++) {
        unsigned char *k =
            c->pages[used[pos / 32]].data + c->layers[1].offset_bytes + kv_head * c->layers[1].head_bytes;
        unsigned char *v = k + c->layers[1].v_bytes;
        size_t slot = (size_t)pos % 32;
        for (size_t d = 0; d < s->k_dim; d++) {
            c->k[pos][d] = narrowed(s->type, rng_float(rng));
            value_put(k, s->type, d * 32 + slot, c->k[pos][d]);
        }
        for (size_t d = 0; d < s->v_dim; d++) {
            c->v[pos][d] = narrowed(s->type, rng_float(rng));
            value_put(v, s->type, slot * s->v_dim + d, c->v[pos][d]);
        }
    }
}

static void scene_init(scene *c, const shape *s, uint64_t *rng)
{
    memset(c, 0, sizeof *c);
    c->s = *s;
    pages_fill(c, rng);
    c->q = guard_new(s->n_q * s->k_dim * sizeof(float), GUARD_END);
    c->out = guard_new(s->n_q * s->v_dim * sizeof(float), GUARD_END);
    c->scratch = guard_new(KERN_ATTN_SCRATCH(s->n_q, s->v_dim) * sizeof(float), GUARD_END);
    c->sinks = guard_new(s->n_q * sizeof(float), GUARD_END);
    rng_fill(rng, guard_floats(&c->q), s->n_q * s->k_dim);
    for (size_t i = 0; i < s->n_q * s->k_dim; i++) {
        guard_floats(&c->q)[i] *= 4; /* scores that differ by several units */
    }
    rng_fill(rng, guard_floats(&c->sinks), s->n_q);
    c->a = (kern_attn){
        .q = guard_floats(&c->q),
        .out = guard_floats(&c->out),
        .n_q = s->n_q,
        .layer = &c->layers[1],
        .type = s->type,
        .kv_head = kv_head,
        .pages = c->addresses,
        .first = s->first,
        .last = s->last,
        .scale = 1.0f / sqrtf((float)s->k_dim),
        .soft_cap = s->soft_cap,
        .sinks = s->sinks ? guard_floats(&c->sinks) : NULL,
        .scratch = guard_floats(&c->scratch),
    };
}

static void scene_release(scene *c)
{
    guard *one[] = {&c->q, &c->out, &c->scratch, &c->sinks};
    for (size_t i = 0; i < 4; i++) {
        guard_check(one[i]);
        guard_free(one[i]);
    }
    for (size_t p = 0; p < MAX_PAGES && c->pages[p].map; p++) {
        guard_check(&c->pages[p]);
        guard_free(&c->pages[p]);
    }
}

static void scene_run(scene *c, const kern_table *t)
{
    nan_fill(&c->out, KV_F32);
    nan_fill(&c->scratch, KV_F32);
    t->attention(&c->a);
}

/* The plain softmax of the papers, in double. */
static void softmax_plain(const scene *c, size_t head, double *out)
{
    const shape *s = &c->s;
    const float *q = c->a.q + head * s->k_dim;
    static double score[MAX_POS];
    double most = c->a.sinks ? (double)c->a.sinks[head] : (double)-INFINITY, sum = 0;
    for (int32_t p = s->first; p <= s->last; p++) {
        double dot = 0;
        for (size_t d = 0; d < s->k_dim; d++) {
            dot += (double)q[d] * (double)c->k[p][d];
        }
        dot *= (double)c->a.scale;
        score[p] = s->soft_cap > 0 ? (double)s->soft_cap * tanh(dot / (double)s->soft_cap) : dot;
        most = fmax(most, score[p]);
    }
    for (int32_t p = s->first; p <= s->last; p++) {
        sum += exp(score[p] - most);
    }
    sum += c->a.sinks ? exp((double)c->a.sinks[head] - most) : 0;
    for (size_t d = 0; d < s->v_dim; d++) {
        out[d] = 0;
        for (int32_t p = s->first; p <= s->last; p++) {
            out[d] += exp(score[p] - most) * (double)c->v[p][d] / sum;
        }
    }
}

typedef struct triple {
    float m, l, o[MAX_DIM];
} triple;

static triple rule3_span(const scene *c, const float *score, int32_t span)
{
    const shape *s = &c->s;
    triple t = {.m = -INFINITY};
    float p[256] = {0}; /* invisible: +0 */
    float lane[16] = {0};
    int32_t lo = span * 256 > s->first ? span * 256 : s->first;
    int32_t hi = span * 256 + 255 < s->last ? span * 256 + 255 : s->last;
    for (int32_t j = lo; j <= hi; j++) {
        t.m = fmaxf(t.m, score[j]);
    }
    for (int32_t j = lo; j <= hi; j++) {
        p[j - span * 256] = score[j] - t.m < -69 ? 0 : fm_exp(score[j] - t.m);
    }
    for (int i = 0; i < 256; i++) {
        lane[i & 15] = lane[i & 15] + p[i];
    }
    float four[4];
    for (int i = 0; i < 4; i++) {
        four[i] = (lane[i] + lane[i + 8]) + (lane[i + 4] + lane[i + 12]);
    }
    t.l = (four[0] + four[2]) + (four[1] + four[3]);
    for (int32_t j = lo; j <= hi; j++) {
        for (size_t d = 0; d < s->v_dim; d++) {
            t.o[d] = fmaf(p[j - span * 256], c->v[j][d], t.o[d]);
        }
    }
    return t;
}

static triple rule3_merge(triple x, triple y, size_t v_dim)
{
    float m = fmaxf(x.m, y.m);
    float a = fm_exp(x.m - m);
    float b = fm_exp(y.m - m);
    triple r = {.m = m, .l = fmaf(x.l, a, y.l * b)};
    for (size_t d = 0; d < v_dim; d++) {
        r.o[d] = fmaf(x.o[d], a, y.o[d] * b);
    }
    return r;
}

/* Rule 3 again, from its text. */
static void rule3(const scene *c, size_t head, float *out)
{
    const shape *s = &c->s;
    static float score[MAX_POS];
    for (int32_t p = s->first; p <= s->last; p++) {
        float dot = 0;
        for (size_t d = 0; d < s->k_dim; d++) {
            dot = fmaf(c->a.q[head * s->k_dim + d], c->k[p][d], dot);
        }
        dot *= c->a.scale;
        score[p] = s->soft_cap > 0 ? s->soft_cap * fm_tanh(dot / s->soft_cap) : dot;
    }
    triple run = rule3_span(c, score, s->first / 256);
    for (int32_t span = s->first / 256 + 1; span <= s->last / 256; span++) {
        run = rule3_merge(run, rule3_span(c, score, span), s->v_dim);
    }
    if (c->a.sinks) {
        run = rule3_merge(run, (triple){.m = c->a.sinks[head], .l = 1}, s->v_dim);
    }
    for (size_t d = 0; d < s->v_dim; d++) {
        out[d] = run.o[d] / run.l;
    }
}

/*
 * Values are below 1 and scores below 4 sqrt(k_dim) / sqrt(3) or so: a score is off by about k_dim 2^-24 of
 * the sum of its products' sizes, which is below 2e-5 here, and so, relatively, are the weights.
 */
#define TOLERANCE 2e-5

static void shape_check(const shape *s, uint64_t *rng)
{
    static scene c;
    static float want[MAX_Q * MAX_DIM], rule[MAX_DIM];
    static double plain[MAX_DIM];
    const kern_table *t;
    size_t n = s->n_q * s->v_dim;
    scene_init(&c, s, rng);
    scene_run(&c, kern_table_of(KERN_REF));
    memcpy(want, c.out.data, n * sizeof(float));
    for (size_t h = 0; h < s->n_q; h++) {
        rule3(&c, h, rule);
        softmax_plain(&c, h, plain);
        assert_same_floats("attention by rule 3", kern_table_of(KERN_REF), want + h * s->v_dim, rule,
                           s->v_dim);
        for (size_t d = 0; d < s->v_dim; d++) {
            double got = (double)want[h * s->v_dim + d];
            if (!(fabs(got - plain[d]) < TOLERANCE)) {
                fail_msg("head %zu, dimension %zu: %g, in double %g", h, d, got, plain[d]);
            }
        }
    }
    for (int i = -1; (t = sets_next(&i));) {
        scene_run(&c, t);
        assert_same_floats("attention", t, c.a.out, want, n);
        /* one head alone: the same bits */
        c.a.n_q = 1;
        for (size_t h = 0; h < s->n_q; h++) {
            c.a.q = guard_floats(&c.q) + h * s->k_dim;
            c.a.sinks = s->sinks ? guard_floats(&c.sinks) + h : NULL;
            scene_run(&c, t);
            assert_same_floats("attention, one head alone", t, c.a.out, want + h * s->v_dim, s->v_dim);
        }
        c.a.n_q = s->n_q;
        c.a.q = guard_floats(&c.q);
        c.a.sinks = s->sinks ? guard_floats(&c.sinks) : NULL;
    }
    scene_release(&c);
}

/* Lengths around the edges of vectors, pages and spans. */
static void test_lengths(void **state)
{
    static const int32_t lengths[] = {1,  2,  7,  8,   9,   15,  16,  17,  31,  32,  33,
                                      63, 64, 65, 255, 256, 257, 288, 511, 512, 513, 700};
    uint64_t rng = 11;
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int f = 0; f < 2; f++) {
            shape s = {f ? KV_F16 : KV_F32, 1 + i % 3, 32, 32, 0, lengths[i] - 1, 0, false};
            shape_check(&s, &rng);
        }
    }
}

/* Windows that begin inside a page, a span, on their edges. */
static void test_windows(void **state)
{
    static const int32_t windows[][2] = {
        {1, 1},     {5, 5},     {1, 40},    {31, 32},   {32, 32},   {33, 63},  {200, 255}, {255, 256},
        {256, 256}, {250, 300}, {257, 513}, {300, 310}, {511, 513}, {17, 699}, {511, 512}, {100, 612}};
    uint64_t rng = 12;
    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        for (int f = 0; f < 2; f++) {
            shape s = {f ? KV_F16 : KV_F32, 2, 24, 24, windows[i][0], windows[i][1], 0, i % 3 == 0};
            shape_check(&s, &rng);
        }
    }
}

/* Scores some hundred apart: weights on both sides of the floor, and ordinary ones again where few count. */
static void test_floor(void **state)
{
    static scene c;
    static float want[MAX_Q * 32], rule[MAX_DIM];
    uint64_t rng = 19;
    (void)state;
    for (int i = 0; i < 8; i++) {
        shape s = {i % 2 ? KV_F16 : KV_F32, 3, 32, 32, i, 400 + i, 0, false};
        const kern_table *t;
        size_t n_below = 0;
        scene_init(&c, &s, &rng);
        c.a.scale = 5.0f * (float)(1 + i);
        scene_run(&c, kern_table_of(KERN_REF));
        memcpy(want, c.out.data, sizeof *want * 3 * 32);
        for (size_t h = 0; h < 3; h++) {
            rule3(&c, h, rule);
            assert_same_floats("attention by rule 3", kern_table_of(KERN_REF), want + h * 32, rule, 32);
        }
        for (int k = -1; (t = sets_next(&k));) {
            scene_run(&c, t);
            assert_same_floats("attention across the floor", t, c.a.out, want, 3 * 32);
            for (size_t j = 0; j < 128;
                 j++) { /* the first head's weights of the last span lie first in scratch */
                n_below += c.a.scratch[j] == 0;
            }
        }
        assert_true(n_below > 0);
        scene_release(&c);
    }
}

static void test_groups(void **state)
{
    uint64_t rng = 13;
    (void)state;
    for (size_t n_q = 1; n_q <= MAX_Q; n_q++) {
        for (int f = 0; f < 2; f++) {
            shape s = {f ? KV_F16 : KV_F32, n_q, 64, 64, 3, 290, 0, n_q % 2 == 0};
            shape_check(&s, &rng);
        }
    }
}

static void test_dims(void **state)
{
    static const uint32_t dims[][2] = {{8, 8},     {24, 24},   {80, 80}, {96, 96}, {128, 128}, {256, 256},
                                       {128, 64},  {64, 128},  {40, 40}, {16, 48}, {1, 1},     {13, 7},
                                       {100, 100}, {192, 128}, {33, 35}, {72, 72}};
    uint64_t rng = 14;
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        for (size_t n_q = 1; n_q <= 3; n_q++) {
            shape s = {(i + n_q) % 2 ? KV_F16 : KV_F32, n_q, dims[i][0], dims[i][1], 30, 70, 0, false};
            shape_check(&s, &rng);
            s.last = 265;
            s.type = s.type == KV_F16 ? KV_F32 : KV_F16;
            shape_check(&s, &rng);
        }
    }
}

static void test_soft_cap_and_sinks(void **state)
{
    static const float caps[] = {0, 50, 30, 1.5f};
    uint64_t rng = 15;
    (void)state;
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
        for (int k = 0; k < 4; k++) {
            shape s = {k & 1 ? KV_F16 : KV_F32, 4, 64, 64, 10, 520, caps[i], (k & 2) != 0};
            shape_check(&s, &rng);
        }
    }
}

/* The soft cap's tanh over its whole range: one dimension, so that a key is its score. */
static void test_soft_cap_tanh(void **state)
{
    uint64_t rng = 16;
    (void)state;
    for (int i = 0; i < 40; i++) {
        shape s = {KV_F32, 1, 1, 1, 0, 0, ldexpf(1.0f, i - 30), false};
        s.last = 600;
        shape_check(&s, &rng);
    }
}

/* A sink far above, far below; scores that all vanish against one. */
static void test_extremes(void **state)
{
    static scene c;
    static float want[MAX_DIM];
    const shape s = {KV_F32, 1, 8, 16, 0, 600, 0, true};
    const float sink_values[] = {-1e30f, 1e30f, 80.0f, -INFINITY, 0};
    const kern_table *t;
    uint64_t rng = 17;
    (void)state;
    scene_init(&c, &s, &rng);
    for (size_t k = 0; k < 2 * 5; k++) {
        guard_floats(&c.sinks)[0] = sink_values[k / 2];
        c.a.scale = k % 2 ? 1000.0f : 0.3f; /* one position takes all */
        rule3(&c, 0, want);
        for (int i = -1; (t = sets_next(&i));) {
            scene_run(&c, t);
            assert_same_floats("attention", t, c.a.out, want, s.v_dim);
            assert_false(isnan(c.a.out[0]));
        }
        if (sink_values[k / 2] == 1e30f) {
            assert_true(c.a.out[0] == 0);
        }
    }
    scene_release(&c);
}

/* A visible NaN is not lost: a sequence that went wrong must be seen to have. */
static void test_nan_is_kept(void **state)
{
    static scene c;
    const shape s = {KV_F32, 2, 8, 20, 0, 300, 0, false};
    const kern_table *t;
    uint64_t rng = 18;
    (void)state;
    scene_init(&c, &s, &rng);
    guard_floats(&c.q)[3] = NAN;
    for (int i = -1; (t = sets_next(&i));) {
        scene_run(&c, t);
        for (size_t d = 0; d < s.v_dim; d++) {
            assert_true(isnan(c.a.out[d]));
            assert_true(isfinite(c.a.out[s.v_dim + d]));
        }
    }
    scene_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),       cmocka_unit_test(test_windows),
        cmocka_unit_test(test_groups),        cmocka_unit_test(test_floor),
        cmocka_unit_test(test_dims),          cmocka_unit_test(test_soft_cap_and_sinks),
        cmocka_unit_test(test_soft_cap_tanh), cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_nan_is_kept),   cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
