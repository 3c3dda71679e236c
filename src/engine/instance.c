#include "engine/instance.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/cpu_limit.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mem_limit.h"
#include "gguf/reader.h"
#include "model/model.h"

#define STRING_CHUNK      4096
#define SYSTEM_PAGE       4096
#define PREFAULT_SLICE    (16u << 20) /* bytes between two reports of progress */
#define STORE_QUEUE_BYTES ((size_t)64 << 20)
#define STORE_CLOSE_MS    2000
/* Rows of logits beyond one per sequence: prompts that are scored (prompt_logprobs) advance by these. */
#define SCORE_ROWS 31

struct instance {
    /* owned */
    gguf_file *file;
    tokenizer *tok;
    model *model;
    pool *compute;
    engine *en;
    store *kept; /* NULL: nothing is kept on disk */
    arena strings;
    /* borrowed */
    const kern_table *kern;

    forward_ops ops;
    instance_info info;
    bool has_digest;
    uint8_t digest[SHA256_BYTES];
};

struct instance_source {
    /* owned */
    gguf_files *files; /* NULL once taken */
    pack_file *packed; /* NULL: pack in memory */
    cpu_limit limit;
    mem_limit memory;
    uint8_t identity[SHA256_BYTES];
};

instance_options instance_options_default(void)
{
    return (instance_options){.cpu = KERN_SET_COUNT - 1,
                              .kv_type = KV_F16,
                              .max_sequences = 8,
                              .max_step_ns = GEN_MAX_STEP_NS,
                              .park_bytes = INSTANCE_PARK_QUARTER,
                              .warm = true,
                              .pack_min_bytes = INSTANCE_PACK_MIN_BYTES};
}

static void report(const instance_options *opt, double done)
{
    if (opt->progress) {
        opt->progress(opt->progress_ctx, done);
    }
}

/*
 * Reads one byte of each system page of the weights that are used as they lie in the file, so that the wait for a cold
 * disk is here, where it can be shown, and not in the first reply. Costs tens of milliseconds per GB when the file is in
 * the page cache.
 */
