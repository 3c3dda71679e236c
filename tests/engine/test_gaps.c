/*
 * FAILURES K3 in simulated time: four clients decode, a prompt of 32,000 tokens arrives, then one of 20. A forward
 * call takes what its rows cost by a law of the model (a part for the step, one for each row, one for each position
 * read), so the bounds are exact: the gap between two tokens of a client is at most three of its normal steps; the
 * short prompt has its first token within as many steps as its rows need; the long one goes on in every step.
 */
#include "engine/test_main.h"

#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"

#define N_CLIENTS 4
#define N_LONG    32000
#define N_SHORT   20
#define N_VOCAB   64
#define MAX_ROWS  (512 + 7)
#define N_CTX     (N_LONG + 1000)
#define PAGES     (6 * N_CTX / 32) /* nobody is preempted */

/* What a forward call takes, in microseconds. */
typedef struct law {
    const char *name;
    double step, row, read;
    unsigned away; /* every that many steps the machine is away for four steps' time; 0 = never */
} law;

static const law laws[] = {
    {"1B of 4 bits on two cores", 38000, 1300, 0.05, 0},
    {"small model, rows dear", 500, 400, 0.01, 0},
    {"large model, rows cheap", 90000, 700, 0.2, 0},
    {"rows alone", 0, 1000, 0, 0},
    {"1B on a machine that is away now and then", 38000, 1300, 0.05, 23},
    {"1B of 4 bits, attention dear", 38000, 900, 1.5, 0},
};

typedef struct client {
    uint64_t first_ns, submitted_ns;
    size_t n_tokens;
    bool over;
} client;

typedef struct town {
    const law *l;
    clock_fake clock;
    model_shape shape;
    pool *compute;
    engine *en;
    unsigned n_steps;
    size_t rows;         /* of the last step */
    uint64_t step_ns;    /* what it took */
    bool away;           /* whether the machine was */
    double widest;       /* step, in steps of the replies */
    uint64_t longest_ns; /* of the steps that it was not, since cleared */
    client clients[N_CLIENTS], big, small;
    sequence *seqs[N_CLIENTS], *big_seq, *small_seq;
} town;

static status forward(void *ctx, pool *p, const batch *b, float *logits, uint8_t *bad, err *e)
{
    town *t = ctx;
    double us = t->l->step;
    (void)p;
    (void)bad;
    (void)e;
    for (size_t i = 0; i < b->n_rows; i++) {
        const batch_row *r = &b->rows[i];
        us += t->l->row + t->l->read * (double)(r->pos + 1);
        if (r->want_logits) {
            for (size_t v = 0; v < N_VOCAB; v++) {
                logits[v] = v == (size_t)(r->pos + 1) % N_VOCAB;
            }
            logits += N_VOCAB;
        }
    }
    t->away = t->l->away > 0 && ++t->n_steps % t->l->away == 0;
    t->rows = b->n_rows;
    t->step_ns = (uint64_t)(us * (t->away ? 4 : 1) * 1000);
    t->longest_ns = !t->away && t->step_ns > t->longest_ns ? t->step_ns : t->longest_ns;
    t->clock.now_ns += t->step_ns;
    return ST_OK;
}

typedef struct ear { /* a sink's context */
    town *t;
    client *c;
} ear;

static void on_token(void *ctx, const gen_token *tok)
{
    const ear *x = ctx;
    client *c = x->c;
    (void)tok;
    c->first_ns = c->n_tokens++ == 0 ? x->t->clock.now_ns : c->first_ns;
}

static void on_done(void *ctx, const gen_result *g)
{
    (void)g;
    ((ear *)ctx)->c->over = true;
}

static void on_failed(void *ctx, const err *e)
{
    (void)ctx;
    fail_msg("a reply failed: %s", e->msg);
}

