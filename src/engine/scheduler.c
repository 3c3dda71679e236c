/*
 * The scheduler: who ends, who comes in, who gives way and who computes how much in the next step (DESIGN 6). It
 * moves no sequence itself but through the arrows of engine_int.h, and its choices are those of policy.h.
 */
#include <assert.h>

#include "engine/engine_int.h"

#define ROWS_STEP   16 /* a tile of rows; where there are many, kernels take two at a time */
#define MANY_ROWS   64
#define ALONE_STEPS 8 /* of replies alone, that their time is a mean of */

/* Sweeping: cancel and deadline, in every state, and replies that were over before they came */

void scheduler_sweep(engine *en, uint64_t now_ns)
{
    for (sequence *s = en->first, *next; s; s = next) {
        next = s->next;
        if (sequence_fails(s)) {
            continue;
        }
        if (s->state == SEQ_TAIL && !s->held) {
            continue; /* sealed, one row from its end */
        }
        if (sequence_cancelled(s) || sequence_overdue(s, now_ns) || (sequence_over(s) && !s->held)) {
            sequence_cut(s, now_ns);
        }
    }
}

/* Room: pages that only the tree has, lanes that idle sessions give up */

/* The idle session whose lane serves best elsewhere: the one not used for longest. */
static session *oldest_idle(const engine *en, const session *except)
{
    session *oldest = NULL;
    for (session *s = en->sessions; s; s = s->next) {
        if (s != except && !s->active && s->lane && (!oldest || s->last_used < oldest->last_used)) {
            oldest = s;
        }
    }
    return oldest;
}

/* Parks the one that gives way, of those that are held or of all; false if there is none. */
static bool preempt_one(engine *en, bool only_held, uint64_t now_ns)
{
    for (size_t i = 0; i < en->n_active; i++) {
        const sequence *s = en->active[i];
        en->running[i] = (policy_running){.n_generated = sequence_generated(s),
                                          .admitted = s->admitted,
                                          .immune = sequence_generated(s) < s->immune_until,
                                          .held = s->held,
                                          .can_be_parked = sequence_can_park(s) && (s->held || !only_held)};
    }
    size_t pick = policy_victim(en->running, en->n_active);
    if (pick == POLICY_NONE) {
        return false;
    }
    sequence_park(en->active[pick], now_ns);
    en->active[pick]->step_rows = 0;
    return true;
}

/* Pages that s would make free by giving way: its own, and those of the tree that nobody else has. The first n_path
 * of a prefix that is on its way in stand in en->path: they are no gain. Nor, perhaps, is what is shared while somebody
 * fetches, who holds what it goes on from. */
static size_t could_give(const engine *en, const sequence *s, size_t n_path)
{
    size_t n = s->promised_pages;
    for (size_t i = 0; i < s->kv->n_pages; i++) {
        uint32_t refs = page_pool_refs(en->pages, s->kv->pages[i]);
        bool wanted = i < n_path && en->path[i] == s->kv->pages[i];
        n += refs == 1 || (refs == 2 && !wanted && !en->fetching);
    }
    return n;
}

static size_t cached_pages(const engine *en)
{
    return en->tree ? kv_tree_evictable(en->tree, 0) : 0;
}

/* Pages that are free or only cached, and promised to nobody. */
static size_t in_reach(const engine *en)
{
    return page_pool_available(en->pages) + cached_pages(en) - en->promised_pages;
}

static bool has_pages(const sequence *s)
{
    return s->kv->n_pages > 0 || s->promised_pages > 0;
}

/* Whether all who have pages could give them up for one that comes in. */
static bool nobody_computes(const engine *en)
{
    for (size_t i = 0; i < en->n_active; i++) {
        const sequence *s = en->active[i];
        if (has_pages(s) && !(s->held && sequence_can_park(s))) {
            return false;
        }
    }
    return true;
}

/* Whether at most one has pages: who goes on is not always the one that policy_victim spares. */
static bool is_alone(const engine *en)
{
    size_t n = 0;
    for (size_t i = 0; i < en->n_active; i++) {
        n += has_pages(en->active[i]);
    }
    return n <= 1;
}

/* Beyond the limit, of what was reserved: for one that could not go on else, however long it waited. */
static bool lend(engine *en, size_t n_pages)
{
    size_t limit = page_pool_limit(en->pages);
    if (n_pages > page_pool_total(en->pages) - limit) {
        return false;
    }
    page_pool_set_limit(en->pages, limit + n_pages);
    return true;
}

/* Whether n_pages beyond what is promised can be had now. What is only cached gives way, and for one that comes in also
 * those who compute nothing because their readers do not read; if there is nobody else, it is lent what is missing. */
