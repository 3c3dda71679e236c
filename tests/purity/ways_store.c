/*
 * Ways of running that begin with what is on disk after a restart: written by another place, with another set, other threads
 * and other chunks. Their prompts are longer than a page (way.pages in scene.c).
 */
#include "purity/scene.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "engine/session_range.h"
#include "kv/store_header.h"

#define PAGE       KV_PAGE_TOKENS
#define PATIENCE   20000 /* steps */
#define STUCK_NS   UINT64_C(4000000000)
#define PATH_BYTES 400

typedef struct disk {
    char dir[64];
    store_seam seam;
    atomic_int n_of[STORE_REMOVE + 1]; /* so far */
    atomic_bool closed;                /* who reads waits */
    int full_after;                    /* files; 0: there is room */
    bool read_only;
    unsigned read_us;
} disk;

static int before(void *ctx, store_op op)
{
    disk *d = ctx;
    int n = atomic_fetch_add(&d->n_of[op], 1) + 1;
    if (op == STORE_READ) {
        (void)usleep(d->read_us);
        while (atomic_load(&d->closed)) {
            (void)usleep(100);
        }
    }
    if (op == STORE_CREATE && d->full_after > 0 && n > d->full_after) {
        return ENOSPC;
    }
    return op == STORE_CREATE && d->read_only ? EROFS : 0;
}

/* That of this case: it stays until the next one. */
static disk *disk_open(void)
{
    static disk d;
    memset(&d, 0, sizeof d);
    snprintf(d.dir, sizeof d.dir, "/tmp/hearth-purity-XXXXXX");
    if (!mkdtemp(d.dir)) {
        perror(d.dir);
        exit(1);
    }
    d.seam = (store_seam){before, &d};
    return &d;
}

static size_t whole(size_t n)
{
    return n - n % PAGE;
}

/* Somewhere else a stranger reads n tokens of the prompt and says those that follow, or what it will. */
static void left(scene *s, disk *d, size_t n, size_t n_said)
{
    static scene t;
    const place_way how = {.set = another_set(&s->judged),
                           .kv = matrix_kv(&s->judged),
                           .threads = s->how.threads == 1 ? 3 : 1,
                           .chunk = 37};
    const char *why;
    place_config cfg = place_config_default();
    memset(&t, 0, sizeof t);
    t.judged = s->judged;
    t.q = s->q;
    cfg.store_dir = d->dir;
    cfg.seam = &d->seam;
    place_open(&t.p, matrix_model(&s->judged), &how, &cfg);
    until_over(&t, submit_other(&t, &(other){.prompt = s->q.prompt,
                                             .n_prompt = n,
                                             .n_new = (int32_t)n_said,
                                             .force = s->q.prompt + n,
                                             .n_force = n + n_said <= s->q.n_prompt ? n_said : 0}));
    store_flush(t.p.kept);
    expect(s, t.why[0] == '\0', t.why);
    if (!place_close(&t.p, &why)) {
        expect(s, false, why);
    }
    heard_release(&t.others[0]);
}

/* It is found after a restart, so much of it. */
static void judge(scene *s, size_t reused)
{
    until_over(s, &s->got);
    expect(s, (size_t)s->got.result.reused_tokens == reused, "not as many tokens reused");
    expect(s, stats_of(s).tokens_fetched == reused, "not as many tokens read from disk");
}

static void found(scene *s, disk *d, size_t reused)
{
    restart(s, d->dir, &d->seam);
    tested(s, NULL);
    judge(s, reused);
}

void run_disk_page(scene *s)
{
    disk *d = disk_open();
    left(s, d, PAGE, 0);
    found(s, d, PAGE);
}

void run_disk_whole(scene *s)
{
    disk *d = disk_open();
    left(s, d, s->q.n_prompt, 0);
    found(s, d, whole(s->q.n_prompt - 1));
}

void run_disk_said(scene *s)
{
    disk *d = disk_open();
    left(s, d, s->q.n_turn, s->q.n_reply + 1); /* the last one that is said is not computed */
    found(s, d, whole(s->q.n_turn + s->q.n_reply));
}

/* Somebody has all pages but three: it is read when there is room for all of it, and what was cached goes for it. */
void run_disk_more(scene *s)
{
    disk *d = disk_open();
    left(s, d, s->q.n_prompt, 0);
    restart(s, d->dir, &d->seam);
    store_flush(s->p.kept); /* it has looked */
    heard *h = submit_other(s, &(other){.n_prompt = (stats_of(s).pages_total - 3) * PAGE, .n_new = 70});
    until_said(s, h, 1);
    tested(s, NULL);
    while (!h->over && s->why[0] == '\0') {
        step(s, 1);
        expect(s, stats_of(s).tokens_fetched == 0 || h->over, "it did not wait for pages");
    }
    judge(s, whole(s->q.n_prompt - 1));
}

void run_disk_session(scene *s)
{
    err e;
    disk *d = disk_open();
    size_t n = s->q.n_turn + s->q.n_reply;
    left(s, d, n, 0);
    restart(s, d->dir, &d->seam);
    session *in = open_session(s);
    expect(s, session_set_tokens(in, s->q.prompt, n, &e) == ST_OK, "it cannot be told");
    tested(s, in);
    judge(s, whole(n));
    expect(s, s->got.result.reset == RESET_EXACT_PREFIX, reset_reason_name(s->got.result.reset));
}

