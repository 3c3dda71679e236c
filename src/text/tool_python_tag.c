/*
 * What Llama 3 and functionary write behind <|python_tag|>: NAME.call(...), a call as JSON, or else code for the
 * tool `python`, up to the end. And the JSON calls of Llama 3 that stand in the text, joined by semicolons.
 */
#include <string.h>

#include "text/reply_parser_int.h"

#define TAG_LEN  (sizeof "<|python_tag|>" - 1)
#define CALL     ".call"
#define CALL_LEN (sizeof CALL - 1)

enum {
    AT_BODY = REPLY_PYTHON_TAG,
    IN_NAME,
    IN_CALL,
    IN_TAG_OBJECT,
    IN_CODE,
    IN_OBJECT, /* one that stands in the text */
    IN_OTHER,  /* an object that is no call: text, up to its end */
    BEHIND_CALL
};

void code_begin(reply_parser *p)
{
    reply_withdraw(p);
    reply_confirm(p, "");
    reply_call_named(p, "python", 6);
    p->code_begun = false;
    buf_reset(&p->code_space);
}

static void code_open(reply_parser *p)
{
    static const char head[] = "{\"code\": \"";
    if (!p->code_begun) {
        reply_call_args(p, head, sizeof head - 1);
        p->code_begun = true;
    }
}

/* Trimmed as content is. */
void code_put(reply_parser *p, unsigned char c)
{
    if (reply_is_space(c)) {
        if (p->code_begun) {
            reply_keep(p, &p->code_space, &c, 1);
        }
        return;
    }
    code_open(p);
    for (size_t i = 0; i < p->code_space.len; i++) {
        reply_call_arg_string(p, (unsigned char)p->code_space.data[i]);
    }
    buf_reset(&p->code_space);
    reply_call_arg_string(p, c);
}

void code_end(reply_parser *p)
{
    code_open(p);
    reply_call_args(p, "\"}", 2);
    reply_call_end(p);
}

void python_tag_begin(reply_parser *p)
{
    p->state = AT_BODY;
    p->tagged = true;
    p->behind_tag = true;
    buf_reset(&p->word);
}

/* No call after all: the block behind the tag is code. */
static reply_step is_code(reply_parser *p)
{
    if (!p->tagged) {
        return STEP_FAIL;
    }
    buf_reset(&p->value);
    if (p->block.len > TAG_LEN) {
        reply_keep(p, &p->value, p->block.data + TAG_LEN, p->block.len - TAG_LEN);
    }
    code_begin(p);
    for (size_t i = 0; i < p->value.len; i++) {
        code_put(p, (unsigned char)p->value.data[i]);
    }
    buf_reset(&p->value);
    p->state = IN_CODE;
    return STEP_MORE;
}

static reply_step behind_call(reply_parser *p)
{
    reply_confirm(p, "");
    p->tagged = false;
    p->state = BEHIND_CALL;
    return STEP_MORE;
}

reply_step bare_json_begin(reply_parser *p)
{
    p->state = IN_OBJECT;
    p->tagged = false;
    envelope_begin(p, true);
    return envelope_push(p, '{');
}

static reply_step object_step(reply_parser *p, unsigned char c)
{
    reply_step step = envelope_push(p, c);
    bool begun = p->n_begun > p->block_first;
    if (step == STEP_DONE) {
        return behind_call(p);
    }
    if (step == STEP_MORE) {
        return step;
    }
    if (p->state == IN_TAG_OBJECT) { /* broken behind its name and arguments it was meant as a call */
        return begun ? STEP_FAIL : is_code(p);
    }
    if (step == STEP_CONTENT) {
        p->state = IN_OTHER;
        p->mode = p->env.scan.state == JSON_SCAN_END ? MODE_TEXT : MODE_CALL;
    }
    return step;
}

static reply_step other_step(reply_parser *p, unsigned char c)
{
    json_scan_result r = json_scan_push(&p->env.scan, c);
    if (r == JSON_SCAN_DONE) {
        p->mode = MODE_TEXT;
    }
    return r == JSON_SCAN_BAD ? STEP_FAIL : STEP_CONTENT;
}

static reply_step name_step(reply_parser *p, unsigned char c)
{
    if (reply_is_word(c) || c == '.') {
        return reply_keep_name(p, &p->word, c) ? STEP_MORE : is_code(p);
    }
    size_t len = p->word.len;
    if (c != '(' || len <= CALL_LEN || memcmp(p->word.data + len - CALL_LEN, CALL, CALL_LEN) != 0) {
        return is_code(p);
    }
    reply_call_named(p, p->word.data, len - CALL_LEN);
    pycall_begin(p, true);
    p->state = IN_CALL;
    return STEP_MORE;
}

/* At the body's first character, or at that of another call. */
static reply_step first_step(reply_parser *p, unsigned char c)
{
    if (c == '{') {
        if (!p->tagged) {
            return bare_json_begin(p);
        }
        envelope_begin(p, true);
        p->state = IN_TAG_OBJECT;
        return envelope_push(p, c);
    }
    buf_reset(&p->word);
    p->state = IN_NAME;
    return p->behind_tag ? name_step(p, c) : STEP_FAIL;
}

reply_step python_tag_step(reply_parser *p, unsigned char c)
{
    reply_step step;
    switch (p->state) {
    case IN_NAME:
        return name_step(p, c);
    case IN_CALL:
        step = pycall_push(p, c);
        return step == STEP_DONE ? behind_call(p) : step == STEP_FAIL ? is_code(p) : step;
    case IN_TAG_OBJECT:
    case IN_OBJECT:
        return object_step(p, c);
    case IN_CODE:
        code_put(p, c);
        buf_reset(&p->block);
        return STEP_MORE;
    case IN_OTHER:
        return other_step(p, c);
    default:
        if (reply_is_space(c)) {
            return STEP_MORE;
        }
        if (c == ';' && p->state == BEHIND_CALL && !memchr(buf_str(&p->block), ';', p->block.len - 1)) {
            return STEP_MORE;
        }
        return first_step(p, c);
    }
}

reply_stop python_tag_end(reply_parser *p, bool cut)
{
    switch (p->state) {
    case IN_NAME:
        if (!p->tagged) {
            return STOP_TEXT;
        }
        if (cut) {
            return STOP_IN_CALL;
        }
        is_code(p);
        code_end(p);
        return STOP_CALLED;
    case IN_CODE:
        if (cut) {
            return STOP_IN_CALL;
        }
        code_end(p);
        return STOP_CALLED;
    case IN_OBJECT: /* what has not come to its name may be any object */
        return cut || p->env.has_name ? STOP_IN_CALL : STOP_TEXT;
    case IN_OTHER:
    case BEHIND_CALL:
        return STOP_CALLED;
    default:
        return STOP_IN_CALL;
    }
}
