#include "sim/oracle.h"

#include <stdlib.h>
#include <string.h>

#include "text/detok.h"

#define N_REMEMBERED 4096

static sampler *with;

bool oracle_open(void)
{
    return sampler_new(SIM_VOCAB, kern_table_of(KERN_REF), &with) == ST_OK;
}

void oracle_close(void)
{
    sampler_free(with);
    with = NULL;
}

sampling oracle_sampling(const sim_request *r)
{
    sampling p = sampling_default();
    p.temperature = (float)r->temp / 100.0f;
    p.top_k = (int32_t)r->top_k;
    p.repetition_penalty = (float)r->penalty / 100.0f;
    p.min_tokens = (int32_t)r->min_tokens;
    p.ignore_eos = r->ignore_eos != 0;
    p.seed = (uint64_t)r->sample_seed;
    p.top_logprobs = (int32_t)r->logprobs;
    return p;
}

status oracle_stops(const sim_request *r, stop_set **out)
{
    static const stop_string lists[][3] = {
        {{"a", 1}, {"", 0}, {"", 0}},
        {{"ab", 2}, {"abc", 3}, {"bcd", 3}},
        {{"\xc3\xa9", 2}, {" a", 2}, {"zzz", 3}},
        {{"\xef\xbf\xbd", 3}, {"qqq", 3}, {"neverever", 9}},
    };
    size_t n = sizeof lists / sizeof lists[0];
    *out = NULL;
    return r->stops > 0 ? stop_set_new(lists[(size_t)(r->stops - 1) % n], 3, out, NULL) : ST_OK;
}

const int32_t *oracle_stop_ids(const sim_request *r, size_t *n)
{
    static const int32_t ids[] = {17, 33, SIM_EOS, 50};
    *n = r->stop_ids > 4 ? 4 : (size_t)r->stop_ids;
    return ids;
}

/* Drawing */

typedef struct drawn_key {
    int64_t temp, top_k, penalty, min_tokens, ignore_eos, seed, stop_ids, tok;
} drawn_key;

typedef struct drawn {
    drawn_key key;
    size_t n_prompt, n; /* tokens in all, the prompt among them; n_prompt = 0: unused */
    bool over;          /* the last one ends the reply and is no part of it */
    int32_t tokens[SIM_PROMPT_MAX + SIM_MAX_CTX + 1];
} drawn;

static drawn remembered[N_REMEMBERED];

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
    const int32_t *at = data;
    for (size_t i = 0; i < n / sizeof *at; i++) {
        h = (h ^ (uint32_t)at[i]) * UINT64_C(0x100000001B3);
        h ^= h >> 29;
    }
    return h;
}

static drawn *recall(const question *q)
{
    const sim_request *r = q->r;
    drawn_key key = {r->temp,       r->top_k,      r->penalty,
                     r->min_tokens, r->ignore_eos, r->temp ? r->sample_seed : 0,
                     r->stop_ids,   q->tok != NULL};
    uint64_t h = hash_bytes(hash_bytes(1, &key, sizeof key), q->prompt, q->n_prompt * sizeof *q->prompt);
    drawn *d = &remembered[(h ^ (h >> 32)) % N_REMEMBERED];
    if (d->n_prompt != q->n_prompt || memcmp(&d->key, &key, sizeof key) != 0 ||
        memcmp(d->tokens, q->prompt, q->n_prompt * sizeof *q->prompt) != 0) {
        d->key = key;
        d->n_prompt = d->n = q->n_prompt;
        d->over = false;
        memcpy(d->tokens, q->prompt, q->n_prompt * sizeof *q->prompt);
    }
    return d;
}

static void draw(const question *q, const sampling *params, const int32_t *tokens, size_t n, sampler_out *out)
{
    float logits[SIM_VOCAB];
    sim_logits(q->model, tokens, n, logits);
    sampler_in in = {
        .logits = logits, .history = tokens, .n_history = n, .n_prompt = q->n_prompt, .position = (int32_t)n};
    in.eog = q->tok ? tokenizer_eog_ids(q->tok, &in.n_eog) : NULL;
    in.stop_ids = oracle_stop_ids(q->r, &in.n_stop_ids);
    sampler_draw(with, params, &in, out);
}

static bool ends_reply(const question *q, int32_t token)
{
    size_t n;
    const int32_t *ids = oracle_stop_ids(q->r, &n);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == token) {
            return true;
        }
    }
    return q->tok && tokenizer_is_eog(q->tok, token);
}

/* Makes sure of n drawn tokens, unless the reply ends before. */
static void extend(const question *q, drawn *d, size_t n)
{
    sampling params = oracle_sampling(q->r);
    params.top_logprobs = -1;
    while (!d->over && d->n < d->n_prompt + n) {
        sampler_out out;
        draw(q, &params, d->tokens, d->n, &out);
        d->over = ends_reply(q, out.token);
        d->tokens[d->n++] = out.token;
    }
}

