/*
 * engine_int: the structs that the files of engine/ share, and the functions on the arrows between the states
 * of a sequence (DESIGN 6). Nobody else includes it. Engine thread, but for the counters.
 *
 *            admit              prefilled             end / fail
 *   QUEUED ────────► PREFILL ──────────────► DECODE ──────────────► gone
 *      │                │                    │    ▲                  ▲
 *      │                │                    └────┘ decide           │
 *      │                │ decide: sealed `length` in a named session │
 *      │                └──────────────────► TAIL ───────────────────┤
 *      └────────────────────── cut (cancel, deadline) ───────────────┘
 *
 * TAIL: the outcome is sealed, the last token is still to be forwarded.
 * Held (EMIT_WAIT) is a mark beside the state, not a state: a held sequence keeps its place and computes
 * nothing.
 */
#ifndef HEARTH_ENGINE_ENGINE_INT_H
#define HEARTH_ENGINE_ENGINE_INT_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/vec.h"
#include "engine/engine.h"
#include "engine/resident.h"
#include "text/detok.h"

typedef enum seq_state { SEQ_QUEUED, SEQ_PREFILL, SEQ_DECODE, SEQ_TAIL } seq_state;

struct session {
    /* owned */
    resident kv;
    /* borrowed */
    engine *en;
    sequence *active;     /* the one that has the pages, or NULL */
    session *prev, *next; /* of the engine's list */
    size_t n_requests;    /* queued and running */
    uint64_t last_used;   /* step at which its last request ended: idle sessions are reclaimed oldest first */
    bool dirty;
};

struct sequence {
    /* owned */
    resident own; /* pages of an anonymous sequence */
    ivec history; /* prompt, then generated tokens */
    logit_bias *bias;
    int32_t *stop_ids;         /* [n_stop_ids] */
    sampler_out *prompt_probs; /* [n_prompt - 1], or NULL: not asked for */
    stop_set *stops;
    stop_matcher stop;
    buf tail; /* text released by the end, from the seal until done */
    /* borrowed */
    engine *en;
    sequence *prev, *next; /* of the engine's list, in the order submitted */
    session *session;      /* NULL = anonymous */
    resident *kv;          /* the session's or own */
    const atomic_bool *cancel;
    gen_sink sink;

    seq_state state;
    bool held;
    bool cancel_asked;
    const char *cancel_guard; /* static storage; "" if it has none */
    bool terminal_sent;
    bool stop_cut;
    bool repaired_tail;
    bool ceiling; /* the context, not the caller, set max_new */
    finish_reason sealed;
    gen_verdict verdict;
    size_t n_forced; /* of verdict.force that are used */
    sampling params;
    detok detok;
    size_t n_prompt;
    size_t n_stop_ids;
    int32_t n_prompt_top; /* alternatives per entry of prompt_probs */
    uint64_t id_hash;
    size_t max_new;
    size_t promised_pages; /* reserved for it and not yet taken */
    size_t reused;
    size_t prefilled;
    reset_reason reset;
    uint64_t deadline_ns;
    uint64_t submit_ns, admit_ns, prefill_ns, decode_ns, first_token_ns; /* 0 = not yet */
    size_t step_limit;                                                   /* rows it may have in this step */
    size_t step_rows, step_first; /* its part of the batch of this step */
    size_t step_logits;           /* how many of these rows want logits */
    sampler_out drawn;            /* what this step's last row of logits gave, if the sequence draws */
};

/* Workspaces of the vocabulary's size, so no more than help. */
#define ENGINE_SAMPLERS 16

/* Written by the engine thread, read by any in engine_stats_read. All relaxed: each is a figure of its own
 * and orders nothing. */
typedef struct engine_counters {
    atomic_uint_fast64_t steps, prefilled, generated, reused, done, failed, cancelled, bugs;
    atomic_uint_fast64_t pages_used, sessions, sequences, running;
} engine_counters;

struct engine {
    engine_config cfg; /* what it points to is borrowed */
    /* owned */
    page_pool *pages;
    sampler *samplers[ENGINE_SAMPLERS]; /* a thread of the pool uses one; NULL behind the last */
    size_t n_samplers;                  /* at least 1 */
    sequence **drawing;                 /* [max_sequences] those that draw in this step */
    const float **drawing_logits;       /* [max_sequences] the row of each */
    batch_row *rows;                    /* [ops.max_rows] */
    batch_seq *seqs;                    /* [max_sequences] */
    sequence **order;                   /* [max_sequences] those in the batch */
    step_row *steps;                    /* [max_sequences] for before_step */
    float *logits;                      /* [ops.max_logit_rows][n_vocab] */
    uint8_t *bad;                       /* [ops.max_rows] */
    buf piece, text;                    /* one token on its way out; reserved for the longest */
    /* borrowed */
    sequence *first, *last;
    session *sessions;
    const int32_t *eog;
    size_t n_eog;

    size_t n_active; /* sequences past QUEUED */
    size_t n_sequences;
    size_t promised_pages; /* of all sequences */
    size_t max_piece;      /* bytes of the longest piece */
    uint64_t step_no;
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

void engine_note_pages(engine *en); /* after pages were taken or given back */

/* How a prompt would find the session now (PROTOCOL 2): the reason, and how many of its tokens need no
 * computing. */
reset_reason session_match(const session *s, bool warm, const int32_t *prompt, size_t n, size_t *reuse);
/* Empties an idle session so that its pages serve somebody else. */
void session_reclaim(session *s);

/* Checks nothing (engine_submit did); on failure r->stops is still the caller's. */
status sequence_new(engine *en, const gen_request *r, size_t max_new, bool ceiling, sequence **out);
/* QUEUED → PREFILL. The caller made sure of the pages: need_pages is for prompt and reply in all. */
void sequence_admit(sequence *s, reset_reason reason, size_t reuse, size_t need_pages, uint64_t now_ns);
/* Whether the last row of this step gives a token. */
bool sequence_draws(const sequence *s);
/* Draws it from that row of logits into s->drawn. Any thread of the pool, for different sequences and samplers. */
void sequence_draw(sequence *s, sampler *with, const float *logits);
/* The rows of this step were computed, and the token drawn if it draws: PREFILL, DECODE and TAIL go on from here.
 * logits: of those of its rows that wanted them, in order. */
void sequence_advance(sequence *s, const float *logits, uint64_t now_ns);
bool sequence_cancelled(const sequence *s);
bool sequence_overdue(const sequence *s, uint64_t now_ns);
/* Any state → gone, by cancel or deadline; a sealed outcome stays what it is. */
void sequence_cut(sequence *s, uint64_t now_ns);
/* Any state → gone, with an error. */
void sequence_fail(sequence *s, const err *e);
/* A row of it met a non-finite value: it fails, alone; with a sealed outcome it ends as sealed, its session
 * dirty. */
void sequence_spoil(sequence *s, uint64_t now_ns);
/* Tokens that are known and not computed yet. */
size_t sequence_pending(const sequence *s);
/* Whether the row at this position of its history has to give logits. */
bool sequence_wants_logits(const sequence *s, size_t position);
/* Takes pages for the next n_rows rows out of what was promised. */
status sequence_cover(sequence *s, size_t n_rows);

/* Text side (reply.c). Push: what token releases is in en->text until the next call. Seal: releases what the
 * end leaves into s->tail. */
status reply_push(sequence *s, int32_t token);
status reply_flush(sequence *s);
status reply_reserve(sequence *s);

#endif
