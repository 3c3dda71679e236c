#include "worker/task.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/strmap.h"
#include "worker/talk.h"

typedef struct tasks_mem {
    task *all;  /* [n_all] */
    task *free; /* linked by next */
    size_t n_all;
    strmap *by_id; /* multiplexed: id -> index; keys are in the requests */
    uint64_t next_ticket;
    inbox *box; /* borrowed */
} tasks_mem;

status tasks_open(tasks *t, inbox *box, size_t max_begun)
{
    memset(t, 0, sizeof *t);
    tasks_mem *m = mem_calloc(1, sizeof *m);
    if (!m) {
        return ST_NOMEM;
    }
    t->mem = m;
    m->box = box;
    m->n_all = INBOX_MAX_ITEMS + max_begun + 1; /* and a plain one */
    m->all = mem_calloc(m->n_all, sizeof *m->all);
    status st = m->all ? strmap_new(m->n_all, &m->by_id) : ST_NOMEM;
    if (st != ST_OK) {
        tasks_close(t);
        return st;
    }
    for (size_t i = m->n_all; i-- > 0;) {
        m->all[i].next = m->free;
        m->free = &m->all[i];
    }
    return ST_OK;
}

static void release(task *k)
{
    talk_free(k->talk);
    prepare_job_release(&k->job);
    wire_request_free(k->request);
    mem_free(k->answer);
    memset(k, 0, sizeof *k);
}

void tasks_close(tasks *t)
{
    if (!t->mem) {
        return;
    }
    for (size_t i = 0; t->mem->all && i < t->mem->n_all; i++) {
        release(&t->mem->all[i]);
    }
    strmap_free(t->mem->by_id);
    mem_free(t->mem->all);
    mem_free(t->mem);
    t->mem = NULL;
}

static task_queue *queue_of(tasks *t, const task *k)
{
    return k->multiplexed ? &t->multiplexed : &t->plain;
}

task *tasks_add(tasks *t, const struct desk *d, inbox_item *item)
{
    tasks_mem *m = t->mem;
    task *k = m->free;
    const wire_request *r = item->request;
    bool has_id = r && r->id.data;
    assert(k);    /* their number is bounded */
    if (has_id) { /* the map was made for all of them: it never grows */
        status st = strmap_put(m->by_id, r->id.data, r->id.len, (int32_t)(k - m->all), NULL);
        assert(st == ST_OK);
        (void)st;
    }
    m->free = k->next;
    *k = (task){.request = item->request, .answer = item->answer, .answer_len = item->answer_len, .desk = d};
    k->id_len = item->id_len;
    memcpy(k->id_bytes, item->id_bytes, item->id_len);
    k->multiplexed = item->multiplexed;
    k->id_hash = has_id ? status_page_id_hash(r->id.data, r->id.len) : 0;
    k->counts = true;
    k->inbox_bytes = item->bytes;
    k->begun_ns = item->read_ns;
    k->ticket = ++m->next_ticket;
    task_queue *q = queue_of(t, k);
    k->prev = q->last;
    if (q->last) {
        q->last->next = k;
    } else {
        q->first = k;
    }
    q->last = k;
    t->n++;
    return k;
}

task *tasks_find(const tasks *t, wire_string id)
{
    int32_t i;
    return strmap_get(t->mem->by_id, id.data, id.len, &i) ? &t->mem->all[i] : NULL;
}

bool task_is_generation(const task *k)
{
    return k->request && (k->request->op == WIRE_GENERATE || k->request->op == WIRE_CHAT);
}

static void forget_in_inbox(tasks *t, task *k)
{
    if (k->counts) {
        k->counts = false;
        inbox_forget(t->mem->box, k->inbox_bytes);
    }
}

void tasks_prepare(tasks *t, task *k)
{
    k->state = TASK_PREPARING;
    k->job.request = k->request;
    k->preparer_has_it = true;
    k->begun = true;
    t->n_preparing++;
    if (task_is_generation(k)) {
        t->n_begun += k->multiplexed;
        forget_in_inbox(t, k);
    } else {
        t->n_answers++;
    }
}

static void give_back(tasks *t, task *k)
{
    if (k->begun && !task_is_generation(k)) {
        t->n_answers--;
    } else if (k->begun && k->multiplexed) {
        t->n_begun--;
    }
    forget_in_inbox(t, k);
    release(k);
    k->next = t->mem->free;
    t->mem->free = k;
}

void tasks_end(tasks *t, task *k)
{
    task_queue *q = queue_of(t, k);
    *(k->prev ? &k->prev->next : &q->first) = k->next;
    *(k->next ? &k->next->prev : &q->last) = k->prev;
    if (k->request && k->request->id.data) {
        strmap_remove(t->mem->by_id, k->request->id.data, k->request->id.len);
    }
    t->n--;
    t->n_ended++;
    if (k->preparer_has_it) {
        k->orphan = true;
        atomic_store_explicit(&k->job.dropped, true, memory_order_release);
        return;
    }
    give_back(t, k);
}

void tasks_settle(tasks *t, task *k)
{
    k->preparer_has_it = false;
    t->n_preparing--;
    if (k->orphan) {
        give_back(t, k);
    } else if (k->state == TASK_PREPARING) {
        k->state = TASK_PREPARED;
    }
}

task *task_of_job(prepare_job *job)
{
    return (task *)((char *)job - offsetof(task, job));
}

bool task_same_session(const task *a, const task *b)
{
    wire_string x = a->request->session_id, y = b->request->session_id;
    return x.len > 0 && x.len == y.len && memcmp(x.data, y.data, x.len) == 0;
}

static bool concerns(const task *k, const task *other, bool ops_only)
{
    if (!other->request || other == k || other->ticket > k->ticket) {
        return false;
    }
    switch (other->request->op) {
    case WIRE_GENERATE:
    case WIRE_CHAT:
        return !ops_only && task_same_session(k, other);
    case WIRE_CLOSE:
    case WIRE_RESET:
    case WIRE_SESSION_RESET:
    case WIRE_SESSION_CLOSE:
    case WIRE_SESSION_PREWARM:
    case WIRE_SESSION_PROBE:
    case WIRE_SESSION_EXPORT:
    case WIRE_SESSION_IMPORT:
    case WIRE_SESSION_SAVE:
    case WIRE_SESSION_RESTORE:
        return task_same_session(k, other);
    default:
        return false;
    }
}

bool tasks_earlier_on_session(const tasks *t, const task *k, bool ops_only)
{
    if (t->plain.first && concerns(k, t->plain.first, ops_only)) {
        return true;
    }
    for (const task *other = t->multiplexed.first; other && other->ticket < k->ticket; other = other->next) {
        if (concerns(k, other, ops_only)) {
            return true;
        }
    }
    return false;
}