static bool has_room(engine *en, size_t n_pages, size_t n_path, bool comes_in)
{
    size_t n = in_reach(en);
    for (size_t i = 0; i < en->n_active && comes_in && n < n_pages; i++) {
        const sequence *s = en->active[i];
        n += s->held && sequence_can_park(s) ? could_give(en, s, n_path) : 0;
    }
    return n >= n_pages || (comes_in && nobody_computes(en) && lend(en, n_pages - n));
}

/* Copies of preempted sequences, whose budget has become less. */
static void fit_copies(engine *en)
{
    for (size_t i = 0; i < en->n_active && park_is_over(en->parking); i++) {
        sequence *s = en->active[i];
        if (s->state == SEQ_PARKED && s->image) {
            sequence_drop_image(s); /* it is computed again */
        }
    }
}

void scheduler_fit(engine *en, uint64_t now_ns)
{
    page_pool *p = en->pages;
    while (page_pool_limit(p) != en->page_limit) {
        size_t least = page_pool_used(p) + en->promised_pages;
        page_pool_set_limit(p, least > en->page_limit ? least : en->page_limit);
        bool evicted = least > en->page_limit && en->tree && kv_tree_evict(en->tree, 0);
        if (least > en->page_limit && !evicted && (is_alone(en) || !preempt_one(en, false, now_ns))) {
            break; /* it is tried again at the next step */
        }
    }
    fit_copies(en);
}

/* Makes sure of them; has_room was true. */
static void make_room(engine *en, size_t n_pages, uint64_t now_ns)
{
    while (page_pool_available(en->pages) - en->promised_pages < n_pages) {
        bool evicted = en->tree && kv_tree_evict(en->tree, 0);
        if (!evicted && !preempt_one(en, true, now_ns)) {
            assert(!"they were counted");
            return;
        }
    }
}

/* Whether a lane that is taken now will be free by itself some day. */
static bool lane_will_come(const engine *en)
{
    for (size_t i = 0; i < en->n_active; i++) {
        if (!en->active[i]->session) {
            return true;
        }
    }
    return false;
}

/* The lane for s: its session's, or a new one. ST_CAPACITY: it must wait for one. When all lanes are with idle
 * sessions the one unused for longest gives up its own, or nobody would ever come in. */
static status lane_for(engine *en, sequence *s, lane **out)
{
    if (s->session && s->session->lane) {
        *out = s->session->lane;
        return ST_OK;
    }
    uint64_t owner = s->session ? s->session->owner : s->ticket;
    status st = lanes_acquire(en->lanes, owner, s->session != NULL, out);
    if (st == ST_CAPACITY && !lane_will_come(en)) {
        session *idle = oldest_idle(en, s->session);
        if (idle) {
            session_lose_lane(idle);
            st = lanes_acquire(en->lanes, owner, s->session != NULL, out);
        }
    }
    if (st == ST_OK && s->session) {
        s->session->lane = *out;
    }
    return st;
}

/* Coming back */

/* The parked one that is next, or NULL. */
static sequence *next_parked(engine *en)
{
    sequence **of = en->order; /* scratch until the plan is made */
    size_t n = 0;
    for (size_t i = 0; i < en->n_active; i++) {
        sequence *s = en->active[i];
        if (s->state == SEQ_PARKED) {
            en->parked[n] = (policy_parked){.n_tokens = s->history.len, .since = s->parked, .held = s->held};
            of[n++] = s;
        }
    }
    size_t pick = policy_resume(en->parked, n);
    return pick == POLICY_NONE ? NULL : of[pick];
}

/* Whether it came back. */
static bool try_resume(engine *en, sequence *s, uint64_t now_ns)
{
    size_t need = resident_pages_for(sequence_reserves(s));
    en->fetch_seen = en->fetch_seen || en->fetching == s;
    reuse_offer o = reuse_find_again(s);
    size_t n_path = reuse_pages(en, &o);
    reuse_hold(en, &o);
    if (!has_room(en, need - n_path, n_path, true) ||
        (!s->image && stored_fetch(s, o.n_tokens, s->n_known))) {
        reuse_let_go(en, &o);
        return false;
    }
    make_room(en, need - n_path, now_ns);
    sequence_resume(s, &o, need);
    return true;
}

/* Resumes those that fit. Returns whether one has waited so long that nobody may come in before it. */
static bool resume_parked(engine *en, uint64_t now_ns)
{
    sequence *s;
    bool late = false;
    while ((s = next_parked(en)) != NULL && try_resume(en, s, now_ns)) {
    }
    for (size_t i = 0; i < en->n_active; i++) {
        s = en->active[i];
        late = late || (s->state == SEQ_PARKED && !s->held && now_ns - s->waits_ns >= POLICY_PASS_NS);
    }
    return late;
}

