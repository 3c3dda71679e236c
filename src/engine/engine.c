/*
 * The engine: what it is asked to do (submit) and the step itself; who runs in it is scheduler.c's.
 */
#include "engine/engine.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine_int.h"

static status config_check(const engine_config *c, err *e)
{
    if (c->ops.max_logit_rows < 1 || c->ops.max_logit_rows > c->ops.max_rows) {
        return err_set(e, ST_INVALID_FIELD, "max_logit_rows", "max_logit_rows is %zu, it must be 1 to %zu",
                       c->ops.max_logit_rows, c->ops.max_rows);
    }
    if (c->max_sequences < 1 || c->max_sequences > c->ops.max_logit_rows) {
        return err_set(e, ST_INVALID_FIELD, "max_sequences", "max_sequences is %zu, it must be 1 to %zu",
                       c->max_sequences, c->ops.max_logit_rows);
    }
    if (c->prefill_chunk < 1 || c->prefill_chunk > c->ops.max_rows) {
        return err_set(e, ST_INVALID_FIELD, "prefill_chunk", "prefill_chunk is %zu, it must be 1 to %zu",
                       c->prefill_chunk, c->ops.max_rows);
    }
    if (c->n_ctx < 2) {
        return err_set(e, ST_INVALID_FIELD, "context", "a context of %d tokens is too small", (int)c->n_ctx);
    }
    if (c->tok && tokenizer_n_vocab(c->tok) < (int64_t)c->ops.shape->n_vocab) {
        return err_set(e, ST_INVALID_FIELD, "tokenizer", "the tokenizer has %d tokens, the model %u",
                       (int)tokenizer_n_vocab(c->tok), (unsigned)c->ops.shape->n_vocab);
    }
    return ST_OK;
}

static void read_tokenizer(engine *en)
{
    if (!en->cfg.tok) {
        return;
    }
    en->eog = tokenizer_eog_ids(en->cfg.tok, &en->n_eog);
    for (int32_t id = 0; id < tokenizer_n_vocab(en->cfg.tok); id++) {
        size_t len;
        tokenizer_piece(en->cfg.tok, id, &len);
        en->max_piece = len > en->max_piece ? len : en->max_piece;
    }
}

static status allocate(engine *en)
{
    const engine_config *c = &en->cfg;
    size_t n_logits;
    if (!size_mul(c->ops.max_logit_rows, c->ops.shape->n_vocab, &n_logits)) {
        return ST_NOMEM;
    }
    en->rows = mem_alloc_array(c->ops.max_rows, sizeof *en->rows);
    en->bad = mem_calloc(c->ops.max_rows, sizeof *en->bad);
    en->seqs = mem_alloc_array(c->max_sequences, sizeof *en->seqs);
    en->order = mem_alloc_array(c->max_sequences, sizeof(sequence *));
    en->active = mem_alloc_array(c->max_sequences, sizeof(sequence *));
    en->running = mem_alloc_array(c->max_sequences, sizeof *en->running);
    en->parked = mem_alloc_array(c->max_sequences, sizeof *en->parked);
    en->want = mem_alloc_array(c->max_sequences, sizeof *en->want);
    en->hidden = mem_alloc_array(c->max_sequences, c->ops.shape->n_embd * sizeof *en->hidden);
    en->repeat_scratch = mem_alloc_array(REPEAT_MAX_SPAN, sizeof *en->repeat_scratch);
    en->steps = mem_alloc_array(c->max_sequences, sizeof *en->steps);
    en->drawing = mem_alloc_array(c->max_sequences, sizeof(sequence *));
    en->drawing_logits = mem_alloc_array(c->max_sequences, sizeof(const float *));
    en->logits = mem_alloc_array(n_logits, sizeof *en->logits);
    en->path = mem_alloc_array(resident_pages_for((size_t)c->n_ctx), sizeof *en->path);
    bool all = en->rows && en->bad && en->seqs && en->order && en->steps && en->logits;
    all = all && en->drawing && en->drawing_logits && en->active && en->running && en->parked && en->want;
    all = all && en->hidden && en->repeat_scratch && en->path;
    return all ? ST_OK : ST_NOMEM;
}

