#include "text/reply_parser.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/reply_parser_int.h"

static const reply_family *const families[] = {
    [REPLY_NONE] = NULL,
    [REPLY_HERMES] = &tool_hermes,
    [REPLY_QWEN3_CODER] = &tool_qwen3_coder,
    [REPLY_LLAMA3_JSON] = &tool_llama3,
    [REPLY_LLAMA3_PYTHON_TAG] = &tool_llama3,
    [REPLY_MISTRAL] = &tool_mistral,
    [REPLY_DEEPSEEK] = &tool_deepseek,
    [REPLY_HARMONY] = &tool_harmony,
    [REPLY_GEMMA] = &tool_gemma,
    [REPLY_FUNCTIONARY_V3_2] = &tool_functionary_v3_2,
    [REPLY_FUNCTIONARY_V3_1] = &tool_functionary_v3_1,
};

static const char *const no_openers[] = {NULL};

/* Events. */

static void send(reply_parser *p, const reply_event *ev)
{
    if (p->st == ST_OK) {
        p->st = p->sink(p->ctx, ev);
    }
}

static void flush(reply_parser *p)
{
    if (p->delta.len > 0) {
        send(p, &(reply_event){.kind = (reply_event_kind)p->delta_kind,
                               .call = p->n_begun - 1,
                               .text = p->delta.data,
                               .len = p->delta.len});
        buf_reset(&p->delta);
    }
}

static void add(reply_parser *p, reply_event_kind kind, const char *text, size_t len)
{
    if (p->delta_kind != (uint8_t)kind) {
        flush(p);
        p->delta_kind = (uint8_t)kind;
    }
    reply_keep(p, &p->delta, text, len);
}

static void send_call(reply_parser *p, reply_event_kind kind, int call)
{
    flush(p);
    reply_event ev = {.kind = kind, .call = call};
    if (kind != REPLY_CALL_WITHDRAWN) {
        ev.text = buf_str(&p->name);
        ev.len = p->name.len;
        ev.id = p->id.len > 0 ? p->id.data : NULL;
        ev.id_len = p->id.len;
    }
    send(p, &ev);
}

/* Content and reasoning. */

static void flow_put(reply_parser *p, reply_flow *f, reply_event_kind kind, unsigned char c)
{
    if (reply_is_space(c)) {
        if (f->in_stretch) {
            reply_keep(p, &f->space, &c, 1);
        }
        return;
    }
    if (!f->in_stretch && f->any) {
        add(p, kind, "\n", 1);
    }
    f->in_stretch = f->any = true;
    if (f->space.len > 0) {
        add(p, kind, f->space.data, f->space.len);
        buf_reset(&f->space);
    }
    add(p, kind, (const char *)&c, 1);
}

static void flow_end(reply_flow *f)
{
    f->in_stretch = false;
    buf_reset(&f->space);
}

static void put_content(reply_parser *p, unsigned char c)
{
    p->last = c;
    p->line_start = c == '\n' || (p->line_start && reply_is_space(c));
    p->call_closed = p->call_closed && reply_is_space(c);
    flow_put(p, &p->content, REPLY_CONTENT, c);
}

static void put_reasoning(reply_parser *p, unsigned char c)
{
    if (p->may_reopen && !reply_is_space(c)) {
        p->may_reopen = false;
        p->think_markers[1] = NULL;
    }
    flow_put(p, &p->reasoning, REPLY_REASONING, c);
}

/* What the forms use. */

void reply_keep(reply_parser *p, buf *b, const void *data, size_t n)
{
    if (p->st == ST_OK) {
        p->st = buf_append(b, data, n);
    }
}

bool reply_keep_name(reply_parser *p, buf *b, unsigned char c)
{
    reply_keep(p, b, &c, 1);
    return b->len <= REPLY_MAX_NAME;
}

/* The first literal that begins with the mark, or NULL. */
static const char *const *candidate(const reply_parser *p, const char *const *literals)
{
    for (; *literals; literals++) {
        if (strncmp(*literals, p->mark, p->n_mark) == 0) {
            return literals;
        }
    }
    return NULL;
}

reply_step reply_match(reply_parser *p, const char *const *literals, unsigned char c, size_t *which)
{
    p->mark[p->n_mark++] = (char)c;
    const char *const *hit = candidate(p, literals);
    if (!hit || (*hit)[p->n_mark] == 0) {
        p->n_mark = 0;
    }
    if (hit && p->n_mark == 0 && which) {
        *which = (size_t)(hit - literals);
    }
    return !hit ? STEP_FAIL : p->n_mark == 0 ? STEP_DONE : STEP_MORE;
}

bool reply_search(reply_parser *p, const char *const *markers, unsigned char c, reply_put put, size_t *which)
{
    p->mark[p->n_mark++] = (char)c;
    while (p->n_mark > 0) {
        const char *const *hit = candidate(p, markers);
        if (hit && (*hit)[p->n_mark] == 0) {
            p->n_mark = 0;
            *which = (size_t)(hit - markers);
            return true;
        }
        if (hit) {
            break;
        }
        put(p, (unsigned char)p->mark[0]);
        p->n_mark--;
        memmove(p->mark, p->mark + 1, p->n_mark);
    }
    return false;
}

