/*
 * make_model OUT.gguf [field=value …]: writes a random model (make_model.h) for scripts and for a first look.
 *
 *   make_model /tmp/noise.gguf type=Q8_0 vocab=1024 tokenizer=bpe ctx=8192
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/make_model.h"

static const char *const vocab_names[] = {"none", "spm", "bpe"};

static bool type_of(const char *name, gguf_type *out)
{
    for (uint32_t i = 0; i < GGUF_TYPE_COUNT; i++) {
        const char *known = gguf_type_info_of(i).name;
        if (known && strcmp(known, name) == 0) {
            *out = (gguf_type)i;
            return true;
        }
    }
    return false;
}

static bool set_number(make_model_spec *s, const char *key, const char *value)
{
    const struct {
        const char *key;
        uint32_t *at;
    } fields[] = {
        {"width", &s->width},         {"layers", &s->n_layers},   {"heads", &s->n_heads},
        {"kv_heads", &s->n_kv_heads}, {"head_dim", &s->head_dim}, {"ffn", &s->n_ff},
        {"vocab", &s->n_vocab},       {"ctx", &s->n_ctx},
    };
    char *end;
    unsigned long long v = strtoull(value, &end, 10);
    if (*value == '\0' || *end != '\0') {
        return false;
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(fields[i].key, key) == 0 && v <= UINT32_MAX) {
            *fields[i].at = (uint32_t)v;
            return true;
        }
    }
    if (strcmp(key, "seed") == 0) {
        s->seed = v;
    } else if (strcmp(key, "tied") == 0) {
        s->tied = v != 0;
    } else if (strcmp(key, "rope_freqs") == 0) {
        s->rope_freqs = v != 0;
    } else {
        return false;
    }
    return true;
}

static bool set_field(make_model_spec *s, const char *key, const char *value)
{
    if (strcmp(key, "arch") == 0) {
        s->arch = value;
        return true;
    }
    if (strcmp(key, "type") == 0) {
        return type_of(value, &s->type) && type_of(value, &s->type_alt);
    }
    if (strcmp(key, "type_alt") == 0) {
        return type_of(value, &s->type_alt);
    }
    if (strcmp(key, "tokenizer") == 0) {
        for (int i = 0; i < 3; i++) {
            if (strcmp(vocab_names[i], value) == 0) {
                s->vocab = (make_vocab)i;
                return true;
            }
        }
        return false;
    }
    return set_number(s, key, value);
}

int main(int argc, char **argv)
{
    make_model_spec spec = make_model_default(GGUF_TYPE_F32);
    if (argc < 2) {
        fprintf(
            stderr,
            "usage: make_model OUT [arch=llama|qwen3] [type=F32|F16|BF16|Q8_0|Q4_0|Q4_K|Q6_K] [type_alt=…]\n"
            "       [tokenizer=none|spm|bpe] [width=] [layers=] [heads=] [kv_heads=] [head_dim=] [ffn=] "
            "[vocab=]\n"
            "       [ctx=] [tied=0|1] [rope_freqs=0|1] [seed=]\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals) {
            *equals = '\0';
        }
        if (!equals || !set_field(&spec, argv[i], equals + 1)) {
            fprintf(stderr, "make_model: cannot take %s=%s\n", argv[i], equals ? equals + 1 : "");
            return 2;
        }
    }
    err e = {0};
    status st = make_model(argv[1], &spec, &e);
    if (st != ST_OK) {
        fprintf(stderr, "make_model: %s: %s\n", status_text(st), e.msg);
        return 1;
    }
    return 0;
}
