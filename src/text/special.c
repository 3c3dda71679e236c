#include "text/special.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/aho.h"
#include "text/rankq.h"

/*
 * The automaton holds the tokens written backwards and reads the text from its end: the hit at a position is
 * then the longest token that begins there, and the shorter ones are one link away each.
 */
struct special_set {
    special_token *tokens; /* owned, in order of right of way; text is not kept */
    aho *backwards;        /* owned, NULL if there are no tokens */
    size_t n;
};

typedef struct candidate {
    uint32_t start;
    int32_t hit;  /* token tried next at this place */
    uint32_t end; /* 0 until it is taken */
} candidate;

typedef struct search {
    const special_set *set;
    const char *text;
    size_t len;
    candidate *cand; /* owned, descending start */
    size_t n_cand, cap_cand;
    uint32_t *order;             /* owned, [n_cand]: places in order of right of way */
    unsigned char *taken;        /* owned, [len] */
    rankq later;                 /* (token, place) of candidates that wait with a shorter token */
    const special_range *ranges; /* [n_ranges] */
    size_t n_ranges;
} search;

static int token_cmp(const void *pa, const void *pb)
{
    const special_token *a = pa, *b = pb;
    if (a->len != b->len) {
        return a->len < b->len ? 1 : -1;
    }
    return (a->id > b->id) - (a->id < b->id);
}

static void reverse_copy(char *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = s[n - 1 - i];
    }
}

/* Fills s->backwards from the sorted tokens. */
static status build(special_set *s)
{
    size_t total = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!size_add(total, s->tokens[i].len, &total)) {
            return ST_NOMEM;
        }
    }
    char *bytes = mem_alloc(total);
    aho_string *strings = mem_alloc_array(s->n, sizeof *strings);
    status st = ST_NOMEM;
    if (bytes && strings) {
        char *at = bytes;
        for (size_t i = 0; i < s->n; i++) {
            reverse_copy(at, s->tokens[i].text, s->tokens[i].len);
            strings[i] = (aho_string){at, s->tokens[i].len};
            at += s->tokens[i].len;
            s->tokens[i].text = NULL;
        }
        st = aho_new(strings, s->n, &s->backwards);
    }
    mem_free(strings);
    mem_free(bytes);
    return st;
}

