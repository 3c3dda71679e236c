#include "serve/completion.h"

#include <string.h>

#include "serve/fields.h"

static const char *const names[] = {GENERATION_FIELDS, "prompt", "max_tokens", "echo", "logprobs", "best_of"};

static bool read_ids(generation *g, const json *v, wire_segment *out, err *e)
{
    static const char want[] = "made of token ids of the vocabulary";
    size_t n = json_len(v);
    int32_t *ids = arena_alloc_array(&g->mem, n, sizeof *ids);
    if (!ids) {
        return fields_no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if (!json_i64(json_at(v, i), &id) || id < 0 || id > INT32_MAX) {
            return fields_refuse(e, "prompt", json_at(v, i), want);
        }
        ids[i] = (int32_t)id;
    }
    *out = (wire_segment){.ids = ids, .n_ids = n};
    return true;
}

static bool read_one(generation *g, const json *v, wire_segment *out, err *e)
{
    if (json_kind(v) == JSON_ARRAY && json_len(v) > 0) {
        return read_ids(g, v, out, e);
    }
    *out = (wire_segment){.ids = NULL};
    out->text.data = json_string(v, &out->text.len);
    return out->text.data ||
           fields_refuse(e, "prompt", v, "a string, a list of token ids, or a list of these");
}

static bool read_prompts(generation *g, const json *root, err *e)
{
    const json *v = fields_get(root, "prompt");
    json_type first = json_kind(v) == JSON_ARRAY ? json_kind(json_at(v, 0)) : JSON_NULL;
    bool several = first == JSON_STRING || first == JSON_ARRAY;
    size_t n = several ? json_len(v) : 1;
    if (n > GENERATION_MAX_CHOICES) {
        err_set(e, ST_INVALID_FIELD, "prompt", "prompt holds %zu prompts: at most %d are answered at once", n,
                GENERATION_MAX_CHOICES);
        return false;
    }
    wire_segment *prompts = arena_alloc_array(&g->mem, n, sizeof *prompts);
    if (!prompts) {
        return fields_no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        if (!read_one(g, several ? json_at(v, i) : v, &prompts[i], e)) {
            return false;
        }
    }
    g->prompts = prompts;
    g->n_prompts = n;
    return true;
}

static bool read_rest(generation *g, const json *root, err *e)
{
    int64_t max_tokens = COMPLETION_MAX_TOKENS, logprobs = -1, best_of = g->n;
    if (!fields_int(root, "max_tokens", 0, INT64_MAX, "an integer of at least 0", &max_tokens, e) ||
        !fields_bool(root, "echo", &g->echo, e) ||
        !fields_int(root, "logprobs", 0, WIRE_MAX_TOP_LOGPROBS, "an integer in [0, 20]", &logprobs, e) ||
        !fields_int(root, "best_of", 1, INT64_MAX, "an integer of at least 1", &best_of, e)) {
        return false;
    }
    if (best_of != g->n) {
        err_set(e, ST_UNSUPPORTED, "best_of", "best_of is supported only where it equals n");
        return false;
    }
    /* the context is shorter than any int32_t */
    g->common.max_new_tokens = max_tokens < INT32_MAX ? (int32_t)max_tokens : INT32_MAX;
    g->common.top_logprobs = (int32_t)logprobs;
    g->common.prompt_logprobs = g->echo ? (int32_t)logprobs : -1;
    return true;
}

status completion_read(const char *body, size_t len, uint64_t drawn_seed, generation *out, err *e)
{
    err fault;
    generation g;
    err_clear(&fault);
    status st = generation_begin(&g, WIRE_GENERATE, body, len, drawn_seed, &fault);
    if (st == ST_OK) {
        const json *root = json_root(g.doc);
        if (fields_only(root, names, sizeof names / sizeof names[0], "", &fault) &&
            read_prompts(&g, root, &fault) && generation_read_shared(&g, &fault) &&
            read_rest(&g, root, &fault)) {
            *out = g;
            return ST_OK;
        }
        generation_release(&g);
    }
    if (e) {
        *e = fault;
    }
    return fault.code;
}

static void put_text(json_w *w, const answer_choice *c)
{
    json_w_key(w, "text");
    json_w_str(w, c->text, c->text_len);
}

const answer_shape completion_shape = {
    .id_prefix = "cmpl-",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .put_text = put_text,
    .put_delta = put_text,
};
