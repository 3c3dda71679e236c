#include "text/jinja_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "text/jinja_ops.h"
#include "text/jinja_run.h"

#define BLOCK_OVERHEAD 16 /* what an allocation costs beside its bytes */

/* -- failing, limits, memory ------------------------------------------------------------------------------- */

void jrt_fail(jrt *rt, const char *fmt, ...)
{
    uint32_t line, column;
    jinja_place(rt->t->src, rt->t->len, rt->at, &line, &column);
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    rt->st = buf_printf(&rt->error, "line %u, column %u: %s", line, column, text) == ST_OK ? ST_TEMPLATE
                                                                                           : ST_NOMEM;
    longjmp(rt->fail, 1);
}

void jrt_fail_nomem(jrt *rt)
{
    rt->st = ST_NOMEM;
    longjmp(rt->fail, 1);
}

void jrt_raise(jrt *rt, const jstr *text)
{
    rt->raised = true;
    rt->st = buf_append(&rt->error, text->s, text->len) == ST_OK ? ST_TEMPLATE : ST_NOMEM;
    longjmp(rt->fail, 1);
}

void jrt_charge(jrt *rt, uint64_t steps)
{
    rt->steps += steps;
    if (rt->steps > rt->max_steps) {
        jrt_fail(rt, "the template takes more than %llu steps", (unsigned long long)rt->max_steps);
    }
}

void *jrt_alloc(jrt *rt, size_t n_bytes)
{
    if (n_bytes > rt->max_bytes || rt->bytes > rt->max_bytes - n_bytes) {
        jrt_fail(rt, "the template needs more than %zu bytes of memory", rt->max_bytes);
    }
    void *p = mem_calloc(1, n_bytes);
    if (!p) {
        jrt_fail_nomem(rt);
    }
    rt->bytes += n_bytes + BLOCK_OVERHEAD;
    return p;
}

void jrt_free(jrt *rt, void *p, size_t n_bytes)
{
    if (p) {
        mem_free(p);
        rt->bytes -= n_bytes + BLOCK_OVERHEAD;
    }
}

/* p[n] has room for one more afterwards. */
static void *grown(jrt *rt, void *p, size_t n, size_t *cap, size_t item_bytes)
{
    if (n < *cap) {
        return p;
    }
    size_t more = *cap ? 2 * *cap : 4;
    void *q = jrt_alloc(rt, more * item_bytes);
    if (n) {
        memcpy(q, p, n * item_bytes);
    }
    jrt_free(rt, p, *cap * item_bytes);
    *cap = more;
    return q;
}

/* -- objects ----------------------------------------------------------------------------------------------- */

static size_t object_bytes(const jobj *o)
{
    static const size_t sizes[] = {
        [O_BYTES] = sizeof(jbytes), [O_STR] = sizeof(jstr),   [O_UNDEF] = sizeof(jundef),
        [O_SEQ] = sizeof(jseq),     [O_DICT] = sizeof(jdict), [O_FUNC] = sizeof(jfunc),
        [O_SCOPE] = sizeof(jscope), [O_LOOP] = sizeof(jloop), [O_CYCLER] = sizeof(jcycler),
    };
    return sizes[o->kind];
}

jobj *jobj_new(jrt *rt, jobj_kind kind, size_t n_bytes)
{
    rt->temps = grown(rt, rt->temps, rt->n_temps, &rt->cap_temps, sizeof *rt->temps);
    jobj *o = jrt_alloc(rt, n_bytes);
    o->kind = (uint8_t)kind;
    o->refs = 1;
    o->next = rt->all;
    if (rt->all) {
        rt->all->prev = o;
    }
    rt->all = o;
    rt->temps[rt->n_temps++] = o;
    return o;
}

/* Takes o out of the list of the living and puts it onto *dead. */
static void bury(jrt *rt, jobj *o, jobj **dead)
{
    if (o->prev) {
        o->prev->next = o->next;
    } else {
        rt->all = o->next;
    }
    if (o->next) {
        o->next->prev = o->prev;
    }
    o->next = *dead;
    *dead = o;
}

static void lose(jrt *rt, jobj *o, jobj **dead)
{
    if (o && --o->refs == 0) {
        bury(rt, o, dead);
    }
}

static bool is_object(jv v)
{
    return v.type >= J_STR || v.type == J_UNDEF;
}

static void lose_value(jrt *rt, jv v, jobj **dead)
{
    if (is_object(v)) {
        lose(rt, v.o, dead);
    }
}

