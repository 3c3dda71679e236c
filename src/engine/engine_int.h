/*
 * engine_int: the structs that the files of engine/ share, and the functions on the arrows between the states
 * of a sequence (DESIGN 6). Nobody else includes it. Engine thread, but for the counters.
 *
 *            admit              prefilled             end / fail
 *   QUEUED ────────► PREFILL ──────────────► DECODE ──────────────► gone
 *      │              │ ▲ │                  │    ▲ ▲                ▲
 *      │              │ │ │                  │    └─┘ decide         │
 *      │              │ │ │ decide: sealed `length` in a named session
 *      │              │ │ └────────────────► TAIL ───────────────────┤
 *      │         park │ │ resume, restored   │ park (DECODE only)    │
 *      │              ▼ │                    ▼                       │
 *      │             PARKED ─resume─► RESTORE ─restored─► PREFILL or DECODE
 *      └────────────── every state: cut (cancel, deadline), fail ────┘
 *
 * TAIL: the outcome is sealed, the last token is still to be forwarded. A reply that began elsewhere and is over already
 * is sealed from the beginning: it ends QUEUED, or, where its last token is to be forwarded, at the end of PREFILL.
 * PARKED: its pages were needed elsewhere; a copy of them may stand aside (image). RESTORE: the copy is on its way
 * back. One without a copy computes its tokens again in PREFILL, and goes on where it was.
 * Held (EMIT_WAIT) is a mark beside the state, not a state: a held sequence keeps its place and computes
 * nothing.
 */
#ifndef HEARTH_ENGINE_ENGINE_INT_H
#define HEARTH_ENGINE_ENGINE_INT_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/vec.h"
#include "engine/cost_model.h"
#include "engine/engine.h"
#include "engine/park.h"
#include "engine/policy.h"
#include "engine/resident.h"
#include "kv/tree.h"
#include "text/detok.h"

typedef enum seq_state { SEQ_QUEUED, SEQ_PREFILL, SEQ_DECODE, SEQ_TAIL, SEQ_PARKED, SEQ_RESTORE } seq_state;

struct session {
    /* owned */
    ivec ids; /* what its last request left; its pages are the tree's, who may give them to others */
    /* borrowed */
    engine *en;
    lane *lane;              /* from its first admission on; NULL: it has none */
    sequence *active;        /* the one that runs on it, or NULL */
    session *prev, *next;    /* of the engine's list */
    uint64_t owner;          /* its number among the owners of lanes */
    size_t n_requests;       /* queued and running */
    uint64_t last_used;      /* step at which its last request ended: lanes are taken from the oldest first */
    uint64_t looked_at;      /* the last look at the queue that has met a request of it … */
    sequence *first_waiting; /* … and the first that it met; not looked at otherwise */
    bool dirty;
    bool gives_lane; /* when none of its requests runs */
};

struct sequence {
    /* owned */
    ivec history; /* prompt, then generated tokens */
    logit_bias *bias;
    int32_t *stop_ids;         /* [n_stop_ids] */
    int32_t *labels;           /* [n_labels] */
    float *label_logprobs;     /* [n_labels] */
    sampler_out *prompt_probs; /* [n_prompt - 1], or NULL: not asked for */
    stop_set *stops;
    stop_matcher stop;
    buf tail;          /* text released by the end, from the seal until done */
    park_image *image; /* PARKED, RESTORE: what its pages held, or NULL */
    /* borrowed */
    engine *en;
    sequence *prev, *next; /* of the engine's list, in the order submitted */
    session *session;      /* NULL = anonymous */
    lane *lane;            /* from its admission on */
    resident *kv;          /* the lane's */
    kv_node *hold;         /* the end of its prefix in the tree, held while it runs or fetches; or NULL */
    const atomic_bool *cancel;
    gen_sink sink;