static void prefault(const instance *in, const instance_options *opt)
{
    const gguf_file *f = in->file;
    bool all = !model_wants_packing(in->model);
    uint64_t total = gguf_file_bytes(f), done = 0, next = 0;
    for (size_t i = 0; i < gguf_n_tensors(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        const volatile unsigned char *data = t->data;
        for (uint64_t at = 0; at < t->n_bytes && model_reads_tensor(in->model, t); at += SYSTEM_PAGE) {
            (void)data[at];
            if (all && done + at >= next) { /* else packing has reported */
                report(opt, (double)(done + at) / (double)total);
                next = done + at + PREFAULT_SLICE;
            }
        }
        done += t->n_bytes;
    }
}

static status read_string(instance *in, const char *key, const char **out)
{
    gguf_str s = {"", 0};
    status st = gguf_get_str(in->file, key, &s, NULL);
    if (st != ST_OK) {
        s = (gguf_str){"", 0}; /* only told to people: absent or odd is no reason to refuse the file */
    }
    char *copy = arena_strndup(&in->strings, s.data, s.len);
    if (!copy) {
        return ST_NOMEM;
    }
    *out = copy;
    return ST_OK;
}

static uint64_t memory_of(const instance_source *s, const instance_options *opt)
{
    return opt->memory_bytes > 0 ? opt->memory_bytes : mem_limit_bytes(&s->memory);
}

/* Whether the packed weights lie in a file: there is one, and it is mapped. */
static bool maps_packed(const instance_source *s, const instance_options *opt)
{
    return s->packed && !opt->huge_pages;
}

/* Of the model's files, that stay in memory. A digest, and packing, pass over all of it; packing gives back what it has
 * passed. */
static uint64_t mapped_bytes(const instance *in, const instance_source *s)
{
    uint64_t bytes = gguf_file_bytes(in->file);
    bool hashed = !s->packed && gguf_parts(in->file) == 1 && bytes <= INSTANCE_DIGEST_BYTES;
    for (size_t i = 0; i < gguf_n_tensors(in->file) && !hashed; i++) {
        const gguf_tensor *t = gguf_tensor_at(in->file, i);
        bytes -= model_reads_tensor(in->model, t) ? 0 : t->n_bytes;
    }
    return bytes;
}

static uint64_t scratch_bytes(const instance *in, size_t lanes)
{
    size_t samplers = in->info.threads < lanes ? in->info.threads : lanes;
    uint64_t n_vocab = in->ops.shape->n_vocab;
    samplers = samplers < ENGINE_MAX_SAMPLERS ? samplers : ENGINE_MAX_SAMPLERS;
    return model_scratch_bytes(in->model, in->info.threads, lanes) + tokenizer_bytes(in->tok) +
           gguf_table_bytes(in->file) + in->ops.max_logit_rows * n_vocab * sizeof(float) +
           samplers * n_vocab * SAMPLER_TOKEN_BYTES + in->info.threads * INSTANCE_STACK_BYTES +
           INSTANCE_PROGRAM_BYTES;
}

static status make_plan(instance *in, const instance_source *s, const instance_options *opt, err *e)
{
    uint32_t train = model_shape_of(in->model)->n_ctx_train;
    uint64_t packed = model_packed_bytes(in->model);
    in->info.context_train = train > INT32_MAX ? INT32_MAX : (int32_t)train;
    size_t threads = cpu_limit_threads(&s->limit, opt->threads);
    in->info.threads = threads < POOL_MAX_THREADS ? threads : POOL_MAX_THREADS;
    const memory_needs needs = {.mapped_bytes = mapped_bytes(in, s),
                                .packed_bytes = maps_packed(s, opt) ? packed : 0,
                                .anonymous_bytes = maps_packed(s, opt) ? 0 : packed,
                                .scratch_bytes = scratch_bytes(in, opt->max_sequences),
                                .page_bytes = in->ops.page_bytes,
                                .lanes = opt->max_sequences,
                                .context_train = in->info.context_train};
    const memory_wish wish = {.limit_bytes = memory_of(s, opt),
                              .most_bytes = opt->memory_most_bytes,
                              .available_bytes = s->memory.available_bytes,
                              .copies_bytes = opt->park_bytes,
                              .context = opt->context,
                              .pages = opt->kv_pages};
    status st = memory_plan_make(&needs, &wish, &in->info.plan, e);
    if (st == ST_OK) {
        in->info.context = in->info.plan.context;
        in->info.kv_pages = in->info.plan.most_pages;
        in->info.kv_page_bytes = in->ops.page_bytes;
    }
    return st;
}

/* A reply must be able to end by itself; `hearth tokenize` opens such files without us. */
static status check_end_token(const tokenizer *tok, err *e)
{
    size_t n;
    tokenizer_eog_ids(tok, &n);
    return n > 0 ? ST_OK
                 : err_set(e, ST_LOAD_FAILED, "tokenizer.ggml.eos_token_id",
                           "the vocabulary has no end token: tokenizer.ggml.eos_token_id is absent and no "
                           "token has "
                           "a known end-of-turn name");
}

static status open_model(instance *in, gguf_files *take, const instance_options *opt, size_t chunk, err *e)
{
    size_t max_rows = chunk + opt->max_sequences - 1; /* a full chunk beside the others' replies */
    size_t max_logits = opt->max_sequences + SCORE_ROWS;
    model_options mo = {.kv_type = opt->kv_type,
                        .max_rows = max_rows,
                        .max_logit_rows = max_logits < max_rows ? max_logits : max_rows};
    status st = gguf_files_parse_take(take, &in->file, e);
    if (st == ST_OK) {
        st = tokenizer_open(in->file, &in->tok, e);
    }
    if (st == ST_OK) {
        st = check_end_token(in->tok, e);
    }
    if (st == ST_OK) {
        st = model_open(in->file, in->kern, &mo, &in->model, e);
    }
    if (st == ST_OK) {
        in->ops = model_forward_ops(in->model);
    }
    return st;
}

/* Packs the matrices, and brings into memory what is used as it lies in the file. */
static status bring_weights(instance *in, const instance_source *s, const instance_options *opt, err *e)
{
    status st = model_pack(in->model, in->compute,
                           &(model_pack_options){.file = s->packed,
                                                 .huge_pages = opt->huge_pages,
                                                 .touch = true,
                                                 .progress = opt->progress,
                                                 .progress_ctx = opt->progress_ctx},
                           e);
    if (st == ST_OK) {
        prefault(in, opt);
    }
    return st;
}

/* The digest, if it is known or costs little. */
static void find_digest(instance *in)
{
    const uint8_t *known = model_digest(in->model);
    if (gguf_parts(in->file) != 1 || (!known && gguf_file_bytes(in->file) > INSTANCE_DIGEST_BYTES)) {
        return;
    }
    if (known) {
        memcpy(in->digest, known, SHA256_BYTES);
        in->has_digest = true;
        return;
    }
    uint64_t n_bytes;
    const void *bytes = gguf_part_bytes(in->file, 0, &n_bytes);
    in->has_digest = sha256_once(bytes, (size_t)n_bytes, in->digest) == ST_OK;
}

/* What all states of this instance depend on: of two that agree in this the pages are the same, bit for bit. */
static status identify(const instance *in, const instance_source *s, const instance_options *opt,
                       kv_root_key *out)
{
    struct {
        uint8_t model[SHA256_BYTES];
        uint64_t page_bytes;
        int32_t context, numerics, kv_type, page_tokens;
    } of;
    memset(&of, 0, sizeof of);
    memcpy(of.model, in->has_digest ? in->digest : s->identity, SHA256_BYTES);
    of.page_bytes = in->ops.page_bytes;
    of.context = in->info.context;
    of.numerics = NUMERICS_VERSION;
    of.kv_type = (int32_t)opt->kv_type;
    of.page_tokens = KV_PAGE_TOKENS;
    return sha256_once(&of, sizeof of, out->bytes);
}

/* A store that cannot be opened is no reason not to serve. */
static void open_store(instance *in, const instance_options *opt, const kv_root_key *identity)
{
    err why;
    store_config c = {.dir = opt->store_dir,
                      .page_bytes = in->ops.page_bytes,
                      .budget_bytes = opt->store_bytes,
                      .daily_write_bytes = opt->store_daily_bytes,
                      .queue_bytes = STORE_QUEUE_BYTES > 4 * in->ops.page_bytes ? STORE_QUEUE_BYTES
                                                                                : 4 * in->ops.page_bytes,
                      .clock = opt->clock ? opt->clock : clock_system(),
                      .wake = opt->store_wake,
                      .wake_ctx = opt->store_wake_ctx};
    memcpy(c.layout, identity->bytes, sizeof c.layout);
    err_clear(&why);
    if (opt->store_dir && opt->warm && store_open(&c, &in->kept, &why) != ST_OK) {
        log_emit(LOG_WARN, "store", "event=store_off error=\"%s\"", why.msg);
    }
}

static status open_engine(instance *in, const instance_source *s, const instance_options *opt, size_t chunk,
                          err *e)
{
    uint64_t kv_bytes = (uint64_t)in->info.kv_pages * in->info.kv_page_bytes;
    uint64_t park_bytes = opt->park_bytes == INSTANCE_PARK_QUARTER ? kv_bytes / 4 : opt->park_bytes;
    if (opt->sized) {
        opt->sized(opt->sized_ctx, &(instance_sizes){.file_bytes = in->info.file_bytes,
                                                     .kv_bytes = kv_bytes + park_bytes,
                                                     .threads = in->info.threads,
                                                     .plan = &in->info.plan});
    }
    status st = pool_new(in->info.threads, s->limit.quota_cpus <= 0, &in->compute, e);
    if (st == ST_OK) {
        st = bring_weights(in, s, opt, e);
    }
    if (st != ST_OK) {
        return st;
    }
    engine_config cfg = {.ops = in->ops,
                         .tok = in->tok,
                         .kern = in->kern,
                         .compute = in->compute,
                         .clock = opt->clock ? opt->clock : clock_system(),
                         .n_ctx = in->info.context,
                         .n_pages = in->info.kv_pages,
                         .page_limit = in->info.plan.pages,
                         .prefill_chunk = chunk,
                         .max_step_ns = opt->max_step_ns,
                         .max_sequences = opt->max_sequences,
                         .prewarm_lanes = opt->max_sequences,
                         .park_bytes = (size_t)park_bytes,
                         .warm = opt->warm,
                         .before_step = opt->before_step,
                         .before_step_ctx = opt->before_step_ctx,
                         .lane_event = opt->lane_event,
                         .lane_event_ctx = opt->lane_event_ctx};
    find_digest(in);
    if (identify(in, s, opt, &cfg.identity) != ST_OK) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the identity of a model");
    }
    open_store(in, opt, &cfg.identity);
    cfg.store = in->kept;
    st = engine_new(&cfg, &in->en, e);
    return st == ST_OK ? engine_warm_up(in->en, e) : st;
}