/* One for each thread that may draw at the same time. */
static status make_samplers(engine *en)
{
    const engine_config *c = &en->cfg;
    size_t n = pool_threads(c->compute) < c->max_sequences ? pool_threads(c->compute) : c->max_sequences;
    n = n < ENGINE_MAX_SAMPLERS ? n : ENGINE_MAX_SAMPLERS;
    status st = ST_OK;
    while (st == ST_OK && en->n_samplers < n) {
        st = sampler_new((int32_t)c->ops.shape->n_vocab, c->kern, &en->samplers[en->n_samplers]);
        en->n_samplers += st == ST_OK;
    }
    return st;
}

/* Lanes: what the model keeps of a sequence are its tokens and pages. Room for a whole context is had at once, so
 * that nothing is allocated later. */

static status create_lane(void *ctx, lane *l)
{
    engine *en = ctx;
    status st = resident_reserve(&l->kv, (size_t)en->cfg.n_ctx);
    if (st != ST_OK) {
        resident_release(&l->kv, en->pages);
    }
    return st;
}

static status reset_lane(void *ctx, lane *l, err *e)
{
    (void)e;
    resident_truncate(&l->kv, ((engine *)ctx)->pages, 0);
    return ST_OK;
}

static void destroy_lane(void *ctx, lane *l)
{
    resident_release(&l->kv, ((engine *)ctx)->pages);
}

static status make_lanes(engine *en)
{
    lanes_config c = {.n_lanes = en->cfg.max_sequences,
                      .idle_cap = en->cfg.idle_lanes,
                      .ops = {en, create_lane, reset_lane, destroy_lane},
                      .clock = en->cfg.clock,
                      .event = en->cfg.lane_event,
                      .event_ctx = en->cfg.lane_event_ctx};
    status st = lanes_new(&c, &en->lanes);
    if (st == ST_OK) {
        st = lanes_prewarm(en->lanes, en->cfg.prewarm_lanes, NULL);
    }
    return st;
}

static status make_parts(engine *en, err *e)
{
    status st = page_pool_new(en->cfg.ops.page_bytes, en->cfg.n_pages, &en->pages, e);
    if (st != ST_OK) {
        return st;
    }
    st = allocate(en);
    st = st == ST_OK ? make_samplers(en) : st;
    st = st == ST_OK ? park_new(en->cfg.park_bytes, &en->parking) : st;
    st = st == ST_OK ? make_lanes(en) : st;
    if (st == ST_OK && en->cfg.warm) {
        const kv_tree_config tree = {.kinds = {{.pool = en->pages}}, .n_kinds = 1};
        st = kv_tree_new(&tree, &en->tree);
    }
    return st == ST_OK ? ST_OK : err_set(e, st, NULL, "out of memory for the engine");
}

status engine_new(const engine_config *cfg, engine **out, err *e)
{
    status st = config_check(cfg, e);
    if (st != ST_OK) {
        return st;
    }
    engine *en = mem_calloc(1, sizeof *en);
    if (!en) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the engine");
    }
    en->cfg = *cfg;
    cost_model_init(&en->cost);
    read_tokenizer(en);
    st = make_parts(en, e);
    if (st != ST_OK) {
        engine_free(en);
        return st;
    }
    (void)engine_set_page_limit(en, cfg->page_limit ? cfg->page_limit : cfg->n_pages);
    *out = en;
    return ST_OK;
}

status engine_warm_up(engine *en, err *e)
{
    page_id page;
    int32_t bos = en->cfg.tok ? tokenizer_bos(en->cfg.tok) : -1;
    assert(en->n_sequences == 0);
    status st = page_pool_take(en->pages, &page);
    if (st != ST_OK) {
        return err_set(e, st, NULL, "there is no page to warm up with");
    }
    void *addr = page_pool_addr(en->pages, page);
    en->rows[0] = (batch_row){.token = bos >= 0 && bos < (int32_t)en->cfg.ops.shape->n_vocab ? bos : 0,
                              .want_logits = true};
    en->seqs[0] = (batch_seq){.pages = &addr, .n_pages = 1};
    batch b = {.rows = en->rows, .n_rows = 1, .seqs = en->seqs, .n_seqs = 1};
    st = en->cfg.ops.forward(en->cfg.ops.ctx, en->cfg.compute, &b, en->logits, en->bad, e);
    page_pool_unref(en->pages, page);
    return st;
}

