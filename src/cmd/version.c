#include <stdio.h>

#include "cmd/cmd.h"
#include "kern/kern.h"

int cmd_version(int argc, char **argv)
{
    printf("hearth %s, numerics version %d, kernels built in:", HEARTH_VERSION, NUMERICS_VERSION);
    for (kern_set s = KERN_REF; s < KERN_SET_COUNT; s++) {
        if (kern_set_built(s)) {
            printf(" %s", kern_set_name(s));
        }
    }
    putchar('\n');
    return EXIT_OK;
}
