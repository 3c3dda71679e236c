/*
 * hearth inspect: what is in a GGUF file, in people's words or as JSON. Reads the table only, so any
 * architecture and any size will do.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "cmd/answer.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "cmd/terminal.h"
#include "gguf/reader.h"

#define ARCH_KEY_BYTES 256

typedef struct type_sum {
    size_t n_tensors;
    uint64_t n_bytes;
} type_sum;

typedef struct summary {
    gguf_str arch, name, license, tok_model, tok_pre;
    uint32_t ctx, layers, embd, heads, kv_heads, ff;
    uint64_t params, tensor_bytes, vocab;
    bool chat_template;
    bool kv_heads_vary; /* each layer has its own number */
    type_sum types[GGUF_TYPE_COUNT];
} summary;

static gguf_str str_of(const gguf_file *f, const char *key)
{
    gguf_str s = {"", 0};
    gguf_get_str(f, key, &s, NULL);
    return s;
}

/* "llama.block_count"; "" if that would be too long. */
static void arch_key(const summary *s, const char *what, char key[ARCH_KEY_BYTES])
{
    int n = snprintf(key, ARCH_KEY_BYTES, "%.*s.%s", (int)s->arch.len, s->arch.data, what);
    if (n < 0 || n >= ARCH_KEY_BYTES) {
        key[0] = 0;
    }
}

/* 0 if the key is absent or no such number. */
static uint32_t arch_u32(const gguf_file *f, const summary *s, const char *what)
{
    char key[ARCH_KEY_BYTES];
    uint32_t v = 0;
    arch_key(s, what, key);
    gguf_get_u32(f, key, &v, NULL);
    return v;
}

static void take_kv_heads(const gguf_file *f, summary *s)
{
    char key[ARCH_KEY_BYTES];
    arch_key(s, "attention.head_count_kv", key);
    const gguf_kv *kv = gguf_find(f, key);
    s->kv_heads_vary = kv && kv->type == GGUF_ARRAY;
    s->kv_heads = kv ? arch_u32(f, s, "attention.head_count_kv") : s->heads; /* absent: no sharing */
}

static void sum_tensors(const gguf_file *f, summary *s)
{
    for (size_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        s->params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        s->tensor_bytes += t->n_bytes;
        s->types[t->type].n_tensors++;
        s->types[t->type].n_bytes += t->n_bytes;
    }
}

static void summarise(const gguf_file *f, summary *s)
{
    s->arch = str_of(f, "general.architecture");
    s->name = str_of(f, "general.name");
    s->license = str_of(f, "general.license");
    s->tok_model = str_of(f, "tokenizer.ggml.model");
    s->tok_pre = str_of(f, "tokenizer.ggml.pre");
    s->chat_template = gguf_find(f, "tokenizer.chat_template") != NULL;
    const gguf_kv *tokens = gguf_find(f, "tokenizer.ggml.tokens");
    s->vocab = tokens ? tokens->n : 0;
    s->ctx = arch_u32(f, s, "context_length");
    s->layers = arch_u32(f, s, "block_count");
    s->embd = arch_u32(f, s, "embedding_length");
    s->heads = arch_u32(f, s, "attention.head_count");
    take_kv_heads(f, s);
    s->ff = arch_u32(f, s, "feed_forward_length");
    sum_tensors(f, s);
}

#define MAX_SHOWN 200 /* bytes of a text of the file */

static void put_str(const char *label, gguf_str s)
{
    if (s.len > 0) {
        printf("%-14s ", label);
        terminal_put(stdout, s.data, s.len < MAX_SHOWN ? s.len : MAX_SHOWN, false);
        puts(s.len > MAX_SHOWN ? "…" : "");
    }
}

static void print_size(uint64_t n_bytes)
{
    if (n_bytes >= UINT64_C(1) << 30) {
        printf("%.2f GiB", (double)n_bytes / (double)(UINT64_C(1) << 30));
    } else if (n_bytes >= UINT64_C(1) << 20) {
        printf("%.1f MiB", (double)n_bytes / (double)(UINT64_C(1) << 20));
    } else {
        printf("%.1f KiB", (double)n_bytes / 1024);
    }
}

static void print_params(uint64_t n)
{
    if (n >= 1000000000u) {
        printf("%.2f billion", (double)n / 1e9);
    } else if (n >= 1000000u) {
        printf("%.1f million", (double)n / 1e6);
    } else {
        printf("%" PRIu64, n);
    }
}

static void print_people(const gguf_file *f, const summary *s)
{
    printf("%-14s GGUF v%u, %zu part%s, ", "file", gguf_version(f), gguf_parts(f),
           gguf_parts(f) == 1 ? "" : "s");
    print_size(gguf_file_bytes(f));
    putchar('\n');
    put_str("name", s->name);
    put_str("architecture", s->arch);
    put_str("licence", s->license);
    if (gguf_n_tensors(f) == 0) {
        printf("%-14s none: a vocabulary only\n", "tensors");
    } else {
        printf("%-14s ", "parameters");
        print_params(s->params);
        printf(" in %zu tensors, ", gguf_n_tensors(f));
        print_size(s->tensor_bytes);
        putchar('\n');
    }
    for (uint32_t t = 0; t < GGUF_TYPE_COUNT; t++) {
        if (s->types[t].n_tensors) {
            printf("%14s %-7s %5zu tensors, ", "", gguf_type_info_of(t).name, s->types[t].n_tensors);
            print_size(s->types[t].n_bytes);
            putchar('\n');
        }
    }
    if (s->layers) {
        printf("%-14s %u layers of width %u, %u heads (", "shape", s->layers, s->embd, s->heads);
        if (s->kv_heads_vary) {
            printf("for keys and values it varies");
        } else {
            printf("%u for keys and values", s->kv_heads);
        }
        printf("), feed-forward %u\n", s->ff);
    }
    if (s->ctx) {
        printf("%-14s %u tokens\n", "context", s->ctx);
    }
    put_str("tokenizer", s->tok_model);
    put_str("pre-tokenizer", s->tok_pre);
    if (s->vocab) {
        printf("%-14s %" PRIu64 " tokens\n", "vocabulary", s->vocab);
    }
    printf("%-14s %s\n", "chat template", s->chat_template ? "yes" : "no");
}

