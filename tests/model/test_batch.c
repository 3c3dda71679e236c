/*
 * The rules of a batch (model/forward.h): what breaks one is refused with ST_INTERNAL before anything is
 * written. Rows that want no logits get none, and the others' come in row order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/make_model.h"
#include "model/rig.h"
#include "model/temp_path.h"

#define N_VOCAB  300
#define MAX_ROWS 4

static char path[TEMP_PATH_BYTES];

static int set_up(void **state)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_F32);
    spec.width = 64;
    spec.head_dim = 16;
    spec.n_ff = 96;
    return make_model(temp_path(path, "batch.gguf"), &spec, NULL) == ST_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    return unlink(path);
}

typedef struct batch_case {
    batch_row rows[MAX_ROWS + 1];
    size_t n_rows;
    const char *says;
} batch_case;

/* Two sequences: 0 has pages for 64 positions, 1 has one page and a hole where its second would be. */
static const batch_case cases[] = {
    {{{0}}, 0, "0 rows"},
    {{{0, 0, 1}, {0, 1, 1}, {0, 2, 1}, {0, 3, 1}, {0, 4, 1}}, 5, "5 rows"},
    {{{-1, 0, 1}}, 1, "no sequence"},
    {{{2, 0, 1}}, 1, "no sequence"},
    {{{0, 0, -1}}, 1, "vocabulary"},
    {{{0, 0, N_VOCAB}}, 1, "vocabulary"},
    {{{0, 0, INT32_MAX}}, 1, "vocabulary"},
    {{{0, -1, 1}}, 1, "negative"},
    {{{0, 0, 1}, {0, 2, 1}}, 2, "does not follow"},
    {{{0, 1, 1}, {0, 0, 1}}, 2, "does not follow"},
    {{{0, 3, 1}, {0, 3, 1}}, 2, "does not follow"},
    {{{0, 0, 1}, {1, 0, 1}, {0, 1, 1}}, 3, "stands apart"},
    {{{0, 63, 1}, {0, 64, 1}}, 2, "last page"},
    {{{0, INT32_MAX, 1}}, 1, "last page"},
    {{{1, 32, 1}}, 1, "not there"},
    {{{0, 0, 1, true}, {0, 1, 1, true}, {0, 2, 1, true}}, 3, "wants logits of 3"},
    {{{0, 0, 1}, {0, 1, 1, false, true}}, 2, "no place for it"},
};

static void test_broken_batches(void **state)
{
    const model_options opt = {.kv_type = KV_F32, .max_rows = MAX_ROWS, .max_logit_rows = 2};
    rig_options ro = rig_options_of(KERN_REF);
    rig r;
    model *m = NULL;
    rig_open(&r, path, &ro);
    assert_int_equal(model_open(r.file, kern_table_of(KERN_REF), &opt, &m, NULL), ST_OK);
    forward_ops ops = model_forward_ops(m);
    void *const pages[2][2] = {{r.order[0], r.order[1]}, {r.order[2], NULL}};
    const batch_seq seqs[2] = {{pages[0], 2}, {pages[1], 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const batch b = {.rows = cases[i].rows, .n_rows = cases[i].n_rows, .seqs = seqs, .n_seqs = 2};
        float logits[3 * N_VOCAB];
        uint8_t bad[MAX_ROWS + 1];
        err e = {0};
        memset(bad, 0x5A, sizeof bad);
        status st = ops.forward(ops.ctx, r.p, &b, logits, bad, &e);
        if (st != ST_INTERNAL || !strstr(e.msg, cases[i].says)) {
            print_error("case %zu: %s: %s\n", i, status_name(st), e.msg);
            fail();
        }
        for (size_t j = 0; j < sizeof bad; j++) {
            assert_int_equal(bad[j], 0x5A);
        }
    }
    for (size_t p = 0; p < 3; p++) { /* still what rig_open filled them with */
        const unsigned char *bytes = r.order[p];
        for (size_t i = 0; i < ops.page_bytes; i++) {
            assert_int_equal(bytes[i], 0xFF);
        }
    }
    model_free(m);
    rig_close(&r);
}

/* Logits of rows 1 and 3 of a sequence only: those of a run that wants all. */
static void test_wanted_rows(void **state)
{
    static const int32_t tokens[4] = {5, 17, 250, 3};
    static float all[4 * N_VOCAB], some[2 * N_VOCAB + 1];
    rig_options ro = rig_options_of(KERN_REF);
    rig r;
    rig_open(&r, path, &ro);
    assert_true(rig_run(&r, tokens, 4, 4, all));
    rig_reset(&r);
    rig_seq s = rig_sequence(&r, 4);
    const batch_seq seq = {s.pages, s.n_pages};
    batch_row rows[4];
    for (int i = 0; i < 4; i++) {
        rows[i] = (batch_row){.pos = i, .token = tokens[i], .want_logits = i % 2 == 1};
    }
    const batch b = {.rows = rows, .n_rows = 4, .seqs = &seq, .n_seqs = 1};
    uint8_t bad[4];
    some[2 * N_VOCAB] = 42.0f;
    assert_int_equal(r.ops.forward(r.ops.ctx, r.p, &b, some, bad, NULL), ST_OK);
    assert_memory_equal(some, all + N_VOCAB, N_VOCAB * sizeof(float));
    assert_memory_equal(some + N_VOCAB, all + 3 * N_VOCAB, N_VOCAB * sizeof(float));
    assert_true(some[2 * N_VOCAB] == 42.0f);
    /* No logits at all: the pages are filled all the same, so the next token sees them. */
    rig_reset(&r);
    for (int i = 0; i < 4; i++) {
        rows[i].want_logits = false;
    }
    const batch head = {.rows = rows, .n_rows = 3, .seqs = &seq, .n_seqs = 1};
    assert_int_equal(r.ops.forward(r.ops.ctx, r.p, &head, NULL, bad, NULL), ST_OK);
    rows[3].want_logits = true;
    const batch last = {.rows = rows + 3, .n_rows = 1, .seqs = &seq, .n_seqs = 1};
    assert_int_equal(r.ops.forward(r.ops.ctx, r.p, &last, some, bad, NULL), ST_OK);
    assert_memory_equal(some, all + 3 * N_VOCAB, N_VOCAB * sizeof(float));
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_batches),
        cmocka_unit_test(test_wanted_rows),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
