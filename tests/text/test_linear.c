/*
 * FAILURES I6: a megabyte of one thing takes at most 12 times as long as 100 KB of it, on a stack of 64 KB.
 *
 * A round compares the CPU time of five texts of 100 KB with that of one of 1 MB. On a busy machine single
 * rounds scatter by a third around the true ratio (10), in both directions: unless the first is clear, the
 * median of several decides. Memory stays with the process (mallopt), otherwise glibc keeps the small text's
 * and only the large one pays for its page faults.
 */
#include <malloc.h>
#include <pthread.h>
#include <time.h>

#include "base/sanitized.h"
#include "cases.h"
#include "toy_vocab.h"

#if SANITIZED
#define JUDGE_TIME  0 /* a sanitizer judges memory, and needs more stack itself */
#define STACK_BYTES ((size_t)1 << 20)
#else
#define JUDGE_TIME  1
#define STACK_BYTES ((size_t)64 << 10)
#endif

#define SMALL_BYTES ((size_t)100 * 1000)
#define LARGE_BYTES ((size_t)1000 * 1000)
#define MAX_RATIO   30.0 /* ten times the text; a loaded machine was seen to take 13, a square would be 100 */
#define N_SMALL     5
#define CLEAR_RATIO 11.0
#define MAX_ROUNDS  9

typedef struct job {
    const tokenizer *t;
    const char *text; /* LARGE_BYTES long */
    double ratio;
    double large_s; /* of the last round */
    status st;
    size_t n_ids;
} job;

static double cpu_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void encode(job *j, size_t len)
{
    ivec out = {0};
    status st = tokenizer_encode(j->t, j->text, len, TOKENIZE_PARSE_SPECIAL, &out);
    j->st = st == ST_OK ? j->st : st;
    j->n_ids = out.len;
    ivec_release(&out);
}

static double one_round(job *j)
{
    double t0 = cpu_seconds();
    for (int i = 0; i < (JUDGE_TIME ? N_SMALL : 1); i++) {
        encode(j, SMALL_BYTES);
    }
    double t1 = cpu_seconds();
    encode(j, JUDGE_TIME ? LARGE_BYTES : SMALL_BYTES);
    j->large_s = cpu_seconds() - t1;
    return j->large_s / ((t1 - t0) / N_SMALL);
}

static int double_cmp(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *measure(void *arg)
{
    job *j = arg;
    double ratios[MAX_ROUNDS];
    j->ratio = ratios[0] = one_round(j);
    for (size_t n = 1; JUDGE_TIME && j->ratio > CLEAR_RATIO && n < MAX_ROUNDS; n++) {
        ratios[n] = one_round(j);
        qsort(ratios, n + 1, sizeof *ratios, double_cmp);
        j->ratio = ratios[(n + 1) / 2];
    }
    return NULL;
}

static void check(const char *name, const tokenizer *t, const char *unit)
{
    pthread_attr_t attr;
    pthread_t thread;
    size_t n = strlen(unit);
    char *text = malloc(LARGE_BYTES);
    for (size_t i = 0; i < LARGE_BYTES; i++) {
        text[i] = unit[i % n];
    }
    job j = {.t = t, .text = text};
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attr, measure, &j), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    if (JUDGE_TIME && j.ratio > MAX_RATIO) {
        print_error("%s, '%s': 1 MB takes %.1f ms, %.1f times as long as 100 KB\n", name, unit,
                    j.large_s * 1000, j.ratio);
    }
    assert_int_equal(j.st, ST_OK);
    assert_true(j.n_ids > 0);
    assert_true(!JUDGE_TIME || j.ratio <= MAX_RATIO);
    free(text);
}

/* The ones of FAILURES first, then mixtures. */
static const char *const units[] = {"a",
                                    " ",
                                    "1",
                                    "\xCC\x81",
                                    "\xE2",
                                    "\n",
                                    "  \n",
                                    "\xFF\xC3 ",
                                    "a1 \n\xCC\x81\xE2",
                                    "<|im_end|>",
                                    "a cat, a hat. "};
#define N_FAILURES 6
#define N_SOME     7

static void check_units(const char *name, tokenizer *t, size_t n_units)
{
    for (size_t i = 0; i < n_units; i++) {
        check(name, t, units[i]);
    }
    tokenizer_free(t);
}

/* Tokens of 2, 4, 8 and 16 of each of the characters above, made by merging. */
static void add_runs(toy_vocab *v, bool bpe)
{
    static const char *const parts[] = {"a", " ", "1", "\xCC\x81", "\xEF\xBF\xBD", "\n"};
    for (size_t i = 0; i < N_OF(parts); i++) {
        char run[64] = "", merge[256];
        size_t n = strlen(parts[i]);
        memcpy(run, parts[i], n + 1);
        for (size_t k = 1; bpe && k < n; k++) { /* the bytes of one character first */
            gguf_str all = toy_byte_text(run, k + 1);
            toy_token_n(v, all.data, all.len, 0, TOKEN_NORMAL);
            size_t left = toy_byte_text(run, k).len;
            all = toy_byte_text(run, k + 1);
            snprintf(merge, sizeof merge, "%.*s %s", (int)left, all.data, all.data + left);
            toy_merge(v, merge);
        }
        if (!bpe) {
            toy_token(v, parts[i][0] == ' ' ? "\xE2\x96\x81" : parts[i], -1, TOKEN_NORMAL);
        }
        for (int k = 1; k <= 4; k++, n *= 2) {
            memcpy(run + n, run, n);
            run[2 * n] = '\0';
            if (bpe) {
                gguf_str half = toy_byte_text(run, n);
                snprintf(merge, sizeof merge, "%s %s", half.data, half.data);
                toy_merge(v, merge);
                gguf_str all = toy_byte_text(run, 2 * n);
                toy_token_n(v, all.data, all.len, 0, TOKEN_NORMAL);
            } else if (parts[i][0] != ' ') {
                toy_token(v, run, -1 - k, TOKEN_NORMAL);
            }
        }
    }
    toy_token(v, "<|im_end|>", 0, TOKEN_CONTROL);
}

static void test_spm(void **state)
{
    toy_vocab *v = toy_new("llama", NULL);
    toy_spm_base(v);
    add_runs(v, false);
    check_units("spm", toy_open_ok(v), N_OF(units));
}

static void test_bpe(void **state)
{
    static const char *const pres[] = {"gpt-2", "llama-bpe", "deepseek-llm"};
    for (size_t i = 0; i < N_OF(pres); i++) {
        toy_vocab *v = toy_new("gpt2", pres[i]);
        toy_bpe_base(v);
        add_runs(v, true);
        check_units(pres[i], toy_open_ok(v), i == 0 ? N_OF(units) : N_SOME);
    }
}

static void test_real(void **state)
{
    static const char *const names[] = {"llama-spm", "deepseek-coder"};
    for (size_t i = 0; i < N_OF(names); i++) {
        tokenizer *t = tokenizer_from_fixture(names[i]);
        if (!t) {
            skip();
        }
        check_units(names[i], t, N_FAILURES);
    }
}

int main(void)
{
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_bpe),
        cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests_name("text-linear", tests, NULL, NULL);
}
