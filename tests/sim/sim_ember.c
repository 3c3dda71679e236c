/*
 * sim_ember [--seed S] [--seconds T]: the real engine on the bundled model. A set of prompts with their parameters is
 * computed first, each alone on a cold engine; then engines with few pages and lanes of all kinds live through random
 * arrivals, cancels and slow readers, and every reply must be what it is alone: ids, and bits of log-probabilities.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ember.h"
#include "engine/instance.h"

#define N_ASKED    24 /* prompts with parameters */
#define MAX_IDS    192
#define MAX_PROMPT 700
#define N_SESSIONS 3
#define MAX_LANES  6
#define N_LIVES    20 /* requests of one engine */
#define MAX_STEPS  200000

typedef struct asked {
    int32_t prompt[MAX_PROMPT];
    size_t n_prompt;
    sampling params;
    int32_t max_new;
    /* What it says alone. */
    int32_t ids[MAX_IDS];
    uint64_t probs[MAX_IDS];
    size_t n_ids;
    finish_reason reason;
} asked;

typedef struct life {
    const asked *of;
    sequence *seq; /* NULL: it has not begun, or is over */
    size_t n_ids;
    bool begun, over, held, cancelled;
} life;

typedef struct counts {
    uint64_t engines, requests, cancelled, tokens, preemptions;
} counts;

static asked all[N_ASKED];
static life lives[N_LIVES];
static instance *in;
static uint64_t dice;
static size_t largest; /* pages that one of them can need */

static const char *const questions[] = {
    "Hello!",
    "What is hearth?",
    "What is two plus three?",
    "Tell me a story about a fox.",
    "Name three colours.",
    "Who are you?",
    "\xC3\xA9\xE2\x82\xAC \xED\x95\x9C",
    "Write a list of animals, then a list of plants, then tell me which you like best and why.",
};
#define N_QUESTIONS (sizeof questions / sizeof questions[0])

static _Noreturn void wrong(const char *what, size_t who)
{
    printf("sim_ember: request %zu: %s\n", who, what);
    exit(1);
}

static void must(status st, const char *what, const err *e)
{
    if (st != ST_OK) {
        printf("sim_ember: %s: %s\n", what, e->msg);
        exit(1);
    }
}

/* splitmix64 */
static size_t pick(size_t low, size_t high)
{
    uint64_t z = dice += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return low + (size_t)((z ^ (z >> 31)) % (high - low + 1));
}

static uint64_t digest(const sampler_out *p)
{
    uint64_t h = 1;
    for (int32_t i = -1; i < p->n_top; i++) {
        const token_logprob *at = i < 0 ? &p->chosen : &p->top[i];
        uint32_t bits;
        memcpy(&bits, &at->logprob, sizeof bits);
        h = (h ^ (uint32_t)at->token) * UINT64_C(0x100000001B3);
        h = (h ^ bits) * UINT64_C(0x100000001B3);
    }
    return h;
}

/* The cold, lone runs */

static void keep_token(void *ctx, const gen_token *t)
{
    asked *a = ctx;
    if (a->n_ids == MAX_IDS) {
        wrong("more tokens than asked for", (size_t)(a - all));
    }
    a->probs[a->n_ids] = digest(t->probs);
    a->ids[a->n_ids++] = t->token;
}

static void keep_done(void *ctx, const gen_result *r)
{
    ((asked *)ctx)->reason = r->reason;
}

static void no_failure(void *ctx, const err *e)
{
    (void)ctx;
    printf("sim_ember: %s\n", e->msg);
    exit(1);
}

static engine *new_engine(size_t n_lanes, size_t n_pages, size_t chunk, size_t park_pages, bool warm)
{
    engine_config c = {.ops = *instance_forward(in),
                       .tok = instance_tokenizer(in),
                       .kern = kern_select(KERN_SET_COUNT - 1),
                       .compute = instance_pool(in),
                       .clock = clock_system(),
                       .n_ctx = instance_describe(in)->context,
                       .n_pages = n_pages,
                       .prefill_chunk = chunk,
                       .max_step_ns = pick(0, 1) ? GEN_MAX_STEP_NS : 2000000,
                       .max_sequences = n_lanes,
                       .park_bytes = park_pages * instance_forward(in)->page_bytes,
                       .warm = warm};
    engine *en = NULL;
    err e;
    must(engine_new(&c, &en, &e), "engine", &e);
    return en;
}