/* What o owns of memory beside itself. */
static void free_payload(jrt *rt, jobj *o)
{
    switch ((jobj_kind)o->kind) {
    case O_BYTES:
        jrt_free(rt, ((jbytes *)o)->data, 2 * ((jbytes *)o)->cap);
        break;
    case O_SEQ:
        jrt_free(rt, ((jseq *)o)->at, ((jseq *)o)->cap * sizeof(jv));
        break;
    case O_DICT:
        jrt_free(rt, ((jdict *)o)->at, ((jdict *)o)->cap * sizeof(jentry));
        jrt_free(rt, ((jdict *)o)->index, ((jdict *)o)->n_index * sizeof(uint32_t));
        break;
    case O_SCOPE:
        jrt_free(rt, ((jscope *)o)->at, ((jscope *)o)->cap * sizeof(jbinding));
        break;
    case O_STR:
    case O_UNDEF:
    case O_FUNC:
    case O_LOOP:
    case O_CYCLER:
        break;
    }
}

static void lose_children(jrt *rt, jobj *o, jobj **dead)
{
    switch ((jobj_kind)o->kind) {
    case O_BYTES:
        break;
    case O_STR:
        lose(rt, &((jstr *)o)->bytes->h, dead);
        break;
    case O_UNDEF:
        lose_value(rt, ((jundef *)o)->name, dead);
        break;
    case O_SEQ:
        for (size_t i = 0; i < ((jseq *)o)->n; i++) {
            lose_value(rt, ((jseq *)o)->at[i], dead);
        }
        break;
    case O_DICT:
        for (size_t i = 0; i < ((jdict *)o)->n; i++) {
            lose_value(rt, ((jdict *)o)->at[i].key, dead);
            lose_value(rt, ((jdict *)o)->at[i].value, dead);
        }
        break;
    case O_FUNC:
        lose_value(rt, ((jfunc *)o)->self, dead);
        lose(rt, (jobj *)((jfunc *)o)->scope, dead);
        break;
    case O_SCOPE:
        for (size_t i = 0; i < ((jscope *)o)->n; i++) {
            lose_value(rt, ((jscope *)o)->at[i].value, dead);
        }
        lose(rt, (jobj *)((jscope *)o)->parent, dead);
        break;
    case O_LOOP:
        lose(rt, (jobj *)((jloop *)o)->items, dead);
        lose_value(rt, ((jloop *)o)->changed, dead);
        lose(rt, (jobj *)((jloop *)o)->scope, dead);
        break;
    case O_CYCLER:
        lose(rt, (jobj *)((jcycler *)o)->items, dead);
        break;
    }
}

/* Without recursion: values nest as deep as a template likes. */
void jobj_drop(jrt *rt, jobj *o)
{
    jobj *dead = NULL;
    lose(rt, o, &dead);
    while (dead) {
        jobj *d = dead;
        dead = d->next;
        lose_children(rt, d, &dead);
        free_payload(rt, d);
        jrt_free(rt, d, object_bytes(d));
    }
}

void jrt_release_all(jrt *rt)
{
    while (rt->all) {
        jobj *o = rt->all;
        rt->all = o->next;
        free_payload(rt, o);
        jrt_free(rt, o, object_bytes(o));
    }
    jrt_free(rt, rt->temps, rt->cap_temps * sizeof *rt->temps);
}

jv jv_keep(jv v)
{
    if (is_object(v) && v.o) {
        v.o->refs++;
    }
    return v;
}

void jv_drop(jrt *rt, jv v)
{
    if (is_object(v)) {
        jobj_drop(rt, v.o);
    }
}

void jrt_release_temps(jrt *rt, size_t down_to)
{
    while (rt->n_temps > down_to) {
        jobj_drop(rt, rt->temps[--rt->n_temps]);
    }
}

jv jrt_pin(jrt *rt, jv v)
{
    if (is_object(v) && v.o) {
        rt->temps = grown(rt, rt->temps, rt->n_temps, &rt->cap_temps, sizeof *rt->temps);
        rt->temps[rt->n_temps++] = jv_keep(v).o;
    }
    return v;
}

jv jrt_carry(jrt *rt, size_t down_to, jv v)
{
    jv_keep(v);
    jrt_release_temps(rt, down_to);
    jrt_pin(rt, v);
    jv_drop(rt, v);
    return v;
}

/* -- undefined --------------------------------------------------------------------------------------------- */

jv jv_undef(jrt *rt, jundef_kind kind, const char *owner, jv name)
{
    jundef *u = (jundef *)jobj_new(rt, O_UNDEF, sizeof *u);
    u->kind = kind;
    u->owner = owner;
    u->name = jv_keep(name);
    return (jv){.type = J_UNDEF, .u = u};
}

jv jv_undef_hint(jrt *rt, const char *hint)
{
    return jv_undef(rt, U_HINT, hint, JV_NONE);
}

/* -- sequences --------------------------------------------------------------------------------------------- */

