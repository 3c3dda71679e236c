/* model_service: what its worker says. */
#include <stdio.h>
#include <string.h>

#include "serve/model_service_int.h"

/* What a frame means for the job that its id names. */
typedef enum frame_sort { SORT_PART, SORT_END, SORT_ANSWER, SORT_OTHER } frame_sort;

static frame_sort sort_of(frame_kind kind)
{
    switch (kind) {
    case FRAME_ACCEPTED:
    case FRAME_TOKEN:
    case FRAME_DELTA:
    case FRAME_PROMPT_LOGPROBS:
    case FRAME_PROGRESS:
        return SORT_PART;
    case FRAME_DONE:
    case FRAME_ERROR:
        return SORT_END;
    case FRAME_TOKENS:
    case FRAME_TEXT:
    case FRAME_COUNT:
    case FRAME_SESSION_INFO:
    case FRAME_STATS:
    case FRAME_OPENED:
    case FRAME_CLOSED:
    case FRAME_RESET:
    case FRAME_PREWARMED:
    case FRAME_PROBE:
    case FRAME_EXPORT:
    case FRAME_IMPORT:
    case FRAME_SAVED:
    case FRAME_RESTORED:
    case FRAME_DROPPED:
    case FRAME_KV_LIMIT:
        return SORT_ANSWER;
    case FRAME_READY:
    case FRAME_UNKNOWN:
        break;
    }
    return SORT_OTHER;
}

static const char *take_ready(model_service *s, const frame_ready *r)
{
    if (s->life != LIFE_STARTING) {
        return "a second ready frame";
    }
    service_model *m = &s->model;
    if (s->was_ready && strcmp(m->digest, r->digest ? r->digest : "") != 0) {
        service_again_drop(s);
    }
    snprintf(m->name, sizeof m->name, "%s", r->name);
    snprintf(m->arch, sizeof m->arch, "%s", r->arch);
    snprintf(m->quant, sizeof m->quant, "%s", r->quant);
    snprintf(m->kernels, sizeof m->kernels, "%s", r->kernels);
    snprintf(m->digest, sizeof m->digest, "%s", r->digest ? r->digest : "");
    m->params = r->params;
    m->kv_pages = r->kv_pages;
    m->kv_page_bytes = r->kv_page_bytes;
    m->sampling = r->sampling;
    m->context_length = r->context_length;
    m->vocab_size = r->vocab_size;
    m->lanes = r->max_sessions;
    service_life_ready(s);
    return NULL;
}

/* It exits by itself, or stands still and is killed. */
static const char *take_start_error(model_service *s, const frame *f)
{
    s->load_failed = f->code == ST_LOAD_FAILED || f->code == ST_MODEL_CHANGED;
    worker_conn_note(s->conn, s->load_failed ? WORKER_LOAD_FAILED : WORKER_EXITED, f->text);
    return NULL;
}

static const char *misplaced(const service_entry *en, frame_kind kind, frame_sort sort)
{
    if (kind == FRAME_ERROR || en->light == (sort == SORT_ANSWER)) {
        return NULL;
    }
    return en->light ? "a piece of a reply to an op" : "the answer of an op to a generation";
}

static reply_verdict hear(model_service *s, service_entry *en, const frame *f, const char **complaint)
{
    if (en->light) {
        return REPLY_PASS;
    }
    reply_verdict v = reply_journal_take(&en->told, f, s->model.context_length, complaint);
    if (v == REPLY_PASS && (f->kind == FRAME_TOKEN || f->kind == FRAME_DELTA) && f->n_ids > 0) {
        respawn_forget(&s->respawn);
    }
    return v;
}

static void tell(model_service *s, service_entry *en, const frame *f, frame_sort sort)
{
    frame mended;
    service_job *job = en->job;
    bool may_send_more = sort != SORT_PART || service_again_clears(s, en);
    if (f->kind == FRAME_DONE) {
        reply_journal_mend_done(&en->told, f, &mended);
        f = &mended;
    }
    if (sort != SORT_PART) {
        service_entry_end(s, en);
    }
    if (job) {
        job->on_frame(job->ctx, f);
    }
    if (may_send_more) {
        service_dispatch(s);
    }
}

static const char *take_reply(model_service *s, const frame *f, frame_sort sort)
{
    if (!f->id.data) {
        return "a frame without an id";
    }
    service_entry *en = service_entry_find(s, f->id.data, f->id.len);
    if (!en || en->place != ENTRY_SENT) {
        return "a frame with the id of no request that runs";
    }
    const char *complaint = misplaced(en, f->kind, sort);
    reply_verdict v = complaint ? REPLY_BROKEN : hear(s, en, f, &complaint);
    if (v == REPLY_PASS) {
        tell(s, en, f, sort);
    }
    return v == REPLY_BROKEN ? complaint : NULL;
}

const char *service_take_frame(void *ctx, const frame *f)
{
    model_service *s = ctx;
    frame_sort sort = sort_of(f->kind);
    if (s->cut) {
        return NULL; /* nobody is left who wants it */
    }
    if (f->kind == FRAME_READY) {
        return take_ready(s, &f->ready);
    }
    if (sort == SORT_OTHER) {
        return NULL; /* of a later protocol */
    }
    if (s->life == LIFE_STARTING) {
        return f->kind == FRAME_ERROR && !f->id.data ? take_start_error(s, f)
                                                     : "a reply before the ready frame";
    }
    return take_reply(s, f, sort);
}
