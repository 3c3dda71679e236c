#include "worker/sessions.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/strmap.h"

#define SHOWN_NAME_BYTES 64 /* of a session, in the log */

typedef struct slot {
    char *name; /* owned; NULL = free */
    size_t name_len;
    session *session; /* owned */
} slot;

struct sessions {
    engine *en;      /* borrowed */
    slot *slots;     /* owned [n_slots]: first those that keep a lane, then those that do not */
    strmap *by_name; /* owned: name -> slot; the keys are the slots' names */
    size_t n_named;
    size_t n_slots;
};

status sessions_new(engine *en, size_t n_named, sessions **out)
{
    sessions *t = mem_calloc(1, sizeof *t);
    if (!t) {
        return ST_NOMEM;
    }
    t->en = en;
    t->n_named = n_named;
    t->n_slots = n_named + SESSIONS_WITHOUT_LANE;
    t->slots = mem_calloc(t->n_slots, sizeof *t->slots);
    status st = t->slots ? strmap_new(t->n_slots, &t->by_name) : ST_NOMEM;
    if (st != ST_OK) {
        sessions_free(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

static void slot_release(slot *s)
{
    session_close(s->session);
    mem_free(s->name);
    *s = (slot){0};
}

void sessions_free(sessions *t)
{
    if (!t) {
        return;
    }
    for (size_t i = 0; t->slots && i < t->n_slots; i++) {
        slot_release(&t->slots[i]);
    }
    strmap_free(t->by_name);
    mem_free(t->slots);
    mem_free(t);
}

session *sessions_find(const sessions *t, wire_string name)
{
    int32_t i;
    return strmap_get(t->by_name, name.data, name.len, &i) ? t->slots[i].session : NULL;
}

static slot *free_slot(const sessions *t, sessions_kind kind)
{
    size_t end = kind == SESSION_KEEPS_LANE ? t->n_named : t->n_slots;
    for (size_t i = kind == SESSION_KEEPS_LANE ? 0 : t->n_named; i < end; i++) {
        if (!t->slots[i].name) {
            return &t->slots[i];
        }
    }
    return NULL;
}

/* Fills a free slot; on failure it is free again. */
static status fill(sessions *t, slot *s, wire_string name, sessions_kind kind)
{
    s->name = mem_strndup(name.data, name.len);
    s->name_len = name.len;
    status st = s->name ? session_open(t->en, &s->session) : ST_NOMEM;
    if (st == ST_OK) {
        st = strmap_put(t->by_name, s->name, name.len, (int32_t)(s - t->slots), NULL);
    }
    if (st != ST_OK) {
        slot_release(s);
    } else if (kind == SESSION_WITHOUT_LANE) {
        session_gives_lane(s->session);
    }
    return st;
}

status sessions_open(sessions *t, wire_string name, sessions_kind kind, session **out, bool *opened, err *e)
{
    session *found = sessions_find(t, name);
    if (opened) {
        *opened = !found;
    }
    if (found) {
        *out = found;
        return ST_OK;
    }
    if (kind == SESSION_KEEPS_LANE && t->n_named == 0) {
        return err_set(e, ST_UNSUPPORTED_SESSION, NULL,
                       "this worker has no named sessions (one slot in all)");
    }
    slot *s = free_slot(t, kind);
    if (!s) {
        return err_set(e, ST_CAPACITY, NULL, "all %zu named sessions are in use",
                       kind == SESSION_KEEPS_LANE ? t->n_named : (size_t)SESSIONS_WITHOUT_LANE);
    }
    status st = fill(t, s, name, kind);
    if (st != ST_OK) {
        return err_set(e, ST_CAPACITY, NULL, "the session cannot be made: %s", status_text(st));
    }
    *out = s->session;
    return ST_OK;
}

void sessions_close(sessions *t, wire_string name)
{
    int32_t i;
    if (strmap_get(t->by_name, name.data, name.len, &i)) {
        strmap_remove(t->by_name, name.data, name.len);
        slot_release(&t->slots[i]);
    }
}

size_t sessions_count(const sessions *t)
{
    return strmap_count(t->by_name);
}

wire_string sessions_name_of(const sessions *t, uint64_t owner)
{
    for (size_t i = 0; i < t->n_slots; i++) {
        const slot *s = &t->slots[i];
        if (s->session && session_owner(s->session) == owner) {
            return (wire_string){s->name, s->name_len};
        }
    }
    return (wire_string){NULL, 0};
}

void sessions_note_lane(const sessions *t, const lane_event *ev)
{
    wire_string name = t ? sessions_name_of(t, ev->owner) : WIRE_NO_ID;
    int shown = name.len < SHOWN_NAME_BYTES ? (int)name.len : SHOWN_NAME_BYTES;
    const char *text = name.data ? name.data : "";
    if (ev->kind == LANE_RECLAIMED) {
        log_emit(LOG_WARN, "worker", "event=reclaimed lane=%u session=\"%.*s\" reason=\"%s\"", ev->index,
                 shown, text, ev->reason);
    } else {
        log_emit(LOG_DEBUG, "worker", "event=reset lane=%u session=\"%.*s\"", ev->index, shown, text);
    }
}
