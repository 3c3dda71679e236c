#include "serve/journal.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "serve/journal_int.h"

#define SEGMENTS  16u /* of max_bytes */
#define NS_PER_MS ((uint64_t)1000000)

/* An op of the journal: what is to follow it. */
typedef struct step {
    journal_op op;
    journal *j;
    journal_entry *entry; /* NULL: about none */
    journal_written_fn written;
    journal_text_fn got;
    void *ctx;
    int32_t http_status;
    size_t n_waiting;
} step;

static void clean(journal *j);

static step *step_new(journal *j, journal_op_kind kind, journal_entry *entry)
{
    step *s = mem_calloc(1, sizeof *s);
    if (s) {
        s->op.kind = kind;
        s->j = j;
        s->entry = entry;
    }
    return s;
}

static void submit(step *s)
{
    if (s->entry) {
        s->entry->n_busy++;
    }
    s->j->waiting_bytes += s->n_waiting;
    journal_disk_submit(s->j->disk, &s->op);
}

/*
 * Whether it can be written to.
 */
static uint64_t retry_at(const journal *j)
{
    return clock_mono_ns(j->clock) + JOURNAL_RETRY_MS * NS_PER_MS;
}

/* An op that adds to a segment has ended. */
static void note_outcome(journal *j, uint64_t segment, const journal_op *op)
{
    journal_segment *s = segment_find(j, segment);
    if (op->st == ST_OK) {
        if (s) {
            s->kept = s->kept || op->sync;
        }
        if (j->is_off && op->sync) {
            j->is_off = false;
            log_emit(LOG_INFO, "journal", "event=on");
        }
        return;
    }
    if (!j->is_off) {
        log_emit(LOG_WARN, "journal", "event=off error=\"%s\"", op->why.msg);
    }
    j->is_off = true;
    j->retry_ns = retry_at(j);
    if (j->has_active && j->segments[j->n_segments - 1].number == segment) {
        j->has_active = false;
    }
}

static bool may_write(journal *j, bool now, err *e)
{
    if (!j->is_off) {
        return true;
    }
    if (now && clock_mono_ns(j->clock) >= j->retry_ns) {
        j->retry_ns = retry_at(j); /* this one finds out for all */
        return true;
    }
    err_set(e, ST_IO, NULL, "the journal cannot be written at the moment");
    return false;
}

/*
 * Places.
 */
static status place_for(journal *j, size_t n, journal_place *out, err *e)
{
    journal_segment *s = j->has_active ? &j->segments[j->n_segments - 1] : NULL;
    if (!s || s->bytes >= j->segment_bytes) {
        s = segment_add(j, j->next_segment, JOURNAL_SEGMENT_HEAD);
        if (!s) {
            return err_set(e, ST_NOMEM, NULL, "out of memory");
        }
        j->next_segment++;
        j->has_active = true;
    }
    *out = (journal_place){s->number, s->bytes, n};
    s->bytes += n;
    j->bytes += n;
    return ST_OK;
}

/* For n bytes that will count. */
static status make_room(journal *j, size_t n, bool is_new, err *e)
{
    index_expire(j);
    if (n == 0 || n > j->max_bytes / 4) {
        return err_set(e, ST_CAPACITY, NULL, "that is more than the journal keeps of one request");
    }
    if (j->waiting_bytes > 0 && j->waiting_bytes + n > JOURNAL_MAX_WAITING) {
        return err_set(e, ST_FULL, NULL, "%zu bytes wait to be written to the journal", j->waiting_bytes);
    }
    while (j->live + n > j->max_bytes / 2 || (is_new && j->n_entries >= JOURNAL_MAX_ENTRIES)) {
        if (!index_forget_one(j)) {
            return err_set(e, ST_FULL, NULL, "the journal is full of %zu requests without an answer",
                           j->n_unanswered);
        }
    }
    return ST_OK;
}

