/*
 * rate: what vpmaddubsw, the int8 instruction of AVX2, can do with its operands in registers: 32 multiply-adds
 * each (the sum of two in 16 bits; what a product does to widen them is not counted).
 */
#include <immintrin.h>

#include "kern/x86/avx2.h"

#define OPS_PER_ROUND (12u * 32u * 2u)

#define STEP(to) "vpmaddubsw %0, %1, %%ymm" #to "\n\t"

uint64_t int8_rate_avx2(uint64_t n_rounds)
{
    const __m256i a = _mm256_set1_epi8(37), b = _mm256_set1_epi8(91);
    for (uint64_t i = 0; i < n_rounds; i++) {
        __asm__ volatile(STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11) STEP(12) STEP(13)
                             STEP(14) STEP(15)
                         :
                         : "x"(a), "x"(b)
                         : "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
                           "xmm14", "xmm15");
    }
    return n_rounds * OPS_PER_ROUND;
}
