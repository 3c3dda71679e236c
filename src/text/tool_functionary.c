/*
 * Functionary. v3.2, whose prompt ends with ">>>" ("all" is content, a body of python may be raw code):
 *
 *     all
 *     text>>>f
 *     {...}>>>python
 *     print(1)
 *
 * v3.1; what follows the tag is in tool_python_tag.c:
 *
 *     <function=f>{...}</function>
 *     <|python_tag|>print(1)
 */
#include <string.h>

#include "text/reply_parser_int.h"

/* v3.2 */

#define MARK ">>>"

static const char *const openers_v3_2[] = {MARK, NULL};

enum { IN_NAME, AT_BODY, IN_ARGS, BEHIND_ARGS, IN_CODE, IN_CODE_NAME };

static reply_step v3_2_open(reply_parser *p, size_t opener)
{
    p->state = IN_NAME;
    p->tagged = opener != REPLY_AT_START;
    buf_reset(&p->word);
    return STEP_MORE;
}

static bool is_python(const reply_parser *p)
{
    return p->name.len == 6 && memcmp(p->name.data, "python", 6) == 0;
}

/* The line with the name is read. */
static reply_step named(reply_parser *p)
{
    size_t len = p->word.len;
    if (len == 0) {
        return STEP_FAIL;
    }
    if (len == 3 && memcmp(p->word.data, "all", 3) == 0) {
        return STEP_DONE;
    }
    if (p->opt.no_calls) {
        return STEP_FAIL;
    }
    reply_call_named(p, p->word.data, len);
    p->state = AT_BODY;
    return STEP_MORE;
}

static reply_step name_step(reply_parser *p, unsigned char c)
{
    if (p->block.len == 1 && reply_is_space(c)) { /* before anything else: behind reasoning */
        buf_reset(&p->block);
        return STEP_MORE;
    }
    if (c == '\n') {
        return named(p);
    }
    if (c == '>' && p->word.len == 0 && !p->tagged) { /* the reply repeats the prompt's mark */
        return p->block.len <= strlen(MARK) ? STEP_MORE : STEP_FAIL;
    }
    bool good = reply_is_word(c) || c == '-' || c == '.';
    if (p->word.len == 0 && !p->tagged && p->block.len != 1 && p->block.len != strlen(MARK) + 1) {
        return STEP_FAIL; /* half a mark */
    }
    return good && reply_keep_name(p, &p->word, c) ? STEP_MORE : STEP_FAIL;
}

/* The body so far, behind the line with the name, is code. */
static reply_step is_code(reply_parser *p)
{
    const char *block = buf_str(&p->block), *line = memchr(block, '\n', p->block.len);
    size_t at = line ? (size_t)(line - block) + 1 : 0;
    buf_reset(&p->value);
    reply_keep(p, &p->value, block + at, p->block.len - at);
    code_begin(p);
    for (size_t i = 0; i < p->value.len; i++) {
        code_put(p, (unsigned char)p->value.data[i]);
    }
    buf_reset(&p->value);
    p->state = IN_CODE;
    return STEP_MORE;
}

static reply_step args_step(reply_parser *p, unsigned char c)
{
    bool python = is_python(p);
    if (p->state == AT_BODY) {
        if (reply_is_space(c)) {
            return STEP_MORE;
        }
        if (c != '{') {
            return python ? is_code(p) : STEP_FAIL;
        }
        arguments_begin(p);
        p->state = IN_ARGS;
    }
    reply_step step = arguments_push(p, c);
    if (step == STEP_DONE) {
        p->state = BEHIND_ARGS;
        return STEP_MORE;
    }
    return step == STEP_FAIL && python ? is_code(p) : step;
}

static reply_step behind_args(reply_parser *p, unsigned char c)
{
    if (p->n_mark == 0 && reply_is_space(c)) {
        return STEP_MORE;
    }
    reply_step step = reply_match(p, openers_v3_2, c, NULL);
    if (step == STEP_DONE) {
        reply_confirm(p, MARK);
        return v3_2_open(p, 0);
    }
    return step;
}

