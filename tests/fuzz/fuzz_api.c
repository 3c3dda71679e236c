/*
 * fuzz_api: a body that a route takes becomes lines that the worker takes, whatever vocabulary it has; one that
 * it does not take is explained, with a status below 500; keys and log probabilities of any bytes do no harm.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/api_error.h"
#include "serve/chat.h"
#include "serve/completion.h"
#include "serve/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void check_generation(const generation *g)
{
    const wire_limits limits = {.n_vocab = INT32_MAX}; /* the last id is the worker's to refuse */
    must(generation_n_choices(g) >= 1 && generation_n_choices(g) <= GENERATION_MAX_CHOICES);
    for (size_t i = 0; i < generation_n_choices(g); i += 1 + generation_n_choices(g) / 3) {
        buf line = {0}, answer = {0};
        wire_request *r = NULL;
        err e;
        must(generation_put_line(g, i, "a.1", &line, &e) == ST_OK);
        if (wire_request_decode(line.data, line.len - 1, &limits, &r, &answer, NULL, &e) == ST_OK) {
            must(r->seed >= 1 && r->seed == g->seed + i % (size_t)g->n);
            must((r->op == WIRE_CHAT) == (g->prompts == NULL));
            wire_request_free(r);
        } else {
            must(strstr(answer.data, "2147483647") != NULL);
        }
        buf_release(&line);
        buf_release(&answer);
    }
}

static void check_fault(const err *e)
{
    api_fault f;
    buf out = {0};
    json_doc *doc;
    api_fault_err(&f, e);
    must(f.http_status >= 400 && f.http_status < 500 && f.message[0] != '\0');
    must(api_fault_put(&f, &out) == ST_OK);
    must(json_parse(out.data, out.len, 8, &doc, NULL) == ST_OK);
    json_doc_free(doc);
    buf_release(&out);
}

static void check_body(const char *body, size_t len,
                       status (*read)(const char *body, size_t len, uint64_t seed, generation *out, err *e))
{
    generation g;
    err e;
    if (read(body, len, WIRE_MAX_SEED, &g, &e) == ST_OK) {
        check_generation(&g);
        generation_release(&g);
    } else {
        check_fault(&e);
    }
}

static void check_keys(const char *text, size_t len)
{
    keys *k;
    err e;
    if (keys_parse(text, len, &k, &e) == ST_OK) {
        uint32_t index = 0;
        char *copy = strndup(text, len);
        if (keys_find(k, copy, copy, &index)) {
            must(keys_name(k, index)[0] != '\0');
        }
        free(copy);
        keys_free(k);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    check_body(text, size, completion_read);
    check_body(text, size, chat_read);
    check_keys(text, size);
    return 0;
}
