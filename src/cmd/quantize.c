/*
 * hearth quantize: writes a model again with its matrices in another format. The new file appears when it is
 * whole; the old one is only read.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cpu_limit.h"
#include "base/json.h"
#include "base/pool.h"
#include "cmd/answer.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "cmd/quantize_plan.h"
#include "cmd/quantize_stream.h"
#include "cmd/terminal.h"
#include "gguf/reader.h"
#include "gguf/writer.h"

#define QUANTIZATION_VERSION 2u /* of the block layouts; ggml has had no other since GGUF v2 */
#define MAX_SHOWN            8u /* names of matrices that fell back */

typedef struct quantize_args {
    const char *out;
    gguf_type type;
    int64_t threads;
    bool as_json;
} quantize_args;

typedef struct summary {
    size_t n_tensors, n_converted, n_fallback;
    uint64_t bytes_in, bytes_out;
    double rms;
} summary;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    interrupted = 1;
    signal(sig, SIG_DFL); /* a second Ctrl-C kills, and leaves the temporary file */
}

static bool key_is(const gguf_kv *kv, const char *key)
{
    return kv->key.len == strlen(key) && memcmp(kv->key.data, key, kv->key.len) == 0;
}

/* All keys but those that this file answers for itself. */
static status copy_keys(const gguf_file *f, gguf_type type, gguf_writer *w, err *e)
{
    for (size_t i = 0; i < gguf_n_kv(f); i++) {
        const gguf_kv *kv = gguf_kv_at(f, i);
        bool is_split = kv->key.len > 6 && memcmp(kv->key.data, "split.", 6) == 0;
        if (is_split || key_is(kv, "general.file_type") || key_is(kv, "general.quantization_version")) {
            continue;
        }
        status st = gguf_writer_copy_kv(w, kv);
        if (st != ST_OK) {
            return err_set(e, st, NULL, "cannot copy key %.*s: %s",
                           (int)(kv->key.len < 100 ? kv->key.len : 100), kv->key.data, status_text(st));
        }
    }
    status st = gguf_writer_u32(w, "general.file_type", quantize_file_type(type));
    if (st == ST_OK) {
        st = gguf_writer_u32(w, "general.quantization_version", QUANTIZATION_VERSION);
    }
    return st == ST_OK ? st : err_set(e, st, NULL, "cannot add keys: %s", status_text(st));
}

static status add_tensors(const gguf_file *f, gguf_type type, quantize_stream *s, gguf_writer *w,
                          summary *sum, err *e)
{
    status st = ST_OK;
    sum->n_tensors = gguf_n_tensors(f);
    for (size_t i = 0; st == ST_OK && i < sum->n_tensors; i++) {
        quantize_step step;
        st = quantize_plan(gguf_tensor_at(f, i), type, &step, e);
        if (st == ST_OK) {
            sum->n_converted += step.is_matrix && !step.is_fallback;
            sum->n_fallback += step.is_fallback;
            st = quantize_stream_add(s, w, &step, e);
        }
    }
    return st;
}

/* One line, before the work begins. */
static void tell_fallbacks(const gguf_file *f, gguf_type type, size_t n_fallback)
{
    const gguf_type_info info = gguf_type_info_of((uint32_t)type);
    size_t n_shown = 0;
    fprintf(stderr, "hearth: F16 instead of %s, as rows are not whole blocks of %u values: ", info.name,
            info.block_values);
    for (size_t i = 0; i < gguf_n_tensors(f) && n_shown < MAX_SHOWN; i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        quantize_step step;
        if (quantize_plan(t, type, &step, NULL) == ST_OK && step.is_fallback) {
            fputs(n_shown++ ? ", " : "", stderr);
            terminal_put(stderr, t->name.data, t->name.len, false);
        }
    }
    if (n_fallback > n_shown) {
        fprintf(stderr, " and %zu more", n_fallback - n_shown);
    }
    fputc('\n', stderr);
}

/* A rename puts a file in the place of whatever has the name: a device or a pipe must not go that way. */
static int check_out(const gguf_file *f, const quantize_args *a)
{
    struct stat sb;
    if (stat(a->out, &sb) != 0) {
        return EXIT_OK; /* nothing there, or the writer says why not */
    }
    if (!S_ISREG(sb.st_mode)) {
        fprintf(stderr, "hearth: %s: %s\n", a->out, S_ISDIR(sb.st_mode) ? "is a directory" : "is not a file");
        return EXIT_FAILED;
    }
    if (gguf_holds_path(f, a->out)) {
        fprintf(stderr, "hearth: %s is the file that is read: give another name\n", a->out);
        return EXIT_FAILED;
    }
    return EXIT_OK;
}