static instance_number said_float(const gguf_file *f, const char *key)
{
    float x;
    char text[32];
    if (gguf_get_f32(f, key, &x, NULL) != ST_OK) {
        return (instance_number){.said = false};
    }
    for (int digits = 1; digits <= FLT_DECIMAL_DIG; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) {
            break;
        }
    }
    return (instance_number){.said = true, .value = strtod(text, NULL)};
}

static instance_number said_int(const gguf_file *f, const char *key)
{
    uint64_t i = 0;
    bool said = gguf_get_u64(f, key, &i, NULL) == ST_OK;
    return (instance_number){.said = said, .value = (double)i};
}

static void describe_sampling(const gguf_file *f, instance_info *i)
{
    i->temperature = said_float(f, "general.sampling.temp");
    i->top_p = said_float(f, "general.sampling.top_p");
    i->top_k = said_int(f, "general.sampling.top_k");
    i->min_p = said_float(f, "general.sampling.min_p");
    i->repetition_penalty = said_float(f, "general.sampling.penalty_repeat");
    i->repeat_last_n = said_int(f, "general.sampling.penalty_last_n");
}

static status describe(instance *in, err *e)
{
    instance_info *i = &in->info;
    i->arch = model_shape_of(in->model)->arch;
    i->quant = model_quant_name(in->model);
    i->kernels = in->kern->name;
    i->params = model_params(in->model);
    i->bytes_per_token = model_bytes_per_token(in->model);
    i->file_bytes = gguf_file_bytes(in->file);
    i->n_vocab = (int32_t)model_shape_of(in->model)->n_vocab;
    describe_sampling(in->file, i);
    status st = read_string(in, "general.name", &i->name);
    if (st == ST_OK) {
        st = read_string(in, "tokenizer.chat_template", &i->chat_template);
    }
    return st == ST_OK ? ST_OK : err_set(e, st, NULL, "out of memory for the description of the model");
}

