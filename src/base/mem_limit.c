#include "base/mem_limit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"

#define V1_UNLIMITED_MIN ((uint64_t)1 << 62) /* version 1 writes "none" as 2^63 rounded down to a page */

static const char *tree_of(const char *root)
{
    return root && strcmp(root, "/") != 0 ? root : "";
}

static void tighten(uint64_t *least, uint64_t bytes)
{
    *least = bytes < *least ? bytes : *least;
}

static void tighten_file(uint64_t *least, const char *dir, const char *name)
{
    char line[64];
    if (cgroup_line(dir, name, line, sizeof line) && line[0] >= '0' && line[0] <= '9') { /* not "max" */
        tighten(least, strtoull(line, NULL, 10));
    }
}

static void read_limits(void *ctx, const char *dir, bool v2)
{
    uint64_t *least = ctx, bytes = MEM_LIMIT_NONE;
    if (v2) {
        tighten_file(least, dir, "memory.max");
        tighten_file(least, dir, "memory.high");
        return;
    }
    tighten_file(&bytes, dir, "memory.limit_in_bytes");
    if (bytes < V1_UNLIMITED_MIN) {
        tighten(least, bytes);
    }
    /* also speaks of parents that a container does not see */
    if (cgroup_keyed(dir, "memory.stat", "hierarchical_memory_limit", &bytes) && bytes < V1_UNLIMITED_MIN) {
        tighten(least, bytes);
    }
}

/* "MemTotal:       24672396 kB" */
static void read_meminfo(const char *tree, const char *name, uint64_t *out)
{
    char path[PATH_MAX];
    buf text = {0};
    int n = snprintf(path, sizeof path, "%s/proc/meminfo", tree);
    if (n > 0 && (size_t)n < sizeof path && cgroup_read_file(path, &text)) {
        const char *at = strstr(buf_str(&text), name);
        char *end;
        uint64_t kb = at ? strtoull(at + strlen(name), &end, 10) : 0;
        if (at && end != at + strlen(name) && strncmp(end, " kB", 3) == 0 && kb <= UINT64_MAX >> 10) {
            *out = kb << 10;
        }
    }
    buf_release(&text);
}

void mem_limit_read(const char *root, mem_limit *out)
{
    const char *tree = tree_of(root);
    *out = (mem_limit){MEM_LIMIT_NONE, MEM_LIMIT_NONE, MEM_LIMIT_NONE};
    cgroup_each(tree, "memory", read_limits, &out->group_bytes);
    read_meminfo(tree, "MemTotal:", &out->total_bytes);
    read_meminfo(tree, "MemAvailable:", &out->available_bytes);
}

uint64_t mem_limit_bytes(const mem_limit *l)
{
    return l->group_bytes < l->total_bytes ? l->group_bytes : l->total_bytes;
}

typedef struct kills {
    bool known;
    uint64_t count;
} kills;

/* The first that says something is this process' own group. */
static void read_kills(void *ctx, const char *dir, bool v2)
{
    kills *k = ctx;
    if (!k->known) {
        k->known = cgroup_keyed(dir, v2 ? "memory.events" : "memory.oom_control", "oom_kill", &k->count);
    }
}

bool mem_limit_oom_kills(const char *root, uint64_t *count)
{
    const char *tree = tree_of(root);
    char dir[PATH_MAX];
    kills k = {0};
    int n = snprintf(dir, sizeof dir, "%s/proc", tree);
    cgroup_each(tree, "memory", read_kills, &k);
    if (!k.known && n > 0 && (size_t)n < sizeof dir) {
        k.known = cgroup_keyed(dir, "vmstat", "oom_kill", &k.count);
    }
    if (k.known) {
        *count = k.count;
    }
    return k.known;
}
