#include "text/chat_template.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/chatml.h"
#include "text/jinja.h"

/* chatml.h's layout; what it renders is tested to be the same. */
static const char builtin_source[] =
    "{% for message in messages %}" CHATML_START "{{ message.role }}\n{{ message.content or '' }}" CHATML_END
    "\n{% endfor %}{% if add_generation_prompt %}" CHATML_START "assistant\n{% endif %}";

struct chat_template {
    jinja_template *jinja; /* owned */
    const tokenizer *tok;  /* borrowed */
    reply_format format;
    bool builtin;
    bool knows_tools;      /* its source speaks of them */
    bool knows_parts;      /* it takes lists of content parts apart itself */
    const char *reasoning; /* the member of a message in which it looks for reasoning; NULL: in none */
};

static bool has(const char *text, size_t len, const char *word)
{
    return memmem(text, len, word, strlen(word)) != NULL;
}

static bool has_any(const char *text, size_t len, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (has(text, len, words[i])) {
            return true;
        }
    }
    return false;
}

/* A loop over the content, and the type of its parts. */
static bool takes_parts(const char *source, size_t len)
{
    static const char *const loops[] = {" in message['content']", " in message[\"content\"]",
                                        " in message.content",    " in content",
                                        " in msg.content",        " in m.content",
                                        " in msg['content']"};
    static const char *const types[] = {"'text'", "\"text\""};
    return has_any(source, len, loops, sizeof loops / sizeof *loops) &&
           has_any(source, len, types, sizeof types / sizeof *types);
}

/* By what its source spells. */
static const char *reasoning_member(const char *source, size_t len)
{
    static const char *const thinking[] = {"message.thinking", "message['thinking']",
                                           "message[\"thinking\"]"};
    static const char *const reasoning[] = {"message.reasoning", "message['reasoning']",
                                            "message[\"reasoning\"]"};
    if (has(source, len, "reasoning_content")) {
        return "reasoning_content";
    }
    if (has_any(source, len, thinking, sizeof thinking / sizeof *thinking)) {
        return "thinking";
    }
    return has_any(source, len, reasoning, sizeof reasoning / sizeof *reasoning) ? "reasoning" : NULL;
}

status chat_template_new(const char *source, size_t len, const tokenizer *tok, chat_template **out, err *e)
{
    chat_template *t = mem_calloc(1, sizeof *t);
    if (!t) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the chat template");
    }
    t->tok = tok;
    t->builtin = !source || len == 0;
    if (t->builtin) {
        source = builtin_source;
        len = sizeof builtin_source - 1;
    }
    t->format = reply_format_detect(source, len);
    t->knows_tools = has(source, len, "tools");
    t->knows_parts = takes_parts(source, len);
    t->reasoning = reasoning_member(source, len);
    status st = jinja_compile(source, len, &t->jinja, e);
    if (st != ST_OK) {
        chat_template_free(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void chat_template_free(chat_template *t)
{
    if (t) {
        jinja_free(t->jinja);
        mem_free(t);
    }
}

bool chat_template_is_builtin(const chat_template *t)
{
    return t->builtin;
}

void chat_template_set_style(chat_template *t, reply_style style)
{
    t->format = reply_format_of(style);
}

const reply_format *chat_template_format(const chat_template *t)
{
    return &t->format;
}

/*
 * Messages as the template gets them
 */
typedef struct rewriter {
    const chat_template *t;
    json_w w;
    const chat_words *reasoning; /* that the message gets; NULL: none */
} rewriter;

static void put_joined_parts(rewriter *r, const json *parts)
{
    buf text = {0};
    for (size_t i = 0; i < json_len(parts); i++) {
        const json *s = NULL;
        size_t len;
        json_get(json_at(parts, i), "text", &s);
        const char *part = json_string(s, &len);
        if (part && r->w.st == ST_OK) {
            r->w.st = buf_append(&text, part, len);
        }
    }
    json_w_str(&r->w, buf_str(&text), text.len);
    buf_release(&text);
}

static void put_content(rewriter *r, const json *v)
{
    if (!v) {
        json_w_cstr(&r->w, "");
    } else if (json_kind(v) == JSON_ARRAY && !r->t->knows_parts) {
        put_joined_parts(r, v);
    } else {
        json_w_json(&r->w, v);
    }
}

static void put_arguments(rewriter *r, const json *v)
{
    size_t len;
    const char *s = json_string(v, &len);
    json_doc *doc = NULL;
    if (s && json_parse(s, len, JSON_MAX_DEPTH / 2, &doc, NULL) == ST_OK &&
        json_kind(json_root(doc)) == JSON_OBJECT) {
        json_w_json(&r->w, json_root(doc));
    } else {
        json_w_json(&r->w, v);
    }
    json_doc_free(doc);
}

static bool put_function_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    rewriter *r = ctx;
    json_w_key(&r->w, key);
    if (strcmp(key, "arguments") == 0) {
        put_arguments(r, v);
    } else {
        json_w_json(&r->w, v);
    }
    return true;
}

static bool put_call_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    rewriter *r = ctx;
    json_w_key(&r->w, key);
    if (strcmp(key, "function") == 0 && json_kind(v) == JSON_OBJECT) {
        json_w_obj_open(&r->w);
        json_each(v, put_function_member, r);
        json_w_obj_close(&r->w);
    } else {
        json_w_json(&r->w, v);
    }
    return true;
}

