/*
 * bench_step: where the time of a decode step goes: in matrix products, in attention, and outside of both.
 *
 *     bench_step MODEL [THREADS [DEPTH [STEPS [ROUNDS [PACK_DIR]]]]]        0 threads: all; 0, 32, 5
 *
 * The whole engine runs as it is, sampling (T 0.8, top-k 40, top-p 0.95) and text included, with a kernel table whose
 * functions are wrapped (the linker puts __wrap_kern_select in the place of kern_select): each call is noted with its
 * thread, begin and end. Of a round's steps are told, in percent of their time:
 *
 *   matrices, attention   while at least one thread is in such a kernel. A thread that waits for another one's kernel
 *                         waits for what that computes, so its wait counts there.
 *   outside               the rest, on the clock: all other kernels, the engine, starting and ending the pool's runs
 *   strictly              that, and what threads spend in other kernels (adding to the residual stream, silu) while
 *                         another one is in a matrix product, divided by the threads
 *
 * Below stands what each kind of kernel takes of all threads' time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pool.h"
#include "cmd/bench_lanes.h"

#define KINDS(X)                               \
    X(MATRIX, "matrix products")               \
    X(ATTENTION, "attention")                  \
    X(ACT, "activations to int8")              \
    X(NORM, "norms")                           \
    X(ROPE, "rope")                            \
    X(SILU, "silu")                            \
    X(ADD, "additions")                        \
    X(STORE, "storing K and V")                \
    X(FINITE, "looking for non-finite values") \
    X(SAMPLE, "sampling")

typedef enum kind {
#define X(name, text) KIND_##name,
    KINDS(X)
#undef X
        KIND_COUNT
} kind;

static const char *const kind_names[] = {
#define X(name, text) text,
    KINDS(X)
#undef X
};

typedef struct span {
    uint64_t t0, t1;
    kind what;
} span;

#define MAX_THREADS 64
#define MAX_SPANS   ((size_t)1 << 20) /* of a thread */

static span *spans[MAX_THREADS];
static size_t n_spans[MAX_THREADS];
static unsigned n_known;
static _Thread_local unsigned my_index = MAX_THREADS;
static kern_table wrapped, inner;

static uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return clock_mono_ns(clock_system());
#endif
}

static void note(kind what, uint64_t t0)
{
    uint64_t t1 = ticks();
    if (my_index == MAX_THREADS) {
        my_index = __atomic_fetch_add(&n_known, 1, __ATOMIC_RELAXED);
        if (my_index >= MAX_THREADS) {
            abort();
        }
        spans[my_index] = calloc(MAX_SPANS, sizeof *spans[my_index]);
    }
    if (spans[my_index] && n_spans[my_index] < MAX_SPANS) {
        spans[my_index][n_spans[my_index]++] = (span){t0, t1, what};
    }
}

#define WRAP(what, name, params, args) \
    static void name##_noted params    \
    {                                  \
        uint64_t t0 = ticks();         \
        inner.name args;               \
        note(what, t0);                \
    }
#define WRAP_RESULT(what, type, name, params, args) \
    static type name##_noted params                 \
    {                                               \
        uint64_t t0 = ticks();                      \
        type result = inner.name args;              \
        note(what, t0);                             \
        return result;                              \
    }

static void matmul_noted(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                         size_t y_stride)
{
    uint64_t t0 = ticks();
    inner.matmul[w->type](w, a, n0, n1, y, y_stride);
    note(KIND_MATRIX, t0);
}

WRAP(KIND_ATTENTION, attention, (const kern_attn *a), (a))
WRAP(KIND_ATTENTION, attention_spans, (const kern_attn *a, size_t s0, size_t s1, float *parts),
     (a, s0, s1, parts))
WRAP(KIND_ATTENTION, attention_join, (const kern_attn *a, size_t s0, const float *parts), (a, s0, parts))
WRAP(KIND_ACT, act_prepare, (kern_act * a, const float *x, size_t r, size_t k0, size_t k1, uint8_t *bad),
     (a, x, r, k0, k1, bad))
