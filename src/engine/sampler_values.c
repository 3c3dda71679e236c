#include "engine/sampler_int.h"

#include <math.h>

/* Bias and penalties: on s->scaled where the logits of the tokens that they touch stand. */

static bool too_early(const sampling *p, const sampler_in *in)
{
    return in->n_history - in->n_prompt < (size_t)p->min_tokens;
}

/* Ids of what may change besides the biased tokens, any number of times each. */
typedef struct id_list {
    const int32_t *ids;
    size_t n;
} id_list;

typedef struct edits {
    id_list forbidden[2]; /* end-of-generation ids, stop ids */
    id_list window;       /* of the repetition penalty */
    id_list reply;        /* of the presence and frequency penalties */
} edits;

static edits edits_of(const sampling *p, const sampler_in *in)
{
    edits e = {0};
    if (too_early(p, in) || p->ignore_eos) {
        e.forbidden[0] = (id_list){in->eog, in->n_eog};
    }
    if (too_early(p, in)) {
        e.forbidden[1] = (id_list){in->stop_ids, in->n_stop_ids};
    }
    if (p->repetition_penalty != 1.0f) {
        size_t n = in->n_history;
        if (p->repeat_last_n >= 0 && (size_t)p->repeat_last_n < n) {
            n = (size_t)p->repeat_last_n;
        }
        e.window = (id_list){in->history + (in->n_history - n), n};
    }
    if (p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f) {
        e.reply = (id_list){in->history + in->n_prompt, in->n_history - in->n_prompt};
    }
    return e;
}

static void apply_bias(sampler *s, const sampling *p, const edits *e)
{
    for (size_t i = 0; i < p->n_bias; i++) {
        s->scaled[p->bias[i].token] += p->bias[i].bias;
    }
    for (size_t l = 0; l < 2; l++) {
        for (size_t i = 0; i < e->forbidden[l].n; i++) {
            s->scaled[e->forbidden[l].ids[i]] = -INFINITY;
        }
    }
}

/* Each token of the window once, however often it occurs. */
static void apply_repetition(sampler *s, const sampling *p, const id_list *window)
{
    for (size_t i = 0; i < window->n; i++) {
        if (s->counts[window->ids[i]]++ == 0) {
            float *l = &s->scaled[window->ids[i]];
            *l = *l > 0 ? *l / p->repetition_penalty : *l * p->repetition_penalty;
        }
    }
    for (size_t i = 0; i < window->n; i++) {
        s->counts[window->ids[i]] = 0;
    }
}

static void apply_presence(sampler *s, const sampling *p, const id_list *reply)
{
    for (size_t i = 0; i < reply->n; i++) {
        s->counts[reply->ids[i]]++;
    }
    for (size_t i = 0; i < reply->n; i++) {
        int32_t *count = &s->counts[reply->ids[i]];
        if (*count > 0) {
            float *l = &s->scaled[reply->ids[i]];
            *l = fmaf(-(float)*count, p->frequency_penalty, *l - p->presence_penalty);
            *count = 0;
        }
    }
}

typedef void (*edit_fn)(sampler *s, const sampler_in *in, float t, int32_t token);

static void each_edited(sampler *s, const sampling *p, const sampler_in *in, const edits *e, edit_fn fn,
                        float t)
{
    const id_list lists[] = {e->forbidden[0], e->forbidden[1], e->window, e->reply};
    for (size_t i = 0; i < p->n_bias; i++) {
        fn(s, in, t, p->bias[i].token);
    }
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        for (size_t i = 0; i < lists[l].n; i++) {
            fn(s, in, t, lists[l].ids[i]);
        }
    }
}

static void edit_begin(sampler *s, const sampler_in *in, float t, int32_t token)
{
    (void)t;
    s->scaled[token] = in->logits[token];
}

static void edit_scale(sampler *s, const sampler_in *in, float t, int32_t token)
{
    (void)in;
    if (s->counts[token]++ == 0) {
        s->scaled[token] /= t;
    }
}

/* The top of the token's lane. All edited values are final by now. */
static void edit_end(sampler *s, const sampler_in *in, float t, int32_t token)
{
    size_t run = (size_t)token / KERN_TOPS_RUN, lane = (size_t)token % 16, n = (size_t)s->n_vocab;
    float *top = &s->tops[16 * run + lane];
    s->counts[token] = 0;
    if (s->values[token] > *top) {
        *top = s->values[token];
    } else if (in->logits[token] / t == *top) { /* it was the largest, or beside it */
        *top = -INFINITY;
        for (size_t i = KERN_TOPS_RUN * run + lane; i < n && i < KERN_TOPS_RUN * (run + 1); i += 16) {
            *top = s->values[i] > *top ? s->values[i] : *top;
        }
    }
}

bool sampler_edits(const sampling *params, const sampler_in *in)
{
    const edits e = edits_of(params, in);
    return params->n_bias > 0 || e.forbidden[0].n > 0 || e.forbidden[1].n > 0 || e.window.n > 0 ||
           e.reply.n > 0;
}

size_t sampler_run_length(const sampler *s, size_t run)
{
    size_t left = (size_t)s->n_vocab - run * KERN_TOPS_RUN;
    return left < KERN_TOPS_RUN ? left : KERN_TOPS_RUN;
}

/* Runs [r0, r1). */
static void scale_task(void *arg, size_t task, size_t thread)
{
    sampler *s = arg;
    size_t r0, r1;
    (void)thread;
    sampler_part(s, task, &r0, &r1);
    size_t i0 = r0 * KERN_TOPS_RUN;
    size_t n = (r1 - 1) * KERN_TOPS_RUN + sampler_run_length(s, r1 - 1) - i0;
    float *y = s->values == s->scaled ? s->scaled + i0 : NULL;
    s->kern->scale_tops(y, s->tops + 16 * r0, s->pass.logits + i0, s->pass.t, n);
}

void sampler_fill(sampler *s, const sampling *params, const sampler_in *in, float t)
{
    const edits e = edits_of(params, in);
    s->values = t == 1.0f && !sampler_edits(params, in) ? in->logits : s->scaled;
    s->pass.logits = in->logits;
    s->pass.t = t;
    sampler_spread(s, scale_task, s->n_runs, KERN_TOPS_RUN);
    each_edited(s, params, in, &e, edit_begin, t);
    apply_bias(s, params, &e);
    apply_repetition(s, params, &e.window);
    apply_presence(s, params, &e.reply);
    each_edited(s, params, in, &e, edit_scale, t);
    each_edited(s, params, in, &e, edit_end, t);
    for (size_t run = 0; run < s->n_runs; run++) {
        const float *tops = s->tops + 16 * run;
        s->run_tops[run] = tops[s->kern->argmax(tops, 16)];
    }
    s->max = s->run_tops[s->kern->argmax(s->run_tops, s->n_runs)];
}

int32_t sampler_first_largest(const sampler *s)
{
    size_t run = s->kern->argmax(s->run_tops, s->n_runs), first = run * KERN_TOPS_RUN;
    return (int32_t)(first + s->kern->argmax(s->values + first, sampler_run_length(s, run)));
}
