#include "base/cpu_limit.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"

#define MASK_BITS 16384 /* more CPUs than any kernel is built for */

static void tighten(double *least, double quota, double period)
{
    if (quota > 0 && period > 0) {
        double cpus = quota / period;
        if (*least == 0 || cpus < *least) {
            *least = cpus;
        }
    }
}

static void read_quota(void *ctx, const char *dir, bool v2)
{
    char quota[128], period[64];
    if (v2 && cgroup_line(dir, "cpu.max", quota, sizeof quota)) {
        char *end;
        double q = strtod(quota, &end); /* "max 100000": no number, 0 */
        tighten(ctx, end == quota ? 0 : q, strtod(end, NULL));
    }
    if (!v2 && cgroup_line(dir, "cpu.cfs_quota_us", quota, sizeof quota) &&
        cgroup_line(dir, "cpu.cfs_period_us", period, sizeof period)) {
        tighten(ctx, strtod(quota, NULL), strtod(period, NULL)); /* -1 = none */
    }
}

static size_t affinity_count(void)
{
    /* The plain system call by way of a mask of our own: cpu_set_t ends at 1,024 CPUs. */
    unsigned long mask[MASK_BITS / (8 * sizeof(unsigned long))] = {0};
    size_t n = 0;
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask) != 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof mask / sizeof mask[0]; i++) {
        n += (size_t)__builtin_popcountl(mask[i]);
    }
    return n;
}

void cpu_limit_read(const char *root, cpu_limit *out)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    *out = (cpu_limit){.online = online > 0 ? (size_t)online : 1};
    out->affinity = affinity_count();
    if (out->affinity == 0) {
        out->affinity = out->online;
    }
    cgroup_each(strcmp(root, "/") == 0 ? "" : root, "cpu", read_quota, &out->quota_cpus);
}

size_t cpu_limit_threads(const cpu_limit *l, size_t requested)
{
    size_t n = l->affinity;
    if (l->quota_cpus > 0 && ceil(l->quota_cpus) < (double)n) {
        n = (size_t)ceil(l->quota_cpus);
    }
    if (requested > 0 && requested < n) {
        n = requested;
    }
    return n > 0 ? n : 1;
}
