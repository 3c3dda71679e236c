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

/*
 * With the counter (position, token, 0, 0) half of the first rounds' words are the same for all tokens. A round is
 *
 *     c0, c1, c2, c3 = hi(c2 M1) ^ c1 ^ key[0], lo(c2 M1), hi(c0 M0) ^ c3 ^ key[1], lo(c0 M0)
 *
 * and here is what it comes to, token by token, x being constants, hi and lo those of the products named before:
 *
 *     1   c0 = token ^ key[0][0], c1 = 0, c2 and c3 constant
 *     2   c0 M0:         c0 and c1 constant, c2 = hi ^ x[0],  c3 = lo
 *     3   c2 M1:         c0 = hi ^ x[1],  c1 = lo,  c2 = c3 ^ x[2],  c3 constant
 *     4   c0 M0, c2 M1:  c0 and c1 as ever,  c2 = hi(c0 M0) ^ x[3],  c3 = lo
 *     9   c0 M0, c2 M1:  of c0 and c3 nothing is needed
 *     10  c2 M1:         c0 is the result
 */
typedef struct philox_start {
    uint32_t key[PHILOX_ROUNDS][2];
    uint32_t x[4];
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
    const uint64_t first = (uint64_t)PHILOX_M0 * (uint32_t)position;
    const uint64_t second = (uint64_t)PHILOX_M1 * ((uint32_t)(first >> 32) ^ p.key[0][1]);
    const uint64_t third = (uint64_t)PHILOX_M0 * ((uint32_t)(second >> 32) ^ p.key[1][0]);
    p.x[0] = (uint32_t)first ^ p.key[1][1];
    p.x[1] = (uint32_t)second ^ p.key[2][0];
    p.x[2] = (uint32_t)(third >> 32) ^ p.key[2][1];
    p.x[3] = (uint32_t)third ^ p.key[3][1];
    return p;
}

#endif