void engine_free(engine *en)
{
    if (!en) {
        return;
    }
    assert(en->n_sequences == 0 && !en->sessions);
    for (size_t i = 0; i < en->n_samplers; i++) {
        sampler_free(en->samplers[i]);
    }
    for (size_t i = 0; i < en->n_reads; i++) { /* the store, being closed, has read them */
        page_pool_unref(en->pages, en->reads[i].page);
    }
    lanes_free(en->lanes);
    kv_tree_free(en->tree);
    park_free(en->parking);
    page_pool_free(en->pages);
    mem_free(en->path);
    mem_free(en->active);
    mem_free(en->running);
    mem_free(en->parked);
    mem_free(en->want);
    mem_free(en->hidden);
    mem_free(en->repeat_scratch);
    mem_free(en->rows);
    mem_free(en->bad);
    mem_free(en->seqs);
    mem_free(en->order);
    mem_free(en->steps);
    mem_free(en->drawing);
    mem_free(en->drawing_logits);
    mem_free(en->logits);
    buf_release(&en->piece);
    buf_release(&en->text);
    mem_free(en);
}

void engine_note_pages(engine *en)
{
    size_t cached = en->tree ? kv_tree_evictable(en->tree, 0) : 0;
    counter_set(&en->count.pages_total, page_pool_limit(en->pages));
    counter_set(&en->count.pages_used, page_pool_used(en->pages) - cached);
    counter_set(&en->count.pages_cached, cached);
    lanes_stats l = lanes_stats_read(en->lanes);
    counter_set(&en->count.lanes_live, l.live);
    counter_set(&en->count.lanes_idle, l.idle);
}

/* Asking */

static status prompt_check(const engine *en, const gen_request *r, err *e)
{
    int32_t n_vocab = (int32_t)en->cfg.ops.shape->n_vocab;
    if (r->n_prompt == 0) {
        return err_set(e, ST_INVALID_FIELD, "prompt", "the prompt is empty");
    }
    if (r->n_prompt >= (size_t)en->cfg.n_ctx) {
        return err_set(e, ST_CONTEXT_LENGTH, "prompt",
                       "the prompt has %zu tokens and the context %d: there is no room for a reply",
                       r->n_prompt, (int)en->cfg.n_ctx);
    }
    for (size_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= n_vocab) {
            return err_set(e, ST_INVALID_FIELD, "prompt",
                           "id %d at position %zu is not in the vocabulary of %d", (int)r->prompt[i], i,
                           (int)n_vocab);
        }
    }
    return ST_OK;
}

static status ids_check(const engine *en, const char *field, const int32_t *ids, size_t n, size_t max, err *e)
{
    int32_t n_vocab = (int32_t)en->cfg.ops.shape->n_vocab;
    if (n > max) {
        return err_set(e, ST_INVALID_FIELD, field, "%s has %zu ids: at most %zu are allowed", field, n, max);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= n_vocab) {
            return err_set(e, ST_INVALID_FIELD, field, "%s has the id %d: it is not in the vocabulary of %d",
                           field, (int)ids[i], (int)n_vocab);
        }
    }
    return ST_OK;
}

static status number_check(const char *field, int32_t value, int32_t low, int32_t high, err *e)
{
    if (value < low || value > high) {
        return err_set(e, ST_INVALID_FIELD, field, "%s is %d: it must be between %d and %d", field,
                       (int)value, (int)low, (int)high);
    }
    return ST_OK;
}

