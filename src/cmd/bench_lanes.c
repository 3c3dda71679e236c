#include "cmd/bench_lanes.h"

#include <string.h>

#include "base/mem.h"

typedef struct stream {
    bench_lanes *all;
    session *session; /* owned */
    sequence *seq;    /* NULL: nothing runs on it */
    size_t n_tokens;  /* of the reply so far */
    int32_t reused;
} stream;

struct bench_lanes {
    engine *en; /* borrowed */
    int32_t n_vocab;
    int32_t *prompt; /* owned, [max_tokens] */
    stream *lanes;   /* owned */
    size_t n;
    size_t n_reached; /* lanes whose reply has `goal` tokens */
    size_t goal;      /* at least 1 */
    bool hold;        /* lanes wait once they have the goal */
    uint32_t variant; /* rises, so that no new prompt goes on like one before */
    status st;        /* first failure */
    err e;
};

static void on_token(void *ctx, const gen_token *t)
{
    stream *l = ctx;
    (void)t;
    l->n_tokens++;
    if (l->n_tokens == l->all->goal) {
        l->all->n_reached++;
        if (l->all->hold) {
            seq_hold(l->seq, true);
        }
    }
}

static void on_done(void *ctx, const gen_result *r)
{
    stream *l = ctx;
    l->seq = NULL;
    l->reused = r->reused_tokens;
}

static void on_failed(void *ctx, const err *e)
{
    stream *l = ctx;
    l->seq = NULL;
    if (l->all->st == ST_OK) {
        l->all->st = e->code;
        l->all->e = *e;
    }
}

status bench_lanes_open(instance *in, size_t n, size_t max_tokens, bench_lanes **out, err *e)
{
    bench_lanes *l = mem_calloc(1, sizeof *l);
    status st = l ? ST_OK : ST_NOMEM;
    if (l) {
        l->en = instance_engine(in);
        l->n_vocab = instance_describe(in)->n_vocab;
        l->prompt = mem_alloc_array(max_tokens, sizeof *l->prompt);
        l->lanes = mem_calloc(n, sizeof *l->lanes);
        st = l->prompt && l->lanes ? ST_OK : ST_NOMEM;
    }
    while (st == ST_OK && l->n < n) {
        l->lanes[l->n].all = l;
        st = session_open(l->en, &l->lanes[l->n].session);
        l->n += st == ST_OK;
    }
    if (st != ST_OK) {
        bench_lanes_close(l);
        return err_set(e, st, NULL, "out of memory for %zu conversations", n);
    }
    *out = l;
    return ST_OK;
}

void bench_lanes_close(bench_lanes *l)
{
    if (!l) {
        return;
    }
    for (size_t i = 0; l->lanes && i < l->n; i++) {
        if (l->lanes[i].seq) {
            seq_cancel(l->lanes[i].seq);
        }
    }
    while (engine_running(l->en) > 0) {
        engine_step(l->en);
    }
    for (size_t i = 0; l->lanes && i < l->n; i++) {
        session_close(l->lanes[i].session);
    }
    mem_free(l->lanes);
    mem_free(l->prompt);
    mem_free(l);
}

/* The first `depth` ids are the same each time, what follows never is. */
static void write_prompt(const bench_lanes *l, size_t lane_index, size_t depth, size_t n)
{
    for (size_t i = 0; i < depth + n; i++) {
        uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)lane_index * 40503u;
        x = (x ^ x >> 15) % (uint32_t)l->n_vocab;
        l->prompt[i] = (int32_t)((x + (i < depth ? 0 : l->variant)) % (uint32_t)l->n_vocab);
    }
}

static gen_request request_of(const bench_lanes *l, stream *at, size_t n_prompt, size_t n_reply)
{
    return (gen_request){.prompt = l->prompt,
                         .n_prompt = n_prompt,
                         .max_new_tokens = (int32_t)n_reply,
                         .params = sampling_default(),
                         .session = at->session,
                         .sink = {at, on_token, on_done, on_failed, NULL},
                         .prompt_logprobs = -1};
}

