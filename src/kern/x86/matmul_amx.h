/*
 * matmul_amx: the tile instructions as the AMX products use them. Private to the x86/matmul_*_amx.c files.
 *
 * Every instruction is inline assembly with a "memory" clobber: the compiler keeps the order in which tile and
 * vector code meet in memory (GCC 12 drops stores before ldtilecfg otherwise), and sanitizers do not see the
 * accesses. Tiles are named by a literal digit 0 … 7.
 *
 * A thread configures the tiles at the start of a product and releases them at its end, so that they are in
 * their initial state between products and a thread switch does not save 8 KiB.
 */
#ifndef HEARTH_KERN_X86_MATMUL_AMX_H
#define HEARTH_KERN_X86_MATMUL_AMX_H

#include <stddef.h>
#include <stdint.h>

#define AMX_INLINE static inline __attribute__((always_inline))

/* Operand of ldtilecfg, palette 1: 64 bytes. Rows up to 16, row_bytes up to 64 and a multiple of 4. */
typedef struct amx_config {
    uint8_t palette;
    uint8_t start_row;
    uint8_t zero[14];
    uint16_t row_bytes[16]; /* of tiles 0 … 7; the rest 0 */
    uint8_t rows[16];
} amx_config;

_Static_assert(sizeof(amx_config) == 64, "ldtilecfg reads 64 bytes");

AMX_INLINE void amx_configure(const amx_config *c)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*c) : "memory");
}

AMX_INLINE void amx_release(void)
{
    __asm__ volatile("tilerelease" : : : "memory");
}

/* Rows of the tile from p on, stride bytes apart. */
#define AMX_LOAD(tile, p, stride)                                    \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile              \
                     :                                               \
                     : "r"((const void *)(p)), "r"((size_t)(stride)) \
                     : "memory")
#define AMX_STORE(tile, p, stride)                             \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)"    \
                     :                                         \
                     : "r"((void *)(p)), "r"((size_t)(stride)) \
                     : "memory")
/* The same, `at` bytes behind p: a constant, so that many tiles share the register of p. */
#define AMX_LOAD_AT(tile, p, at, stride)                                      \
    __asm__ volatile("tileloadd %c2(%0,%1,1), %%tmm" #tile                    \
                     :                                                        \
                     : "r"((const void *)(p)), "r"((size_t)(stride)), "i"(at) \
                     : "memory")
#define AMX_STORE_AT(tile, p, at, stride)                               \
    __asm__ volatile("tilestored %%tmm" #tile ", %c2(%0,%1,1)"          \
                     :                                                  \
                     : "r"((void *)(p)), "r"((size_t)(stride)), "i"(at) \
                     : "memory")
#define AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : : : "memory")

/* c[i][n] += sum over r, j of a[i][4 r + j] * b[r][4 n + j], signed bytes, exact in int32. */
#define AMX_DOT_INT8(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : : "memory")
/* The same where the bytes of b are unsigned. */
#define AMX_DOT_INT8_UNSIGNED(c, a, b) \
    __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : : "memory")
/* The same of bf16 pairs into fp32; rounding and flushing: kern/README.md. */
#define AMX_DOT_BF16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : : "memory")

#endif
