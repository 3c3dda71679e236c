/*
 * A call in Python's syntax: NAME(literal, key=literal, ...), perhaps inside print(...). Arguments without a name
 * take those of the tool's parameters in their order. The object is written as the arguments are read.
 */
#include <string.h>

#include "text/reply_parser_int.h"
#include "text/tool_schema.h"

enum { IN_NAME, AT_ARG, IN_KEY, BEHIND_KEY, IN_VALUE, PRINT_END };

void pycall_begin(reply_parser *p, bool named)
{
    pycall *y = &p->py;
    y->state = named ? AT_ARG : IN_NAME;
    y->in_print = y->keywords = false;
    y->n_args = 0;
    buf_reset(&y->word);
}

bool pycall_called(const reply_parser *p)
{
    return p->py.state == PRINT_END;
}

static reply_step in_name(reply_parser *p, unsigned char c)
{
    pycall *y = &p->py;
    if (c == '(') {
        if (y->word.len == 0) {
            return STEP_FAIL;
        }
        if (!y->in_print && strcmp(y->word.data, "print") == 0) {
            y->in_print = true;
            buf_reset(&y->word);
            return STEP_MORE;
        }
        reply_call_named(p, y->word.data, y->word.len);
        y->state = AT_ARG;
        return STEP_MORE;
    }
    if (y->word.len == 0) {
        if (reply_is_space(c) && y->in_print) {
            return STEP_MORE;
        }
        if (c >= '0' && c <= '9') {
            return STEP_FAIL;
        }
    }
    bool good = reply_is_word(c) || (c == '.' && y->word.len > 0);
    return good && reply_keep_name(p, &y->word, c) ? STEP_MORE : STEP_FAIL;
}

static void begin_value(reply_parser *p, const char *key, size_t len)
{
    pycall *y = &p->py;
    reply_call_args(p, y->n_args == 0 ? "{\"" : ", \"", y->n_args == 0 ? 2 : 3);
    for (size_t i = 0; i < len; i++) {
        reply_call_arg_string(p, (unsigned char)key[i]);
    }
    reply_call_args(p, "\": ", 3);
    y->n_args++;
    y->state = IN_VALUE;
    python_literal_begin(&y->value);
}

static reply_step end_call(reply_parser *p)
{
    pycall *y = &p->py;
    reply_call_args(p, y->n_args == 0 ? "{}" : "}", y->n_args == 0 ? 2 : 1);
    reply_call_end(p);
    y->state = PRINT_END;
    return y->in_print ? STEP_MORE : STEP_DONE;
}

static reply_step in_value(reply_parser *p, unsigned char c)
{
    pycall *y = &p->py;
    python_literal *v = &y->value;
    python_result r = python_literal_push(v, c);
    if (v->st != ST_OK) {
        p->st = v->st;
    }
    if (r == PYTHON_BAD) {
        return STEP_FAIL;
    }
    if (v->n_open == 0 && v->out.len > 0) {
        reply_call_args(p, v->out.data, v->out.len);
        buf_reset(&v->out);
    }
    if (r == PYTHON_MORE) {
        return STEP_MORE;
    }
    y->state = AT_ARG;
    return c == ',' ? STEP_MORE : c == ')' ? end_call(p) : STEP_FAIL;
}

/* What was read as a keyword may be a value: True, or the prefix of a string. */
static reply_step positional(reply_parser *p, unsigned char c)
{
    pycall *y = &p->py;
    size_t len = 0;
    const char *key =
        y->keywords ? NULL : tool_parameter_at(p->opt.tools, p->name.data, p->name.len, y->n_args, &len);
    if (!key) {
        return STEP_FAIL;
    }
    begin_value(p, key, len);
    for (size_t i = 0; i < y->word.len; i++) {
        if (in_value(p, (unsigned char)y->word.data[i]) != STEP_MORE) {
            return STEP_FAIL;
        }
    }
    return in_value(p, c);
}

static reply_step in_key(reply_parser *p, unsigned char c)
{
    pycall *y = &p->py;
    if (reply_is_space(c)) {
        y->state = BEHIND_KEY;
        return STEP_MORE;
    }
    if (c == '=') {
        y->keywords = true;
        begin_value(p, y->word.data, y->word.len);
        return STEP_MORE;
    }
    if (y->state == IN_KEY && reply_is_word(c)) {
        return reply_keep_name(p, &y->word, c) ? STEP_MORE : STEP_FAIL;
    }
    return positional(p, c);
}

reply_step pycall_push(reply_parser *p, unsigned char c)
{
    pycall *y = &p->py;
    switch (y->state) {
    case IN_NAME:
        return in_name(p, c);
    case IN_KEY:
    case BEHIND_KEY:
        return in_key(p, c);
    case IN_VALUE:
        return in_value(p, c);
    default:
        break;
    }
    if (reply_is_space(c)) {
        return STEP_MORE;
    }
    if (y->state == PRINT_END) {
        return c == ')' ? STEP_DONE : STEP_FAIL;
    }
    buf_reset(&y->word);
    if (c == ')') {
        return end_call(p);
    }
    if (reply_is_word(c) && !(c >= '0' && c <= '9')) {
        y->state = IN_KEY;
        return reply_keep_name(p, &y->word, c) ? STEP_MORE : STEP_FAIL;
    }
    return positional(p, c);
}
