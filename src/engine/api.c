/*
 * The public library: include/hearth.h over instance and engine.
 */
#include <hearth.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "engine/instance.h"
#include "text/chat_template.h"
#include "text/chatml.h"

#define DEFAULT_SESSIONS 8
#define MAX_SESSIONS     1024
#define CHAT_CHUNK       4096
#define MAX_TIMEOUT_S    1e9 /* 30 years: longer is none */

#define SAME(name) \
    _Static_assert((int)HEARTH_##name == (int)ST_##name, "hearth_status and status must agree on " #name)
SAME(OK);
SAME(NOMEM);
SAME(IO);
SAME(INTERNAL);
SAME(INVALID_FIELD);
SAME(CONTEXT_LENGTH);
SAME(UNSUPPORTED);
SAME(NEVER_FITS);
SAME(CAPACITY);
SAME(LOAD_FAILED);
SAME(MODEL_CHANGED);
SAME(NONFINITE);
SAME(NOT_FOUND);
#undef SAME

struct hearth_model {
    instance *in;
    int32_t max_sessions;
    int32_t n_sessions;
    bool generating; /* a reply runs: callbacks must not start another */
};

struct hearth_session {
    /* owned */
    session *s;
    buf text;
    ivec ids;
    ivec prompt;
    ivec chat; /* what hearth_chat_ids gave last */
    /* borrowed */
    hearth_model *model;
    /* Set with release by hearth_cancel in any thread, read with acquire by the engine. */
    atomic_bool cancel;
};

/* Only what the header lists leaves the library. */
static hearth_status public_status(status st)
{
    switch (st) {
    case ST_OK:
    case ST_NOMEM:
    case ST_IO:
    case ST_INVALID_FIELD:
    case ST_CONTEXT_LENGTH:
    case ST_UNSUPPORTED:
    case ST_NEVER_FITS:
    case ST_CAPACITY:
    case ST_LOAD_FAILED:
    case ST_MODEL_CHANGED:
    case ST_NONFINITE:
    case ST_NOT_FOUND:
        return (hearth_status)st;
    default:
        return HEARTH_INTERNAL;
    }
}

/* Fills as much of the caller's struct as its header knew. src begins with a size too. */
static void give_struct(void *dst, const void *src, size_t full)
{
    size_t n = *(const size_t *)dst;
    n = n < full ? n : full;
    if (n > sizeof(size_t)) {
        memcpy((char *)dst + sizeof(size_t), (const char *)src + sizeof(size_t), n - sizeof(size_t));
    }
}

/* dst holds the defaults; src, from a header of the same age or older, replaces what it has. */
static status take_struct(void *dst, const void *src, size_t full, err *e)
{
    size_t n = *(const size_t *)src;
    if (n < sizeof(size_t) || n > full) {
        return err_set(e, ST_INVALID_FIELD, "size",
                       "options of %zu bytes, this library knows %zu: use the *_INIT macro of its hearth.h",
                       n, full);
    }
    memcpy(dst, src, n);
    return ST_OK;
}

static hearth_status report(hearth_error *out, status st, const err *e)
{
    if (st == ST_OK || !out) {
        return public_status(st);
    }
    hearth_error he = HEARTH_ERROR_INIT;
    _Static_assert(sizeof he.field == sizeof e->field && sizeof he.message == sizeof e->msg, "copied whole");
    he.code = public_status(st);
    he.offset = e->offset;
    memcpy(he.field, e->field, sizeof he.field);
    memcpy(he.message, e->msg, sizeof he.message);
    give_struct(out, &he, sizeof he);
    return he.code;
}

/* Models */

static status model_options_read(const hearth_model_options *o, instance_options *io, err *e)
{
    status st = ST_OK;
    if (o->threads < 0) {
        return err_set(e, ST_INVALID_FIELD, "threads", "%d threads", (int)o->threads);
    }
    if (o->max_sessions < 0 || o->max_sessions > MAX_SESSIONS) {
        return err_set(e, ST_INVALID_FIELD, "max_sessions", "%d sessions, 0 to %d are possible",
                       (int)o->max_sessions, MAX_SESSIONS);
    }
    if (o->cpu) {
        st = kern_set_parse(o->cpu, &io->cpu, e);
    }
    if (st == ST_OK && o->kv_type) {
        st = kv_type_parse(o->kv_type, &io->kv_type, e);
    }
    io->threads = (size_t)o->threads;
    io->context = o->context;
    io->max_sequences = o->max_sessions ? (size_t)o->max_sessions : DEFAULT_SESSIONS;
    io->progress = o->progress;
    io->progress_ctx = o->progress_ctx;
    io->pack_dir = o->pack_dir;
    io->huge_pages = o->huge_pages != 0;
    return st;
}

hearth_status hearth_model_open(const char *path, const hearth_model_options *options, hearth_model **out,
                                hearth_error *error)
{
    hearth_model_options o = HEARTH_MODEL_OPTIONS_INIT;
    instance_options io = instance_options_default();
    err e;
    err_clear(&e);
    status st = path ? ST_OK : err_set(&e, ST_INVALID_FIELD, "path", "no path");
    if (st == ST_OK && options) {
        st = take_struct(&o, options, sizeof o, &e);
    }
    if (st == ST_OK) {
        st = model_options_read(&o, &io, &e);
    }
    hearth_model *m = NULL;
    if (st == ST_OK) {
        m = mem_calloc(1, sizeof *m);
        st = m ? instance_open(path, &io, &m->in, &e)
               : err_set(&e, ST_NOMEM, NULL, "out of memory for a model");
    }
    if (st != ST_OK || !m) {
        mem_free(m);
        return report(error, st, &e);
    }
    m->max_sessions = (int32_t)io.max_sequences;
    *out = m;
    return HEARTH_OK;
}

void hearth_model_close(hearth_model *model)
{
    if (model) {
        instance_close(model->in);
        mem_free(model);
    }
}

void hearth_model_info_get(const hearth_model *model, hearth_model_info *info)
{
    const instance_info *i = instance_describe(model->in);
    hearth_model_info mi = HEARTH_MODEL_INFO_INIT;
    mi.arch = i->arch;
    mi.name = i->name;
    mi.quant = i->quant;
    mi.kernels = i->kernels;
    mi.params = i->params;
    mi.bytes_per_token = i->bytes_per_token;
    mi.context = i->context;
    mi.vocab = i->n_vocab;
    mi.threads = (int32_t)i->threads;
    mi.has_chat_template = i->chat_template[0] != '\0';
    mi.speaks_chatml =
        strstr(i->chat_template, CHATML_START) != NULL && chatml_known(instance_tokenizer(model->in));
    give_struct(info, &mi, sizeof mi);
}

/* Sessions */

hearth_status hearth_session_open(hearth_model *model, hearth_session **out, hearth_error *error)
{
    err e;
    err_clear(&e);
    if (model->n_sessions >= model->max_sessions) {
        status st =
            err_set(&e, ST_CAPACITY, "max_sessions", "all %d sessions are open", (int)model->max_sessions);
        return report(error, st, &e);
    }
    hearth_session *hs = mem_calloc(1, sizeof *hs);
    if (!hs || session_open(instance_engine(model->in), &hs->s) != ST_OK) {
        mem_free(hs);
        return report(error, err_set(&e, ST_NOMEM, NULL, "out of memory for a session"), &e);
    }
    hs->model = model;
    model->n_sessions++;
    *out = hs;
    return HEARTH_OK;
}

void hearth_session_close(hearth_session *hs)
{
    if (!hs) {
        return;
    }
    hs->model->n_sessions--;
    session_close(hs->s);
    buf_release(&hs->text);
    ivec_release(&hs->ids);
    ivec_release(&hs->prompt);
    ivec_release(&hs->chat);
    mem_free(hs);
}

hearth_status hearth_session_reset(hearth_session *hs, hearth_error *error)
{
    err e;
    err_clear(&e);
    status st = ST_OK;
    if (hs->model->generating) {
        st = err_set(&e, ST_INVALID_FIELD, "session", "a reply is running on this model");
    } else {
        st = session_reset(hs->s);
    }
    return report(error, st, &e);
}

/* Chatting */

static bool role_known(const char *role)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; role && i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(role, roles[i]) == 0) {
            return true;
        }
    }
    return false;
}

