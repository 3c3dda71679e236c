#include "engine/policy.h"

static uint64_t rank_of(const policy_waiting *w)
{
    /* Above zero for every priority; the ageing of 2^64 ns leaves room. */
    return (uint64_t)((int64_t)w->priority - INT32_MIN) + w->waited_ns / POLICY_AGEING_NS;
}

bool policy_before(const policy_waiting *a, const policy_waiting *b)
{
    uint64_t ra = rank_of(a), rb = rank_of(b);
    return ra != rb ? ra > rb : a->ticket < b->ticket;
}

/* Admitted longest ago of those that are not held; POLICY_NONE if all are. */
static size_t eldest(const policy_running *r, size_t n)
{
    size_t best = POLICY_NONE;
    for (size_t i = 0; i < n; i++) {
        if (!r[i].held && (best == POLICY_NONE || r[i].admitted < r[best].admitted)) {
            best = i;
        }
    }
    return best;
}

static bool gives_way_before(const policy_running *a, const policy_running *b)
{
    if (a->immune != b->immune) {
        return b->immune;
    }
    return a->n_generated != b->n_generated ? a->n_generated < b->n_generated : a->admitted > b->admitted;
}

size_t policy_victim(const policy_running *r, size_t n)
{
    size_t best = POLICY_NONE, spared = eldest(r, n);
    for (size_t i = 0; i < n; i++) {
        if (i != spared && r[i].can_be_parked && (best == POLICY_NONE || gives_way_before(&r[i], &r[best]))) {
            best = i;
        }
    }
    return best;
}

size_t policy_resume(const policy_parked *p, size_t n)
{
    size_t best = POLICY_NONE;
    for (size_t i = 0; i < n; i++) {
        bool better = best == POLICY_NONE || p[i].n_tokens < p[best].n_tokens ||
                      (p[i].n_tokens == p[best].n_tokens && p[i].since < p[best].since);
        if (!p[i].held && better) {
            best = i;
        }
    }
    return best;
}

size_t policy_shorter(const size_t *want, size_t n, size_t last)
{
    size_t best = POLICY_NONE;
    for (size_t i = 0; i < n; i++) {
        size_t than = last == POLICY_NONE ? 0 : want[last];
        bool after = last == POLICY_NONE || want[i] > than || (want[i] == than && i > last);
        if (after && (best == POLICY_NONE || want[i] < want[best])) {
            best = i;
        }
    }
    return best;
}
