/*
 * Which matrices are packed and in which pieces (pack_plan), and doing it into memory and as a stream (pack_fill).
 * What a packed matrix looks like is kern_pack's; here it must lie where the plan says, once, whatever the pieces
 * and threads are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "kern/pack.h"
#include "model/pack_fill.h"
#include "model/pack_rig.h"
#include "model/temp_path.h"

static char small[TEMP_PATH_BYTES], large[TEMP_PATH_BYTES], narrow[TEMP_PATH_BYTES];
#define N_MODELS 3
static const char *const paths[N_MODELS] = {small, large, narrow};

static int set_up(void **state)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_Q4_K);
    spec.type_alt = GGUF_TYPE_BF16;
    status st = make_model(temp_path(small, "pack-small.gguf"), &spec, NULL);
    /* An output of 19 MB, a table of its own that is not packed, a vocabulary that ends inside a panel. */
    spec.type = GGUF_TYPE_F16;
    spec.type_alt = GGUF_TYPE_F32;
    spec.tied = false;
    spec.width = 640;
    spec.n_vocab = 7603;
    if (st == ST_OK) {
        st = make_model(temp_path(large, "pack-large.gguf"), &spec, NULL);
    }
    /* Panels of 288 bytes: something to fill up behind most matrices. */
    spec = make_model_default(GGUF_TYPE_Q4_0);
    spec.type_alt = GGUF_TYPE_Q4_0;
    spec.width = 32;
    spec.head_dim = 16;
    spec.n_heads = 2;
    spec.n_kv_heads = 1;
    spec.n_ff = 64;
    return st == ST_OK && make_model(temp_path(narrow, "pack-narrow.gguf"), &spec, NULL) == ST_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    return unlink(small) | unlink(large) | unlink(narrow);
}

/* The steps pass over every byte of every part and of the image, in order, and the slices over every panel. */
static void check_tiling(const pack_plan *plan)
{
    uint64_t image = 0, at = 0, n_bytes;
    size_t part = 0, slice = 0;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const pack_step *s = &plan->steps[i];
        (void)gguf_part_bytes(plan->file, part, &n_bytes);
        if (at == n_bytes) {
            part++;
            at = 0;
        }
        assert_int_equal(s->part, part);
        assert_int_equal(s->from, at);
        assert_true(s->to > s->from);
        assert_int_equal(s->image_from, image);
        assert_int_equal(s->slice0, slice);
        for (; slice < s->slice1; slice++) {
            const pack_slice *sl = &plan->slices[slice];
            assert_true(pack_slice_offset(sl) >= s->image_from);
            assert_true(pack_slice_offset(sl) + pack_slice_bytes(sl) <= s->image_to);
            assert_true(sl->p0 < sl->p1);
            assert_int_equal(sl->p0, slice > 0 && plan->slices[slice - 1].item == sl->item
                                         ? plan->slices[slice - 1].p1
                                         : 0);
        }
        at = s->to;
        image = s->image_to;
    }
    (void)gguf_part_bytes(plan->file, part, &n_bytes);
    assert_int_equal(part, gguf_parts(plan->file) - 1);
    assert_int_equal(at, n_bytes);
    assert_int_equal(image, plan->image_bytes);
    assert_int_equal(slice, plan->n_slices);
}

static void plan_tiles(void **state)
{
    for (size_t i = 0; i < N_MODELS; i++) {
        pack_rig r;
        uint64_t end = 0;
        pack_rig_open(&r, paths[i], 1);
        assert_int_equal(r.plan.n_items, 7 * 2 + 1); /* two layers of seven, the output */
        for (size_t k = 0; k < r.plan.n_items; k++) {
            const pack_item *item = &r.plan.items[k];
            assert_int_equal(item->offset % PACK_ALIGN, 0);
            assert_true(item->offset >= end && item->offset < end + PACK_ALIGN);
            assert_int_equal(item->bytes, kern_packed_bytes(item->w->type, item->w->n, item->w->k));
            assert_ptr_equal(item->w, weights_matrix(&r.w, r.hp.shape.n_layers, item->matrix));
            end = item->offset + item->bytes;
        }
        check_tiling(&r.plan);
        assert_true(paths[i] != large || r.plan.n_steps > 6); /* several for the output, gaps */
        pack_rig_close(&r);
    }
}