void reply_search_end(reply_parser *p, reply_put put)
{
    for (size_t i = 0; i < p->n_mark; i++) {
        put(p, (unsigned char)p->mark[i]);
    }
    p->n_mark = 0;
}

void reply_set_openers(reply_parser *p, const char *const *openers)
{
    size_t n = 0;
    for (; openers[n]; n++) {
        p->text_markers[n] = openers[n];
    }
    p->n_openers = n;
    if (p->closers == p->think_markers) {
        p->text_markers[n++] = p->opt.format.think_open;
    }
    assert(n < sizeof p->text_markers / sizeof *p->text_markers);
    p->text_markers[n] = NULL;
}

void reply_call_named(reply_parser *p, const char *name, size_t len)
{
    buf_reset(&p->name);
    reply_keep(p, &p->name, name, len);
    p->named = true;
    p->call_closed = false;
}

static void begin_call(reply_parser *p)
{
    if (!p->begun) {
        flush(p);
        p->begun = true;
        p->n_begun++;
        send_call(p, REPLY_CALL_BEGIN, p->n_begun - 1);
    }
}

void reply_call_args(reply_parser *p, const char *text, size_t len)
{
    begin_call(p);
    add(p, REPLY_CALL_ARGS, text, len);
}

void reply_call_arg_string(reply_parser *p, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char letter[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    char out[2] = {(char)c}, escape[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    size_t n = 1;
    if (c == '"' || c == '\\') {
        out[0] = '\\';
        out[n++] = (char)c;
    } else if (c < sizeof letter && letter[c]) {
        out[0] = '\\';
        out[n++] = letter[c];
    } else if (c < 0x20) {
        reply_call_args(p, escape, sizeof escape);
        return;
    }
    reply_call_args(p, out, n);
}

void reply_call_drop(reply_parser *p)
{
    p->named = p->begun = false;
    buf_reset(&p->name);
    buf_reset(&p->id);
}

void reply_call_end(reply_parser *p)
{
    begin_call(p);
    send_call(p, REPLY_CALL_END, p->n_begun - 1);
    p->n_complete++;
    p->block_ended++;
    reply_call_drop(p);
}

static void begin_block(reply_parser *p, const char *text)
{
    buf_reset(&p->block);
    reply_keep(p, &p->block, text, strlen(text));
    p->block_first = p->n_begun;
    p->block_ended = 0;
    p->n_mark = 0;
}

void reply_confirm(reply_parser *p, const char *text)
{
    p->call_closed = p->block_ended > 0;
    p->last = 0;
    p->line_start = true;
    flow_end(&p->content);
    begin_block(p, text);
}

void reply_withdraw(reply_parser *p)
{
    for (int call = p->block_first; call < p->n_begun; call++) {
        send_call(p, REPLY_CALL_WITHDRAWN, call);
    }
    p->n_complete -= p->block_ended;
    p->block_first = p->n_begun;
    p->block_ended = 0;
    reply_call_drop(p);
}

/* The machine. */

static void block_is_text(reply_parser *p)
{
    reply_withdraw(p);
    p->n_mark = 0;
    for (size_t i = 0; i < p->block.len; i++) {
        put_content(p, (unsigned char)p->block.data[i]);
    }
    buf_reset(&p->block);
}

/* What a step says, but for STEP_MORE and the byte itself. */
static void settle(reply_parser *p, reply_step step)
{
    switch (step) {
    case STEP_MORE:
        break;
    case STEP_FAIL:
        p->mode = MODE_TEXT;
        block_is_text(p);
        break;
    case STEP_CONTENT:
        block_is_text(p);
        break;
    case STEP_DONE:
    case STEP_REASONING:
        p->mode = step == STEP_REASONING ? MODE_REASONING : MODE_TEXT;
        reply_confirm(p, "");
        reply_call_drop(p);
        break;
    }
}

static void open_block(reply_parser *p, const char *marker, size_t opener)
{
    p->mode = MODE_CALL;
    p->call_closed = false;
    begin_block(p, marker);
    settle(p, p->family->open(p, opener));
}

/* The bytes that broke a call are looked at again as text: c, and before it those of the literal that did not
 * come to its end, which may begin a marker. */
static void look_again(reply_parser *p, unsigned char c, size_t n_literal)
{
    size_t len = p->block.len;
    assert(n_literal < len && p->n_again + n_literal < sizeof p->again);
    p->again[p->n_again++] = (char)c;
    for (size_t i = 0; i < n_literal; i++) {
        p->again[p->n_again++] = p->block.data[len - 2 - i];
    }
    buf_truncate(&p->block, len - 1 - n_literal);
}

static void look_in_call(reply_parser *p, unsigned char c)
{
    reply_keep(p, &p->block, &c, 1);
    if (p->st != ST_OK) {
        return;
    }
    size_t n_literal = p->n_mark;
    reply_step step = p->family->step(p, c);
    if (p->st != ST_OK) {
        return;
    }
    if (step == STEP_FAIL) {
        look_again(p, c, n_literal);
    }
    settle(p, step);
}

static void look(reply_parser *p, unsigned char c)
{
    size_t which;
    switch (p->mode) {
    case MODE_TEXT:
        if (!reply_search(p, p->text_markers, c, put_content, &which)) {
            return;
        }
        if (which < p->n_openers) {
            open_block(p, p->text_markers[which], which);
        } else {
            p->mode = MODE_REASONING;
            reply_confirm(p, "");
        }
        break;
    case MODE_REASONING:
        if (!reply_search(p, p->closers, c, put_reasoning, &which)) {
            return;
        }
        if (p->closers != p->think_markers) {
            flow_end(&p->reasoning);
            open_block(p, p->closers[which], which);
        } else if (which == 0) {
            flow_end(&p->reasoning);
            p->mode = MODE_TEXT;
            if (p->family && p->family->from_start && !p->content.any && p->n_begun == 0) {
                open_block(p, "", REPLY_AT_START);
            }
        }
        break;
    default:
        look_in_call(p, c);
    }
}

status reply_parser_new(const reply_options *o, reply_sink sink, void *ctx, reply_parser **out)
{
    reply_parser *p = mem_calloc(1, sizeof *p);
    if (!p) {
        return ST_NOMEM;
    }
    p->opt = *o;
    p->sink = sink;
    p->ctx = ctx;
    p->line_start = true;
    p->family = families[o->format.style];
    if (o->no_calls && p->family && !p->family->from_start) {
        p->family = NULL;
    }
    p->think_markers[0] = o->format.think_close;
    p->closers = p->think_markers;
    if (p->family == &tool_harmony) {
        p->closers = tool_harmony.openers;
    } else if (o->reasoning_open) {
        p->think_markers[1] = o->format.think_open;
        p->may_reopen = true;
    }
    reply_set_openers(p, p->family ? p->family->openers : no_openers);
    if (o->reasoning_open) {
        p->mode = MODE_REASONING;
        p->in_message = p->family == &tool_harmony;
    } else if (p->family && p->family->from_start) {
        open_block(p, "", REPLY_AT_START);
    }
    if (p->st != ST_OK) {
        reply_parser_free(p);
        return ST_NOMEM;
    }
    *out = p;
    return ST_OK;
}

void reply_parser_free(reply_parser *p)
{
    if (!p) {
        return;
    }
    buf *const owned[] = {
        &p->content.space, &p->reasoning.space, &p->delta,      &p->block,    &p->name,     &p->id,
        &p->word,          &p->value,           &p->code_space, &p->env.text, &p->env.args, &p->py.word,
        &p->py.value.out};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
        buf_release(owned[i]);
    }
    mem_free(p);
}

status reply_parser_push(reply_parser *p, const char *text, size_t len)
{
    for (size_t i = 0; i < len && p->st == ST_OK; i++) {
        p->again[p->n_again++] = text[i];
        while (p->n_again > 0 && p->st == ST_OK) {
            look(p, (unsigned char)p->again[--p->n_again]);
        }
    }
    flush(p);
    return p->st;
}

status reply_parser_finish(reply_parser *p, bool cut, reply_end *out)
{
    reply_stop stop = p->in_message ? STOP_IN_MESSAGE : STOP_CALLED;
    switch (p->mode) {
    case MODE_TEXT:
        reply_search_end(p, put_content);
        break;
    case MODE_REASONING:
        reply_search_end(p, put_reasoning);
        stop = STOP_IN_MESSAGE;
        break;
    default:
        stop = p->family->end(p, cut);
        if (stop == STOP_TEXT) {
            settle(p, STEP_FAIL);
        } else if (stop == STOP_CALLED) {
            settle(p, STEP_DONE);
        }
    }
    flush(p);
    bool named = stop == STOP_IN_CALL && p->named;
    *out = (reply_end){.complete = !cut && stop != STOP_IN_CALL && stop != STOP_IN_MESSAGE,
                       .in_call = stop == STOP_IN_CALL,
                       .call_name = named ? p->name.data : NULL,
                       .call_name_len = named ? p->name.len : 0};
    return p->st;
}

status reply_parser_give_up(reply_parser *p)
{
    if (p->mode == MODE_CALL && p->block_ended == 0) {
        settle(p, STEP_FAIL);
    } else if (p->mode == MODE_CALL && p->begun) {
        send_call(p, REPLY_CALL_WITHDRAWN, p->n_begun - 1);
        reply_call_drop(p);
    }
    flush(p);
    return p->st;
}

bool reply_parser_in_reasoning(const reply_parser *p)
{
    return p->mode == MODE_REASONING;
}

int reply_parser_calls(const reply_parser *p)
{
    return p->n_complete;
}

bool reply_parser_call_closed(const reply_parser *p)
{
    return p->call_closed;
}
