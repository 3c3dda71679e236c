/*
 * generation_chunks: how /v1/completions and /v1/chat/completions tell what their choices say: one chunk for each
 * thing said, a last one with the finish reason for each choice, then the usage; or one object.
 */
#include "base/mem.h"
#include "serve/generation_int.h"

static void send_chunk(run_choice *c, answer_choice *choice, const answer_result *result)
{
    generation_run *r = c->run;
    choice->index = (size_t)(c - r->choices);
    choice->finish_reason = result ? answer_finish_reason(result) : NULL;
    choice->first = !c->began;
    c->began = true;
    buf *out = sse_object(&r->sse);
    sse_send(&r->sse, answer_put_chunk(out, &r->head, choice, result, r->include_usage));
    logprob_list_reset(&c->logprobs);
    if (r->sse.failed) {
        run_no_memory(r);
    }
}

void run_put_chunk(run_choice *c, const char *text, size_t len, bool with_logprobs,
                   const answer_result *result)
{
    send_chunk(
        c, &(answer_choice){.text = text, .text_len = len, .logprobs = with_logprobs ? &c->logprobs : NULL},
        result);
}

static void tell_accepted(run_choice *c)
{
    if (c->run->route->shape->is_chat) {
        run_put_chunk(c, "", 0, false, NULL); /* whose turn it is */
    }
}

/* A call begins with its name alone; its arguments follow. */
static void tell_call(run_choice *c, const frame *f, const logprob_list *logprobs)
{
    const frame_call *call = &f->call;
    answer_choice choice = {.text = "", .kind = SPEECH_CALL, .call = call, .logprobs = logprobs};
    if (call->name.data) {
        send_chunk(c, &choice, NULL);
        choice.logprobs = NULL; /* they are out */
    }
    if (call->arguments.len > 0) {
        const frame_call rest = {.index = call->index, .arguments = call->arguments};
        choice.call = &rest;
        send_chunk(c, &choice, NULL);
    }
}

static void tell_piece(run_choice *c, const frame *f, size_t item)
{
    bool is_delta = f->kind == FRAME_DELTA, has_logprobs = c->run->has_logprobs && f->n_logprobs > 0;
    const logprob_list *logprobs = has_logprobs ? &c->logprobs : NULL;
    if (is_delta && f->delta == FRAME_DELTA_CALL && (f->call.name.data || f->call.arguments.len > 0)) {
        tell_call(c, f, logprobs);
    } else if (f->text_len > 0 || has_logprobs) {
        speech_kind kind = is_delta && f->delta == FRAME_DELTA_REASONING ? SPEECH_THOUGHT : SPEECH_TEXT;
        send_chunk(
            c, &(answer_choice){.text = f->text, .text_len = f->text_len, .kind = kind, .logprobs = logprobs},
            NULL);
    }
}

/* A choice without a token has an empty list, as in a whole answer. */
static void tell_ended(run_choice *c)
{
    bool said_nothing = c->result.completion_tokens == 0 && !c->echo_is_out;
    run_put_chunk(c, "", 0, c->run->has_logprobs && said_nothing, &c->result);
}

static void tell_end(generation_run *r)
{
    if (r->include_usage) {
        answer_result results[GENERATION_MAX_CHOICES];
        for (size_t i = 0; i < r->n_choices; i++) {
            results[i] = r->choices[i].result;
        }
        buf *out = sse_object(&r->sse);
        sse_send(&r->sse, answer_put_usage(out, &r->head, results, r->n_choices, r->per_prompt));
    }
}

static void tell_fault(generation_run *r, const api_fault *f)
{
    buf *out = sse_object(&r->sse);
    sse_send(&r->sse, api_fault_put(f, out));
}

/* What one choice of a whole answer holds; text and thoughts are the memory for it. */
static status fill_choice(const run_choice *c, buf *text, buf *thoughts, answer_choice *out)
{
    status st = speech_join(&c->said, SPEECH_TEXT, text);
    if (st == ST_OK) {
        st = speech_join(&c->said, SPEECH_THOUGHT, thoughts);
    }
    *out = (answer_choice){.index = (size_t)(c - c->run->choices),
                           .text = buf_str(text),
                           .text_len = text->len,
                           .thoughts = buf_str(thoughts),
                           .thoughts_len = thoughts->len,
                           .said = &c->said,
                           .logprobs = c->run->has_logprobs ? &c->logprobs : NULL,
                           .finish_reason = answer_finish_reason(&c->result)};
    return st;
}

static status tell_whole(generation_run *r, buf *out)
{
    answer_choice choices[GENERATION_MAX_CHOICES];
    answer_result results[GENERATION_MAX_CHOICES];
    buf *texts = mem_calloc(2 * r->n_choices, sizeof *texts);
    status st = texts ? ST_OK : ST_NOMEM;
    for (size_t i = 0; st == ST_OK && i < r->n_choices; i++) {
        results[i] = r->choices[i].result;
        st = fill_choice(&r->choices[i], &texts[2 * i], &texts[2 * i + 1], &choices[i]);
    }
    if (st == ST_OK) {
        st = answer_put_whole(out, &r->head, choices, results, r->n_choices, r->per_prompt);
    }
    for (size_t i = 0; texts && i < 2 * r->n_choices; i++) {
        buf_release(&texts[i]);
    }
    mem_free(texts);
    return st;
}

const run_voice run_chunks = {.ends_with_done = true,
                              .accepted = tell_accepted,
                              .piece = tell_piece,
                              .ended = tell_ended,
                              .end = tell_end,
                              .fault = tell_fault,
                              .whole = tell_whole};
