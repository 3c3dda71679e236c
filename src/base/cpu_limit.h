/*
 * cpu_limit: how many CPUs and how much memory this process may really use: the affinity mask, cgroup v1/v2
 * CPU quota (cpu.max, cpu.cfs_quota_us) and memory limit (memory.max/high, memory.limit_in_bytes), the
 * tightest on the path from the process' cgroup to the root. Reads files under `root` ("/" in production, a
 * folder in tests).
 */
#ifndef HEARTH_BASE_CPU_LIMIT_H
#define HEARTH_BASE_CPU_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cpu_limit {
    size_t online;               /* CPUs that are online */
    size_t affinity;             /* CPUs in this process' mask */
    double quota_cpus;           /* CPU quota in CPUs, 0 = none */
    uint64_t memory_max_bytes;   /* cgroup limit, UINT64_MAX = none */
    uint64_t memory_total_bytes; /* of the machine */
} cpu_limit;

void cpu_limit_read(const char *root, cpu_limit *out);
/* min(affinity, ceil of quota, requested), at least 1; requested 0 = as many as allowed. */
size_t cpu_limit_threads(const cpu_limit *l, size_t requested);

#endif
