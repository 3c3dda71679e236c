#include "purity/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_STEPS 20000

typedef struct way {
    void (*run)(scene *s);
    size_t beside_pages; /* pages of the others: with the request's own that is all. 0: plenty */
    place_config cfg;    /* what is 0 is place_config_default's */
    bool not_warm;
    bool pages; /* its prompt is to be longer than a page */
} way;

bool expect(scene *s, bool ok, const char *what)
{
    if (!ok && s->why[0] == '\0') {
        snprintf(s->why, sizeof s->why, "%.190s", what);
    }
    return ok;
}

engine_stats stats_of(const scene *s)
{
    engine_stats st;
    engine_stats_read(s->p.en, &st);
    return st;
}

void step(scene *s, size_t n)
{
    const char *why = "";
    while (n-- > 0) {
        size_t before = s->p.n_steps;
        engine_step(s->p.en);
        if (s->p.kept && s->p.n_steps == before) {
            (void)usleep(500); /* it waits for the disk */
        }
        expect(s, engine_check(s->p.en, &why), why);
    }
}

void until_said(scene *s, const heard *h, size_t n)
{
    for (size_t i = 0; !h->over && h->ids.len < n && i < MAX_STEPS && s->why[0] == '\0'; i++) {
        step(s, 1);
    }
    expect(s, h->over || h->ids.len >= n, "nothing comes any more");
}

void until_over(scene *s, const heard *h)
{
    until_said(s, h, SIZE_MAX);
}

void hold(const heard *h, bool held)
{
    if (!h->over) {
        seq_hold(h->seq, held);
    }
}

void cancel(const heard *h)
{
    if (!h->over) {
        seq_cancel(h->seq);
    }
}

static void submit(scene *s, const gen_request *r, heard *h)
{
    err e;
    if (engine_submit(s->p.en, r, &h->seq, &e) != ST_OK) {
        stop_set_free(r->stops);
        h->over = h->failed = true;
        snprintf(h->error, sizeof h->error, "%.190s", e.msg);
        expect(s, false, e.msg);
    }
}

static void on_prompt_probs(void *ctx, const sampler_out *probs, size_t n)
{
    heard *h = ctx;
    for (size_t i = 0; i < n; i++) {
        heard_keep(&h->said, &probs[i]);
    }
}

static void submit_tested(scene *s, session *in, int32_t priority)
{
    gen_request r = ask_request(&s->q, &s->got);
    r.session = in;
    r.priority = priority;
    if (s->scored) {
        r.prompt_logprobs = SAMPLER_MAX_TOP_LOGPROBS;
        r.sink.prompt_probs = on_prompt_probs;
    }
    r.resumed = s->reference->ids.data;
    r.n_resumed = s->n_had;
    s->got.probs_had = matrix_is_quiet(&s->judged) ? NULL : s->reference->probs.data;
    ask_end(&r, &s->got, &s->judged, s->reference, &s->stop_id);
    submit(s, &r, &s->got);
    expect(s, s->got.n_again == s->n_had, "it was not heard again");
}

void tested(scene *s, session *in)
{
    submit_tested(s, in, 0);
}

void tested_with_priority(scene *s, int32_t priority)
{
    submit_tested(s, NULL, priority);
}

heard *submit_other(scene *s, const other *o)
{
    int32_t drawn[512];
    heard *h = &s->others[s->n_others++];
    place_prompt(&s->p, drawn, o->n_prompt, (uint32_t)s->n_others);
    if (o->poison) {
        drawn[PLACE_POISON_AT] = PLACE_POISON;
    }
    h->force = o->force;
    h->n_force = o->n_force;
    h->cancel_at = o->cancel_at;
    gen_request r = {.prompt = o->prompt ? o->prompt : drawn,
                     .n_prompt = o->n_prompt,
                     .max_new_tokens = o->n_new,
                     .params = sampling_default(),
                     .session = o->session,
                     .priority = o->priority,
                     .plan = o->plan,
                     .cache_namespace = o->name_space,
                     .n_cache_namespace = o->name_space ? strlen(o->name_space) : 0,
                     .prompt_logprobs = o->scored ? SAMPLER_MAX_TOP_LOGPROBS : -1,
                     .sink = heard_sink(h)};
    r.params.temperature = 1;
    r.params.seed = s->n_others;
    r.params.ignore_eos = true;
    r.sink.prompt_probs = o->scored ? on_prompt_probs : NULL;
    submit(s, &r, h);
    return h;
}

session *open_session(scene *s)
{
    session *in = NULL;
    expect(s, session_open(s->p.en, &in) == ST_OK, "no session");
    s->sessions[s->n_sessions++] = in;
    return in;
}

/* The request to its end, then the others, quickly. */
static void finish(scene *s)
{
    if (s->got.seq) {
        hold(&s->got, false);
        until_over(s, &s->got);
        cancel(&s->got); /* if it does not end */
    }
    for (size_t i = 0; i < s->n_others; i++) {
        cancel(&s->others[i]);
    }
    for (size_t i = 0; i < MAX_STEPS && engine_running(s->p.en) > 0; i++) {
        engine_step(s->p.en);
    }
    for (size_t i = 0; s->p.kept && stats_of(s).pages_used > 0 && i < MAX_STEPS; i++) {
        step(s, 1); /* what is read for nobody any more comes in */
    }
    for (size_t i = 0; i < s->n_sessions && engine_running(s->p.en) == 0; i++) {
        session_close(s->sessions[i]);
    }
}