static void submit(town *t, ear *x, client *c, size_t n_prompt, int32_t n_new, sequence **out)
{
    static int32_t prompt[N_LONG];
    err e;
    for (size_t i = 0; i < n_prompt; i++) {
        prompt[i] = (int32_t)(i % N_VOCAB);
    }
    *x = (ear){t, c};
    memset(c, 0, sizeof *c);
    c->submitted_ns = t->clock.now_ns;
    gen_request r = {.prompt = prompt,
                     .n_prompt = n_prompt,
                     .max_new_tokens = n_new,
                     .params = sampling_default(),
                     .prompt_logprobs = -1,
                     .sink = {.ctx = x, .token = on_token, .done = on_done, .failed = on_failed}};
    if (engine_submit(t->en, &r, out, &e) != ST_OK) {
        fail_msg("%s", e.msg);
    }
}

static void found(town *t, const law *l)
{
    err e;
    memset(t, 0, sizeof *t);
    t->l = l;
    t->shape = (model_shape){.arch = "law", .n_vocab = N_VOCAB, .n_ctx_train = N_CTX};
    clock_fake_init(&t->clock, 1000000000, 1000);
    assert_int_equal(pool_new(1, false, &t->compute, &e), ST_OK);
    engine_config c = {.ops = {.ctx = t,
                               .shape = &t->shape,
                               .page_bytes = 64,
                               .max_rows = MAX_ROWS,
                               .max_logit_rows = 16,
                               .forward = forward},
                       .kern = kern_table_of(KERN_REF),
                       .compute = t->compute,
                       .clock = &t->clock.src,
                       .n_ctx = N_CTX,
                       .n_pages = PAGES,
                       .prefill_chunk = 512,
                       .max_step_ns = GEN_MAX_STEP_NS,
                       .max_sequences = 8,
                       .warm = false};
    if (engine_new(&c, &t->en, &e) != ST_OK) {
        fail_msg("engine_new: %s", e.msg);
    }
}

static void leave(town *t)
{
    for (size_t i = 0; i < N_CLIENTS; i++) {
        if (t->seqs[i] && !t->clients[i].over) {
            seq_cancel(t->seqs[i]);
        }
    }
    while (engine_step(t->en)) {
    }
    assert_int_equal(engine_running(t->en), 0);
    engine_free(t->en);
    pool_free(t->compute);
}

/* Four clients that have decoded for a while. */
static void four_decode(town *t, ear *ears)
{
    for (size_t i = 0; i < N_CLIENTS; i++) {
        submit(t, &ears[i], &t->clients[i], 50 + 100 * i, 30000, &t->seqs[i]);
    }
    size_t n_spoke = 0;
    while (n_spoke < N_CLIENTS) {
        engine_step(t->en);
        n_spoke = 0;
        for (size_t i = 0; i < N_CLIENTS; i++) {
            n_spoke += t->clients[i].n_tokens > 2;
        }
    }
    for (int k = 0; k < 80; k++) {
        engine_step(t->en);
    }
}

/* What the four alone would take for their next step. */
static uint64_t own_step(const town *t)
{
    double us = t->l->step;
    for (size_t i = 0; i < N_CLIENTS; i++) {
        us += t->l->row + t->l->read * (double)(50 + 100 * i + t->clients[i].n_tokens);
    }
    return (uint64_t)(us * 1000);
}

/* Of the long prompt. */
static int32_t how_far(const town *t)
{
    int32_t cached, processed = N_LONG;
    if (!t->big.over) {
        seq_progress(t->big_seq, &cached, &processed);
    }
    return processed;
}

/* A step: each client has a token, within three steps of their own and a row; the long prompt goes on. */
static void step_on(town *t)
{
    int32_t before = how_far(t), after = N_LONG;
    uint64_t own = own_step(t);
    size_t said = t->clients[0].n_tokens + t->clients[N_CLIENTS - 1].n_tokens;
    engine_step(t->en);
    assert_int_equal(t->clients[0].n_tokens + t->clients[N_CLIENTS - 1].n_tokens, said + 2);
    if (t->big.n_tokens == 0) {
        after = how_far(t);
        assert_true(after > before);
    }
    double row_ns = 1000 * (t->l->row + t->l->read * before);
    double steps = ((double)t->step_ns - row_ns) / (double)own;
    if (!t->away) {
        t->widest = steps > t->widest ? steps : t->widest;
        if (steps > 3) {
            fail_msg("%s: %zu rows took %.2f steps of the replies and a row, the long one at %d", t->l->name,
                     t->rows, steps, (int)before);
        }
    }
}

