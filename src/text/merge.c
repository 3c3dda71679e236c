#include "text/merge.h"

#include <string.h>

#include "base/mem.h"

#define MIN_SYMBOLS   64
#define OVERLAP_PART  8 /* this part of a window is left for the next one */
#define WINDOW_GROWTH 8

typedef struct window { /* what is being worked on */
    merger *m;
    const merge_rules *rules;
    uint32_t end; /* byte behind the last symbol */
    bool open;    /* more of the run follows */
} window;

void merger_release(merger *m)
{
    if (m) {
        rankq_release(&m->queue);
        mem_free(m->symbols);
        memset(m, 0, sizeof *m);
    }
}

static status add(merger *m, uint32_t start, int32_t id)
{
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : MIN_SYMBOLS, bytes;
        merge_symbol *symbols = NULL;
        if (cap <= INT32_MAX && size_mul(cap, sizeof *symbols, &bytes)) {
            symbols = mem_realloc(m->symbols, bytes);
        }
        if (!symbols) {
            return ST_NOMEM;
        }
        m->symbols = symbols;
        m->cap = cap;
    }
    int32_t i = (int32_t)m->n++;
    if (i > 0) {
        m->symbols[i - 1].next = i;
    }
    m->symbols[i] = (merge_symbol){.start = start,
                                   .id = id,
                                   .prev = i - 1, /* MERGE_END for the first */
                                   .next = MERGE_END,
                                   .rank = MERGE_RANK_NONE};
    return ST_OK;
}

/* Asks for the pair (left, its next) and queues it. */
static status offer(const window *w, int32_t left)
{
    merge_symbol *s = w->m->symbols, *l = &s[left];
    l->rank = MERGE_RANK_NONE;
    if (l->next == MERGE_END) {
        return ST_OK;
    }
    const merge_symbol *right = &s[l->next];
    uint32_t end = right->next == MERGE_END ? w->end : s[right->next].start;
    uint32_t rank;
    int32_t id;
    if (!w->rules->pair(w->rules->ctx, l, right, end, &rank, &id)) {
        return ST_OK;
    }
    l->rank = rank;
    l->joined = id;
    return rankq_push(&w->m->queue, rank, (uint32_t)left);
}

static status join(const window *w, int32_t left)
{
    merge_symbol *s = w->m->symbols, *l = &s[left], *gone = &s[l->next];
    l->id = l->joined;
    l->next = gone->next;
    gone->rank = MERGE_RANK_NONE; /* whatever the queue still says of it is out of date */
    if (l->next != MERGE_END) {
        s[l->next].prev = left;
    }
    status st = l->prev == MERGE_END ? ST_OK : offer(w, l->prev);
    return st == ST_OK ? offer(w, left) : st;
}

/* Fills the window with symbols from byte `at` on. */
static status gather(window *w, size_t at, size_t n, size_t max_symbols)
{
    const merge_rules *rules = w->rules;
    w->m->n = 0;
    w->open = false;
    while (at < n) {
        int32_t id;
        bool apart;
        size_t len = rules->symbol(rules->ctx, at, &id, &apart);
        if (w->m->n > 0 && apart) {
            break;
        }
        if (w->m->n >= max_symbols) {
            w->open = true;
            break;
        }
        status st = add(w->m, (uint32_t)at, id);
        if (st != ST_OK) {
            return st;
        }
        at += len;
    }
    w->end = (uint32_t)at;
    return ST_OK;
}

/* Gathers and joins. */
static status window_run(window *w, size_t at, size_t n, size_t max_symbols)
{
    status st = gather(w, at, n, max_symbols);
    uint32_t rank, item;
    rankq_reset(&w->m->queue);
    for (size_t i = 0; st == ST_OK && i + 1 < w->m->n; i++) {
        st = offer(w, (int32_t)i);
    }
    while (st == ST_OK && rankq_pop(&w->m->queue, &rank, &item)) {
        /* Valid if the pair at this place has this rank now: an entry of an older pair of the same rank is as
         * good. */
        if (w->m->symbols[item].rank == rank) {
            st = join(w, (int32_t)item);
        }
    }
    return st;
}

static uint32_t symbol_end(const window *w, const merge_symbol *s)
{
    return s->next == MERGE_END ? w->end : w->m->symbols[s->next].start;
}

/* Whether the tokens [left, seam) and [seam, end) stay as they are side by side. */
static status seam_holds(const merge_rules *rules, size_t left, size_t seam, size_t end, bool *holds)
{
    merger m = {0};
    window w = {.m = &m, .rules = rules};
    status st = window_run(&w, left, end, SIZE_MAX);
    if (st == ST_OK) {
        const merge_symbol *first = &m.symbols[0];
        *holds = first->next != MERGE_END && m.symbols[first->next].start == seam &&
                 m.symbols[first->next].next == MERGE_END;
    }
    merger_release(&m);
    return st;
}

/* The token with which the next window begins; MERGE_END if there is no good one. A symbol's index tells how
 * many symbols the text in front of it had. */
static int32_t window_cut(const window *w)
{
    const merge_symbol *s = w->m->symbols;
    int32_t cut = MERGE_END, limit = (int32_t)(w->m->n - w->m->n / OVERLAP_PART);
    for (int32_t i = s[0].next; i != MERGE_END && i <= limit; i = s[i].next) {
        cut = i;
    }
    return cut;
}

static status emit_before(const window *w, int32_t cut, ivec *out)
{
    const merge_symbol *s = w->m->symbols;
    status st = ST_OK;
    for (int32_t i = 0; st == ST_OK && i != cut; i = s[i].next) {
        st = w->rules->emit(w->rules->ctx, &s[i], symbol_end(w, &s[i]), out);
    }
    return st;
}

/* The run that begins at *at, window by window; *at is then behind it. *done = false: larger windows are
 * needed. */
static status run_in_windows(merger *m, const merge_rules *rules, size_t max_symbols, size_t *at, size_t n,
                             ivec *out, bool *done)
{
    window w = {.m = m, .rules = rules, .open = true};
    size_t from = *at, before = from,
           expected = from; /* before: the token in front of the seam, from = none */
    *done = false;
    while (w.open) {
        bool holds = true;
        status st = window_run(&w, from, n, max_symbols);
        if (st != ST_OK) {
            return st;
        }
        uint32_t first_end = symbol_end(&w, &m->symbols[0]);
        if (before != from && first_end != expected) {
            st = seam_holds(rules, before, from, first_end, &holds);
        }
        int32_t cut = w.open ? window_cut(&w) : MERGE_END;
        if (st != ST_OK || !holds || (w.open && cut == MERGE_END)) {
            return st;
        }
        st = emit_before(&w, cut, out);
        if (st != ST_OK) {
            return st;
        }
        if (w.open) {
            from = m->symbols[cut].start;
            before = m->symbols[m->symbols[cut].prev].start;
            expected = symbol_end(&w, &m->symbols[cut]);
        }
    }
    *at = w.end;
    *done = true;
    return ST_OK;
}

status merge_text(merger *m, const merge_rules *rules, size_t n, ivec *out)
{
    for (size_t at = 0; at < n;) {
        size_t mark = out->len;
        bool done = false;
        for (size_t max_symbols = MERGE_WINDOW; !done;
             max_symbols *= WINDOW_GROWTH) { /* in the end one window */
            ivec_truncate(out, mark);
            status st = run_in_windows(m, rules, max_symbols, &at, n, out, &done);
            if (st != ST_OK) {
                return st;
            }
        }
    }
    return ST_OK;
}
