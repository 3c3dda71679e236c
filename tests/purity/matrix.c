#include "purity/matrix.h"

#include <assert.h>

#include "purity/cover.h"

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static const model_entry models[] = {
#define X(name, arch, type, type_alt, width, tied) \
    {#name, arch, GGUF_TYPE_##type, GGUF_TYPE_##type_alt, width, tied},
    PURITY_MODELS(X)
#undef X
};

static const struct {
    const char *name;
    size_t value;
} kvs[] =
    {
#define X(name, value) {#name, value},
        PURITY_KV(X)},
  sets[] = {PURITY_SETS(X)}, threads[] = {PURITY_THREADS(X)}, chunks[] = {PURITY_CHUNKS(X)};
#undef X

static const struct {
    const char *name;
    prompt_entry p;
} prompts[] = {
#define X(name, turn, reply, rest) {#name, {turn, reply, rest}},
    PURITY_PROMPTS(X)
#undef X
};

static const char *const sampling_names[] = {
#define X(name, ...) #name,
    PURITY_SAMPLINGS(X)
#undef X
};

static const char *const end_names[] = {
#define X(name) [END_##name] = #name,
    PURITY_ENDS(X)
#undef X
};

static const char *const way_names[] = {
#define X(name, ...) #name,
    PURITY_WAYS(X)
#undef X
};

/* The i-th of the sets that this build and this CPU have. */
static size_t usable_set(size_t i)
{
    for (size_t k = 0; k < N_OF(sets); k++) {
        if (kern_table_of((kern_set)sets[k].value) && i-- == 0) {
            return k;
        }
    }
    return N_OF(sets);
}

size_t matrix_values(purity_axis a)
{
    size_t n_sets = 0;
    while (usable_set(n_sets) < N_OF(sets)) {
        n_sets++;
    }
    const size_t n[N_AXES] = {[AXIS_MODEL] = N_OF(models),   [AXIS_KV] = N_OF(kvs),
                              [AXIS_SET] = n_sets,           [AXIS_THREADS] = N_OF(threads),
                              [AXIS_CHUNK] = N_OF(chunks),   [AXIS_WAY] = N_OF(way_names),
                              [AXIS_PROMPT] = N_OF(prompts), [AXIS_SAMPLING] = N_OF(sampling_names),
                              [AXIS_END] = N_OF(end_names)};
    assert(n[a] <= PURITY_MAX_VALUES);
    return n[a];
}

const char *matrix_axis_name(purity_axis a)
{
    static const char *const names[N_AXES] = {"model", "kv",     "set",      "threads", "chunk",
                                              "way",   "prompt", "sampling", "end"};
    return names[a];
}

const char *matrix_value_name(purity_axis a, size_t value)
{
    switch (a) {
    case AXIS_MODEL:
        return models[value].name;
    case AXIS_KV:
        return kvs[value].name;
    case AXIS_SET:
        return sets[usable_set(value)].name;
    case AXIS_THREADS:
        return threads[value].name;
    case AXIS_CHUNK:
        return chunks[value].name;
    case AXIS_WAY:
        return way_names[value];
    case AXIS_PROMPT:
        return prompts[value].name;
    case AXIS_SAMPLING:
        return sampling_names[value];
    case AXIS_END:
    case N_AXES:
        break;
    }
    return end_names[value];
}

const model_entry *matrix_model(const purity_case *c)
{
    return &models[c->at[AXIS_MODEL]];
}

const prompt_entry *matrix_prompt(const purity_case *c)
{
    return &prompts[c->at[AXIS_PROMPT]].p;
}

kv_type matrix_kv(const purity_case *c)
{
    return (kv_type)kvs[c->at[AXIS_KV]].value;
}

kern_set matrix_set(const purity_case *c)
{
    return (kern_set)sets[usable_set(c->at[AXIS_SET])].value;
}

size_t matrix_threads(const purity_case *c)
{
    return threads[c->at[AXIS_THREADS]].value;
}

size_t matrix_chunk(const purity_case *c)
{
    return chunks[c->at[AXIS_CHUNK]].value;
}

purity_end matrix_end(const purity_case *c)
{
    return (purity_end)c->at[AXIS_END];
}

enum {
#define X(name, ...) SAMPLING_##name,
    PURITY_SAMPLINGS(X)
#undef X
};

sampling matrix_sampling(const purity_case *c)
{
#define X(name, ...) {__VA_ARGS__},
    const sampling said[] = {PURITY_SAMPLINGS(X)};
#undef X
    sampling s = said[c->at[AXIS_SAMPLING]];
    sampling d = sampling_default();
    s.top_p = s.top_p > 0 ? s.top_p : d.top_p;
    s.repetition_penalty = s.repetition_penalty > 0 ? s.repetition_penalty : d.repetition_penalty;
    s.repeat_last_n = s.repeat_last_n > 0 ? s.repeat_last_n : d.repeat_last_n;
    s.ignore_eos = true;
    s.top_logprobs = SAMPLER_MAX_TOP_LOGPROBS;
    return s;
}

bool matrix_is_quiet(const purity_case *c)
{
    return c->at[AXIS_SAMPLING] == SAMPLING_quiet;
}

/* Which replies have a reference. */
static bool asked[N_OF(models)][N_OF(kvs)][N_OF(prompts)][N_OF(sampling_names)];

void matrix_asked(const uint8_t *at)
{
    asked[at[AXIS_MODEL]][at[AXIS_KV]][at[AXIS_PROMPT]][at[AXIS_SAMPLING]] = true;
}

static bool has_reference(const uint8_t *at)
{
    for (purity_axis a = 0; a < N_AXES; a++) {
        if ((a == AXIS_MODEL || a == AXIS_KV || a == AXIS_PROMPT || a == AXIS_SAMPLING) &&
            at[a] == COVER_UNSET) {
            return true;
        }
    }
    return asked[at[AXIS_MODEL]][at[AXIS_KV]][at[AXIS_PROMPT]][at[AXIS_SAMPLING]];
}

double matrix_cost(const uint8_t *at)
{
    static const struct {
        double ref_ms, ms; /* of a row in the reference set and in others */
    } by_size[] = {{12, 0.8}, {1.2, 0.15}, {0.4, 0.1}};
    const model_entry *m = &models[at[AXIS_MODEL] == COVER_UNSET ? 0 : at[AXIS_MODEL]];
    const prompt_entry *p = &prompts[at[AXIS_PROMPT] == COVER_UNSET ? 0 : at[AXIS_PROMPT]].p;
    size_t size = !m->arch ? 0 : m->width == 256 ? 1 : 2;
    double rows = (double)(p->n_turn + p->n_reply + p->n_rest + PURITY_N_NEW);
    bool ref = at[AXIS_SET] != COVER_UNSET && sets[usable_set(at[AXIS_SET])].value == KERN_REF;
    double cost = (rows + 100) * (ref ? by_size[size].ref_ms : by_size[size].ms);
    return has_reference(at) ? cost : cost + rows * by_size[size].ref_ms;
}
