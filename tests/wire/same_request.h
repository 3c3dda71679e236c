/*
 * same_request: true if two decoded requests say the same, field by field (the arena aside). For the test and
 * the fuzz target of wire_request_put.
 */
#ifndef HEARTH_TESTS_WIRE_SAME_REQUEST_H
#define HEARTH_TESTS_WIRE_SAME_REQUEST_H

#include <stdbool.h>
#include <string.h>

#include "wire/request.h"

static inline bool same_string(wire_string a, wire_string b)
{
    return a.len == b.len && !a.data == !b.data && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool same_ids(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * sizeof *a) == 0);
}

static inline bool same_segments(const wire_request *a, const wire_request *b)
{
    if (a->n_segments != b->n_segments || !a->prompt_field != !b->prompt_field ||
        (a->prompt_field && strcmp(a->prompt_field, b->prompt_field) != 0)) {
        return false;
    }
    for (size_t i = 0; i < a->n_segments; i++) {
        const wire_segment *x = &a->segments[i], *y = &b->segments[i];
        if (!same_string(x->text, y->text) || !x->ids != !y->ids ||
            !same_ids(x->ids, x->n_ids, y->ids, y->n_ids)) {
            return false;
        }
    }
    return true;
}

static inline bool same_lists(const wire_request *a, const wire_request *b)
{
    if (a->n_stops != b->n_stops || a->n_bias != b->n_bias) {
        return false;
    }
    for (size_t i = 0; i < a->n_stops; i++) {
        if (!same_string(a->stops[i], b->stops[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < a->n_bias; i++) {
        if (a->bias[i].token != b->bias[i].token || a->bias[i].bias != b->bias[i].bias) {
            return false;
        }
    }
    return same_ids(a->ids, a->n_ids, b->ids, b->n_ids) &&
           same_ids(a->stop_token_ids, a->n_stop_token_ids, b->stop_token_ids, b->n_stop_token_ids);
}

static inline bool same_json(const json *a, const json *b);

typedef struct same_members {
    const json *other;
    bool same;
} same_members;

static inline bool same_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    same_members *s = ctx;
    const json *other;
    s->same = s->same && json_get(s->other, key, &other) && same_json(v, other);
    return s->same;
}

/* Same kinds and values; the order of members counts for nothing. */
static inline bool same_json(const json *a, const json *b)
{
    bool p = false, q = false;
    double x = 0, y = 0;
    int64_t i = 0, j = 0;
    wire_string s = {0}, t = {0};
    if (json_kind(a) != json_kind(b) || json_len(a) != json_len(b)) {
        return false;
    }
    for (size_t k = 0; json_kind(a) == JSON_ARRAY && k < json_len(a); k++) {
        if (!same_json(json_at(a, k), json_at(b, k))) {
            return false;
        }
    }
    if (json_kind(a) == JSON_OBJECT) {
        same_members m = {b, true};
        json_each(a, same_member, &m);
        return m.same;
    }
    json_bool(a, &p);
    json_bool(b, &q);
    json_i64(a, &i);
    json_i64(b, &j);
    json_f64(a, &x);
    json_f64(b, &y);
    s.data = json_string(a, &s.len);
    t.data = json_string(b, &t.len);
    return p == q && i == j && memcmp(&x, &y, sizeof x) == 0 && same_string(s, t);
}

static inline bool same_conversation(const wire_request *a, const wire_request *b)
{
    return same_json(a->messages, b->messages) && same_json(a->tools, b->tools) &&
           a->tool_choice == b->tool_choice && same_string(a->tool_name, b->tool_name) &&
           a->parallel_tool_calls == b->parallel_tool_calls &&
           same_json(a->template_kwargs, b->template_kwargs) && a->reasoning_budget == b->reasoning_budget &&
           a->reasoning_effort == b->reasoning_effort && a->reasoning_enabled == b->reasoning_enabled &&
           a->continue_final_message == b->continue_final_message;
}

static inline bool same_resume(const wire_resume *a, const wire_resume *b)
{
    if (!a || !b) {
        return a == b;
    }
    return same_ids(a->ids, a->n_ids, b->ids, b->n_ids) && a->seed == b->seed && a->now_ms == b->now_ms &&
           strcmp(a->prompt_digest, b->prompt_digest) == 0 && !a->prompt_ids == !b->prompt_ids &&
           same_ids(a->prompt_ids, a->n_prompt_ids, b->prompt_ids, b->n_prompt_ids);
}

static inline bool same_request(const wire_request *a, const wire_request *b)
{
    return a->op == b->op && same_string(a->id, b->id) && same_string(a->session_id, b->session_id) &&
           same_string(a->cache_namespace, b->cache_namespace) &&
           a->cancel_request_id == b->cancel_request_id && same_segments(a, b) && same_lists(a, b) &&
           same_conversation(a, b) && a->add_special == b->add_special &&
           a->parse_special == b->parse_special && a->max_new_tokens == b->max_new_tokens &&
           a->temperature == b->temperature && a->top_p == b->top_p && a->top_k == b->top_k &&
           a->seed == b->seed && a->has_now == b->has_now && a->now_ms == b->now_ms && a->min_p == b->min_p &&
           a->repetition_penalty == b->repetition_penalty && a->presence_penalty == b->presence_penalty &&
           a->frequency_penalty == b->frequency_penalty && a->repeat_last_n == b->repeat_last_n &&
           a->min_tokens == b->min_tokens && a->ignore_eos == b->ignore_eos &&
           a->top_logprobs == b->top_logprobs && a->prompt_logprobs == b->prompt_logprobs &&
           a->deadline_ms == b->deadline_ms && a->progress == b->progress && a->priority == b->priority &&
           a->repetition_guard == b->repetition_guard && a->from == b->from && a->count == b->count &&
           same_string(a->name, b->name) && a->attach_bytes == b->attach_bytes && a->pages == b->pages &&
           same_resume(a->resume, b->resume);
}

#endif