static status read_messages(const hearth_message *m, size_t n, arena *mem, chatml_message **out, err *e)
{
    chatml_message *list = arena_alloc_array(mem, n, sizeof *list);
    if (!list) {
        return err_set(e, ST_NOMEM, "messages", "out of memory for %zu messages", n);
    }
    for (size_t i = 0; i < n; i++) {
        if (!m[i].content) {
            return err_set(e, ST_INVALID_FIELD, "messages", "message %zu has no content", i);
        }
        if (!role_known(m[i].role)) {
            return err_set(e, ST_INVALID_FIELD, "messages",
                           "message %zu has the role '%.32s': it must be system, user or assistant", i,
                           m[i].role ? m[i].role : "");
        }
        size_t len = m[i].content_len == SIZE_MAX ? strlen(m[i].content) : m[i].content_len;
        list[i] = (chatml_message){m[i].role, strlen(m[i].role), m[i].content, len};
    }
    *out = list;
    return ST_OK;
}

static status chat_ids(hearth_session *hs, const hearth_message *m, size_t n, unsigned flags, arena *mem,
                       err *e)
{
    const tokenizer *tok = instance_tokenizer(hs->model->in);
    chatml_message *list = NULL;
    const chatml_segment *segments = NULL;
    size_t n_segments = 0;
    if (!chatml_known(tok)) {
        return err_set(e, ST_UNSUPPORTED, "tokenizer.ggml.tokens",
                       "the vocabulary has no " CHATML_START " and " CHATML_END
                       ": there is no layout for a chat with this model");
    }
    status st = read_messages(m, n, mem, &list, e);
    if (st != ST_OK) {
        return st;
    }
    st = chatml_render(list, n, flags, mem, &segments, &n_segments);
    if (st == ST_OK) {
        ivec_reset(&hs->chat);
        st = chatml_encode(tok, segments, n_segments, &hs->chat);
    }
    return st == ST_OK ? ST_OK : err_set(e, st, "messages", "out of memory for %zu messages", n);
}

