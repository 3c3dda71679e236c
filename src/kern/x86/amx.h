/* amx: the kernels with AMX tiles (int8, bf16) and AVX-512 VBMI and GFNI beside them. Internal to kern/x86;
 * contracts in kern/kern.h. */
#ifndef HEARTH_KERN_X86_AMX_H
#define HEARTH_KERN_X86_AMX_H

#include "kern/kern.h"

uint64_t int8_rate_amx(uint64_t n_rounds); /* rate_amx.c */

#endif
