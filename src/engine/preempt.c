/*
 * Preemption: a sequence gives its pages up for others and comes back later. Only its pages are touched; all that
 * it knows stays in its struct, so nothing of this is heard in its reply.
 */
#include <assert.h>

#include "engine/engine_int.h"

bool sequence_can_park(const sequence *s)
{
    bool has = s->kv && (s->kv->n_pages > 0 || s->promised_pages > 0);
    return has && (s->state == SEQ_PREFILL || s->state == SEQ_DECODE || s->state == SEQ_RESTORE);
}

void sequence_drop_image(sequence *s)
{
    park_drop(s->en->parking, s->image);
    s->image = NULL;
}

void sequence_park(sequence *s, uint64_t now_ns)
{
    engine *en = s->en;
    assert(sequence_can_park(s));
    /* One on its way back still has its copy. Without memory or budget for one it is computed again. */
    if (!s->image && s->kv->ids.len > 0 && park_save(en->parking, s->kv, en->pages, &s->image) != ST_OK) {
        s->image = NULL;
    }
    if (!s->image) {
        stored_write(s, true);
        s->fetched = false;
        s->fetch_ns = 0;
    }
    reuse_leave(s, !s->image);
    en->promised_pages -= s->promised_pages;
    s->promised_pages = 0;
    s->parked = ++en->n_parked;
    s->n_preempted++;
    s->waits_ns = now_ns;
    s->state = SEQ_PARKED;
    counter_add(&en->count.preemptions, 1);
    counter_add(&en->count.parked, 1);
    engine_note_pages(en);
}

/* What it does with all that it had in its pages again. */
static seq_state state_of_work(const sequence *s)
{
    return s->begun && sequence_pending(s) == 1 ? SEQ_DECODE : SEQ_PREFILL; /* a sealed one has not begun */
}

void sequence_resume(sequence *s, reuse_offer *o, size_t need_pages)
{
    engine *en = s->en;
    assert(s->state == SEQ_PARKED && s->kv->n_pages == 0);
    reuse_take(s, o);
    counter_add(&en->count.restored, o->n_tokens);
    s->promised_pages = need_pages - s->kv->n_pages;
    en->promised_pages += s->promised_pages;
    s->immune_until = sequence_generated(s) + POLICY_IMMUNE_TOKENS;
    s->state = s->image ? SEQ_RESTORE : state_of_work(s);
    atomic_fetch_sub_explicit(&en->count.parked, 1, memory_order_relaxed);
}

size_t sequence_restore(sequence *s, size_t max_pages)
{
    engine *en = s->en;
    size_t before = s->kv->n_pages;
    bool complete = false;
    assert(s->state == SEQ_RESTORE);
    status st = park_load(s->image, s->kv, en->pages, s->history.data, max_pages, &complete);
    size_t taken = s->kv->n_pages - before;
    assert(st == ST_OK && taken <= s->promised_pages); /* resuming reserved them */
    (void)st;
    s->promised_pages -= taken;
    en->promised_pages -= taken;
    engine_note_pages(en);
    if (complete) {
        counter_add(&en->count.restored, s->kv->ids.len);
        sequence_drop_image(s);
        s->state = state_of_work(s);
    }
    return taken;
}