hearth_status hearth_chat_ids(hearth_session *hs, const hearth_message *messages, size_t n_messages,
                              bool follows_reply, const int32_t **ids, size_t *n_ids, hearth_error *error)
{
    err e;
    arena mem;
    err_clear(&e);
    arena_init(&mem, CHAT_CHUNK);
    unsigned flags = CHATML_GENERATION_PROMPT | (follows_reply ? CHATML_CLOSES_REPLY : 0u);
    status st = chat_ids(hs, messages, n_messages, flags, &mem, &e);
    arena_release(&mem);
    if (st == ST_OK) {
        *ids = hs->chat.data;
        *n_ids = hs->chat.len;
    }
    return report(error, st, &e);
}

static status messages_json(const chatml_message *m, size_t n, json_doc **out)
{
    buf text = {0};
    json_w w;
    json_w_begin(&w, &text);
    json_w_arr_open(&w);
    for (size_t i = 0; i < n; i++) {
        json_w_obj_open(&w);
        json_w_key(&w, "role");
        json_w_str(&w, m[i].role, m[i].role_len);
        json_w_key(&w, "content");
        json_w_str(&w, m[i].content, m[i].content_len);
        json_w_obj_close(&w);
    }
    json_w_arr_close(&w);
    status st = json_w_end(&w);
    st = st == ST_OK ? json_parse(buf_str(&text), text.len, JSON_MAX_DEPTH, out, NULL) : st;
    buf_release(&text);
    return st;
}

static status template_ids(hearth_session *hs, const chatml_message *m, size_t n, const char *source, err *e)
{
    json_doc *doc = NULL;
    chat_template *t = NULL;
    chat_text text = {0};
    const char *own = instance_describe(hs->model->in)->chat_template;
    const char *used = source ? source : own;
    status st = chat_template_new(used, strlen(used), instance_tokenizer(hs->model->in), &t, e);
    if (st == ST_OK) {
        st = messages_json(m, n, &doc);
    }
    if (st == ST_OK) {
        chat_input in = {.messages = json_root(doc), .now_s = clock_wall_ms(clock_system()) / 1000};
        st = chat_template_render(t, &in, &text, e);
    }
    if (st == ST_OK) {
        ivec_reset(&hs->chat);
        st = chat_template_encode(t, &text, &hs->chat);
    }
    if (st == ST_OK && hs->chat.len == 0) { /* no ids would mean: the prompt is the text */
        st = err_set(e, ST_TEMPLATE, "messages", "the chat template gives an empty prompt");
    }
    chat_text_release(&text);
    json_doc_free(doc);
    chat_template_free(t);
    if (st == ST_TEMPLATE) { /* no word of the public list */
        e->code = st = ST_UNSUPPORTED;
    }
    return st == ST_OK || st == ST_UNSUPPORTED
               ? st
               : err_set(e, st, "messages", "out of memory for %zu messages", n);
}

