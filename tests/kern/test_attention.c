/*
 * attention: every set equal to the reference; the reference equal to rule 3 written a second time (over
 * plain arrays, below) and close to a plain softmax in double. K and V lie in pages in shuffled order, each
 * between forbidden pages, and every value that is not visible is NaN, in other layers and heads too.
 */
#include "kern_test.h"

#include "kern/fmath.h"

#define MAX_POS   768
#define MAX_PAGES (MAX_POS / 32)
#define MAX_Q     16
#define MAX_DIM   576
#define MAX_ROWS  48
#define ROW_GAP   5 /* floats between rows of q and out that are nobody's */

typedef struct shape {
    kv_type type;
    size_t n_q;
    uint32_t k_dim, v_dim;
    int32_t first, last; /* of row 0 */
    float soft_cap;
    bool sinks;
    bool v_in_k;
    size_t n_rows;       /* 0 = 1 */
    int32_t slide, step; /* how far first and last move from a row to the next */
} shape;

/* One call of the kernel with all that it needs. */
typedef struct scene {
    shape s;
    kv_layer layers[2];
    guard pages[MAX_PAGES];
    const void *addresses[MAX_PAGES + 1];
    guard q, out, scratch, sinks;
    kern_attn_seen seen[MAX_ROWS];
    float k[MAX_POS][MAX_DIM]; /* as the page holds them: widened again */
    float v[MAX_POS][MAX_DIM];
    kern_attn a;
} scene;

static const size_t kv_head = 1;

/* All ones are a NaN in every type, in Q8_0 as a scale. */
static void nan_fill(const guard *g)
{
    memset(g->data, 0xFF, g->n_bytes);
}

/* A random value of the type: written, as header and drawing say, and returned as what it stands for. */
static float value_put(unsigned char *part, kv_type type, size_t dim, size_t value, size_t scale,
                       uint64_t *rng)
{
    float x = rng_float(rng);
    uint16_t h;
    if (type == KV_F32) {
        memcpy(part + value * 4, &x, 4);
        return x;
    }
    if (type == KV_Q8_0) { /* the block has its scale already */
        int8_t code = (int8_t)(x * 127.9f);
        memcpy(&h, part + scale * 2, 2);
        memcpy(part + (dim + 31) / 32 * 64 + value, &code, 1);
        return fp16_to_f32(h) * (float)code;
    }
    h = type == KV_F16 ? fp16_from_f32(x) : bf16_from_f32(x);
    memcpy(part + value * 2, &h, 2);
    return type == KV_F16 ? fp16_to_f32(h) : bf16_to_f32(h);
}

static void scale_put(unsigned char *part, kv_type type, size_t scale, uint64_t *rng)
{
    uint16_t h = fp16_from_f32(0.004f + 0.004f * rng_float(rng));
    if (type == KV_Q8_0) {
        memcpy(part + scale * 2, &h, 2);
    }
}

/* K and V of one position. */
static void position_fill(scene *c, int32_t pos, uint64_t *rng)
{
    const shape *s = &c->s;
    const kv_layer *l = &c->layers[1];
    unsigned char *k =
        (unsigned char *)(uintptr_t)c->addresses[pos / 32] + l->offset_bytes + kv_head * l->head_bytes;
    size_t slot = (size_t)pos % 32, v_blocks = (s->v_dim + 31) / 32;
    for (size_t d = 0; d < s->k_dim; d++) {
        size_t scale = d / 32 * 32 + slot;
        if (d % 32 == 0) {
            scale_put(k, s->type, scale, rng);
        }
        c->k[pos][d] = value_put(k, s->type, s->k_dim, d * 32 + slot, scale, rng);
    }
    for (size_t d = 0; d < s->v_dim; d++) {
        size_t scale = slot * v_blocks + d / 32;
        if (s->v_in_k) {
            c->v[pos][d] = c->k[pos][d];
            continue;
        }
        if (d % 32 == 0) {
            scale_put(k + l->v_bytes, s->type, scale, rng);
        }
        c->v[pos][d] = value_put(k + l->v_bytes, s->type, s->v_dim, slot * s->v_dim + d, scale, rng);
    }
}

