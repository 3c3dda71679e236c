/* AMX's entries of the table (tiles of int8 and bf16, with AVX-512 VBMI and GFNI beside them). */
#include "kern/fill.h"
#include "kern/x86/amx.h"

void kern_fill_amx(kern_table *t)
{
    t->int8_rate = int8_rate_amx;
}