hearth_status hearth_template_ids(hearth_session *hs, const hearth_message *messages, size_t n_messages,
                                  const char *source, const int32_t **ids, size_t *n_ids, hearth_error *error)
{
    err e;
    arena mem;
    chatml_message *list = NULL;
    err_clear(&e);
    arena_init(&mem, CHAT_CHUNK);
    status st = n_messages > 0 ? read_messages(messages, n_messages, &mem, &list, &e)
                               : err_set(&e, ST_INVALID_FIELD, "messages", "no messages");
    if (st == ST_OK && list) {
        st = template_ids(hs, list, n_messages, source, &e);
    }
    arena_release(&mem);
    if (st == ST_OK) {
        *ids = hs->chat.data;
        *n_ids = hs->chat.len;
    }
    return report(error, st, &e);
}

/* Generating */

typedef struct reply {
    hearth_session *hs;
    sequence *seq;
    hearth_token_fn fn;
    void *ctx;
    hearth_result result;
    bool over;
    status st;
    err e;
} reply;

/* Keeps the text and hands it on. A failure here ends the reply, and hearth_generate reports it. */
static void show(reply *r, const hearth_token *t)
{
    if (buf_append(&r->hs->text, t->text, t->text_len) != ST_OK) {
        r->st = err_set(&r->e, ST_NOMEM, NULL, "out of memory for the text of a reply");
    }
    bool go_on = r->st == ST_OK && (!r->fn || r->fn(r->ctx, t));
    if (!go_on && t->id >= 0) {
        seq_cancel(r->seq);
    }
}

static void on_token(void *ctx, const gen_token *t)
{
    int32_t ids[SAMPLER_MAX_TOP_LOGPROBS];
    float logprobs[SAMPLER_MAX_TOP_LOGPROBS];
    hearth_token ht = {.id = t->token, .text = t->text, .text_len = t->text_len, .logprob = NAN};
    if (t->probs) {
        ht.logprob = t->probs->chosen.logprob;
        ht.n_top = t->probs->n_top;
        for (int32_t i = 0; i < ht.n_top; i++) {
            ids[i] = t->probs->top[i].token;
            logprobs[i] = t->probs->top[i].logprob;
        }
    }
    ht.top_ids = ids;
    ht.top_logprobs = logprobs;
    show(ctx, &ht);
}

static void on_done(void *ctx, const gen_result *g)
{
    reply *r = ctx;
    if (g->tail_text_len > 0) {
        hearth_token tail = {.id = -1, .text = g->tail_text, .text_len = g->tail_text_len, .logprob = NAN};
        show(r, &tail);
    }
    if (ivec_append(&r->hs->ids, g->ids, g->n_ids) != ST_OK) {
        r->st = err_set(&r->e, ST_NOMEM, NULL, "out of memory for the ids of a reply");
    }
    r->result.finish_reason = finish_name(g->reason);
    r->result.reused_tokens = g->reused_tokens;
    r->result.seed = g->seed;
    r->result.prefill_ms = g->prefill_ms;
    r->result.decode_ms = g->decode_ms;
    r->result.total_ms = g->total_ms;
    r->result.ttft_ms = g->ttft_ms;
    r->over = true;
}

static void on_failed(void *ctx, const err *e)
{
    reply *r = ctx;
    r->st = e->code;
    r->e = *e;
    r->over = true;
}

static status read_prompt(hearth_session *hs, const hearth_generate_options *o, err *e)
{
    ivec_reset(&hs->prompt);
    if (o->n_prompt_ids > 0) {
        if (!o->prompt_ids) {
            return err_set(e, ST_INVALID_FIELD, "prompt_ids", "%zu ids at NULL", o->n_prompt_ids);
        }
        status st = ivec_append(&hs->prompt, o->prompt_ids, o->n_prompt_ids);
        return st == ST_OK ? ST_OK
                           : err_set(e, st, NULL, "out of memory for a prompt of %zu ids", o->n_prompt_ids);
    }
    if (!o->prompt) {
        return err_set(e, ST_INVALID_FIELD, "prompt", "there is neither a text nor ids");
    }
    size_t len = o->prompt_len == SIZE_MAX ? strlen(o->prompt) : o->prompt_len;
    unsigned flags = o->no_special ? TOKENIZE_NO_PREFIX : TOKENIZE_ADD_SPECIAL;
    flags |= o->no_parse_special ? 0 : TOKENIZE_PARSE_SPECIAL;
    status st = tokenizer_encode(instance_tokenizer(hs->model->in), o->prompt, len, flags, &hs->prompt);
    return st == ST_OK ? ST_OK : err_set(e, st, "prompt", "a prompt of %zu bytes cannot be tokenised", len);
}

