/*
 * generation_echo: the prompt before the reply (echo). A prompt of text is echoed as it came; of one that was
 * given as ids the worker is asked for the text first.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "serve/generation_int.h"

static void on_text(void *ctx, const frame *f)
{
    generation_run *r = ctx;
    api_fault fault;
    size_t i = 0;
    while (r->echoes[i].is_known) { /* one is asked for at a time */
        i++;
    }
    if (f->kind == FRAME_TEXT && buf_append(&r->echoes[i].text, f->text, f->text_len) == ST_OK) {
        r->echoes[i].is_known = true;
        run_echo_next(r);
        return;
    }
    if (f->kind == FRAME_ERROR) {
        api_fault_frame(&fault, f);
        snprintf(fault.param, sizeof fault.param, "prompt");
    } else {
        api_fault_http(&fault, 503, "out of memory");
    }
    run_fail(r, &fault);
}

static void on_lost(void *ctx, const err *why)
{
    generation_run *r = ctx;
    api_fault fault;
    if (why->code == ST_CANCELLED) {
        run_cut_all(r);
        return;
    }
    api_fault_err(&fault, why);
    run_fail(r, &fault);
}

static status put_question(run_echo *echo, const wire_segment *prompt)
{
    wire_request q = wire_request_default(WIRE_DETOKENIZE);
    q.id = (wire_string){echo->job.id, strlen(echo->job.id)};
    q.ids = prompt->ids;
    q.n_ids = prompt->n_ids;
    return wire_request_put(&echo->job.line, &q);
}

status run_echo_prepare(generation_run *r, const generation *g, const char *job_id, err *e)
{
    status st = ST_OK;
    r->echoes = mem_calloc(g->n_prompts, sizeof *r->echoes);
    if (!r->echoes) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    for (size_t i = 0; st == ST_OK && i < g->n_prompts; i++) {
        run_echo *echo = &r->echoes[i];
        if (!g->prompts[i].ids) {
            echo->is_known = true;
            st = buf_append(&echo->text, g->prompts[i].text.data, g->prompts[i].text.len);
            continue;
        }
        snprintf(echo->job.id, sizeof echo->job.id, "%s.echo%u", job_id, (unsigned)i);
        echo->job.key = r->entry.key;
        echo->job.deadline_ns = r->choices[0].job.deadline_ns;
        echo->job.light = echo->job.resend = true;
        echo->job.on_frame = on_text;
        echo->job.on_lost = on_lost;
        echo->job.ctx = r;
        st = put_question(echo, &g->prompts[i]);
    }
    return st == ST_OK ? ST_OK : err_set(e, st, NULL, "out of memory");
}

void run_echo_next(generation_run *r)
{
    err e;
    api_fault fault;
    for (size_t i = 0; r->echoes && i < r->n_choices / r->per_prompt; i++) {
        if (!r->echoes[i].is_known) {
            if (service_submit(r->service, &r->echoes[i].job, &e) != ST_OK) {
                api_fault_err(&fault, &e);
                run_fail(r, &fault);
            }
            return;
        }
    }
    run_submit_choices(r);
}

void run_echo_cancel(generation_run *r)
{
    for (size_t i = 0; r->echoes && i < r->n_choices / r->per_prompt; i++) {
        service_cancel(r->service, &r->echoes[i].job);
    }
}

void run_echo_stop(generation_run *r)
{
    for (size_t i = 0; r->echoes && i < r->n_choices / r->per_prompt; i++) {
        service_stop(r->service, &r->echoes[i].job);
    }
}

void run_echo_free(generation_run *r)
{
    for (size_t i = 0; r->echoes && i < r->n_choices / r->per_prompt; i++) {
        buf_release(&r->echoes[i].text);
        buf_release(&r->echoes[i].job.line);
    }
    mem_free(r->echoes);
}

/*
 * The first token has no log probability and the frame does not name it; its text is what of the prompt comes
 * before that of the others. Where these are not the end of the prompt (a space was put before it), it is
 * shown as nothing.
 */
static status put_first(logprob_list *l, const buf *prompt, const buf *others)
{
    wire_string first = {"", 0};
    l->next_offset = 0;
    if (others->len <= prompt->len &&
        memcmp(buf_str(prompt) + prompt->len - others->len, buf_str(others), others->len) == 0) {
        first = (wire_string){buf_str(prompt), prompt->len - others->len};
    } else {
        l->next_offset = logprob_count_chars((wire_string){buf_str(prompt), prompt->len}) -
                         logprob_count_chars((wire_string){buf_str(others), others->len});
    }
    return logprob_list_add_first(l, first);
}

/* Of a prompt that was cut before they were there nobody knows the tokens: it has no entries. */
static status put_probs(run_choice *c, const buf *prompt, const frame_logprob *probs, size_t n)
{
    buf others = {0};
    status st = ST_OK;
    if (n + 1 != (size_t)c->result.prompt_tokens) {
        c->logprobs.next_offset = logprob_count_chars((wire_string){buf_str(prompt), prompt->len});
        return ST_OK;
    }
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        st = buf_append(&others, probs[i].text.data, probs[i].text.len);
    }
    st = st == ST_OK ? put_first(&c->logprobs, prompt, &others) : st;
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        st = logprob_list_add(&c->logprobs, &probs[i]);
    }
    buf_release(&others);
    c->logprobs.next_offset = logprob_count_chars((wire_string){buf_str(prompt), prompt->len});
    return st;
}

void run_echo_put(run_choice *c, const frame_logprob *probs, size_t n)
{
    generation_run *r = c->run;
    const buf *prompt = &r->echoes[(size_t)(c - r->choices) / r->per_prompt].text;
    c->echo_is_out = true;
    if (r->has_logprobs && put_probs(c, prompt, probs, n) != ST_OK) {
        run_no_memory(r);
        return;
    }
    if (r->stream) {
        run_put_chunk(c, buf_str(prompt), prompt->len, r->has_logprobs, NULL);
    } else if (speech_add_text(&c->said, SPEECH_TEXT, buf_str(prompt), prompt->len) != ST_OK) {
        run_no_memory(r);
    }
}