static void put_calls(rewriter *r, const json *calls)
{
    json_w_arr_open(&r->w);
    for (size_t i = 0; i < json_len(calls); i++) {
        const json *call = json_at(calls, i);
        if (json_kind(call) == JSON_OBJECT) {
            json_w_obj_open(&r->w);
            json_each(call, put_call_member, r);
            json_w_obj_close(&r->w);
        } else {
            json_w_json(&r->w, call);
        }
    }
    json_w_arr_close(&r->w);
}

static bool put_message_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    rewriter *r = ctx;
    if (strcmp(key, "tool_calls") == 0 && json_len(v) == 0) {
        return true; /* null and [] are as good as absent, and templates ask whether it is defined */
    }
    if (r->reasoning && strcmp(key, r->t->reasoning) == 0) {
        return true; /* null; it is put below */
    }
    json_w_key(&r->w, key);
    if (strcmp(key, "content") == 0) {
        put_content(r, v);
    } else if (strcmp(key, "tool_calls") == 0 && json_kind(v) == JSON_ARRAY) {
        put_calls(r, v);
    } else {
        json_w_json(&r->w, v);
    }
    return true;
}

static bool has_reasoning(const json *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const json *v = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (json_get(message, names[i], &v) && v) {
            return true;
        }
    }
    return false;
}

/* words: NULL, or the reasoning for it, if it has none. */
static void put_message(rewriter *r, const json *m, const chat_words *words)
{
    bool gets = words && words->data && r->t->reasoning && !has_reasoning(m);
    r->reasoning = gets ? words : NULL;
    json_w_obj_open(&r->w);
    json_each(m, put_message_member, r);
    if (!json_get(m, "content", NULL)) {
        json_w_key(&r->w, "content");
        json_w_cstr(&r->w, "");
    }
    if (gets) {
        json_w_key(&r->w, r->t->reasoning);
        json_w_str(&r->w, words->data, words->len);
    }
    json_w_obj_close(&r->w);
}

static status rewrite(const chat_template *t, const json *messages, const chat_words *reasoning,
                      json_doc **out, err *e)
{
    buf text = {0};
    rewriter r = {.t = t};
    json_w_begin(&r.w, &text);
    json_w_arr_open(&r.w);
    for (size_t i = 0; i < json_len(messages); i++) {
        put_message(&r, json_at(messages, i), reasoning ? &reasoning[i] : NULL);
    }
    json_w_arr_close(&r.w);
    status st = json_w_end(&r.w);
    if (st == ST_OK) {
        st = json_parse(buf_str(&text), text.len, JSON_MAX_DEPTH, out, e);
    }
    buf_release(&text);
    return st;
}

/*
 * Variables
 */
#define N_FIXED_VARS 8

typedef struct var_list {
    jinja_var *at;
    size_t n;
} var_list;

static bool add_kwarg(void *ctx, const char *key, size_t key_len, const json *v)
{
    var_list *l = ctx;
    l->at[l->n++] = (jinja_var){.name = key, .value = v};
    return true;
}

static void add_text(var_list *l, const char *name, const char *text, size_t len)
{
    l->at[l->n++] = (jinja_var){.name = name, .text = text, .text_len = len, .trusted = true};
}