/* And the place that finds that page can write nothing either. */
void run_disk_full(scene *s)
{
    disk *d = disk_open();
    d->full_after = 1;
    left(s, d, s->q.n_prompt, PURITY_N_NEW); /* of two pages at least */
    found(s, d, PAGE);
}

void run_disk_read_only(scene *s)
{
    disk *d = disk_open();
    left(s, d, PAGE, 0);
    d->read_only = true;
    found(s, d, PAGE);
    submit_other(s, &(other){.n_prompt = 2 * PAGE});
    until_over(s, &s->others[0]);
    store_flush(s->p.kept);
    store_stats now = store_stats_read(s->p.kept);
    expect(s, now.reads && !now.writes, "it writes, or does not read");
}

/* The path of the page at `at` of the only conversation in the folder. */
static bool page_path(const disk *d, size_t at, char path[PATH_BYTES])
{
    char parent[65], name[65];
    snprintf(parent, sizeof parent, "%064d", 0);
    for (size_t i = 0; i <= at; i++) {
        DIR *dir = opendir(d->dir);
        const struct dirent *entry;
        bool seen = false;
        while (dir && !seen && (entry = readdir(dir)) != NULL) {
            uint8_t head[STORE_HEADER_BYTES];
            char of[65] = "";
            snprintf(path, PATH_BYTES, "%s/%.255s", d->dir, entry->d_name);
            int fd = strlen(entry->d_name) == 64 + strlen(".page") ? open(path, O_RDONLY | O_CLOEXEC) : -1;
            store_header h;
            err e;
            if (fd >= 0 && read(fd, head, sizeof head) == (ssize_t)sizeof head &&
                store_header_get(head, &h, &e) == ST_OK) {
                hex_encode(h.parent.bytes, sizeof h.parent.bytes, of);
                seen = strcmp(of, parent) == 0;
                snprintf(name, sizeof name, "%.64s", entry->d_name);
            }
            if (fd >= 0) {
                close(fd);
            }
        }
        if (dir) {
            closedir(dir);
        }
        if (!seen) {
            return false;
        }
        memcpy(parent, name, sizeof parent);
    }
    return true;
}

static void damaged(scene *s, size_t at, bool torn)
{
    char path[PATH_BYTES];
    disk *d = disk_open();
    left(s, d, s->q.n_prompt, 0);
    int fd = page_path(d, at, path) ? open(path, O_RDWR | O_CLOEXEC) : -1;
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    uint8_t byte = 0;
    if (torn) {
        expect(s, fd >= 0 && ftruncate(fd, size / 2) == 0, "there is no such file");
    } else {
        expect(s, fd >= 0 && pread(fd, &byte, 1, size - 100) == 1, "there is no such file");
        byte ^= 16;
        expect(s, fd >= 0 && pwrite(fd, &byte, 1, size - 100) == 1, "it cannot be written");
    }
    if (fd >= 0) {
        close(fd);
    }
    found(s, d, at * PAGE);
    expect(s, store_stats_read(s->p.kept).bad == 1, "the damage was not found");
}

void run_disk_torn(scene *s)
{
    damaged(s, (s->q.n_prompt - 1) / PAGE - 1, true);
}

void run_disk_flipped(scene *s)
{
    damaged(s, 0, false);
}

void run_disk_slow(scene *s)
{
    disk *d = disk_open();
    left(s, d, s->q.n_prompt, 0);
    d->read_us = 3000;
    restart(s, d->dir, &d->seam);
    store_flush(s->p.kept);
    heard *h = submit_other(s, &(other){.n_prompt = 20, .n_new = 400});
    until_said(s, h, 1);
    size_t said = h->ids.len;
    tested(s, NULL);
    while (s->got.ids.len == 0 && !s->got.over && s->why[0] == '\0') {
        step(s, 1);
    }
    expect(s, h->ids.len > said + 1 || h->over, "nobody went on meanwhile");
    judge(s, whole(s->q.n_prompt - 1));
}

void run_disk_stuck(scene *s)
{
    disk *d = disk_open();
    left(s, d, s->q.n_prompt, 0);
    restart(s, d->dir, &d->seam);
    store_flush(s->p.kept);
    atomic_store(&d->closed, true);
    atomic_store(&d->n_of[STORE_READ], 0);
    tested(s, NULL);
    for (int i = 0; atomic_load(&d->n_of[STORE_READ]) == 0 && i < PATIENCE; i++) {
        step(s, 1);
    }
    expect(s, atomic_load(&d->n_of[STORE_READ]) > 0, "it did not ask");
    expect(s, s->got.ids.len == 0, "it did not wait");
    place_wait(&s->p, STUCK_NS);
    judge(s, 0);
    atomic_store(&d->closed, false);
    while (stats_of(s).pages_used > 0 && s->why[0] == '\0') {
        step(s, 1); /* what is read for nobody comes in */
    }
}

/* The pages of prompt and reply that the engine which began it had computed. */
void run_resumed_disk(scene *s)
{
    disk *d = disk_open();
    s->n_had = tokens_had(s);
    began_elsewhere(s, s->n_had, d->dir, &d->seam);
    restart(s, d->dir, &d->seam);
    tested(s, NULL);
    until_over(s, &s->got);
    size_t computed = s->q.n_prompt + s->n_had - 1; /* the last one was said, and cut */
    expect(s, stats_of(s).tokens_fetched == whole(computed), "not as many tokens read from disk");
    expect(s, stats_of(s).tokens_prefilled + stats_of(s).tokens_recomputed == computed - whole(computed),
           "more was computed again");
}
