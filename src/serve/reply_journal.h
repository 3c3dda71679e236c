/*
 * reply_journal: what the daemon remembers of one reply, so that another worker can go on with it where a worker that
 * died has left it (PROTOCOL 4, resume), and its owner sees one undisturbed sequence of frames.
 *
 * Told every frame of the reply in order, it says which of them the owner has had before. The seed, the time and the
 * prompt in force are those of the first accepted frame. Frames without ids belong to the next frame with ids, or to the
 * end: those that came after the last id come again, first, and are swallowed.
 *
 *   worker 1: accepted, ids 5, ids 7, (no ids) a, (no ids) b ✝    the owner has had all of it
 *   worker 2, told ids 5 7: accepted, a, b, (no ids) c, ids 9     swallowed are accepted, a, b
 *
 * A worker is not trusted: a frame that contradicts what was said before breaks the protocol.
 *
 * Plain data; one owner thread. Memory: 4 bytes for each generated token, as many for each one of a prompt that came with
 * the accepted frame, both grow by doubling; so it is bounded by what the worker says, which is bounded by the model's
 * context: more ids than that are a break. Without memory the reply goes on, but cannot be gone on with (`lost`).
 */
#ifndef HEARTH_SERVE_REPLY_JOURNAL_H
#define HEARTH_SERVE_REPLY_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "wire/frame.h"

typedef struct reply_journal { /* all-zero: nothing was said; open for reading only */
    bool accepted;             /* by any worker: the next five are true */
    uint64_t seed;
    int64_t now_ms;
    int32_t prompt_tokens, cached_prompt_tokens;
    char prompt_digest[SHA256_HEX_LEN + 1];
    bool told_prompt_logprobs;
    int32_t told_progress; /* of the prompt, the most that was told */
    bool lost;             /* memory was out */
    bool resumed;          /* another worker goes on with it, or shall */
    size_t n_ids, cap_ids, n_prompt_ids;
    size_t n_open; /* frames without ids since the last one with them, that the owner has had */

    /* of this worker */
    bool accepted_now;
    size_t n_repeated; /* of the n_open, how many it is still to say again */

    /* owned */
    int32_t *ids, *prompt_ids;
} reply_journal;

typedef enum reply_verdict {
    REPLY_PASS,    /* new: the owner's */
    REPLY_SWALLOW, /* he has had it */
    REPLY_BROKEN   /* it contradicts what was said */
} reply_verdict;

void reply_journal_release(reply_journal *j);
/* f: a part or the end of the reply. context: of the model, in tokens. *why (static storage) is written with REPLY_BROKEN
 * only. */
reply_verdict reply_journal_take(reply_journal *j, const frame *f, int32_t context, const char **why);
/* The worker has died. False: another one cannot go on with it. */
bool reply_journal_restart(reply_journal *j);
/* Adds `resume` to the line that ends the buffer, if a worker has accepted the request. */
status reply_journal_put_resume(const reply_journal *j, buf *line);
/* The done frame as an undisturbed run would have it: *out, which borrows from f. What was cached of the prompt is what was
 * so at first. */
void reply_journal_mend_done(const reply_journal *j, const frame *f, frame *out);

#endif