static gen_request request_of(const asked *a, gen_sink sink)
{
    return (gen_request){.prompt = a->prompt,
                         .n_prompt = a->n_prompt,
                         .max_new_tokens = a->max_new,
                         .params = a->params,
                         .prompt_logprobs = -1,
                         .sink = sink};
}

static void ask_alone(asked *a)
{
    engine *en = new_engine(1, (MAX_PROMPT + MAX_IDS) / KV_PAGE_TOKENS + 1, 512, 0, false);
    gen_request q =
        request_of(a, (gen_sink){.ctx = a, .token = keep_token, .done = keep_done, .failed = no_failure});
    sequence *s;
    err e;
    must(engine_submit(en, &q, &s, &e), "a lone request", &e);
    while (engine_running(en) > 0) {
        engine_step(en);
    }
    engine_free(en);
}

/* The first ones are single turns; the others go on from the one before, as conversations do. */
static void make_asked(void)
{
    for (size_t i = 0; i < N_ASKED; i++) {
        asked *a = &all[i];
        char text[512];
        ivec ids = {0};
        err e = {0};
        if (i >= N_QUESTIONS) {
            const asked *before = &all[i - N_QUESTIONS];
            must(ivec_append(&ids, before->prompt, before->n_prompt), "memory", &e);
            must(ivec_append(&ids, before->ids, before->n_ids), "memory", &e);
        }
        snprintf(text, sizeof text, "%s<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n",
                 i >= N_QUESTIONS ? "<|im_end|>\n" : "", questions[(i * 5 + i / N_QUESTIONS) % N_QUESTIONS]);
        must(tokenizer_encode(instance_tokenizer(in), text, strlen(text), TOKENIZE_PARSE_SPECIAL, &ids),
             "text", &e);
        a->n_prompt = ids.len < MAX_PROMPT ? ids.len : MAX_PROMPT;
        memcpy(a->prompt, ids.data, a->n_prompt * sizeof *a->prompt);
        ivec_release(&ids);
        a->params = sampling_default();
        a->params.top_logprobs = 2;
        a->params.temperature = i % 3 == 0 ? 0.0f : 1.0f;
        a->params.top_p = i % 4 == 1 ? 0.9f : 1.0f;
        a->params.seed = 1 + i;
        a->params.ignore_eos = i % 2 == 1;
        a->max_new = i % 2 == 1 ? (int32_t)(30 + 7 * i) : MAX_IDS;
        size_t need = (a->n_prompt + (size_t)a->max_new) / KV_PAGE_TOKENS + 1;
        largest = need > largest ? need : largest;
        ask_alone(a);
    }
}

/* The others */

static void on_token(void *ctx, const gen_token *t)
{
    life *l = ctx;
    size_t i = l->n_ids++;
    if (l->over || i >= l->of->n_ids || l->of->ids[i] != t->token) {
        wrong("another token than alone", (size_t)(l - lives));
    }
    if (!t->probs || digest(t->probs) != l->of->probs[i]) {
        wrong("other bits than alone", (size_t)(l - lives));
    }
}

static void on_done(void *ctx, const gen_result *r)
{
    life *l = ctx;
    bool whole = l->n_ids == l->of->n_ids && r->reason == l->of->reason;
    if (l->over || !(whole || (l->cancelled && r->reason == FINISH_CANCELLED))) {
        wrong("another end than alone", (size_t)(l - lives));
    }
    l->over = true;
    l->seq = NULL;
}

