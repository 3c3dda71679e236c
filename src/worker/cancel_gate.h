/*
 * cancel_gate: what the 8-byte ids on the control pipe mean, as a state machine without descriptors or
 * threads (PROTOCOL 3(b)).
 *
 * Active is at most one request: one that carries a cancel id, from having its session until its last frame
 * is written. While one is active only its own id acts, and only until its outcome is sealed; every other id
 * is dropped. While none is, the first id above the highest used-up one takes the one pending slot; the next
 * request with a cancel id empties it.
 *
 * "Written" is told in bytes of the output: sealing names the position behind the last frame, and every later
 * question brings along how far the writer has come.
 *
 * All-zero is a fresh one. Whoever owns it guards it.
 */
#ifndef HEARTH_WORKER_CANCEL_GATE_H
#define HEARTH_WORKER_CANCEL_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CANCEL_FRAME_BYTES 8 /* one id, little-endian */

typedef struct cancel_gate {
    uint64_t used_up;                       /* the highest used-up id */
    uint64_t pending;                       /* 0 = the slot is empty */
    uint64_t active;                        /* 0 = none */
    bool sealed;                            /* the active one: its outcome is decided */
    uint64_t end_at;                        /* sealed: where in the output its last frame ends */
    unsigned char half[CANCEL_FRAME_BYTES]; /* of a frame that is not whole yet */
    size_t n_half;
} cancel_gate;

/* Whether a request may carry this id: not 0, above all used-up ones. */
bool cancel_gate_allows(const cancel_gate *g, uint64_t id);
/* The request that carries id (allowed) has its session: id is used up and active, the slot is empty. True if
 * the slot named it: it is to be cancelled before its first token. */
bool cancel_gate_begin(cancel_gate *g, uint64_t id);
/* The request that carries id (allowed) ended with an error before it had a session, and was not refused for
 * capacity: id is used up, the slot is empty. */
void cancel_gate_spend(cancel_gate *g, uint64_t id);
/* The outcome of the active one is decided; its last frame ends at end_at. Nothing if none is active. */
void cancel_gate_seal(cancel_gate *g, uint64_t end_at);
/* An id came. True if the active request is to be cancelled. */
bool cancel_gate_id(cancel_gate *g, uint64_t id, uint64_t written);
/* The same for bytes as they come, whole frames or parts. */
bool cancel_gate_bytes(cancel_gate *g, const unsigned char *data, size_t n, uint64_t written);

#endif