WRAP(KIND_NORM, rms_norm, (float *y, const float *x, const float *w, size_t n, float eps), (y, x, w, n, eps))
WRAP(KIND_ADD, add, (float *y, const float *x, size_t n), (y, x, n))
WRAP(KIND_SILU, silu_mul, (float *y, const float *gate, const float *up, size_t n), (y, gate, up, n))
WRAP(KIND_ROPE, rope, (float *x, const float *cs, size_t n, kern_rope_style style), (x, cs, n, style))
WRAP(KIND_ROPE, rope_angles, (float *cs, const double *f, size_t n, int32_t pos, float by),
     (cs, f, n, pos, by))
WRAP(KIND_STORE, kv_store,
     (void *page, const kv_layer *l, kv_type type, size_t slot, size_t n, const float *k, size_t k_stride,
      const float *v, size_t v_stride),
     (page, l, type, slot, n, k, k_stride, v, v_stride))
WRAP_RESULT(KIND_FINITE, bool, all_finite, (const float *x, size_t n), (x, n))
WRAP_RESULT(KIND_SAMPLE, size_t, argmax, (const float *x, size_t n), (x, n))
WRAP(KIND_SAMPLE, scale_tops, (float *y, float *tops, const float *x, float t, size_t n), (y, tops, x, t, n))
WRAP_RESULT(KIND_SAMPLE, float, softmax_terms, (float *y, const float *x, float max, size_t n),
            (y, x, max, n))
WRAP_RESULT(KIND_SAMPLE, size_t, at_least, (int32_t * i, const float *x, size_t n, float l), (i, x, n, l))
WRAP_RESULT(KIND_SAMPLE, size_t, gumbel_argmax,
            (const float *x, const int32_t *token, int32_t first, size_t n, uint64_t seed, int32_t position,
             float least, float *score),
            (x, token, first, n, seed, position, least, score))

const kern_table *__real_kern_select(kern_set at_most);
const kern_table *__wrap_kern_select(kern_set at_most);

const kern_table *__wrap_kern_select(kern_set at_most)
{
    inner = wrapped = *__real_kern_select(at_most);
    for (size_t i = 0; i < GGUF_TYPE_COUNT; i++) {
        wrapped.matmul[i] = inner.matmul[i] ? matmul_noted : NULL;
    }
#define PUT(name) wrapped.name = name##_noted
    PUT(attention);
    PUT(attention_spans);
    PUT(attention_join);
    PUT(act_prepare);
    PUT(rms_norm);
    PUT(add);
    PUT(silu_mul);
    PUT(rope);
    PUT(rope_angles);
    PUT(kv_store);
    PUT(all_finite);
    PUT(argmax);
    PUT(scale_tops);
    PUT(softmax_terms);
    PUT(at_least);
    PUT(gumbel_argmax);
#undef PUT
    return &wrapped;
}

static int by_begin(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->t0 > y->t0) - (x->t0 < y->t0);
}

/* The spans since `from` of kinds in the set, of all threads, merged where they meet, into out; returns how many. */
static size_t merged(uint64_t from, unsigned kinds, span *out)
{
    size_t n = 0, kept = 0;
    for (unsigned t = 0; t < n_known; t++) {
        for (size_t i = 0; i < n_spans[t]; i++) {
            if (spans[t][i].t0 >= from && kinds >> spans[t][i].what & 1) {
                out[n++] = spans[t][i];
            }
        }
    }
    qsort(out, n, sizeof *out, by_begin);
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && out[i].t0 <= out[kept - 1].t1) {
            out[kept - 1].t1 = out[i].t1 > out[kept - 1].t1 ? out[i].t1 : out[kept - 1].t1;
        } else {
            out[kept++] = out[i];
        }
    }
    return kept;
}

static uint64_t length(const span *s, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += s[i].t1 - s[i].t0;
    }
    return sum;
}

