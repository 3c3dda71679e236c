/*
 * matrix: the table of P1. What a reply is a function of (models, KV types, prompts, sampling) and what it is not a
 * function of (instruction sets, threads, chunks, ways of running), as axes with named values. The cases of
 * `purity` are drawn from this table (cover.h), so that every two values of different axes meet in one; a new value
 * is one line here, a new way of running one more function in ways_*.c.
 *
 * What each case says, ids and bits of all log-probabilities, must be what a cold, lone run of the reference set says.
 */
#ifndef HEARTH_TESTS_PURITY_MATRIX_H
#define HEARTH_TESTS_PURITY_MATRIX_H

#include <stdint.h>

#include "engine/engine.h"
#include "kern/kern.h"
#include "model/make_model.h"

/* name, arch, type, the other type, width, tied */
#define PURITY_MADE(X)                               \
    X(llama_q4_k_q6_k, "llama", Q4_K, Q6_K, 256, 1)  \
    X(qwen3_q5_k_q3_k, "qwen3", Q5_K, Q3_K, 256, 0)  \
    X(llama_iq4_q2_k, "llama", IQ4_XS, Q2_K, 256, 0) \
    X(llama_q8_0_f32, "llama", Q8_0, F32, 96, 0)     \
    X(qwen3_q4_0_q5_1, "qwen3", Q4_0, Q5_1, 64, 1)   \
    X(qwen3_bf16, "qwen3", BF16, BF16, 64, 0)

#define PURITY_MODELS(X) PURITY_MADE(X) X(ember, NULL, F16, F16, 0, 0)

#define PURITY_KV(X) X(f32, KV_F32) X(f16, KV_F16) X(bf16, KV_BF16) X(q8_0, KV_Q8_0)

/* Those that this CPU lacks are left out; one that it has must run. */
#define PURITY_SETS(X)       \
    X(ref, KERN_REF)         \
    X(avx2, KERN_AVX2)       \
    X(avx512, KERN_AVX512)   \
    X(amx, KERN_AMX)         \
    X(dotprod, KERN_DOTPROD) \
    X(i8mm, KERN_I8MM)

#define PURITY_THREADS(X) X(1, 1) X(2, 2) X(3, 3)
#define PURITY_CHUNKS(X)  X(1, 1) X(7, 7) X(32, 32) X(512, 512)

/*
 * A prompt is a first turn, its reply and what follows them: so that a session which has had that turn holds a
 * prefix of the prompt. name, tokens of the turn, of its reply, of the rest.
 */
#define PURITY_PROMPTS(X)                                                                     \
    X(brief, 5, 3, 3)     /* within a page; ways that need more (.pages) take the next one */ \
    X(pages, 25, 9, 23)   /* and the reply crosses a page */                                  \
    X(spans, 200, 11, 62) /* more than a span of attention */

/* name, what sampling_of (ask.c) makes of it */
#define PURITY_SAMPLINGS(X)                                                                              \
    X(greedy, .temperature = 0)                                                                          \
    X(seeded, .temperature = 0.9f, .top_p = 0.95f, .min_p = 0.01f)                                       \
    X(penalties, .temperature = 1.2f, .top_k = 50, .repetition_penalty = 1.3f, .presence_penalty = 0.5f, \
      .frequency_penalty = 0.25f, .repeat_last_n = 20)                                                   \
    X(quiet, .temperature = 0.7f, .top_k = 40) /* nobody asks for log-probabilities */

/* budget: as many tokens as were asked for. stop: a stop string. token: an end token (a stop id). cancelled: inside a
 * token call; then what was said is a prefix. */
#define PURITY_ENDS(X) X(budget) X(stop) X(token) X(cancelled)

/*
 * Ways of running: name, what it is, what of `way` (scene.c) is not as it would be otherwise. The function is
 * run_<name> in ways_*.c.
 */
