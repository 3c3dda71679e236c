#include "kv/snapshot_plan.h"

#include <stdint.h>

#include "kern/kv_layout.h"

#define LEAST_SPACING 1024

size_t kv_snapshot_spacing(size_t snapshot_bytes, size_t kv_bytes_per_token)
{
    size_t even = kv_bytes_per_token == 0 ? 0 : snapshot_bytes / kv_bytes_per_token;
    if (even > SIZE_MAX - KV_PAGE_TOKENS) {
        return SIZE_MAX / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    }
    even = (even + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    return even > LEAST_SPACING ? even : LEAST_SPACING;
}

kv_snapshot_stop kv_snapshot_next(size_t from, size_t n_prompt, size_t spacing)
{
    kv_snapshot_stop stop = {.at = n_prompt};
    size_t last = n_prompt == 0 ? 0 : (n_prompt - 1) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    size_t to_next = spacing - from % spacing;
    if (last > from) {
        stop = (kv_snapshot_stop){.at = last, .snapshot = true};
    }
    /* At the prompt's end too, if it is there; where both meet it stays as long as a turn's end. */
    if (to_next < stop.at - from || (to_next == stop.at - from && !stop.snapshot)) {
        stop = (kv_snapshot_stop){.at = from + to_next, .snapshot = true, .spaced = true};
    }
    return stop;
}
