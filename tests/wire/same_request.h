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
    if (a->n_messages != b->n_messages || a->n_stops != b->n_stops || a->n_bias != b->n_bias) {
        return false;
    }
    for (size_t i = 0; i < a->n_messages; i++) {
        if (!same_string(a->messages[i].role, b->messages[i].role) ||
            !same_string(a->messages[i].content, b->messages[i].content)) {
            return false;
        }
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

static inline bool same_request(const wire_request *a, const wire_request *b)
{
    return a->op == b->op && same_string(a->id, b->id) && same_string(a->session_id, b->session_id) &&
           a->cancel_request_id == b->cancel_request_id && same_segments(a, b) && same_lists(a, b) &&
           a->add_special == b->add_special && a->parse_special == b->parse_special &&
           a->max_new_tokens == b->max_new_tokens && a->temperature == b->temperature &&
           a->top_p == b->top_p && a->top_k == b->top_k && a->seed == b->seed && a->has_now == b->has_now &&
           a->now_ms == b->now_ms && a->min_p == b->min_p && a->repetition_penalty == b->repetition_penalty &&
           a->presence_penalty == b->presence_penalty && a->frequency_penalty == b->frequency_penalty &&
           a->repeat_last_n == b->repeat_last_n && a->min_tokens == b->min_tokens &&
           a->ignore_eos == b->ignore_eos && a->top_logprobs == b->top_logprobs &&
           a->prompt_logprobs == b->prompt_logprobs && a->deadline_ms == b->deadline_ms &&
           a->progress == b->progress;
}

#endif
