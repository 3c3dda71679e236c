#include "base/cpu_limit.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/buf.h"

#define MASK_BITS        16384 /* more CPUs than any kernel is built for */
#define FILE_MAX_BYTES   ((size_t)1 << 20)
#define V1_UNLIMITED_MIN ((uint64_t)1 << 62) /* version 1 writes "none" as 2^63 rounded down to a page */

typedef void (*dir_fn)(const char *dir, cpu_limit *out);

/* Reads a small file whole; false if it cannot be read. */
static bool read_file(const char *path, buf *out)
{
    bool ok = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    buf_reset(out);
    while (out->len < FILE_MAX_BYTES && buf_reserve(out, 4096) == ST_OK) {
        ssize_t n = read(fd, out->data + out->len, 4096);
        if (n <= 0) {
            ok = n == 0;
            break;
        }
        out->len += (size_t)n;
        out->data[out->len] = '\0';
    }
    close(fd);
    return ok;
}

/* The first line of dir/name in a fixed array; false if absent. */
static bool read_value(const char *dir, const char *name, char *line, size_t cap)
{
    char path[PATH_MAX];
    bool ok = false;
    buf text = {0};
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n > 0 && (size_t)n < sizeof path && read_file(path, &text)) {
        size_t len = strcspn(buf_str(&text), "\n");
        ok = len > 0 && len < cap;
        if (ok) {
            memcpy(line, text.data, len);
            line[len] = '\0';
        }
    }
    buf_release(&text);
    return ok;
}

static void tighten_quota(cpu_limit *out, double quota, double period)
{
    if (quota > 0 && period > 0) {
        double cpus = quota / period;
        if (out->quota_cpus == 0 || cpus < out->quota_cpus) {
            out->quota_cpus = cpus;
        }
    }
}

static void tighten_memory(cpu_limit *out, const char *text, uint64_t none_from)
{
    char *end;
    if (*text < '0' || *text > '9') {
        return; /* "max" */
    }
    uint64_t v = strtoull(text, &end, 10);
    if (v < none_from && v < out->memory_max_bytes) {
        out->memory_max_bytes = v;
    }
}

static void read_v2_dir(const char *dir, cpu_limit *out)
{
    char line[128];
    if (read_value(dir, "cpu.max", line, sizeof line)) {
        char *end;
        double quota = strtod(line, &end); /* "max 100000": no number, 0 */
        tighten_quota(out, end == line ? 0 : quota, strtod(end, NULL));
    }
    if (read_value(dir, "memory.max", line, sizeof line)) {
        tighten_memory(out, line, UINT64_MAX);
    }
    if (read_value(dir, "memory.high", line, sizeof line)) {
        tighten_memory(out, line, UINT64_MAX);
    }
}

static void read_v1_cpu_dir(const char *dir, cpu_limit *out)
{
    char quota[64], period[64];
    if (read_value(dir, "cpu.cfs_quota_us", quota, sizeof quota) &&
        read_value(dir, "cpu.cfs_period_us", period, sizeof period)) {
        tighten_quota(out, strtod(quota, NULL), strtod(period, NULL)); /* -1 = none */
    }
}

static void read_v1_memory_dir(const char *dir, cpu_limit *out)
{
    char line[64];
    if (read_value(dir, "memory.limit_in_bytes", line, sizeof line)) {
        tighten_memory(out, line, V1_UNLIMITED_MIN);
    }
}

/*
 * Visits mount/group, then each parent up to mount itself. A container without a cgroup namespace names a
 * path of the host that is not under its own mount: those folders are absent and only the mount's own files
 * count.
 */
static void walk(const char *root, const char *mount, const char *group, dir_fn fn, cpu_limit *out)
{
    char dir[PATH_MAX];
    int base = snprintf(dir, sizeof dir, "%s%s", root, mount);
    if (base < 0 || (size_t)base >= sizeof dir) {
        return;
    }
    bool outside = strstr(group, "/..") != NULL; /* above the cgroup namespace: nothing we can see */
    size_t room = sizeof dir - (size_t)base;
    int n = outside ? 0 : snprintf(dir + base, room, "%s", group);
    if (n < 0 || (size_t)n >= room) {
        dir[base] = '\0';
    }
    for (;;) {
        fn(dir, out);
        char *slash = strrchr(dir + base, '/');
        if (!slash) {
            break;
        }
        *slash = '\0';
    }
}

static bool has_controller(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ",");
        if (len == n && memcmp(at, name, n) == 0) {
            return true;
        }
        at += len + (at[len] == ',');
    }
    return false;
}

/* One line of /proc/self/cgroup: "ID:CONTROLLERS:PATH". */
static void read_line(const char *root, char *line, cpu_limit *out)
{
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) {
        return;
    }
    *controllers++ = '\0';
    *group++ = '\0';
    if (*controllers == '\0') { /* version 2, alone or beside version 1 */
        walk(root, "/sys/fs/cgroup", group, read_v2_dir, out);
        walk(root, "/sys/fs/cgroup/unified", group, read_v2_dir, out);
        return;
    }
    if (has_controller(controllers, "cpu")) {
        walk(root, "/sys/fs/cgroup/cpu", group, read_v1_cpu_dir, out);
        walk(root, "/sys/fs/cgroup/cpu,cpuacct", group, read_v1_cpu_dir, out);
    }
    if (has_controller(controllers, "memory")) {
        walk(root, "/sys/fs/cgroup/memory", group, read_v1_memory_dir, out);
    }
}

static void read_cgroups(const char *root, cpu_limit *out)
{
    char path[PATH_MAX];
    buf text = {0};
    int n = snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (n > 0 && (size_t)n < sizeof path && read_file(path, &text)) {
        char *rest = NULL;
        for (char *line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            read_line(root, line, out);
        }
    }
    buf_release(&text);
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
    struct sysinfo info;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    *out = (cpu_limit){.memory_max_bytes = UINT64_MAX};
    out->online = online > 0 ? (size_t)online : 1;
    out->affinity = affinity_count();
    if (out->affinity == 0) {
        out->affinity = out->online;
    }
    if (sysinfo(&info) == 0) {
        out->memory_total_bytes = (uint64_t)info.totalram * info.mem_unit;
    }
    read_cgroups(strcmp(root, "/") == 0 ? "" : root, out);
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