status special_set_new(const special_token *tokens, size_t n, special_set **out)
{
    special_set *s = mem_calloc(1, sizeof *s);
    if (!s) {
        return ST_NOMEM;
    }
    status st = ST_OK;
    if (n > 0) {
        s->tokens = mem_alloc_array(n, sizeof *s->tokens);
        s->n = n;
        st = ST_NOMEM;
        if (s->tokens) {
            memcpy(s->tokens, tokens, n * sizeof *tokens);
            qsort(s->tokens, n, sizeof *s->tokens, token_cmp);
            st = build(s);
        }
    }
    if (st != ST_OK) {
        special_set_free(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void special_set_free(special_set *s)
{
    if (s) {
        aho_free(s->backwards);
        mem_free(s->tokens);
        mem_free(s);
    }
}

void special_hits_release(special_hits *h)
{
    if (h) {
        mem_free(h->data);
        memset(h, 0, sizeof *h);
    }
}

static status candidate_add(search *q, size_t start, int32_t hit)
{
    if (q->n_cand == q->cap_cand) {
        size_t cap = q->cap_cand ? q->cap_cand * 2 : 32, bytes;
        candidate *cand = size_mul(cap, sizeof *cand, &bytes) ? mem_realloc(q->cand, bytes) : NULL;
        if (!cand) {
            return ST_NOMEM;
        }
        q->cand = cand;
        q->cap_cand = cap;
    }
    q->cand[q->n_cand++] = (candidate){(uint32_t)start, hit, 0};
    return ST_OK;
}

/* Whether the token may stand at start. */
static bool may_stand(const search *q, size_t start, int32_t hit)
{
    const special_token *t = &q->set->tokens[aho_hit_string(q->set->backwards, hit)];
    if (t->everywhere) {
        return true;
    }
    size_t lo = 0, hi = q->n_ranges; /* the first range that ends behind start */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (q->ranges[mid].to > start) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo == q->n_ranges || q->ranges[lo].from >= start + t->len;
}

/* The longest token at start, from this hit on, that may stand there. */
static int32_t longest(const search *q, size_t start, int32_t hit)
{
    while (hit != AHO_NONE && !may_stand(q, start, hit)) {
        hit = aho_hit_shorter(q->set->backwards, hit);
    }
    return hit;
}

static status collect(search *q)
{
    const aho *a = q->set->backwards;
    int32_t state = AHO_ROOT;
    for (size_t i = q->len; i-- > 0;) {
        state = aho_step(a, state, (unsigned char)q->text[i]);
        int32_t hit = longest(q, i, aho_hit(a, state));
        if (hit != AHO_NONE) {
            status st = candidate_add(q, i, hit);
            if (st != ST_OK) {
                return st;
            }
        }
    }
    return ST_OK;
}

/* Candidates are named by their place in the text, so that of one token the leftmost comes first. */
static candidate *at_place(const search *q, uint32_t place)
{
    return &q->cand[q->n_cand - 1 - place];
}

static uint32_t token_of(const search *q, const candidate *c)
{
    return (uint32_t)aho_hit_string(q->set->backwards, c->hit);
}

/* Sorts the places by token, then place: by counting. */
static status sort(search *q)
{
    size_t n = q->set->n;
    uint32_t *first = mem_calloc(n + 1, sizeof *first);
    q->order = mem_alloc_array(q->n_cand, sizeof *q->order);
    if (!first || !q->order) {
        mem_free(first);
        return ST_NOMEM;
    }
    for (size_t i = 0; i < q->n_cand; i++) {
        first[token_of(q, &q->cand[i]) + 1]++;
    }
    for (size_t i = 0; i < n; i++) {
        first[i + 1] += first[i];
    }
    for (uint32_t place = 0; place < q->n_cand; place++) {
        q->order[first[token_of(q, at_place(q, place))]++] = place;
    }
    mem_free(first);
    return ST_OK;
}

/* isspace of the C locale. */
static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void take(search *q, candidate *c, const special_token *t)
{
    size_t end = c->start + t->len;
    memset(q->taken + c->start, 1, t->len);
    while (t->strips_right && end < q->len && !q->taken[end] && is_space(q->text[end])) {
        q->taken[end++] = 1;
    }
    c->end = (uint32_t)end;
}

/* The candidate's token gets its bytes if they are free; if only the end is taken, a shorter token may fit.
 */
static status decide(search *q, uint32_t token, uint32_t place)
{
    candidate *c = at_place(q, place);
    const special_token *t = &q->set->tokens[token];
    if (q->taken[c->start]) {
        return ST_OK;
    }
    if (!memchr(q->taken + c->start, 1, t->len)) {
        take(q, c, t);
        return ST_OK;
    }
    int32_t shorter = longest(q, c->start, aho_hit_shorter(q->set->backwards, c->hit));
    if (shorter == AHO_NONE) {
        return ST_OK;
    }
    c->hit = shorter;
    return rankq_push(&q->later, token_of(q, c), place);
}

/* Decides every candidate, in order of right of way. */
static status resolve(search *q)
{
    status st = sort(q);
    for (size_t i = 0; st == ST_OK && i < q->n_cand; i++) {
        uint32_t token = token_of(q, at_place(q, q->order[i]));
        uint32_t waiting = token, place = q->order[i];
        while (st == ST_OK && rankq_pop_below(&q->later, &waiting, &place)) {
            st = decide(q, waiting, place);
            waiting = token;
            place = q->order[i];
        }
        if (st == ST_OK) {
            st = decide(q, token, place);
        }
    }
    uint32_t token, place;
    while (st == ST_OK && rankq_pop(&q->later, &token, &place)) {
        st = decide(q, token, place);
    }
    return st;
}

static status gather(const search *q, special_hits *out)
{
    size_t n = 0;
    for (size_t i = 0; i < q->n_cand; i++) {
        n += q->cand[i].end != 0;
    }
    special_hit *hits = mem_alloc_array(n, sizeof *hits);
    if (!hits) {
        return ST_NOMEM;
    }
    out->data = hits;
    out->n = n;
    for (size_t i = q->n_cand; i-- > 0;) {
        const candidate *c = &q->cand[i];
        if (c->end != 0) {
            *hits++ = (special_hit){c->start, c->end, q->set->tokens[token_of(q, c)].id};
        }
    }
    return ST_OK;
}

status special_find(const special_set *s, const char *text, size_t len, special_hits *out)
{
    return special_find_outside(s, text, len, NULL, 0, out);
}

status special_find_outside(const special_set *s, const char *text, size_t len, const special_range *ranges,
                            size_t n_ranges, special_hits *out)
{
    if (!s->backwards) {
        return ST_OK;
    }
    search q = {.set = s, .text = text, .len = len, .ranges = ranges, .n_ranges = n_ranges};
    status st = collect(&q);
    if (st == ST_OK && q.n_cand > 0) {
        q.taken = mem_calloc(len, 1);
        st = q.taken ? resolve(&q) : ST_NOMEM;
        if (st == ST_OK) {
            st = gather(&q, out);
        }
    }
    rankq_release(&q.later);
    mem_free(q.taken);
    mem_free(q.order);
    mem_free(q.cand);
    return st;
}