/* The last `span` tokens are a run of at most an eighth of that, over and over. */
static bool repeats(const int32_t *ids, size_t n, size_t span)
{
    if (span == 0 || n < span || n % REPEAT_STRIDE != 0) {
        return false;
    }
    for (size_t period = 1; period * REPEAT_COPIES <= span; period++) {
        size_t i = period;
        while (i < span && ids[n - span + i] == ids[n - span + i - period]) {
            i++;
        }
        if (i == span) {
            return true;
        }
    }
    return false;
}

/* Text */

typedef struct teller {
    detok in;
    stop_matcher stop;
    buf piece;
} teller;

static void must(status st)
{
    if (st != ST_OK) {
        abort(); /* nothing makes the oracle's allocations fail */
    }
}

static void tell(teller *t, const question *q, int32_t token, buf *text)
{
    if (!q->tok) {
        return;
    }
    buf_reset(&t->piece);
    must(detok_push(&t->in, token, &t->piece));
    must(stop_matcher_push(&t->stop, buf_str(&t->piece), t->piece.len, text));
}

static void tell_end(teller *t, const question *q, answer *a)
{
    a->stop_cut = t->stop.matched >= 0;
    if (!q->tok || a->stop_cut) {
        return;
    }
    buf_reset(&t->piece);
    a->repaired = t->in.n_tail > 0;
    must(detok_flush(&t->in, &t->piece));
    must(stop_matcher_push(&t->stop, buf_str(&t->piece), t->piece.len, &a->text));
    a->stop_cut = t->stop.matched >= 0;
    if (!a->stop_cut) {
        must(stop_matcher_flush(&t->stop, &a->text));
    }
}

/* What ends the reply behind n tokens, all of them told. */
static void find_causes(const question *q, const drawn *d, size_t n, const teller *t, answer *a)
{
    const int32_t *ids = d->tokens + d->n_prompt;
    bool used_up = n == q->max_new;
    if (q->r->plan != GEN_SAMPLE) {
        a->causes = (finish_causes){.end_token = true};
        a->over = true;
        return;
    }
    a->causes = (finish_causes){.budget = used_up && !q->ceiling, .context = used_up && q->ceiling};
    a->repetition = n > 0 && repeats(ids, n, (size_t)q->r->repeat_span);
    a->causes.guard = a->repetition;
    a->causes.stop_string = t->stop.matched >= 0;
    bool at_last = d->over && d->n == d->n_prompt + n + 1;
    a->causes.end_token = !used_up && !a->repetition && !a->causes.stop_string && at_last;
    a->over = used_up || a->repetition || a->causes.stop_string || at_last;
}

void oracle_answer(const question *q, size_t n, bool ended, int32_t *ids, answer *out)
{
    drawn *d = recall(q);
    teller t = {0};
    stop_set *stops;
    memset(out, 0, sizeof *out);
    must(oracle_stops(q->r, &stops));
    stop_matcher_init(&t.stop, stops);
    if (q->tok) {
        detok_init(&t.in, q->tok);
    }
    for (size_t i = 0; i <= n; i++) {
        if (i < q->max_new) {
            extend(q, d, i + 1); /* also the one that may end it */
        }
        find_causes(q, d, i, &t, out);
        if (i == n) {
            break;
        }
        if (out->over) {
            out->too_many = true;
            break;
        }
        ids[i] = d->tokens[d->n_prompt + i];
        tell(&t, q, ids[i], &out->text);
        out->shown[i] = out->text.len;
        out->n = i + 1;
    }
    out->n_shown = out->text.len;
    if (ended) {
        tell_end(&t, q, out);
    }
    buf_release(&t.piece);
    stop_matcher_release(&t.stop);
    stop_set_free(stops);
}

/* Log-probabilities */

uint64_t probs_digest(uint64_t h, const sampler_out *p)
{
    h = hash_bytes(h, &p->chosen, sizeof p->chosen);
    h = hash_bytes(h, &p->n_top, sizeof p->n_top);
    return hash_bytes(h, p->top, (size_t)p->n_top * sizeof p->top[0]);
}

uint64_t oracle_probs(const question *q, const int32_t *ids, size_t i)
{
    static int32_t tokens[SIM_PROMPT_MAX + SIM_MAX_CTX];
    sampling params = oracle_sampling(q->r);
    sampler_out out;
    memcpy(tokens, q->prompt, q->n_prompt * sizeof *tokens);
    memcpy(tokens + q->n_prompt, ids, i * sizeof *tokens);
    draw(q, &params, tokens, q->n_prompt + i, &out);
    return probs_digest(1, &out);
}

uint64_t oracle_prompt_probs(const question *q)
{
    uint64_t h = 1;
    for (size_t i = 0; i + 1 < q->n_prompt; i++) {
        float logits[SIM_VOCAB];
        sampler_out out;
        sim_logits(q->model, q->prompt, i + 1, logits);
        sampler_score(with, logits, q->prompt[i + 1], (int32_t)q->r->prompt_logprobs, &out);
        h = probs_digest(h, &out);
    }
    return h;
}

float oracle_label(const question *q, int32_t token)
{
    float logits[SIM_VOCAB];
    sampler_out out;
    sim_logits(q->model, q->prompt, q->n_prompt, logits);
    sampler_score(with, logits, token, 0, &out);
    return out.chosen.logprob;
}