static void add_token(var_list *l, const char *name, const tokenizer *tok, int32_t id)
{
    size_t len = 0;
    const char *text = id == TOKEN_NONE ? "" : tokenizer_piece(tok, id, &len);
    add_text(l, name, text, len);
}

/* true and false as json; static storage would need a document of its own. */
static status booleans(json_doc **out, err *e)
{
    static const char text[] = "[false,true]";
    return json_parse(text, sizeof text - 1, 2, out, e);
}

static void add_all(var_list *l, const chat_template *t, const chat_input *in, const json *messages,
                    const json *flags, bool generation_prompt)
{
    if (in->thinking != CHAT_UNSAID) {
        const json *on = json_at(flags, in->thinking == CHAT_ON);
        l->at[l->n++] = (jinja_var){.name = "enable_thinking", .value = on};
        l->at[l->n++] = (jinja_var){.name = "thinking", .value = on};
    }
    if (in->effort) {
        add_text(l, "reasoning_effort", in->effort, strlen(in->effort));
    }
    json_each(in->kwargs, add_kwarg, l);
    l->at[l->n++] = (jinja_var){.name = "messages", .value = messages};
    l->at[l->n++] = (jinja_var){.name = "tools", .value = in->tools};
    l->at[l->n++] = (jinja_var){.name = "add_generation_prompt", .value = json_at(flags, generation_prompt)};
    add_token(l, "bos_token", t->tok, tokenizer_bos(t->tok));
    add_token(l, "eos_token", t->tok, tokenizer_eos(t->tok));
}

/*
 * Text
 */
void chat_text_release(chat_text *c)
{
    if (c) {
        buf_release(&c->text);
        mem_free(c->plain);
        memset(c, 0, sizeof *c);
    }
}

/* Takes text and ranges over. */
static status take_output(jinja_output *o, chat_text *out)
{
    special_range *plain = mem_alloc_array(o->n_plain, sizeof *plain);
    if (!plain) {
        return ST_NOMEM;
    }
    for (size_t i = 0; i < o->n_plain; i++) {
        plain[i] = (special_range){o->plain[i].from, o->plain[i].to};
    }
    *out = (chat_text){.text = o->text, .plain = plain, .n_plain = o->n_plain};
    o->text = (buf){0};
    return ST_OK;
}

static void truncate_text(chat_text *c, size_t len)
{
    buf_truncate(&c->text, len);
    while (c->n_plain > 0 && c->plain[c->n_plain - 1].from >= len) {
        c->n_plain--;
    }
    if (c->n_plain > 0 && c->plain[c->n_plain - 1].to > len) {
        c->plain[c->n_plain - 1].to = len;
    }
}

static status append(chat_text *c, const char *text, size_t len, size_t plain_from, size_t plain_to)
{
    size_t at = c->text.len;
    if (plain_to > plain_from) {
        special_range *more = mem_realloc(c->plain, (c->n_plain + 1) * sizeof *more);
        if (!more) {
            return ST_NOMEM;
        }
        c->plain = more;
    }
    status st = buf_append(&c->text, text, len);
    if (st == ST_OK && plain_to > plain_from) {
        c->plain[c->n_plain++] = (special_range){at + plain_from, at + plain_to};
    }
    return st;
}

status chat_text_append(chat_text *c, const char *text, size_t len)
{
    return append(c, text, len, 0, 0);
}

status chat_text_append_named(chat_text *c, const char *text, size_t len, const char *name)
{
    size_t n = strlen(name);
    const char *at = memmem(text, len, name, n);
    size_t from = at ? (size_t)(at - text) : 0;
    return append(c, text, len, from, at ? from + n : len);
}

/*
 * The final message
 */
static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The text of the last message: its content, or the last part of it. */
static const char *final_content(const json *messages, size_t *len)
{
    const json *v = NULL;
    *len = 0;
    json_get(json_at(messages, json_len(messages) - 1), "content", &v);
    if (json_kind(v) == JSON_ARRAY && json_len(v) > 0) {
        const json *part = json_at(v, json_len(v) - 1);
        v = NULL;
        json_get(part, "text", &v);
    }
    return json_string(v, len);
}

