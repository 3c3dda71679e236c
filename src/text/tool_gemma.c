/*
 * Gemma, three forms:
 *
 *     ```tool_code
 *     f(a="x", b=2)
 *     print(g())
 *     ```
 *
 *     ```json
 *     {"name": "f", "parameters": {...}}
 *     ```
 *
 *     [f(a="x"), g()]
 *
 * In an ordinary block of code nothing is looked for but its end.
 */
#include <string.h>

#include "text/reply_parser_int.h"

#define TOOL_CODE "tool_code"
#define JSON      "json"

static const char *const openers[] = {"```", "[", NULL};
static const char *const fence[] = {"```", NULL};

enum {
    IN_INFO, /* what follows the fence */
    AT_STATEMENT,
    IN_COMMENT,
    IN_CALL,
    BEHIND_CALL,
    AT_JSON,
    IN_JSON,
    BEHIND_JSON,
    IN_FENCE, /* the closing one */
    AT_FIRST, /* of a bracketed list */
    IN_LIST_CALL,
    BEHIND_LIST_CALL,
    AT_NEXT
};

static void set_fenced(reply_parser *p, bool fenced)
{
    p->fenced = fenced;
    reply_set_openers(p, fenced ? fence : openers);
}

/* The block of code is none of ours: text up to its end. */
static reply_step ordinary(reply_parser *p)
{
    p->inline_fence = p->state == IN_INFO && !p->line_start;
    set_fenced(p, true);
    return STEP_FAIL;
}

static reply_step gemma_open(reply_parser *p, size_t opener)
{
    if (opener == 1) {
        bool index = (p->last < 0x80 && reply_is_word(p->last)) || p->last == ']' || p->last == ')';
        p->state = AT_FIRST;
        return index ? STEP_FAIL : STEP_MORE; /* a[i], f()[i] */
    }
    if (p->fenced) {
        if (p->line_start || p->inline_fence) {
            set_fenced(p, false);
        }
        return STEP_FAIL;
    }
    p->state = IN_INFO;
    buf_reset(&p->word);
    return STEP_MORE;
}

static bool begins(const buf *b, const char *word)
{
    return b->len <= strlen(word) && memcmp(buf_str(b), word, b->len) == 0;
}

static reply_step info_step(reply_parser *p, unsigned char c)
{
    if (c == '\n' && p->word.len > 0) {
        if (p->word.len == strlen(TOOL_CODE)) {
            p->state = AT_STATEMENT;
            return STEP_MORE;
        }
        if (p->word.len == strlen(JSON)) {
            p->state = AT_JSON;
            return STEP_MORE;
        }
    }
    if (c != '\n' && reply_is_space(c)) {
        return STEP_MORE;
    }
    if (c != '\n' && c != '`' && reply_keep_name(p, &p->word, c) &&
        (begins(&p->word, TOOL_CODE) || begins(&p->word, JSON))) {
        return STEP_MORE;
    }
    return ordinary(p);
}

static bool any_call(const reply_parser *p)
{
    return p->n_begun > p->block_first;
}

static reply_step end_fence(reply_parser *p, unsigned char c)
{
    p->state = IN_FENCE;
    reply_step step = reply_match(p, fence, c, NULL);
    if (step == STEP_DONE && !any_call(p)) {
        return STEP_FAIL;
    }
    return step == STEP_FAIL ? ordinary(p) : step;
}

static reply_step code_step(reply_parser *p, unsigned char c)
{
    reply_step step;
    switch (p->state) {
    case IN_COMMENT:
        p->state = c == '\n' ? AT_STATEMENT : IN_COMMENT;
        return STEP_MORE;
    case IN_CALL:
        step = pycall_push(p, c);
        if (step == STEP_DONE) {
            p->state = BEHIND_CALL;
            return STEP_MORE;
        }
        return step == STEP_FAIL ? ordinary(p) : step;
    default:
        break;
    }
    if (c == '\n' || c == ';') {
        p->state = AT_STATEMENT;
        return STEP_MORE;
    }
    if (reply_is_space(c)) {
        return STEP_MORE;
    }
    if (c == '#') {
        p->state = IN_COMMENT;
        return STEP_MORE;
    }
    if (c == '`') {
        return end_fence(p, c);
    }
    if (p->state != AT_STATEMENT) {
        return ordinary(p);
    }
    pycall_begin(p, false);
    p->state = IN_CALL;
    return pycall_push(p, c) == STEP_MORE ? STEP_MORE : ordinary(p);
}

static reply_step json_step(reply_parser *p, unsigned char c)
{
    if (p->state == IN_JSON) {
        reply_step step = envelope_push(p, c);
        if (step == STEP_DONE) {
            p->state = BEHIND_JSON;
            return STEP_MORE;
        }
        return step == STEP_MORE ? step : ordinary(p);
    }
    if (reply_is_space(c)) {
        return STEP_MORE;
    }
    if (p->state == BEHIND_JSON) {
        return end_fence(p, c);
    }
    if (c != '{') {
        return ordinary(p);
    }
    envelope_begin(p, true);
    p->state = IN_JSON;
    return envelope_push(p, c);
}

static reply_step list_step(reply_parser *p, unsigned char c)
{
    if (p->state == IN_LIST_CALL) {
        reply_step step = pycall_push(p, c);
        if (step == STEP_DONE) {
            p->state = BEHIND_LIST_CALL;
            return STEP_MORE;
        }
        return step;
    }
    if (reply_is_space(c)) {
        return STEP_MORE;
    }
    if (c == ']' && p->state != AT_FIRST) {
        return STEP_DONE;
    }
    if (p->state == BEHIND_LIST_CALL) {
        p->state = AT_NEXT;
        return c == ',' ? STEP_MORE : STEP_FAIL;
    }
    pycall_begin(p, false);
    p->state = IN_LIST_CALL;
    return pycall_push(p, c);
}

static reply_step gemma_step(reply_parser *p, unsigned char c)
{
    switch (p->state) {
    case IN_INFO:
        return info_step(p, c);
    case AT_STATEMENT:
    case IN_COMMENT:
    case IN_CALL:
    case BEHIND_CALL:
        return code_step(p, c);
    case AT_JSON:
    case IN_JSON:
    case BEHIND_JSON:
        return json_step(p, c);
    case IN_FENCE:
        return end_fence(p, c);
    default:
        return list_step(p, c);
    }
}

static reply_stop gemma_end(reply_parser *p, bool cut)
{
    switch (p->state) {
    case IN_INFO:
    case AT_JSON:
    case AT_FIRST:
        return STOP_TEXT;
    case IN_JSON:
        return cut || p->env.has_name ? STOP_IN_CALL : STOP_TEXT;
    case IN_LIST_CALL:
        if (pycall_called(p)) {
            return STOP_CALLED;
        }
        return p->named || any_call(p) ? STOP_IN_CALL : STOP_TEXT;
    case IN_CALL:
        return pycall_called(p) ? STOP_CALLED : STOP_IN_CALL;
    case AT_NEXT:
        return STOP_IN_CALL;
    default:
        return any_call(p) ? STOP_CALLED : STOP_IN_CALL;
    }
}

const reply_family tool_gemma = {openers, false, gemma_open, gemma_step, gemma_end};
