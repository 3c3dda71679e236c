/*
 * sim [--seed S] [--count N] [--seconds T] [--shrink T] | --replay FILE | --show S
 *
 * Lives scenarios from seed S on (default: from the clock; it is printed), N of them or until T seconds are over. The
 * first one that fails is made smaller (for at most --shrink seconds), printed and written to a file that --replay lives again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "sim/batch.h"

typedef struct options {
    uint64_t seed, count, seconds, shrink, show;
    const char *replay;
    bool has_seed, has_show;
} options;

static bool read_options(int argc, char **argv, options *o)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        char *end = argv[i + 1];
        uint64_t n = strtoull(argv[i + 1], &end, 10);
        bool number = *end == '\0' && end != argv[i + 1];
        if (strcmp(argv[i], "--replay") == 0) {
            o->replay = argv[i + 1];
        } else if (!number) {
            return false;
        } else if (strcmp(argv[i], "--seed") == 0) {
            o->seed = n;
            o->has_seed = true;
        } else if (strcmp(argv[i], "--count") == 0) {
            o->count = n;
        } else if (strcmp(argv[i], "--seconds") == 0) {
            o->seconds = n;
        } else if (strcmp(argv[i], "--shrink") == 0) {
            o->shrink = n;
        } else if (strcmp(argv[i], "--show") == 0) {
            o->show = n;
            o->has_show = true;
        } else {
            return false;
        }
    }
    return argc % 2 == 1;
}

static uint64_t in_seconds(uint64_t s)
{
    return clock_mono_ns(clock_system()) + s * UINT64_C(1000000000);
}

/* Of all children so far. */
static double processor_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void print_tally(const sim_tally *t, uint64_t first_seed)
{
    double seconds = processor_seconds();
    printf("sim: %llu scenarios from seed %llu in %.1f s of one processor (%.0f a minute): %llu requests, "
           "%llu tokens, "
           "%llu steps\n",
           (unsigned long long)t->scenarios, (unsigned long long)first_seed, seconds,
           (double)t->scenarios * 60.0 / (seconds > 0 ? seconds : 1), (unsigned long long)t->requests,
           (unsigned long long)t->tokens, (unsigned long long)t->steps);
    printf("sim: %llu tokens reused; %llu preemptions, %llu tokens recomputed, %llu restored; ends:",
           (unsigned long long)t->reused, (unsigned long long)t->preemptions,
           (unsigned long long)t->recomputed, (unsigned long long)t->restored);
    for (int i = 1; i < 6; i++) {
        printf(" %s %llu,", finish_name((finish_reason)i), (unsigned long long)t->ends[i]);
    }
    printf(" failed %llu, refused %llu\n", (unsigned long long)t->failed, (unsigned long long)t->refused);
}

static int tell_failure(const sim_outcome *o, const char *program, uint64_t shrink_s)
{
    static scenario s;
    char path[64];
    printf("sim: seed %llu fails: %s\n", (unsigned long long)o->seed, o->message);
    fflush(stdout);
    if (shrink_s == 0) {
        return 1;
    }
    scenario_make(o->seed, &s);
    sim_outcome least = batch_shrink(&s, in_seconds(shrink_s));
    snprintf(path, sizeof path, "/tmp/hearth-sim-%llu.txt", (unsigned long long)o->seed);
    printf("sim: the smallest one that fails (%s):\n", least.failed ? least.message : "not again");
    scenario_print(stdout, &s);
    FILE *f = fopen(path, "w");
    if (f) {
        scenario_print(f, &s);
        fclose(f);
        printf("sim: again: %s --replay %s (as made: --seed %llu --count 1)\n", program, path,
               (unsigned long long)o->seed);
    }
    return 1;
}

static int replay(const char *path)
{
    static scenario s;
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "sim: %s: %s\n", path, strerror(errno));
        return 2;
    }
    bool fine = scenario_read(f, &s);
    fclose(f);
    if (!fine) {
        return 2;
    }
    sim_outcome o = batch_one(&s);
    printf("sim: %s\n", o.failed ? o.message : "nothing fails");
    return o.failed;
}

int main(int argc, char **argv)
{
    static scenario s;
    options o = {.count = 1000, .shrink = 60};
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr,
                "usage: sim [--seed S] [--count N] [--seconds T] [--shrink T] | --replay FILE | --show S\n");
        return 2;
    }
    if (o.has_show) {
        scenario_make(o.show, &s);
        scenario_print(stdout, &s);
        return 0;
    }
    if (!batch_open()) {
        fprintf(stderr, "sim: it could not be set up\n");
        return 2;
    }
    int rc = 0;
    if (o.replay) {
        rc = replay(o.replay);
    } else {
        sim_tally tally = {0};
        uint64_t seed = o.has_seed ? o.seed : clock_mono_ns(clock_system());
        sim_outcome out = batch_seeds(seed, o.seconds ? UINT64_MAX : o.count,
                                      o.seconds ? in_seconds(o.seconds) : 0, &tally);
        print_tally(&tally, seed);
        rc = out.failed ? tell_failure(&out, argv[0], o.shrink) : 0;
    }
    batch_close();
    return rc;
}
