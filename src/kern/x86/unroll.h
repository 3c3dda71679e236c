/*
 * unroll: MM_UNROLL stands before loops over the vectors of a tile. They must disappear, else their arrays stay in
 * memory. Under a sanitizer, which checks every load, they stay: unrolled, one file takes a minute to compile.
 * Internal to kern/x86.
 */
#ifndef HEARTH_KERN_X86_UNROLL_H
#define HEARTH_KERN_X86_UNROLL_H

#include "base/sanitized.h"

#define MM_INLINE static inline __attribute__((always_inline))

#if SANITIZED
#define MM_UNROLL
#elif defined(__clang__)
#define MM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MM_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