bool scheduler_restore(engine *en)
{
    size_t n_pages = ENGINE_RESTORE_BYTES / page_pool_page_bytes(en->pages);
    size_t left = n_pages > 0 ? n_pages : 1;
    bool any = false;
    for (size_t i = 0; i < en->n_active && left > 0; i++) {
        if (en->active[i]->state == SEQ_RESTORE) {
            left -= sequence_restore(en->active[i], left);
            any = true;
        }
    }
    return any;
}

/* Admission */

/* Room for what s needs beyond the prefix that is offered, which is held from here on if there is. The page that is not
 * whole is given up before anybody gives way, and for a request that needs all there is. */
static bool has_room_with(engine *en, reuse_offer *o, size_t need)
{
    size_t n_path = reuse_pages(en, o);
    reuse_hold(en, o);
    if (has_room(en, need - n_path, n_path, false)) {
        return true;
    }
    reuse_whole_pages(en, o);
    if (has_room(en, need - n_path, n_path, true)) {
        return true;
    }
    reuse_let_go(en, o);
    return false;
}

/* false: it must wait for a lane or for pages. Else it is admitted, or has failed. */
static bool try_admit(engine *en, sequence *s, uint64_t now_ns)
{
    reuse_offer o = reuse_find_for(s);
    size_t need = resident_pages_for(sequence_reserves(s));
    en->fetch_seen = en->fetch_seen || en->fetching == s; /* even if its reads under way leave no room now */
    if (!has_room_with(en, &o, need)) {
        return false;
    }
    if (stored_fetch(s, o.n_tokens, s->history.len - 1)) {
        reuse_let_go(en, &o);
        return false;
    }
    lane *l;
    status st = lane_for(en, s, &l);
    if (st == ST_OK) {
        make_room(en, need - o.n_tokens / KV_PAGE_TOKENS, now_ns);
        sequence_admit(s, l, &o, need, now_ns);
        return true;
    }
    reuse_let_go(en, &o);
    if (st != ST_CAPACITY && en->n_active == 0) { /* nobody will give memory back */
        err e;
        err_set(&e, st, NULL, "out of memory for a lane of %d tokens", (int)en->cfg.n_ctx);
        sequence_fail(s, &e);
        return true;
    }
    return false;
}

static bool may_be_tried(engine *en, sequence *s)
{
    if (s->state != SEQ_QUEUED || s->tried == en->n_looks) {
        return false;
    }
    if (s->session) {
        bool first = s->session->looked_at != en->n_looks || s->session->first_waiting == s;
        if (first) {
            s->session->looked_at = en->n_looks;
            s->session->first_waiting = s;
        }
        if (!first || s->session->active) {
            return false;
        }
    }
    return !s->held;
}

static sequence *next_queued(engine *en, uint64_t now_ns)
{
    sequence *best = NULL;
    policy_waiting w, best_w = {0};
    for (sequence *s = en->first; s; s = s->next) {
        if (may_be_tried(en, s)) {
            w = (policy_waiting){s->priority, now_ns - s->waits_ns, s->ticket};
            if (!best || policy_before(&w, &best_w)) {
                best = s;
                best_w = w;
            }
        }
    }
    return best;
}

static void admit_some(engine *en, uint64_t now_ns)
{
    bool closed = resume_parked(en, now_ns);
    en->n_looks++;
    for (size_t tries = 0; !closed && tries < ENGINE_TRIES && en->n_active < en->n_sequences &&
                           en->n_active < en->cfg.max_sequences;
         tries++) {
        sequence *s = next_queued(en, now_ns);
        if (!s) {
            break;
        }
        s->tried = en->n_looks;
        if (!try_admit(en, s, now_ns)) {
            closed = now_ns - s->waits_ns >= POLICY_PASS_NS;
        }
    }
}

/* One who fetches and does not get its turn (it is paused, or must not pass another) must not hold what those need who do:
 * they might wait for it, and it for them. */
void scheduler_admit(engine *en, uint64_t now_ns)
{
    en->fetch_seen = false;
    admit_some(en, now_ns);
    if (!en->fetch_seen && stored_yield(en)) {
        admit_some(en, now_ns);
    }
}

/* The plan */

