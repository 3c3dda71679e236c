/*
 * stories260K, a real trained model: 200 greedy tokens after two prompts, and the mean negative
 * log-likelihood of procedure A (fixtures/MANIFEST.md).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "fixtures.h"
#include "model/rig.h"

#define N_VOCAB      512
#define N_GREEDY     200
#define MAX_PROMPT   32
#define BOS          1
#define N_TEXT       2063
#define PIECE        255
#define NLL_MEAN     1.622184
#define NLL_WITHIN   1e-5
#define SCORE_WITHIN 1e-4 /* single scores: the MANIFEST's second program is within 1.3e-5 */

static bool open_stories(rig *r, size_t max_rows)
{
    rig_options opt = rig_options_of(kern_select(KERN_SET_COUNT - 1)->set);
    opt.max_rows = max_rows;
    opt.threads = 2;
    opt.shuffle = 7;
    const char *path = fixture_path("stories260K.gguf");
    if (path) {
        rig_open(r, path, &opt);
    }
    return path != NULL;
}

static char *read_text(const char *name, size_t *len)
{
    const char *path = fixture_path(name);
    FILE *f = path ? fopen(path, "rb") : NULL;
    assert_non_null(f);
    size_t cap = 1 << 20;
    char *text = mem_alloc(cap);
    assert_non_null(text);
    *len = fread(text, 1, cap, f);
    fclose(f);
    assert_true(*len > 0 && *len < cap);
    return text;
}

static size_t ids_of(const json *object, const char *key, int32_t *out, size_t cap)
{
    const json *list;
    assert_true(json_get(object, key, &list));
    size_t n = json_len(list);
    assert_true(n <= cap);
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        assert_true(json_i64(json_at(list, i), &id));
        out[i] = (int32_t)id;
    }
    return n;
}

static void check_greedy(rig *r, const json *entry)
{
    static float logits[MAX_PROMPT * N_VOCAB];
    int32_t prompt[MAX_PROMPT], want[N_GREEDY];
    uint8_t bad[MAX_PROMPT];
    size_t n_prompt = ids_of(entry, "prompt_ids", prompt, MAX_PROMPT);
    assert_int_equal(ids_of(entry, "ids", want, N_GREEDY), N_GREEDY);
    rig_reset(r);
    rig_seq s = rig_sequence(r, n_prompt + N_GREEDY);
    rig_part part = {.seq = &s, .tokens = prompt, .n = n_prompt};
    rig_step(r, &part, 1, logits, bad);
    const float *last = logits + (n_prompt - 1) * N_VOCAB;
    for (size_t i = 0; i < N_GREEDY; i++) {
        int32_t best = 0;
        for (int32_t j = 1; j < N_VOCAB; j++) {
            best = last[j] > last[best] ? j : best;
        }
        if (best != want[i]) {
            print_error("token %zu is %d, not %d\n", i, best, want[i]);
            fail();
        }
        part = (rig_part){.seq = &s, .tokens = &best, .n = 1};
        rig_step(r, &part, 1, logits, bad);
        assert_int_equal(bad[0], 0);
        last = logits;
    }
}

static void test_greedy(void **state)
{
    rig r;
    if (!open_stories(&r, MAX_PROMPT)) {
        skip();
    }
    size_t len;
    char *text = read_text("stories260K.greedy.json", &len);
    json_doc *doc = NULL;
    assert_int_equal(json_parse(text, len, 8, &doc, NULL), ST_OK);
    assert_int_equal(json_len(json_root(doc)), 2);
    for (size_t i = 0; i < 2; i++) {
        check_greedy(&r, json_at(json_root(doc), i));
    }
    json_doc_free(doc);
    mem_free(text);
    rig_close(&r);
}

static double score(const float *row, int32_t id)
{
    double top = (double)row[0], sum = 0.0;
    for (size_t i = 1; i < N_VOCAB; i++) {
        top = fmax(top, (double)row[i]);
    }
    for (size_t i = 0; i < N_VOCAB; i++) {
        sum += exp((double)row[i] - top);
    }
    return log(sum) + top - (double)row[id];
}

static void read_ids(int32_t *ids)
{
    size_t len;
    char *text = read_text("stories.tokens.txt", &len);
    char *at = text;
    text[len] = '\0';
    for (size_t i = 0; i < N_TEXT; i++) {
        char *end;
        ids[i] = (int32_t)strtol(at, &end, 10);
        assert_true(end > at);
        at = end;
    }
    mem_free(text);
}

static void test_perplexity(void **state)
{
    static float logits[(PIECE + 1) * N_VOCAB], want[N_TEXT];
    static int32_t ids[N_TEXT];
    rig r;
    if (!open_stories(&r, PIECE + 1)) {
        skip();
    }
    read_ids(ids);
    FILE *f = fopen(fixture_path("stories.nll.f32"), "rb");
    assert_non_null(f);
    assert_int_equal(fread(want, sizeof(float), N_TEXT, f), N_TEXT);
    fclose(f);
    double sum = 0.0, worst = 0.0;
    for (size_t at = 0; at < N_TEXT; at += PIECE) {
        int32_t window[PIECE + 1] = {BOS};
        size_t n = N_TEXT - at < PIECE ? N_TEXT - at : PIECE;
        memcpy(window + 1, ids + at, n * sizeof *ids);
        assert_true(rig_run(&r, window, n + 1, n + 1, logits));
        for (size_t i = 0; i < n; i++) {
            double nll = score(logits + i * N_VOCAB, window[i + 1]);
            worst = fmax(worst, fabs(nll - (double)want[at + i]));
            sum += nll;
        }
    }
    print_message("mean negative log-likelihood %.7f (reference %.6f), single scores within %.2g\n",
                  sum / N_TEXT, NLL_MEAN, worst);
    assert_true(fabs(sum / N_TEXT - NLL_MEAN) <= NLL_WITHIN);
    assert_true(worst <= SCORE_WITHIN);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_perplexity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
