/*
 * mem_limit over small trees of files that look like /proc and /sys/fs/cgroup (kernel documentation: cgroup-v2.rst,
 * cgroup-v1/memory.rst, proc_pid_mountinfo(5)), and on this machine.
 */
#include "base/test_main.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fake_root.h"
#include "base/mem_limit.h"

#define NONE               MEM_LIMIT_NONE
#define SELF               "proc/self/cgroup"
#define MOUNTS             "proc/self/mountinfo"
#define MEM                "proc/meminfo"
#define VM                 "proc/vmstat"
#define CG                 "sys/fs/cgroup/"
#define V1MAX              "9223372036854771712\n"
#define V1_AT(root, point) "35 31 0:32 " root " " point " rw,relatime shared:12 - cgroup cgroup rw,memory\n"
#define V2_AT(root, point) "41 31 0:38 " root " " point " rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
#define OTHERS                                                                                     \
    "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup " \
    "rw,devices\nshort\n"

static const struct {
    const char *name;
    file files[12];
    uint64_t group;
} limits[] = {
    {"no cgroup at all", {{0}}, NONE},
    {"v2, no limit", {{SELF, "0::/a\n"}, {CG "a/memory.max", "max\n"}, {CG "a/memory.high", "max\n"}}, NONE},
    {"v2, own limit", {{SELF, "0::/a/b\n"}, {CG "a/b/memory.max", "1073741824\n"}}, 1073741824},
    {"v2, high is tighter than max",
     {{SELF, "0::/a\n"}, {CG "a/memory.max", "3000000\n"}, {CG "a/memory.high", "2000000\n"}},
     2000000},
    {"v2, the tightest is a parent",
     {{SELF, "0::/a/b/c\n"},
      {CG "a/b/c/memory.max", "4000000\n"},
      {CG "a/b/memory.max", "max\n"},
      {CG "a/memory.max", "1000000\n"}},
     1000000},
    {"v2, in a cgroup namespace: the mount's own files",
     {{SELF, "0::/\n"}, {CG "memory.max", "5000000\n"}},
     5000000},
    {"v2, the path belongs to the host and is not mounted here",
     {{SELF, "0::/docker/0123\n"}, {CG "memory.max", "7000000\n"}},
     7000000},
    {"v2, above the namespace",
     {{SELF, "0::/../other\n"}, {CG "memory.max", "6000\n"}, {"sys/fs/other/memory.max", "10\n"}},
     6000},
    {"v2, nothing at all may be used", {{SELF, "0::/a\n"}, {CG "a/memory.max", "0\n"}}, 0},
    {"v1",
     {{SELF, "3:memory:/y\n2:cpuset:/z\n"}, {CG "memory/y/memory.limit_in_bytes", "123456789\n"}},
     123456789},
    {"v1, none",
     {{SELF, "3:memory:/y\n"},
      {CG "memory/y/memory.limit_in_bytes", V1MAX},
      {CG "memory/memory.limit_in_bytes", V1MAX},
      {CG "memory/y/memory.stat", "cache 0\nhierarchical_memory_limit " V1MAX}},
     NONE},
    {"v1, the parent is tighter",
     {{SELF, "8:memory:/p/c\n"},
      {CG "memory/p/c/memory.limit_in_bytes", "900\n"},
      {CG "memory/p/memory.limit_in_bytes", "800\n"}},
     800},
    {"v1, a parent that nobody sees is tighter",
     {{SELF, "8:memory:/docker/1\n"},
      {CG "memory/memory.limit_in_bytes", "900\n"},
      {CG "memory/memory.stat", "cache 12\nhierarchical_memory_limit 700\nhierarchical_memsw_limit 5\n"}},
     700},
    {"hybrid: memory is v1's, an empty v2 beside it",
     {{SELF, "4:memory:/x\n0::/s\n"},
      {CG "memory/x/memory.limit_in_bytes", "5000\n"},
      {CG "unified/s/cgroup.procs", "1\n"}},
     5000},
    {"hybrid: memory is v2's", {{SELF, "3:cpu:/x\n0::/s\n"}, {CG "unified/s/memory.max", "4096\n"}}, 4096},
    {"mounted elsewhere, v1",
     {{SELF, "4:memory:/x/y\n"},
      {MOUNTS, OTHERS V1_AT("/", "/cg/m")},
      {"cg/m/x/memory.limit_in_bytes", "77\n"},
      {CG "memory/memory.limit_in_bytes", "3\n"}},
     77},
    {"mounted elsewhere, v2",
     {{SELF, "0::/x\n"}, {MOUNTS, OTHERS V2_AT("/", "/cg")}, {"cg/x/memory.high", "78\n"}},
     78},
    {"a part of the host's tree is mounted, and this group is below it",
     {{SELF, "4:memory:/docker/0123/inner\n"},
      {MOUNTS, OTHERS V1_AT("/docker/0123", "/sys/fs/cgroup/memory")},
      {CG "memory/inner/memory.limit_in_bytes", "50\n"},
      {CG "memory/memory.limit_in_bytes", "60\n"}},
     50},
    {"a part of the host's tree is mounted, and its name is only the beginning of this group's",
     {{SELF, "4:memory:/docker/01234\n"},
      {MOUNTS, V1_AT("/docker/0123", "/sys/fs/cgroup/memory")},
      {CG "memory/4/memory.limit_in_bytes", "50\n"},
      {CG "memory/memory.limit_in_bytes", "60\n"}},
     60},
    {"nonsense is no limit",
     {{SELF, "nonsense\n::\n0::/a\n4:memory:/b\n"},
      {CG "a/memory.max", "lots\n"},
      {CG "a/memory.high", "\n"},
      {CG "memory/b/memory.limit_in_bytes", "-1\n"},
      {CG "memory/b/memory.stat", "hierarchical_memory_limitless 5\nhierarchical_memory_limit x\n"}},
     NONE},
};

