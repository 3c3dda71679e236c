#include "worker/talk.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "text/reply_parser.h"

#define CALL_ID_DIGITS 24

struct talk {
    talk_options o;
    /* owned */
    reply_parser *parser;
    /* The delta that is not said yet. */
    bool waiting;
    frame_delta_kind kind;
    int32_t call;
    bool closed, withdrawn;
    bool begins;        /* id and name are said with it */
    buf text, id, name; /* content, reasoning or arguments */

    bool was_reasoning;
    bool closing; /* the closing text was forced for the reasoning that is open */
    bool ended;   /* the parser is finished */
    bool over;    /* a second call begins where only one may be */
    bool cut;     /* something cut it */
    int32_t reasoning_tokens;
    size_t n_shown; /* bytes of text so far */
};

/*
 * Deltas
 */
static frame_step step_of(const talk *t)
{
    frame_step s = {.kind = t->kind, .text = {buf_str(&t->text), t->text.len}};
    if (t->kind == FRAME_DELTA_CALL) {
        s.call = (frame_call){
            .index = t->call, .arguments = s.text, .closed = t->closed, .withdrawn = t->withdrawn};
        s.text = (wire_string){"", 0};
        if (t->begins) {
            s.call.id = (wire_string){buf_str(&t->id), t->id.len};
            s.call.name = (wire_string){buf_str(&t->name), t->name.len};
        }
    }
    return s;
}

static void clear(talk *t)
{
    t->waiting = t->closed = t->withdrawn = t->begins = false;
    buf_reset(&t->text);
}

void talk_say_rest(talk *t)
{
    if (t->waiting) {
        frame_step s = step_of(t);
        t->o.say(t->o.ctx, &s);
        clear(t);
    }
}

void talk_say_ids(talk *t, const frame_step *ids)
{
    if (!t->waiting) {
        t->kind =
            !t->ended && reply_parser_in_reasoning(t->parser) ? FRAME_DELTA_REASONING : FRAME_DELTA_CONTENT;
    }
    frame_step s = step_of(t);
    s.ids = ids->ids;
    s.n_ids = ids->n_ids;
    s.logprobs = ids->logprobs;
    t->o.say(t->o.ctx, &s);
    clear(t);
}

/* A delta of this kind is to be added to what waits. */
static void begin(talk *t, frame_delta_kind kind, int32_t call)
{
    bool same = t->waiting && t->kind == kind && !t->closed && !t->withdrawn &&
                (kind != FRAME_DELTA_CALL || t->call == call);
    if (!same) {
        talk_say_rest(t);
        t->waiting = true;
        t->kind = kind;
        t->call = call;
    }
}

/*
 * Calls
 */
/* call_ and 24 hex digits of SHA-256 over the request's id, a zero byte and the index in decimal. */
static status put_call_id(const talk *t, int32_t index, buf *out)
{
    char number[16], hex[SHA256_HEX_LEN + 1];
    uint8_t sum[SHA256_BYTES];
    sha256 *h = NULL;
    wire_string id = t->o.request->id;
    snprintf(number, sizeof number, "%d", (int)index);
    status st = sha256_new(&h);
    st = st == ST_OK ? sha256_update(h, id.data, id.len) : st;
    st = st == ST_OK ? sha256_update(h, "", 1) : st;
    st = st == ST_OK ? sha256_update(h, number, strlen(number)) : st;
    st = st == ST_OK ? sha256_final(h, sum) : st;
    sha256_free(h);
    if (st != ST_OK) {
        return st;
    }
    hex_encode(sum, sizeof sum, hex);
    st = buf_append_str(out, "call_");
    return st == ST_OK ? buf_append(out, hex, CALL_ID_DIGITS) : st;
}