/* A folder that cannot be used is no reason not to serve. */
static pack_file *open_packed(const gguf_files *files, const kern_table *kern, const instance_options *opt)
{
    pack_file *f = NULL;
    pack_key key = {.types = pack_key_types(kern)};
    err why;
    if (!opt->pack_dir || key.types == 0 || gguf_files_bytes(files) < opt->pack_min_bytes) {
        return NULL;
    }
    const pack_file_options how = {.folder = opt->pack_dir,
                                   .model_bytes = gguf_files_bytes(files),
                                   .budget_bytes = opt->pack_budget_bytes};
    err_clear(&why);
    status st = gguf_files_identity(files, key.source);
    if (st == ST_OK) {
        st = pack_file_open(&how, &key, &f, &why);
    }
    if (st != ST_OK) {
        log_emit(LOG_WARN, "pack", "event=packing_in_memory error=\"%s\"",
                 why.msg[0] ? why.msg : status_text(st));
    }
    return f;
}

status instance_source_open(const char *path, const instance_options *opt, instance_source **out, err *e)
{
    instance_source *s = mem_calloc(1, sizeof *s);
    if (!s) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for a model");
    }
    status st = gguf_files_open(path, &s->files, e);
    if (st != ST_OK) {
        mem_free(s);
        return st;
    }
    st = gguf_files_identity(s->files, s->identity);
    if (st != ST_OK) {
        instance_source_close(s);
        return err_set(e, st, NULL, "out of memory for a model");
    }
    cpu_limit_read("/", &s->limit);
    mem_limit_read(NULL, &s->memory);
    /* asks once, for all sets, and remembers the answers */
    s->packed = open_packed(s->files, kern_select(opt->cpu), opt);
    *out = s;
    return ST_OK;
}

