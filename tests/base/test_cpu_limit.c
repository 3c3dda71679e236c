/*
 * cpu_limit over small trees of files that look like /proc and /sys/fs/cgroup (kernel documentation:
 * cgroup-v2.rst; cgroup-v1/memory.rst, sched-bwc.rst).
 */
#include "base/test_main.h"

#include <ftw.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu_limit.h"

#define NONE  UINT64_MAX
#define SELF  "proc/self/cgroup"
#define CG    "sys/fs/cgroup/"
#define V1MAX "9223372036854771712\n"

typedef struct file {
    const char *path, *text;
} file;

static const struct {
    const char *name;
    file files[10];
    double quota;
    uint64_t memory;
} cases[] = {
    {"no cgroup at all", {{0}}, 0, NONE},
    {"v2, no limit",
     {{SELF, "0::/a\n"},
      {CG "a/cpu.max", "max 100000\n"},
      {CG "a/memory.max", "max\n"},
      {CG "a/memory.high", "max\n"}},
     0,
     NONE},
    {"v2, own limits",
     {{SELF, "0::/a/b\n"}, {CG "a/b/cpu.max", "150000 100000\n"}, {CG "a/b/memory.max", "1073741824\n"}},
     1.5,
     1073741824},
    {"v2, high is tighter than max",
     {{SELF, "0::/a\n"}, {CG "a/memory.max", "3000000\n"}, {CG "a/memory.high", "2000000\n"}},
     0,
     2000000},
    {"v2, the tightest is in the middle of the path",
     {{SELF, "0::/a/b/c\n"},
      {CG "a/b/c/cpu.max", "800000 100000\n"},
      {CG "a/b/c/memory.max", "4000000\n"},
      {CG "a/b/cpu.max", "50000 100000\n"},
      {CG "a/b/memory.max", "max\n"},
      {CG "a/cpu.max", "200000 100000\n"},
      {CG "a/memory.max", "1000000\n"}},
     0.5,
     1000000},
    {"v2, in a cgroup namespace: the mount's own files",
     {{SELF, "0::/\n"}, {CG "cpu.max", "200000 50000\n"}, {CG "memory.max", "5000000\n"}},
     4,
     5000000},
    {"v2, the path belongs to the host and is not mounted here",
     {{SELF, "0::/docker/0123\n"}, {CG "cpu.max", "300000 100000\n"}, {CG "memory.max", "7000000\n"}},
     3,
     7000000},
    {"v2, above the namespace",
     {{SELF, "0::/../other\n"}, {CG "cpu.max", "100000 100000\n"}, {"sys/fs/other/cpu.max", "1000 100000\n"}},
     1,
     NONE},
    {"v1",
     {{SELF, "4:cpu,cpuacct:/x\n3:memory:/y\n2:cpuset:/z\n1:name=systemd:/init\n"},
      {CG "cpu,cpuacct/x/cpu.cfs_quota_us", "250000\n"},
      {CG "cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"},
      {CG "memory/y/memory.limit_in_bytes", "123456789\n"}},
     2.5,
     123456789},
    {"v1, none",
     {{SELF, "4:cpuacct,cpu:/x\n3:memory:/y\n"},
      {CG "cpu/x/cpu.cfs_quota_us", "-1\n"},
      {CG "cpu/x/cpu.cfs_period_us", "100000\n"},
      {CG "memory/y/memory.limit_in_bytes", V1MAX},
      {CG "memory/memory.limit_in_bytes", V1MAX}},
     0,
     NONE},
    {"v1, the parent is tighter",
     {{SELF, "9:cpu:/p/c\n8:memory:/p/c\n"},
      {CG "cpu/p/c/cpu.cfs_quota_us", "-1\n"},
      {CG "cpu/p/c/cpu.cfs_period_us", "100000\n"},
      {CG "cpu/p/cpu.cfs_quota_us", "50000\n"},
      {CG "cpu/p/cpu.cfs_period_us", "100000\n"},
      {CG "memory/p/c/memory.limit_in_bytes", "900\n"},
      {CG "memory/p/memory.limit_in_bytes", "800\n"}},
     0.5,
     800},
    {"both versions: v1 cpu, v2 memory beside it",
     {{SELF, "3:cpu:/x\n0::/s\n"},
      {CG "cpu/x/cpu.cfs_quota_us", "100000\n"},
      {CG "cpu/x/cpu.cfs_period_us", "50000\n"},
      {CG "unified/s/memory.max", "4096\n"}},
     2,
     4096},
    {"a set named like a controller is none",
     {{SELF, "3:cpuset:/x\n"},
      {CG "cpu/x/cpu.cfs_quota_us", "100000\n"},
      {CG "cpu/x/cpu.cfs_period_us", "50000\n"}},
     0,
     NONE},
    {"nonsense is no limit",
     {{SELF, "nonsense\n::\n0::/a\n"},
      {CG "a/cpu.max", "\n"},
      {CG "a/memory.max", "lots\n"},
      {CG "cpu.max", "5"}},
     0,
     NONE},
    {"the path has a name with a colon",
     {{SELF, "0::/a:b\n"}, {CG "a:b/cpu.max", "100000 100000\n"}},
     1,
     NONE},
};

static void write_file(const char *root, const file *f)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", root, f->path);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(f->text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static void test_trees(void **state)
{
    for (size_t i = 0; i < N_OF(cases); i++) {
        char root[] = "/tmp/hearth-cpu-limit-XXXXXX";
        cpu_limit l;
        assert_non_null(mkdtemp(root));
        for (size_t k = 0; k < N_OF(cases[i].files) && cases[i].files[k].path; k++) {
            write_file(root, &cases[i].files[k]);
        }
        cpu_limit_read(root, &l);
        nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        if (fabs(l.quota_cpus - cases[i].quota) > 1e-12 || l.memory_max_bytes != cases[i].memory) {
            fail_msg("%s: quota %g, memory %llu", cases[i].name, l.quota_cpus,
                     (unsigned long long)l.memory_max_bytes);
        }
    }
}

static void test_machine(void **state)
{
    cpu_limit l;
    cpu_set_t old, one;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    cpu_limit_read("/", &l);
    assert_int_equal(l.affinity, CPU_COUNT(&old));
    assert_int_equal(l.online, sysconf(_SC_NPROCESSORS_ONLN));
    assert_true(l.memory_total_bytes == (uint64_t)pages * (uint64_t)page);
    assert_true(l.quota_cpus >= 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &old)) {
            CPU_SET(i, &one);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    cpu_limit_read("/", &l);
    assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
    assert_int_equal(l.affinity, 1);
}

static void test_threads(void **state)
{
    static const struct {
        size_t affinity;
        double quota;
        size_t requested, want;
    } rows[] = {
        {16, 0, 0, 16},  {16, 0, 4, 4},   {16, 0, 64, 16},    {16, 3.5, 0, 4},
        {16, 3.0, 0, 3}, {16, 3.5, 2, 2}, {2, 3.5, 0, 2},     {16, 0.1, 0, 1},
        {16, 0.1, 8, 1}, {0, 0, 0, 1},    {16, 1e300, 0, 16}, {1, 0, 1, 1},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        cpu_limit l = {.affinity = rows[i].affinity, .quota_cpus = rows[i].quota};
        assert_int_equal(cpu_limit_threads(&l, rows[i].requested), rows[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_machine),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
