/*
 * engine: sequences on one model. A caller opens sessions, submits requests and calls engine_step until they
 * have ended; each step computes one ragged batch (one row per decoding sequence, chunks of prompts for the
 * rest) and reports through each request's sink.
 *
 * States of a sequence (DESIGN 6): QUEUED -> PREFILL -> DECODE -> ended; PARKED and RESTORE while its pages serve
 * somebody else; EMIT_WAIT while held. Each request ends exactly once, with `done` or `failed`. What a sequence
 * computes never depends on the others: chunks, preemption and neighbours change time, never a bit.
 *
 * What was computed is kept: whatever the end, but a failure, all pages of a request enter the prefix tree (kv/tree.h),
 * where any later one of the same namespace finds them. Pages that nobody holds are free for who needs them, those
 * not used for longest first.
 *
 * With a store, whole pages are written behind while they are computed, and a request whose prompt goes on in the store
 * beyond what memory has waits for those pages to be read; engine_step returns false then if nobody else computes, and
 * the store wakes who waits (store_config.wake).
 *
 * Sessions. A session is the tokens that its last request left, in order; their pages are the tree's, so that an idle
 * one takes no memory from anybody, and may find that some have to be computed again. Requests on one session
 * run one after another, in the order submitted; anonymous ones run together. The reset reason and the reuse
 * counts are those of PROTOCOL 2. A session is dirty after a failure, a stop-string cut or a cancel of a
 * request that had it (one cancelled while QUEUED has touched nothing); a deadline cut leaves it clean. A
 * failed request leaves nothing. With the last token of a `length` end still to be forwarded (named
 * sessions) `done` comes one step after the last token.
 *
 * Lanes (engine/lanes.h). A running sequence has a lane: an anonymous one its own from admission to its end, a
 * session's the session's, which keeps it from its first admission until it is closed, or until the request ends
 * (session_gives_lane). All lanes busy: requests wait.
 *
 * Order. Waiting requests are admitted by priority, age and order (engine/policy.h). One that does not fit now may
 * be passed for a while, never for ever. Prompts are computed in chunks by time: a step that holds replies back
 * takes at most about 1.6 times what their own step takes, and none more than max_step_ns, one row apart.
 *
 * Pages. Admission reserves the prompt and up to GEN_WATERMARK_TOKENS of the reply. When a reply outgrows what
 * was reserved and no page is free, cached ones are taken, then one sequence is preempted: its pages are
 * copied aside (park_bytes) or dropped and computed again when it resumes. The context of a request without an
 * end of its own is the smaller of n_ctx and the pool, so that one alone can always run.
 *
 * Thread: one owner ("the engine thread") for everything but a request's cancel flag and engine_stats_read.
 * Sinks are called inside engine_step on that thread (those of a resumed reply inside engine_submit too); they must not
 * call back into the engine except seq_cancel, seq_cancel_guarded, seq_fail, seq_hold and seq_progress. No allocation
 * per token once a request is admitted.
 */
#ifndef HEARTH_ENGINE_ENGINE_H
#define HEARTH_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/status.h"
#include "engine/finish.h"
#include "engine/lanes.h"
#include "engine/repeat_guard.h"
#include "engine/sampler.h"
#include "kv/page_pool.h"
#include "kv/store.h"
#include "kv/tree.h"
#include "model/forward.h"
#include "text/stop.h"
#include "text/tokenizer.h"

/* Tokens of a reply that admission and resuming reserve pages for, if the request can have as many. */
#define GEN_WATERMARK_TOKENS 64
#define GEN_MAX_STEP_NS      UINT64_C(250000000)
#define GEN_MIN_PRIORITY     (-10)
/* Workspaces of the vocabulary's size, so no more than help. */
#define ENGINE_MAX_SAMPLERS 16
#define GEN_MAX_PRIORITY    10

typedef struct engine engine;
typedef struct session session;
typedef struct sequence sequence;

/* What a step is about to compute, for the status page: one entry per sequence in its batch. */
typedef struct step_row {
    uint64_t id_hash; /* the request's */
    int32_t position; /* absolute, of the sequence's first row in this step */
} step_row;

