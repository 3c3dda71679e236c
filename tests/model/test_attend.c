/*
 * attend: how a batch's attention is cut into tasks, and that no cut changes a bit: sets, threads, steps of any size,
 * sequences beside each other, over more than two spans of 256 positions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/sanitized.h"
#include "model/attend.h"
#include "model/make_model.h"
#include "model/rig.h"
#include "model/temp_path.h"

#define DEPTH     620
#define N_VOCAB   64
#define N_MODELS  2
#define MOST_ROWS 256

static char paths[N_MODELS][TEMP_PATH_BYTES];
static int32_t tokens[DEPTH];

static int set_up(void **state)
{
    /* One KV head, so that threads must share spans; three query heads for each of four KV heads; odd multiples of 8. */
    static const uint32_t heads[N_MODELS][3] = {{4, 1, 40}, {12, 4, 24}};
    (void)state;
    rig_tokens(tokens, DEPTH, N_VOCAB, 77);
    for (size_t i = 0; i < N_MODELS; i++) {
        make_model_spec spec = make_model_default(GGUF_TYPE_Q8_0);
        spec.width = 96;
        spec.n_heads = heads[i][0];
        spec.n_kv_heads = heads[i][1];
        spec.head_dim = heads[i][2];
        spec.n_ff = 160;
        spec.n_vocab = N_VOCAB;
        spec.n_ctx = 1024;
        err e;
        if (make_model(temp_path(paths[i], i ? "attend-1.gguf" : "attend-0.gguf"), &spec, &e) != ST_OK) {
            print_error("%s\n", e.msg);
            return -1;
        }
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(paths[0]) | unlink(paths[1]);
}

static rig_options options_of(kern_set set, size_t threads, kv_type kv)
{
    rig_options opt = rig_options_of(set);
    opt.threads = threads;
    opt.kv = kv;
    opt.max_rows = MOST_ROWS;
    opt.shuffle = 3;
    opt.n_pages = 80;
    return opt;
}

static kern_set best_set(void)
{
    return kern_select(KERN_SET_COUNT - 1)->set;
}

/* The reference kernels, one thread, 64 rows a step. Under a sanitizer, which makes them take minutes, the best ones. */
static float *reference(const char *path, kv_type kv)
{
    rig r;
    rig_options opt = options_of(SANITIZED ? best_set() : KERN_REF, 1, kv);
    float *want = mem_alloc_array((size_t)DEPTH * N_VOCAB, sizeof *want);
    assert_non_null(want);
    rig_open(&r, path, &opt);
    assert_true(rig_run(&r, tokens, DEPTH, 64, want));
    rig_close(&r);
    return want;
}

static void compare(const float *got, const float *want, size_t pos, size_t n, const char *what,
                    size_t threads, kern_set set)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(got + i * N_VOCAB, want + (pos + i) * N_VOCAB, N_VOCAB * sizeof *got) != 0) {
            print_error("%s, %zu threads, set %s: position %zu differs\n", what, threads, kern_set_name(set),
                        pos + i);
            fail();
        }
    }
}

static void run_chunks(rig *r, const float *want, size_t chunk, size_t threads, kern_set set)
{
    float *got = mem_alloc_array((size_t)DEPTH * N_VOCAB, sizeof *got);
    assert_non_null(got);
    assert_true(rig_run(r, tokens, DEPTH, chunk, got));
    compare(got, want, 0, DEPTH, "alone", threads, set);
    mem_free(got);
}

/* One row of a long sequence, a chunk of a fresh one, one row of a third: prefill and decoding side by side. */
static void run_beside(rig *r, const float *want, size_t threads, kern_set set)
{
    float *got = mem_alloc_array((size_t)MOST_ROWS * N_VOCAB, sizeof *got);
    uint8_t bad[MOST_ROWS];
    size_t at[3] = {600, 0, 280};
    rig_seq seqs[3];
    assert_non_null(got);
    rig_reset(r);
    for (size_t i = 0; i < 3; i++) {
        seqs[i] = rig_sequence(r, DEPTH);
        for (size_t done = 0; done < at[i];) {
            rig_part part = {&seqs[i], tokens + done, at[i] - done < MOST_ROWS ? at[i] - done : MOST_ROWS};
            rig_step(r, &part, 1, got, bad);
            done += part.n;
        }
    }
    for (size_t step = 0; step < 8; step++) {
        const size_t n[3] = {1, 37, step % 2 ? 1 : 3};
        rig_part parts[3];
        size_t row = 0;
        for (size_t i = 0; i < 3; i++) {
            parts[i] = (rig_part){&seqs[i], tokens + at[i], n[i]};
        }
        rig_step(r, parts, 3, got, bad);
        for (size_t i = 0; i < 3; i++) {
            compare(got + row * N_VOCAB, want, at[i], n[i], "beside others", threads, set);
            row += n[i];
            at[i] += n[i];
        }
    }
    mem_free(got);
}

static void pure(const char *path, kv_type kv, kern_set set)
{
    static const struct {
        size_t threads, chunk;
    } runs[] = {{5, 61}, {1, 7}, {2, 256}, {3, 61}, {5, 256}, {3, 1}};
    size_t n_runs = SANITIZED || set == KERN_REF ? 1 : sizeof runs / sizeof *runs;
    float *want = reference(path, kv);
    for (size_t i = 0; i < n_runs; i++) {
        rig_options opt = options_of(set, runs[i].threads, kv);
        rig r;
        rig_open(&r, path, &opt);
        run_chunks(&r, want, runs[i].chunk, runs[i].threads, set);
        if (i % 2 == 0) {
            run_beside(&r, want, runs[i].threads, set);
        }
        rig_close(&r);
    }
    mem_free(want);
}

