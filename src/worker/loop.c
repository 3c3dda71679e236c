#include "worker/loop.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "engine/policy.h"
#include "worker/last.h"
#include "worker/ops.h"
#include "worker/reply.h"
#include "worker/session_ops.h"

#define SLOW_READER "slow_reader"
#define DEADLINE    "deadline"
/* While there is work but nothing to compute (all paused, a long text being prepared) the tick still rises, so
 * that who watches the status page sees a thread that lives. */
#define HEARTBEAT_MS 1000

static uint64_t now_of(const loop *l)
{
    return clock_mono_ns(l->desk.clock);
}

static uint64_t ns_of(uint64_t ms)
{
    return ms * UINT64_C(1000000);
}

/*
 * Lines
 */
static void cut(task *k, finish_reason reason, const char *guard)
{
    const desk *d = k->desk;
    if (k->state == TASK_OWING) {
        return; /* it is over */
    }
    uint64_t before = desk_attend(d, k->id_hash);
    if (k->state != TASK_RUNNING) {
        reply_cut(k, reason, guard);
    } else if (guard[0] != '\0') {
        seq_cancel_guarded(k->seq, guard);
    } else {
        seq_cancel(k->seq);
    }
    desk_attend(d, before);
}

/* Lines about another request. An id that is not there, or no longer, is ignored. */
static void act(loop *l, wire_op op, wire_string id)
{
    task *k = id.len > 0 ? tasks_find(l->desk.tasks, id) : NULL;
    if (op == WIRE_DRAIN) {
        l->draining = true;
    } else if (!k) {
        return;
    } else if (op == WIRE_CANCEL) {
        cut(k, FINISH_CANCELLED, "");
    } else if (op == WIRE_CONTINUE) {
        k->paused = false;
    } else if (!k->paused) {
        k->paused = true;
        k->paused_ns = now_of(l);
    }
}

static bool is_about_another(const wire_request *r)
{
    return r->op == WIRE_CANCEL || r->op == WIRE_PAUSE || r->op == WIRE_CONTINUE || r->op == WIRE_DRAIN;
}

/* The answer to a line with an id begins with it. */
static bool begins_with_id(const inbox_item *item)
{
    static const char start[] = "{\"id\":";
    size_t n = strlen(start);
    return item->answer && item->answer_len >= n && memcmp(item->answer, start, n) == 0;
}

static void refuse_if_needed(const loop *l, inbox_item *item)
{
    err e;
    const wire_request *r = item->request;
    if (l->draining) {
        err_set(&e, ST_DRAINING, NULL, "the worker is draining: it takes no new requests");
    } else if (r->id.data && tasks_find(l->desk.tasks, r->id)) {
        err_set(&e, ST_BAD_REQUEST, "id", "a request with this id is not over yet");
    } else {
        return;
    }
    ops_refuse(item, &e);
}

static void take_line(loop *l, inbox_item *item)
{
    const wire_request *r = item->request;
    if (item->acts || (r && is_about_another(r))) {
        act(l, r ? r->op : item->op, r ? r->id : (wire_string){item->id_bytes, item->id_len});
        inbox_forget(l->box, item->bytes);
        inbox_item_release(item);
        return;
    }
    item->multiplexed = r ? r->id.data != NULL : item->id_len > 0 || begins_with_id(item);
    if (item->request) {
        refuse_if_needed(l, item);
    }
    task *k = tasks_add(l->desk.tasks, &l->desk, item);
    if (k->request && k->request->deadline_ms != 0) {
        k->deadline_ns = k->begun_ns + ns_of(k->request->deadline_ms);
    }
}

static void take_lines(loop *l)
{
    inbox_item item;
    while (inbox_take(l->box, &item)) {
        take_line(l, &item);
    }
}

static void take_prepared(loop *l)
{
    prepare_job *job;
    while ((job = preparer_take(l->preparer)) != NULL) {
        tasks_settle(l->desk.tasks, task_of_job(job));
    }
}

/*
 * Time
 */