/* Where text[0..len) lies last in one plain range of c; SIZE_MAX: nowhere. */
static size_t find_last(const chat_text *c, const char *text, size_t len)
{
    for (size_t i = c->n_plain; i-- > 0;) {
        size_t from = c->plain[i].from, to = c->plain[i].to;
        for (size_t at = to; to - from >= len && at >= from + len; at--) {
            if (memcmp(buf_str(&c->text) + at - len, text, len) == 0) {
                return at - len;
            }
        }
    }
    return SIZE_MAX;
}

/* What transformers does: the text ends behind the content, with the white space at its end where the template
 * keeps that. */
static status cut_behind_final(chat_text *c, const json *messages, err *e)
{
    size_t len;
    const char *s = final_content(messages, &len);
    while (len > 0 && is_space(*s)) {
        s++;
        len--;
    }
    size_t stripped = len;
    while (stripped > 0 && is_space(s[stripped - 1])) {
        stripped--;
    }
    size_t at = find_last(c, s ? s : "", stripped);
    if (at == SIZE_MAX) {
        return err_set(e, ST_TEMPLATE, "continue_final_message",
                       "the chat template does not show the final message as it is: it cannot be continued");
    }
    bool kept = c->text.len - at >= len && memcmp(buf_str(&c->text) + at, s, len) == 0;
    truncate_text(c, at + (kept ? len : stripped));
    return ST_OK;
}

/* An empty one is continued by a reply like any other. */
static bool final_is_empty(const json *messages)
{
    size_t len;
    const char *s = final_content(messages, &len);
    while (len > 0 && is_space(s[len - 1])) {
        len--;
    }
    return len == 0;
}

/*
 * Rendering
 */
#define MAX_SAID 300

/* An error is one line: white space of any kind becomes a single space. */
static void one_line(const buf *text, char out[MAX_SAID + 1])
{
    size_t n = 0;
    for (size_t i = 0; i < text->len && n < MAX_SAID; i++) {
        bool space = is_space(text->data[i]);
        if (!space || (n > 0 && out[n - 1] != ' ')) {
            out[n++] = space ? ' ' : text->data[i];
        }
    }
    n -= utf8_incomplete_tail(out, n);
    while (n > 0 && out[n - 1] == ' ') {
        n--;
    }
    out[n] = '\0';
}

static status say(const jinja_output *o, status st, err *e)
{
    if (st == ST_TEMPLATE) {
        char text[MAX_SAID + 1];
        one_line(&o->error, text);
        return err_set(e, ST_TEMPLATE, "messages", "%s%s", o->raised ? "" : "chat template: ", text);
    }
    return err_set(e, st, NULL, "%s while rendering the chat template", status_text(st));
}

static status render(const chat_template *t, const chat_input *in, const json *messages, bool prompt,
                     chat_text *out, err *e)
{
    jinja_output o = {0};
    jinja_options options = {.now_s = in->now_s};
    json_doc *flags = NULL;
    var_list vars = {mem_alloc_array(json_len(in->kwargs) + N_FIXED_VARS, sizeof(jinja_var)), 0};
    status st = vars.at ? booleans(&flags, e) : ST_NOMEM;
    if (st == ST_OK) {
        add_all(&vars, t, in, messages, json_root(flags), prompt);
        st = jinja_render(t->jinja, vars.at, vars.n, &options, &o, NULL);
    }
    st = st == ST_OK ? take_output(&o, out) : say(&o, st, e);
    jinja_output_release(&o);
    json_doc_free(flags);
    mem_free(vars.at);
    return st;
}

/* The last message alone without its place: [0 … n-1). */
static status without_last(const json *messages, json_doc **out, err *e)
{
    buf text = {0};
    json_w w;
    json_w_begin(&w, &text);
    json_w_arr_open(&w);
    for (size_t i = 0; i + 1 < json_len(messages); i++) {
        json_w_json(&w, json_at(messages, i));
    }
    json_w_arr_close(&w);
    status st = json_w_end(&w);
    st = st == ST_OK ? json_parse(buf_str(&text), text.len, JSON_MAX_DEPTH, out, e) : st;
    buf_release(&text);
    return st;
}

