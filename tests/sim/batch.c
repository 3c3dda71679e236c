#include "sim/batch.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define A_CHILD     1000 /* scenarios that one process lives */
#define HANGS_AFTER 60   /* seconds for one of them */
#define EXIT_FAILED 3

/* What a child tells its parent. */
typedef struct shared_page {
    uint64_t seed; /* of the scenario that is being lived */
    char message[SIM_MESSAGE];
    sim_tally tally;
} shared_page;

static shared_page *page;
static pool *compute;
static tokenizer *tok;

bool batch_open(void)
{
    err e;
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        page = NULL;
        return false;
    }
    tok = sim_tokenizer_open();
    return tok && oracle_open() && pool_new(1, false, &compute, &e) == ST_OK;
}

void batch_close(void)
{
    pool_free(compute);
    tokenizer_free(tok);
    oracle_close();
    if (page) {
        munmap(page, sizeof *page);
    }
}

void sim_fail(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(page->message, sizeof page->message, fmt, args);
    va_end(args);
    _exit(EXIT_FAILED);
}

typedef struct errand {
    const scenario *one; /* NULL: from seeds */
    uint64_t first_seed, count, until_ns;
} errand;

/* Of the processor: the machine may be busy with others. */
static void give_time(void)
{
    const struct itimerval t = {.it_value.tv_sec = HANGS_AFTER};
    setitimer(ITIMER_PROF, &t, NULL);
}

static void run_errand(const errand *d)
{
    static scenario s;
    if (d->one) {
        give_time();
        run_scenario(d->one, compute, tok, &page->tally);
        return;
    }
    for (uint64_t i = 0; i < d->count; i++) {
        if (d->until_ns > 0 && clock_mono_ns(clock_system()) >= d->until_ns) {
            return;
        }
        give_time();
        page->seed = d->first_seed + i;
        scenario_make(page->seed, &s);
        run_scenario(&s, compute, tok, &page->tally);
    }
}

/* In a child of its own. */
static sim_outcome send(const errand *d, sim_tally *tally)
{
    sim_outcome o = {0};
    int rc = 0;
    page->seed = 0;
    page->message[0] = '\0';
    page->tally = *tally;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run_errand(d);
        exit(0); /* so that a leak checker speaks */
    }
    if (child < 0 || waitpid(child, &rc, 0) != child) {
        abort();
    }
    *tally = page->tally;
    o.seed = page->seed;
    o.failed = rc != 0;
    memcpy(o.message, page->message, sizeof o.message);
    if (WIFSIGNALED(rc)) {
        snprintf(o.message, sizeof o.message, "ended by signal %d (%s)", WTERMSIG(rc),
                 strsignal(WTERMSIG(rc)));
    } else if (o.failed && WEXITSTATUS(rc) != EXIT_FAILED) {
        snprintf(o.message, sizeof o.message, "exited with %d", WEXITSTATUS(rc));
    }
    return o;
}

sim_outcome batch_seeds(uint64_t first_seed, uint64_t count, uint64_t until_ns, sim_tally *tally)
{
    sim_outcome o = {0};
    for (uint64_t done = 0; done < count && !o.failed; done += A_CHILD) {
        errand d = {.first_seed = first_seed + done, .count = count - done, .until_ns = until_ns};
        d.count = d.count < A_CHILD ? d.count : A_CHILD;
        o = send(&d, tally);
        if (until_ns > 0 && clock_mono_ns(clock_system()) >= until_ns) {
            break;
        }
    }
    return o;
}

sim_outcome batch_one(const scenario *s)
{
    sim_tally ignored = {0};
    errand d = {.one = s};
    return send(&d, &ignored);
}

/* The shrinker */

typedef struct shrinker {
    scenario *best;
    sim_outcome outcome;
    uint64_t until_ns;
} shrinker;

/* Whether the other one still fails; then it is the best one. */
static bool try_it(shrinker *k, scenario *other)
{
    if (clock_mono_ns(clock_system()) >= k->until_ns) {
        return false;
    }
    scenario_mend(other);
    if (memcmp(other, k->best, sizeof *other) == 0) {
        return false;
    }
    sim_outcome o = batch_one(other);
    if (o.failed) {
        *k->best = *other;
        k->outcome = o;
    }
    return o.failed;
}

static void drop_request(scenario *s, size_t at)
{
    memmove(&s->requests[at], &s->requests[at + 1], (s->n_requests - at - 1) * sizeof s->requests[0]);
    s->n_requests--;
    for (size_t i = 0; i < s->n_requests; i++) {
        int64_t *follows = &s->requests[i].follows;
        *follows = *follows == (int64_t)at + 1 ? 0 : *follows > (int64_t)at + 1 ? *follows - 1 : *follows;
    }
    for (size_t i = 0; i < s->n_events; i++) {
        bool of_request = s->events[i].kind == EVENT_BAD_ROW;
        s->events[i].arg -= of_request && s->events[i].arg > (int64_t)at;
    }
}

static bool drop_things(shrinker *k)
{
    bool smaller = false;
    for (size_t i = k->best->n_requests; i-- > 0 && k->best->n_requests > 1;) {
        scenario s = *k->best;
        drop_request(&s, i);
        smaller = try_it(k, &s) || smaller;
    }
    for (size_t i = k->best->n_events; i-- > 0;) {
        scenario s = *k->best;
        memmove(&s.events[i], &s.events[i + 1], (s.n_events - i - 1) * sizeof s.events[0]);
        s.n_events--;
        smaller = try_it(k, &s) || smaller;
    }
    return smaller;
}

/* Towards the simplest value: at once, half the way, one step. values points into *s. */
static bool simplify(shrinker *k, scenario *s, const sim_kind *kind, int64_t *values)
{
    bool smaller = false;
    for (size_t f = 0; f < kind->n_fields; f++) {
        int64_t simplest = kind->fields[f].simplest;
        for (int64_t left = values[f] - simplest; left != 0;) {
            int64_t was = values[f];
            const int64_t tries[] = {simplest, was - left / 2, was - (left > 0 ? 1 : -1)};
            size_t i = 0;
            while (i < 3) {
                values[f] = tries[i];
                if (values[f] != was && try_it(k, s)) {
                    break;
                }
                *s = *k->best; /* mended, perhaps */
                i++;
            }
            if (i == 3) {
                break;
            }
            smaller = true;
            *s = *k->best;
            left = values[f] - simplest;
        }
    }
    return smaller;
}

static bool simplify_all(shrinker *k)
{
    static scenario s;
    bool smaller = false;
    s = *k->best;
    for (size_t i = 0; i < s.n_requests; i++) {
        smaller = simplify(k, &s, &sim_request_kind, (int64_t *)&s.requests[i]) || smaller;
    }
    for (size_t i = 0; i < s.n_events; i++) {
        smaller = simplify(k, &s, &sim_event_kind, (int64_t *)&s.events[i]) || smaller;
    }
    return simplify(k, &s, &sim_config_kind, (int64_t *)&s.config) || smaller;
}

sim_outcome batch_shrink(scenario *s, uint64_t until_ns)
{
    shrinker k = {.best = s, .until_ns = until_ns};
    k.outcome = batch_one(s);
    s->seed = 0;
    while (drop_things(&k) || simplify_all(&k)) {
    }
    return k.outcome;
}