/* Code ends where MARK is followed by a line that can be a name. */
static reply_step code_step(reply_parser *p, unsigned char c)
{
    size_t which;
    buf_reset(&p->block);
    if (p->state == IN_CODE_NAME) {
        bool good = reply_is_word(c) || c == '-' || c == '.';
        if (c == '\n' && p->word.len > 0) {
            code_end(p);
            reply_confirm(p, MARK);
            reply_keep(p, &p->block, p->word.data, p->word.len);
            reply_keep(p, &p->block, "\n", 1);
            return named(p);
        }
        if (good && reply_keep_name(p, &p->word, c)) {
            return STEP_MORE;
        }
        for (size_t i = 0; i < strlen(MARK); i++) {
            code_put(p, '>');
        }
        size_t n = p->word.len - (good ? 1 : 0); /* a name too long has c in it already */
        for (size_t i = 0; i < n; i++) {
            code_put(p, (unsigned char)p->word.data[i]);
        }
        p->state = IN_CODE;
    }
    if (reply_search(p, openers_v3_2, c, code_put, &which)) {
        p->state = IN_CODE_NAME;
        buf_reset(&p->word);
    }
    return STEP_MORE;
}

static reply_step v3_2_step(reply_parser *p, unsigned char c)
{
    switch (p->state) {
    case IN_NAME:
        return name_step(p, c);
    case AT_BODY:
    case IN_ARGS:
        return args_step(p, c);
    case BEHIND_ARGS:
        return behind_args(p, c);
    default:
        return code_step(p, c);
    }
}

static void end_code(reply_parser *p)
{
    if (p->state == IN_CODE_NAME) {
        for (size_t i = 0; i < strlen(MARK); i++) {
            code_put(p, '>');
        }
        for (size_t i = 0; i < p->word.len; i++) {
            code_put(p, (unsigned char)p->word.data[i]);
        }
    }
    reply_search_end(p, code_put);
    code_end(p);
}

static reply_stop v3_2_end(reply_parser *p, bool cut)
{
    switch (p->state) {
    case IN_NAME:
        if (p->block.len == 0) {
            return STOP_CALLED;
        }
        return cut || p->tagged ? STOP_IN_CALL : STOP_TEXT;
    case BEHIND_ARGS:
        return STOP_CALLED;
    case IN_CODE:
    case IN_CODE_NAME:
        if (cut) {
            return STOP_IN_CALL;
        }
        end_code(p);
        return STOP_CALLED;
    default:
        return STOP_IN_CALL;
    }
}

const reply_family tool_functionary_v3_2 = {openers_v3_2, true, v3_2_open, v3_2_step, v3_2_end};

/* v3.1 */

static const char *const openers_v3_1[] = {"<function=", "<|python_tag|>", NULL};
static const char *const closer_v3_1[] = {"</function>", NULL};

enum { IN_NAME_V3_1, AT_ARGS, IN_ARGS_V3_1, AT_CLOSER };

static reply_step v3_1_open(reply_parser *p, size_t opener)
{
    p->state = IN_NAME_V3_1;
    buf_reset(&p->word);
    if (opener == 1) {
        python_tag_begin(p);
    }
    return STEP_MORE;
}

static reply_step v3_1_step(reply_parser *p, unsigned char c)
{
    reply_step step;
    switch (p->state) {
    case IN_NAME_V3_1:
        if (c != '>') {
            return c != '<' && c > ' ' && reply_keep_name(p, &p->word, c) ? STEP_MORE : STEP_FAIL;
        }
        if (p->word.len == 0) {
            return STEP_FAIL;
        }
        reply_call_named(p, p->word.data, p->word.len);
        arguments_begin(p);
        p->state = AT_ARGS;
        return STEP_MORE;
    case AT_ARGS:
        if (reply_is_space(c)) {
            return STEP_MORE;
        }
        p->state = IN_ARGS_V3_1;
        return c == '{' ? arguments_push(p, c) : STEP_FAIL;
    case IN_ARGS_V3_1:
        step = arguments_push(p, c);
        if (step == STEP_DONE) {
            p->state = AT_CLOSER;
            return STEP_MORE;
        }
        return step;
    case AT_CLOSER:
        return p->n_mark == 0 && reply_is_space(c) ? STEP_MORE : reply_match(p, closer_v3_1, c, NULL);
    default:
        return python_tag_step(p, c);
    }
}

static reply_stop v3_1_end(reply_parser *p, bool cut)
{
    if (p->state >= REPLY_PYTHON_TAG) {
        return python_tag_end(p, cut);
    }
    return p->state == AT_CLOSER ? STOP_CALLED : STOP_IN_CALL;
}

const reply_family tool_functionary_v3_1 = {openers_v3_1, false, v3_1_open, v3_1_step, v3_1_end};
