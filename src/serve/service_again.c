/* model_service: what a death leaves: who is sent again and when, and who is blamed for it. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "serve/blame.h"
#include "serve/model_service_int.h"

static const char crashed[] = "the worker has crashed";
static const char cancelled[] = "the request was cancelled";
static const char guilty[] =
    "the worker has crashed on this request again and again: it is not tried any more";
static const char changed[] = "the model's file has changed while the request was running";

/*
 * Blame.
 */
static blame_suspect suspect_of(const model_service *s, const service_entry *en)
{
    return (blame_suspect){.hash = status_page_id_hash(en->id, en->id_len),
                           .marked = en->marked,
                           .cleared = en->cleared_in == s->inquiry && s->inquiry > 0,
                           .twice = en->twice};
}

static bool any_marked(const entry_list *list)
{
    const service_entry *en = list->first;
    while (en && !en->marked) {
        en = en->next;
    }
    return en;
}

static void mark(service_entry *en)
{
    en->twice = en->marked;
    en->marked = true;
    en->marked_at = en->told.n_ids;
    en->cleared_in = 0;
}

static void fail(model_service *s, service_entry *en)
{
    s->n_blamed++;
    log_emit(LOG_WARN, "serve", "model=\"%s\" event=blamed request=\"%s\"", s->cfg.id, en->id);
    service_entry_lose(s, en, ST_WORKER_CRASHED, guilty);
}

/* Those that were cancelled are heard of, too: it may have been one of them. */
static void judge(model_service *s)
{
    status_snapshot page;
    worker_conn_left(s->conn, &page);
    blame_case c = blame_open(&page);
    if (!any_marked(&s->at[ENTRY_SENT]) && !any_marked(&s->at[ENTRY_AGAIN])) {
        s->inquiry++;
    }
    for (const service_entry *en = s->at[ENTRY_SENT].first; en; en = en->next) {
        blame_suspect who = suspect_of(s, en);
        blame_hear(&c, &who);
    }
    for (service_entry *en = s->at[ENTRY_SENT].first, *next; en; en = next) {
        next = en->next;
        blame_suspect who = suspect_of(s, en);
        blame_verdict v = blame_tell(&c, &who);
        if (v == BLAME_MARK) {
            mark(en);
        } else if (v == BLAME_FAIL) {
            fail(s, en);
        }
    }
}

/*
 * After a death.
 */
static bool may_go_on(service_entry *en)
{
    return en->light ? en->job->resend : reply_journal_restart(&en->told);
}

static void settle(model_service *s, service_entry *en, bool model_changed)
{
    if (!en->job || en->cancel_ns != 0) {
        service_entry_lose(s, en, ST_CANCELLED, cancelled);
    } else if (model_changed) {
        service_entry_lose(s, en, ST_MODEL_CHANGED, changed);
    } else if (!may_go_on(en)) {
        service_entry_lose(s, en, ST_WORKER_CRASHED, crashed);
    } else {
        service_entry_move(s, en, ENTRY_AGAIN);
    }
}

void service_again_after(model_service *s, worker_cause cause)
{
    if (blame_is_own_fault(cause, worker_conn_end(s->conn))) {
        judge(s);
    }
    while (s->at[ENTRY_SENT].first) {
        settle(s, s->at[ENTRY_SENT].first, cause == WORKER_MODEL_CHANGED);
    }
}

void service_again_drop(model_service *s)
{
    for (service_entry *en = s->at[ENTRY_AGAIN].first, *next; en; en = next) {
        next = en->next;
        if (en->told.accepted) {
            service_entry_lose(s, en, ST_MODEL_CHANGED, changed);
        }
    }
}

/*
 * Sending again.
 */
static bool waits_before(const service_entry *first, const service_entry *end, uint64_t order)
{
    const service_entry *en = order != 0 ? first : end;
    while (en != end && en->job->order != order) {
        en = en->next;
    }
    return en != end;
}

bool service_again_holds(const model_service *s, const service_job *job)
{
    return waits_before(s->at[ENTRY_AGAIN].first, NULL, job->order);
}

void service_again_dispatch(model_service *s)
{
    bool on_trial = s->at[ENTRY_AGAIN].first && any_marked(&s->at[ENTRY_SENT]);
    for (service_entry *en = s->at[ENTRY_AGAIN].first, *next; en; en = next) {
        next = en->next;
        if ((en->marked && on_trial) || waits_before(s->at[ENTRY_AGAIN].first, en, en->job->order)) {
            continue;
        }
        bool tried = en->marked;
        service_send(s, en);
        on_trial = on_trial || (tried && any_marked(&s->at[ENTRY_SENT])); /* unless it is lost instead */
    }
}

bool service_again_clears(model_service *s, service_entry *en)
{
    if (!en->marked || en->told.n_ids < en->marked_at + BLAME_PROBATION_TOKENS) {
        return false;
    }
    en->marked = en->twice = false;
    en->cleared_in = s->inquiry;
    if (en->paused && en->job) {
        service_put_op(s, en, WIRE_PAUSE);
    }
    return true;
}