static step *write_of(journal *j, journal_entry *entry, journal_kind kind, int32_t http_status,
                      const char *text, size_t len, err *e)
{
    const journal_record r = {.kind = kind,
                              .serial = entry->serial,
                              .created_ms = entry->created_ms,
                              .http_status = http_status,
                              .owner = entry->owner,
                              .owner_len = entry->owner_len,
                              .name = entry->name,
                              .name_len = entry->name_len,
                              .text = text,
                              .text_len = len};
    journal_record with_digest = r;
    memcpy(with_digest.digest, entry->digest, sizeof entry->digest);
    step *s = step_new(j, JOURNAL_WRITE, entry);
    if (!s || journal_record_put(&s->op.bytes, &with_digest) != ST_OK ||
        place_for(j, s->op.bytes.len, &s->op.at, e) != ST_OK) {
        err_set(e, ST_NOMEM, NULL, "out of memory");
        if (s) {
            buf_release(&s->op.bytes);
        }
        mem_free(s);
        return NULL;
    }
    s->n_waiting = s->op.bytes.len;
    s->http_status = http_status;
    return s;
}

/*
 * What was written.
 */
static void on_noted(journal_op *op)
{
    step *s = (step *)op;
    s->j->waiting_bytes -= s->n_waiting;
    note_outcome(s->j, op->at.segment, op);
    index_let_go(s->j, s->entry);
    clean(s->j);
}

static void on_asked(journal_op *op)
{
    step *s = (step *)op;
    journal *j = s->j;
    journal_entry *entry = s->entry;
    j->waiting_bytes -= s->n_waiting;
    j->n_asking--;
    note_outcome(j, op->at.segment, op);
    if (op->st != ST_OK && !entry->dropped) {
        index_remove(j, entry);
    }
    index_let_go(j, entry);
    clean(j);
    s->written(s->ctx, op->st);
}

static void on_answered(journal_op *op)
{
    step *s = (step *)op;
    journal *j = s->j;
    journal_entry *entry = s->entry;
    bool counts = op->st == ST_OK && !entry->dropped;
    j->waiting_bytes -= s->n_waiting;
    note_outcome(j, op->at.segment, op);
    segment_count(j, counts ? &entry->place : &op->at, false);
    if (counts) {
        entry->place = op->at;
        entry->answered = true;
        entry->http_status = s->http_status;
        j->n_unanswered--;
    }
    index_let_go(j, entry);
    clean(j);
    s->written(s->ctx, op->st);
}