static bool position_seen(const scene *c, int32_t pos)
{
    for (size_t r = 0; r < c->a.n_rows; r++) {
        if (pos >= c->seen[r].first && pos <= c->seen[r].last) {
            return true;
        }
    }
    return false;
}

static void pages_fill(scene *c, uint64_t *rng)
{
    const shape *s = &c->s;
    const kv_dims dims[2] = {{2, 16, 8, false}, {3, s->k_dim, s->v_dim, s->v_in_k}};
    int32_t last = c->seen[c->a.n_rows - 1].last;
    size_t page_bytes, used[MAX_PAGES], n_pages = (size_t)last / 32 + 1;
    assert_int_equal(kv_layout_init(s->type, dims, 2, c->layers, &page_bytes), ST_OK);
    for (size_t p = 0; p < n_pages; p++) {
        c->pages[p] = guard_new(page_bytes, p % 2 ? GUARD_START : GUARD_END);
        nan_fill(&c->pages[p]);
        used[p] = p;
    }
    for (size_t p = n_pages; p > 1; p--) { /* shuffle */
        size_t j = rng_next(rng) % p, kept = used[p - 1];
        used[p - 1] = used[j];
        used[j] = kept;
    }
    for (int32_t pos = 0; pos <= last; pos++) { /* pages that no row sees are not there */
        if (position_seen(c, pos)) {
            c->addresses[pos / 32] = c->pages[used[pos / 32]].data;
            position_fill(c, pos, rng);
        }
    }
}