static const struct {
    const char *name;
    file files[8];
    bool known;
    uint64_t count;
} kills[] = {
    {"nobody counts", {{SELF, "0::/\n"}}, false, 0},
    {"v2: the group's own, with those below it",
     {{SELF, "0::/a/b\n"},
      {CG "a/b/memory.events", "low 0\nhigh 4\nmax 17\noom 3\noom_kill 2\noom_group_kill 9\n"},
      {CG "a/memory.events", "oom_kill 11\n"}},
     true,
     2},
    {"v2 on the host's path: the mount's",
     {{SELF, "0::/docker/1\n"}, {CG "memory.events", "oom_kill 6\n"}},
     true,
     6},
    {"v1",
     {{SELF, "4:memory:/x\n"},
      {CG "memory/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"}},
     true,
     5},
    {"v1 of an old kernel: the machine's",
     {{SELF, "4:memory:/x\n"},
      {CG "memory/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n"},
      {VM, "nr_free_pages 1\noom_kill 8\n"}},
     true,
     8},
    {"no cgroup: the machine's", {{VM, "oom_kill 9\nballoon_inflate 0\n"}}, true, 9},
    {"hybrid",
     {{SELF, "4:memory:/x\n0::/s\n"},
      {CG "memory/x/memory.oom_control", "oom_kill 1\n"},
      {VM, "oom_kill 3\n"}},
     true,
     1},
};

static const struct {
    const char *text;
    uint64_t total, available;
} machines[] = {
    {"MemTotal:       24672396 kB\nMemFree:        23000000 kB\nMemAvailable:   24000001 kB\n",
     24672396ull << 10, 24000001ull << 10},
    {"MemTotal: 1 kB\n", 1024, NONE}, /* before 3.14 */
    {"MemTotal:\nMemAvailable: none kB\n", NONE, NONE},
    {"MemTotal: 18446744073709551615 kB\n", NONE, NONE},
    {"", NONE, NONE},
};

/* A tree of these files; n entries at most, the first without a path is the end. */
static void plant(char root[], const file *files, size_t n)
{
    assert_non_null(mkdtemp(root));
    for (size_t k = 0; k < n && files[k].path; k++) {
        write_file(root, &files[k]);
    }
}