typedef struct engine_config {
    forward_ops ops;        /* the model, or a test's pure function */
    const tokenizer *tok;   /* borrowed; NULL: pieces are empty, no end tokens (tests) */
    const kern_table *kern; /* borrowed: sampler arithmetic */
    pool *compute;          /* borrowed */
    const clock_src *clock; /* borrowed */
    int32_t n_ctx;          /* positions a sequence may have */
    size_t n_pages;         /* of the page pool, reserved */
    size_t page_limit;      /* to begin with (engine_set_page_limit); 0 = all of them */
    size_t prefill_chunk;   /* prompt rows per sequence and step at most, 1 … ops.max_rows */
    uint64_t max_step_ns;   /* what a step with prompts in it may take; 0 = chunks are not cut by time */
    size_t max_sequences;   /* lanes: running at once, 1 … ops.max_logit_rows */
    size_t idle_lanes;      /* kept at most; 0 = all */
    size_t prewarm_lanes;   /* made at once */
    size_t park_bytes;      /* for copies of preempted sequences' pages; 0 = they are always computed again */
    bool warm;              /* false: nothing is ever reused (--no-warm) */
    kv_root_key identity;   /* what all states of this engine depend on (kv/tree.h) */
    store *store; /* borrowed; NULL: nothing is kept on disk. It is closed before the engine is freed */
    void (*lane_event)(void *ctx,
                       const lane_event *ev); /* NULL = nobody listens; it must not call the engine */
    void *lane_event_ctx;
    /* Called before each forward pass, on the engine thread; NULL = nothing. It must not call the engine. */
    void (*before_step)(void *ctx, const step_row *rows, size_t n, bool any_prefill);
    void *before_step_ctx;
} engine_config;

status engine_new(const engine_config *cfg, engine **out, err *e);
/* Computes one token (BOS, else id 0) on a page outside the lanes, so that the first request finds code and
 * weights warm. Before the first submit; leaves nothing behind. */
status engine_warm_up(engine *en, err *e);
/* Ends nothing: every sequence must have ended and every session be closed (asserted in debug builds). */
void engine_free(engine *en);

typedef enum reset_reason {
    RESET_NEW,
    RESET_DIRTY,
    RESET_EXACT_PREFIX,
    RESET_EQUAL,
    RESET_PREFIX,
    RESET_MISMATCH
} reset_reason;
const char *reset_reason_name(reset_reason r); /* "new", "exact_prefix" … */

status session_open(engine *en, session **out);
/* It gives its lane back whenever none of its requests runs, so that sessions may be more than lanes. */
void session_gives_lane(session *s);
/* Waits for nothing: no sequence of it may be running or queued (asserted). */
void session_close(session *s);
status session_reset(session *s); /* same condition; resident ids gone, dirty cleared */
bool session_busy(const session *s);
bool session_dirty(const session *s);
const int32_t *session_resident(const session *s, size_t *n); /* borrowed until the session changes */

typedef struct gen_token {
    int32_t token;
    const char *text; /* whole characters this step releases; may be empty; borrowed during the call */
    size_t text_len;
    const sampler_out *probs; /* NULL unless asked for */
    bool again;               /* one of gen_request.resumed: it was said elsewhere; no probs */
} gen_token;

typedef struct gen_result {
    finish_reason reason;
    const char *guard;     /* "" or the name of what cut it: "context", "repetition", "deadline" or
                            * seq_cancel_guarded's */
    bool stop_cut;         /* ended by a stop string */
    bool repaired_tail;    /* an unfinished last character became U+FFFD */
    const char *tail_text; /* text released by the end (held back for a stop string or a character) */
    size_t tail_text_len;
    const int32_t *ids; /* all generated ids */
    size_t n_ids;
    int32_t prompt_tokens;
    int32_t reused_tokens;
    int32_t prefilled_tokens; /* reused + prefilled = prompt unless cancelled in prefill */
    int32_t preemptions;      /* how often it was parked; what that cost is in no other count */
    const float *embedding; /* GEN_EMBED, finished by itself: [n_embd]; else NULL. Borrowed during the call */
    const float *label_logprobs; /* GEN_SCORE, finished by itself: [n_labels]; else NULL. Borrowed likewise */
    reset_reason reset;
    kv_miss miss;    /* why reused_tokens are not more, for what begins at miss_at */
    int32_t miss_at; /* tokens */
    uint64_t seed;
    double queue_ms, prefill_ms, decode_ms, total_ms, ttft_ms; /* ttft: from submit to the first token */
} gen_result;

