/*
 * memory_plan: how the memory that a model may take is divided between its weights, the pages for keys and values, and
 * what it needs beside them, before any of it is taken. Pure functions.
 *
 *     limit = weights + scratch + pages + copies of preempted sequences' pages + what is left over
 *
 * A sixteenth of the limit is left for what requests bring (lines, prompts, replies that are remembered) and for the
 * rest of the group. Pages and copies take half the limit at most: where there is more, others want it. Within that
 * the context, if nobody says one, is the largest that fits (up to the model's own), and there are pages for one such
 * context at least and for as many as there are lanes at most. The context depends on nothing that changes from start
 * to start; pages do: also on what the machine has left now.
 *
 * Nothing is cut silently: what was asked for and does not fit, or a model that leaves no room for
 * MEMORY_PLAN_LEAST_CONTEXT tokens, is ST_LOAD_FAILED with both numbers.
 */
#ifndef HEARTH_ENGINE_MEMORY_PLAN_H
#define HEARTH_ENGINE_MEMORY_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MEMORY_PLAN_LEAST_CONTEXT  512
#define MEMORY_PLAN_QUARTER        UINT64_MAX /* as copies_bytes: a quarter of what the pages take */
#define MEMORY_PLAN_PAGE_OVERHEAD  320        /* of a page: its entry in the pool, its node in the tree */
#define MEMORY_PLAN_TOKEN_OVERHEAD 10         /* of a token of context and lane: ids, where its page lies */

typedef struct memory_needs { /* what is the model's and not to be chosen */
    uint64_t mapped_bytes;    /* of the model's files, in use while it runs */
    uint64_t packed_bytes;    /* of its packed file, likewise */
    uint64_t anonymous_bytes; /* weights in memory of its own */
    uint64_t scratch_bytes;   /* all else that does not depend on context and pages */
    uint64_t page_bytes;
    size_t lanes;
    int32_t context_train;
} memory_needs;

typedef struct memory_wish {
    uint64_t limit_bytes;     /* for all of it (base/mem_limit.h) */
    uint64_t most_bytes;      /* the same once others have given up theirs; 0 = no more than limit_bytes */
    uint64_t available_bytes; /* on this machine now */
    uint64_t copies_bytes;
    int32_t context; /* 0 = the largest that fits */
    size_t pages;    /* 0 = as planned */
} memory_wish;

typedef struct memory_plan {
    memory_needs needs;
    int32_t context;
    size_t pages;           /* that may be in use */
    size_t most_pages;      /* that are reserved */
    uint64_t kv_bytes;      /* of `pages` */
    uint64_t copies_bytes;  /* at most, beside them */
    uint64_t scratch_bytes; /* with what depends on context and pages */
    uint64_t total_bytes;   /* with all pages in use: weights, scratch, pages */
    uint64_t limit_bytes;
} memory_plan;

/* ST_LOAD_FAILED: it does not fit; ST_INVALID_FIELD, field "context": it is not within the model's. */
status memory_plan_make(const memory_needs *needs, const memory_wish *wish, memory_plan *out, err *e);

#endif