    seq_state state;
    bool held;
    bool cancel_asked;
    status fail_asked;        /* ST_OK: not */
    const char *cancel_guard; /* static storage; "" if it has none */
    bool terminal_sent;
    bool stop_cut;
    bool repaired_tail;
    bool ceiling;  /* the context, not the caller, set max_new */
    bool repeated; /* the repetition guard has fired */
    bool begun;    /* the prompt was computed to its end, and what follows it has begun */
    kv_root_key root;
    store_key
        written; /* the key of the last of its first n_written pages, which the store has or was given */
    store_key fetched_to; /* the same of the first n_fetched, which are at hand or were asked for */
    size_t n_written;
    size_t n_asked; /* pages that there were when the store was last asked to write */
    size_t n_fetched;
    size_t n_reads;    /* of these, under way */
    uint64_t fetch_ns; /* since when it waits for the next; 0 = it has not asked */
    bool fetched;      /* the store has no more for it, as long as fetched_tokens are at hand */
    size_t fetched_tokens;
    kv_miss miss; /* what ended its prefix */
    size_t miss_at;
    finish_reason sealed;
    gen_verdict verdict;
    size_t n_forced; /* of verdict.force that are used */
    gen_plan plan;
    sampling params;
    detok detok;
    size_t n_prompt;
    size_t n_resumed; /* generated tokens that it began with */
    size_t n_stop_ids;
    size_t n_labels;
    int32_t n_prompt_top; /* alternatives per entry of prompt_probs */
    uint64_t id_hash;
    int32_t priority;
    size_t repeat_span;
    size_t max_new;
    size_t promised_pages; /* reserved for it and not yet taken */
    size_t reused;
    size_t prefilled;
    size_t
        n_known; /* positions that were computed at some time: those below are computed again after parking */
    size_t n_preempted;
    size_t immune_until; /* generated tokens */
    uint64_t ticket;   /* rises in the order submitted; an anonymous one's number among the owners of lanes */
    uint64_t admitted; /* rises in the order admitted */
    uint64_t parked;   /* rises in the order parked */
    uint64_t waits_ns; /* QUEUED, PARKED: since when */
    uint64_t tried;    /* the last look at the queue that has tried it */
    reset_reason reset;
    uint64_t deadline_ns;
    uint64_t submit_ns, admit_ns, prefill_ns, decode_ns, first_token_ns; /* 0 = not yet */
    size_t step_limit;                                                   /* rows it may have in this step */
    size_t step_rows, step_first; /* its part of the batch of this step */
    size_t step_logits;           /* how many of these rows want logits */
    const float *step_hidden;     /* the row that it asked for */
    sampler_out drawn;            /* what this step's last row of logits gave, if the sequence draws */
};

/* A page on its way from the store. */
typedef struct stored_read {
    uint64_t ticket;
    page_id page; /* a reference */
    sequence *of; /* who waits for it; NULL: nobody any more */
    size_t at;    /* which page of its history */
} stored_read;

#define ENGINE_READS   32                   /* under way at most */
#define ENGINE_DISK_NS UINT64_C(3000000000) /* that the store may take for its next page, or to begin with */
/* Computed pages that are written together: 128 tokens. After a death no more than 256 are to be computed again:
 * those that were not given to the store yet are half of it, and while they are computed it has the time to write the
 * other half, which it was given before. Only a prompt's last chunk may be more. */
#define ENGINE_WRITE_PAGES 4

/* Requests that are tried at one look at the queue, so that a long one costs a step nothing. */
#define ENGINE_TRIES 16
/* Bytes of copies that come back in one step. */
#define ENGINE_RESTORE_BYTES ((size_t)64 << 20)
/* Rows of prompts in the first step, before anything is known of their cost; each step may have four times as
 * many as any before. */
#define ENGINE_FIRST_CHUNK 32

/* Written by the engine thread, read by any in engine_stats_read. All relaxed: each is a figure of its own
 * and orders nothing. */
typedef struct engine_counters {
    atomic_uint_fast64_t steps, prefilled, generated, reused, done, failed, cancelled, bugs;
    atomic_uint_fast64_t preemptions, recomputed, restored;
    atomic_uint_fast64_t pages_total, pages_used, pages_cached, fetched, sessions, sequences, running, parked,
        lanes_live, lanes_idle;
} engine_counters;

struct engine {
    engine_config cfg; /* what it points to is borrowed */
    /* owned */
    page_pool *pages;
    kv_tree *tree; /* NULL: nothing is reused */
    page_id *path; /* [pages of n_ctx] scratch */
    stored_read reads[ENGINE_READS];
    size_t n_reads;
    sequence *fetching; /* who reads from the store, or NULL: one at a time, for what it waits for is held */
    bool fetch_seen;    /* it was asked after at this look at who waits */
    lane_table *lanes;
    park *parking;
    sampler *samplers[ENGINE_MAX_SAMPLERS]; /* a thread of the pool uses one; NULL behind the last */
    size_t n_samplers;                      /* at least 1 */
    sequence **drawing;                     /* [max_sequences] those that draw in this step */
    const float **drawing_logits;           /* [max_sequences] the row of each */
    batch_row *rows;                        /* [ops.max_rows] */
    batch_seq *seqs;                        /* [max_sequences] */
    sequence **active;                      /* [max_sequences] those past QUEUED, in the order admitted */
    sequence **order;                       /* [max_sequences] those in the batch */
    policy_running *running;                /* [max_sequences] scratch */
    policy_parked *parked;                  /* [max_sequences] scratch */
    size_t *want;                           /* [max_sequences] scratch */
    step_row *steps;                        /* [max_sequences] for before_step */
    float *logits;                          /* [ops.max_logit_rows][n_vocab] */
    float *hidden;                          /* [max_sequences][n_embd] */
    uint8_t *bad;                           /* [ops.max_rows] */
    int32_t *repeat_scratch;                /* [REPEAT_MAX_SPAN] */
    buf piece, text;                        /* one token on its way out; reserved for the longest */
    /* borrowed */
    sequence *first, *last;
    session *sessions;
    const int32_t *eog;
    size_t n_eog;