jseq *jseq_new(jrt *rt, jseq_kind kind, size_t cap)
{
    jseq *q = (jseq *)jobj_new(rt, O_SEQ, sizeof *q);
    q->kind = (uint8_t)kind;
    if (cap > rt->max_bytes / sizeof(jv)) {
        jrt_fail(rt, "the template needs more than %zu bytes of memory", rt->max_bytes);
    }
    if (cap) {
        q->at = jrt_alloc(rt, cap * sizeof *q->at);
        q->cap = cap;
    }
    return q;
}

void jseq_push(jrt *rt, jseq *q, jv v)
{
    q->at = grown(rt, q->at, q->n, &q->cap, sizeof *q->at);
    q->at[q->n++] = jv_keep(v);
}

void jseq_insert(jrt *rt, jseq *q, size_t i, jv v)
{
    jseq_push(rt, q, v);
    jrt_charge(rt, (q->n - i) / 64);
    memmove(&q->at[i + 1], &q->at[i], (q->n - 1 - i) * sizeof *q->at);
    q->at[i] = v;
}

void jseq_remove(jrt *rt, jseq *q, size_t i)
{
    jv v = q->at[i];
    jrt_charge(rt, (q->n - i) / 64);
    memmove(&q->at[i], &q->at[i + 1], (q->n - 1 - i) * sizeof *q->at);
    q->n--;
    jv_drop(rt, v);
}

jseq *jseq_pair(jrt *rt, jv a, jv b)
{
    jseq *q = jseq_new(rt, SEQ_TUPLE, 2);
    jseq_push(rt, q, a);
    jseq_push(rt, q, b);
    return q;
}

/* -- dicts ------------------------------------------------------------------------------------------------- */

#define DICT_SMALL 8

jdict *jdict_new(jrt *rt)
{
    return (jdict *)jobj_new(rt, O_DICT, sizeof(jdict));
}

/* Equal values have equal hashes: 1, 1.0 and true. Never 0. */
static uint64_t hash_value(jrt *rt, jv v)
{
    uint64_t h;
    double number;
    switch ((jtype)v.type) {
    case J_STR:
        if (!v.s->hash) {
            h = hash64_keyed(v.s->s, v.s->len);
            v.s->hash = h ? h : 1;
        }
        return v.s->hash;
    case J_BOOL:
    case J_INT:
    case J_FLOAT:
        number = v.type == J_FLOAT ? v.f : v.type == J_INT ? (double)v.i : v.b;
        number = number == 0 ? 0 : number; /* -0.0 too */
        h = hash64_keyed(&number, sizeof number);
        return h ? h : 1;
    case J_SEQ:
        if (v.q->kind == SEQ_TUPLE) {
            h = 7;
            jinja_deeper(rt);
            for (size_t i = 0; i < v.q->n; i++) {
                jrt_charge(rt, 1);
                h = h * 31 + hash_value(rt, v.q->at[i]);
            }
            rt->depth--;
            return h ? h : 1;
        }
        if (v.q->kind == SEQ_LIST) {
            break;
        }
        return 3;
    case J_DICT:
        break;
    default:
        return 5;
    }
    jrt_fail(rt, "unhashable type: '%s'", jv_type_name(v));
}

static size_t find_entry(jrt *rt, const jdict *d, jv key, uint64_t hash, uint32_t **slot)
{
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++) {
            if (d->at[i].hash == hash && jv_equal(rt, d->at[i].key, key)) {
                return i;
            }
        }
        return SIZE_MAX;
    }
    size_t mask = d->n_index - 1, at = (size_t)hash & mask;
    for (; d->index[at]; at = (at + 1) & mask) {
        const jentry *e = &d->at[d->index[at] - 1];
        if (e->hash == hash && jv_equal(rt, e->key, key)) {
            return d->index[at] - 1;
        }
    }
    if (slot) {
        *slot = &d->index[at];
    }
    return SIZE_MAX;
}

static void rebuild_index(jrt *rt, jdict *d)
{
    size_t n = 4 * DICT_SMALL;
    while (n < 4 * d->n) {
        n *= 2;
    }
    uint32_t *index = jrt_alloc(rt, n * sizeof *index);
    jrt_free(rt, d->index, d->n_index * sizeof *index);
    d->index = index;
    d->n_index = n;
    for (size_t i = 0; i < d->n; i++) {
        size_t at = (size_t)d->at[i].hash & (n - 1);
        while (index[at]) {
            at = (at + 1) & (n - 1);
        }
        index[at] = (uint32_t)i + 1;
    }
}

