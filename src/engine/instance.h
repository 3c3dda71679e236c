/*
 * instance: everything one loaded model needs, put together once: GGUF mapping, tokenizer, kernel table,
 * weights, compute pool, page pool and engine. The public API (api.c), worker/ and cmd/ open models through
 * it and through nothing else.
 *
 * Owned by the thread that opened it, which becomes the engine thread (or hands it to one other thread before
 * any other call). Errors at opening: ST_NOT_FOUND, ST_LOAD_FAILED, ST_UNSUPPORTED (key or tensor named),
 * ST_INVALID_FIELD (option named), ST_NOMEM.
 */
#ifndef HEARTH_ENGINE_INSTANCE_H
#define HEARTH_ENGINE_INSTANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "kern/kern.h"

#define INSTANCE_DEFAULT_CHUNK  512
#define INSTANCE_PACK_MIN_BYTES ((uint64_t)64 << 20)
#define INSTANCE_DIGEST_BYTES   ((uint64_t)64 << 20) /* read at each start at most */
#define INSTANCE_PARK_QUARTER   MEMORY_PLAN_QUARTER  /* as park_bytes: a quarter of what the pages take */
/* Code and data of the program and its libraries, stacks of threads, the heap before a model is there. */
#define INSTANCE_PROGRAM_BYTES ((uint64_t)10 << 20)
#define INSTANCE_STACK_BYTES   ((uint64_t)64 << 10) /* of a compute thread, used */

/* What it will take, known once the model is parsed. */
typedef struct instance_sizes {
    uint64_t file_bytes;     /* mapped */
    uint64_t kv_bytes;       /* reserved for pages and copies of them; touched as they are used */
    size_t threads;          /* of the compute pool, the engine's among them */
    const memory_plan *plan; /* borrowed during the call */
} instance_sizes;

typedef struct instance_options {
    kern_set cpu; /* at most this set; KERN_SET_COUNT - 1 = the best */
    kv_type kv_type;
    size_t threads;        /* 0 = all this process may use (base/cpu_limit.h) */
    int32_t context;       /* 0 = the largest that the memory plan allows (engine/memory_plan.h) */
    size_t max_sequences;  /* running at once */
    size_t prefill_chunk;  /* 0 = INSTANCE_DEFAULT_CHUNK */
    uint64_t max_step_ns;  /* engine_config's; 0 = chunks are not cut by time */
    uint64_t park_bytes;   /* engine_config's */
    size_t kv_pages;       /* of the pool; 0 = as the plan says */
    uint64_t memory_bytes; /* that all of it may take; 0 = what this process may have (base/mem_limit.h) */
    uint64_t
        memory_most_bytes; /* for which pages are reserved (engine_set_page_limit gives them); 0 = the same */
    bool plan_only;        /* open nothing but what the plan is made from: there is no engine then */
    bool warm;
    const clock_src *clock;                   /* NULL = the system's */
    void (*progress)(void *ctx, double done); /* 0 … 1, may be NULL */
    void *progress_ctx;
    void (*before_step)(void *ctx, const step_row *rows, size_t n, bool any_prefill); /* engine_config's */
    void *before_step_ctx;
    void (*lane_event)(void *ctx, const lane_event *ev); /* engine_config's */
    void *lane_event_ctx;
    /* Called once, when the model is parsed and before pages are reserved and threads start. May be NULL. */
    void (*sized)(void *ctx, const instance_sizes *sizes);
    void *sized_ctx;
    /* Packed weights (model/pack_file.h) */
    const char *pack_dir;    /* where they are kept on disk, shared; NULL = packed in memory at each start */
    uint64_t pack_min_bytes; /* a model of fewer bytes is packed in memory all the same: it takes no longer */
    uint64_t
        pack_budget_bytes; /* of the folder; 0 = half of what its file system has free or the folder holds */
    bool huge_pages;       /* copy what the disk has into memory of huge pages */
    /* Pages of keys and values (kv/store.h) */
    const char *store_dir;         /* the model's own folder, which exists; NULL = nothing is kept on disk */
    uint64_t store_bytes;          /* of the folder */
    uint64_t store_daily_bytes;    /* written; 0 = no limit */
    void (*store_wake)(void *ctx); /* store_config's */
    void *store_wake_ctx;
} instance_options;

instance_options instance_options_default(
    void); /* best set, f16, all threads, 8 sequences, warm, no folder */

typedef struct instance_number { /* what a model file may say of sampling: general.sampling.* */
    bool said;
    double value; /* of a float the shortest decimal that reads back as it */
} instance_number;

typedef struct instance_info { /* strings live as long as the instance */
    const char *arch;
    const char *name;  /* general.name, "" if absent */
    const char *quant; /* most common matrix type */
    const char *kernels;
    uint64_t params;
    uint64_t bytes_per_token;
    uint64_t file_bytes;
    int32_t context;       /* of this instance */
    int32_t context_train; /* of the model */
    int32_t n_vocab;
    size_t threads;
    size_t kv_pages; /* reserved */
    size_t kv_page_bytes;
    memory_plan plan;
    const char *chat_template; /* "" if absent; NUL-terminated copy */
    instance_number temperature, top_p, top_k, min_p, repetition_penalty, repeat_last_n;
} instance_info;

typedef struct instance instance;

/*
 * A model's source: all that opening it needs from outside this process, had before a byte of it is parsed: its
 * files open and mapped, its packed weights open or the file made that will hold them, the limits of CPU and memory
 * read, the kernel asked for wide registers.
 * instance_open_take opens nothing more (threads and memory are made, the mapping is read), so a process can
 * shut itself in between the two. It owns the source from the call on, also when it fails.
 */
typedef struct instance_source instance_source;

/* Of opt: cpu, what is said of packed weights. */
status instance_source_open(const char *path, const instance_options *opt, instance_source **out, err *e);
void instance_source_close(instance_source *s); /* NULL is fine */
uint64_t instance_source_bytes(const instance_source *s);
/* What tells this model's files from others without reading them: a name for folders. */
const uint8_t *instance_source_identity(const instance_source *s); /* [SHA256_BYTES] */
status instance_open_take(instance_source *s, const instance_options *opt, instance **out, err *e);

/* Both steps. */
status instance_open(const char *path, const instance_options *opt, instance **out, err *e);
void instance_close(instance *in);     /* NULL is fine; every sequence must have ended */
engine *instance_engine(instance *in); /* NULL if only the plan was asked for */
const tokenizer *instance_tokenizer(const instance *in);
const instance_info *instance_describe(const instance *in);
bool instance_changed(const instance *in); /* the file changed under its mapping */
/* Whether the address lies in the mappings of the model's files, its packed weights included: what cannot be read there
 * (SIGBUS) was taken away from outside. Async-signal-safe, while the instance is open. */
bool instance_maps(const instance *in, const void *address);
/* SHA-256 of the file: known from its packed weights, else from its mapping. ST_UNSUPPORTED if the model has
 * several, or if it is not known and the file is over INSTANCE_DIGEST_BYTES. */
status instance_digest(const instance *in, uint8_t sum[SHA256_BYTES]);
store *instance_store(const instance *in); /* NULL: there is none */
/* For the reference doors (logits, perplexity): the forward table and the compute pool. */
const forward_ops *instance_forward(const instance *in);
pool *instance_pool(instance *in);

#endif
