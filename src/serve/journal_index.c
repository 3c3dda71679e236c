/* journal_index: which entries there are, by name and by age, and how much of each segment still counts. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "serve/journal_int.h"

/*
 * Segments.
 */
journal_segment *segment_find(journal *j, uint64_t number)
{
    size_t low = 0, high = j->n_segments;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (j->segments[mid].number < number) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < j->n_segments && j->segments[low].number == number ? &j->segments[low] : NULL;
}

journal_segment *segment_add(journal *j, uint64_t number, uint64_t bytes)
{
    if (j->n_segments == j->cap_segments) {
        size_t cap = j->cap_segments ? 2 * j->cap_segments : 32;
        journal_segment *more = mem_realloc(j->segments, cap * sizeof *more);
        if (!more) {
            return NULL;
        }
        j->segments = more;
        j->cap_segments = cap;
    }
    journal_segment *s = &j->segments[j->n_segments++];
    *s = (journal_segment){.number = number, .bytes = bytes};
    j->bytes += bytes;
    return s;
}

void segment_drop_first(journal *j)
{
    j->bytes -= j->segments[0].bytes;
    j->n_segments--;
    memmove(j->segments, j->segments + 1, j->n_segments * sizeof *j->segments);
}

void segment_count(journal *j, const journal_place *at, bool counts)
{
    journal_segment *s = at->segment ? segment_find(j, at->segment) : NULL;
    if (s && counts) {
        s->live += at->n_bytes;
        j->live += at->n_bytes;
    } else if (s) {
        s->live -= at->n_bytes;
        j->live -= at->n_bytes;
    }
}

/*
 * Entries.
 */
static uint64_t hash_of(const char *owner, size_t owner_len, const char *name, size_t name_len)
{
    return hash64_keyed(owner, owner_len) * 31 + hash64_keyed(name, name_len);
}

static journal_entry **bucket_of(const journal *j, uint64_t hash)
{
    return &j->buckets[hash % JOURNAL_BUCKETS];
}

static bool same(const char *a, size_t a_len, const char *b, size_t b_len)
{
    return a_len == b_len && memcmp(a, b, a_len) == 0;
}

journal_entry *index_find(const journal *j, const char *owner, size_t owner_len, const char *name,
                          size_t name_len)
{
    uint64_t hash = hash_of(owner, owner_len, name, name_len);
    for (journal_entry *e = *bucket_of(j, hash); e; e = e->next_hashed) {
        if (e->hash == hash && same(e->owner, e->owner_len, owner, owner_len) &&
            same(e->name, e->name_len, name, name_len)) {
            return e;
        }
    }
    return NULL;
}

journal_entry *index_add(journal *j, const journal_record *r)
{
    journal_entry *e = mem_calloc(1, sizeof *e + r->owner_len + r->name_len + 2);
    if (!e) {
        return NULL;
    }
    char *name = e->text + r->owner_len + 1;
    memcpy(e->text, r->owner, r->owner_len);
    memcpy(name, r->name, r->name_len);
    e->owner = e->text;
    e->owner_len = r->owner_len;
    e->name = name;
    e->name_len = r->name_len;
    e->serial = r->serial;
    e->created_ms = r->created_ms;
    memcpy(e->digest, r->digest, sizeof e->digest);
    e->hash = hash_of(e->owner, e->owner_len, e->name, e->name_len);
    journal_entry **bucket = bucket_of(j, e->hash);
    e->next_hashed = *bucket;
    *bucket = e;
    e->prev = j->last;
    *(j->last ? &j->last->next : &j->first) = e;
    j->last = e;
    j->n_entries++;
    j->n_unanswered++;
    return e;
}

static void unlink_entry(journal *j, journal_entry *e)
{
    journal_entry **at = bucket_of(j, e->hash);
    while (*at != e) {
        at = &(*at)->next_hashed;
    }
    *at = e->next_hashed;
    *(e->prev ? &e->prev->next : &j->first) = e->next;
    *(e->next ? &e->next->prev : &j->last) = e->prev;
    j->n_entries--;
    j->n_unanswered -= !e->answered;
}

void index_remove(journal *j, journal_entry *entry)
{
    unlink_entry(j, entry);
    segment_count(j, &entry->place, false);
    entry->dropped = true;
    if (entry->n_busy == 0) {
        mem_free(entry);
        return;
    }
    entry->prev = NULL;
    entry->next = j->limbo;
    if (j->limbo) {
        j->limbo->prev = entry;
    }
    j->limbo = entry;
}

void index_let_go(journal *j, journal_entry *entry)
{
    entry->n_busy--;
    if (entry->dropped && entry->n_busy == 0) {
        *(entry->prev ? &entry->prev->next : &j->limbo) = entry->next;
        if (entry->next) {
            entry->next->prev = entry->prev;
        }
        mem_free(entry);
    }
}

static bool is_free(const journal_entry *e)
{
    return !e->held && e->n_busy == 0;
}

bool index_is_old(const journal *j, const journal_entry *entry)
{
    return is_free(entry) && clock_wall_ms(j->clock) - entry->created_ms >= JOURNAL_TTL_MS;
}

void index_expire(journal *j)
{
    while (j->first && index_is_old(j, j->first)) {
        index_remove(j, j->first);
    }
}

bool index_forget_one(journal *j)
{
    for (journal_entry *e = j->first; e; e = e->next) {
        if (e->answered && is_free(e)) {
            index_remove(j, e);
            return true;
        }
    }
    return false;
}

static int by_serial(const void *a, const void *b)
{
    uint64_t x = (*(journal_entry *const *)a)->serial, y = (*(journal_entry *const *)b)->serial;
    return (x > y) - (x < y);
}

status index_sort(journal *j)
{
    size_t n = 0;
    journal_entry **all = mem_alloc_array(j->n_entries + 1, sizeof(journal_entry *));
    if (!all) {
        return ST_NOMEM;
    }
    for (journal_entry *e = j->first; e; e = e->next) {
        all[n++] = e;
    }
    qsort(all, n, sizeof(journal_entry *), by_serial);
    j->first = j->last = NULL;
    for (size_t i = 0; i < n; i++) {
        all[i]->prev = j->last;
        all[i]->next = NULL;
        *(j->last ? &j->last->next : &j->first) = all[i];
        j->last = all[i];
    }
    mem_free(all);
    return ST_OK;
}

static void free_entries(journal_entry *e)
{
    while (e) {
        journal_entry *next = e->next;
        mem_free(e);
        e = next;
    }
}

void index_free(journal *j)
{
    free_entries(j->first);
    free_entries(j->limbo);
    mem_free(j->buckets);
    mem_free(j->segments);
}