    size_t n_active; /* sequences past QUEUED */
    size_t n_sequences;
    size_t promised_pages; /* of all sequences */
    size_t
        page_limit; /* asked for; the pool's own is above it while somebody has more, or needs more to go on */
    size_t max_piece; /* bytes of the longest piece */
    cost_model cost;
    size_t largest_chunk;    /* rows of prompts in one step so far, as far as the cost model remembers */
    size_t last_chunk;       /* the same of the last step that had a prompt in it */
    size_t steps_of_replies; /* since the last one with a prompt in it */
    step_shape alone;        /* the last step of replies alone; no rows = there was none */
    uint64_t alone_ns;       /* what such steps took */
    uint64_t step_no;
    uint64_t n_tickets, n_admitted, n_parked, n_looks; /* so far */
    engine_counters count;
};

static inline void counter_add(atomic_uint_fast64_t *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static inline void counter_set(atomic_uint_fast64_t *c, uint64_t n)
{
    atomic_store_explicit(c, n, memory_order_relaxed);
}

void engine_note_pages(engine *en); /* after pages or lanes were taken or given back */

/* How a prompt would find the session now (PROTOCOL 2): the reason, and how many of its tokens the session knows; s may
 * be NULL. */
reset_reason session_match(const session *s, bool warm, const int32_t *prompt, size_t n, size_t *known);
/* One of its requests has left, with these tokens computed. ST_NOMEM: then it has none. */
status session_keep(session *s, const ivec *ids);
/* An idle session gives its lane to somebody else; its tokens stay. */
void session_lose_lane(session *s);

/*
 * reuse.c: what of a prompt need not be computed
 */
/* The root under which requests of that namespace are kept. ST_NOMEM. */
status reuse_root(const engine *en, const char *name_space, size_t n, kv_root_key *out);

typedef struct reuse_offer {
    const kv_root_key *root; /* borrowed */
    const int32_t *ids;      /* borrowed */
    reset_reason reason;
    size_t n_tokens;
    kv_node *node; /* that they end in; valid until the tree changes, or while it is held */
    kv_miss miss;  /* why there are no more, at miss_at */
    size_t miss_at;
} reuse_offer;
/* The longest prefix of a prompt that is at hand, at most all but its last token. Changes nothing. */
reuse_offer reuse_find(const engine *en, const kv_root_key *root, const session *s, const int32_t *prompt,
                       size_t n);
reuse_offer reuse_find_for(const sequence *s);
/* The whole pages at hand of what a parked sequence had computed; none for one with a copy. */
reuse_offer reuse_find_again(const sequence *s);
/* One who is to be admitted with it holds it, so that making room for the rest does not cost him that. */
void reuse_hold(engine *en, const reuse_offer *o);
void reuse_let_go(engine *en, const reuse_offer *o);
/* Less than a whole page at its end is not wanted any more; o is held. */
void reuse_whole_pages(engine *en, reuse_offer *o);
/* The whole pages of it, into en->path; returns how many. */
size_t reuse_pages(engine *en, const reuse_offer *o);
/* s, whose lane is empty, has these tokens from here on, and the hold; one page is taken if they end inside one. */
void reuse_take(sequence *s, reuse_offer *o);
/* s has its pages no more; what it computed stays for others if `kept`. */
void reuse_leave(sequence *s, bool kept);

/*
 * stored.c: pages on disk. All of it does nothing without a store.
 */
/* Gives the store what s has computed since the last time, whole pages, if they are many or `all`. */
void stored_write(sequence *s, bool all);
/* Whether pages of the first `most` tokens of a waiting sequence are on their way into the tree: it is to be asked again
 * before it comes in. Asks for them first. at_hand: tokens that the tree has. */
bool stored_fetch(sequence *s, size_t at_hand, size_t most);
/* It does not wait for them any more. */
void stored_give_up(sequence *s);
/* Who fetches begins again later: what it holds, or its turn, is needed by others. false: nobody does. */
bool stored_yield(engine *en);
/* Takes in what has come; whether anything has. */
bool stored_collect(engine *en);

/*
 * scheduler.c: who runs
 */
/* Fails what was asked to, cuts what was cancelled or is overdue, in every state. */
void scheduler_sweep(engine *en, uint64_t now_ns);
/* Brings parked sequences back and admits queued ones. */
void scheduler_admit(engine *en, uint64_t now_ns);
/* Brings the pool's limit to the one asked for, or as near as those allow who run: what is only cached goes first, then
 * all but the eldest give way. */
void scheduler_fit(engine *en, uint64_t now_ns);
/* Moves copies of pages back; whether there were any. */
bool scheduler_restore(engine *en);
/* Fills en->order with those that compute in this step, each with its rows and the pages for them; returns how many.
 * Those that would need pages which nobody has preempt somebody. */
size_t scheduler_plan(engine *en, uint64_t now_ns);
/* What this step costs, in the cost model's terms. */
step_shape scheduler_shape(engine *en, size_t n_seqs);
/* It took ns. */
void scheduler_learn(engine *en, const step_shape *shape, uint64_t ns);

/*
 * sequence.c: the arrows
 */
/* Checks nothing (engine_submit did) but whether its reply can have the tokens that it begins with; on failure r->stops is
 * still the caller's. */
status sequence_new(engine *en, const gen_request *r, size_t max_new, bool ceiling, sequence **out, err *e);
/* QUEUED → PREFILL, on that lane, with the prefix that is offered and held. The caller made sure of the pages:
 * need_pages is for all that is reserved. */
void sequence_admit(sequence *s, lane *l, reuse_offer *o, size_t need_pages, uint64_t now_ns);
/* Tokens that admission and resuming reserve pages for. */
size_t sequence_reserves(const sequence *s);
/* Whether the last row of this step gives a token. */
bool sequence_draws(const sequence *s);
/* Draws it from that row of logits into s->drawn. Any thread of the pool, for different sequences and samplers. */
void sequence_draw(sequence *s, sampler *with, const float *logits);
/* The rows of this step were computed, and the token drawn if it draws: PREFILL, DECODE and TAIL go on from here.
 * logits: of those of its rows that wanted them, in order. */
void sequence_advance(sequence *s, const float *logits, uint64_t now_ns);
/* QUEUED: the tokens that it began with are all of its reply, and none of them is to be forwarded. */
bool sequence_over(const sequence *s);
bool sequence_cancelled(const sequence *s);
bool sequence_overdue(const sequence *s, uint64_t now_ns);
/* Any state → gone, by cancel, deadline or because it is over; a sealed outcome stays what it is. */
void sequence_cut(sequence *s, uint64_t now_ns);
/* Any state → gone, with an error. */
void sequence_fail(sequence *s, const err *e);
/* Where seq_fail was called: fails it, and says so. */
bool sequence_fails(sequence *s);
/* Its rows of this step could not be computed: it fails, alone; with a sealed outcome it ends as sealed, its session
 * dirty. */
void sequence_fail_step(sequence *s, const err *e, uint64_t now_ns);
/* The same: a row of it met a non-finite value. */
void sequence_spoil(sequence *s, uint64_t now_ns);
/* TAIL → gone, its last token not forwarded: there is no page for it. */
void sequence_end_short(sequence *s, uint64_t now_ns);
/* Tokens that are known and not computed yet. */
size_t sequence_pending(const sequence *s);
size_t sequence_generated(const sequence *s);
/* Whether the row at this position of its history has to give logits, or the state behind the last norm. */
bool sequence_wants_logits(const sequence *s, size_t position);
bool sequence_wants_hidden(const sequence *s, size_t position);
/* Pages for the next n_rows rows beyond what it has and what is promised to it. */
size_t sequence_short_of(const sequence *s, size_t n_rows);
/* Takes pages for the next n_rows rows, first those that were promised. ST_CAPACITY: what it got stays. */
status sequence_cover(sequence *s, size_t n_rows);

/*
 * preempt.c: the arrows to PARKED and back. Nothing of the struct is lost on the way, so none of this is seen in
 * what the sequence says.
 */
bool sequence_can_park(const sequence *s);
/* PREFILL, DECODE, RESTORE → PARKED: its pages and promises are free. */
void sequence_park(sequence *s, uint64_t now_ns);
/* PARKED → RESTORE (there is a copy), PREFILL or DECODE, with the prefix that is offered and held; nothing is offered to
 * one with a copy. The caller made sure of the pages. */
void sequence_resume(sequence *s, reuse_offer *o, size_t need_pages);
/* RESTORE: copies up to max_pages back; the last one → PREFILL or DECODE. Returns the pages copied. */
size_t sequence_restore(sequence *s, size_t max_pages);
void sequence_drop_image(sequence *s);

/* Text side (reply.c). Push: what token releases is in en->text until the next call. Seal: releases what the
 * end leaves into s->tail. */
status reply_push(sequence *s, int32_t token);
status reply_flush(sequence *s);
status reply_reserve(sequence *s);

#endif