static status write_model(const gguf_file *f, const quantize_args *a, pool *p, summary *sum, err *e)
{
    struct stat sb;
    gguf_writer *w = NULL;
    quantize_stream *s = NULL;
    status st = gguf_writer_new(&w);
    if (st != ST_OK) {
        return err_set(e, st, NULL, "out of memory");
    }
    st = quantize_stream_new(f, p, &interrupted, &s, e);
    if (st == ST_OK) {
        st = copy_keys(f, a->type, w, e);
    }
    if (st == ST_OK) {
        st = add_tensors(f, a->type, s, w, sum, e);
    }
    if (st == ST_OK) {
        if (sum->n_fallback) {
            tell_fallbacks(f, a->type, sum->n_fallback);
        }
        signal(SIGINT, on_interrupt);
        st = gguf_writer_finish(w, a->out, e);
        progress_bar(NULL, 1);
    }
    if (st == ST_OK) {
        sum->rms = quantize_stream_rms(s);
        sum->bytes_in = gguf_file_bytes(f);
        sum->bytes_out = stat(a->out, &sb) == 0 ? (uint64_t)sb.st_size : 0;
    }
    quantize_stream_free(s);
    gguf_writer_free(w);
    return st;
}

static void print_people(const quantize_args *a, const char *in, const summary *s)
{
    const double mib = 1024 * 1024;
    printf("in         %s, %.1f MiB\n", in, (double)s->bytes_in / mib);
    printf("out        %s, %.1f MiB\n", a->out, (double)s->bytes_out / mib);
    printf("tensors    %zu, %zu as %s\n", s->n_tensors, s->n_converted,
           gguf_type_info_of((uint32_t)a->type).name);
    printf("RMS error  %.4g\n", s->rms);
}

static int print_json(const quantize_args *a, const char *in, const summary *s)
{
    buf out = {0};
    json_w w;
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    json_w_key(&w, "in");
    json_w_cstr(&w, in);
    json_w_key(&w, "out");
    json_w_cstr(&w, a->out);
    json_w_key(&w, "type");
    json_w_cstr(&w, gguf_type_info_of((uint32_t)a->type).name);
    json_w_key(&w, "tensors");
    json_w_u64(&w, s->n_tensors);
    json_w_key(&w, "bytes_in");
    json_w_u64(&w, s->bytes_in);
    json_w_key(&w, "bytes_out");
    json_w_u64(&w, s->bytes_out);
    json_w_key(&w, "rms_error");
    json_w_f64(&w, s->rms);
    json_w_obj_close(&w);
    return answer_json(&w, &out);
}

static int quantize(const char *in, const quantize_args *a)
{
    err e = {.offset = ERR_NO_OFFSET};
    cpu_limit limit;
    gguf_file *f = NULL;
    pool *p = NULL;
    summary sum = {0};
    int rc = EXIT_FAILED;
    cpu_limit_read("/", &limit);
    if (gguf_open(in, &f, &e) != ST_OK) {
        print_err(in, &e);
        goto out;
    }
    rc = check_out(f, a);
    if (rc != EXIT_OK) {
        goto out;
    }
    status st = pool_new(cpu_limit_threads(&limit, (size_t)a->threads), limit.quota_cpus <= 0, &p, &e);
    st = st == ST_OK ? write_model(f, a, p, &sum, &e) : st;
    if (st != ST_OK) {
        rc = st == ST_CANCELLED ? EXIT_INTERRUPTED : EXIT_FAILED;
        print_err(st == ST_IO ? a->out : in, &e);
        goto out;
    }
    rc = EXIT_OK;
    if (a->as_json) {
        rc = print_json(a, in, &sum);
    } else {
        print_people(a, in, &sum);
    }
out:
    pool_free(p);
    gguf_close(f);
    return rc;
}

static int bad_type(const char *text)
{
    buf names = {0};
    status st = quantize_type_list(&names);
    fprintf(stderr, "hearth: no type '%s'; there are %s\n", text, st == ST_OK ? buf_str(&names) : "others");
    buf_release(&names);
    return EXIT_USAGE;
}

int cmd_quantize(int argc, char **argv)
{
    quantize_args a = {0};
    const cli_arg table[] = {
        {"threads", 't', ARG_INT, &a.threads, 1, POOL_MAX_THREADS,
         "N  compute threads (default: all that may be used)"},
        {"json", 0, ARG_FLAG, &a.as_json, 0, 0, "print one JSON object"},
    };
    const char *pos[3];
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "quantize IN OUT TYPE [OPTION …]", table, sizeof table / sizeof table[0], pos,
                    3, &n_pos, &rc)) {
        return rc;
    }
    if (n_pos < 3 || !*pos[1]) {
        fprintf(stderr, "hearth: quantize needs IN, OUT and TYPE (try hearth quantize --help)\n");
        return EXIT_USAGE;
    }
    a.out = pos[1];
    if (!quantize_type_parse(pos[2], &a.type)) {
        return bad_type(pos[2]);
    }
    char path[4096];
    rc = model_path_find(pos[0], path, sizeof path);
    return rc == EXIT_OK ? quantize(path, &a) : rc;
}
