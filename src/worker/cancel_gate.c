#include "worker/cancel_gate.h"

#include "base/le.h"

bool cancel_gate_allows(const cancel_gate *g, uint64_t id)
{
    return id > g->used_up;
}

void cancel_gate_spend(cancel_gate *g, uint64_t id)
{
    g->used_up = id;
    g->pending = 0;
}

bool cancel_gate_begin(cancel_gate *g, uint64_t id)
{
    bool named = g->pending == id;
    cancel_gate_spend(g, id);
    g->active = id;
    g->sealed = false;
    return named;
}

void cancel_gate_seal(cancel_gate *g, uint64_t end_at)
{
    if (g->active != 0 && !g->sealed) {
        g->sealed = true;
        g->end_at = end_at;
    }
}

bool cancel_gate_id(cancel_gate *g, uint64_t id, uint64_t written)
{
    if (g->active != 0 && g->sealed && written >= g->end_at) {
        g->active = 0;
    }
    if (g->active != 0) {
        return id == g->active && !g->sealed;
    }
    if (id > g->used_up && g->pending == 0) {
        g->pending = id;
    }
    return false;
}

bool cancel_gate_bytes(cancel_gate *g, const unsigned char *data, size_t n, uint64_t written)
{
    bool cancel = false;
    for (size_t i = 0; i < n; i++) {
        g->half[g->n_half++] = data[i];
        if (g->n_half == CANCEL_FRAME_BYTES) {
            g->n_half = 0;
            cancel = cancel_gate_id(g, le64_get(g->half), written) || cancel;
        }
    }
    return cancel;
}
