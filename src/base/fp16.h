/*
 * fp16: IEEE binary16 and bfloat16 <-> binary32, exact widening, round-to-nearest-even narrowing, in plain
 * integer arithmetic so that every instruction set agrees to the bit (NaN stays NaN, quiet). Pure, any
 * thread.
 */
#ifndef HEARTH_BASE_FP16_H
#define HEARTH_BASE_FP16_H

#include <stdint.h>
#include <string.h>

static inline float f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float fp16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exp = (h >> 10) & 0x1Fu;
    uint32_t man = h & 0x3FFu;
    if (exp == 0) { /* zero or subnormal: man * 2^-24 is exact in binary32 */
        float mag = (float)man * 0x1p-24f;
        return f32_from_bits(sign | f32_bits(mag));
    }
    if (exp == 31) {
        uint32_t quiet = man ? 0x00400000u : 0;
        return f32_from_bits(sign | 0x7F800000u | quiet | (man << 13));
    }
    return f32_from_bits(sign | ((exp + 112u) << 23) | (man << 13));
}

static inline uint16_t fp16_from_f32(float f)
{
    uint32_t u = f32_bits(f);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    uint32_t a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) {
        return (uint16_t)(sign | 0x7E00u);
    }
    if (a >= 0x477FF000u) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    }
    if (a < 0x38800000u) { /* result is subnormal: add 0.5 so that the rounding lands on 2^-24 steps */
        float v = f32_from_bits(a) + 0.5f;
        return (uint16_t)(sign | (uint16_t)(f32_bits(v) - 0x3F000000u));
    }
    uint32_t odd = (a >> 13) & 1u;
    return (uint16_t)(sign | (uint16_t)((a - 0x38000000u + 0xFFFu + odd) >> 13));
}

static inline float bf16_to_f32(uint16_t b)
{
    return f32_from_bits((uint32_t)b << 16);
}

static inline uint16_t bf16_from_f32(float f)
{
    uint32_t u = f32_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) {
        return (uint16_t)((u >> 16) | 0x40u);
    }
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

#endif