static int compare_bias(const void *a, const void *b)
{
    int32_t x = ((const logit_bias *)a)->token, y = ((const logit_bias *)b)->token;
    return (x > y) - (x < y);
}

/* *bias is owned by the caller on success. */
static status read_bias(const hearth_generate_options *o, logit_bias **bias, err *e)
{
    logit_bias *b = NULL;
    if (o->n_logit_bias > SAMPLER_MAX_BIAS || (o->n_logit_bias > 0 && !o->logit_bias)) {
        return err_set(e, ST_INVALID_FIELD, "logit_bias", "%zu entries%s, up to %u are possible",
                       o->n_logit_bias, o->logit_bias ? "" : " at NULL", SAMPLER_MAX_BIAS);
    }
    if (o->n_logit_bias > 0) {
        b = mem_alloc_array(o->n_logit_bias, sizeof *b);
        if (!b) {
            return err_set(e, ST_NOMEM, NULL, "out of memory for the logit bias");
        }
        for (size_t i = 0; i < o->n_logit_bias; i++) {
            b[i] = (logit_bias){o->logit_bias[i].token, o->logit_bias[i].bias};
        }
        qsort(b, o->n_logit_bias, sizeof *b, compare_bias);
    }
    *bias = b;
    return ST_OK;
}

static status read_stops(const hearth_generate_options *o, stop_set **out, err *e)
{
    if (o->n_stop == 0) {
        return ST_OK;
    }
    if (o->n_stop > STOP_MAX_STRINGS || !o->stop) {
        return err_set(e, ST_INVALID_FIELD, "stop", "%zu strings%s, up to %u are possible", o->n_stop,
                       o->stop ? "" : " at NULL", STOP_MAX_STRINGS);
    }
    stop_string *list = mem_alloc_array(o->n_stop, sizeof *list);
    if (!list) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the stop strings");
    }
    status st = ST_OK;
    for (size_t i = 0; i < o->n_stop && st == ST_OK; i++) {
        if (!o->stop[i]) {
            st = err_set(e, ST_INVALID_FIELD, "stop", "stop string %zu is NULL", i);
        } else {
            list[i] = (stop_string){o->stop[i], strlen(o->stop[i])};
        }
    }
    if (st == ST_OK) {
        st = stop_set_new(list, o->n_stop, out, e);
    }
    mem_free(list);
    return st;
}

static status read_deadline(const hearth_generate_options *o, uint64_t *deadline_ns, err *e)
{
    if (!(o->timeout_s >= 0)) {
        return err_set(e, ST_INVALID_FIELD, "timeout_s", "a timeout of %g seconds", o->timeout_s);
    }
    *deadline_ns = 0;
    if (o->timeout_s > 0 && o->timeout_s < MAX_TIMEOUT_S) {
        *deadline_ns = clock_mono_ns(clock_system()) + (uint64_t)(o->timeout_s * 1e9);
    }
    return ST_OK;
}

static status draw_seed(uint64_t *seed, err *e)
{
    while (*seed == 0) {
        if (getrandom(seed, sizeof *seed, 0) != (ssize_t)sizeof *seed) {
            return err_set(e, ST_IO, "seed", "the system gives no random number");
        }
        *seed >>= 1; /* below 2^63: what the wire and the APIs can carry */
    }
    return ST_OK;
}

static sampling read_sampling(const hearth_generate_options *o)
{
    sampling s = sampling_default();
    s.temperature = o->temperature;
    s.top_k = o->top_k;
    s.top_p = o->top_p;
    s.min_p = o->min_p;
    s.repetition_penalty = o->repetition_penalty;
    s.presence_penalty = o->presence_penalty;
    s.frequency_penalty = o->frequency_penalty;
    s.repeat_last_n = o->repeat_last_n;
    s.min_tokens = o->min_tokens;
    s.ignore_eos = o->ignore_eos;
    s.seed = o->seed;
    s.n_bias = o->n_logit_bias;
    s.top_logprobs = o->top_logprobs;
    return s;
}

