#include "engine/repeat_guard.h"

#include <assert.h>

/* The longest proper prefix of w[0, n) that is a suffix of it too; border: [n] scratch. */
static size_t longest_border(const int32_t *w, size_t n, int32_t *border)
{
    size_t k = 0;
    border[0] = 0;
    for (size_t i = 1; i < n; i++) {
        while (k > 0 && w[i] != w[k]) {
            k = (size_t)border[k - 1];
        }
        k += w[i] == w[k];
        border[i] = (int32_t)k;
    }
    return k;
}

bool repeat_guard_fires(const int32_t *generated, size_t n, size_t span, int32_t *scratch)
{
    assert(span == 0 || (span >= REPEAT_MIN_SPAN && span <= REPEAT_MAX_SPAN));
    if (span == 0 || n < span || n % REPEAT_STRIDE != 0) {
        return false;
    }
    /* A border of span - p tokens is the period p. */
    size_t period = span - longest_border(generated + n - span, span, scratch);
    return period * REPEAT_COPIES <= span;
}