/* Steps that 20 rows may take: beside a long prompt that is at `depth` they have three quarters of what a prompt may add to
 * a normal step (three fifths of one), or what one row of the long one leaves; one row at least. */
static unsigned enough_steps(const law *l, uint64_t normal, int32_t depth)
{
    double own = l->row + l->read * depth, spare = 0.6 * (double)normal / 1000;
    double rows = (spare - (own > spare / 4 ? own : spare / 4)) / (l->row + l->read * N_SHORT) - 1;
    return 3 + (unsigned)(N_SHORT / (rows > 1 ? rows : 1));
}

static void test_k3(void **state)
{
    static town t;
    (void)state;
    for (size_t i = 0; i < N_OF(laws); i++) {
        ear ears[N_CLIENTS], big, small;
        unsigned worst = 0, n_short = 0;
        found(&t, &laws[i]);
        four_decode(&t, ears);
        submit(&t, &big, &t.big, N_LONG, 4, &t.big_seq);
        while (t.big.n_tokens == 0) {
            for (int k = 0; k < 7 + 40 * (int)n_short && t.big.n_tokens == 0; k++) {
                step_on(&t);
            }
            submit(&t, &small, &t.small, N_SHORT, 6, &t.small_seq);
            int32_t depth = how_far(&t);
            unsigned n = 0, enough = enough_steps(&laws[i], own_step(&t), depth);
            for (; t.small.n_tokens == 0; n++) {
                if (n == enough) {
                    fail_msg("%s: after %u steps a short prompt has not spoken, the long one is at %d",
                             laws[i].name, n, (int)depth);
                }
                step_on(&t);
            }
            worst = n > worst ? n : worst;
            n_short++;
            while (!t.small.over) {
                step_on(&t);
            }
        }
        print_message("%s: a step of %.1f ms, at most %.2f of it and a row; %u short prompts after %u steps "
                      "at most; the "
                      "long one after %.0f s\n",
                      laws[i].name, (double)own_step(&t) / 1e6, t.widest, n_short, worst,
                      (double)(t.big.first_ns - t.big.submitted_ns) / 1e9);
        leave(&t);
    }
}

/* Short ones that never end do not starve the long one: a quarter of what is computed beside the replies is its. */
static void test_long_among_short(void **state)
{
    static town t;
    ear ears[N_CLIENTS], big, small;
    (void)state;
    found(&t, &laws[0]);
    four_decode(&t, ears);
    submit(&t, &big, &t.big, 3000, 4, &t.big_seq);
    t.small.over = true;
    size_t short_rows = 0, steps = 0;
    while (t.big.n_tokens == 0) {
        if (t.small.over) {
            submit(&t, &small, &t.small, 400, 1, &t.small_seq);
            short_rows += 400;
        }
        step_on(&t);
        steps++;
        assert_true(steps < 100000);
    }
    assert_true(short_rows <= 3 * 3000 + 400 + steps); /* a row a step is rounding */
    seq_cancel(t.small.over ? t.big_seq : t.small_seq);
    leave(&t);
}

/* Nobody is held back: steps of a prompt alone are as long as max_step_ns lets them be, and one row longer at most. */
static void test_alone(void **state)
{
    static town t;
    (void)state;
    for (size_t i = 0; i < N_OF(laws); i++) {
        ear big;
        const law *l = &laws[i];
        found(&t, l);
        submit(&t, &big, &t.big, N_LONG, 2, &t.big_seq);
        for (int k = 0; k < 12; k++) { /* it learns */
            engine_step(t.en);
        }
        t.longest_ns = 0;
        while (t.big.n_tokens == 0) {
            int32_t cached, done;
            engine_step(t.en);
            seq_progress(t.big_seq, &cached, &done);
            double row_ns = 1000 * (l->row + l->read * N_LONG);
            assert_true((double)t.longest_ns <= (double)GEN_MAX_STEP_NS * 1.1 + row_ns);
            /* Rows come in two sixteens where there are more. */
            bool full = (double)t.step_ns >= 0.8 * (double)GEN_MAX_STEP_NS - 32 * row_ns;
            assert_true(full || done == N_LONG || t.away || t.rows == 512);
        }
        leave(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_k3),
        cmocka_unit_test(test_long_among_short),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