static uint64_t paused_until(const loop *l, const task *k)
{
    return k->paused_ns + ns_of(l->slow_reader_ms);
}

/* What the engine has it watches itself, but not the pause. */
static void cut_overdue(loop *l)
{
    uint64_t now_ns = now_of(l);
    for (task *k = l->desk.tasks->multiplexed.first, *next; k; k = next) {
        next = k->next;
        if (k->paused && now_ns >= paused_until(l, k)) {
            cut(k, FINISH_CANCELLED, SLOW_READER);
        } else if (k->deadline_ns != 0 && now_ns >= k->deadline_ns && k->state != TASK_RUNNING) {
            cut(k, FINISH_TIMEOUT, DEADLINE);
        }
    }
}

int loop_wait_ms(const loop *l)
{
    if (l->desk.tasks->n == 0) {
        return BELL_FOREVER;
    }
    uint64_t now_ns = now_of(l), until = now_ns + ns_of(HEARTBEAT_MS);
    for (const task *k = l->desk.tasks->multiplexed.first; k; k = k->next) {
        if (k->deadline_ns != 0 && k->deadline_ns < until) {
            until = k->deadline_ns;
        }
        if (k->paused && paused_until(l, k) < until) {
            until = paused_until(l, k);
        }
    }
    return until > now_ns ? (int)((until - now_ns) / 1000000) + 1 : 0;
}

/*
 * Beginning
 */
static bool needs_preparing(const task *k)
{
    if (!k->request) {
        return false;
    }
    switch (k->request->op) {
    case WIRE_GENERATE:
    case WIRE_CHAT:
    case WIRE_TOKENIZE:
    case WIRE_DETOKENIZE:
    case WIRE_COUNT:
    case WIRE_RENDER:
    case WIRE_SESSION_SAVE:
    case WIRE_SESSION_RESTORE:
    case WIRE_SESSION_DROP:
        return true;
    default:
        return false;
    }
}

static void begin(loop *l, task *k)
{
    if (ops_must_wait(k)) {
        return;
    }
    if (needs_preparing(k)) {
        if (session_op_begin(k)) {
            tasks_prepare(l->desk.tasks, k);
            preparer_put(l->preparer, &k->job);
        }
    } else if (k->request && k->request->op == WIRE_SESSION_PREWARM) {
        session_op_prewarm(k);
    } else {
        ops_answer(k, l->draining);
    }
}

/* Moves a task on, if it can go on. */
static void move(loop *l, task *k)
{
    uint64_t before = desk_attend(&l->desk, k->id_hash);
    if (k->state == TASK_WAITING) {
        begin(l, k);
    } else if (k->state == TASK_OWING) {
        last_owed(k);
    } else if (k->state == TASK_PREPARED && !task_is_generation(k)) {
        ops_answer_prepared(k);
    } else if (k->state == TASK_PREPARED && !tasks_earlier_on_session(l->desk.tasks, k, true)) {
        reply_submit(k);
    }
    desk_attend(&l->desk, before);
}

/* The engine's order: priority, age, then as they were read. */
static bool goes_before(const task *a, const task *b, uint64_t now_ns)
{
    const policy_waiting x = {a->request->priority, now_ns - a->begun_ns, a->ticket};
    const policy_waiting y = {b->request->priority, now_ns - b->begun_ns, b->ticket};
    return policy_before(&x, &y);
}

static bool waits_to_begin(const task *k)
{
    return k->state == TASK_WAITING && task_is_generation(k);
}

/* Requests on one session keep their order, whatever their priorities. */
static bool is_first_of_session(const loop *l, const task *k)
{
    for (const task *o = l->desk.tasks->multiplexed.first; k->request->session_id.len > 0 && o != k;
         o = o->next) {
        if (waits_to_begin(o) && task_same_session(o, k)) {
            return false;
        }
    }
    return true;
}

static task *next_to_begin(const loop *l, uint64_t now_ns)
{
    task *best = NULL;
    for (task *k = l->desk.tasks->multiplexed.first; k; k = k->next) {
        if (waits_to_begin(k) && (!best || goes_before(k, best, now_ns)) && is_first_of_session(l, k)) {
            best = k;
        }
    }
    return best;
}