/* What a watcher of a reply's text tells the engine before the outcome of a token is sealed. */
typedef struct gen_verdict {
    int n_tool_calls;       /* complete ones so far */
    bool tool_calls_closed; /* the reply ends here, by the closing of its last call */
    /* The next tokens are these, whatever is drawn: they are generated tokens in every respect. Borrowed until
     * they are used up; not looked at while others are under way, and none is an end token. */
    const int32_t *force;
    size_t n_force;
} gen_verdict;

/* When a watcher is asked. */
typedef enum gen_moment {
    GEN_BEGINS, /* before the first token; no text */
    GEN_TOKEN,  /* one generated token, with the text it releases (may be empty) */
    GEN_ENDS,   /* the reply ends by itself; the text that this releases */
    GEN_CUT     /* the same, but something cut it */
} gen_moment;

typedef struct gen_sink {
    void *ctx;
    void (*token)(void *ctx, const gen_token *t); /* once per generated id, in order */
    /* The outcome is sealed before the last text is handed out. Exactly one of the two is called, last. The
     * sequence is gone when it returns. */
    void (*done)(void *ctx, const gen_result *r);
    void (*failed)(void *ctx, const err *e);
    /* Once, before the first token or, with nothing to generate, before done; never if the prompt was not
     * computed to its end. n = n_prompt - 1; entry i is about prompt token i + 1: `token` and `chosen` are
     * that token's, `top` the alternatives. Borrowed during the call. May be NULL: nobody asks. */
    void (*prompt_probs)(void *ctx, const sampler_out *probs, size_t n);
    /* Sees all text before the outcome is sealed; *v is as the last call left it. Not asked at GEN_BEGINS where
     * nothing is to be generated. Not ST_OK: the request fails with it. May be NULL. */
    status (*watch)(void *ctx, gen_moment when, const char *text, size_t len, gen_verdict *v);
} gen_sink;

#define GEN_MAX_STOP_IDS 64
#define GEN_MAX_LABELS   64

/* What follows the prompt; fixed at admission. */
typedef enum gen_plan {
    GEN_SAMPLE, /* a reply */
    GEN_EMBED,  /* nothing is generated: the state behind the last norm of the prompt's last token */
    GEN_SCORE   /* nothing is generated: the log-probabilities of some tokens as the next one */
} gen_plan;

typedef struct gen_request {
    const int32_t *prompt; /* copied */
    size_t n_prompt;
    int32_t max_new_tokens;    /* < 0: the rest of the context; 0 generates nothing; clamped to the context */
    sampling params;           /* bias copied */
    stop_set *stops;           /* owned by the sequence from a successful submit on; NULL = none */
    session *session;          /* NULL = anonymous */
    uint64_t deadline_ns;      /* on the clock's mono_ns; 0 = none */
    const atomic_bool *cancel; /* borrowed, may be NULL: set from any thread to cancel */
    gen_sink sink;             /* token, done and failed */
    /* Copied; they end the reply as end-of-generation tokens do: not emitted, not counted, not forwarded, not
     * drawn before min_tokens. ignore_eos does not concern them (one that is also an end-of-generation token
     * it still forbids). At most GEN_MAX_STOP_IDS. */
    const int32_t *stop_ids;
    size_t n_stop_ids;
    /* Alternatives for each prompt position from 1 on, 0 … SAMPLER_MAX_TOP_LOGPROBS; looked at only if the
     * sink has prompt_probs, and then -1 = none. Such a request reuses nothing: every row of its prompt is
     * computed, as many at a time as the model gives rows of logits. */
    int32_t prompt_logprobs;
    uint64_t id_hash; /* what before_step calls it; 0 = none */
    int32_t priority; /* GEN_MIN_PRIORITY … GEN_MAX_PRIORITY; the larger is admitted first */
    /* Ends the reply as `length`, guard `repetition`, once its last that many tokens are copies of one run
     * (engine/repeat_guard.h); 0 = off. */
    int32_t repeat_span;
    gen_plan plan; /* GEN_EMBED and GEN_SCORE: max_new_tokens and what concerns tokens is not looked at;
                            * they end with FINISH_STOP */
    const char
        *cache_namespace; /* bytes: only those of the same namespace share what was computed; borrowed during
                                  * the call */
    size_t n_cache_namespace; /* 0 = the common one */
    const int32_t *labels;    /* GEN_SCORE: [n_labels] ids; copied */
    size_t n_labels;          /* 1 … GEN_MAX_LABELS */
    /* The reply began elsewhere, with these tokens, and goes on behind them as if it had never stopped; copied. They are
     * generated tokens in every respect, but that they are computed with the prompt (what is at hand is not), that
     * nobody is told what their logprobs were, and that the prompt's are not told again. GEN_SAMPLE only. */
    const int32_t *resumed;
    size_t n_resumed; /* 0 = it begins here */
} gen_request;

