/*
 * Qwen3-Coder:
 *
 *     <tool_call>
 *     <function=f>
 *     <parameter=a>
 *     value
 *     </parameter>
 *     </function>
 *     </tool_call>
 *
 * also without <tool_call>, which the model forgets at times. A value is the text up to </parameter>, one newline
 * less at each end. Strings go out as they are read; what the schema types otherwise is read as JSON (or as a
 * Python literal, which the model writes at times) when it is complete, and stays a string if it is neither.
 */
#include <string.h>

#include "text/reply_parser_int.h"
#include "text/tool_schema.h"

static const char *const openers[] = {"<tool_call>", "<function=", NULL};
static const char *const function_open[] = {"<function=", NULL};
static const char *const in_function[] = {"<parameter=", "</function>", NULL};
static const char *const value_end[] = {"</parameter>", NULL};
static const char *const behind_function[] = {"</tool_call>", "<function=", "<tool_call>", NULL};
static const char *const tail[] = {"</tool_call>", NULL};

enum { AT_FUNCTION, IN_NAME, IN_FUNCTION, IN_KEY, IN_VALUE, BEHIND_FUNCTION, AT_TAIL };

static void begin_function(reply_parser *p)
{
    p->state = IN_NAME;
    p->no_param = true;
    buf_reset(&p->word);
}

static reply_step qwen3_coder_open(reply_parser *p, size_t opener)
{
    p->state = AT_FUNCTION;
    p->tagged = opener == 0;
    if (!p->tagged) {
        begin_function(p);
    }
    return STEP_MORE;
}

/* A name up to '>'; STEP_DONE with it. */
static reply_step name_step(reply_parser *p, unsigned char c)
{
    if (c == '>') {
        return p->word.len > 0 ? STEP_DONE : STEP_FAIL;
    }
    bool good = c != '<' && (p->state == IN_KEY ? c >= ' ' : c > ' ');
    return good && reply_keep_name(p, &p->word, c) ? STEP_MORE : STEP_FAIL;
}

static void begin_value(reply_parser *p)
{
    p->types = tool_parameter_types(p->opt.tools, p->name.data, p->name.len, p->word.data, p->word.len);
    reply_call_args(p, p->no_param ? "{\"" : ", \"", p->no_param ? 2 : 3);
    for (size_t i = 0; i < p->word.len; i++) {
        reply_call_arg_string(p, (unsigned char)p->word.data[i]);
    }
    reply_call_args(p, "\": ", 3);
    if (p->types == TOOL_TYPE_STRING) {
        reply_call_args(p, "\"", 1);
    }
    p->no_param = false;
    p->value_begun = p->value_newline = false;
    buf_reset(&p->value);
    p->state = IN_VALUE;
}

/* One newline goes at each end: the last one waits for what follows. */
static void put_value(reply_parser *p, unsigned char c)
{
    if (p->types != TOOL_TYPE_STRING) {
        reply_keep(p, &p->value, &c, 1);
        return;
    }
    if (p->value_newline) {
        reply_call_arg_string(p, '\n');
    }
    p->value_newline = c == '\n' && p->value_begun;
    if (c != '\n') {
        reply_call_arg_string(p, c);
    }
    p->value_begun = true;
}

/* The value of another type as JSON text, if it is that and the schema admits it. */
static bool typed(reply_parser *p, const char *text, size_t len)
{
    json_doc *doc = NULL;
    status st = json_parse(text, len, JSON_MAX_DEPTH, &doc, NULL);
    bool good = false;
    if (st == ST_OK) {
        good = (tool_type_of(json_root(doc)) & p->types) || !(p->types & TOOL_TYPE_STRING);
        json_doc_free(doc);
    } else if (st == ST_NOMEM) {
        p->st = ST_NOMEM;
    }
    if (good) {
        reply_call_args(p, text, len);
    }
    return good;
}

static bool python_typed(reply_parser *p, const char *text, size_t len)
{
    python_literal *v = &p->py.value;
    python_result r = PYTHON_MORE;
    python_literal_begin(v);
    for (size_t i = 0; i < len && r == PYTHON_MORE; i++) {
        r = python_literal_push(v, (unsigned char)text[i]);
    }
    bool good = r == PYTHON_MORE && python_literal_finish(v);
    p->st = p->st == ST_OK ? v->st : p->st;
    return good && typed(p, buf_str(&v->out), v->out.len);
}

static void end_value(reply_parser *p)
{
    p->state = IN_FUNCTION;
    if (p->types == TOOL_TYPE_STRING) {
        reply_call_args(p, "\"", 1);
        return;
    }
    const char *text = buf_str(&p->value);
    size_t len = p->value.len;
    if (len > 0 && text[0] == '\n') {
        text++;
        len--;
    }
    if (len > 0 && text[len - 1] == '\n') {
        len--;
    }
    if (typed(p, text, len) || python_typed(p, text, len)) {
        return;
    }
    reply_call_args(p, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        reply_call_arg_string(p, (unsigned char)text[i]);
    }
    reply_call_args(p, "\"", 1);
}

static reply_step end_function(reply_parser *p)
{
    reply_call_args(p, p->no_param ? "{}" : "}", p->no_param ? 2 : 1);
    reply_call_end(p);
    p->state = p->tagged ? BEHIND_FUNCTION : AT_TAIL;
    if (!p->tagged) { /* </tool_call> may follow, but need not */
        reply_confirm(p, "");
    }
    return STEP_MORE;
}

static reply_step between_tags(reply_parser *p, unsigned char c)
{
    size_t which = 0;
    if (p->n_mark == 0 && reply_is_space(c)) {
        return STEP_MORE;
    }
    const char *const *literals = p->state == AT_FUNCTION       ? function_open
                                  : p->state == IN_FUNCTION     ? in_function
                                  : p->state == BEHIND_FUNCTION ? behind_function
                                                                : tail;
    reply_step step = reply_match(p, literals, c, &which);
    if (step != STEP_DONE) {
        return step;
    }
    switch (p->state) {
    case AT_FUNCTION:
        begin_function(p);
        return STEP_MORE;
    case IN_FUNCTION:
        if (which == 1) {
            return end_function(p);
        }
        p->state = IN_KEY;
        buf_reset(&p->word);
        return STEP_MORE;
    case BEHIND_FUNCTION:
        if (which == 1) {
            begin_function(p);
        } else if (which == 2) { /* the closing marker was forgotten */
            reply_confirm(p, openers[0]);
            p->state = AT_FUNCTION;
        }
        return which == 0 ? STEP_DONE : STEP_MORE;
    default:
        return STEP_DONE;
    }
}

static reply_step qwen3_coder_step(reply_parser *p, unsigned char c)
{
    size_t which;
    reply_step step;
    switch (p->state) {
    case IN_NAME:
    case IN_KEY:
        step = name_step(p, c);
        if (step != STEP_DONE) {
            return step;
        }
        if (p->state == IN_KEY) {
            begin_value(p);
        } else {
            reply_call_named(p, p->word.data, p->word.len);
            p->state = IN_FUNCTION;
        }
        return STEP_MORE;
    case IN_VALUE:
        if (reply_search(p, value_end, c, put_value, &which)) {
            end_value(p);
        }
        return STEP_MORE;
    default:
        return between_tags(p, c);
    }
}

static reply_stop qwen3_coder_end(reply_parser *p, bool cut)
{
    return p->state >= BEHIND_FUNCTION ? STOP_CALLED : STOP_IN_CALL;
}

const reply_family tool_qwen3_coder = {openers, false, qwen3_coder_open, qwen3_coder_step, qwen3_coder_end};
