/*
 * mem_limit: how much memory this process may plan with, and whether the kernel has killed for want of it.
 *
 * Read are, below `root` (NULL or "/": the real one; a folder in tests): memory.max and memory.high (version 2) or
 * memory.limit_in_bytes and the hierarchical_memory_limit of memory.stat (version 1) of every group that holds this
 * process (base/cgroup.h), and /proc/meminfo. What is absent or makes no sense is no limit.
 *
 * Any thread; nothing is kept.
 */
#ifndef HEARTH_BASE_MEM_LIMIT_H
#define HEARTH_BASE_MEM_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define MEM_LIMIT_NONE UINT64_MAX

typedef struct mem_limit {
    uint64_t group_bytes;     /* the tightest of all groups */
    uint64_t total_bytes;     /* of the machine */
    uint64_t available_bytes; /* of the machine now, page cache that may go included */
} mem_limit;

void mem_limit_read(const char *root, mem_limit *out);
/* The tightest that stays: of groups and machine. MEM_LIMIT_NONE if nothing is known. */
uint64_t mem_limit_bytes(const mem_limit *l);

/*
 * Processes that the kernel has killed because memory had run out, since some fixed time: of this process' own group
 * (version 2: and of those below it), or of the machine where groups say nothing. Two readings tell whether one was
 * killed in between, not which. false: nobody counts.
 */
bool mem_limit_oom_kills(const char *root, uint64_t *count);

#endif