#define PURITY_WAYS(X)                                                                                      \
    X(alone, "nobody else")                                                                                 \
    X(not_warm, "in a session that has had the prompt, on an engine that reuses nothing", .not_warm = true) \
    X(beside_one, "a neighbour that decodes")                                                               \
    X(beside_seven, "neighbours that prefill, decode, score, embed, fail and are cancelled")                \
    X(beside_bad,                                                                                           \
      "neighbours that fail with a bad row, in the steps of the prompt and in those of the reply")          \
    X(beside_cancelled, "neighbours that are cancelled while they wait, prefill and decode")                \
    X(beside_scored, "neighbours whose prompts want logits of every row")                                   \
    X(held, "held before it begins, in its prompt and in its reply")                                        \
    X(parked_kept, "preempted, pages kept aside", .beside_pages = 3, .cfg.park_bytes = PURITY_PARK_BYTES)   \
    X(parked_dropped, "preempted, whole pages found again", .beside_pages = 3)                              \
    X(parked_evicted, "preempted, all pages served others", .beside_pages = 3)                              \
    X(parked_early, "preempted as soon as it has begun", .beside_pages = 3)                                 \
    X(parked_twice, "preempted when it is back, too", .beside_pages = 3,                                    \
      .cfg.park_bytes = PURITY_PARK_BYTES)                                                                  \
    X(parked_session, "preempted in a session that gave it a prefix", .beside_pages = 3,                    \
      .cfg.park_bytes = PURITY_PARK_BYTES)                                                                  \
    X(cut_by_time, "chunks of a few rows, because others decode", .cfg.max_step_ns = 8 * PURITY_ROW_NS)     \
    X(turn_exact, "second turn of a session: exact_prefix, decoded tokens among what is reused")            \
    X(turn_equal, "the prompt again: all but its last token is reused")                                     \
    X(turn_prefix, "in a session that went on otherwise: its tail is dropped")                              \
    X(turn_mismatch, "in a session that says something else")                                               \
    X(turn_dirty, "in a session whose last turn was cancelled")                                             \
    X(turn_told, "in a session that was told the tokens of another: what a restore does")                   \
    X(turn_moved, "the first turn was another engine's, of another set and chunk: out and in as bytes")     \
    X(tree_page, "a stranger left a page of its prompt", .pages = true)                                     \
    X(tree_page_one, "a stranger left a token more than a page", .pages = true)                             \
    X(tree_below, "a stranger left a token less than a page: it is not offered", .pages = true)             \
    X(tree_leaf, "a stranger said what it begins with, and went on otherwise", .pages = true)               \
    X(tree_ends, "what a stranger left ends inside a page", .pages = true)                                  \
    X(tree_whole, "a stranger had the same prompt", .pages = true)                                          \
    X(tree_evicted, "the leaf of what a stranger left served others", .pages = true, .cfg.n_pages = 12)     \
    X(tree_two, "two go on from inside the same page at once", .pages = true)                               \
    X(tree_parked, "preempted after a stranger gave it a prefix", .pages = true, .beside_pages = 3)         \
    X(tree_namespace, "another namespace has its prompt", .pages = true)                                    \
    X(tree_cancelled, "one that was cancelled in its prompt left a part", .pages = true)                    \
    X(disk_page, "a stranger, of another set, threads and chunk, left a page on disk", .pages = true)       \
    X(disk_whole, "its prompt is on disk", .pages = true)                                                   \
    X(disk_said, "its prompt is on disk, and a stranger said a part of it", .pages = true)                  \
    X(disk_more, "the disk has more of it than there are free pages", .pages = true, .cfg.n_pages = 12)     \
    X(disk_session, "a session that was told its tokens, all of them on disk", .pages = true)               \
    X(disk_full, "the disk is full behind its first page", .pages = true)                                   \
    X(disk_read_only, "its prompt is on a disk that takes nothing more", .pages = true)                     \
    X(disk_torn, "the file of its last page is half of it", .pages = true)                                  \
    X(disk_flipped, "a byte of its first page is another", .pages = true)                                   \
    X(disk_slow, "each read takes its time, and another one goes on", .pages = true)                        \
    X(disk_stuck, "the disk gives nothing: it waits no longer", .pages = true)                              \
    X(other_lane, "lanes before its own are taken, and its own was another's")                              \
    X(used_pages, "20 other requests had the pages before", .cfg.n_pages = 20)                              \
    X(low_priority, "others that came later go first", .cfg.max_sequences = 2)                              \
    X(high_priority, "it goes before others that came earlier", .cfg.max_sequences = 2)                     \
    X(behind_long, "a long prompt is in its middle when it comes", .cfg.max_step_ns = 60 * PURITY_ROW_NS)   \
    X(limit_low, "one page may be in use: it goes beyond that, alone")                                      \
    X(limit_moves, "the limit of pages falls and rises beside one that began before")                       \
    X(scored, "its own prompt wants logits of every row")                                                   \
    X(said_again, "what was said is scored as a prompt")                                                    \
    X(resumed_cold, "it began in another engine, of another set, threads and chunk; here nothing is known") \
    X(resumed_here, "it began in this engine, and all of it is there", .pages = true)                       \
    X(resumed_disk, "it began in another engine, whose pages are on disk", .pages = true)                   \
    X(resumed_beside, "it began elsewhere, and goes on beside others that prefill and decode")              \
    X(resumed_session, "it began elsewhere, and goes on in a session that has had the turn before")         \
    X(resumed_parked, "it began elsewhere, and is preempted when it goes on", .beside_pages = 3)            \
    X(resumed_twice, "it went on once, and is broken off again")

