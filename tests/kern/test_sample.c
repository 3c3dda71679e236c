/*
 * What the sampler asks of a whole vocabulary: the reference against its definition, written out here, and every set
 * equal to the reference, at odd sizes, between forbidden pages.
 */
#include "kern_test.h"

#include <float.h>

#include "base/philox.h"
#include "kern/fmath.h"

static const size_t sizes[] = {1,  2,  3,   7,   8,   9,   15,  16,  17,   31,   32,   33,
                               63, 64, 127, 500, 511, 512, 513, 528, 1023, 1024, 1537, 4099};
#define N_SIZES (sizeof sizes / sizeof sizes[0])
#define MAX     4099

/* Some values twice, so that ties happen, and some forbidden. */
static void logits_fill(uint64_t *rng, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = rng_float(rng) * 12.0f;
        if (i > 0 && rng_next(rng) % 5 == 0) {
            x[i] = x[rng_next(rng) % i];
        }
        if (rng_next(rng) % 11 == 0) {
            x[i] = -INFINITY;
        }
    }
}

static void test_scale_tops(void **state)
{
    static const float temperatures[] = {1.0f, 0.7f, 3.0f, 1e-3f};
    const kern_table *t;
    uint64_t rng = 11;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < 2 * N_SIZES; i++) {
            size_t n = sizes[i / 2];
            guard_side side = i % 2 ? GUARD_START : GUARD_END;
            guard x = guard_new(n * sizeof(float), side),
                  tops = guard_new(KERN_TOPS(n) * sizeof(float), side);
            float kept[MAX], by = temperatures[i % 4];
            logits_fill(&rng, guard_floats(&x), n);
            memcpy(kept, x.data, n * sizeof(float));
            float alone[KERN_TOPS(MAX)];
            t->scale_tops(NULL, alone, guard_floats(&x), by, n);
            t->scale_tops(guard_floats(&x), guard_floats(&tops), guard_floats(&x), by, n);
            for (size_t at = 0; at < KERN_TOPS(n); at++) {
                float want = -INFINITY;
                for (size_t j = at / 16 * KERN_TOPS_RUN + at % 16; j < n && j / KERN_TOPS_RUN == at / 16;
                     j += 16) {
                    assert_true(same_float(guard_floats(&x)[j], kept[j] / by));
                    want = fmaxf(want, kept[j] / by);
                }
                assert_true(guard_floats(&tops)[at] == want && alone[at] == want);
            }
            guard_check(&x);
            guard_check(&tops);
            guard_free(&x);
            guard_free(&tops);
        }
    }
}

/* Rule 6 by its drawing. */
static float rule6_sum(const float *x, size_t n)
{
    float lane[16] = {0}, four[4];
    for (size_t i = 0; i < n; i++) {
        lane[i % 16] += x[i];
    }
    for (size_t l = 0; l < 4; l++) {
        four[l] = (lane[l] + lane[l + 8]) + (lane[l + 4] + lane[l + 12]);
    }
    return (four[0] + four[2]) + (four[1] + four[3]);
}

static void test_softmax_terms(void **state)
{
    const kern_table *t;
    uint64_t rng = 12;
    float want[MAX];
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < 2 * N_SIZES; i++) {
            size_t n = sizes[i / 2];
            guard_side side = i % 2 ? GUARD_START : GUARD_END;
            guard x = guard_new(n * sizeof(float), side), y = guard_new(n * sizeof(float), side);
            logits_fill(&rng, guard_floats(&x), n);
            for (size_t j = 0; j < n; j++) {
                want[j] = fm_exp(guard_floats(&x)[j] - 11.5f);
            }
            float sum = t->softmax_terms(guard_floats(&y), guard_floats(&x), 11.5f, n);
            assert_same_floats("softmax_terms", t, guard_floats(&y), want, n);
            assert_true(same_float(sum, rule6_sum(want, n)));
            sum = t->softmax_terms(guard_floats(&x), guard_floats(&x), 11.5f, n);
            assert_same_floats("softmax_terms in place", t, guard_floats(&x), want, n);
            assert_true(same_float(sum, rule6_sum(want, n)));
            guard_check(&x);
            guard_check(&y);
            guard_free(&x);
            guard_free(&y);
        }
    }
}

