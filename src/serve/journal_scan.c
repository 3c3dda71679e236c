/* journal_scan: what a journal that was there says. Of several records about one name the largest serial counts. */
#include <inttypes.h>

#include "base/log.h"
#include "serve/journal_int.h"

typedef struct loader {
    journal *j;
    uint64_t n_cut, n_lost; /* segments whose end is no record, and bytes of these */
    journal_segment_info last;
} loader;

/* A record about a request that the index does not know, or knows only an earlier one by that name. */
static journal_entry *entry_for(journal *j, const journal_record *r, bool *no_memory)
{
    journal_entry *e = index_find(j, r->owner, r->owner_len, r->name, r->name_len);
    *no_memory = false;
    if (e && e->serial < r->serial) {
        index_remove(j, e);
        e = NULL;
    }
    if (!e) {
        e = index_add(j, r);
        *no_memory = !e;
        if (e) {
            e->found = true;
        }
        return e;
    }
    return e->serial == r->serial ? e : NULL;
}

static bool on_text(journal *j, const journal_place *at, const journal_record *r)
{
    bool no_memory;
    journal_entry *e = entry_for(j, r, &no_memory);
    bool is_answer = r->kind == JOURNAL_ANSWERED;
    if (!e || (e->answered && !is_answer)) {
        return !no_memory;
    }
    e->place = *at; /* a later one is a copy */
    if (is_answer) {
        j->n_unanswered -= !e->answered;
        e->answered = true;
        e->http_status = r->http_status;
    }
    return true;
}

static bool on_record(void *ctx, const journal_place *at, const journal_record *r)
{
    loader *l = ctx;
    journal *j = l->j;
    if (!r) {
        j->n_bad++;
        return true;
    }
    if (r->serial >= j->next_serial && r->serial < UINT64_MAX) {
        j->next_serial = r->serial + 1;
    }
    if (r->kind == JOURNAL_ASKED || r->kind == JOURNAL_ANSWERED) {
        return on_text(j, at, r);
    }
    journal_entry *e = index_find(j, r->owner, r->owner_len, r->name, r->name_len);
    if (e && r->kind == JOURNAL_DROPPED && e->serial <= r->serial) {
        index_remove(j, e);
    } else if (e && r->kind == JOURNAL_BEGUN && e->serial == r->serial && !e->answered) {
        e->n_begun++;
    }
    return true;
}

static void on_segment(void *ctx, const journal_segment_info *s)
{
    loader *l = ctx;
    journal *j = l->j;
    l->n_cut += s->n_lost > 0;
    l->n_lost += s->n_lost;
    l->last = *s;
    if (s->number >= j->next_segment && s->number < UINT64_MAX) {
        j->next_segment = s->number + 1;
    }
    journal_segment *added = segment_add(j, s->number, s->n_bytes + s->n_lost);
    if (added) {
        added->kept = true;
    } /* without memory: journal_load looks for it */
}

/* The last segment goes on, unless it is full. */
static status begin(journal *j, const journal_segment_info *last, err *e)
{
    journal_segment *s = last->number ? segment_find(j, last->number) : NULL;
    j->has_active = s && last->n_bytes >= JOURNAL_SEGMENT_HEAD && last->n_bytes < j->segment_bytes;
    if (j->has_active) { /* its end was cut */
        j->bytes -= s->bytes - last->n_bytes;
        s->bytes = last->n_bytes;
    }
    return journal_disk_start(j->disk, j->has_active ? last->number : 0, last->n_bytes, e);
}

status journal_load(journal *j, err *e)
{
    loader l = {.j = j};
    status st = journal_disk_scan(j->disk, on_record, on_segment, &l, e);
    if (st == ST_OK && index_sort(j) != ST_OK) {
        st = err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    j->live = 0; /* until here it means nothing */
    for (size_t i = 0; i < j->n_segments; i++) {
        j->segments[i].live = 0;
    }
    for (journal_entry *entry = j->first; st == ST_OK && entry; entry = entry->next) {
        if (!segment_find(j, entry->place.segment)) {
            st = err_set(e, ST_NOMEM, NULL, "out of memory");
        }
        segment_count(j, &entry->place, true);
    }
    if (st != ST_OK) {
        return st;
    }
    if (j->n_bad > 0 || l.n_cut > 0) {
        log_emit(LOG_WARN, "journal",
                 "event=damaged bad_records=%" PRIu64 " cut_segments=%" PRIu64 " cut_bytes=%" PRIu64,
                 j->n_bad, l.n_cut, l.n_lost);
    }
    j->n_bad += l.n_cut;
    for (journal_entry *entry = j->first, *next; entry;
         entry = next) { /* clocks may have been put back between them */
        next = entry->next;
        if (index_is_old(j, entry)) {
            index_remove(j, entry);
        }
    }
    while (j->n_entries > JOURNAL_MAX_ENTRIES && index_forget_one(j)) {
    }
    log_emit(LOG_INFO, "journal", "event=open entries=%zu unanswered=%zu bytes=%" PRIu64, j->n_entries,
             j->n_unanswered, j->bytes);
    return begin(j, &l.last, e);
}
