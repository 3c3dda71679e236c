/*
 * A call as one JSON object, {"name": ..., "arguments": {...}} or "parameters", keys in any order, perhaps with
 * "id" and "type"; and arguments alone. Arguments go out as they are read, but for those that a model wrote as a
 * string that holds the object.
 */
#include <string.h>

#include "text/reply_parser_int.h"

enum { FIELD_OTHER, FIELD_NAME, FIELD_ARGS, FIELD_ID, FIELD_TYPE };

void envelope_begin(reply_parser *p, bool strict)
{
    envelope *e = &p->env;
    json_scan_init(&e->scan);
    e->field = FIELD_OTHER;
    e->in_value = e->has_args = e->has_name = e->quoted_args = false;
    e->strict = strict;
    buf_reset(&e->args);
    reply_call_drop(p);
    p->call_closed = false;
}

static reply_step no_call(const envelope *e)
{
    return e->strict ? STEP_CONTENT : STEP_FAIL;
}

static void put_args(reply_parser *p, const char *text, size_t len)
{
    if (p->named) {
        reply_call_args(p, text, len);
    } else {
        reply_keep(p, &p->env.args, text, len);
    }
}

static reply_step end_key(envelope *e)
{
    static const struct {
        const char *key;
        uint8_t field;
    } keys[] = {{"name", FIELD_NAME},
                {"arguments", FIELD_ARGS},
                {"parameters", FIELD_ARGS},
                {"id", FIELD_ID},
                {"type", FIELD_TYPE}};
    e->field = FIELD_OTHER;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(buf_str(&e->text), keys[i].key) == 0) {
            e->field = keys[i].field;
        }
    }
    bool again = (e->field == FIELD_NAME && e->has_name) || (e->field == FIELD_ARGS && e->has_args);
    bool strange = e->field == FIELD_OTHER && e->strict && !(e->has_name && e->has_args);
    e->has_name = e->has_name || e->field == FIELD_NAME;
    return again || strange ? no_call(e) : STEP_MORE;
}

static reply_step first_of_value(reply_parser *p, unsigned char c)
{
    envelope *e = &p->env;
    switch (e->field) {
    case FIELD_NAME:
        if (c != '"') {
            return no_call(e);
        }
        break;
    case FIELD_ARGS:
        if (c != '{' && c != '"') {
            return no_call(e);
        }
        e->has_args = true;
        e->quoted_args = c == '"';
        if (!e->quoted_args) {
            put_args(p, (const char *)&c, 1);
        }
        break;
    case FIELD_ID:
        if (c != '"') { /* null, a number: as if it were not there */
            return STEP_MORE;
        }
        break;
    default:
        return STEP_MORE;
    }
    e->in_value = true;
    buf_reset(&e->text);
    reply_keep(p, &e->text, &c, 1);
    return STEP_MORE;
}

/* The string literal in e->text, decoded into b; false if it is none, empty or longer than max. */
static bool decode(reply_parser *p, const envelope *e, size_t max, buf *b)
{
    json_doc *doc = NULL;
    status st = json_parse(buf_str(&e->text), e->text.len, 1, &doc, NULL);
    size_t len = 0;
    buf_reset(b);
    if (st == ST_OK) {
        const char *s = json_string(json_root(doc), &len);
        reply_keep(p, b, s, len);
        json_doc_free(doc);
    } else if (st == ST_NOMEM) {
        p->st = ST_NOMEM;
    }
    return st == ST_OK && len > 0 && len <= max;
}

static bool is_object(const buf *b)
{
    json_scan s;
    json_scan_result r = JSON_SCAN_MORE;
    size_t n = 0;
    json_scan_init(&s);
    for (; n < b->len && r == JSON_SCAN_MORE; n++) {
        r = json_scan_push(&s, (unsigned char)b->data[n]);
    }
    return r == JSON_SCAN_DONE && n == b->len && b->data[0] == '{';
}

static reply_step end_value(reply_parser *p)
{
    envelope *e = &p->env;
    e->in_value = false;
    if (e->field == FIELD_ID) {
        if (!decode(p, e, REPLY_MAX_NAME, &p->id)) {
            buf_reset(&p->id);
        }
    } else if (e->field == FIELD_NAME) {
        if (!decode(p, e, REPLY_MAX_NAME, &p->word)) {
            return no_call(e);
        }
        reply_call_named(p, p->word.data, p->word.len);
        if (e->args.len > 0) {
            reply_call_args(p, e->args.data, e->args.len);
        }
    } else if (e->quoted_args) {
        if (!decode(p, e, SIZE_MAX, &p->value) || !is_object(&p->value)) {
            return no_call(e);
        }
        put_args(p, p->value.data, p->value.len);
    }
    return STEP_MORE;
}

static reply_step in_member(reply_parser *p, unsigned before, unsigned char c)
{
    envelope *e = &p->env;
    json_scan *s = &e->scan;
    switch (before) {
    case JSON_SCAN_KEY:
    case JSON_SCAN_KEY_OR_END:
        buf_reset(&e->text);
        break;
    case JSON_SCAN_STRING:
    case JSON_SCAN_ESCAPE:
    case JSON_SCAN_HEX:
        if (s->state == JSON_SCAN_COLON) {
            return end_key(e);
        }
        if (s->in_key && e->text.len <= REPLY_MAX_NAME) {
            reply_keep(p, &e->text, &c, 1);
        }
        break;
    case JSON_SCAN_VALUE:
        return s->state == JSON_SCAN_VALUE ? STEP_MORE : first_of_value(p, c);
    default:
        break;
    }
    return STEP_MORE;
}

static reply_step end_object(reply_parser *p)
{
    const envelope *e = &p->env;
    if (!p->named || (e->strict && !e->has_args)) {
        return no_call(e);
    }
    if (!e->has_args) {
        reply_call_args(p, "{}", 2);
    }
    reply_call_end(p);
    return STEP_DONE;
}

reply_step envelope_push(reply_parser *p, unsigned char c)
{
    envelope *e = &p->env;
    unsigned before = e->scan.state, depth = e->scan.depth;
    json_scan_result r = json_scan_push(&e->scan, c);
    reply_step step = STEP_MORE;
    if (r == JSON_SCAN_BAD) {
        return STEP_FAIL;
    }
    if (e->in_value) {
        if (e->field == FIELD_ARGS && !e->quoted_args) {
            put_args(p, (const char *)&c, 1);
        } else if (e->field == FIELD_ARGS ||
                   e->text.len <= 6 * REPLY_MAX_NAME + 2) { /* every byte may be a \u escape */
            reply_keep(p, &e->text, &c, 1);
        }
        if (e->scan.depth == 1 && e->scan.state == JSON_SCAN_AFTER) {
            step = end_value(p);
        }
    } else if (depth == 1) {
        step = in_member(p, before, c);
    }
    return step == STEP_MORE && r == JSON_SCAN_DONE ? end_object(p) : step;
}

void arguments_begin(reply_parser *p)
{
    json_scan_init(&p->scan);
}

reply_step arguments_push(reply_parser *p, unsigned char c)
{
    json_scan_result r = json_scan_push(&p->scan, c);
    if (r == JSON_SCAN_BAD) {
        return STEP_FAIL;
    }
    reply_call_args(p, (const char *)&c, 1);
    if (r == JSON_SCAN_DONE) {
        reply_call_end(p);
        return STEP_DONE;
    }
    return STEP_MORE;
}