/* Only those begun that go before it hold it back. */
static bool may_begin(const loop *l, const task *k, uint64_t now_ns)
{
    const tasks *t = l->desk.tasks;
    size_t max_begun = TASKS_BEGUN_PER_LANE * l->desk.n_lanes, n_before = 0;
    if (t->n_begun < max_begun) {
        return true;
    }
    if (t->n_begun >= TASKS_URGENT_PER_LANE * l->desk.n_lanes) {
        return false;
    }
    for (const task *o = t->multiplexed.first; o; o = o->next) {
        n_before += o->begun && task_is_generation(o) && goes_before(o, k, now_ns);
    }
    return n_before < max_begun;
}

static void begin_generations(loop *l)
{
    uint64_t now_ns = now_of(l);
    task *k;
    while (output_has_room(l->desk.out) && (k = next_to_begin(l, now_ns)) != NULL &&
           may_begin(l, k, now_ns)) {
        move(l, k);
    }
}

static void move_multiplexed(loop *l)
{
    const tasks *t = l->desk.tasks;
    bool all_asked = true; /* what waits is overtaken by none of its kind behind it */
    for (task *k = t->multiplexed.first, *next; k && output_has_room(l->desk.out); k = next) {
        next = k->next;
        bool waits = k->state == TASK_WAITING && needs_preparing(k);
        if (waits && !task_is_generation(k)) {
            all_asked = all_asked && t->n_answers < TASKS_MAX_ANSWERS;
            waits = !all_asked;
        }
        if (!waits) {
            move(l, k);
        }
    }
    begin_generations(l);
}

/* A cancel id is looked at before anything else is: what it refuses never was. */
static bool refuse_cancel_id(task *k)
{
    err e;
    uint64_t id = k->request->cancel_request_id;
    if (id == 0 || control_allows(k->desk->control, id)) {
        return false;
    }
    err_set(&e, ST_INVALID_FIELD, "cancel_request_id",
            "cancel_request_id must be larger than all used before, not %llu", (unsigned long long)id);
    k->request->cancel_request_id = 0;
    reply_fail(k, &e);
    return true;
}

static void move_plain(loop *l)
{
    task *k;
    while ((k = l->desk.tasks->plain.first) != NULL && output_has_room(l->desk.out)) {
        if (k->state == TASK_WAITING) {
            k->begun_ns = now_of(l);
            if (task_is_generation(k) && refuse_cancel_id(k)) {
                continue;
            }
        }
        move(l, k);
        if (k == l->desk.tasks->plain.first) {
            return; /* it is on its way */
        }
    }
}

/*
 * A turn
 */
static void hold_or_go(loop *l, bool room)
{
    for (task *k = l->desk.tasks->multiplexed.first; k; k = k->next) {
        if (k->state == TASK_RUNNING) {
            reply_hold(k, k->paused || !room);
        }
    }
    task *plain = l->desk.tasks->plain.first;
    if (plain && plain->state == TASK_RUNNING) {
        reply_hold(plain, !room);
    }
}

static void say_progress(loop *l)
{
    uint64_t now_ns = now_of(l);
    for (task *k = l->desk.tasks->multiplexed.first; k; k = k->next) {
        if (k->state == TASK_RUNNING) {
            reply_progress(k, now_ns);
        }
    }
}

