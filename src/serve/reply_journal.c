#include "serve/reply_journal.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "wire/request.h"

#define FIRST_IDS 64

void reply_journal_release(reply_journal *j)
{
    mem_free(j->ids);
    mem_free(j->prompt_ids);
    *j = (reply_journal){0};
}

static void remember_ids(reply_journal *j, const int32_t *ids, size_t n)
{
    size_t cap = j->cap_ids > 0 ? j->cap_ids : FIRST_IDS;
    while (cap - j->n_ids < n) { /* both are bounded by the context */
        cap *= 2;
    }
    if (cap != j->cap_ids) {
        int32_t *more = mem_realloc(j->ids, cap * sizeof *more);
        if (!more) {
            j->lost = true;
            return;
        }
        j->ids = more;
        j->cap_ids = cap;
    }
    memcpy(j->ids + j->n_ids, ids, n * sizeof *ids);
    j->n_ids += n;
}

static void remember_prompt(reply_journal *j, const frame_accepted *a)
{
    j->accepted = true;
    j->seed = a->seed;
    j->now_ms = a->now_ms;
    j->prompt_tokens = a->prompt_tokens;
    j->cached_prompt_tokens = a->cached_prompt_tokens;
    snprintf(j->prompt_digest, sizeof j->prompt_digest, "%s", a->prompt_digest);
    if (a->prompt_ids) {
        size_t n = (size_t)a->prompt_tokens;
        j->prompt_ids = mem_alloc_array(n, sizeof *j->prompt_ids);
        j->lost = !j->prompt_ids;
        if (j->prompt_ids) {
            memcpy(j->prompt_ids, a->prompt_ids, n * sizeof *j->prompt_ids);
            j->n_prompt_ids = n;
        }
    }
}

static bool is_same(const reply_journal *j, const frame_accepted *a)
{
    return j->seed == a->seed && j->now_ms == a->now_ms && j->prompt_tokens == a->prompt_tokens &&
           strcmp(j->prompt_digest, a->prompt_digest) == 0;
}

static reply_verdict broken(const char **why, const char *text)
{
    *why = text;
    return REPLY_BROKEN;
}

static reply_verdict take_accepted(reply_journal *j, const frame_accepted *a, const char **why)
{
    if (j->accepted_now) {
        return broken(why, "a second accepted frame");
    }
    j->accepted_now = true;
    if (!j->accepted) {
        remember_prompt(j, a);
        return REPLY_PASS;
    }
    return is_same(j, a) ? REPLY_SWALLOW : broken(why, "an accepted frame with another prompt or seed");
}

static reply_verdict take_piece(reply_journal *j, const frame *f, int32_t context, const char **why)
{
    if (!j->accepted_now) {
        return broken(why, "a piece of a reply before its accepted frame");
    }
    if (f->n_ids == 0) {
        if (j->n_repeated > 0) {
            j->n_repeated--;
            return REPLY_SWALLOW;
        }
        j->n_open++;
        return REPLY_PASS;
    }
    if (j->n_repeated > 0) {
        return broken(why, "a reply that does not go on as it was");
    }
    if (context <= 0 || j->n_ids > (size_t)context || f->n_ids > (size_t)context - j->n_ids) {
        return broken(why, "more tokens than the model has room for");
    }
    j->n_open = 0;
    if (!j->lost) {
        remember_ids(j, f->ids, f->n_ids);
    }
    return REPLY_PASS;
}

reply_verdict reply_journal_take(reply_journal *j, const frame *f, int32_t context, const char **why)
{
    switch (f->kind) {
    case FRAME_ACCEPTED:
        return take_accepted(j, &f->accepted, why);
    case FRAME_TOKEN:
    case FRAME_DELTA:
        return take_piece(j, f, context, why);
    case FRAME_PROMPT_LOGPROBS:
        if (j->told_prompt_logprobs) {
            return REPLY_SWALLOW;
        }
        j->told_prompt_logprobs = true;
        return REPLY_PASS;
    case FRAME_PROGRESS:
        if (j->n_ids > 0 || f->progress.processed < j->told_progress) {
            return REPLY_SWALLOW;
        }
        j->told_progress = f->progress.processed;
        return REPLY_PASS;
    default:
        return REPLY_PASS;
    }
}

bool reply_journal_restart(reply_journal *j)
{
    j->accepted_now = false;
    j->resumed = true;
    j->n_repeated = j->n_open;
    return !j->lost;
}

status reply_journal_put_resume(const reply_journal *j, buf *line)
{
    if (!j->accepted) {
        return ST_OK;
    }
    const wire_resume r = {.ids = j->ids,
                           .n_ids = j->n_ids,
                           .seed = j->seed,
                           .now_ms = j->now_ms,
                           .prompt_digest = j->prompt_digest,
                           .prompt_ids = j->prompt_ids,
                           .n_prompt_ids = j->n_prompt_ids};
    return wire_request_put_resume(line, &r);
}

void reply_journal_mend_done(const reply_journal *j, const frame *f, frame *out)
{
    *out = *f;
    const frame_done *d = &f->done;
    if (j->accepted && j->resumed && d->prompt_tokens == j->prompt_tokens &&
        d->reused_prompt_tokens + d->prefilled_prompt_tokens == d->prompt_tokens) {
        out->done.cached_prompt_tokens = out->done.reused_prompt_tokens = j->cached_prompt_tokens;
        out->done.prefilled_prompt_tokens = j->prompt_tokens - j->cached_prompt_tokens;
    }
}