static const way ways[] = {
#define X(name, what, ...) {.run = run_##name, __VA_ARGS__},
    PURITY_WAYS(X)
#undef X
};

static bool longer_than_a_page(const purity_case *c)
{
    const prompt_entry *e = matrix_prompt(c);
    return e->n_turn + e->n_reply > KV_PAGE_TOKENS;
}

static void open_case(scene *s, const purity_case *c, const way *w)
{
    const prompt_entry *e = matrix_prompt(c);
    place_config cfg = place_config_default();
    size_t own = resident_pages_for(e->n_turn + e->n_reply + e->n_rest + PURITY_N_NEW);
    memset(s, 0, sizeof *s);
    s->judged = *c;
    cfg.n_pages = w->beside_pages > 0  ? w->beside_pages + own
                  : w->cfg.n_pages > 0 ? w->cfg.n_pages
                                       : cfg.n_pages;
    cfg.max_sequences = w->cfg.max_sequences > 0 ? w->cfg.max_sequences : cfg.max_sequences;
    cfg.max_step_ns = w->cfg.max_step_ns;
    cfg.park_bytes = w->cfg.park_bytes;
    cfg.warm = !w->not_warm;
    s->how = (place_way){
        .set = matrix_set(c), .kv = matrix_kv(c), .threads = matrix_threads(c), .chunk = matrix_chunk(c)};
    s->cfg = cfg;
    place_open(&s->p, matrix_model(c), &s->how, &s->cfg);
    ask_init(&s->q, c, &s->p);
}

static void remove_folder(const char *dir)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", dir);
    if (system(command) != 0) {
        fprintf(stderr, "purity: cannot remove %s\n", dir);
    }
}

void restart(scene *s, const char *store_dir, const store_seam *seam)
{
    const char *left;
    if (!place_close(&s->p, &left)) {
        expect(s, false, left);
        return;
    }
    s->cfg.store_dir = store_dir;
    s->cfg.seam = seam;
    place_open(&s->p, matrix_model(&s->judged), &s->how, &s->cfg);
}

size_t tokens_had(const scene *s)
{
    return 1 + (size_t)(s->judged.at[AXIS_CHUNK] + s->judged.at[AXIS_THREADS]) % PURITY_MOST_HAD;
}

void began_elsewhere(scene *s, size_t n_tokens, const char *store_dir, const store_seam *seam)
{
    const place_way how = {.set = another_set(&s->judged),
                           .kv = matrix_kv(&s->judged),
                           .threads = s->how.threads == 1 ? 3 : 1,
                           .chunk = 37};
    place_config cfg = place_config_default();
    const char *why;
    place p;
    heard h = {.cancel_at = n_tokens};
    err e;
    cfg.store_dir = store_dir;
    cfg.seam = seam;
    place_open(&p, matrix_model(&s->judged), &how, &cfg);
    gen_request r = ask_request(&s->q, &h);
    if (!expect(s, engine_submit(p.en, &r, &h.seq, &e) == ST_OK, e.msg)) {
        h.over = true;
    }
    for (size_t i = 0; !h.over && i < MAX_STEPS; i++) {
        if (!engine_step(p.en)) {
            (void)usleep(500); /* it waits for the disk */
        }
    }
    bool same = h.over && h.ids.len >= n_tokens &&
                memcmp(h.ids.data, s->reference->ids.data, n_tokens * sizeof(int32_t)) == 0;
    expect(s, same, "it began in another way elsewhere");
    if (p.kept) {
        store_flush(p.kept);
    }
    if (!place_close(&p, &why)) {
        expect(s, false, why);
    }
    heard_release(&h);
}

const char *run_case(const purity_case *drawn)
{
    static scene s;
    static char why[200];
    const char *left;
    const way *w = &ways[drawn->at[AXIS_WAY]];
    purity_case asked = *drawn;
    while (w->pages && !longer_than_a_page(&asked)) {
        asked.at[AXIS_PROMPT]++;
    }
    const heard *reference = ask_reference(&asked);
    open_case(&s, &asked, w);
    s.reference = reference;
    w->run(&s);
    finish(&s);
    if (s.why[0] == '\0') {
        const char *wrong = ask_judge(&s.judged, reference, &s.got);
        expect(&s, !wrong, wrong);
    }
    if (!place_close(&s.p, &left)) {
        expect(&s, false, left);
    }
    if (s.cfg.store_dir) {
        remove_folder(s.cfg.store_dir);
    }
    heard_release(&s.got);
    for (size_t i = 0; i < s.n_others; i++) {
        heard_release(&s.others[i]);
    }
    snprintf(why, sizeof why, "%s", s.why);
    return why[0] != '\0' ? why : NULL;
}