status journal_ask(journal *j, const journal_question *q, void *held, journal_written_fn written, void *ctx,
                   journal_entry **out, err *e)
{
    journal_record r = {.serial = j->next_serial,
                        .created_ms = q->created_ms,
                        .owner = q->owner,
                        .owner_len = q->owner_len,
                        .name = q->name,
                        .name_len = q->name_len};
    assert(!index_find(j, q->owner, q->owner_len, q->name, q->name_len));
    status st = make_room(j, journal_record_size(q->owner_len, q->name_len, q->text_len), true, e);
    if (st != ST_OK || !may_write(j, true, e)) {
        return st != ST_OK ? st : ST_IO;
    }
    memcpy(r.digest, q->digest, sizeof r.digest);
    journal_entry *entry = index_add(j, &r);
    step *s = entry ? write_of(j, entry, JOURNAL_ASKED, 0, q->text, q->text_len, e) : NULL;
    if (!s) {
        if (entry) {
            index_remove(j, entry);
        }
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    j->next_serial++;
    j->n_asking++;
    entry->held = held;
    entry->place = s->op.at;
    segment_count(j, &entry->place, true);
    s->op.sync = true;
    s->op.done = on_asked;
    s->written = written;
    s->ctx = ctx;
    submit(s);
    *out = entry;
    return ST_OK;
}

status journal_answer(journal *j, journal_entry *entry, int32_t http_status, const char *text, size_t len,
                      journal_written_fn written, void *ctx, err *e)
{
    assert(entry->held && !entry->answered);
    status st = make_room(j, journal_record_size(entry->owner_len, entry->name_len, len), false, e);
    if (st != ST_OK || !may_write(j, true, e)) {
        return st != ST_OK ? st : ST_IO;
    }
    step *s = write_of(j, entry, JOURNAL_ANSWERED, http_status, text, len, e);
    if (!s) {
        return ST_NOMEM;
    }
    segment_count(j, &s->op.at, true);
    s->op.sync = true;
    s->op.done = on_answered;
    s->written = written;
    s->ctx = ctx;
    submit(s);
    return ST_OK;
}

/* Nobody waits for it. If it is lost the next start knows a little less: it computes once more what it need not. */
static void write_note(journal *j, journal_entry *entry, journal_kind kind)
{
    err e;
    step *s = may_write(j, false, &e) ? write_of(j, entry, kind, 0, NULL, 0, &e) : NULL;
    if (s) {
        s->op.done = on_noted;
        submit(s);
    }
}

void journal_drop(journal *j, journal_entry *entry)
{
    write_note(j, entry, JOURNAL_DROPPED);
    index_remove(j, entry);
    clean(j);
}

void journal_begun(journal *j, journal_entry *entry)
{
    entry->begun = true;
    entry->n_begun++;
    write_note(j, entry, JOURNAL_BEGUN);
}

/*
 * Reading.
 */
static void on_read(journal_op *op)
{
    step *s = (step *)op;
    journal *j = s->j;
    journal_record r = {0};
    status st = op->st;
    const uint8_t *head = (const uint8_t *)op->bytes.data;
    if (st == ST_OK && (!journal_record_get(head, op->bytes.data + JOURNAL_RECORD_HEAD,
                                            op->bytes.len - JOURNAL_RECORD_HEAD, &r) ||
                        r.serial != s->entry->serial)) {
        st = ST_BAD_FORMAT;
    }
    if (st == ST_NOT_FOUND) { /* its file is gone, or has become shorter */
        st = ST_BAD_FORMAT;
    }
    if (st == ST_BAD_FORMAT) {
        j->n_bad++;
        log_emit(LOG_WARN, "journal", "event=bad_record segment=%" PRIu64 " offset=%" PRIu64, op->at.segment,
                 op->at.offset);
    }
    index_let_go(j, s->entry);
    s->got(s->ctx, st, r.text, r.text_len);
}

status journal_read(journal *j, journal_entry *entry, journal_text_fn got, void *ctx, err *e)
{
    assert(entry->held);
    step *s = step_new(j, JOURNAL_READ, entry);
    if (!s) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    s->op.at = entry->place;
    s->op.done = on_read;
    s->got = got;
    s->ctx = ctx;
    submit(s);
    return ST_OK;
}

/*
 * Room on the disk: the oldest segment goes, what counts in it is copied to the end of the newest first.
 */
static void remove_file(journal *j, uint64_t number)
{
    step *s = step_new(j, JOURNAL_REMOVE, NULL);
    if (s) { /* without memory: the next start finds nothing in it that counts */
        s->op.at.segment = number;
        submit(s);
    }
}

static void end_move(journal *j)
{
    for (journal_entry *e = j->first; e; e = e->next) {
        bool is_there = e->moved.segment && !j->move_failed && e->place.segment == j->segments[0].number;
        if (is_there) {
            segment_count(j, &e->place, false);
            e->place = e->moved;
            segment_count(j, &e->place, true);
        }
        e->moved = (journal_place){0};
    }
    j->move_failed = false;
}

static void lose(journal *j, const journal_place *to)
{
    for (journal_entry *e = j->first; e; e = e->next) {
        if (e->moved.segment == to->segment && e->moved.offset == to->offset) {
            j->n_bad++;
            e->moved = (journal_place){0};
            if (!e->held && e->n_busy == 0) { /* else its holder will find out */
                index_remove(j, e);
            }
            return;
        }
    }
}

static void on_moved(journal_op *op)
{
    step *s = (step *)op;
    journal *j = s->j;
    if (op->st == ST_BAD_FORMAT) {
        log_emit(LOG_WARN, "journal", "event=lost segment=%" PRIu64 " error=\"%s\"", op->at.segment,
                 op->why.msg);
        lose(j, &op->to);
    } else if (op->st == ST_CAPACITY) {
        j->move_failed = true;
    } else {
        note_outcome(j, op->to.segment, op);
        j->move_failed = j->move_failed || op->st != ST_OK;
    }
    if (--j->n_moving == 0) {
        j->move_ns = j->move_failed ? retry_at(j) : 0;
        end_move(j);
        clean(j);
    }
}

static bool move_one(journal *j, journal_entry *entry)
{
    err e;
    step *s = step_new(j, JOURNAL_COPY, NULL);
    if (!s || place_for(j, entry->place.n_bytes, &entry->moved, &e) != ST_OK) {
        mem_free(s);
        return false;
    }
    s->op.at = entry->place;
    s->op.to = entry->moved;
    s->op.sync = true;
    s->op.done = on_moved;
    j->n_moving++;
    submit(s);
    return true;
}

/* An entry with a write on its way stays: a copy of its question must not come after its answer. */
static void move_first(journal *j)
{
    uint64_t number = j->segments[0].number;
    for (journal_entry *e = j->first; e; e = e->next) {
        if (e->place.segment == number && e->n_busy == 0 && !move_one(j, e)) {
            break;
        }
    }
}

static void drop_lost(journal *j)
{
    for (size_t i = 0; i + (j->has_active ? 1 : 0) < j->n_segments; i++) {
        journal_segment *s = &j->segments[i];
        if (!s->kept && s->live == 0) { /* nothing in it was ever promised */
            remove_file(j, s->number);
            j->bytes -= s->bytes;
            j->n_segments--;
            memmove(s, s + 1, (j->n_segments - i) * sizeof *s);
            i--;
        }
    }
}

static void clean(journal *j)
{
    if (j->n_moving > 0) { /* end_move speaks of the first one */
        return;
    }
    drop_lost(j);
    while (j->n_segments > (j->has_active ? 1 : 0) && j->segments[0].live == 0) {
        remove_file(j, j->segments[0].number);
        segment_drop_first(j);
    }
    if (j->bytes > j->max_bytes && j->n_segments > 1 && !j->is_off && clock_mono_ns(j->clock) >= j->move_ns) {
        move_first(j);
    }
}

/*
 * The rest.
 */
journal_entry *journal_find(journal *j, const char *owner, size_t owner_len, const char *name,
                            size_t name_len)
{
    journal_entry *e = index_find(j, owner, owner_len, name, name_len);
    if (e && index_is_old(j, e)) {
        index_remove(j, e);
        e = NULL;
    }
    return e;
}

journal_entry *journal_unanswered(journal *j, const journal_entry *after)
{
    journal_entry *e = after ? after->next : j->first;
    while (e && e->answered) {
        e = e->next;
    }
    return e;
}

void journal_tick(journal *j)
{
    index_expire(j);
    clean(j);
}

void journal_read_counts(const journal *j, journal_counts *out)
{
    *out = (journal_counts){.is_on = !j->is_off,
                            .n_entries = j->n_entries - j->n_asking,
                            .n_unanswered = j->n_unanswered - j->n_asking,
                            .bytes = j->bytes,
                            .n_bad = j->n_bad};
}

status journal_open(const journal_config *cfg, journal **out, err *e)
{
    journal *j = mem_calloc(1, sizeof *j);
    if (!j) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    j->clock = cfg->clock;
    j->max_bytes = cfg->max_bytes;
    j->segment_bytes = cfg->max_bytes / SEGMENTS;
    j->next_segment = j->next_serial = 1;
    j->buckets = mem_calloc(JOURNAL_BUCKETS, sizeof(journal_entry *));
    status st = j->buckets ? journal_disk_open(cfg->base, cfg->dir, &j->disk, e)
                           : err_set(e, ST_NOMEM, NULL, "out of memory");
    st = st == ST_OK ? journal_load(j, e) : st;
    if (st != ST_OK) {
        journal_close(j);
        return st;
    }
    clean(j);
    *out = j;
    return ST_OK;
}

void journal_close(journal *j)
{
    if (!j) {
        return;
    }
    journal_disk_close(j->disk);
    index_free(j);
    mem_free(j);
}