/* A table that wants nothing packed has no image; one that wants a type has the matrices of that type. */
static void plan_follows_the_table(void **state)
{
    pack_rig r;
    pack_plan plan;
    pack_rig_open(&r, small, 1);
    assert_int_equal(pack_plan_make(r.file, &r.w, 2, kern_table_of(KERN_REF), &r.mem, &plan, NULL), ST_OK);
    assert_int_equal(plan.image_bytes, 0);
    assert_int_equal(plan.n_items, 0);
    assert_true(plan.unpacked[GGUF_TYPE_Q4_K] && plan.unpacked[GGUF_TYPE_BF16] &&
                !plan.unpacked[GGUF_TYPE_F32]);
    kern_table only = *kern_table_of(KERN_REF);
    only.wants_packed[GGUF_TYPE_BF16] = true;
    assert_int_equal(pack_plan_make(r.file, &r.w, 2, &only, &r.mem, &plan, NULL), ST_OK);
    assert_int_equal(plan.n_items, 2 * 2); /* v and down; the tied output is Q4_K */
    assert_true(plan.unpacked[GGUF_TYPE_Q4_K] && !plan.unpacked[GGUF_TYPE_BF16]);
    assert_int_equal(pack_key_types(&only), (uint64_t)1 << GGUF_TYPE_BF16);
    pack_rig_close(&r);
}

typedef struct reports {
    double last;
    size_t n;
} reports;

static void note(void *ctx, double done)
{
    reports *r = ctx;
    assert_true(done >= r->last && done <= 1);
    r->last = done;
    r->n++;
}

static status collect(void *ctx, const void *data, size_t n, err *e)
{
    return buf_append(ctx, data, n);
}

static void sum_of_file(const char *path, uint8_t sum[SHA256_BYTES])
{
    buf all = {0};
    char chunk[4096];
    FILE *f = fopen(path, "rbe");
    assert_non_null(f);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) {
        assert_int_equal(buf_append(&all, chunk, n), ST_OK);
    }
    fclose(f);
    assert_int_equal(sha256_once(all.data, all.len, sum), ST_OK);
    buf_release(&all);
}

static void fills_alike(void **state)
{
    for (size_t i = 0; i < 2 * N_MODELS; i++) {
        pack_rig r;
        uint8_t digest[SHA256_BYTES], want_digest[SHA256_BYTES];
        buf stream = {0};
        reports seen = {0};
        pack_rig_open(&r, paths[i / 2], i % 2 ? 3 : 1);
        unsigned char *want = pack_rig_image(&r);
        unsigned char *got = mem_calloc((size_t)r.plan.image_bytes, 1);
        const pack_progress progress = {note, &seen};
        const pack_sink sink = {collect, &stream};
        pack_fill_memory(&r.plan, r.p, got, &progress);
        assert_memory_equal(got, want, (size_t)r.plan.image_bytes);
        assert_true(seen.n > 0);
        seen = (reports){0};
        assert_int_equal(pack_fill_stream(&r.plan, r.p, &sink, &progress, digest, NULL), ST_OK);
        assert_int_equal(stream.len, r.plan.image_bytes);
        assert_memory_equal(stream.data, want, stream.len);
        assert_true(seen.last == 1.0);
        sum_of_file(paths[i / 2], want_digest);
        assert_memory_equal(digest, want_digest, SHA256_BYTES);
        buf_release(&stream);
        mem_free(want);
        mem_free(got);
        pack_rig_close(&r);
    }
}

typedef struct failing {
    size_t left; /* writes that succeed */
    size_t n;
} failing;

static status fail_later(void *ctx, const void *data, size_t n, err *e)
{
    failing *f = ctx;
    f->n++;
    return f->n <= f->left ? ST_OK : err_set(e, ST_FULL, NULL, "no room for %zu bytes", n);
}

/* A sink that fails ends it there, wherever that is. */
static void stream_fails(void **state)
{
    pack_rig r;
    uint8_t digest[SHA256_BYTES];
    pack_rig_open(&r, large, 2);
    failing count = {.left = SIZE_MAX};
    pack_sink sink = {fail_later, &count};
    assert_int_equal(pack_fill_stream(&r.plan, r.p, &sink, &(pack_progress){0}, digest, NULL), ST_OK);
    assert_true(count.n > 3);
    for (size_t left = 0; left < count.n; left++) {
        failing f = {.left = left};
        err e = {0};
        sink.ctx = &f;
        assert_int_equal(pack_fill_stream(&r.plan, r.p, &sink, &(pack_progress){0}, digest, &e), ST_FULL);
        assert_non_null(strstr(e.msg, "no room"));
        assert_int_equal(f.n, left + 1);
    }
    pack_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_tiles),
        cmocka_unit_test(plan_follows_the_table),
        cmocka_unit_test(fills_alike),
        cmocka_unit_test(stream_fails),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
