/*
 * attn_fetch: what attention fetches, into the second cache, beside what it reads where it lies: for each line the same
 * line of attn_part.ahead (kern/attn_walk.h), one for one, since bursts are dropped. Private to
 * src/kern/x86/attention_*.c.
 */
#ifndef HEARTH_KERN_X86_ATTN_FETCH_H
#define HEARTH_KERN_X86_ATTN_FETCH_H

#include <immintrin.h>

#include "kern/kv_layout.h"
#include "kern/x86/unroll.h"

#define LINE 64 /* bytes */

MM_INLINE void fetch(const unsigned char *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

/* Row d of K is read. Two rows of codes are a line, which is asked for twice. */
MM_INLINE void key_fetch(const unsigned char *ahead, size_t k_dim, size_t d, const kv_type type)
{
    if (type == KV_F16 || type == KV_BF16) {
        fetch(ahead + d * LINE);
    } else if (type == KV_Q8_0) {
        fetch(ahead + kv_q8_scale_bytes(k_dim) + d * KV_PAGE_TOKENS);
        if (d % KV_BLOCK == 0) {
            fetch(ahead + d * 2);
        }
    }
}

/* Dimensions d … d + 31 of position j of V are read. */
MM_INLINE void value_fetch(const unsigned char *ahead, size_t v_dim, size_t j, size_t d, const kv_type type)
{
    if (type == KV_F16 || type == KV_BF16) {
        fetch(ahead + 2 * (j * v_dim + d));
    } else if (type == KV_Q8_0) {
        fetch(ahead + kv_q8_scale_bytes(v_dim) + j * v_dim + d);
    }
}

#endif