static void test_sets(void **state)
{
    (void)state;
    for (int set = SANITIZED ? (int)best_set() : 0; set < KERN_SET_COUNT; set++) {
        if (kern_table_of((kern_set)set)) {
            pure(paths[set % 2], KV_F16, (kern_set)set);
        }
    }
}

static void test_types(void **state)
{
    (void)state;
    for (int kv = 0; kv < KV_TYPE_COUNT; kv++) {
        pure(paths[(kv + 1) % 2], (kv_type)kv, best_set());
    }
}

/* A plan for rows of sequences that stand at these positions. */
typedef struct plan {
    model_shape shape;
    batch_row rows[MOST_ROWS];
    batch b;
    attend_tile tiles[MOST_ROWS];
    attend at;
} plan;

static void plan_make(plan *p, uint32_t n_heads, uint32_t n_kv_heads, size_t threads)
{
    p->shape = (model_shape){.n_heads = n_heads, .n_kv_heads = n_kv_heads, .k_dim = 64, .v_dim = 64};
    p->b.rows = p->rows;
    p->at = (attend){.shape = &p->shape, .b = &p->b, .tiles = p->tiles};
    attend_plan(&p->at, threads);
}

static void rows_add(plan *p, int32_t seq, int32_t pos, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        p->rows[p->b.n_rows++] = (batch_row){.seq = seq, .pos = pos + (int32_t)i};
    }
}

/* Tiles cover the rows in order, each of one sequence; tasks and joins are numbered through. */
static void plan_check(const plan *p)
{
    size_t row = 0, task = 0, join = 0;
    for (size_t i = 0; i < p->at.n_tiles; i++) {
        const attend_tile *t = &p->tiles[i];
        assert_int_equal(t->row0, row);
        assert_true(t->n_rows >= 1 && t->n_rows <= attend_tile_rows(&p->shape));
        assert_int_equal(p->rows[row].seq, p->rows[row + t->n_rows - 1].seq);
        assert_int_equal(t->first_task, task);
        assert_int_equal(t->first_join, join);
        row += t->n_rows;
        task += t->n_groups * t->n_pieces;
        join += t->n_pieces > 1 ? p->shape.n_kv_heads : 0;
    }
    assert_int_equal(row, p->b.n_rows);
    assert_int_equal(task, p->at.n_tasks);
    assert_int_equal(join, p->at.n_joins);
}

static void test_plan(void **state)
{
    static plan p;
    (void)state;
    /* One row at 4096 of one KV head is work for all of 8 threads: 17 spans in 17 pieces. */
    memset(&p, 0, sizeof p);
    rows_add(&p, 0, 4096, 1);
    plan_make(&p, 32, 1, 8);
    plan_check(&p);
    assert_int_equal(p.tiles[0].n_groups, 1);
    assert_int_equal(p.tiles[0].n_pieces, 17);
    assert_true(p.at.alone);
    /* Eight heads and two threads: eight tasks, nothing to join. */
    plan_make(&p, 32, 8, 2);
    plan_check(&p);
    assert_int_equal(p.at.n_tasks, 8);
    assert_int_equal(p.at.n_joins, 0);
    /* One thread: one task. */
    plan_make(&p, 32, 8, 1);
    assert_int_equal(p.at.n_tasks, 1);
    /* A long row among short ones is cut, they are not. */
    rows_add(&p, 1, 10, 1);
    plan_make(&p, 32, 8, 4);
    assert_true(p.at.alone);
    rows_add(&p, 2, 30, 5);
    plan_make(&p, 32, 8, 4);
    plan_check(&p);
    assert_true(p.tiles[0].n_groups * p.tiles[0].n_pieces >= 8);
    assert_int_equal(p.tiles[1].n_groups * p.tiles[1].n_pieces, 1);
    assert_false(p.at.alone);
    /* Two rows of one sequence are two tiles, and one reads what the other one writes. */
    memset(&p, 0, sizeof p);
    rows_add(&p, 0, 31, 2);
    plan_make(&p, 32, 8, 4);
    plan_check(&p);
    assert_int_equal(p.at.n_tiles, 2);
    assert_false(p.at.alone);
    /* Tiles end where positions are multiples of their rows: 128 query heads are 32 rows of 4. */
    memset(&p, 0, sizeof p);
    rows_add(&p, 0, 20, 100);
    plan_make(&p, 32, 8, 2);
    plan_check(&p);
    assert_int_equal(attend_tile_rows(&p.shape), 32);
    assert_int_equal(p.at.n_tiles, 4); /* 20 to 31, to 63, to 95, to 119 */
    assert_int_equal(p.tiles[0].n_rows, 12);
    /* Where parts do not fit the row is cut by heads alone: 2^20 positions are 4096 spans of 64 heads of 66 floats. */
    memset(&p, 0, sizeof p);
    rows_add(&p, 0, (1 << 20) - 1, 1);
    plan_make(&p, 64, 2, 16);
    plan_check(&p);
    assert_int_equal(p.tiles[0].n_pieces, 1);
    assert_int_equal(p.tiles[0].n_groups, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