static void print_tensors(const gguf_file *f)
{
    for (size_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        terminal_put(stdout, t->name.data, t->name.len, false);
        printf("%*s %-7s", t->name.len < 48 ? 48 - (int)t->name.len : 0, "", gguf_type_info_of(t->type).name);
        for (uint32_t d = 0; d < t->n_dims; d++) {
            printf("%s%" PRIu64, d ? " x " : " ", t->dims[d]);
        }
        putchar('\n');
    }
}

static void key_str(json_w *w, const char *key, gguf_str s)
{
    json_w_key(w, key);
    json_w_str(w, s.data, s.len);
}

static void key_u64(json_w *w, const char *key, uint64_t v)
{
    json_w_key(w, key);
    json_w_u64(w, v);
}

static void write_tensors(json_w *w, const gguf_file *f)
{
    json_w_key(w, "tensors");
    json_w_arr_open(w);
    for (size_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        json_w_obj_open(w);
        key_str(w, "name", t->name);
        json_w_key(w, "type");
        json_w_cstr(w, gguf_type_info_of(t->type).name);
        json_w_key(w, "shape");
        json_w_arr_open(w);
        for (uint32_t d = 0; d < t->n_dims; d++) {
            json_w_u64(w, t->dims[d]);
        }
        json_w_arr_close(w);
        key_u64(w, "bytes", t->n_bytes);
        json_w_obj_close(w);
    }
    json_w_arr_close(w);
}

static int print_json(const gguf_file *f, const summary *s, bool tensors)
{
    buf out = {0};
    json_w w;
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    key_u64(&w, "gguf_version", gguf_version(f));
    key_u64(&w, "parts", gguf_parts(f));
    key_u64(&w, "file_bytes", gguf_file_bytes(f));
    key_str(&w, "name", s->name);
    key_str(&w, "architecture", s->arch);
    key_str(&w, "license", s->license);
    key_u64(&w, "parameters", s->params);
    key_u64(&w, "tensor_count", gguf_n_tensors(f));
    key_u64(&w, "tensor_bytes", s->tensor_bytes);
    json_w_key(&w, "types");
    json_w_obj_open(&w);
    for (uint32_t t = 0; t < GGUF_TYPE_COUNT; t++) {
        if (s->types[t].n_tensors) {
            key_u64(&w, gguf_type_info_of(t).name, s->types[t].n_tensors);
        }
    }
    json_w_obj_close(&w);
    key_u64(&w, "layers", s->layers);
    key_u64(&w, "width", s->embd);
    key_u64(&w, "heads", s->heads);
    json_w_key(&w, "kv_heads");
    if (s->kv_heads_vary) {
        json_w_null(&w);
    } else {
        json_w_u64(&w, s->kv_heads);
    }
    key_u64(&w, "feed_forward", s->ff);
    key_u64(&w, "context_length", s->ctx);
    key_str(&w, "tokenizer", s->tok_model);
    key_str(&w, "pre_tokenizer", s->tok_pre);
    key_u64(&w, "vocab_size", s->vocab);
    json_w_key(&w, "chat_template");
    json_w_bool(&w, s->chat_template);
    if (tensors) {
        write_tensors(&w, f);
    }
    json_w_obj_close(&w);
    return answer_json(&w, &out);
}

int cmd_inspect(int argc, char **argv)
{
    const char *model = NULL;
    bool as_json = false, tensors = false;
    const cli_arg table[] = {
        {"model", 'm', ARG_TEXT, &model, 0, 0, "FILE  the model"},
        {"tensors", 0, ARG_FLAG, &tensors, 0, 0, "list every tensor"},
        {"json", 0, ARG_FLAG, &as_json, 0, 0, "print one JSON object"},
    };
    const char *pos[1] = {NULL};
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "inspect [OPTION …] FILE", table, sizeof table / sizeof table[0], pos, 1,
                    &n_pos, &rc)) {
        return rc;
    }
    char path[4096];
    err e = {.offset = ERR_NO_OFFSET};
    gguf_file *f = NULL;
    if (n_pos && model) {
        fprintf(stderr, "hearth: one file at a time: -m %s or %s\n", model, pos[0]);
        return EXIT_USAGE;
    }
    rc = model_path_find(n_pos ? pos[0] : model, path, sizeof path);
    if (rc != EXIT_OK) {
        return rc;
    }
    if (gguf_open(path, &f, &e) != ST_OK) {
        print_err(path, &e);
        return EXIT_FAILED;
    }
    summary s = {0};
    summarise(f, &s);
    rc = EXIT_OK;
    if (as_json) {
        rc = print_json(f, &s, tensors);
    } else {
        print_people(f, &s);
        if (tensors) {
            print_tensors(f);
        }
    }
    gguf_close(f);
    return rc;
}