/* How much of s lies in the n merged ones. */
static uint64_t overlap(const span *s, const span *in, size_t n)
{
    size_t low = 0, high = n;
    uint64_t sum = 0;
    while (low < high) { /* the first that ends behind its begin */
        size_t mid = (low + high) / 2;
        if (in[mid].t1 <= s->t0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    for (; low < n && in[low].t0 < s->t1; low++) {
        uint64_t t0 = in[low].t0 > s->t0 ? in[low].t0 : s->t0, t1 = in[low].t1 < s->t1 ? in[low].t1 : s->t1;
        sum += t1 - t0;
    }
    return sum;
}

/* The steps since `from`, `whole` ticks of n_threads. */
static void tell(uint64_t from, double whole, size_t steps, double ms, size_t n_threads, span *work)
{
    double of_kind[KIND_COUNT] = {0}, hidden = 0, per_step_us = ms * 1e3 / (double)steps;
    double matrices = (double)length(work, merged(from, 1u << KIND_MATRIX, work)) / whole;
    size_t n = merged(from, 1u << KIND_MATRIX | 1u << KIND_ATTENTION, work);
    double both = (double)length(work, n) / whole;
    const unsigned all = (1u << KIND_COUNT) - 1;
    for (unsigned t = 0; t < n_known; t++) {
        for (size_t i = 0; i < n_spans[t]; i++) {
            const span *s = &spans[t][i];
            if (s->t0 >= from) {
                of_kind[s->what] += (double)(s->t1 - s->t0) / whole / (double)n_threads;
                hidden +=
                    s->what > KIND_ATTENTION ? (double)overlap(s, work, n) / whole / (double)n_threads : 0;
            }
        }
    }
    printf("%9.1f us  matrices %5.2f %%  attention %5.2f %%  outside %5.2f %%  strictly %5.2f %%\n",
           per_step_us, 100 * matrices, 100 * (both - matrices), 100 * (1 - both), 100 * (1 - both + hidden));
    for (kind k = 0; k < KIND_COUNT; k++) {
        printf("    %-30s %6.2f %%  %8.1f us\n", kind_names[k], 100 * of_kind[k], of_kind[k] * per_step_us);
    }
    n = merged(from, all, work);
    printf("    %-30s %6.2f %%  %8.1f us, %.0f times\n", "(on the clock, in no kernel)",
           100 * (1 - (double)length(work, n) / whole), per_step_us * (1 - (double)length(work, n) / whole),
           (double)n / (double)steps);
    fflush(stdout);
}

static int failed(const err *e)
{
    fprintf(stderr, "bench_step: %s\n", e->msg);
    return 1;
}

int main(int argc, char **argv)
{
    size_t number[] = {0, 0, 32, 5}; /* threads, depth, steps, rounds */
    err e = {0};
    if (argc < 2 || argc > 7) {
        fprintf(stderr, "bench_step MODEL [THREADS [DEPTH [STEPS [ROUNDS [PACK_DIR]]]]]\n");
        return 2;
    }
    for (int i = 2; i < argc && i < 6; i++) {
        number[i - 2] = (size_t)strtoul(argv[i], NULL, 10);
    }
    size_t depth = number[1], steps = number[2];
    instance_options opt = instance_options_default();
    opt.threads = number[0];
    opt.context = (int32_t)(depth + steps + 64);
    opt.max_sequences = 1;
    opt.pack_dir = argc > 6 ? argv[6] : NULL;
    instance *in = NULL;
    bench_lanes *l = NULL;
    if (instance_open(argv[1], &opt, &in, &e) != ST_OK ||
        bench_lanes_open(in, 1, depth + 1, &l, &e) != ST_OK) {
        return failed(&e);
    }
    size_t n_threads = instance_describe(in)->threads;
    span *work = calloc(MAX_SPANS * MAX_THREADS / 16, sizeof *work);
    printf("%s, kernels %s, %zu threads, depth %zu, %zu steps a round\n", argv[1],
           instance_describe(in)->kernels, n_threads, depth, steps);
    double ms = 0;
    status st = work ? bench_lanes_decode(l, depth, 1, &ms, &e) : ST_NOMEM; /* reads the prompt */
    for (size_t r = 0; st == ST_OK && r < number[3]; r++) {
        memset(n_spans, 0, sizeof n_spans);
        const clock_src *clock = clock_system();
        uint64_t ns0 = clock_mono_ns(clock), t0 = ticks();
        st = bench_lanes_decode(l, depth, steps, &ms, &e);
        uint64_t t1 = ticks();
        double rate = (double)(t1 - t0) / (double)(clock_mono_ns(clock) - ns0);
        double whole = ms * 1e6 * rate;
        tell(t1 - (uint64_t)whole, whole, steps, ms, n_threads, work);
    }
    free(work);
    bench_lanes_close(l);
    instance_close(in);
    return st == ST_OK ? 0 : failed(&e);
}
