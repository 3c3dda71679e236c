/*
 * journal_bench: a journal over a folder of its own, for the tests of it. This program defines the system calls by which the
 * journal reads, writes and syncs, so that they fail when a test wants it, and so that it is known what was synced.
 *
 * Names: an entry NAME of "ann" asks "question of NAME" and is answered "answer of NAME".
 */
#ifndef HEARTH_TESTS_SERVE_JOURNAL_BENCH_H
#define HEARTH_TESTS_SERVE_JOURNAL_BENCH_H

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/test_main.h"
#include "serve/journal.h"

#define START_MS 1700000000000
#define FIRST    "0000000000000001.seg"

extern int fail_writes, fail_syncs; /* so many are still to fail; -1 = all */
extern pthread_mutex_t gate;        /* held: nothing is read */
extern size_t n_synced;             /* files of which it is known */

typedef struct bench {
    char dir[64];
    struct event_base *base;
    clock_fake clock;
    uint64_t max_bytes;
    journal *j;
    unsigned n_done; /* callbacks */
    status last;
    buf text; /* what was read */
} bench;

void make_bench(bench *b, uint64_t max_bytes);
void free_bench(bench *b);
status try_open(bench *b, err *e);
void open_journal(bench *b);
void close_journal(bench *b);
void reopen(bench *b);

void on_written(void *ctx, status st);
void on_text(void *ctx, status st, const char *text, size_t len);
void on_heard(void *ctx, status st);        /* *(status *)ctx */
status wait_for(bench *b, unsigned before); /* until the next callback */
journal_entry *find(bench *b, const char *name);
status ask_it(bench *b, const char *name, const char *text, size_t len, journal_entry **out, err *e);
journal_entry *ask(bench *b, const char *name, const char *text);
status answer_it(bench *b, journal_entry *entry, const char *text, size_t len, err *e);
void answer(bench *b, journal_entry *entry, const char *text);
status read_it(bench *b, journal_entry *entry);
/* '-' = unknown, 'q' = asked, 'a' = answered, with the right text. */
char state_of(bench *b, const char *name);
/* q asks, a answers, d drops, b begins again. */
void act(bench *b, char what, const char *name);

/* One segment in which everything happens once. */
#define N_SCRIPT 9
typedef struct journal_act {
    char what, name[2];
} journal_act;
extern const journal_act script[N_SCRIPT];
char expected(size_t n, char name);     /* the state after the first n of them */
buf script_file(size_t ends[N_SCRIPT]); /* its file, and where each of its records ends */
void check_states(bench *b, size_t n);

void path_of(const char *dir, const char *name, char out[512]);
buf read_file(const char *path);
void write_file(const char *path, const char *data, size_t n);
uint64_t bytes_in(const char *dir);
/* As after a power cut that kept no more than what was synced. Returns n_synced, to be put back when `after` is done with. */
size_t open_after_cut(bench *b, bench *after);
/* Of each request: its question is nowhere behind its answer or its end, where a later start would find it alone. */
void check_order(const bench *b);

#endif
