/*
 * An allocation that fails in a worker fails one request (DESIGN: bad memory is nobody else's). A whole worker answers
 * requests of every kind beside a neighbour, and in each round another allocation fails: the n-th from then on, alone
 * or with all behind it until everything is answered. Every request has one end, as undisturbed or for want of memory;
 * the neighbour has no part in it; afterwards the worker is what it was.
 *
 *   test_alloc MODEL [--all] [--from N]   --all: every n; else some of them
 */
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "worker/alloc_rig.h"
#include "worker/alloc_scene.h"

#define N_OF(a)      (sizeof(a) / sizeof((a)[0]))
#define FEW_ROUNDS   60
#define LINE_BYTES   4096
#define IMPORT_BYTES ((size_t)1 << 20)

/* What a round is like undisturbed. */
typedef struct answers {
    char *body[ALLOC_MAX_REQUESTS], *last[ALLOC_MAX_REQUESTS];
    size_t n;
} answers;

typedef struct test {
    alloc_rig rig;
    answers scene, after;
    char *exported;
    size_t n_exported;
    char *lines; /* of the scene, ready to be sent */
    size_t n_lines;
    uint64_t n_allocs; /* of one round */
    int failures;
    size_t n_failed_requests;
} test;

static void failed(test *t, uint64_t n, bool sticky, const char *what, const char *id)
{
    fprintf(stderr, "n=%llu%s: %s: %s\n", (unsigned long long)n, sticky ? " and all behind it" : "", what,
            id);
    t->failures++;
}

/*
 * Asking
 */
static void add(test *t, const char *bytes, size_t n)
{
    t->lines = realloc(t->lines, t->n_lines + n + 1);
    if (!t->lines) {
        abort();
    }
    memcpy(t->lines + t->n_lines, bytes, n);
    t->n_lines += n;
}

static void make_lines(test *t, const scene_line *lines, size_t n)
{
    t->n_lines = 0;
    for (size_t i = 0; i < n; i++) {
        char line[LINE_BYTES];
        bool import = strcmp(lines[i].id, SCENE_IMPORT) == 0;
        int len = lines[i].id[0]
                      ? snprintf(line, sizeof line, "{\"id\":\"%s\",%s", lines[i].id, lines[i].rest)
                      : snprintf(line, sizeof line, "{%s", lines[i].rest);
        add(t, line, (size_t)len);
        if (import) {
            len = snprintf(line, sizeof line, ",\"attach\":%zu", t->n_exported);
            add(t, line, (size_t)len);
        }
        add(t, "}\n", 2);
        if (import) {
            add(t, t->exported, t->n_exported);
        }
    }
}

/* The requests of a list are announced; they are numbered from the return value on, those without an answer left out. */
static size_t announce(test *t, const scene_line *lines, size_t n)
{
    size_t first = t->rig.n;
    for (size_t i = 0; i < n; i++) {
        if (lines[i].kind != SCENE_SILENT) {
            alloc_rig_expect(&t->rig, lines[i].id);
        }
    }
    return first;
}

static void keep(const alloc_rig *r, size_t first, answers *a)
{
    a->n = r->n - first;
    for (size_t i = 0; i < a->n; i++) {
        free(a->body[i]);
        free(a->last[i]);
        a->body[i] = strdup(r->all[first + i].body ? r->all[first + i].body : "");
        a->last[i] = strdup(r->all[first + i].last);
    }
}

/*
 * One round: the neighbour is number 0, the scene follows.
 */
static bool ask_all(test *t, uint64_t n, bool sticky)
{
    alloc_rig *r = &t->rig;
    alloc_rig_begin(r);
    alloc_rig_expect(r, "n");
    alloc_rig_send(r, SCENE_NEIGHBOUR, strlen(SCENE_NEIGHBOUR));
    if (!alloc_rig_hear_some(r, 0)) {
        return false;
    }
    announce(t, scene, N_OF(scene));
    uint64_t before = mem_alloc_count();
    mem_fail_at(n, sticky);
    alloc_rig_send(r, t->lines, t->n_lines);
    bool whole = alloc_rig_hear(r);
    mem_fail_at(0, false);
    t->n_allocs = mem_alloc_count() - before;
    return whole;
}

static bool ask_afterwards(test *t)
{
    alloc_rig *r = &t->rig;
    char *lines = t->lines;
    size_t n_lines = t->n_lines;
    t->lines = NULL;
    alloc_rig_begin(r);
    announce(t, afterwards, N_OF(afterwards));
    make_lines(t, afterwards, N_OF(afterwards));
    alloc_rig_send(r, t->lines, t->n_lines);
    free(t->lines);
    t->lines = lines;
    t->n_lines = n_lines;
    return alloc_rig_hear(r);
}

static bool same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b) == 0;
}

static bool for_want_of_memory(const heard *h)
{
    return strcmp(h->code, "internal") == 0 || strcmp(h->code, "capacity_exhausted") == 0;
}

/* group_failed: of those that it depends on, one failed already. Returns whether it failed by itself. */
static bool check_one(test *t, const scene_line *line, size_t i, bool *group_failed, uint64_t n, bool sticky)
{
    const heard *h = &t->rig.all[1 + i];
    const char *body = h->body ? h->body : "";
    bool differs = !same(body, t->scene.body[i]) || !same(h->last, t->scene.last[i]);
    if (line->kind == SCENE_CUT || !differs) {
        return false;
    }
    bool own = h->failed && for_want_of_memory(h), excused = line->kind == SCENE_DEPENDS && *group_failed;
    if (!own && !excused) {
        failed(t, n, sticky, "is neither what it is undisturbed nor fails for want of memory", line->id);
        fprintf(stderr, "  %s\n  %s%s\n  %s%s\n", line->rest, body, h->last, t->scene.body[i],
                t->scene.last[i]);
    } else if (strncmp(t->scene.body[i], body, strlen(body)) != 0 && !excused) {
        failed(t, n, sticky, "has said something else before it failed", line->id);
    }
    bool part = line->kind == SCENE_DEPENDS || strcmp(line->id, "s1") == 0 || line->id[0] == '\0' ||
                strcmp(line->id, SCENE_IMPORT) == 0;
    *group_failed = *group_failed || part;
    return !excused;
}