void instance_source_close(instance_source *s)
{
    if (s) {
        pack_file_close(s->packed);
        gguf_files_close(s->files);
        mem_free(s);
    }
}

uint64_t instance_source_bytes(const instance_source *s)
{
    return gguf_files_bytes(s->files);
}

const uint8_t *instance_source_identity(const instance_source *s)
{
    return s->identity;
}

static status check_options(const instance_options *opt, size_t chunk, err *e)
{
    if (opt->max_sequences < 1 || opt->max_sequences > 1024) {
        return err_set(e, ST_INVALID_FIELD, "max_sequences", "%zu sequences, 1 to 1024 are possible",
                       opt->max_sequences);
    }
    if (chunk > 2048) {
        return err_set(e, ST_INVALID_FIELD, "prefill_chunk", "a chunk of %zu rows, 1 to 2048 are possible",
                       chunk);
    }
    return ST_OK;
}

static status put_together(instance *in, instance_source *s, const instance_options *opt, size_t chunk,
                           err *e)
{
    gguf_files *files = s->files;
    s->files = NULL;
    in->kern = kern_select(opt->cpu);
    report(opt, 0);
    status st = open_model(in, files, opt, chunk, e);
    if (st == ST_OK) {
        st = describe(in, e);
    }
    if (st == ST_OK) {
        st = make_plan(in, s, opt, e);
    }
    if (st == ST_OK && !opt->plan_only) {
        st = open_engine(in, s, opt, chunk, e);
    }
    if (st == ST_OK) {
        report(opt, 1);
    }
    return st;
}

status instance_open_take(instance_source *s, const instance_options *opt, instance **out, err *e)
{
    size_t chunk = opt->prefill_chunk ? opt->prefill_chunk : INSTANCE_DEFAULT_CHUNK;
    instance *in = NULL;
    status st = check_options(opt, chunk, e);
    if (st == ST_OK) {
        in = mem_calloc(1, sizeof *in);
        st = in ? ST_OK : err_set(e, ST_NOMEM, NULL, "out of memory for a model");
    }
    if (in) {
        arena_init(&in->strings, STRING_CHUNK);
        st = put_together(in, s, opt, chunk, e);
    }
    instance_source_close(s);
    if (st != ST_OK) {
        instance_close(in);
        return st;
    }
    *out = in;
    return ST_OK;
}

status instance_open(const char *path, const instance_options *opt, instance **out, err *e)
{
    instance_source *s = NULL;
    status st = check_options(opt, opt->prefill_chunk, e); /* before a slow disk is asked */
    if (st == ST_OK) {
        st = instance_source_open(path, opt, &s, e);
    }
    return s ? instance_open_take(s, opt, out, e) : st;
}

void instance_close(instance *in)
{
    if (!in) {
        return;
    }
    store_close(in->kept, STORE_CLOSE_MS); /* before the pages that it reads into */
    engine_free(in->en);
    pool_free(in->compute);
    model_free(in->model);
    tokenizer_free(in->tok);
    gguf_close(in->file);
    arena_release(&in->strings);
    mem_free(in);
}

engine *instance_engine(instance *in)
{
    return in->en;
}

const tokenizer *instance_tokenizer(const instance *in)
{
    return in->tok;
}

const instance_info *instance_describe(const instance *in)
{
    return &in->info;
}

bool instance_changed(const instance *in)
{
    return gguf_changed(in->file);
}

bool instance_maps(const instance *in, const void *address)
{
    for (size_t i = 0; i < gguf_parts(in->file); i++) {
        uint64_t n_bytes;
        const unsigned char *at = address, *part = gguf_part_bytes(in->file, i, &n_bytes);
        if (at >= part && (uint64_t)(at - part) < n_bytes) {
            return true;
        }
    }
    return model_maps(in->model, address);
}

status instance_digest(const instance *in, uint8_t sum[SHA256_BYTES])
{
    if (in->has_digest) {
        memcpy(sum, in->digest, SHA256_BYTES);
    }
    return in->has_digest ? ST_OK : ST_UNSUPPORTED;
}

store *instance_store(const instance *in)
{
    return in->kept;
}

const forward_ops *instance_forward(const instance *in)
{
    return &in->ops;
}

pool *instance_pool(instance *in)
{
    return in->compute;
}