void jdict_put(jrt *rt, jdict *d, jv key, jv value)
{
    uint64_t hash = hash_value(rt, key);
    uint32_t *slot = NULL;
    size_t i = find_entry(rt, d, key, hash, &slot);
    if (i != SIZE_MAX) {
        jv old = d->at[i].value;
        d->at[i].value = jv_keep(value);
        jv_drop(rt, old);
        return;
    }
    d->at = grown(rt, d->at, d->n, &d->cap, sizeof *d->at);
    d->at[d->n++] = (jentry){jv_keep(key), jv_keep(value), hash};
    if (slot && 2 * d->n <= d->n_index) {
        *slot = (uint32_t)d->n;
    } else if (d->n > DICT_SMALL) {
        rebuild_index(rt, d);
    }
}

bool jdict_get(jrt *rt, const jdict *d, jv key, jv *out)
{
    size_t i = find_entry(rt, d, key, hash_value(rt, key), NULL);
    if (i == SIZE_MAX) {
        return false;
    }
    *out = d->at[i].value;
    return true;
}

void jdict_remove(jrt *rt, jdict *d, jv key)
{
    size_t i = find_entry(rt, d, key, hash_value(rt, key), NULL);
    if (i == SIZE_MAX) {
        return;
    }
    jentry e = d->at[i];
    memmove(&d->at[i], &d->at[i + 1], (d->n - 1 - i) * sizeof *d->at);
    d->n--;
    if (d->index) { /* the numbers of all that follow have changed */
        jrt_charge(rt, d->n / 16);
        rebuild_index(rt, d);
    }
    jv_drop(rt, e.key);
    jv_drop(rt, e.value);
}

bool jdict_get_text(jrt *rt, const jdict *d, const char *key, jv *out)
{
    for (size_t i = 0; i < d->n; i++) {
        if (d->at[i].key.type == J_STR && jstr_is(d->at[i].key.s, key)) {
            *out = d->at[i].value;
            return true;
        }
    }
    return false;
}

/* -- scopes ------------------------------------------------------------------------------------------------ */

jscope *jscope_new(jrt *rt, jscope *parent)
{
    jscope *s = (jscope *)jobj_new(rt, O_SCOPE, sizeof *s);
    s->parent = parent;
    if (parent) {
        parent->h.refs++;
    }
    return s;
}

void jscope_set(jrt *rt, jscope *s, uint32_t sym, jv v)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[i].sym == sym) {
            jv old = s->at[i].value;
            s->at[i].value = jv_keep(v);
            jv_drop(rt, old);
            return;
        }
    }
    s->at = grown(rt, s->at, s->n, &s->cap, sizeof *s->at);
    s->at[s->n++] = (jbinding){sym, jv_keep(v)};
}

bool jscope_get(const jscope *s, uint32_t sym, jv *out)
{
    for (; s; s = s->parent) {
        for (size_t i = 0; i < s->n; i++) {
            if (s->at[i].sym == sym) {
                *out = s->at[i].value;
                return true;
            }
        }
    }
    return false;
}

/* -- values of the caller ---------------------------------------------------------------------------------- */

typedef struct import_ctx {
    jrt *rt;
    jdict *d;
    bool trusted;
} import_ctx;

static bool import_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    const import_ctx *c = ctx;
    jstr *k = jstr_new(c->rt, key, key_len, c->trusted ? 0 : MARK_PLAIN);
    jdict_put(c->rt, c->d, jv_of_str(k), jv_of_json(c->rt, v, c->trusted));
    return true;
}

/* The reader bounds the depth. */
jv jv_of_json(jrt *rt, const json *v, bool trusted)
{
    jv out = JV_NONE;
    size_t len;
    const char *s;
    switch (json_kind(v)) {
    case JSON_NULL:
        break;
    case JSON_BOOL:
        out.type = J_BOOL;
        json_bool(v, &out.b);
        break;
    case JSON_INT:
        out.type = J_INT;
        if (!json_i64(v, &out.i)) {
            out.type = J_FLOAT; /* above 2^63 */
            json_f64(v, &out.f);
        }
        break;
    case JSON_DOUBLE:
        out.type = J_FLOAT;
        json_f64(v, &out.f);
        break;
    case JSON_STRING:
        s = json_string(v, &len);
        out = jv_of_str(jstr_new(rt, s, len, trusted ? 0 : MARK_PLAIN));
        break;
    case JSON_ARRAY:
        out = jv_of_seq(jseq_new(rt, SEQ_LIST, json_len(v)));
        for (size_t i = 0; i < json_len(v); i++) {
            jseq_push(rt, out.q, jv_of_json(rt, json_at(v, i), trusted));
        }
        break;
    case JSON_OBJECT:
        out = (jv){.type = J_DICT, .d = jdict_new(rt)};
        json_each(v, import_member, &(import_ctx){rt, out.d, trusted});
        break;
    }
    out.plain = !trusted;
    return out;
}