static void check(test *t, uint64_t n, bool sticky)
{
    bool group_failed = false;
    size_t n_failed = 0;
    const heard *neighbour = &t->rig.all[0];
    static char *undisturbed_body, *undisturbed_last;
    if (!undisturbed_body) {
        undisturbed_body = strdup(neighbour->body);
        undisturbed_last = strdup(neighbour->last);
    }
    if (!same(neighbour->body, undisturbed_body) || !same(neighbour->last, undisturbed_last)) {
        failed(t, n, sticky, "the neighbour was disturbed", neighbour->last);
    }
    for (size_t k = 0, i = 0; k < N_OF(scene); k++) {
        if (scene[k].kind != SCENE_SILENT) {
            n_failed += check_one(t, &scene[k], i++, &group_failed, n, sticky);
        }
    }
    if (!sticky && n_failed > 1) {
        failed(t, n, sticky, "more than one request failed", "");
    }
    t->n_failed_requests += n_failed;
}

static void check_afterwards(test *t, uint64_t n, bool sticky)
{
    for (size_t i = 0; i < N_OF(afterwards); i++) {
        const heard *h = &t->rig.all[i];
        if (afterwards[i].kind == SCENE_ALONE &&
            (!same(h->body, t->after.body[i]) || !same(h->last, t->after.last[i]))) {
            failed(t, n, sticky, "is not what it was before", afterwards[i].id);
            fprintf(stderr, "  %s%s\n  %s%s\n", h->body ? h->body : "", h->last, t->after.body[i],
                    t->after.last[i]);
        }
    }
}

/* Whether it can go on. */
static bool round_of(test *t, uint64_t n, bool sticky)
{
    bool whole = ask_all(t, n, sticky);
    if (whole) {
        check(t, n, sticky);
        whole = ask_afterwards(t);
    }
    if (whole) {
        check_afterwards(t, n, sticky);
    } else {
        failed(t, n, sticky, t->rig.fault ? t->rig.fault : "?", t->rig.shown);
        for (size_t i = 0; i < t->rig.n; i++) {
            fprintf(stderr, "  %s: %s\n", t->rig.ids[i], t->rig.all[i].last ? t->rig.all[i].last : "-");
        }
    }
    return whole;
}

/* What all is like without a fault. The first round is for what the second is imported from, and keeps. */
static bool look(test *t)
{
    t->exported = calloc(1, 1);
    t->n_exported = 1;
    make_lines(t, scene, N_OF(scene));
    for (int i = 0; i < 3; i++) {
        if (!ask_all(t, 0, false)) {
            return false;
        }
        keep(&t->rig, 1, &t->scene);
        for (size_t k = 0; i == 0 && k < t->rig.n; k++) {
            heard *h = &t->rig.all[k];
            if (strcmp(t->rig.ids[k], SCENE_EXPORT) == 0 && h->n_attached > 0) {
                free(t->exported);
                t->exported = h->attached;
                t->n_exported = h->n_attached;
                h->attached = NULL;
                make_lines(t, scene, N_OF(scene));
            }
        }
        if (!ask_afterwards(t)) {
            return false;
        }
        keep(&t->rig, 0, &t->after);
    }
    for (size_t i = 0; i < t->scene.n; i++) {
        fprintf(stderr, "undisturbed: %.200s\n", t->scene.last[i]);
    }
    return true;
}

static void release(test *t)
{
    for (size_t i = 0; i < ALLOC_MAX_REQUESTS; i++) {
        free(t->scene.body[i]);
        free(t->scene.last[i]);
        free(t->after.body[i]);
        free(t->after.last[i]);
    }
    free(t->exported);
    free(t->lines);
}

static int remove_one(const char *path, const struct stat *sb, int kind, struct FTW *at)
{
    (void)sb;
    (void)kind;
    (void)at;
    return remove(path);
}

int main(int argc, char **argv)
{
    static const int log_fd = STDERR_FILENO;
    static test t;
    char folder[] = "/tmp/hearth-alloc-XXXXXX";
    bool all = argc > 2 && strcmp(argv[2], "--all") == 0;
    uint64_t from = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
    if (argc < 2 || !mkdtemp(folder)) {
        fprintf(stderr, "usage: test_alloc MODEL [--all [--from N]]\n");
        return 2;
    }
    log_set_sink(log_fd_sink, (void *)(intptr_t)&log_fd, LOG_ERROR);
    signal(SIGPIPE, SIG_IGN);
    alloc_rig_open(&t.rig, argv[1], folder);
    bool alive = look(&t);
    uint64_t n_all = t.n_allocs, step = all ? 1 : n_all / (FEW_ROUNDS / 2) + 1, n_rounds = 0;
    for (uint64_t n = from; alive && n <= n_all + n_all / 8; n += step) {
        alive = round_of(&t, n, false) && round_of(&t, n, true);
        n_rounds += 2;
    }
    int rc = alloc_rig_close(&t.rig);
    printf("%llu allocations in a round, %llu rounds, %zu requests failed, %d faults, exit status %d\n",
           (unsigned long long)n_all, (unsigned long long)n_rounds, t.n_failed_requests, t.failures, rc);
    release(&t);
    (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return alive && rc == 0 && t.failures == 0 ? 0 : 1;
}
