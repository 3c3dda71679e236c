#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "wire/request_int.h"

#define FIELD_BYTES 96 /* of a name with an index in it */

typedef struct resume_reader {
    request_decoder *d;
    wire_resume *r;
} resume_reader;

static bool read_seed(resume_reader *x, const json *v)
{
    int64_t i;
    if (!json_i64(v, &i) || i < 1) {
        return request_refuse(x->d, "resume.seed", v, "an integer in [1, 2^63)");
    }
    x->r->seed = (uint64_t)i;
    return true;
}

static bool read_now(resume_reader *x, const json *v)
{
    return (json_i64(v, &x->r->now_ms) && x->r->now_ms >= 0) ||
           request_refuse(x->d, "resume.now", v, "an integer in [0, 2^63)");
}

static bool read_digest(resume_reader *x, const json *v)
{
    size_t len;
    const char *s = json_string(v, &len);
    if (!s || len != SHA256_HEX_LEN || strspn(s, "0123456789abcdef") != len) {
        return request_refuse(x->d, "resume.prompt_digest", v, "64 lower-case hex digits");
    }
    x->r->prompt_digest = arena_strndup(&x->d->r->mem, s, len);
    return x->r->prompt_digest || request_no_memory(x->d);
}

static bool read_prompt(resume_reader *x, const json *v)
{
    if (!request_read_token_list(x->d, "resume.prompt_ids", v, true, &x->r->prompt_ids,
                                 &x->r->n_prompt_ids)) {
        return false;
    }
    return x->r->n_prompt_ids > 0 || request_refuse(x->d, "resume.prompt_ids", v, "a list that is not empty");
}

static bool read_member(void *ctx, const char *key, size_t key_len, const json *v)
{
    resume_reader *x = ctx;
    char field[FIELD_BYTES];
    if (strcmp(key, "ids") == 0) {
        return request_read_token_list(x->d, "resume.ids", v, true, &x->r->ids, &x->r->n_ids);
    }
    if (strcmp(key, "seed") == 0) {
        return read_seed(x, v);
    }
    if (strcmp(key, "now") == 0) {
        return read_now(x, v);
    }
    if (strcmp(key, "prompt_digest") == 0) {
        return read_digest(x, v);
    }
    if (strcmp(key, "prompt_ids") == 0) {
        return read_prompt(x, v);
    }
    snprintf(field, sizeof field, "resume.%.64s", key);
    return request_refuse(x->d, field, v, "absent: it is no field of resume");
}

bool request_read_resume(request_decoder *d, const char *field, const json *v)
{
    static const char *const needed[] = {"ids", "seed", "now", "prompt_digest"};
    char name[FIELD_BYTES], msg[2 * FIELD_BYTES];
    if (json_kind(v) != JSON_OBJECT) {
        return request_refuse(d, field, v, "an object");
    }
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (!json_get(v, needed[i], NULL)) {
            snprintf(name, sizeof name, "resume.%s", needed[i]);
            snprintf(msg, sizeof msg, "%s must be present", name);
            return request_refuse_absent(d, name, msg);
        }
    }
    resume_reader x = {d, arena_calloc(&d->r->mem, 1, sizeof(wire_resume))};
    if (!x.r) {
        return request_no_memory(d);
    }
    json_each(v, read_member, &x);
    d->r->resume = x.r;
    return d->e.code == ST_OK;
}