#define PURITY_PARK_BYTES ((size_t)1 << 30)
#define PURITY_ROW_NS \
    UINT64_C(1000000) /* what a row takes on the clock of place.h; a step takes 2 of it more */

typedef enum purity_axis {
    AXIS_MODEL,
    AXIS_KV,
    AXIS_SET,
    AXIS_THREADS,
    AXIS_CHUNK,
    AXIS_WAY,
    AXIS_PROMPT,
    AXIS_SAMPLING,
    AXIS_END,
    N_AXES
} purity_axis;

#define PURITY_MAX_VALUES 64
#define PURITY_N_NEW      12 /* tokens of a reply */
#define PURITY_HOLD_AT \
    3 /* tokens said when a way does something to the reply; before every end but a natural one */
#define PURITY_MOST_HAD 4 /* the same, tokens that a reply had when it is resumed: from 1 on */

typedef struct purity_case {
    uint8_t at[N_AXES]; /* index of the value on each axis */
} purity_case;

/* Values of an axis that this machine can run, and their names. */
size_t matrix_values(purity_axis a);
const char *matrix_axis_name(purity_axis a);
const char *matrix_value_name(purity_axis a, size_t value);

/*
 * About what a case costs in milliseconds (cover_cost). A reply that a reference exists of costs less; matrix_asked
 * remembers those.
 */
double matrix_cost(const uint8_t *at);
void matrix_asked(const uint8_t *at);

/* What a value stands for. */
typedef struct model_entry {
    const char *name, *arch; /* arch NULL: Ember */
    gguf_type type, type_alt;
    uint32_t width;
    bool tied;
} model_entry;
typedef struct prompt_entry {
    size_t n_turn, n_reply, n_rest;
} prompt_entry;
typedef enum ask_end { END_budget, END_stop, END_token, END_cancelled } purity_end;

const model_entry *matrix_model(const purity_case *c);
const prompt_entry *matrix_prompt(const purity_case *c);
sampling matrix_sampling(const purity_case *c); /* seed and bias are the asker's */
bool matrix_is_quiet(const purity_case *c);
kv_type matrix_kv(const purity_case *c);
kern_set matrix_set(const purity_case *c);
size_t matrix_threads(const purity_case *c);
size_t matrix_chunk(const purity_case *c);
purity_end matrix_end(const purity_case *c);

#endif