/* All fields are checked before the session is touched. ST_INVALID_FIELD, ST_CONTEXT_LENGTH (prompt does not
 * leave room for one token; the message has both numbers), ST_NEVER_FITS (prompt and reply are more than the pool
 * holds; the message has both numbers), ST_NOMEM: then nothing changed and
 * no sink is called. *out stays valid until the sink's done/failed.
 * With resumed tokens the sink's watch (GEN_BEGINS, then GEN_TOKEN for each) and token are called from in here already,
 * also if it then fails: ST_RESUME_MISMATCH, if the reply would have been over before the last of them, or would have
 * had another one where the watcher forces it; or what the watcher says. A reply that is over with the last of them ends
 * in the next step as it would have ended, without computing anything (all of its prompt counts as reused), but a
 * `length` end in a named session. */
status engine_submit(engine *en, const gen_request *r, sequence **out, err *e);
/* Tokens of this request's prompt that would not be computed if it were admitted now. An estimate: others come first. */
int32_t engine_would_reuse(const engine *en, const gen_request *r);
/* Ends what was cut, admits what can run and computes one step. Returns false when there was nothing to
 * compute (no sequence, or all of them held). */
bool engine_step(engine *en);
size_t engine_running(const engine *en); /* sequences that have not ended */
/*
 * Between steps: at most n_pages (1 … all that were reserved, else the nearest of these) are in use from now on, and
 * copies of preempted sequences are limited in proportion; memory beyond that goes back to the system. What is only
 * cached goes first, then sequences are preempted. It changes no reply and refuses none: one that is alone goes
 * beyond the limit when it must and gives that back (an import of a range does not: it
 * is ST_CAPACITY). Returns the limit.
 */
size_t engine_set_page_limit(engine *en, size_t n_pages);

void seq_cancel(sequence *s); /* takes effect at the next step's decision; idempotent */
/* The same, and the result's guard is `guard` (static storage), unless seq_cancel came first. */
void seq_cancel_guarded(sequence *s, const char *guard);
/* It ends by a failure of this kind, before anything else of it is told: its caller cannot go on. At the end of the call
 * of a sink that this is called in, else with the next step. */
void seq_fail(sequence *s, status why);
/* How far the prompt is. *cached: reused tokens, 0 until admitted. *processed: prompt tokens whose state
 * exists, cached ones included. */
void seq_progress(const sequence *s, int32_t *cached, int32_t *processed);
/* Held (EMIT_WAIT) from the next step on: keeps its pages, computes nothing, is not admitted; cancel and
 * deadline still end it. */
void seq_hold(sequence *s, bool held);

typedef struct engine_stats { /* a snapshot; counters only rise; what follows bugs is of now */
    uint64_t steps, tokens_prefilled, tokens_generated, tokens_reused;
    uint64_t requests_done, requests_failed, requests_cancelled; /* each request counts in one of the three */
    uint64_t bugs;
    uint64_t pages_total;  /* that may be in use now */
    uint64_t pages_used;   /* by what runs */
    uint64_t pages_cached; /* what ended left them; given to who needs them */
    uint64_t sessions, sequences;
    uint64_t running; /* sequences that have a lane: admitted and not ended */
    uint64_t parked;  /* of these: preempted and not yet back */
    /* Since the beginning. Tokens of those that were parked, and generated ones of replies that began elsewhere: computed
     * a second time, or not. */
    uint64_t preemptions, tokens_recomputed, tokens_restored;
    uint64_t tokens_fetched; /* from the store; since the beginning */
    uint64_t lanes, lanes_live, lanes_idle;
} engine_stats;
void engine_stats_read(const engine *en, engine_stats *out); /* any thread */

/* Lanes as they are now. Engine thread. */
const lane_table *engine_lanes(const engine *en);
/* The owner number that the session's lane has. */
uint64_t session_owner(const session *s);
/* Whether what is tracked, what is in pages and what the model would be told agree: counts of lanes, pages,
 * promises and positions, summed over all sequences and sessions. *why: the first that does not, if false. For
 * tests and the simulator; linear in all of them. */
bool engine_check(const engine *en, const char **why);

#endif