static size_t rows_wanted(const sequence *s)
{
    bool computes = s->state == SEQ_PREFILL || s->state == SEQ_DECODE || s->state == SEQ_TAIL;
    size_t n = sequence_pending(s);
    if (!computes || s->held) {
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
    for (size_t i = 0; i < en->n_active; i++) {
        n_all_rows += en->active[i]->state == SEQ_PREFILL && en->active[i]->prompt_probs;
    }
    size_t share = n_all_rows > 0 ? (en->cfg.ops.max_logit_rows - en->n_active) / n_all_rows : 0;
    for (size_t i = 0; i < en->n_active; i++) {
        sequence *s = en->active[i];
        bool all_rows = s->state == SEQ_PREFILL && s->prompt_probs;
        s->step_limit = all_rows && 1 + share < en->cfg.prefill_chunk ? 1 + share : en->cfg.prefill_chunk;
    }
}

/* What a step still has for prompts. */
typedef struct allowance {
    step_shape shape; /* of what is in it already */
    size_t rows;
    uint64_t ns; /* the whole step, 0 = any time */
} allowance;

/* Up to `want` more rows for a prompt, at its own price, so that the step takes at most `ns`; with `must` one row
 * whatever it takes. */
static size_t grant(const engine *en, allowance *a, sequence *s, size_t want, uint64_t ns, bool must)
{
    size_t at = s->kv->ids.len + s->step_rows;
    size_t most = want < a->rows ? want : a->rows;
    size_t n = a->ns == 0 ? most : cost_model_rows(&en->cost, &a->shape, at, ns, most);
    size_t rows = a->shape.rows + n;
    size_t over = rows % (rows >= MANY_ROWS ? 2 * ROWS_STEP : ROWS_STEP);
    if (n < most && n > over) { /* time ends it: kernels compute so many rows at a time */
        n -= over;
    }
    if (n == 0 && must && most > 0) {
        n = 1;
    }
    s->step_rows += n;
    a->rows -= n;
    a->shape.rows += n;
    a->shape.positions += step_positions(at, n);
    return n;
}

/* What the replies' step takes alone: as the model says, but not much more than such a step took when they were last
 * alone and what has been added since, or a machine that stumbles would allow prompts more and more. */
static uint64_t own_step(const engine *en, const step_shape *base)
{
    uint64_t own = cost_model_predict(&en->cost, base);
    const step_shape *then = &en->alone;
    if (then->rows == 0) {
        return own;
    }
    double rows = base->rows > then->rows ? (double)(base->rows - then->rows) : 0;
    double positions = base->positions > then->positions ? (double)(base->positions - then->positions) : 0;
    uint64_t seen = en->alone_ns + en->alone_ns / 16;
    seen += (uint64_t)(rows * en->cost.row_ns + positions * en->cost.read_ns);
    return own < seen ? own : seen;
}

/* base: the replies' own rows. */
static allowance allowance_of(const engine *en, const step_shape *base)
{
    allowance a = {.shape = *base, .rows = en->cfg.ops.max_rows - base->rows, .ns = en->cfg.max_step_ns};
    if (a.ns == 0) {
        return a;
    }
    size_t known = en->largest_chunk * 4 > ENGINE_FIRST_CHUNK ? en->largest_chunk * 4 : ENGINE_FIRST_CHUNK;
    a.rows = a.rows < known ? a.rows : known;
    if (base->rows > 0) {
        size_t grown = en->last_chunk + en->last_chunk / 4 +
                       ROWS_STEP / 2; /* what one wild step says is not believed at once */
        a.rows = a.rows < grown ? a.rows : grown;
        /* Replies wait for less than two of their own steps: the machine's jitter goes on top. */
        uint64_t own = own_step(en, base), most = own + own * 3 / 5;
        a.ns = most < a.ns ? most : a.ns;
    }
    return a;
}

/*
 * The eldest prompt has a quarter of what there is for itself, one row at least. Then the shortest come first, ties to
 * the elder, and the first of them gets a row whatever it takes. So a short prompt overtakes a long one, and neither
 * ever stands still.
 */
static void share_among(engine *en, sequence *const *prompts, const size_t *want, size_t n, allowance *a)
{
    uint64_t own = cost_model_predict(&en->cost, &a->shape);
    size_t quarter = a->rows / 4 > 0 ? a->rows / 4 : 1;
    allowance first = *a;
    first.rows = quarter;
    size_t got = grant(en, &first, prompts[0], want[0], own + (a->ns > own ? (a->ns - own) / 4 : 0), true);
    a->rows -= got;
    a->shape = first.shape;
    bool served = false; /* somebody else than the eldest */
    for (size_t i = policy_shorter(want, n, POLICY_NONE); i != POLICY_NONE; i = policy_shorter(want, n, i)) {
        got = grant(en, a, prompts[i], want[i] - prompts[i]->step_rows, a->ns, i > 0 && !served);
        served = served || (i > 0 && got > 0);
    }
}

/* Each reply its row, and prompts what is left for them. */
static void share_rows(engine *en)
{
    step_shape base = {0};
    size_t n = 0;
    limit_rows(en);
    for (size_t i = 0; i < en->n_active; i++) {
        sequence *s = en->active[i];
        size_t want = rows_wanted(s);
        bool prompt = s->state == SEQ_PREFILL;
        s->step_rows = prompt ? 0 : want;
        if (prompt && want > 0) {
            en->want[n] = want;
            en->order[n++] = s;
        }
        base.rows += s->step_rows;
        base.positions += step_positions(s->kv->ids.len, s->step_rows);
    }
    if (n > 0) {
        allowance a = allowance_of(en, &base);
        share_among(en, en->order, en->want, n, &a);
    }
}

/* One that has said all and waits for its reader, with its pages; NULL if there is none. */
static sequence *held_tail(const engine *en)
{
    for (size_t i = 0; i < en->n_active; i++) {
        if (en->active[i]->state == SEQ_TAIL && en->active[i]->held) {
            return en->active[i];
        }
    }
    return NULL;
}

/* Pages for the rows of s in this step. Where nobody has any, somebody gives way, s itself it may be. */
static void secure_pages(engine *en, sequence *s, uint64_t now_ns)
{
    while (s->step_rows > 0) {
        size_t more = sequence_short_of(s, s->step_rows);
        if (more == 0 || has_room(en, more, 0, false)) {
            make_room(en, more, now_ns);
            status st = sequence_cover(s, s->step_rows);
            assert(st == ST_OK);
            (void)st;
            return;
        }
        if (stored_yield(en) || (is_alone(en) && lend(en, more - in_reach(en))) ||
            preempt_one(en, false, now_ns)) {
            continue;
        }
        sequence *sealed = s->state == SEQ_TAIL ? s : held_tail(en);
        if (!sealed) {
            s->step_rows = 0; /* it waits */
            return;
        }
        sequence_end_short(sealed, now_ns); /* one that is only to be forwarded has no claim */
        if (sealed == s) {
            return;
        }
    }
}

static size_t plan_once(engine *en, uint64_t now_ns)
{
    size_t n = 0;
    share_rows(en);
    for (size_t i = 0; i < en->n_active;) { /* in the order admitted: the eldest is served first */
        sequence *s = en->active[i];
        size_t before = en->n_active;
        secure_pages(en, s, now_ns);
        i = en->n_active == before ? i + 1
                                   : 0; /* somebody has left: places have moved; who has pages keeps them */
    }
    for (size_t i = 0; i < en->n_active; i++) {
        if (en->active[i]->step_rows > 0) {
            en->order[n++] = en->active[i];
        }
    }
    return n;
}

size_t scheduler_plan(engine *en, uint64_t now_ns)
{
    size_t n, n_before;
    do { /* who left at the end may have had the pages that another found missing */
        n_before = en->n_active;
        n = plan_once(en, now_ns);
    } while (n == 0 && en->n_active < n_before);
    return n;
}

void scheduler_learn(engine *en, const step_shape *shape, uint64_t ns)
{
    cost_model_observe(&en->cost, shape, ns);
    if (en->steps_of_replies == 0) {
        return; /* there was a prompt in it */
    }
    bool same = en->alone.rows == shape->rows;
    en->alone_ns = same ? en->alone_ns - en->alone_ns / ALONE_STEPS + ns / ALONE_STEPS : ns;
    en->alone = *shape;
}

step_shape scheduler_shape(engine *en, size_t n_seqs)
{
    step_shape shape = {0};
    size_t chunk = 0;
    for (size_t i = 0; i < n_seqs; i++) {
        const sequence *s = en->order[i];
        shape.rows += s->step_rows;
        shape.positions += step_positions(s->kv->ids.len, s->step_rows);
        chunk += s->state == SEQ_PREFILL ? s->step_rows : 0;
    }
    /* The cost model forgets in so many steps what prompts cost: they begin small again. */
    en->steps_of_replies = chunk > 0 ? 0 : en->steps_of_replies + 1;
    if (en->steps_of_replies >= COST_MODEL_MEMORY) {
        en->largest_chunk = 0;
    }
    en->largest_chunk = chunk > en->largest_chunk ? chunk : en->largest_chunk;
    en->last_chunk = chunk > 0 ? chunk : en->last_chunk;
    return shape;
}
