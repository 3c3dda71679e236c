/* AMX's entries of the table (tiles of int8 and bf16, with AVX-512 VBMI and GFNI beside them). */
#include "kern/fill.h"

void kern_fill_amx(kern_table *t)
{
    (void)t;
}
