/*
 * cpu: what this CPU and this operating system let a process run. Internal to kern/. Pure questions; the
 * first AMX question asks the kernel for permission to use the tile state (Linux grants it to the whole
 * process).
 */
#ifndef HEARTH_KERN_CPU_H
#define HEARTH_KERN_CPU_H

#include <stdbool.h>

bool cpu_has_avx2(void);    /* AVX2, FMA, F16C and the ymm state */
bool cpu_has_avx512(void);  /* AVX2's, AVX-512 F BW DQ VL VNNI and the zmm and mask state */
bool cpu_has_amx(void);     /* AVX-512's, AMX tile, int8 and bf16, the tile state and permission to use it */
bool cpu_has_dotprod(void); /* ARM: SDOT and UDOT */
bool cpu_has_i8mm(void);    /* ARM: SMMLA and its kin beside them */

#endif
