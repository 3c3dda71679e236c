/* kern: the tables, filled once: reference first, then each set overrides in rising order. */
#include "kern/kern.h"

#include <pthread.h>
#include <string.h>

#include "kern/cpu.h"
#include "kern/fill.h"

#if defined(__x86_64__)
#define BUILT_X86 true
#define BUILT_ARM false
#elif defined(__aarch64__)
#define BUILT_X86 false
#define BUILT_ARM true
#else
#define BUILT_X86 false
#define BUILT_ARM false
#endif

static const struct {
    const char *name;
    bool built;
} sets[KERN_SET_COUNT] = {
    [KERN_REF] = {"ref", true},
    [KERN_AVX2] = {"avx2", BUILT_X86},
    [KERN_AVX512] = {"avx512", BUILT_X86},
    [KERN_AMX] = {"amx", BUILT_X86},
    [KERN_DOTPROD] = {"dotprod", BUILT_ARM},
    [KERN_I8MM] = {"i8mm", BUILT_ARM},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Written under `once`, constant afterwards. */
static kern_table tables[KERN_SET_COUNT];
static bool usable[KERN_SET_COUNT];

static void tables_fill(void)
{
    kern_table t = {0};
    for (int s = 0; s < KERN_SET_COUNT; s++) {
        if (!kern_set_built((kern_set)s) || !kern_set_on_cpu((kern_set)s)) {
            continue;
        }
        if (s == KERN_REF) {
            kern_fill_ref(&t);
            kern_fill_ref_matmul(&t);
        }
#if defined(__x86_64__)
        if (s == KERN_AVX2) {
            kern_fill_avx2(&t);
        }
        if (s == KERN_AVX512) {
            kern_fill_avx512(&t);
        }
        if (s == KERN_AMX) {
            kern_fill_amx(&t);
        }
#elif defined(__aarch64__)
        if (s == KERN_DOTPROD) {
            kern_fill_dotprod(&t);
        }
        if (s == KERN_I8MM) {
            kern_fill_i8mm(&t);
        }
#endif
        t.set = (kern_set)s;
        t.name = sets[s].name;
        tables[s] = t;
        usable[s] = true;
    }
}

const kern_table *kern_table_of(kern_set set)
{
    pthread_once(&once, tables_fill);
    return usable[set] ? &tables[set] : NULL;
}

const kern_table *kern_select(kern_set at_most)
{
    for (int s = (int)at_most; s > KERN_REF; s--) {
        const kern_table *t = kern_table_of((kern_set)s);
        if (t) {
            return t;
        }
    }
    return kern_table_of(KERN_REF);
}

bool kern_set_built(kern_set set)
{
    return sets[set].built;
}

bool kern_set_on_cpu(kern_set set)
{
    switch (set) {
    case KERN_REF:
        return true;
    case KERN_AVX2:
        return cpu_has_avx2();
    case KERN_AVX512:
        return cpu_has_avx512();
    case KERN_AMX:
        return cpu_has_amx();
    case KERN_DOTPROD:
        return cpu_has_dotprod();
    case KERN_I8MM:
        return cpu_has_i8mm();
    default:
        return false;
    }
}

const char *kern_set_name(kern_set set)
{
    return sets[set].name;
}

status kern_set_parse(const char *name, kern_set *out, err *e)
{
    for (int s = 0; s < KERN_SET_COUNT; s++) {
        if (strcmp(name, sets[s].name) == 0) {
            *out = (kern_set)s;
            return ST_OK;
        }
    }
    return err_set(e, ST_INVALID_FIELD, "cpu",
                   "unknown instruction set '%s': ref, avx2, avx512, amx, dotprod and i8mm exist", name);
}
