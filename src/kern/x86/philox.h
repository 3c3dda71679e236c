/*
 * philox: what the vector sets share of rule 7's noise: base/philox.c's constants, the parts of the rounds that are
 * the same for all tokens, and the margins of the bound that saves most logarithms. Internal to kern/x86.
 */
#ifndef HEARTH_KERN_X86_PHILOX_H
#define HEARTH_KERN_X86_PHILOX_H

#include <stdint.h>

#define PHILOX_M0     0xD2511F53u
#define PHILOX_M1     0xCD9E8D57u
#define PHILOX_ROUNDS 10

#define PHILOX_LN2   0.6931472f
#define PHILOX_SLACK 1e-3f /* far more than what rounding does to a bound or a noise below 17 */

/* With the counter (position, token, 0, 0) the first round gives c0 = token ^ key[0][0], c1 = 0 and these. */
typedef struct philox_start {
    uint32_t key[PHILOX_ROUNDS][2];
    uint32_t c2, c3;
} philox_start;

static inline philox_start philox_begin(uint64_t seed, int32_t position)
{
    philox_start p;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        p.key[round][0] = k0;
        p.key[round][1] = k1;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    uint64_t product = (uint64_t)PHILOX_M0 * (uint32_t)position;
    p.c2 = (uint32_t)(product >> 32) ^ p.key[0][1];
    p.c3 = (uint32_t)product;
    return p;
}

#endif
