/*
 * bench_verify: promise P1 on this machine. The logits of every position of one prompt, computed by the reference
 * kernels in chunks of eight by themselves, are compared bit by bit with those of every other set this CPU has,
 * over numbers of threads, chunk sizes and neighbours in the batch.
 *
 * The reference is slow: it computes as many positions as it can in ten seconds (8 to 64), unless -p says how
 * many. Everything else computes that many.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/answer.h"
#include "cmd/bench.h"
#include "cmd/cmd.h"
#include "cmd/model_options.h"
#include "kern/kv_layout.h"
#include "kv/page_pool.h"

#define MAX_POSITIONS  64u
#define CHUNK          8u
#define ENOUGH_MS      10000.0
#define MAX_NEIGHBOURS 15u
#define MAX_CHUNK      64u

typedef struct variant { /* one way to compute the same */
    size_t chunk;        /* rows of each sequence in a step; 0 = as many as one step takes */
    size_t neighbours;   /* other sequences in the batch, with other tokens */
} variant;

static const variant variants[] = {{0, 0}, {1, 0}, {5, 3}, {1, 7}, {1, MAX_NEIGHBOURS}, {0, MAX_NEIGHBOURS}};
enum { N_VARIANTS = sizeof variants / sizeof variants[0] };

typedef struct difference {
    size_t position;
    size_t token;
    float is, should;
} difference;

typedef struct verify {
    const bench_args *args; /* borrowed */
    size_t n;               /* positions */
    size_t n_vocab;
    /* owned */
    instance *in;
    float *want;   /* [n][n_vocab] of the reference */
    float *logits; /* [MAX_CHUNK][n_vocab] of a step */
    void **addrs;  /* [1 + MAX_NEIGHBOURS][n_pages] */
    page_pool *pages;
    size_t n_pages; /* of a sequence */
    /* what runs, for messages */
    const kern_table *kern;
    size_t threads;
    variant how;
    size_t runs;
    err *e; /* borrowed */
} verify;

static int32_t token_at(const verify *v, size_t who, size_t position)
{
    uint32_t x = (uint32_t)position * 2654435761u + (uint32_t)who * 40503u + 7;
    return (int32_t)((x ^ x >> 15) % (uint32_t)v->n_vocab);
}

