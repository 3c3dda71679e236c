/*
 * rate: what vpdpbusd on 512 bits can do with its operands in registers: 64 multiply-adds each, summed in int32.
 * Twelve sums that do not wait for each other hide its latency (5 cycles, two a cycle).
 */
#include <immintrin.h>

#include "kern/x86/avx512.h"

#define OPS_PER_ROUND (12u * 64u * 2u)

#define STEP(to) "vpdpbusd %0, %1, %%zmm" #to "\n\t"

uint64_t int8_rate_avx512(uint64_t n_rounds)
{
    const __m512i a = _mm512_set1_epi8(37), b = _mm512_set1_epi8(91);
    for (uint64_t i = 0; i < n_rounds; i++) {
        __asm__ volatile(STEP(16) STEP(17) STEP(18) STEP(19) STEP(20) STEP(21) STEP(22) STEP(23) STEP(24)
                             STEP(25) STEP(26) STEP(27)
                         :
                         : "v"(a), "v"(b)
                         : "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24",
                           "xmm25", "xmm26", "xmm27");
    }
    return n_rounds * OPS_PER_ROUND;
}