static void test_sum_at_least(void **state)
{
    const kern_table *t;
    uint64_t rng = 15;
    float kept[MAX];
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < 2 * N_SIZES; i++) {
            size_t n = sizes[i / 2];
            guard_side side = i % 2 ? GUARD_START : GUARD_END;
            guard x = guard_new(n * sizeof(float), side), y = guard_new(n * sizeof(float), side);
            logits_fill(&rng, guard_floats(&x), n);
            logits_fill(&rng, guard_floats(&y), n);
            float floor = i % 5 == 0 ? -INFINITY : i % 5 == 1 ? 13.0f : guard_floats(&x)[rng_next(&rng) % n];
            for (size_t j = 0; j < n; j++) {
                guard_floats(&y)[j] = fm_exp(guard_floats(&y)[j]);
                kept[j] = guard_floats(&x)[j] >= floor ? guard_floats(&y)[j] : 0.0f;
            }
            float sum = t->sum_at_least(guard_floats(&y), guard_floats(&x), n, floor);
            assert_true(same_float(sum, rule6_sum(kept, n)));
            guard_check(&x);
            guard_check(&y);
            guard_free(&x);
            guard_free(&y);
        }
    }
}

static void test_at_least(void **state)
{
    const kern_table *t;
    uint64_t rng = 13;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        for (size_t i = 0; i < 2 * N_SIZES; i++) {
            size_t n = sizes[i / 2], found, n_want = 0;
            guard_side side = i % 2 ? GUARD_START : GUARD_END;
            guard x = guard_new(n * sizeof(float), side), index = guard_new(n * sizeof(int32_t), side);
            int32_t *at = (int32_t *)(void *)index.data;
            logits_fill(&rng, guard_floats(&x), n);
            /* also a floor that many values equal, one below all and one above all */
            float floor = i % 5 == 0 ? -13.0f : i % 5 == 1 ? 13.0f : guard_floats(&x)[rng_next(&rng) % n];
            found = t->at_least(at, guard_floats(&x), n, floor);
            for (size_t j = 0; j < n; j++) {
                if (guard_floats(&x)[j] >= floor) {
                    assert_true(n_want < found && at[n_want] == (int32_t)j);
                    n_want++;
                }
            }
            assert_int_equal(found, n_want);
            guard_check(&x);
            guard_check(&index);
            guard_free(&x);
            guard_free(&index);
        }
    }
}

/* Rule 7, word for word. */
static float noise(uint64_t seed, uint32_t position, uint32_t token)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, ctr[4] = {position, token, 0, 0}, out[4];
    philox4x32_10(ctr, key, out);
    float u = ((float)(out[0] >> 8) + 0.5f) * 0x1p-24f;
    u = u < 0x1.fffffep-1f ? u : 0x1.fffffep-1f;
    return -fm_log(-fm_log(u));
}

static void gumbel_check(const kern_table *t, uint64_t *rng, const float *x, const int32_t *token, size_t n,
                         float least, float floor)
{
    uint64_t seed = rng_next(rng);
    int32_t position = (int32_t)(rng_next(rng) >> 33), first = (int32_t)(rng_next(rng) % 200000);
    size_t want = n;
    float want_score = floor, score = floor;
    for (size_t j = 0; j < n; j++) {
        int32_t id = token ? token[j] : first + (int32_t)j;
        float y = x[j] + noise(seed, (uint32_t)position, (uint32_t)id);
        if (x[j] >= least && (y > want_score || (y == want_score && want == n))) {
            want = j;
            want_score = y;
        }
    }
    size_t got = t->gumbel_argmax(x, token, first, n, seed, position, least, &score);
    if (got != want || score != want_score) {
        fail_msg("set %s, seed %llu, position %d, first %d: %zu (%a) of %zu instead of %zu (%a)", t->name,
                 (unsigned long long)seed, position, first, got, (double)score, n, want, (double)want_score);
    }
}

