/*
 * The engine: what it is asked to do (submit), in what order (sweep, admission, plan) and the step itself.
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
    en->steps = mem_alloc_array(c->max_sequences, sizeof *en->steps);
    en->drawing = mem_alloc_array(c->max_sequences, sizeof(sequence *));
    en->drawing_logits = mem_alloc_array(c->max_sequences, sizeof(const float *));
    en->logits = mem_alloc_array(n_logits, sizeof *en->logits);
    bool all = en->rows && en->bad && en->seqs && en->order && en->steps && en->logits;
    all = all && en->drawing && en->drawing_logits;
    return all ? ST_OK : ST_NOMEM;
}

/* One for each thread that may draw at the same time. */
static status make_samplers(engine *en)
{
    const engine_config *c = &en->cfg;
    size_t n = pool_threads(c->compute) < c->max_sequences ? pool_threads(c->compute) : c->max_sequences;
    n = n < ENGINE_SAMPLERS ? n : ENGINE_SAMPLERS;
    status st = ST_OK;
    while (st == ST_OK && en->n_samplers < n) {
        st = sampler_new((int32_t)c->ops.shape->n_vocab, c->kern, &en->samplers[en->n_samplers]);
        en->n_samplers += st == ST_OK;
    }
    return st;
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
    read_tokenizer(en);
    st = page_pool_new(cfg->ops.page_bytes, cfg->n_pages, &en->pages, e);
    if (st != ST_OK) {
        goto out;
    }
    st = allocate(en);
    if (st == ST_OK) {
        st = make_samplers(en);
    }
    if (st != ST_OK) {
        err_set(e, st, NULL, "out of memory for the engine");
    }
out:
    if (st != ST_OK) {
        engine_free(en);
        return st;
    }
    *out = en;
    return ST_OK;
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
    page_pool_free(en->pages);
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
    counter_set(&en->count.pages_used, page_pool_total(en->pages) - page_pool_available(en->pages));
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

static status extras_check(const engine *en, const gen_request *r, err *e)
{
    int32_t n_vocab = (int32_t)en->cfg.ops.shape->n_vocab;
    if (r->n_stop_ids > GEN_MAX_STOP_IDS) {
        return err_set(e, ST_INVALID_FIELD, "stop_token_ids",
                       "stop_token_ids has %zu ids: at most %d are allowed", r->n_stop_ids, GEN_MAX_STOP_IDS);
    }
    for (size_t i = 0; i < r->n_stop_ids; i++) {
        if (r->stop_ids[i] < 0 || r->stop_ids[i] >= n_vocab) {
            return err_set(e, ST_INVALID_FIELD, "stop_token_ids",
                           "stop_token_ids has the id %d: it is not in the vocabulary of %d",
                           (int)r->stop_ids[i], (int)n_vocab);
        }
    }
    if (r->sink.prompt_probs && (r->prompt_logprobs < -1 || r->prompt_logprobs > SAMPLER_MAX_TOP_LOGPROBS)) {
        return err_set(e, ST_INVALID_FIELD, "prompt_logprobs",
                       "prompt_logprobs is %d: it must be between 0 and %d", (int)r->prompt_logprobs,
                       SAMPLER_MAX_TOP_LOGPROBS);
    }
    return ST_OK;
}

status engine_submit(engine *en, const gen_request *r, sequence **out, err *e)
{
    assert(r->sink.token && r->sink.done && r->sink.failed);
    assert(!r->session || r->session->en == en);
    status st = prompt_check(en, r, e);
    if (st == ST_OK) {
        st = sampling_check(&r->params, (int32_t)en->cfg.ops.shape->n_vocab, e);
    }
    if (st == ST_OK) {
        st = extras_check(en, r, e);
    }
    if (st != ST_OK) {
        return st;
    }
    size_t room = (size_t)en->cfg.n_ctx - r->n_prompt;
    bool ceiling = r->max_new_tokens < 0 || (size_t)r->max_new_tokens > room;
    size_t max_new = ceiling ? room : (size_t)r->max_new_tokens;
    size_t need = resident_pages_for(r->n_prompt + max_new);
    if (need > page_pool_total(en->pages)) {
        return err_set(e, ST_NEVER_FITS, NULL,
                       "prompt and reply of up to %zu tokens need %zu pages, there are %zu",
                       r->n_prompt + max_new, need, page_pool_total(en->pages));
    }
    st = sequence_new(en, r, max_new, ceiling, out);
    return st == ST_OK ? ST_OK
                       : err_set(e, st, NULL, "out of memory for a request of %zu tokens", r->n_prompt);
}

size_t engine_running(const engine *en)
{
    return en->n_sequences;
}

/* Sweeping: cancel and deadline, in every state */

static void sweep(engine *en, uint64_t now_ns)
{
    for (sequence *s = en->first, *next; s; s = next) {
        next = s->next;
        if (s->state == SEQ_TAIL && !s->held) {
            continue; /* sealed, one row from its end */
        }
        if (sequence_cancelled(s) || sequence_overdue(s, now_ns)) {
            sequence_cut(s, now_ns);
        }
    }
}

/* Admission */

/* The idle session whose pages serve best elsewhere: the one not used for longest. */
static session *oldest_idle(const engine *en, const session *except)
{
    session *oldest = NULL;
    for (session *s = en->sessions; s; s = s->next) {
        if (s != except && !s->active && s->kv.n_pages > 0 && (!oldest || s->last_used < oldest->last_used)) {
            oldest = s;
        }
    }
    return oldest;
}

/* Makes sure of n_pages beyond what is promised; false, and nothing changed, if that cannot be had now. */
static bool make_room(engine *en, size_t n_pages, const session *except)
{
    size_t in_reach = page_pool_available(en->pages) - en->promised_pages;
    for (const session *s = en->sessions; s; s = s->next) {
        in_reach += s != except && !s->active ? s->kv.n_pages : 0;
    }
    if (in_reach < n_pages) {
        return false;
    }
    while (page_pool_available(en->pages) - en->promised_pages < n_pages) {
        session_reclaim(oldest_idle(en, except));
    }
    return true;
}

/* false: it must wait for pages, and so must those behind it. */
static bool try_admit(engine *en, sequence *s, uint64_t now_ns)
{
    size_t reuse, kept = 0, freed = 0;
    bool warm = en->cfg.warm && !s->prompt_probs; /* whoever asks about each row gets each computed */
    reset_reason reason = session_match(s->session, warm, s->history.data, s->n_prompt, &reuse);
    if (s->session) {
        kept = resident_pages_for(reuse);
        freed = s->session->kv.n_pages - kept; /* given back by the reset */
    }
    size_t need = resident_pages_for(s->n_prompt + s->max_new);
    size_t more = need - kept;
    if (more > freed && !make_room(en, more - freed, s->session)) {
        return false;
    }
    sequence_admit(s, reason, reuse, need, now_ns);
    return true;
}

static void admit(engine *en, uint64_t now_ns)
{
    for (sequence *s = en->first; s && en->n_active < en->cfg.max_sequences; s = s->next) {
        bool waits = s->state != SEQ_QUEUED || s->held || (s->session && s->session->active);
        if (!waits && !try_admit(en, s, now_ns)) {
            break;
        }
    }
}

/* The step */

static size_t rows_wanted(const sequence *s)
{
    size_t n = sequence_pending(s);
    if (s->state == SEQ_QUEUED || s->held) {
        return 0;
    }
    return n < s->step_limit ? n : s->step_limit;
}

/*
 * How many rows each may have. Each running sequence can want one row of logits; those that are left are for
 * prompts that want one with every row, in equal parts.
 */
static void limit_rows(engine *en)
{
    size_t n_all_rows = 0;
    for (const sequence *s = en->first; s; s = s->next) {
        n_all_rows += s->state == SEQ_PREFILL && s->prompt_probs;
    }
    size_t share = n_all_rows > 0 ? (en->cfg.ops.max_logit_rows - en->n_active) / n_all_rows : 0;
    for (sequence *s = en->first; s; s = s->next) {
        bool all_rows = s->state == SEQ_PREFILL && s->prompt_probs;
        s->step_limit = all_rows && 1 + share < en->cfg.prefill_chunk ? 1 + share : en->cfg.prefill_chunk;
    }
}

/*
 * Who computes how many rows: every decoding sequence its one; what is left is shared evenly among the
 * prompts, and what short prompts leave goes to the first ones in line. There is a row for each, because no
 * more sequences run than a batch has rows. Returns how many sequences take part.
 */
static size_t plan(engine *en)
{
    size_t room = en->cfg.ops.max_rows, n = 0, n_prefill = 0;
    limit_rows(en);
    for (sequence *s = en->first; s; s = s->next) {
        s->step_rows = s->state == SEQ_PREFILL ? 0 : rows_wanted(s);
        room -= s->step_rows;
        n_prefill += s->state == SEQ_PREFILL && rows_wanted(s) > 0;
    }
    for (sequence *s = en->first; s && n_prefill > 0; s = s->next) {
        size_t want = rows_wanted(s);
        if (s->state == SEQ_PREFILL && want > 0) {
            size_t share = room / n_prefill--;
            s->step_rows = want < share ? want : share;
            room -= s->step_rows;
        }
    }
    for (sequence *s = en->first; s; s = s->next) {
        size_t more = rows_wanted(s) - s->step_rows;
        more = more < room ? more : room;
        s->step_rows += more;
        room -= more;
        if (s->step_rows > 0) {
            en->order[n++] = s;
        }
    }
    return n;
}

/* Rows of one sequence, from its next position on. */
static size_t fill_rows(engine *en, sequence *s, int32_t index, size_t at)
{
    size_t first = s->kv->ids.len;
    s->step_first = at;
    s->step_logits = 0;
    for (size_t i = 0; i < s->step_rows; i++) {
        bool wants = sequence_wants_logits(s, first + i);
        en->rows[at + i] = (batch_row){.seq = index,
                                       .pos = (int32_t)(first + i),
                                       .token = s->history.data[first + i],
                                       .want_logits = wants};
        s->step_logits += wants;
    }
    en->seqs[index] = (batch_seq){.pages = s->kv->addrs, .n_pages = s->kv->n_pages};
    return at + s->step_rows;
}

#ifdef HEARTH_DEBUG
/* NaN: a row of logits that nobody wrote shows. */
static void mark_logits(engine *en, size_t n_seqs)
{
    size_t n = 0;
    for (size_t i = 0; i < n_seqs; i++) {
        n += en->order[i]->step_logits;
    }
    memset(en->logits, 0xFF, n * en->cfg.ops.shape->n_vocab * sizeof *en->logits);
}
#endif

static status compute(engine *en, size_t n_seqs, err *e)
{
    size_t n_rows = 0;
    status st = ST_OK;
    for (size_t i = 0; i < n_seqs; i++) {
        st = sequence_cover(en->order[i], en->order[i]->step_rows);
        if (st != ST_OK) { /* cannot be: admission reserved them */
            return err_set(e, ST_INTERNAL, NULL, "no page although it was reserved: %s", status_text(st));
        }
        n_rows = fill_rows(en, en->order[i], (int32_t)i, n_rows);
    }
    batch b = {.rows = en->rows, .n_rows = n_rows, .seqs = en->seqs, .n_seqs = n_seqs};
    memset(en->bad, 0, n_rows);
#ifdef HEARTH_DEBUG
    mark_logits(en, n_seqs);
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
static void draw_tokens(engine *en, size_t n_seqs)
{
    draws d = {.en = en};
    const float *logits = en->logits;
    for (size_t i = 0; i < n_seqs; i++) {
        sequence *s = en->order[i];
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

static void settle(engine *en, size_t n_seqs, status st, const err *e)
{
    uint64_t now_ns = clock_mono_ns(en->cfg.clock);
    const float *logits = en->logits;
    if (st == ST_OK) {
        draw_tokens(en, n_seqs);
    }
    for (size_t i = 0; i < n_seqs; i++) {
        sequence *s = en->order[i]; /* may be gone after each of the calls below */
        const float *row = logits;
        logits += s->step_logits * en->cfg.ops.shape->n_vocab;
        if (st != ST_OK) {
            sequence_fail(s, e);
        } else if (spoiled(en, s)) {
            sequence_spoil(s, now_ns);
        } else {
            sequence_advance(s, row, now_ns);
        }
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
    sweep(en, now_ns);
    admit(en, now_ns);
    size_t n = plan(en);
    if (n == 0) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        en->order[i]->prefill_ns = en->order[i]->prefill_ns ? en->order[i]->prefill_ns : now_ns;
    }
    announce(en, n);
    err e;
    err_clear(&e);
    mem_guard_enter();
    status st = compute(en, n, &e);
    mem_guard_leave();
    counter_add(&en->count.steps, 1);
    counter_add(&en->count.bugs, st != ST_OK); /* our batches keep the rules */
    engine_note_pages(en);
    settle(en, n, st, &e);
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
                          .pages_total = page_pool_total(en->pages),
                          .pages_used = counter_get(&c->pages_used),
                          .sessions = counter_get(&c->sessions),
                          .sequences = counter_get(&c->sequences),
                          .running = counter_get(&c->running)};
}