static void begin(engine *en, life *l, session *const *sessions)
{
    gen_request q =
        request_of(l->of, (gen_sink){.ctx = l, .token = on_token, .done = on_done, .failed = no_failure});
    err e;
    q.session = pick(0, 1) ? sessions[pick(0, N_SESSIONS - 1)] : NULL;
    q.priority = (int32_t)pick(0, 4) - 2;
    must(engine_submit(en, &q, &l->seq, &e), "a request", &e);
    l->begun = true;
}

/* Something befalls a random one of those that run. */
static void befall(life *l)
{
    if (!l->seq) {
        return;
    }
    if (pick(0, 7) == 0) {
        l->cancelled = true;
        seq_cancel(l->seq);
    } else {
        l->held = !l->held;
        seq_hold(l->seq, l->held);
    }
}

static void live(engine *en, session *const *sessions)
{
    size_t next = 0;
    for (size_t step = 0; next < N_LIVES || engine_running(en) > 0; step++) {
        if (step > MAX_STEPS) {
            wrong("it waits for ever", next);
        }
        if (next < N_LIVES && (pick(0, 11) == 0 || engine_running(en) == 0)) {
            begin(en, &lives[next++], sessions);
        }
        if (pick(0, 19) == 0) {
            befall(&lives[pick(0, N_LIVES - 1)]);
        }
        if (!engine_step(en)) { /* all of them are held */
            for (size_t i = 0; i < N_LIVES; i++) {
                if (lives[i].seq) {
                    lives[i].held = false;
                    seq_hold(lives[i].seq, false);
                }
            }
        }
    }
}

static void one_engine(counts *n)
{
    session *sessions[N_SESSIONS];
    size_t n_lanes = pick(N_SESSIONS + 1, MAX_LANES), n_pages = pick(largest, largest * 3 / 2);
    engine *en = new_engine(n_lanes, n_pages, pick(1, 64), pick(0, 1) ? pick(1, 80) : 0, pick(0, 3) > 0);
    engine_stats st;
    for (size_t i = 0; i < N_SESSIONS; i++) {
        must(session_open(en, &sessions[i]), "a session", &(err){0});
    }
    for (size_t i = 0; i < N_LIVES; i++) {
        lives[i] = (life){.of = &all[pick(0, N_ASKED - 1)]};
    }
    live(en, sessions);
    for (size_t i = 0; i < N_LIVES; i++) {
        if (!lives[i].over) {
            wrong("no end", i);
        }
        n->tokens += lives[i].n_ids;
        n->cancelled += lives[i].cancelled;
    }
    for (size_t i = 0; i < N_SESSIONS; i++) {
        session_close(sessions[i]);
    }
    engine_stats_read(en, &st);
    if (st.pages_used || st.running || st.bugs || st.requests_failed) {
        wrong("something is left of them", N_LIVES);
    }
    n->engines++;
    n->requests += N_LIVES;
    n->preemptions += st.preemptions;
    engine_free(en);
}

int main(int argc, char **argv)
{
    instance_options o = instance_options_default();
    uint64_t seconds = 5, until_ns, seed = clock_mono_ns(clock_system());
    counts n = {0};
    err e;
    for (int i = 1; i + 1 < argc; i += 2) {
        *(strcmp(argv[i], "--seed") == 0 ? &seed : &seconds) = strtoull(argv[i + 1], NULL, 10);
    }
    o.max_sequences = MAX_LANES;
    o.context = 1024;
    o.threads = 2;
    must(instance_open(ember_path(), &o, &in, &e), ember_path(), &e);
    printf("sim_ember: seed %" PRIu64 "\n", seed);
    make_asked();
    dice = seed;
    until_ns = clock_mono_ns(clock_system()) + seconds * UINT64_C(1000000000);
    do {
        one_engine(&n);
    } while (clock_mono_ns(clock_system()) < until_ns);
    instance_close(in);
    printf("sim_ember: %" PRIu64 " engines, %" PRIu64 " requests (%" PRIu64 " cancelled), %" PRIu64
           " tokens, %" PRIu64 " preemptions: all as alone\n",
           n.engines, n.requests, n.cancelled, n.tokens, n.preemptions);
    return 0;
}