static void test_gumbel_argmax(void **state)
{
    const kern_table *t;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        uint64_t rng = 14;
        for (size_t i = 0; i < 40 * N_SIZES; i += CASE_STEP) {
            size_t n = sizes[i / 40];
            guard_side side = i % 2 ? GUARD_START : GUARD_END;
            guard x = guard_new(n * sizeof(float), side), ids = guard_new(n * sizeof(int32_t), side);
            int32_t *token = (int32_t *)(void *)ids.data;
            logits_fill(&rng, guard_floats(&x), n);
            float scale = i % 3 == 0 ? 1.0f : i % 3 == 1 ? 0.01f : 1e6f; /* noise decides, or the logits do */
            for (size_t j = 0; j < n; j++) {
                guard_floats(&x)[j] *= scale;
                token[j] = (int32_t)(j == 0 ? 7 : (uint32_t)token[j - 1] + 1 + rng_next(&rng) % 90);
            }
            gumbel_check(t, &rng, guard_floats(&x), NULL, n, -FLT_MAX, -INFINITY);
            gumbel_check(t, &rng, guard_floats(&x), token, n, -FLT_MAX, -INFINITY);
            gumbel_check(t, &rng, guard_floats(&x), NULL, n, -FLT_MAX, 3.0f * scale);
            gumbel_check(t, &rng, guard_floats(&x), NULL, n, fmaxf(guard_floats(&x)[n / 2], -FLT_MAX),
                         -INFINITY);
            gumbel_check(t, &rng, guard_floats(&x), token, n, 2.0f * scale, 3.0f * scale);
            gumbel_check(t, &rng, guard_floats(&x), NULL, n, -FLT_MAX, 1e8f); /* nothing is as good */
            guard_free(&x);
            guard_free(&ids);
        }
    }
}

/* A score that is met exactly counts, and the lower index wins. */
static void test_gumbel_ties(void **state)
{
    const kern_table *t;
    (void)state;
    for (int s = -1; (t = sets_next(&s));) {
        float x[40];
        for (size_t i = 0; i < 40; i++) {
            x[i] = -INFINITY;
        }
        float score = -INFINITY;
        assert_int_equal(t->gumbel_argmax(x, NULL, 0, 40, 1, 2, -FLT_MAX, &score), 40); /* all forbidden */
        x[5] = 1e9f; /* 64 between neighbours: the noise is lost and all scores are equal */
        x[6] = x[39] = 1e9f;
        assert_int_equal(t->gumbel_argmax(x, NULL, 0, 40, 1, 2, -FLT_MAX, &score), 5);
        assert_true(score == 1e9f);
        assert_int_equal(t->gumbel_argmax(x, NULL, 0, 40, 1, 2, -FLT_MAX, &score), 5);
        assert_int_equal(t->gumbel_argmax(x + 6, NULL, 6, 34, 1, 2, -FLT_MAX, &score), 0);
    }
}

/* The noise of the tokens whose bits are the largest and the smallest there are (found by search). */
static void test_gumbel_ends(void **state)
{
    const kern_table *t;
    float top = fm_gumbel(5573695, 10, 3); /* 24 set bits: see tests/engine/test_sampler.c */
    (void)state;
    assert_true(top > 16.6f && top <= FM_GUMBEL_MAX);
    for (int s = -1; (t = sets_next(&s));) {
        float x[16];
        for (size_t i = 0; i < 16; i++) {
            x[i] = i == 3 ? -14.0f : -INFINITY;
        }
        float score = top - 14.0f;
        assert_int_equal(t->gumbel_argmax(x, NULL, 0, 16, 5573695, 10, -FLT_MAX, &score), 3);
        score = nextafterf(top - 14.0f, 100.0f);
        assert_int_equal(t->gumbel_argmax(x, NULL, 0, 16, 5573695, 10, -FLT_MAX, &score), 16);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale_tops),    cmocka_unit_test(test_softmax_terms),
        cmocka_unit_test(test_sum_at_least),  cmocka_unit_test(test_at_least),
        cmocka_unit_test(test_gumbel_argmax), cmocka_unit_test(test_gumbel_ties),
        cmocka_unit_test(test_gumbel_ends),   cmocka_unit_test(test_every_set_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
