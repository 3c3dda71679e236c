/*
 * repeat_guard: whether a reply has come to say the same over and over: its last `span` tokens are at least
 * REPEAT_COPIES exact copies of one run of tokens, and the begin of one more where they do not come out even. A pure
 * function of the generated tokens.
 *
 * Looked at only when the number of generated tokens is a multiple of REPEAT_STRIDE (from `span` on), so its cost
 * is span / REPEAT_STRIDE steps of a prefix function per token.
 */
#ifndef HEARTH_ENGINE_REPEAT_GUARD_H
#define HEARTH_ENGINE_REPEAT_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPEAT_COPIES   8
#define REPEAT_STRIDE   32
#define REPEAT_MIN_SPAN 16
#define REPEAT_MAX_SPAN 4096

/* generated: all generated tokens; span: 0 = off, else REPEAT_MIN_SPAN … REPEAT_MAX_SPAN; scratch: [span]. */
bool repeat_guard_fires(const int32_t *generated, size_t n, size_t span, int32_t *scratch);

#endif
