/*
 * Everything a sequence knows is in its struct, and parking touches only what is about pages: the bytes of the
 * struct before it is parked and after it is back differ in the fields named here and in no other. And nothing of an
 * owner is left in a lane that the next one gets.
 */
#include "engine/test_main.h"

#include <string.h>

#include "base/mem.h"
#include "engine/engine_int.h"
#include "engine/engine_rig.h"

typedef struct range {
    const char *name;
    size_t at, size;
} range;

#define FIELD(name)                                                          \
    {                                                                        \
#name, offsetof(sequence, name), sizeof(((const sequence *)0)->name) \
    }

/* What parking and coming back may change: all of it is about pages, places in queues and their history. */
static const range may_change[] = {
    FIELD(image),       FIELD(promised_pages), FIELD(n_preempted), FIELD(immune_until),
    FIELD(parked),      FIELD(waits_ns),       FIELD(step_rows),   FIELD(step_first),
    FIELD(step_logits), FIELD(step_limit),     FIELD(state),
};

static const range *range_of(size_t at)
{
    for (size_t i = 0; i < N_OF(may_change); i++) {
        if (at >= may_change[i].at && at < may_change[i].at + may_change[i].size) {
            return &may_change[i];
        }
    }
    return NULL;
}

static void expect_same(const sequence *before, const sequence *after, const char *what)
{
    const unsigned char *a = (const unsigned char *)before, *b = (const unsigned char *)after;
    for (size_t i = 0; i < sizeof *before; i++) {
        if (a[i] != b[i] && !range_of(i)) {
            fail_msg("%s: byte %zu of the struct has changed", what, i);
        }
    }
}

/* A reply with everything that a sequence can have, in the middle of it. */
static void begin(engine_rig *r, reply_log *l, session *s, const int32_t *prompt, size_t n)
{
    static const logit_bias bias[] = {{3, -1.0f}, {9, 2.0f}};
    static const int32_t stop_ids[] = {298, 299};
    log_init(l, r);
    gen_request q = rig_request(l, prompt, n, 100);
    q.session = s;
    q.params.temperature = 0.7f;
    q.params.seed = 5;
    q.params.presence_penalty = 0.1f;
    q.params.bias = bias;
    q.params.n_bias = N_OF(bias);
    q.params.top_logprobs = 3;
    q.stop_ids = stop_ids;
    q.n_stop_ids = N_OF(stop_ids);
    q.deadline_ns = r->clock.now_ns + UINT64_C(1000000000000);
    q.priority = 3;
    q.repeat_span = 64;
    q.id_hash = 77;
    rig_submit(r, &q, l);
    for (int i = 0; i < 20; i++) {
        rig_step(r);
    }
    assert_int_equal(l->seq->state, SEQ_DECODE);
}

static void finish(engine_rig *r, reply_log *l, ivec *ids, ivec *probs)
{
    rig_drain(r);
    assert_int_equal(l->n_done, 1);
    if (ids->len == 0) {
        assert_int_equal(ivec_append(ids, l->ids.data, l->ids.len), ST_OK);
        assert_int_equal(ivec_append(probs, l->probs.data, l->probs.len), ST_OK);
    }
    assert_int_equal(l->ids.len, ids->len);
    assert_memory_equal(l->ids.data, ids->data, ids->len * sizeof *ids->data);
    assert_int_equal(l->probs.len, probs->len);
    assert_memory_equal(l->probs.data, probs->data, probs->len * sizeof *probs->data);
    log_release(l);
}

static void test_nothing_is_lost(void **state)
{
    ivec ids = {0}, probs = {0};
    int32_t prompt[90];
    rig_tokens(prompt, 90, 4);
    for (int run = 0; run < 3; run++) { /* undisturbed; parked without a copy; with one */
        engine_rig r;
        reply_log l;
        session *s;
        rig_config cfg = rig_config_default();
        cfg.park_bytes = run == 2 ? 1 << 20 : 0;
        rig_open(&r, &cfg);
        assert_int_equal(session_open(r.en, &s), ST_OK);
        begin(&r, &l, s, prompt, 90);
        if (run > 0) {
            sequence before, parked;
            size_t n_tokens = l.seq->kv->ids.len;
            ivec history = {0};
            assert_int_equal(ivec_append(&history, l.seq->history.data, l.seq->history.len), ST_OK);
            memcpy(&before, l.seq, sizeof before);
            sequence_park(l.seq, r.clock.now_ns);
            memcpy(&parked, l.seq, sizeof parked);
            expect_same(&before, &parked, "parked");
            assert_int_equal(l.seq->kv->n_pages, 0);
            while (l.seq->kv->ids.len < n_tokens) { /* it comes back by itself */
                memcpy(&parked, l.seq, sizeof parked);
                expect_same(&before, &parked, "on its way back");
                rig_step(&r);
            }
            assert_true(l.seq->history.len >= history.len);
            assert_memory_equal(l.seq->history.data, history.data, history.len * sizeof *history.data);
            ivec_release(&history);
        }
        finish(&r, &l, &ids, &probs);
        session_close(s);
        rig_close(&r);
    }
    ivec_release(&ids);
    ivec_release(&probs);
}

/* Owners of all kinds, then one that finds the lane as a new one would. */
static void test_nothing_survives_in_a_lane(void **state)
{
    engine_rig r;
    rig_config cfg = rig_config_default();
    int32_t prompt[90];
    rig_tokens(prompt, 90, 4);
    cfg.max_sequences = 1;
    cfg.park_bytes = 1 << 20;
    rig_open(&r, &cfg);
    for (int how = 0; how < 4; how++) {
        reply_log l;
        session *s = NULL;
        if (how % 2) {
            assert_int_equal(session_open(r.en, &s), ST_OK);
        }
        begin(&r, &l, s, prompt, 90);
        uint64_t generation = l.seq->lane->generation;
        if (how == 2) {
            sequence_park(l.seq, r.clock.now_ns);
        }
        seq_cancel(l.seq);
        rig_drain(&r);
        session_close(s);
        log_release(&l);
        const lane *at = lanes_at(engine_lanes(r.en), 0);
        assert_non_null(at);
        assert_int_equal(at->owner, 0);
        assert_false(at->named);
        assert_int_equal(at->kv.ids.len, 0);
        assert_int_equal(at->kv.n_pages, 0);
        assert_false(lanes_is_current(engine_lanes(r.en), 0, generation));
        assert_int_equal(park_images(r.en->parking), 0);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_lost),
        cmocka_unit_test(test_nothing_survives_in_a_lane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
