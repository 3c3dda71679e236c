/*
 * cpu: CPUID says what the silicon can do, XGETBV which registers the operating system saves, and for AMX the
 * kernel must allow this process the 8 KiB of tile data (arch_prctl, Linux 5.16).
 * On ARM the kernel lists the capabilities in the auxiliary vector.
 * Source: Intel SDM vol. 2, CPUID leaves 1, 7; vol. 1, 13.3 (XCR0); Linux Documentation/arch/x86/xstate.rst.
 */
#include "kern/cpu.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define XCR0_SSE_AVX       0x6u     /* xmm, ymm */
#define XCR0_AVX512        0xE0u    /* masks, upper halves, upper registers */
#define XCR0_AMX           0x60000u /* tile configuration, tile data */
#define XFEATURE_TILE_DATA 18
#define REQ_XCOMP_PERM     0x1023 /* ARCH_REQ_XCOMP_PERM of asm/prctl.h, which older headers lack */

#define BIT(n) (1u << (n))

typedef struct cpu_regs {
    unsigned a, b, c, d;
} cpu_regs;

static bool leaf_read(unsigned leaf, cpu_regs *r)
{
    return __get_cpuid_count(leaf, 0, &r->a, &r->b, &r->c, &r->d) != 0;
}

static uint32_t xcr0_read(void)
{
    cpu_regs r;
    uint32_t lo, hi;
    if (!leaf_read(1, &r) || !(r.c & BIT(27))) { /* OSXSAVE: XGETBV exists */
        return 0;
    }
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

bool cpu_has_avx2(void)
{
    const unsigned fma_avx_f16c = BIT(12) | BIT(28) | BIT(29);
    cpu_regs one, seven;
    return (xcr0_read() & XCR0_SSE_AVX) == XCR0_SSE_AVX && leaf_read(1, &one) &&
           (one.c & fma_avx_f16c) == fma_avx_f16c && leaf_read(7, &seven) && (seven.b & BIT(5));
}

bool cpu_has_avx512(void)
{
    const unsigned f_dq_bw_vl = BIT(16) | BIT(17) | BIT(30) | BIT(31);
    const unsigned vnni = BIT(11);
    cpu_regs seven;
    return cpu_has_avx2() && (xcr0_read() & XCR0_AVX512) == XCR0_AVX512 && leaf_read(7, &seven) &&
           (seven.b & f_dq_bw_vl) == f_dq_bw_vl && (seven.c & vnni);
}

bool cpu_has_amx(void)
{
    const unsigned bf16_tile_int8 = BIT(22) | BIT(24) | BIT(25);
    const unsigned vbmi_gfni = BIT(1) | BIT(8);
    cpu_regs seven;
    return cpu_has_avx512() && (xcr0_read() & XCR0_AMX) == XCR0_AMX && leaf_read(7, &seven) &&
           (seven.d & bf16_tile_int8) == bf16_tile_int8 && (seven.c & vbmi_gfni) == vbmi_gfni &&
           syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
}

#else

bool cpu_has_avx2(void)
{
    return false;
}

bool cpu_has_avx512(void)
{
    return false;
}

bool cpu_has_amx(void)
{
    return false;
}

#endif

#if defined(__aarch64__)

#include <sys/auxv.h>

#define HAS_DOTPROD (1ul << 20) /* HWCAP_ASIMDDP of asm/hwcap.h */
#define HAS_I8MM    (1ul << 13) /* HWCAP2_I8MM, which older headers lack */

bool cpu_has_dotprod(void)
{
    return getauxval(AT_HWCAP) & HAS_DOTPROD;
}

bool cpu_has_i8mm(void)
{
    return cpu_has_dotprod() && (getauxval(AT_HWCAP2) & HAS_I8MM);
}

#else

bool cpu_has_dotprod(void)
{
    return false;
}

bool cpu_has_i8mm(void)
{
    return false;
}

#endif