/* The model, and pages for all sequences of the largest batch. */
static status open_model(verify *v, kern_set set, size_t threads, size_t positions)
{
    instance_options opt = v->args->open;
    opt.cpu = set;
    opt.threads = threads;
    opt.context = (int32_t)positions < 2 ? 2 : (int32_t)positions;
    opt.max_sequences = MAX_CHUNK; /* so that a step gives that many rows of logits */
    opt.prefill_chunk = MAX_CHUNK * (1 + MAX_NEIGHBOURS);
    status st = instance_open(v->args->path, &opt, &v->in, v->e);
    if (st != ST_OK) {
        return st;
    }
    const forward_ops *ops = instance_forward(v->in);
    v->n_vocab = ops->shape->n_vocab;
    v->threads = instance_describe(v->in)->threads;
    v->kern = kern_select(set);
    v->n_pages = (positions + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    size_t all = v->n_pages * (1 + MAX_NEIGHBOURS);
    st = page_pool_new(ops->page_bytes, all, &v->pages, v->e);
    v->addrs = mem_calloc(all, sizeof *v->addrs);
    v->logits = mem_alloc_array((size_t)MAX_CHUNK * v->n_vocab, sizeof *v->logits);
    if (st == ST_OK && (!v->addrs || !v->logits)) {
        st = err_set(v->e, ST_NOMEM, NULL, "out of memory for the logits");
    }
    for (size_t i = 0; st == ST_OK && v->addrs && i < all; i++) {
        page_id id;
        st = page_pool_take(v->pages, &id);
        v->addrs[i] = st == ST_OK ? page_pool_addr(v->pages, id) : NULL;
    }
    return st;
}

static void close_model(verify *v)
{
    page_pool_free(v->pages);
    mem_free(v->addrs);
    mem_free(v->logits);
    instance_close(v->in);
    v->pages = NULL;
    v->addrs = NULL;
    v->logits = NULL;
    v->in = NULL;
}

/* One step: positions [at, at + n) of all sequences; logits of the first sequence, which stands in the middle of
 * the batch. */
static status step(const verify *v, size_t at, size_t n)
{
    const forward_ops *ops = instance_forward(v->in);
    batch_row rows[MAX_CHUNK * (1 + MAX_NEIGHBOURS)];
    uint8_t bad[MAX_CHUNK * (1 + MAX_NEIGHBOURS)] = {0};
    batch_seq seqs[1 + MAX_NEIGHBOURS];
    size_t n_seqs = 1 + v->how.neighbours, first = v->how.neighbours / 2, n_rows = 0;
    for (size_t s = 0; s < n_seqs; s++) {
        seqs[s] = (batch_seq){v->addrs + s * v->n_pages, v->n_pages};
        for (size_t i = 0; i < n; i++) {
            size_t who = s == first ? 0 : s + 1;
            rows[n_rows++] = (batch_row){(int32_t)s, (int32_t)(at + i), token_at(v, who, at + i), s == first};
        }
    }
    batch b = {rows, n_rows, seqs, n_seqs};
    status st = ops->forward(ops->ctx, instance_pool(v->in), &b, v->logits, bad, v->e);
    if (st == ST_OK && memchr(bad, 1, n_rows)) {
        st = err_set(v->e, ST_NONFINITE, NULL, "a value that is not finite: nothing can be compared");
    }
    return st;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static bool bits_differ(const verify *v, size_t at, size_t n, difference *d)
{
    for (size_t i = 0; i < n; i++) {
        const float *is = v->logits + i * v->n_vocab, *should = v->want + (at + i) * v->n_vocab;
        if (memcmp(is, should, v->n_vocab * sizeof *is) == 0) {
            continue;
        }
        size_t t = 0;
        while (bits_of(is[t]) == bits_of(should[t])) {
            t++;
        }
        *d = (difference){at + i, t, is[t], should[t]};
        return true;
    }
    return false;
}

/* Computes all positions once in the way v->how says. *differs: they are not what the reference says. */
static status run_variant(verify *v, difference *d, bool *differs)
{
    size_t chunk = v->how.chunk ? v->how.chunk : MAX_CHUNK;
    status st = ST_OK;
    *differs = false;
    for (size_t at = 0; st == ST_OK && !*differs && at < v->n; at += chunk) {
        size_t n = v->n - at < chunk ? v->n - at : chunk;
        st = step(v, at, n);
        *differs = st == ST_OK && bits_differ(v, at, n, d);
    }
    v->runs++;
    return st;
}

/* The reference: chunk after chunk until that is enough. */
static status make_reference(verify *v)
{
    const clock_src *c = clock_system();
    char label[] = "reference";
    bool asked = v->args->prefill_given && v->args->prefill.n > 0;
    size_t wanted = asked ? v->args->prefill.at[0] : MAX_POSITIONS;
    uint64_t t0 = clock_mono_ns(c);
    status st = open_model(v, KERN_REF, v->args->threads.at[0], wanted);
    if (st == ST_OK) {
        v->want = mem_alloc_array(wanted * v->n_vocab, sizeof *v->want);
        st = v->want ? ST_OK
                     : err_set(v->e, ST_NOMEM, NULL, "out of memory for the logits of %zu tokens", wanted);
    }
    v->how = (variant){CHUNK, 0};
    while (st == ST_OK && v->want && v->logits && v->n < wanted) {
        size_t n = wanted - v->n < CHUNK ? wanted - v->n : CHUNK;
        st = step(v, v->n, n);
        if (st == ST_OK) {
            memcpy(v->want + v->n * v->n_vocab, v->logits, n * v->n_vocab * sizeof *v->want);
            v->n += n;
        }
        if (!asked && clock_ms_between(t0, clock_mono_ns(c)) > ENOUGH_MS) {
            break;
        }
        progress_bar(label, (double)v->n / (double)(wanted + 1));
    }
    progress_bar(label, 1);
    close_model(v);
    return st;
}

static status run_set(verify *v, kern_set set, size_t threads, difference *d, bool *differs)
{
    char label[32];
    snprintf(label, sizeof label, "comparing %s", kern_set_name(set));
    status st = open_model(v, set, threads, v->n);
    for (size_t i = 0; st == ST_OK && !*differs && i < N_VARIANTS; i++) {
        v->how = variants[i];
        st = run_variant(v, d, differs);
        progress_bar(label, (double)(i + 1) / (double)(N_VARIANTS + 1));
    }
    progress_bar(label, 1);
    close_model(v);
    return st;
}

static bool has_set(const verify *v, kern_set set)
{
    return set <= v->args->open.cpu && kern_table_of(set) != NULL;
}

/* All sets above the reference, or it itself where there is no other; one thread and as many as were asked for. */
static status run_all(verify *v, char *sets, size_t cap, difference *d, bool *differs)
{
    const size_list one = {.at = {1, 0}, .n = 2};
    const size_list *asked = &v->args->threads;
    const size_list *threads = asked->n == 1 && asked->at[0] == 0 ? &one : asked;
    bool only_ref = !has_set(v, KERN_AVX2) && !has_set(v, KERN_AVX512) && !has_set(v, KERN_AMX);
    status st = ST_OK;
    for (int s = only_ref ? KERN_REF : KERN_REF + 1; st == ST_OK && !*differs && s < KERN_SET_COUNT; s++) {
        if (!has_set(v, (kern_set)s)) {
            continue;
        }
        size_t len = strlen(sets);
        snprintf(sets + len, cap - len, "%s%s", len ? ", " : "", kern_set_name((kern_set)s));
        for (size_t i = 0; st == ST_OK && !*differs && i < threads->n; i++) {
            st = run_set(v, (kern_set)s, threads->at[i], d, differs);
        }
    }
    return st;
}

static void print_people(const verify *v, const char *sets, const difference *d)
{
    if (!d) {
        printf("ok: %zu positions of %zu logits have the reference's bits in %zu runs (%s; chunks of 1, 5 "
               "and %u; up "
               "to %u neighbours)\n",
               v->n, v->n_vocab, v->runs, sets, MAX_CHUNK, MAX_NEIGHBOURS);
        return;
    }
    printf(
        "DIFFERENT: position %zu, token %zu: %a instead of %a (kernels %s, %zu threads, chunks of %zu, %zu "
        "neighbours)\n",
        d->position, d->token, (double)d->is, (double)d->should, v->kern->name, v->threads,
        v->how.chunk ? v->how.chunk : MAX_CHUNK, v->how.neighbours);
}

static int print_json(const verify *v, const char *sets, const difference *d)
{
    buf out = {0};
    json_w w;
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    json_w_key(&w, "ok");
    json_w_bool(&w, !d);
    json_w_key(&w, "positions");
    json_w_u64(&w, v->n);
    json_w_key(&w, "n_vocab");
    json_w_u64(&w, v->n_vocab);
    json_w_key(&w, "runs");
    json_w_u64(&w, v->runs);
    json_w_key(&w, "kernels");
    json_w_cstr(&w, sets);
    if (d) {
        const struct {
            const char *key;
            uint64_t value;
        } fields[] = {{"position", d->position},        {"token", d->token},
                      {"bits", bits_of(d->is)},         {"reference_bits", bits_of(d->should)},
                      {"threads", v->threads},          {"chunk", v->how.chunk ? v->how.chunk : MAX_CHUNK},
                      {"neighbours", v->how.neighbours}};
        json_w_key(&w, "difference");
        json_w_obj_open(&w);
        json_w_key(&w, "kernels");
        json_w_cstr(&w, v->kern->name);
        for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
            json_w_key(&w, fields[i].key);
            json_w_u64(&w, fields[i].value);
        }
        json_w_obj_close(&w);
    }
    json_w_obj_close(&w);
    return answer_json(&w, &out);
}

int bench_verify(const bench_args *a)
{
    err e = {.offset = ERR_NO_OFFSET};
    verify v = {.args = a, .e = &e};
    difference d;
    bool differs = false;
    char sets[64] = "";
    int rc = EXIT_FAILED;
    status st = make_reference(&v);
    if (st == ST_OK && v.n < MAX_POSITIONS && !a->prefill_given) {
        fprintf(stderr, "hearth: the reference took its time: %zu positions are compared (-p N compares N)\n",
                v.n);
    }
    if (st == ST_OK) {
        st = run_all(&v, sets, sizeof sets, &d, &differs);
    }
    if (st != ST_OK) {
        print_err(a->path, &e);
    } else if (a->as_json) {
        rc = print_json(&v, sets, differs ? &d : NULL);
    } else {
        print_people(&v, sets, differs ? &d : NULL);
        rc = EXIT_OK;
    }
    mem_free(v.want);
    return differs ? EXIT_FAILED : rc;
}
