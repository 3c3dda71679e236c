#include "worker/prepare.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "text/detok.h"
#include "wire/frame.h"
#include "wire/line.h"

#define CONTENT_SHARE 4

/*
 * One job
 */
static status draw_seed(uint64_t *seed, err *e)
{
    uint64_t x = 0;
    while (x == 0) { /* 0 would mean "draw one" where it is used again */
        ssize_t n = getrandom(&x, sizeof x, 0);
        if (n < 0 && errno != EINTR) {
            return err_set(e, ST_IO, "seed", "no random seed: %s", strerror(errno));
        }
        x = n == (ssize_t)sizeof x ? x & WIRE_MAX_SEED : 0;
    }
    *seed = x;
    return ST_OK;
}

static status stops_of(const wire_request *r, stop_set **out, err *e)
{
    if (r->n_stops == 0) {
        return ST_OK;
    }
    stop_string *strings = mem_alloc_array(r->n_stops, sizeof *strings);
    if (!strings) {
        return err_set(e, ST_NOMEM, "stop", "out of memory for the stop strings");
    }
    for (size_t i = 0; i < r->n_stops; i++) {
        strings[i] = (stop_string){r->stops[i].data, r->stops[i].len};
    }
    status st = stop_set_new(strings, r->n_stops, out, e);
    mem_free(strings);
    return st;
}

/* Text and ids of a conversation. */
static status lay_out(const prepare_with *with, prepare_job *job)
{
    if (!with->chat) {
        job->error = *with->chat_error;
        return job->error.code;
    }
    return prompt_lay_out(with->chat, with->tok, with->kept, job->request, job->now_ms, &job->talk, &job->ids,
                          &job->error);
}

/* Of the tokens that the reply can have, a quarter and what closes the reasoning stay for content. */
static int32_t budget_of(const prepare_with *with, const prepare_job *job)
{
    const wire_request *r = job->request;
    int64_t room = with->n_ctx - (int64_t)job->ids.len;
    if (r->reasoning_budget < 0) {
        return -1;
    }
    if (r->max_new_tokens >= 0 && r->max_new_tokens < room) {
        room = r->max_new_tokens;
    }
    int64_t most = room - room / CONTENT_SHARE - (int64_t)job->close_ids.len;
    most = most < 0 ? 0 : most;
    return r->reasoning_budget < most ? r->reasoning_budget : (int32_t)most;
}

static status prepare_talk(const prepare_with *with, prepare_job *job)
{
    status st = lay_out(with, job);
    if (st == ST_OK) {
        st = prompt_check_room("messages", job->ids.len, with->n_ctx, &job->error);
    }
    if (st == ST_OK && job->ids.len == 0) {
        st = err_set(&job->error, ST_TEMPLATE, "messages", "the chat template gives an empty prompt");
    }
    if (st != ST_OK) {
        return st;
    }
    const char *close = reply_format_reasoning_end(chat_template_format(with->chat));
    if (tokenizer_encode(with->tok, close, strlen(close), TOKENIZE_PARSE_SPECIAL | TOKENIZE_NO_PREFIX,
                         &job->close_ids) != ST_OK) {
        return err_set(&job->error, ST_NOMEM, NULL, "out of memory for the end of reasoning");
    }
    job->budget = budget_of(with, job);
    return ST_OK;
}

/* The prompt must be the one that the reply began behind. */
static status check_digest(const wire_resume *x, prepare_job *job)
{
    if (!x || strcmp(x->prompt_digest, job->digest) == 0) {
        return ST_OK;
    }
    return err_set(&job->error, ST_RESUME_MISMATCH, "resume.prompt_digest",
                   "the prompt is not the one of the reply: its digest is %s", job->digest);
}