static status lay_out(const chat_template *t, const chat_input *in, chat_text *out, err *e)
{
    json_doc *doc = NULL, *shorter = NULL;
    bool continued = in->continue_final;
    chat_text text = {0};
    status st = rewrite(t, in->messages, in->reasoning, &doc, e);
    const json *messages = st == ST_OK ? json_root(doc) : NULL;
    if (st == ST_OK && continued && final_is_empty(messages)) {
        st = without_last(messages, &shorter, e);
        messages = st == ST_OK ? json_root(shorter) : NULL;
        continued = false;
    }
    if (st == ST_OK) {
        st = render(t, in, messages, !continued, &text, e);
    } else {
        err_set(e, st, NULL, "%s while laying out messages", status_text(st));
    }
    if (st == ST_OK && continued) {
        st = cut_behind_final(&text, messages, e);
    }
    if (st == ST_OK) {
        text.reasoning_open = reply_format_prompt_reasons(&t->format, buf_str(&text.text), text.text.len);
        chat_text_release(out);
        *out = text;
    } else {
        chat_text_release(&text);
    }
    json_doc_free(shorter);
    json_doc_free(doc);
    return st;
}

status chat_template_render(const chat_template *t, const chat_input *in, chat_text *out, err *e)
{
    if (in->tools && !t->knows_tools) {
        return err_set(e, ST_UNSUPPORTED, "tools", "tools: this model's chat template knows none");
    }
    status st = lay_out(t, in, out, e);
    if (st == ST_TEMPLATE && in->reasoning) { /* what the caller's own messages give is what counts */
        chat_input bare = *in;
        bare.reasoning = NULL;
        err_clear(e);
        st = lay_out(t, &bare, out, e);
    }
    return st;
}

/*
 * Ids
 */
/* The plain ranges within [from, to), from 0 on. out: room for all. */
static size_t ranges_within(const chat_text *c, size_t from, size_t to, size_t *next, special_range *out)
{
    size_t n = 0;
    for (; *next < c->n_plain && c->plain[*next].from < to; (*next)++) {
        const special_range *r = &c->plain[*next];
        size_t a = r->from > from ? r->from : from, b = r->to < to ? r->to : to;
        if (a < b) {
            out[n++] = (special_range){a - from, b - from};
        }
        if (r->to > to) {
            break; /* it goes on behind */
        }
    }
    return n;
}

/* A space belongs in front of text that follows a token, not of text that follows text. */
static bool is_text(const tokenizer *tok, int32_t id)
{
    token_kind k = tokenizer_kind(tok, id);
    return k != TOKEN_CONTROL && k != TOKEN_UNKNOWN && k != TOKEN_USER_DEFINED;
}

static status encode(const tokenizer *tok, const chat_text *c, const chat_splice *splices, size_t n,
                     ivec *out)
{
    special_range *ranges = mem_alloc_array(c->n_plain + 1, sizeof *ranges);
    status st = ranges ? ST_OK : ST_NOMEM;
    size_t at = 0, next = 0;
    for (size_t i = 0; st == ST_OK && i <= n; i++) {
        size_t to = i < n ? splices[i].from : c->text.len;
        bool behind_text = at > 0 && out->len > 0 && is_text(tok, out->data[out->len - 1]);
        size_t n_ranges = ranges_within(c, at, to, &next, ranges);
        st = tokenizer_encode_ranges(tok, buf_str(&c->text) + at, to - at, ranges, n_ranges,
                                     behind_text ? TOKENIZE_BEHIND_TEXT : 0, out);
        if (st == ST_OK && i < n) {
            st = ivec_append(out, splices[i].ids, splices[i].n_ids);
            at = splices[i].to;
        }
    }
    mem_free(ranges);
    return st;
}

status chat_template_encode(const chat_template *t, const chat_text *c, ivec *out)
{
    return chat_template_encode_spliced(t, c, NULL, 0, out);
}

status chat_template_encode_spliced(const chat_template *t, const chat_text *c, const chat_splice *splices,
                                    size_t n, ivec *out)
{
    int32_t bos = tokenizer_bos(t->tok);
    ivec ids = {0};
    status st = encode(t->tok, c, splices, n, &ids);
    size_t first = 0;
    while (bos != TOKEN_NONE && first < ids.len && ids.data[first] == bos) {
        first++; /* the template wrote it */
    }
    if (st == ST_OK && (first > 0 || tokenizer_adds_bos(t->tok)) && bos != TOKEN_NONE) {
        st = ivec_push(out, bos);
    }
    if (st == ST_OK) {
        st = ivec_append(out, ids.data + first, ids.len - first);
    }
    ivec_release(&ids);
    return st;
}
