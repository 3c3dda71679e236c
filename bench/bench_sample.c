/*
 * bench_sample: what a draw costs, by setting and by shape of the logits.
 *
 *     bench_sample [-t THREADS] [SET [N_VOCAB [ROUNDS]]]
 *
 * THREADS: 1; SET: ref, avx2 …, the best; 151936 tokens; 200 rounds. Each round draws once with every setting from every row, so that what the machine does meanwhile meets
 * all alike; told are the least and the median time of a draw. Rows come from Philox and differ from round to round.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/philox.h"
#include "engine/sampler.h"

#define MAX_ROUNDS 1000

typedef struct setting {
    const char *name;
    float temperature;
    int32_t top_k;
    float top_p, min_p;
    int32_t top_logprobs;
} setting;

static const setting settings[] = {
    {"greedy", 0, 0, 1, 0, -1},
    {"T 0.8, top-k 40, top-p 0.95", 0.8f, 40, 0.95f, 0, -1},
    {"T 1", 1, 0, 1, 0, -1},
    {"T 1, top-logprobs 20", 1, 0, 1, 0, 20},
    {"T 1, top-p 0.95", 1, 0, 0.95f, 0, -1},
    {"T 1, top-p 0.5", 1, 0, 0.5f, 0, -1},
    {"T 1, min-p 0.05", 1, 0, 1, 0.05f, -1},
    {"T 1, top-p 0.95, min-p 0.0001", 1, 0, 0.95f, 0.0001f, -1},
    {"T 1, top-k 1000", 1, 1000, 1, 0, -1},
    {"T 1, top-k 1000, top-p 0.95", 1, 1000, 0.95f, 0, -1},
    {"T 1, top-k 4000, top-p 0.95", 1, 4000, 0.95f, 0, -1},
    {"T 1, top-k 30000, top-p 0.95", 1, 30000, 0.95f, 0, -1},
};
#define N_SETTINGS (sizeof settings / sizeof settings[0])

/* Logits are normal with this deviation, and some stand out. */
typedef struct shape {
    const char *name;
    float deviation;
    int n_out;
    float out;
} shape;

static const shape shapes[] = {
    {"sure (a few stand out by 14)", 2.0f, 12, 14},
    {"unsure (300 by 8)", 2.0f, 300, 8},
    {"wide (deviation 2.3: 40,000 tokens are 0.95)", 2.3f, 0, 0},
    {"flat (deviation 0.3)", 0.3f, 0, 0},
};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

static float normal(uint32_t a, uint32_t b)
{
    uint32_t out[4], ctr[4] = {a, b, 5, 0}, key[2] = {1, 2};
    philox4x32_10(ctr, key, out);
    double u = ((double)out[0] + 0.5) * 0x1p-32, v = (double)out[1] * 0x1p-32;
    return (float)(sqrt(-2 * log(u)) * cos(2 * 3.14159265358979 * v));
}

static void row_fill(float *l, size_t n, const shape *s, uint32_t round)
{
    for (size_t i = 0; i < n; i++) {
        l[i] = s->deviation * normal((uint32_t)i, round);
    }
    for (int i = 0; i < s->n_out; i++) {
        l[(size_t)i * 7919u % n] += s->out * (1 + 0.1f * normal((uint32_t)i, round + 1000));
    }
}

static int by_time(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void wake(void *arg, size_t task, size_t thread)
{
    (void)arg;
    (void)task;
    (void)thread;
}

static uint64_t one_draw(sampler *s, pool *team, const setting *by, const float *l, int32_t round)
{
    static const int32_t history[] = {1, 2, 3};
    const clock_src *clock = clock_system();
    const sampler_in in = {
        .logits = l, .history = history, .n_history = 3, .n_prompt = 2, .position = 3 + round};
    sampling p = sampling_default();
    p.temperature = by->temperature;
    p.top_k = by->top_k;
    p.top_p = by->top_p;
    p.min_p = by->min_p;
    p.top_logprobs = by->top_logprobs;
    p.seed = 42;
    sampler_out out;
    pool_run(team, wake, NULL, 2); /* in a step the pool has just computed logits, and spins */
    uint64_t start = clock_mono_ns(clock);
    sampler_draw(s, &p, &in, &out);
    return clock_mono_ns(clock) - start;
}

static int usage(const char *why)
{
    fprintf(stderr, "bench_sample: %s\nbench_sample [-t THREADS] [SET [N_VOCAB [ROUNDS]]]\n", why);
    return 2;
}

int main(int argc, char **argv)
{
    kern_set set = KERN_SET_COUNT - 1;
    err e = {0};
    long threads = 1;
    if (argc > 2 && strcmp(argv[1], "-t") == 0) {
        threads = strtol(argv[2], NULL, 10);
        argc -= 2;
        argv += 2;
    }
    if (argc > 1 && kern_set_parse(argv[1], &set, &e) != ST_OK) {
        return usage(e.msg);
    }
    long n = argc > 2 ? strtol(argv[2], NULL, 10) : 151936,
         rounds = argc > 3 ? strtol(argv[3], NULL, 10) : 200;
    if (n < 1 || n > 1 << 24 || rounds < 1 || rounds > MAX_ROUNDS || threads < 1 || threads > 64) {
        return usage("a number is out of range");
    }
    static uint64_t took[N_SHAPES][N_SETTINGS][MAX_ROUNDS];
    const kern_table *kern = kern_select(set);
    float *l = malloc((size_t)n * sizeof *l);
    sampler *s = NULL;
    if (!l || sampler_new((int32_t)n, kern, &s) != ST_OK) {
        return usage("out of memory");
    }
    pool *team = NULL;
    if (pool_new((size_t)threads, true, &team, &e) != ST_OK) {
        return usage(e.msg);
    }
    sampler_lend(s, team);
    for (long r = 0; r < rounds; r++) {
        for (size_t h = 0; h < N_SHAPES; h++) {
            row_fill(l, (size_t)n, &shapes[h], (uint32_t)r);
            for (size_t i = 0; i < N_SETTINGS; i++) {
                took[h][i][r] = one_draw(s, team, &settings[i], l, (int32_t)r);
            }
        }
    }
    printf("set %s, %ld threads, %ld tokens, us a draw: least, median, mean, most of %ld\n", kern->name,
           threads, n, rounds);
    for (size_t h = 0; h < N_SHAPES; h++) {
        printf("%s\n", shapes[h].name);
        for (size_t i = 0; i < N_SETTINGS; i++) {
            uint64_t sum = 0, *t = took[h][i];
            for (long r = 0; r < rounds; r++) {
                sum += t[r];
            }
            qsort(t, (size_t)rounds, sizeof *t, by_time);
            printf("  %-32s %8.1f %8.1f %8.1f %8.1f\n", settings[i].name, (double)t[0] * 1e-3,
                   (double)t[rounds / 2] * 1e-3, (double)sum / (double)rounds * 1e-3,
                   (double)t[rounds - 1] * 1e-3);
        }
    }
    pool_free(team);
    sampler_free(s);
    free(l);
    return 0;
}