static status extras_check(const engine *en, const gen_request *r, err *e)
{
    status st = ids_check(en, "stop_token_ids", r->stop_ids, r->n_stop_ids, GEN_MAX_STOP_IDS, e);
    if (st == ST_OK && r->sink.prompt_probs && r->prompt_logprobs != -1) {
        st = number_check("prompt_logprobs", r->prompt_logprobs, 0, SAMPLER_MAX_TOP_LOGPROBS, e);
    }
    if (st == ST_OK) {
        st = number_check("priority", r->priority, GEN_MIN_PRIORITY, GEN_MAX_PRIORITY, e);
    }
    if (st == ST_OK && r->repeat_span != 0) {
        st = number_check("repetition_guard", r->repeat_span, REPEAT_MIN_SPAN, REPEAT_MAX_SPAN, e);
    }
    if (st == ST_OK && r->plan == GEN_SCORE) {
        st = ids_check(en, "labels", r->labels, r->n_labels, GEN_MAX_LABELS, e);
        if (st == ST_OK && r->n_labels == 0) {
            st = err_set(e, ST_INVALID_FIELD, "labels", "there are no labels to score");
        }
    }
    return st;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many tokens the reply may have, and whether the context says so. */
static status reply_room(const engine *en, const gen_request *r, size_t *max_new, bool *ceiling, err *e)
{
    size_t n_pool = page_pool_total(en->pages) * KV_PAGE_TOKENS;
    size_t room = (size_t)en->cfg.n_ctx - r->n_prompt;
    size_t had = r->n_resumed > 0 ? r->n_resumed : 1; /* a fresh reply wants one token */
    *ceiling = r->max_new_tokens < 0 || (size_t)r->max_new_tokens > room;
    if (r->plan != GEN_SAMPLE) {
        *ceiling = false;
        *max_new = 0;
    } else if (*ceiling) { /* what the pool cannot hold is beyond the context */
        size_t last = min_size((size_t)en->cfg.n_ctx, n_pool);
        *max_new = last > r->n_prompt + had ? last - r->n_prompt : had;
    } else {
        *max_new = (size_t)r->max_new_tokens;
    }
    size_t need = resident_pages_for(r->n_prompt + *max_new);
    if (need > page_pool_total(en->pages)) {
        return err_set(e, ST_NEVER_FITS, NULL,
                       "prompt and reply of up to %zu tokens need %zu pages, there are %zu",
                       r->n_prompt + *max_new, need, page_pool_total(en->pages));
    }
    return ST_OK;
}

/* Tokens that it begins with, but for what only replaying them shows. */
static status resumed_check(const engine *en, const gen_request *r, err *e)
{
    size_t room = (size_t)en->cfg.n_ctx - r->n_prompt;
    size_t most = r->plan != GEN_SAMPLE   ? 0
                  : r->max_new_tokens < 0 ? room
                                          : min_size(room, (size_t)r->max_new_tokens);
    if (r->n_resumed > most) {
        return err_set(e, ST_RESUME_MISMATCH, NULL, "the reply cannot have had %zu tokens: %zu are its most",
                       r->n_resumed, most);
    }
    return ids_check(en, "resumed", r->resumed, r->n_resumed, most, e);
}

status engine_submit(engine *en, const gen_request *r, sequence **out, err *e)
{
    size_t max_new;
    bool ceiling;
    assert(r->sink.token && r->sink.done && r->sink.failed);
    assert(!r->session || r->session->en == en);
    status st = prompt_check(en, r, e);
    if (st == ST_OK) {
        st = sampling_check(&r->params, (int32_t)en->cfg.ops.shape->n_vocab, e);
    }
    if (st == ST_OK) {
        st = extras_check(en, r, e);
    }
    if (st == ST_OK) {
        st = resumed_check(en, r, e);
    }
    if (st == ST_OK) {
        st = reply_room(en, r, &max_new, &ceiling, e);
    }
    if (st != ST_OK) {
        return st;
    }
    return sequence_new(en, r, max_new, ceiling, out, e);
}

int32_t engine_would_reuse(const engine *en, const gen_request *r)
{
    kv_root_key root;
    bool asks_each = r->sink.prompt_probs && r->prompt_logprobs >= 0 && r->n_resumed == 0;
    if (r->n_prompt == 0 || asks_each ||
        reuse_root(en, r->cache_namespace, r->n_cache_namespace, &root) != ST_OK) {
        return 0;
    }
    return (int32_t)reuse_find(en, &root, r->session, r->prompt, r->n_prompt).n_tokens;
}

size_t engine_set_page_limit(engine *en, size_t n_pages)
{
    size_t total = page_pool_total(en->pages);
    en->page_limit = n_pages < 1 ? 1 : min_size(n_pages, total);
    /* a share of what there is for all pages, without an overflow */
    park_set_budget(en->parking,
                    (size_t)((double)en->cfg.park_bytes * (double)en->page_limit / (double)total));
    scheduler_fit(en, clock_mono_ns(en->cfg.clock));
    engine_note_pages(en);
    return en->page_limit;
}

size_t engine_running(const engine *en)
{
    return en->n_sequences;
}

/* The step */

/* Rows of one sequence, from its next position on. */
static size_t fill_rows(engine *en, sequence *s, int32_t index, size_t at, size_t *n_hidden)
{
    size_t first = s->kv->ids.len;
    s->step_first = at;
    s->step_logits = 0;
    assert(first + s->step_rows <= s->history.len && s->kv->n_pages * KV_PAGE_TOKENS >= first + s->step_rows);
    for (size_t i = 0; i < s->step_rows; i++) {
        bool wants = sequence_wants_logits(s, first + i);
        bool hidden = sequence_wants_hidden(s, first + i);
        en->rows[at + i] = (batch_row){.seq = index,
                                       .pos = (int32_t)(first + i),
                                       .token = s->history.data[first + i],
                                       .want_logits = wants,
                                       .want_hidden = hidden};
        s->step_logits += wants;
        if (hidden) {
            s->step_hidden = en->hidden + (*n_hidden)++ * en->cfg.ops.shape->n_embd;
        }
    }
    en->seqs[index] = (batch_seq){.pages = s->kv->addrs, .n_pages = s->kv->n_pages};
    return at + s->step_rows;
}

#ifdef HEARTH_DEBUG
/* NaN: a row of logits that nobody wrote shows. */
static void mark_logits(engine *en, sequence *const *seqs, size_t n_seqs)
{
    size_t n = 0;
    for (size_t i = 0; i < n_seqs; i++) {
        n += seqs[i]->step_logits;
    }
    memset(en->logits, 0xFF, n * en->cfg.ops.shape->n_vocab * sizeof *en->logits);
}
#endif

static status compute(engine *en, sequence *const *seqs, size_t n_seqs, err *e)
{
    size_t n_rows = 0, n_hidden = 0;
    for (size_t i = 0; i < n_seqs; i++) {
        n_rows = fill_rows(en, seqs[i], (int32_t)i, n_rows, &n_hidden);
    }
    batch b = {.rows = en->rows,
               .n_rows = n_rows,
               .seqs = en->seqs,
               .n_seqs = n_seqs,
               .hidden = n_hidden > 0 ? en->hidden : NULL};
    memset(en->bad, 0, n_rows);
#ifdef HEARTH_DEBUG
    mark_logits(en, seqs, n_seqs);
#endif
    return en->cfg.ops.forward(en->cfg.ops.ctx, en->cfg.compute, &b, en->logits, en->bad, e);
}

typedef struct draws {
    engine *en;
    size_t n;       /* sequences that draw */
    size_t n_tasks; /* each with a sampler of its own */
} draws;

static void draw_task(void *arg, size_t task, size_t thread)
{
    const draws *d = arg;
    (void)thread;
    mem_guard_enter();
    sampler_lend(d->en->samplers[task], d->n_tasks == 1 ? d->en->cfg.compute : NULL);
    for (size_t i = task; i < d->n; i += d->n_tasks) {
        sequence_draw(d->en->drawing[i], d->en->samplers[task], d->en->drawing_logits[i]);
    }
    mem_guard_leave();
}

static bool spoiled(const engine *en, const sequence *s)
{
    return memchr(en->bad + s->step_first, 1, s->step_rows) != NULL;
}

/* The tokens of all that draw, before any of them is told: each from its last row of logits. */
static void draw_tokens(engine *en, sequence *const *seqs, size_t n_seqs)
{
    draws d = {.en = en};
    const float *logits = en->logits;
    for (size_t i = 0; i < n_seqs; i++) {
        sequence *s = seqs[i];
        logits += s->step_logits * en->cfg.ops.shape->n_vocab;
        if (sequence_draws(s) && !spoiled(en, s)) {
            en->drawing[d.n] = s;
            en->drawing_logits[d.n++] = logits - en->cfg.ops.shape->n_vocab;
        }
    }
    d.n_tasks = d.n < en->n_samplers ? d.n : en->n_samplers;
    if (d.n_tasks == 1) {
        draw_task(&d, 0, 0); /* the pool is free for the sampler */
    } else {
        pool_run(en->cfg.compute, draw_task, &d, d.n_tasks);
    }
}

static void settle(engine *en, sequence *const *seqs, size_t n_seqs)
{
    uint64_t now_ns = clock_mono_ns(en->cfg.clock);
    const float *logits = en->logits;
    draw_tokens(en, seqs, n_seqs);
    for (size_t i = 0; i < n_seqs; i++) {
        sequence *s = seqs[i]; /* may be gone after each of the calls below */
        const float *row = logits;
        logits += s->step_logits * en->cfg.ops.shape->n_vocab;
        if (spoiled(en, s)) {
            sequence_spoil(s, now_ns);
        } else {
            sequence_advance(s, row, now_ns);
        }
    }
}

/* One batch of these. A batch that cannot be computed is our bug: each of its sequences is then tried alone, so
 * that only the one it is about fails. */
static void run_batch(engine *en, sequence *const *seqs, size_t n_seqs)
{
    err e;
    err_clear(&e);
    mem_guard_enter();
    status st = compute(en, seqs, n_seqs, &e);
    mem_guard_leave();
    if (st == ST_OK) {
        settle(en, seqs, n_seqs);
        return;
    }
    counter_add(&en->count.bugs, 1);
    if (n_seqs == 1) {
        sequence_fail_step(seqs[0], &e, clock_mono_ns(en->cfg.clock));
        return;
    }
    for (size_t i = 0; i < n_seqs; i++) {
        run_batch(en, seqs + i, 1);
    }
}

/* Tells what is about to be computed. */
static void announce(engine *en, size_t n_seqs)
{
    bool any_prefill = false;
    if (!en->cfg.before_step) {
        return;
    }
    for (size_t i = 0; i < n_seqs; i++) {
        const sequence *s = en->order[i];
        en->steps[i] = (step_row){s->id_hash, (int32_t)s->kv->ids.len};
        any_prefill = any_prefill || s->state == SEQ_PREFILL;
    }
    en->cfg.before_step(en->cfg.before_step_ctx, en->steps, n_seqs, any_prefill);
}

bool engine_step(engine *en)
{
    uint64_t now_ns = clock_mono_ns(en->cfg.clock);
    en->step_no++;
    bool fetched = stored_collect(en);
    scheduler_sweep(en, now_ns);
    scheduler_fit(en, now_ns);
    scheduler_admit(en, now_ns);
    bool restored = scheduler_restore(en);
    size_t n = scheduler_plan(en, now_ns);
    engine_note_pages(en);
    if (n == 0) {
        return restored || fetched;
    }
    for (size_t i = 0; i < n; i++) {
        en->order[i]->prefill_ns = en->order[i]->prefill_ns ? en->order[i]->prefill_ns : now_ns;
    }
    announce(en, n);
    uint64_t begun_ns = clock_mono_ns(en->cfg.clock);
    step_shape shape = scheduler_shape(en, n);
    run_batch(en, en->order, n);
    scheduler_learn(en, &shape, clock_mono_ns(en->cfg.clock) - begun_ns);
    counter_add(&en->count.steps, 1);
    return true;
}

static uint64_t counter_get(const atomic_uint_fast64_t *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

void engine_stats_read(const engine *en, engine_stats *out)
{
    const engine_counters *c = &en->count;
    *out = (engine_stats){.steps = counter_get(&c->steps),
                          .tokens_prefilled = counter_get(&c->prefilled),
                          .tokens_generated = counter_get(&c->generated),
                          .tokens_reused = counter_get(&c->reused),
                          .requests_done = counter_get(&c->done),
                          .requests_failed = counter_get(&c->failed),
                          .requests_cancelled = counter_get(&c->cancelled),
                          .bugs = counter_get(&c->bugs),
                          .pages_total = counter_get(&c->pages_total),
                          .pages_used = counter_get(&c->pages_used),
                          .pages_cached = counter_get(&c->pages_cached),
                          .sessions = counter_get(&c->sessions),
                          .sequences = counter_get(&c->sequences),
                          .running = counter_get(&c->running),
                          .parked = counter_get(&c->parked),
                          .preemptions = counter_get(&c->preemptions),
                          .tokens_recomputed = counter_get(&c->recomputed),
                          .tokens_restored = counter_get(&c->restored),
                          .tokens_fetched = counter_get(&c->fetched),
                          .lanes = en->cfg.max_sequences,
                          .lanes_live = counter_get(&c->lanes_live),
                          .lanes_idle = counter_get(&c->lanes_idle)};
}

const lane_table *engine_lanes(const engine *en)
{
    return en->lanes;
}