static void note_status(const loop *l)
{
    status_page *p = l->desk.page;
    engine_stats s = desk_stats(&l->desk);
    status_page_set(p, STATUS_ROW_TOKENS_PREFILLED, s.tokens_prefilled);
    status_page_set(p, STATUS_ROW_TOKENS_GENERATED, s.tokens_generated);
    status_page_set(p, STATUS_ROW_TOKENS_REUSED, s.tokens_reused);
    status_page_set(p, STATUS_ROW_LANES_TOTAL, l->desk.n_lanes);
    status_page_set(p, STATUS_ROW_LANES_LIVE, s.lanes_live);
    status_page_set(p, STATUS_ROW_LANES_IDLE, s.lanes_idle);
    status_page_set(p, STATUS_ROW_PAGES_TOTAL, s.pages_total);
    status_page_set(p, STATUS_ROW_PAGES_USED, s.pages_used);
    status_page_set(p, STATUS_ROW_QUEUED, l->desk.tasks->n - s.running);
    status_page_set(p, STATUS_ROW_RUNNING, s.running);
    status_page_set(p, STATUS_ROW_REQUESTS_DONE, s.requests_done);
    status_page_set(p, STATUS_ROW_REQUESTS_FAILED, s.requests_failed);
    status_page_set(p, STATUS_ROW_REQUESTS_CANCELLED, s.requests_cancelled);
    status_page_set(p, STATUS_ROW_PARKED, s.parked);
    status_page_set(p, STATUS_ROW_PREEMPTIONS, s.preemptions);
    status_page_set(p, STATUS_ROW_TOKENS_RECOMPUTED, s.tokens_recomputed);
    status_page_set(p, STATUS_ROW_TOKENS_RESTORED, s.tokens_restored);
    status_page_set(p, STATUS_ROW_PAGES_CACHED, s.pages_cached);
    status_page_set(p, STATUS_ROW_TOKENS_FETCHED, s.tokens_fetched);
}

void loop_before_step(void *page, const step_row *rows, size_t n, bool any_prefill)
{
    uint64_t hashes[STATUS_PAGE_MAX_ROWS];
    int32_t positions[STATUS_PAGE_MAX_ROWS];
    size_t n_listed = n < STATUS_PAGE_MAX_ROWS ? n : STATUS_PAGE_MAX_ROWS;
    for (size_t i = 0; i < n_listed; i++) {
        hashes[i] = rows[i].id_hash;
        positions[i] = rows[i].position;
    }
    status_page_step(page, hashes, positions, n_listed);
    status_page_set(page, STATUS_ROW_PHASE, any_prefill ? STATUS_PREFILL : STATUS_DECODE);
}

bool loop_turn(loop *l)
{
    uint64_t n_ended = l->desk.tasks->n_ended;
    output_commit(l->desk.out); /* what there was no memory for */
    take_lines(l);
    take_prepared(l);
    cut_overdue(l);
    bool room = output_has_room(l->desk.out);
    if (room) {
        move_plain(l);
        move_multiplexed(l);
    }
    hold_or_go(l, room);
    status_page_add(l->desk.page, STATUS_ROW_TICK, 1);
    bool computed = engine_step(l->desk.en);
    status_page_step(l->desk.page, NULL, NULL, 0);
    if (computed) {
        say_progress(l);
    }
    note_status(l);
    output_commit(l->desk.out);
    bool owes = l->desk.tasks->n_owing > 0 && output_has_room(l->desk.out);
    return computed || owes || l->desk.tasks->n_ended != n_ended;
}

static bool nothing_left(const loop *l)
{
    return l->desk.tasks->n == 0 && (l->draining || inbox_ended(l->box));
}

/* Halted: what runs ends at the next step, held or not; what does not run has no end. */
static void drop_all(loop *l)
{
    task_queue queues[] = {l->desk.tasks->plain, l->desk.tasks->multiplexed};
    for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++) {
        for (task *k = queues[i].first; k; k = k->next) {
            if (k->state == TASK_RUNNING) {
                seq_cancel(k->seq);
            }
            atomic_store_explicit(&k->job.dropped, true, memory_order_release);
        }
    }
    while (engine_running(l->desk.en) > 0) {
        engine_step(l->desk.en);
    }
}

void loop_run(loop *l)
{
    while (!halt_asked(l->desk.halt)) {
        if (loop_turn(l)) {
            continue;
        }
        if (nothing_left(l)) {
            return;
        }
        status_page_set(l->desk.page, STATUS_ROW_PHASE, l->draining ? STATUS_DRAINING : STATUS_IDLE);
        bell_wait(l->bell, l->desk.halt, loop_wait_ms(l));
    }
    drop_all(l);
}
