/*
 * hearth doctor: what this CPU, memory, cgroup and kernel offer, and what hearth will make of it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/cpu_limit.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/mem_limit.h"
#include "base/pool.h"
#include "cmd/answer.h"
#include "cmd/args.h"
#include "cmd/cmd.h"
#include "cmd/read_speed.h"
#include "kern/kern.h"
#include "model/model.h"

typedef struct findings {
    char cpu[128];
    char kernel[160];
    cpu_limit limit;
    mem_limit memory;
    size_t threads;
    int landlock_abi; /* 0 = none */
    bool seccomp;
    double read_gbs; /* measured, with all threads; 0 = could not */
} findings;

/* First line of `path` that begins with `key`, what stands after the colon. */
static void read_field(const char *path, const char *key, char *out, size_t cap)
{
    FILE *f = fopen(path, "re");
    char line[512];
    snprintf(out, cap, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) == 0 && colon) {
            line[strcspn(line, "\n")] = 0;
            snprintf(out, cap, "%s", colon + 1 + strspn(colon + 1, " \t"));
            break;
        }
    }
    if (f) {
        fclose(f);
    }
}

/* Best of three readings of memory that no cache holds. Takes at most an eighth of the memory there may be: a
 * question must not end in an out-of-memory kill. */
static double measure_read(const findings *f)
{
    pool *p = NULL;
    if (pool_new(f->threads, f->limit.quota_cpus <= 0, &p, NULL) != ST_OK) {
        return 0;
    }
    double gbs = read_speed_measure(p, mem_limit_bytes(&f->memory) / 8);
    pool_free(p);
    return gbs;
}

static void examine(findings *f)
{
    struct utsname u;
    read_field("/proc/cpuinfo", "model name", f->cpu, sizeof f->cpu);
    snprintf(f->kernel, sizeof f->kernel, "%s", uname(&u) == 0 ? u.release : "unknown");
    cpu_limit_read("/", &f->limit);
    mem_limit_read(NULL, &f->memory);
    f->threads = cpu_limit_threads(&f->limit, 0);
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */);
    f->landlock_abi = abi > 0 ? (int)abi : 0;
    f->seccomp = prctl(PR_GET_SECCOMP) >= 0;
    f->read_gbs = measure_read(f);
}

static const char *set_state(kern_set s)
{
    if (!kern_set_built(s)) {
        return kern_set_on_cpu(s) ? "on this CPU, not in this build" : "no";
    }
    return kern_set_on_cpu(s) ? "yes" : "built, but not on this CPU";
}

static void print_people(const findings *f)
{
    printf("CPU          %s\n", f->cpu);
    for (kern_set s = KERN_REF; s < KERN_SET_COUNT; s++) {
        printf("  %-10s %s\n", kern_set_name(s), set_state(s));
    }
    printf("kernels      %s will be used\n", kern_select(KERN_SET_COUNT - 1)->name);
    printf("models      ");
    for (size_t i = 0; model_arch_name(i); i++) {
        printf(" %s", model_arch_name(i));
    }
    printf("\nthreads      %zu of %zu CPUs", f->threads, f->limit.online);
    if (f->limit.affinity < f->limit.online) {
        printf(" (affinity mask: %zu)", f->limit.affinity);
    }
    if (f->limit.quota_cpus > 0) {
        printf(" (cgroup quota: %.2f CPUs)", f->limit.quota_cpus);
    }
    printf("\nmemory       %.1f GiB", (double)f->memory.total_bytes / (double)(1u << 30));
    if (f->memory.group_bytes != MEM_LIMIT_NONE) {
        printf(" (cgroup limit: %.1f GiB)", (double)f->memory.group_bytes / (double)(1u << 30));
    }
    if (f->read_gbs > 0) {
        printf(", read at %.1f GB/s (measured just now)\n", f->read_gbs);
        printf("             so at most %.1f tokens/s with 1 GB of weights, half of that with 2 GB\n",
               f->read_gbs);
    } else {
        printf(", could not be measured\n");
    }
    printf("kernel       %s, seccomp %s, Landlock ", f->kernel, f->seccomp ? "yes" : "no");
    if (f->landlock_abi) {
        printf("ABI %d\n", f->landlock_abi);
    } else {
        printf("no\n");
    }
}

static int print_json(const findings *f)
{
    buf out = {0};
    json_w w;
    json_w_begin(&w, &out);
    json_w_obj_open(&w);
    json_w_key(&w, "cpu");
    json_w_cstr(&w, f->cpu);
    json_w_key(&w, "sets");
    json_w_obj_open(&w);
    for (kern_set s = KERN_REF; s < KERN_SET_COUNT; s++) {
        json_w_key(&w, kern_set_name(s));
        json_w_obj_open(&w);
        json_w_key(&w, "built");
        json_w_bool(&w, kern_set_built(s));
        json_w_key(&w, "on_cpu");
        json_w_bool(&w, kern_set_on_cpu(s));
        json_w_obj_close(&w);
    }
    json_w_obj_close(&w);
    json_w_key(&w, "kernels");
    json_w_cstr(&w, kern_select(KERN_SET_COUNT - 1)->name);
    json_w_key(&w, "architectures");
    json_w_arr_open(&w);
    for (size_t i = 0; model_arch_name(i); i++) {
        json_w_cstr(&w, model_arch_name(i));
    }
    json_w_arr_close(&w);
    json_w_key(&w, "threads");
    json_w_u64(&w, f->threads);
    json_w_key(&w, "cpus_online");
    json_w_u64(&w, f->limit.online);
    json_w_key(&w, "cpus_affinity");
    json_w_u64(&w, f->limit.affinity);
    json_w_key(&w, "quota_cpus");
    json_w_f64(&w, f->limit.quota_cpus);
    json_w_key(&w, "memory_bytes");
    json_w_u64(&w, f->memory.total_bytes);
    json_w_key(&w, "memory_limit_bytes");
    if (f->memory.group_bytes == MEM_LIMIT_NONE) {
        json_w_null(&w);
    } else {
        json_w_u64(&w, f->memory.group_bytes);
    }
    json_w_key(&w, "read_gbs");
    json_w_fixed(&w, f->read_gbs, 2);
    json_w_key(&w, "kernel");
    json_w_cstr(&w, f->kernel);
    json_w_key(&w, "seccomp");
    json_w_bool(&w, f->seccomp);
    json_w_key(&w, "landlock_abi");
    json_w_i64(&w, f->landlock_abi);
    json_w_obj_close(&w);
    return answer_json(&w, &out);
}

int cmd_doctor(int argc, char **argv)
{
    bool as_json = false;
    const cli_arg table[] = {{"json", 0, ARG_FLAG, &as_json, 0, 0, "print one JSON object"}};
    const char *pos[1];
    size_t n_pos;
    int rc;
    if (!args_parse(argc, argv, "doctor [--json]", table, 1, pos, 0, &n_pos, &rc)) {
        return rc;
    }
    findings f = {0};
    examine(&f);
    if (as_json) {
        return print_json(&f);
    }
    print_people(&f);
    return EXIT_OK;
}
