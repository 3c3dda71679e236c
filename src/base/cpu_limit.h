/*
 * cpu_limit: how many CPUs this process may really use: the affinity mask and the cgroups' CPU quota (cpu.max,
 * cpu.cfs_quota_us), the tightest on the path from the process' group to the root (base/cgroup.h). Reads files under
 * `root` ("/" in production, a folder in tests).
 */
#ifndef HEARTH_BASE_CPU_LIMIT_H
#define HEARTH_BASE_CPU_LIMIT_H

#include <stddef.h>

typedef struct cpu_limit {
    size_t online;     /* CPUs that are online */
    size_t affinity;   /* CPUs in this process' mask */
    double quota_cpus; /* CPU quota in CPUs, 0 = none */
} cpu_limit;

void cpu_limit_read(const char *root, cpu_limit *out);
/* min(affinity, ceil of quota, requested), at least 1; requested 0 = as many as allowed. */
size_t cpu_limit_threads(const cpu_limit *l, size_t requested);

#endif
