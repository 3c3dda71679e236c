/*
 * cpu_limit over small trees of files that look like /proc and /sys/fs/cgroup (kernel documentation:
 * cgroup-v2.rst; sched-bwc.rst).
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
#include "base/fake_root.h"

#define SELF   "proc/self/cgroup"
#define MOUNTS "proc/self/mountinfo"
#define CG     "sys/fs/cgroup/"

static const struct {
    const char *name;
    file files[10];
    double quota;
} cases[] = {
    {"no cgroup at all", {{0}}, 0},
    {"v2, no limit", {{SELF, "0::/a\n"}, {CG "a/cpu.max", "max 100000\n"}}, 0},
    {"v2, own limit", {{SELF, "0::/a/b\n"}, {CG "a/b/cpu.max", "150000 100000\n"}}, 1.5},
    {"v2, the tightest is in the middle of the path",
     {{SELF, "0::/a/b/c\n"},
      {CG "a/b/c/cpu.max", "800000 100000\n"},
      {CG "a/b/cpu.max", "50000 100000\n"},
      {CG "a/cpu.max", "200000 100000\n"}},
     0.5},
    {"v2, in a cgroup namespace: the mount's own files",
     {{SELF, "0::/\n"}, {CG "cpu.max", "200000 50000\n"}},
     4},
    {"v2, the path belongs to the host and is not mounted here",
     {{SELF, "0::/docker/0123\n"}, {CG "cpu.max", "300000 100000\n"}},
     3},
    {"v2, above the namespace",
     {{SELF, "0::/../other\n"}, {CG "cpu.max", "100000 100000\n"}, {"sys/fs/other/cpu.max", "1000 100000\n"}},
     1},
    {"v1",
     {{SELF, "4:cpu,cpuacct:/x\n3:memory:/y\n2:cpuset:/z\n1:name=systemd:/init\n"},
      {CG "cpu,cpuacct/x/cpu.cfs_quota_us", "250000\n"},
      {CG "cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"}},
     2.5},
    {"v1, none",
     {{SELF, "4:cpuacct,cpu:/x\n"},
      {CG "cpu/x/cpu.cfs_quota_us", "-1\n"},
      {CG "cpu/x/cpu.cfs_period_us", "100000\n"}},
     0},
    {"v1, the parent is tighter",
     {{SELF, "9:cpu:/p/c\n"},
      {CG "cpu/p/c/cpu.cfs_quota_us", "-1\n"},
      {CG "cpu/p/c/cpu.cfs_period_us", "100000\n"},
      {CG "cpu/p/cpu.cfs_quota_us", "50000\n"},
      {CG "cpu/p/cpu.cfs_period_us", "100000\n"}},
     0.5},
    {"both versions: cpu is v1's",
     {{SELF, "3:cpu:/x\n0::/s\n"},
      {CG "cpu/x/cpu.cfs_quota_us", "100000\n"},
      {CG "cpu/x/cpu.cfs_period_us", "50000\n"}},
     2},
    {"a set named like a controller is none",
     {{SELF, "3:cpuset:/x\n"},
      {CG "cpu/x/cpu.cfs_quota_us", "100000\n"},
      {CG "cpu/x/cpu.cfs_period_us", "50000\n"}},
     0},
    {"nonsense is no limit",
     {{SELF, "nonsense\n::\n0::/a\n"}, {CG "a/cpu.max", "\n"}, {CG "cpu.max", "5"}},
     0},
    {"the path has a name with a colon", {{SELF, "0::/a:b\n"}, {CG "a:b/cpu.max", "100000 100000\n"}}, 1},
    {"mounted somewhere else",
     {{SELF, "3:cpu,cpuacct:/x\n"},
      {MOUNTS, "40 31 0:29 / /cg/c rw,relatime shared:7 - cgroup none rw,cpu,cpuacct\n"},
      {"cg/c/x/cpu.cfs_quota_us", "100000\n"},
      {"cg/c/x/cpu.cfs_period_us", "50000\n"}},
     2},
};

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
        if (fabs(l.quota_cpus - cases[i].quota) > 1e-12) {
            fail_msg("%s: quota %g", cases[i].name, l.quota_cpus);
        }
    }
}

static void test_machine(void **state)
{
    cpu_limit l;
    cpu_set_t old, one;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    cpu_limit_read("/", &l);
    assert_int_equal(l.affinity, CPU_COUNT(&old));
    assert_int_equal(l.online, sysconf(_SC_NPROCESSORS_ONLN));
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