static status submit(bench_lanes *l, stream *at, size_t n_prompt, size_t n_reply, err *e)
{
    gen_request r = request_of(l, at, n_prompt, n_reply);
    r.params.temperature = 0.8f;
    r.params.top_k = 40;
    r.params.top_p = 0.95f;
    r.params.seed = 1;
    r.params.ignore_eos = true;
    at->n_tokens = 0;
    return engine_submit(l->en, &r, &at->seq, e);
}

/* Steps until all lanes have the goal, or, with none, until nothing runs any more. */
static status advance(bench_lanes *l, bool to_the_end, err *e)
{
    while (l->st == ST_OK && (to_the_end ? engine_running(l->en) > 0 : l->n_reached < l->n)) {
        if (!engine_step(l->en) && !to_the_end) {
            return err_set(e, ST_CAPACITY, NULL, "%zu such conversations at once do not fit the KV pages",
                           l->n);
        }
    }
    if (l->st != ST_OK && e) {
        *e = l->e;
    }
    return l->st;
}

/* Empties the lanes and fills them with depth tokens. */
static status fill(bench_lanes *l, size_t depth, err *e)
{
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < l->n; i++) {
        st = session_reset(l->lanes[i].session);
        write_prompt(l, i, depth, 0);
        if (st == ST_OK && depth > 0) {
            st = submit(l, &l->lanes[i], depth, 0, e);
        }
    }
    return st == ST_OK ? advance(l, true, e) : st;
}

/* The least and the most that any lane's prompt would find of itself. */
static void at_hand(bench_lanes *l, size_t depth, size_t n, int32_t *least, int32_t *most)
{
    *least = INT32_MAX;
    *most = 0;
    for (size_t i = 0; i < l->n; i++) {
        write_prompt(l, i, depth, n);
        gen_request r = request_of(l, &l->lanes[i], depth + n, 1);
        int32_t found = engine_would_reuse(l->en, &r);
        *least = found < *least ? found : *least;
        *most = found > *most ? found : *most;
    }
}

status bench_lanes_prefill(bench_lanes *l, size_t depth, size_t n, double *ms, err *e)
{
    const clock_src *c = clock_system();
    int32_t least, most;
    status st = ST_OK;
    do { /* the engine keeps what it has computed, also for others */
        l->variant++;
        at_hand(l, depth, n, &least, &most);
    } while (most > (int32_t)depth && l->variant < (uint32_t)l->n_vocab);
    if (least < (int32_t)depth) {
        st = fill(l, depth, e);
    }
    l->goal = 1;
    l->hold = false;
    l->n_reached = 0;
    uint64_t t0 = clock_mono_ns(c);
    for (size_t i = 0; st == ST_OK && i < l->n; i++) {
        write_prompt(l, i, depth, n);
        st = submit(l, &l->lanes[i], depth + n, 1, e);
    }
    if (st == ST_OK) {
        st = advance(l, false, e);
    }
    *ms = clock_ms_between(t0, clock_mono_ns(c));
    if (st == ST_OK) {
        st = advance(l, true, e);
    }
    for (size_t i = 0; st == ST_OK && i < l->n; i++) {
        if (l->lanes[i].reused != (int32_t)depth) {
            st = err_set(e, ST_INTERNAL, NULL, "%d tokens were there, not %zu", (int)l->lanes[i].reused,
                         depth);
        }
    }
    return st;
}

status bench_lanes_decode(bench_lanes *l, size_t depth, size_t n, double *ms, err *e)
{
    const clock_src *c = clock_system();
    size_t n_prompt = depth > 0 ? depth : 1;
    status st = ST_OK;
    l->goal = 1;
    l->hold = true;
    l->n_reached = 0;
    for (size_t i = 0; st == ST_OK && i < l->n; i++) {
        write_prompt(l, i, n_prompt, 0);
        st = submit(l, &l->lanes[i], n_prompt, n + 1, e);
    }
    if (st == ST_OK) {
        st = advance(l, false, e);
    }
    if (st != ST_OK) {
        return st;
    }
    l->goal = n + 1;
    l->hold = false;
    l->n_reached = 0;
    for (size_t i = 0; i < l->n; i++) {
        seq_hold(l->lanes[i].seq, false);
    }
    uint64_t t0 = clock_mono_ns(c);
    st = advance(l, false, e);
    *ms = clock_ms_between(t0, clock_mono_ns(c));
    return st == ST_OK ? advance(l, true, e) : st;
}
