#include "serve/answer.h"

#include <stdio.h>
#include <string.h>

#define MS_DIGITS 3

void answer_result_of(answer_result *out, const frame_done *d)
{
    memset(out, 0, sizeof *out);
    snprintf(out->reason, sizeof out->reason, "%s", d->reason);
    snprintf(out->guard, sizeof out->guard, "%s", d->guard);
    out->seed = d->seed;
    out->prompt_tokens = d->prompt_tokens;
    out->completion_tokens = d->completion_tokens;
    out->cached_tokens = d->reused_prompt_tokens;
    out->reasoning_tokens = d->reasoning_tokens;
    out->preemptions = d->preemptions;
    snprintf(out->miss_reason, sizeof out->miss_reason, "%s",
             d->cache_miss_reason ? d->cache_miss_reason : "");
    out->miss_at = d->cache_miss_at;
    out->queue_ms = d->queue_ms;
    out->ttft_ms = d->ttft_ms;
    out->prefill_ms = d->prefill_ms;
    out->decode_ms = d->decode_ms;
    out->total_ms = d->total_ms;
}

void answer_result_cut(answer_result *out, const char *reason)
{
    snprintf(out->reason, sizeof out->reason, "%s", reason);
}

const char *answer_finish_reason(const answer_result *r)
{
    if (strcmp(r->reason, "tool_calls") == 0) {
        return "tool_calls";
    }
    return strcmp(r->reason, "stop") == 0 ? "stop" : "length";
}

static void put_detail(json_w *w, const char *key, const char *member, int64_t n)
{
    json_w_key(w, key);
    json_w_obj_open(w);
    json_w_key(w, member);
    json_w_i64(w, n);
    json_w_obj_close(w);
}

static void put_usage(json_w *w, const answer_shape *shape, const answer_result *results, size_t n,
                      size_t per_prompt)
{
    int64_t prompt = 0, completion = 0, cached = 0, reasoning = 0;
    for (size_t i = 0; i < n; i++) {
        if (i % per_prompt == 0) {
            prompt += results[i].prompt_tokens;
            cached += results[i].cached_tokens;
        }
        completion += results[i].completion_tokens;
        reasoning += results[i].reasoning_tokens;
    }
    json_w_key(w, "usage");
    json_w_obj_open(w);
    json_w_key(w, "prompt_tokens");
    json_w_i64(w, prompt);
    json_w_key(w, "completion_tokens");
    json_w_i64(w, completion);
    json_w_key(w, "total_tokens");
    json_w_i64(w, prompt + completion);
    put_detail(w, "prompt_tokens_details", "cached_tokens", cached);
    if (shape->is_chat) {
        put_detail(w, "completion_tokens_details", "reasoning_tokens", reasoning);
    }
    json_w_obj_close(w);
}

static void put_ms(json_w *w, const char *key, double ms)
{
    json_w_key(w, key);
    json_w_fixed(w, ms, MS_DIGITS);
}

static void put_result(json_w *w, const answer_result *r)
{
    json_w_key(w, "finish");
    json_w_cstr(w, r->reason);
    if (r->guard[0] != '\0') {
        json_w_key(w, "guard");
        json_w_cstr(w, r->guard);
    }
    json_w_key(w, "seed");
    json_w_u64(w, r->seed - 1); /* as the API counts: sent again it gives this reply again */
    put_ms(w, "queue_ms", r->queue_ms);
    put_ms(w, "ttft_ms", r->ttft_ms);
    put_ms(w, "prefill_ms", r->prefill_ms);
    put_ms(w, "decode_ms", r->decode_ms);
    put_ms(w, "total_ms", r->total_ms);
    json_w_key(w, "preemptions");
    json_w_i64(w, r->preemptions);
    if (r->reset_reason[0] != '\0') {
        json_w_key(w, "session_reset_reason");
        json_w_cstr(w, r->reset_reason);
    }
    if (r->miss_reason[0] != '\0') {
        json_w_key(w, "cache_miss");
        json_w_obj_open(w);
        json_w_key(w, "at");
        json_w_i64(w, r->miss_at);
        json_w_key(w, "reason");
        json_w_cstr(w, r->miss_reason);
        json_w_obj_close(w);
    }
}

void answer_put_own(json_w *w, const answer_result *results, size_t n)
{
    json_w_key(w, "hearth");
    json_w_obj_open(w);
    put_result(w, &results[0]);
    if (n > 1) {
        json_w_key(w, "choices");
        json_w_arr_open(w);
        for (size_t i = 0; i < n; i++) {
            json_w_obj_open(w);
            put_result(w, &results[i]);
            json_w_obj_close(w);
        }
        json_w_arr_close(w);
    }
    json_w_obj_close(w);
}

static void put_choice(json_w *w, const answer_shape *shape, const answer_choice *c, bool chunk)
{
    json_w_obj_open(w);
    json_w_key(w, "index");
    json_w_u64(w, c->index);
    if (chunk) {
        shape->put_delta(w, c);
    } else {
        shape->put_text(w, c);
    }
    json_w_key(w, "logprobs");
    if (!c->logprobs) {
        json_w_null(w);
    } else if (shape->is_chat) {
        logprob_put_chat(w, c->logprobs);
    } else {
        logprob_put_legacy(w, c->logprobs);
    }
    json_w_key(w, "finish_reason");
    if (c->finish_reason) {
        json_w_cstr(w, c->finish_reason);
    } else {
        json_w_null(w);
    }
    json_w_obj_close(w);
}

static void open_object(json_w *w, buf *out, const answer_head *h, const char *object)
{
    json_w_begin(w, out);
    json_w_obj_open(w);
    json_w_key(w, "id");
    json_w_cstr(w, h->id);
    json_w_key(w, "object");
    json_w_cstr(w, object);
    json_w_key(w, "created");
    json_w_i64(w, h->created_s);
    json_w_key(w, "model");
    json_w_cstr(w, h->model);
    json_w_key(w, "choices");
    json_w_arr_open(w);
}

static status close_object(json_w *w, size_t before)
{
    json_w_obj_close(w);
    status st = json_w_end(w);
    if (st != ST_OK) {
        buf_truncate(w->out, before);
    }
    return st;
}

status answer_put_chunk(buf *out, const answer_head *h, const answer_choice *c, const answer_result *result,
                        bool usage_null)
{
    json_w w;
    size_t before = out->len;
    open_object(&w, out, h, h->shape->chunk_object);
    put_choice(&w, h->shape, c, true);
    json_w_arr_close(&w);
    if (usage_null) {
        json_w_key(&w, "usage");
        json_w_null(&w);
    }
    if (result) {
        answer_put_own(&w, result, 1);
    }
    return close_object(&w, before);
}

status answer_put_usage(buf *out, const answer_head *h, const answer_result *results, size_t n,
                        size_t per_prompt)
{
    json_w w;
    size_t before = out->len;
    open_object(&w, out, h, h->shape->chunk_object);
    json_w_arr_close(&w);
    put_usage(&w, h->shape, results, n, per_prompt);
    return close_object(&w, before);
}

status answer_put_whole(buf *out, const answer_head *h, const answer_choice *choices,
                        const answer_result *results, size_t n, size_t per_prompt)
{
    json_w w;
    size_t before = out->len;
    open_object(&w, out, h, h->shape->object);
    for (size_t i = 0; i < n; i++) {
        put_choice(&w, h->shape, &choices[i], false);
    }
    json_w_arr_close(&w);
    put_usage(&w, h->shape, results, n, per_prompt);
    answer_put_own(&w, results, n);
    return close_object(&w, before);
}