static status begin_call(talk *t, const reply_event *ev)
{
    begin(t, FRAME_DELTA_CALL, ev->call);
    t->begins = true;
    buf_reset(&t->id);
    buf_reset(&t->name);
    status st =
        ev->id && ev->id_len > 0 ? buf_append(&t->id, ev->id, ev->id_len) : put_call_id(t, ev->call, &t->id);
    return st == ST_OK ? buf_append(&t->name, ev->text, ev->len) : st;
}

static status on_event(void *ctx, const reply_event *ev)
{
    talk *t = ctx;
    bool content = ev->kind == REPLY_CONTENT || ev->kind == REPLY_REASONING;
    if (!content && ev->call > 0 && !t->o.request->parallel_tool_calls) {
        t->over = true;
    }
    if (t->over) {
        return ST_OK; /* the reply has ended before this */
    }
    switch (ev->kind) {
    case REPLY_CONTENT:
        begin(t, FRAME_DELTA_CONTENT, 0);
        return buf_append(&t->text, ev->text, ev->len);
    case REPLY_REASONING:
        begin(t, FRAME_DELTA_REASONING, 0);
        return buf_append(&t->text, ev->text, ev->len);
    case REPLY_CALL_BEGIN:
        return begin_call(t, ev);
    case REPLY_CALL_ARGS:
        begin(t, FRAME_DELTA_CALL, ev->call);
        return buf_append(&t->text, ev->text, ev->len);
    case REPLY_CALL_END:
        begin(t, FRAME_DELTA_CALL, ev->call);
        t->closed = true;
        return ST_OK;
    case REPLY_CALL_WITHDRAWN:
        talk_say_rest(t);
        begin(t, FRAME_DELTA_CALL, ev->call);
        t->withdrawn = true;
        return ST_OK;
    }
    return ST_OK;
}

/*
 * The watcher
 */
/* The text is over. A call that it ends in was cut; one that nothing cut was none (FAILURES S3). */
static status finish(reply_parser *p, bool cut)
{
    reply_end end;
    status st = reply_parser_finish(p, cut, &end);
    return st == ST_OK && end.in_call && !cut ? reply_parser_give_up(p) : st;
}

/* After the parser has seen what there is: forces the end of reasoning, if it is due. */
static void keep_budget(talk *t, gen_verdict *v)
{
    bool reasoning = reply_parser_in_reasoning(t->parser);
    if (!reasoning) {
        t->closing = false;
    } else if (!t->closing && t->o.budget >= 0 && t->reasoning_tokens >= t->o.budget && v->n_force == 0) {
        v->force = t->o.close_ids->data;
        v->n_force = t->o.close_ids->len;
        t->closing = true;
    }
    t->was_reasoning = reasoning;
}

static void judge(talk *t, gen_verdict *v)
{
    int calls = reply_parser_calls(t->parser);
    v->n_tool_calls = calls;
    if (!t->o.request->parallel_tool_calls && calls > 0) {
        v->tool_calls_closed = t->over || reply_parser_call_closed(t->parser);
        v->n_tool_calls = 1;
    }
}

status talk_watch(talk *t, gen_moment when, const char *text, size_t len, gen_verdict *v)
{
    status st = ST_OK;
    t->n_shown += len;
    t->cut = when == GEN_CUT;
    switch (when) {
    case GEN_BEGINS:
        st = reply_parser_push(t->parser, buf_str(t->o.opening), t->o.opening->len);
        break;
    case GEN_TOKEN:
        st = reply_parser_push(t->parser, text, len);
        if (st == ST_OK && !t->closing) {
            t->reasoning_tokens += t->was_reasoning && reply_parser_in_reasoning(t->parser);
        }
        break;
    case GEN_ENDS:
    case GEN_CUT:
        if (!t->over) {
            st = reply_parser_push(t->parser, text, len);
            st = st == ST_OK ? finish(t->parser, when == GEN_CUT) : st;
        }
        t->ended = true;
        break;
    }
    if (st == ST_OK && !t->over) {
        judge(t, v);
    } else if (st == ST_OK) {
        v->tool_calls_closed = true;
    }
    if (st == ST_OK && !t->ended) {
        keep_budget(t, v);
    }
    return st;
}