static status prepare_generation(const prepare_with *with, prepare_job *job)
{
    const wire_request *r = job->request;
    bool plain = !r->id.data;
    status st = r->op == WIRE_CHAT ? prepare_talk(with, job)
                                   : prompt_build(with->tok, plain ? with->prefix : NULL, r, with->n_ctx,
                                                  &job->dropped, &job->ids, &job->error);
    if (st == ST_OK) {
        st = stops_of(r, &job->stops, &job->error);
    }
    if (st == ST_OK) {
        job->seed = r->resume ? r->resume->seed : r->seed;
        st = job->seed == 0 ? draw_seed(&job->seed, &job->error) : ST_OK;
    }
    if (st == ST_OK && !plain && frame_prompt_digest(job->ids.data, job->ids.len, job->digest) != ST_OK) {
        st = err_set(&job->error, ST_NOMEM, NULL, "out of memory for the digest of the prompt");
    }
    return st == ST_OK ? check_digest(r->resume, job) : st;
}

static status answer_tokenize(const prepare_with *with, prepare_job *job)
{
    size_t n = job->ids.len;
    wire_string *pieces = mem_alloc_array(n, sizeof *pieces);
    if (!pieces) {
        return ST_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        pieces[i].data = tokenizer_piece(with->tok, job->ids.data[i], &pieces[i].len);
    }
    status st = frame_put_tokens(&job->answer, job->request->id, job->ids.data, pieces, n);
    mem_free(pieces);
    return st;
}

static status answer_detokenize(const prepare_with *with, prepare_job *job)
{
    const wire_request *r = job->request;
    detok d;
    buf text = {0};
    status st = ST_OK;
    detok_init(&d, with->tok);
    for (size_t i = 0; st == ST_OK && i < r->n_ids && text.len <= WIRE_MAX_LINE_BYTES; i++) {
        st = detok_push(&d, r->ids[i], &text);
    }
    if (st == ST_OK) {
        st = detok_flush(&d, &text);
    }
    if (st == ST_OK) {
        st = frame_put_text(&job->answer, r->id, (wire_string){buf_str(&text), text.len});
    }
    buf_release(&text);
    return st;
}

static status put_prepared(const prepare_with *with, prepare_job *job)
{
    const wire_request *r = job->request;
    const buf *text = &job->talk.text.text;
    switch (r->op) {
    case WIRE_TOKENIZE:
        return answer_tokenize(with, job);
    case WIRE_RENDER:
        return frame_put_rendered(&job->answer, r->id, (wire_string){buf_str(text), text->len},
                                  (int64_t)job->ids.len);
    default:
        return frame_put_count(&job->answer, r->id, (int64_t)job->ids.len);
    }
}

static status prepare_answer(const prepare_with *with, prepare_job *job)
{
    const wire_request *r = job->request;
    status st;
    if (r->op == WIRE_DETOKENIZE) {
        st = answer_detokenize(with, job);
    } else {
        st = r->messages ? lay_out(with, job)
                         : prompt_encode(with->tok, r, &job->dropped, &job->ids, &job->error);
        if (st != ST_OK) {
            return st;
        }
        st = put_prepared(with, job);
    }
    if (st == ST_OK && job->answer.len > WIRE_MAX_LINE_BYTES) { /* whoever reads it takes no longer line */
        const char *field = r->op == WIRE_DETOKENIZE ? "ids" : r->op == WIRE_RENDER ? "messages" : "text";
        buf_release(&job->answer);
        return err_set(&job->error, ST_INVALID_FIELD, field,
                       "%s is too long: its answer has more than %zu bytes", field, WIRE_MAX_LINE_BYTES);
    }
    return st == ST_OK ? ST_OK : err_set(&job->error, st, NULL, "out of memory for an answer");
}

static status save_or_so(const prepare_with *with, prepare_job *job)
{
    const char *name = job->request->name.data;
    switch (job->request->op) {
    case WIRE_SESSION_SAVE:
        return saved_put(with->saved, name, job->ids.data, job->ids.len, &job->error);
    case WIRE_SESSION_RESTORE:
        return saved_get(with->saved, name, &job->ids, &job->error);
    default:
        return saved_drop(with->saved, name, &job->n_dropped, &job->error);
    }
}