/* From options to a sequence in the engine. */
static status start(reply *r, const hearth_generate_options *o)
{
    hearth_session *hs = r->hs;
    logit_bias *bias = NULL;
    gen_request q = {.max_new_tokens = o->max_tokens, .session = hs->s, .cancel = &hs->cancel};
    q.params = read_sampling(o);
    q.sink = (gen_sink){.ctx = r, .token = on_token, .done = on_done, .failed = on_failed};
    status st = read_prompt(hs, o, &r->e);
    if (st == ST_OK) {
        st = read_bias(o, &bias, &r->e);
    }
    if (st == ST_OK) {
        st = read_stops(o, &q.stops, &r->e);
    }
    if (st == ST_OK) {
        st = read_deadline(o, &q.deadline_ns, &r->e);
    }
    if (st == ST_OK) {
        st = draw_seed(&q.params.seed, &r->e);
    }
    if (st == ST_OK) {
        q.prompt = hs->prompt.data;
        q.n_prompt = hs->prompt.len;
        q.params.bias = bias;
        st = engine_submit(instance_engine(hs->model->in), &q, &r->seq, &r->e);
    }
    if (st != ST_OK) {
        stop_set_free(q.stops);
    }
    mem_free(bias);
    return st;
}

static status run(reply *r, const hearth_generate_options *o)
{
    hearth_session *hs = r->hs;
    buf_reset(&hs->text);
    ivec_reset(&hs->ids);
    /* A cancel before this moment was for the reply before. */
    atomic_store_explicit(&hs->cancel, false, memory_order_relaxed);
    status st = start(r, o);
    if (st != ST_OK) {
        return st;
    }
    hs->model->generating = true;
    while (!r->over) {
        engine_step(instance_engine(hs->model->in));
    }
    hs->model->generating = false;
    return r->st;
}

static void fill_result(reply *r, hearth_result *out)
{
    const hearth_session *hs = r->hs;
    r->result.text = buf_str(&hs->text);
    r->result.text_len = hs->text.len;
    r->result.ids = hs->ids.data;
    r->result.n_ids = hs->ids.len;
    r->result.prompt_ids = hs->prompt.data;
    r->result.n_prompt_ids = hs->prompt.len;
    give_struct(out, &r->result, sizeof r->result);
}

hearth_status hearth_generate(hearth_session *hs, const hearth_generate_options *options,
                              hearth_token_fn token_fn, void *ctx, hearth_result *result, hearth_error *error)
{
    hearth_generate_options o = HEARTH_GENERATE_OPTIONS_INIT;
    reply r = {.hs = hs, .fn = token_fn, .ctx = ctx, .result = HEARTH_RESULT_INIT};
    err_clear(&r.e);
    status st = take_struct(&o, options, sizeof o, &r.e);
    if (st == ST_OK && hs->model->generating) {
        st = err_set(&r.e, ST_INVALID_FIELD, "session", "a reply is running on this model");
    }
    if (st == ST_OK) {
        st = run(&r, &o);
    }
    if (st == ST_OK && result) {
        fill_result(&r, result);
    }
    return report(error, st, &r.e);
}

void hearth_cancel(hearth_session *hs)
{
    atomic_store_explicit(&hs->cancel, true, memory_order_release);
}

void hearth_stats_get(const hearth_model *model, hearth_stats *stats)
{
    engine_stats es;
    hearth_stats out = HEARTH_STATS_INIT;
    engine_stats_read(instance_engine(model->in), &es);
    out.steps = es.steps;
    out.tokens_prefilled = es.tokens_prefilled;
    out.tokens_generated = es.tokens_generated;
    out.tokens_reused = es.tokens_reused;
    out.requests_done = es.requests_done;
    out.requests_failed = es.requests_failed;
    out.requests_cancelled = es.requests_cancelled;
    out.kv_pages_total = es.pages_total;
    out.kv_pages_used = es.pages_used;
    give_struct(stats, &out, sizeof out);
}

const char *hearth_version(void)
{
    return HEARTH_VERSION;
}

const char *hearth_status_text(hearth_status code)
{
    return status_text((status)code);
}