static void fell(const char *root)
{
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void test_limits(void **state)
{
    for (size_t i = 0; i < N_OF(limits); i++) {
        char root[] = "/tmp/hearth-mem-limit-XXXXXX";
        mem_limit l;
        plant(root, limits[i].files, N_OF(limits[i].files));
        mem_limit_read(root, &l);
        fell(root);
        if (l.group_bytes != limits[i].group || l.total_bytes != NONE ||
            mem_limit_bytes(&l) != limits[i].group) {
            fail_msg("%s: %llu", limits[i].name, (unsigned long long)l.group_bytes);
        }
    }
}

static void test_machines(void **state)
{
    for (size_t i = 0; i < N_OF(machines); i++) {
        char root[] = "/tmp/hearth-mem-limit-XXXXXX";
        const file files[] = {{MEM, machines[i].text}, {SELF, "0::/a\n"}, {CG "a/memory.max", "2048\n"}};
        mem_limit l;
        plant(root, files, N_OF(files));
        mem_limit_read(root, &l);
        fell(root);
        assert_true(l.total_bytes == machines[i].total && l.available_bytes == machines[i].available);
        assert_true(mem_limit_bytes(&l) == (machines[i].total < 2048 ? machines[i].total : 2048));
    }
}

static void test_kills(void **state)
{
    for (size_t i = 0; i < N_OF(kills); i++) {
        char root[] = "/tmp/hearth-mem-limit-XXXXXX";
        uint64_t n = 77;
        plant(root, kills[i].files, N_OF(kills[i].files));
        bool known = mem_limit_oom_kills(root, &n);
        fell(root);
        if (known != kills[i].known || n != (known ? kills[i].count : 77)) {
            fail_msg("%s: %d, %llu", kills[i].name, known, (unsigned long long)n);
        }
    }
}

static void test_here(void **state)
{
    mem_limit l;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    mem_limit_read(NULL, &l);
    assert_true(l.total_bytes == (uint64_t)pages * (uint64_t)page);
    assert_true(l.available_bytes > 0 && l.available_bytes <= l.total_bytes &&
                mem_limit_bytes(&l) <= l.total_bytes);
}

/* The group that this process is in has a child with a limit; a process in it reads that. */
static void in_group(const char *group, const char *name, const char *text, uint64_t want)
{
    char path[600], line[64];
    snprintf(path, sizeof path, "%s/%s", group, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    int pipe_fd[2];
    assert_int_equal(pipe(pipe_fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        mem_limit l = {0};
        uint64_t kills_seen = 77;
        FILE *procs = fopen(path, "w");
        bool moved = procs && fputs("0\n", procs) >= 0 && fclose(procs) == 0;
        mem_limit_read(NULL, &l);
        bool counted = mem_limit_oom_kills(NULL, &kills_seen);
        int n = snprintf(line, sizeof line, "%d %llu %d %llu", moved, (unsigned long long)l.group_bytes,
                         counted, (unsigned long long)kills_seen);
        _exit(write(pipe_fd[1], line, (size_t)n) == n ? 0 : 1);
    }
    close(pipe_fd[1]);
    ssize_t n = read(pipe_fd[0], line, sizeof line - 1);
    close(pipe_fd[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(n > 0);
    line[n] = '\0';
    char wanted[64];
    snprintf(wanted, sizeof wanted, "1 %llu 1 0", (unsigned long long)want);
    rmdir(group);
    assert_string_equal(line, wanted);
}

static void test_real_group(void **state)
{
    char v1[200], v2[200];
    snprintf(v1, sizeof v1, "/sys/fs/cgroup/memory/hearth-test-%d", (int)getpid());
    snprintf(v2, sizeof v2, "/sys/fs/cgroup/hearth-test-%d", (int)getpid());
    if (access("/sys/fs/cgroup/memory/cgroup.procs", W_OK) == 0 && mkdir(v1, 0700) == 0) {
        in_group(v1, "memory.limit_in_bytes", "67108864\n", 67108864);
        return;
    }
    if (access("/sys/fs/cgroup/cgroup.subtree_control", W_OK) == 0 && mkdir(v2, 0700) == 0) {
        char limit[300];
        snprintf(limit, sizeof limit, "%s/memory.max", v2);
        if (access(limit, W_OK) == 0) {
            in_group(v2, "memory.max", "67108864\n", 67108864);
            return;
        }
        rmdir(v2);
    }
    print_message("a real group with a limit: NOT RUN, none can be made here\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits), cmocka_unit_test(test_machines),   cmocka_unit_test(test_kills),
        cmocka_unit_test(test_here),   cmocka_unit_test(test_real_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