void prepare_run(const prepare_with *with, prepare_job *job)
{
    bool generation = job->request->op == WIRE_GENERATE || job->request->op == WIRE_CHAT;
    err_clear(&job->error);
    if (job->request->name.len > 0) {
        job->st = save_or_so(with, job);
        return;
    }
    job->now_ms = job->request->resume    ? job->request->resume->now_ms
                  : job->request->has_now ? job->request->now_ms
                                          : clock_wall_ms(with->clock ? with->clock : clock_system());
    job->st = generation ? prepare_generation(with, job) : prepare_answer(with, job);
}

void prepare_job_release(prepare_job *job)
{
    ivec_release(&job->ids);
    stop_set_free(job->stops);
    job->stops = NULL;
    buf_release(&job->answer);
    prompt_talk_release(&job->talk);
    ivec_release(&job->close_ids);
}

/*
 * The thread
 */
typedef struct job_list {
    prepare_job *first, *last;
} job_list;

struct preparer {
    pthread_t thread;
    bool started;
    prepare_with with;
    /* borrowed */
    const bell *bell;
    status_page *page;

    pthread_mutex_t mu;
    pthread_cond_t work;
    /* guarded by mu */
    job_list todo, done;
    bool stopping;
};

static void list_push(job_list *l, prepare_job *job)
{
    job->next = NULL;
    if (l->last) {
        l->last->next = job;
    } else {
        l->first = job;
    }
    l->last = job;
}

static prepare_job *list_pop(job_list *l)
{
    prepare_job *job = l->first;
    if (job) {
        l->first = job->next;
        l->last = l->first ? l->last : NULL;
    }
    return job;
}

/* So that a death by its text is not everybody's. NULL: nobody's. */
static void attend(const preparer *p, const prepare_job *job)
{
    bool named = job && job->request->id.data;
    if (p->page) {
        status_page_set(p->page, STATUS_ROW_PREPARING,
                        named ? status_page_id_hash(job->request->id.data, job->request->id.len) : 0);
    }
}

static void *run(void *arg)
{
    preparer *p = arg;
    pthread_mutex_lock(&p->mu);
    for (;;) {
        while (!p->stopping && !p->todo.first) {
            pthread_cond_wait(&p->work, &p->mu);
        }
        if (p->stopping) {
            break;
        }
        prepare_job *job = list_pop(&p->todo);
        pthread_mutex_unlock(&p->mu);
        attend(p, job);
        prepare_run(&p->with, job);
        attend(p, NULL);
        pthread_mutex_lock(&p->mu);
        list_push(&p->done, job);
        bell_ring(p->bell);
        if (p->page) {
            status_page_add(p->page, STATUS_ROW_PREPARED, 1);
        }
    }
    pthread_mutex_unlock(&p->mu);
    return NULL;
}

status preparer_new(const prepare_with *with, const bell *b, status_page *page, preparer **out, err *e)
{
    preparer *p = mem_calloc(1, sizeof *p);
    if (!p) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the preparer");
    }
    p->with = *with;
    p->bell = b;
    p->page = page;
    pthread_mutex_init(&p->mu, NULL); /* plain ones: cannot fail on Linux */
    pthread_cond_init(&p->work, NULL);
    *out = p;
    return ST_OK;
}

status preparer_start(preparer *p, err *e)
{
    int rc = pthread_create(&p->thread, NULL, run, p);
    p->started = rc == 0;
    return rc == 0 ? ST_OK : err_set(e, ST_IO, NULL, "cannot start the preparing thread: %s", strerror(rc));
}

void preparer_free(preparer *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->mu);
    p->stopping = true;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->mu);
    if (p->started) {
        pthread_join(p->thread, NULL);
    }
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->mu);
    mem_free(p);
}

void preparer_put(preparer *p, prepare_job *job)
{
    pthread_mutex_lock(&p->mu);
    list_push(&p->todo, job);
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->mu);
}

prepare_job *preparer_take(preparer *p)
{
    pthread_mutex_lock(&p->mu);
    prepare_job *job = list_pop(&p->done);
    pthread_mutex_unlock(&p->mu);
    return job;
}