static void scene_init(scene *c, const shape *s, uint64_t *rng)
{
    memset(c, 0, sizeof *c);
    c->s = *s;
    size_t n_rows = s->n_rows ? s->n_rows : 1;
    size_t q_stride = s->n_q * s->k_dim + ROW_GAP, out_stride = s->n_q * s->v_dim + ROW_GAP;
    assert_true(n_rows <= MAX_ROWS && s->n_q <= MAX_Q && s->k_dim <= MAX_DIM && s->v_dim <= MAX_DIM);
    for (size_t r = 0; r < n_rows; r++) {
        c->seen[r].first = s->first + (int32_t)r * s->slide;
        c->seen[r].last = s->last + (int32_t)r * s->step;
        assert_true(c->seen[r].last < MAX_POS);
    }
    c->a.n_rows = n_rows;
    pages_fill(c, rng);
    c->q = guard_new((n_rows * q_stride - ROW_GAP) * sizeof(float), GUARD_END);
    c->out = guard_new((n_rows * out_stride - ROW_GAP) * sizeof(float), GUARD_END);
    c->scratch = guard_new(KERN_ATTN_SCRATCH(n_rows * s->n_q, s->k_dim, s->v_dim) * sizeof(float), GUARD_END);
    c->sinks = guard_new(s->n_q * sizeof(float), GUARD_END);
    nan_fill(&c->q);
    for (size_t i = 0; i < n_rows * s->n_q * s->k_dim; i++) {
        size_t width = s->n_q * s->k_dim;
        guard_floats(&c->q)[i / width * q_stride + i % width] =
            4 * rng_float(rng); /* scores some units apart */
    }
    rng_fill(rng, guard_floats(&c->sinks), s->n_q);
    c->a = (kern_attn){
        .q = guard_floats(&c->q),
        .q_stride = q_stride,
        .out = guard_floats(&c->out),
        .out_stride = out_stride,
        .n_rows = n_rows,
        .n_q = s->n_q,
        .seen = c->seen,
        .layer = &c->layers[1],
        .type = s->type,
        .kv_head = kv_head,
        .pages = c->addresses,
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
    nan_fill(&c->out);
    nan_fill(&c->scratch);
    t->attention(&c->a);
}

static const float *out_of(const scene *c, size_t row, size_t head)
{
    return c->a.out + row * c->a.out_stride + head * c->s.v_dim;
}

static const float *q_of(const scene *c, size_t row, size_t head)
{
    return c->a.q + row * c->a.q_stride + head * c->s.k_dim;
}

/* The plain softmax of the papers, in double. */
static void softmax_plain(const scene *c, size_t row, size_t head, double *out)
{
    const shape *s = &c->s;
    const float *q = q_of(c, row, head);
    int32_t first = c->seen[row].first, last = c->seen[row].last;
    static double score[MAX_POS];
    double most = c->a.sinks ? (double)c->a.sinks[head] : (double)-INFINITY, sum = 0;
    for (int32_t p = first; p <= last; p++) {
        double dot = 0;
        for (size_t d = 0; d < s->k_dim; d++) {
            dot += (double)q[d] * (double)c->k[p][d];
        }
        dot *= (double)c->a.scale;
        score[p] = s->soft_cap > 0 ? (double)s->soft_cap * tanh(dot / (double)s->soft_cap) : dot;
        most = fmax(most, score[p]);
    }
    for (int32_t p = first; p <= last; p++) {
        score[p] = exp(score[p] - most);
        sum += score[p];
    }
    sum += c->a.sinks ? exp((double)c->a.sinks[head] - most) : 0;
    for (size_t d = 0; d < s->v_dim; d++) {
        out[d] = 0;
        for (int32_t p = first; p <= last; p++) {
            out[d] += score[p] * (double)c->v[p][d] / sum;
        }
    }
}

typedef struct triple {
    float m, l, o[MAX_DIM];
} triple;

static size_t n_below_floor;

static triple rule3_span(const scene *c, const float *score, int32_t span, const kern_attn_seen *seen)
{
    const shape *s = &c->s;
    triple t = {.m = -INFINITY};
    float p[256] = {0}; /* invisible: +0 */
    float lane[16] = {0};
    int32_t lo = span * 256 > seen->first ? span * 256 : seen->first;
    int32_t hi = span * 256 + 255 < seen->last ? span * 256 + 255 : seen->last;
    for (int32_t j = lo; j <= hi; j++) {
        t.m = fmaxf(t.m, score[j]);
    }
    for (int32_t j = lo; j <= hi; j++) {
        p[j - span * 256] = score[j] - t.m < -69 ? 0 : fm_exp(score[j] - t.m);
        n_below_floor += score[j] - t.m < -69;
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
static void rule3(const scene *c, size_t row, size_t head, float *out)
{
    const shape *s = &c->s;
    const kern_attn_seen *seen = &c->seen[row];
    static float score[MAX_POS];
    for (int32_t p = seen->first; p <= seen->last; p++) {
        float dot = 0;
        for (size_t d = 0; d < s->k_dim; d++) {
            dot = fmaf(q_of(c, row, head)[d], c->k[p][d], dot);
        }
        dot *= c->a.scale;
        score[p] = s->soft_cap > 0 ? s->soft_cap * fm_tanh(dot / s->soft_cap) : dot;
    }
    triple run = rule3_span(c, score, seen->first / 256, seen);
    for (int32_t span = seen->first / 256 + 1; span <= seen->last / 256; span++) {
        run = rule3_merge(run, rule3_span(c, score, span, seen), s->v_dim);
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
 * the sum of its products' sizes, which is below 4e-5 here, and so, relatively, are the weights.
 */
#define TOLERANCE 4e-5

/* The reference against both judges; its output is left in c->out. */
static void reference_check(scene *c)
{
    static float rule[MAX_DIM];
    static double plain[MAX_DIM];
    const kern_table *ref = kern_table_of(KERN_REF);
    scene_run(c, ref);
    for (size_t i = 0; i < c->a.n_rows * c->s.n_q; i++) {
        size_t row = i / c->s.n_q, head = i % c->s.n_q;
        const float *out = out_of(c, row, head);
        rule3(c, row, head, rule);
        assert_same_floats("attention by rule 3", ref, out, rule, c->s.v_dim);
        if (i % 5 > 1) {
            continue; /* slow */
        }
        softmax_plain(c, row, head, plain);
        for (size_t d = 0; d < c->s.v_dim; d++) {
            if (!(fabs((double)out[d] - plain[d]) < TOLERANCE)) {
                fail_msg("row %zu, head %zu, dimension %zu: %g, in double %g", row, head, d, (double)out[d],
                         plain[d]);
            }
        }
    }
}

/* In two steps, the spans in calls of `cut` each, the last ones first. Parts that nobody fills stay as they are. */
static void two_steps(scene *c, const kern_table *t, size_t cut)
{
    size_t n = c->a.n_rows * c->s.n_q, part = KERN_ATTN_PART(c->s.v_dim);
    size_t span0 = (size_t)c->seen[0].first / 256, end = (size_t)c->seen[c->a.n_rows - 1].last / 256 + 1;
    guard parts = guard_new((end - span0) * n * part * sizeof(float), GUARD_END);
    nan_fill(&parts);
    for (size_t s1 = end; s1 > span0;) {
        size_t s0 = s1 - span0 > cut ? s1 - cut : span0;
        nan_fill(&c->scratch);
        t->attention_spans(&c->a, s0, s1, guard_floats(&parts) + (s0 - span0) * n * part);
        s1 = s0;
    }
    for (size_t i = 0; i < (end - span0) * n; i++) {
        const kern_attn_seen *seen = &c->seen[i % n / c->s.n_q];
        size_t span = span0 + i / n;
        if ((size_t)seen->first / 256 > span || (size_t)seen->last / 256 < span) {
            assert_int_equal(f32_bits(guard_floats(&parts)[i * part]), 0xFFFFFFFF);
        }
    }
    nan_fill(&c->scratch);
    nan_fill(&c->out);
    t->attention_join(&c->a, span0, guard_floats(&parts));
    guard_check(&parts);
    guard_free(&parts);
}

/* Each head of each row alone has the same bits. */
static void alone_check(scene *c, const kern_table *t, const float *want)
{
    const kern_attn all = c->a;
    size_t n = all.n_rows * all.n_q, stride = n > 8 ? 5 : 1;
    c->a.n_q = 1;
    c->a.n_rows = 1;
    for (size_t i = 0; i < n; i += stride) {
        size_t row = i / all.n_q, head = i % all.n_q;
        c->a.q = all.q + row * all.q_stride + head * c->s.k_dim;
        c->a.sinks = all.sinks ? all.sinks + head : NULL;
        c->a.seen = &c->seen[row];
        scene_run(c, t);
        assert_same_floats("attention, one head alone", t, c->a.out,
                           want + row * all.out_stride + head * c->s.v_dim, c->s.v_dim);
    }
    c->a = all;
}

static void shape_check(const shape *s, uint64_t *rng)
{
    static scene c;
    static float want[MAX_ROWS * (MAX_Q * MAX_DIM + ROW_GAP)];
    const kern_table *t;
    scene_init(&c, s, rng);
    size_t n = c.out.n_bytes / sizeof(float);
    reference_check(&c);
    memcpy(want, c.out.data, n * sizeof(float)); /* between rows: 0xFF, a NaN */
    void (*last)(const kern_attn *) = NULL;
    for (int i = -1; (t = sets_next(&i));) {
        if (t->attention == last) {
            continue; /* the same kernel as in the set below */
        }
        last = t->attention;
        scene_run(&c, t);
        assert_same_floats("attention", t, c.a.out, want, n);
        for (size_t cut = 1; cut <= (t->set == KERN_REF ? 1 : 2); cut++) {
            two_steps(&c, t, cut);
            assert_same_floats("attention in two steps", t, c.a.out, want, n);
        }
        alone_check(&c, t, want);
    }
    scene_release(&c);
}

/* All types, but under a sanitizer one type in turn for each case. */
#define TYPE_STEP (SANITIZED ? KV_TYPE_COUNT : 1)

static int first_type(size_t number)
{
    return SANITIZED ? (int)(number / CASE_STEP % KV_TYPE_COUNT) : 0;
}

/* Lengths around the edges of vectors, pages and spans. */
static void test_lengths(void **state)
{
    static const int32_t lengths[] = {1,  2,  7,  8,   9,   15,  16,  17,  31,  32,  33,
                                      63, 64, 65, 255, 256, 257, 288, 511, 512, 513, 700};
    uint64_t rng = 11;
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i += CASE_STEP) {
        for (int type = first_type(i); type < KV_TYPE_COUNT; type += TYPE_STEP) {
            shape s = {
                .type = (kv_type)type, .n_q = 1 + i % 3, .k_dim = 32, .v_dim = 32, .last = lengths[i] - 1};
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
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i += CASE_STEP) {
        for (int type = first_type(i); type < KV_TYPE_COUNT; type += TYPE_STEP) {
            shape s = {(kv_type)type, 2, 24, 24, windows[i][0], windows[i][1], 0, i % 3 == 0, false, 0, 0, 0};
            shape_check(&s, &rng);
        }
    }
}

/* Several rows of a sequence at once: around the edges of pages, spans and blocks of query heads; windows that slide;
 * rows far apart, with pages between them that nobody sees. */
static void test_rows(void **state)
{
    static const struct {
        size_t n_rows, n_q;
        int32_t first, last, slide, step;
    } rows[] = {{2, 1, 0, 0, 0, 1},      {16, 1, 0, 0, 0, 1},     {9, 1, 0, 250, 0, 1},
                {5, 4, 0, 254, 0, 1},    {16, 4, 0, 500, 0, 1},   {7, 3, 0, 28, 0, 1},
                {3, 7, 0, 300, 0, 1},    {48, 1, 0, 230, 0, 1},   {17, 2, 60, 60, 1, 1},
                {16, 4, 200, 245, 1, 1}, {40, 2, 0, 300, 7, 1},   {33, 1, 250, 270, 1, 1},
                {12, 5, 3, 290, 1, 1},   {4, 2, 0, 10, 150, 150}, {5, 8, 240, 250, 5, 60},
                {6, 3, 31, 255, 32, 32}, {16, 16, 0, 100, 0, 1}};
    uint64_t rng = 20;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i += CASE_STEP) {
        for (int type = first_type(i); type < KV_TYPE_COUNT; type += TYPE_STEP) {
            shape s = {(kv_type)type, rows[i].n_q, 32,         40,    rows[i].first,
                       rows[i].last,  0,           i % 2 == 0, false, rows[i].n_rows,
                       rows[i].slide, rows[i].step};
            shape_check(&s, &rng);
        }
    }
}

/* V within K, as multi-head latent attention keeps it. */
static void test_v_in_k(void **state)
{
    static const uint32_t dims[][2] = {{576, 512}, {48, 32}, {40, 33}, {24, 24}, {72, 8}, {96, 80}};
    uint64_t rng = 21;
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i += CASE_STEP) {
        for (int type = first_type(i); type < KV_TYPE_COUNT; type += TYPE_STEP) {
            shape s = {(kv_type)type, i ? 16 : 5, dims[i][0], dims[i][1], 0, 280, 0,
                       i % 2 == 0,    true,       1 + i,      0,          1};
            shape_check(&s, &rng);
        }
    }
}

/* Scores some hundred apart: weights on both sides of the floor, and ordinary ones again where few count. */
static void test_floor(void **state)
{
    static scene c;
    static float want[3 * 32 + ROW_GAP], rule[MAX_DIM];
    uint64_t rng = 19;
    (void)state;
    for (int i = 0; i < 8; i++) {
        shape s = {i % 2 ? KV_F16 : KV_F32, 3, 32, 32, i, 400 + i, 0, false, false, 0, 0, 0};
        const kern_table *t;
        scene_init(&c, &s, &rng);
        c.a.scale = 5.0f * (float)(1 + i);
        scene_run(&c, kern_table_of(KERN_REF));
        memcpy(want, c.out.data, sizeof *want * 3 * 32);
        n_below_floor = 0;
        for (size_t h = 0; h < 3; h++) {
            rule3(&c, 0, h, rule);
            assert_same_floats("attention by rule 3", kern_table_of(KERN_REF), want + h * 32, rule, 32);
        }
        assert_true(n_below_floor > 0);
        for (int k = -1; (t = sets_next(&k));) {
            scene_run(&c, t);
            assert_same_floats("attention across the floor", t, c.a.out, want, 3 * 32);
        }
        scene_release(&c);
    }
}

static void test_groups(void **state)
{
    uint64_t rng = 13;
    (void)state;
    for (size_t n_q = 1; n_q <= MAX_Q; n_q += CASE_STEP) {
        for (int type = first_type(n_q); type < KV_TYPE_COUNT; type += TYPE_STEP) {
            shape s = {(kv_type)type, n_q, 64, 64, 3, 290, 0, n_q % 2 == 0, false, 0, 0, 0};
            shape_check(&s, &rng);
        }
    }
}

static void test_dims(void **state)
{
    static const uint32_t dims[][2] = {{8, 8},     {24, 24},   {80, 80},  {96, 96}, {128, 128}, {256, 256},
                                       {128, 64},  {64, 128},  {40, 40},  {16, 48}, {1, 1},     {13, 7},
                                       {100, 100}, {192, 128}, {33, 35},  {72, 72}, {104, 120}, {136, 152},
                                       {168, 184}, {200, 216}, {232, 248}};
    uint64_t rng = 14;
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i += CASE_STEP) {
        for (size_t n_q = 1; n_q <= 3; n_q++) {
            kv_type type = (kv_type)((i + n_q) % KV_TYPE_COUNT);
            shape s = {type, n_q, dims[i][0], dims[i][1], 30, 70, 0, false, false, n_q, 0, 1};
            shape_check(&s, &rng);
            s.last = 265;
            s.type = (kv_type)((type + 1) % KV_TYPE_COUNT);
            shape_check(&s, &rng);
        }
    }
}

static void test_soft_cap_and_sinks(void **state)
{
    static const float caps[] = {0, 50, 30, 1.5f};
    uint64_t rng = 15;
    (void)state;
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i += CASE_STEP) {
        for (int k = 0; k < 2 * KV_TYPE_COUNT; k++) {
            shape s = {(kv_type)(k / 2), 4, 64, 64, 10, 520, caps[i], (k & 1) != 0, false, 0, 0, 0};
            shape_check(&s, &rng);
        }
    }
}

/* The soft cap's tanh over its whole range: one dimension, so that a key is its score. */
static void test_soft_cap_tanh(void **state)
{
    uint64_t rng = 16;
    (void)state;
    for (int i = 0; i < 40; i += CASE_STEP) {
        shape s = {.n_q = 1, .k_dim = 1, .v_dim = 1, .soft_cap = ldexpf(1.0f, i - 30)};
        s.last = 600;
        shape_check(&s, &rng);
    }
}

/* A sink far above, far below; scores that all vanish against one. */
static void test_extremes(void **state)
{
    static scene c;
    static float want[MAX_DIM];
    const shape s = {.n_q = 1, .k_dim = 8, .v_dim = 16, .last = 600, .sinks = true};
    const float sink_values[] = {-1e30f, 1e30f, 80.0f, -INFINITY, 0};
    const kern_table *t;
    uint64_t rng = 17;
    (void)state;
    scene_init(&c, &s, &rng);
    for (size_t k = 0; k < 2 * 5; k++) {
        guard_floats(&c.sinks)[0] = sink_values[k / 2];
        c.a.scale = k % 2 ? 1000.0f : 0.3f; /* one position takes all */
        rule3(&c, 0, 0, want);
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
    const shape s = {.n_q = 2, .k_dim = 8, .v_dim = 20, .last = 300};
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
        cmocka_unit_test(test_nan_is_kept),   cmocka_unit_test(test_rows),
        cmocka_unit_test(test_v_in_k),        cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
