/*
 * fill: how the sets put their kernels into a table. Internal to kern/: kern.c calls them in rising order on
 * one table, the reference first (it fills every entry), so that a set needs to have only what it does
 * better. Called once per process, before any other thread sees the table. A function here may only be called
 * where its set is built in (x86 sets: __x86_64__, ARM sets: __aarch64__) and, for what it puts in, run where the CPU has the set.
 */
#ifndef HEARTH_KERN_FILL_H
#define HEARTH_KERN_FILL_H

#include "kern/kern.h"

void kern_fill_ref(kern_table *t);        /* all but matmul[] and act_prepare */
void kern_fill_ref_matmul(kern_table *t); /* matmul[] and act_prepare */
void kern_fill_avx2(kern_table *t);
void kern_fill_avx512(kern_table *t);
void kern_fill_amx(kern_table *t);
void kern_fill_dotprod(kern_table *t);
void kern_fill_i8mm(kern_table *t);

#endif