int32_t talk_reasoning_tokens(const talk *t)
{
    return t->reasoning_tokens;
}

static status open_parser(const talk_options *o, reply_sink sink, void *ctx, reply_parser **out)
{
    const wire_request *r = o->request;
    reply_options p = {.format = *o->format,
                       .tools = r->tools,
                       .no_calls = !r->tools || r->tool_choice == WIRE_TOOLS_NONE,
                       .reasoning_open = o->reasoning_open};
    return reply_parser_new(&p, sink, ctx, out);
}

status talk_new(const talk_options *o, talk **out)
{
    talk *t = mem_calloc(1, sizeof *t);
    if (!t) {
        return ST_NOMEM;
    }
    t->o = *o;
    t->was_reasoning = o->reasoning_open;
    status st = open_parser(o, on_event, t, &t->parser);
    if (st != ST_OK) {
        talk_free(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void talk_free(talk *t)
{
    if (t) {
        reply_parser_free(t->parser);
        buf_release(&t->text);
        buf_release(&t->id);
        buf_release(&t->name);
        mem_free(t);
    }
}

/*
 * Keeping
 */
typedef struct teller {
    const talk *t;
    recall_told told;
    size_t cap; /* of told.calls */
    bool over;
} teller;

static recall_call *call_of(teller *r, int index)
{
    recall_told *told = &r->told;
    size_t n = (size_t)index + 1; /* they come in order, none is left out */
    if (n > r->cap) {
        size_t cap = 2 * n;
        recall_call *more = mem_realloc(told->calls, cap * sizeof *more);
        if (!more) {
            return NULL;
        }
        memset(more + r->cap, 0, (cap - r->cap) * sizeof *more);
        told->calls = more;
        r->cap = cap;
    }
    told->n_calls = n > told->n_calls ? n : told->n_calls;
    return &told->calls[index];
}

/* What on_event says, at once. */
static status on_told(void *ctx, const reply_event *ev)
{
    teller *r = ctx;
    bool content = ev->kind == REPLY_CONTENT || ev->kind == REPLY_REASONING;
    r->over = r->over || (!content && ev->call > 0 && !r->t->o.request->parallel_tool_calls);
    if (r->over) {
        return ST_OK;
    }
    if (content) {
        return buf_append(ev->kind == REPLY_CONTENT ? &r->told.content : &r->told.reasoning, ev->text,
                          ev->len);
    }
    recall_call *c = call_of(r, ev->call);
    if (!c) {
        return ST_NOMEM;
    }
    switch (ev->kind) {
    case REPLY_CALL_BEGIN:
        return buf_append(&c->name, ev->text, ev->len);
    case REPLY_CALL_ARGS:
        return buf_append(&c->arguments, ev->text, ev->len);
    case REPLY_CALL_WITHDRAWN:
        c->withdrawn = true;
        return ST_OK;
    default:
        return ST_OK;
    }
}

static status tell_again(teller *r, const buf *text)
{
    const talk_options *o = &r->t->o;
    reply_parser *p = NULL;
    status st = open_parser(o, on_told, r, &p);
    st = st == ST_OK ? reply_parser_push(p, buf_str(o->opening), o->opening->len) : st;
    st = st == ST_OK ? reply_parser_push(p, buf_str(text), text->len) : st;
    st = st == ST_OK ? finish(p, r->t->cut) : st;
    reply_parser_free(p);
    return st;
}

status talk_keep(const talk *t, const tokenizer *tok, const recall *before, const int32_t *ids, size_t n_ids)
{
    teller r = {.t = t};
    buf text = {0};
    status st = recall_text(tok, ids, n_ids, t->n_shown, &text);
    st = st == ST_OK ? tell_again(&r, &text) : st;
    st = st == ST_OK ? recall_keep(before, tok, ids, n_ids, &text, &r.told) : st;
    recall_told_release(&r.told);
    buf_release(&text);
    return st;
}
