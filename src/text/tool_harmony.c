/*
 * gpt-oss: messages, each a header and a body. The prompt ends with <|start|>assistant.
 *
 *     <|channel|>analysis<|message|>reasoning<|end|>
 *     <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
 *     <|start|>assistant<|channel|>final<|message|>content<|return|>
 *
 * The recipient may also stand in the role's part ("assistant to=functions.f<|channel|>...").
 */
#include <string.h>

#include "text/reply_parser_int.h"

#define START "<|start|>"

/* What ends the body of a message, also of one that is content or reasoning. */
static const char *const openers[] = {START, "<|end|>", "<|return|>", "<|call|>", NULL};
static const char *const in_header[] = {"<|channel|>", "<|constrain|>", "<|message|>", NULL};
static const char *const between[] = {START, "<|channel|>", "<|end|>", "<|return|>", "<|call|>", NULL};

enum { IN_HEADER, AT_ARGS, IN_ARGS, AT_END, BETWEEN };

#define CHANNEL    '\1' /* in `word`, the header's text: its markers */
#define CONSTRAIN  '\2'
#define MAX_HEADER (2 * REPLY_MAX_NAME)

static void begin_header(reply_parser *p, bool role)
{
    p->state = IN_HEADER;
    p->tagged = role;
    p->in_message = false;
    buf_reset(&p->word);
}

static void end_message(reply_parser *p, size_t marker)
{
    bool start = marker == 0;
    p->in_message = false;
    p->state = BETWEEN;
    reply_confirm(p, start ? START : "");
    if (start) {
        begin_header(p, true);
    }
}

static reply_step harmony_open(reply_parser *p, size_t opener)
{
    if (opener == REPLY_AT_START) {
        begin_header(p, false);
    } else {
        end_message(p, opener);
    }
    return STEP_MORE;
}

/* The word at s, up to a blank or marker. */
static size_t word_len(const char *s)
{
    size_t n = 0;
    while ((unsigned char)s[n] > ' ') {
        n++;
    }
    return n;
}

/* "to=NAME" in the header: the name without "functions.", or NULL. */
static const char *recipient(const reply_parser *p, size_t *len)
{
    static const char space[] = "functions.";
    const char *head = buf_str(&p->word), *to = strstr(head, "to=");
    if (!to || (to > head && (unsigned char)to[-1] > ' ')) {
        return NULL;
    }
    to += 3;
    *len = word_len(to);
    if (*len >= sizeof space - 1 && memcmp(to, space, sizeof space - 1) == 0) {
        to += sizeof space - 1;
        *len -= sizeof space - 1;
    }
    return to;
}

static reply_step end_header(reply_parser *p)
{
    static const char analysis[] = "analysis";
    const char *channel = memchr(buf_str(&p->word), CHANNEL, p->word.len);
    size_t len = 0;
    const char *name = p->opt.no_calls ? NULL : recipient(p, &len);
    p->in_message = true;
    if (name && len > 0) {
        reply_call_named(p, name, len);
        reply_confirm(p, "");
        arguments_begin(p);
        p->state = AT_ARGS;
        return STEP_MORE;
    }
    len = channel ? word_len(channel + 1) : 0;
    bool reasons = len == sizeof analysis - 1 && memcmp(channel + 1, analysis, len) == 0;
    return reasons ? STEP_REASONING : STEP_DONE;
}

static reply_step header_step(reply_parser *p, unsigned char c)
{
    size_t which = 0;
    if (p->n_mark > 0 || c == '<') {
        reply_step step = reply_match(p, in_header, c, &which);
        if (step != STEP_DONE) {
            return step;
        }
        if (which == 2) {
            return end_header(p);
        }
        char mark = which == 0 ? CHANNEL : CONSTRAIN;
        reply_keep(p, &p->word, &mark, 1);
        return STEP_MORE;
    }
    if (c < ' ' || p->word.len >= MAX_HEADER) {
        return STEP_FAIL;
    }
    reply_keep(p, &p->word, &c, 1);
    if (!p->tagged && p->word.data && p->word.data[0] != CHANNEL) { /* the role's part: only its rest */
        static const char rest[] = " to=";
        size_t n = p->word.len < sizeof rest - 1 ? p->word.len : sizeof rest - 1;
        return memcmp(p->word.data, rest, n) == 0 ? STEP_MORE : STEP_FAIL;
    }
    return STEP_MORE;
}

static reply_step between_step(reply_parser *p, unsigned char c)
{
    size_t which = 0;
    if (p->n_mark == 0 && reply_is_space(c)) {
        return STEP_MORE;
    }
    reply_step step = reply_match(p, between, c, &which);
    if (step != STEP_DONE) {
        return step;
    }
    if (which == 1) {
        char mark = CHANNEL;
        begin_header(p, false);
        reply_keep(p, &p->word, &mark, 1);
        return STEP_MORE;
    }
    end_message(p, which);
    return STEP_MORE;
}

static reply_step harmony_step(reply_parser *p, unsigned char c)
{
    size_t which = 0;
    reply_step step;
    switch (p->state) {
    case IN_HEADER:
        return header_step(p, c);
    case AT_ARGS:
        if (reply_is_space(c)) {
            return STEP_MORE;
        }
        p->state = IN_ARGS;
        return c == '{' ? arguments_push(p, c) : STEP_FAIL;
    case IN_ARGS:
        step = arguments_push(p, c);
        if (step == STEP_DONE) {
            p->state = AT_END;
            return STEP_MORE;
        }
        return step;
    case AT_END:
        if (p->n_mark == 0 && reply_is_space(c)) {
            return STEP_MORE;
        }
        step = reply_match(p, openers, c, &which);
        if (step == STEP_DONE) {
            end_message(p, which);
            return STEP_MORE;
        }
        return step;
    default:
        return between_step(p, c);
    }
}

static reply_stop harmony_end(reply_parser *p, bool cut)
{
    size_t len = 0;
    const char *name;
    switch (p->state) {
    case IN_HEADER:
        if (p->block.len == 0) {
            return STOP_CALLED;
        }
        name = p->opt.no_calls ? NULL : recipient(p, &len);
        if (name && len > 0 && (name[len] || p->n_mark > 0)) { /* something stands behind it */
            reply_call_named(p, name, len);
        }
        return name ? STOP_IN_CALL : STOP_IN_MESSAGE;
    case AT_END:
    case BETWEEN:
        return STOP_CALLED;
    default:
        return STOP_IN_CALL;
    }
}

const reply_family tool_harmony = {openers, true, harmony_open, harmony_step, harmony_end};
