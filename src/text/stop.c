#include "text/stop.h"

#include <string.h>

#include "base/mem.h"
#include "text/aho.h"

struct stop_set {
    aho *strings; /* owned */
    size_t *lens; /* owned, [n] */
    size_t longest;
};

status stop_set_new(const stop_string *strings, size_t n, stop_set **out, err *e)
{
    size_t total = 0;
    if (n > STOP_MAX_STRINGS) {
        return err_set(e, ST_INVALID_FIELD, "stop", "%zu stop strings, the limit is %u", n, STOP_MAX_STRINGS);
    }
    for (size_t i = 0; i < n; i++) {
        if (!size_add(total, strings[i].len, &total) || total > STOP_MAX_TOTAL_BYTES) {
            return err_set(e, ST_INVALID_FIELD, "stop", "stop strings of more than %u bytes in all",
                           STOP_MAX_TOTAL_BYTES);
        }
    }
    stop_set *s = mem_calloc(1, sizeof *s);
    aho_string *copy = mem_alloc_array(n, sizeof *copy);
    status st = ST_NOMEM;
    if (!s || !copy) {
        goto out;
    }
    s->lens = mem_alloc_array(n, sizeof *s->lens);
    if (!s->lens) {
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        copy[i] = (aho_string){strings[i].data, strings[i].len};
        s->lens[i] = strings[i].len;
        s->longest = strings[i].len > s->longest ? strings[i].len : s->longest;
    }
    st = aho_new(copy, n, &s->strings);
    if (st != ST_OK) {
        goto out;
    }
    *out = s;
    s = NULL;
out:
    mem_free(copy);
    stop_set_free(s);
    return st == ST_OK ? st : err_set(e, st, NULL, "out of memory for the stop strings");
}

void stop_set_free(stop_set *s)
{
    if (s) {
        aho_free(s->strings);
        mem_free(s->lens);
        mem_free(s);
    }
}

size_t stop_set_longest(const stop_set *s)
{
    return s->longest;
}

void stop_matcher_init(stop_matcher *m, const stop_set *set)
{
    memset(m, 0, sizeof *m);
    m->set = set;
    m->state = AHO_ROOT;
    m->matched = -1;
}

void stop_matcher_release(stop_matcher *m)
{
    if (m) {
        buf_release(&m->held);
        stop_matcher_init(m, NULL);
    }
}

/* Text before the match is shown, the rest dropped. end: behind the match, in held. */
static status match_finish(stop_matcher *m, int32_t hit, size_t end, buf *out)
{
    size_t index = aho_hit_string(m->set->strings, hit);
    status st = buf_append(out, m->held.data, end - m->set->lens[index]);
    if (st == ST_OK) {
        m->matched = (int32_t)index;
        m->state = AHO_ROOT;
        buf_reset(&m->held);
    }
    return st;
}

status stop_matcher_push(stop_matcher *m, const char *text, size_t len, buf *out)
{
    if (m->matched >= 0 || len == 0) {
        return ST_OK;
    }
    if (!m->set) {
        return buf_append(out, text, len);
    }
    size_t before = m->held.len;
    status st = buf_append(&m->held, text, len);
    if (st != ST_OK) {
        return st;
    }
    const aho *a = m->set->strings;
    int32_t state = m->state;
    for (size_t i = before; i < m->held.len; i++) {
        state = aho_step(a, state, (unsigned char)m->held.data[i]);
        int32_t hit = aho_hit(a, state);
        if (hit != AHO_NONE) {
            st = match_finish(m, hit, i + 1, out);
            goto out;
        }
    }
    size_t safe = m->held.len - aho_depth(a, state);
    st = buf_append(out, m->held.data, safe);
    if (st == ST_OK) {
        buf_consume(&m->held, safe);
        m->state = state;
    }
out:
    if (st != ST_OK) {
        buf_truncate(&m->held, before); /* as if this push had not been */
    }
    return st;
}

status stop_matcher_flush(stop_matcher *m, buf *out)
{
    status st = m->held.len > 0 ? buf_append(out, m->held.data, m->held.len) : ST_OK;
    if (st == ST_OK) {
        m->state = AHO_ROOT;
        buf_reset(&m->held);
    }
    return st;
}
