/*
 * status_page: the 4 KiB that a worker and its daemon share (PROTOCOL 6): the worker writes, the daemon reads
 * at any time and trusts no value. A memfd made by the daemon; its descriptor is named by
 * HEARTH_WORKER_STATUS_FD in the worker's environment (a worker without it keeps a private page).
 *
 * All fields are 64-bit little-endian numbers at fixed offsets (so that a script can fill them: offset =
 * 8 × row), each written with one atomic store. The list of the sequences of a step is a seqlock: step_seq odd
 * = being written.
 *
 *   row 0  magic   "HEARTHS1"                row 11 pages_total      row 12 pages_used
 *   row 1  tick    engine steps begun        row 13 queued           row 14 running
 *   row 2  phase   enum status_phase         row 15 requests_done    row 16 requests_failed
 *   row 3  loaded_bytes                      row 17 requests_cancelled
 *   row 4  load_total_bytes                  row 18 input_lines      lines read
 *   row 5  prepared  texts tokenised         row 19 output_bytes
 *   row 6  pid                               row 20 tokens_reused
 *   row 7  tokens_prefilled                  row 21 lanes_idle
 *   row 8  tokens_generated                  row 22 parked   preempted and not yet back
 *   row 9  lanes_total                       row 23 preemptions
 *   row 10 lanes_live                        row 24 tokens_recomputed
 *                                            row 25 tokens_restored
 *                                            row 26 pages_cached
 *                                            row 27 tokens_fetched   from disk
 *                                            row 28 preparing  id hash, see below
 *                                            row 29 attended   id hash, see below
 *                                            row 30 step_seq
 *                                            row 31 n_rows  sequences in the step
 *   rows 32 …: pairs {id hash (XXH3 of the request id; 0 = plain), position of its first row in the step}: 240
 *   of them at most
 *
 * Preparing: whose text is being tokenised, laid out or decided upon. Attended: whom the thread of the steps works for
 * outside a step (takes in, ends, reads pages for …). Both are id hashes as in the step list, set before and cleared
 * (0) after, so that a death between steps has a suspect too (PROTOCOL 6, blame).
 *
 * The counters of the stall rule are the rows 1, 3, 5, 7, 8, 18 and 19.
 * Threads: each row has one writing thread (the step list one for all its rows); any process may read.
 * Errors: only at open and create.
 */
#ifndef HEARTH_WIRE_STATUS_PAGE_H
#define HEARTH_WIRE_STATUS_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define STATUS_PAGE_BYTES    4096
#define STATUS_PAGE_MAX_ROWS 240
#define STATUS_PAGE_MAGIC    UINT64_C(0x3153485452414548) /* "HEARTHS1" */

typedef enum status_phase {
    STATUS_STARTING,
    STATUS_LOADING,
    STATUS_PACKING,
    STATUS_IDLE,
    STATUS_PREFILL,
    STATUS_DECODE,
    STATUS_DRAINING,
    STATUS_WEIGHTS_GONE /* SIGBUS where the model's files are mapped: it dies of that */
} status_phase;

typedef enum status_row {
    STATUS_ROW_MAGIC,
    STATUS_ROW_TICK,
    STATUS_ROW_PHASE,
    STATUS_ROW_LOADED_BYTES,
    STATUS_ROW_LOAD_TOTAL_BYTES,
    STATUS_ROW_PREPARED,
    STATUS_ROW_PID,
    STATUS_ROW_TOKENS_PREFILLED,
    STATUS_ROW_TOKENS_GENERATED,
    STATUS_ROW_LANES_TOTAL,
    STATUS_ROW_LANES_LIVE,
    STATUS_ROW_PAGES_TOTAL,
    STATUS_ROW_PAGES_USED,
    STATUS_ROW_QUEUED,
    STATUS_ROW_RUNNING,
    STATUS_ROW_REQUESTS_DONE,
    STATUS_ROW_REQUESTS_FAILED,
    STATUS_ROW_REQUESTS_CANCELLED,
    STATUS_ROW_INPUT_LINES,
    STATUS_ROW_OUTPUT_BYTES,
    STATUS_ROW_TOKENS_REUSED,
    STATUS_ROW_LANES_IDLE,
    STATUS_ROW_PARKED,
    STATUS_ROW_PREEMPTIONS,
    STATUS_ROW_TOKENS_RECOMPUTED,
    STATUS_ROW_TOKENS_RESTORED,
    STATUS_ROW_PAGES_CACHED,
    STATUS_ROW_TOKENS_FETCHED,
    STATUS_ROW_PREPARING,
    STATUS_ROW_ATTENDED,
    STATUS_ROW_STEP_SEQ, /* the last two are status_page_step's */
    STATUS_ROW_N_ROWS = 31,
    STATUS_ROW_COUNT = 32
} status_row;

typedef struct status_page status_page; /* the mapping */

/*
 * The worker's side.
 */
/* Maps fd and writes magic and pid. -1: a private page. An fd above 2 is closed in every case. ST_INVALID_FIELD
 * for one that is no file of STATUS_PAGE_BYTES or cannot be mapped for writing. */
status status_page_open(int fd, status_page **out, err *e);
void status_page_close(status_page *p); /* either side */
void status_page_set(status_page *p, status_row row, uint64_t value);
void status_page_add(status_page *p, status_row row, uint64_t n);
/* Before each step: its sequences, their id hashes and positions. n above the maximum is cut; 0 = between
 * steps. */
void status_page_step(status_page *p, const uint64_t *id_hashes, const int32_t *positions, size_t n);
uint64_t status_page_id_hash(const char *id, size_t len); /* never 0 */

/*
 * The daemon's side.
 */
/* A memfd of exactly STATUS_PAGE_BYTES, sealed against growing, shrinking and further seals, close-on-exec;
 * *fd_out is the caller's, *out a read-only mapping of it. */
status status_page_create(int *fd_out, status_page **out, err *e);

typedef struct status_snapshot {
    uint64_t row[STATUS_ROW_COUNT]; /* as they are: any value is possible */
    bool step_whole;                /* false: the list was being written or is nonsense; then n_rows is 0 */
    size_t n_rows;                  /* <= STATUS_PAGE_MAX_ROWS */
    uint64_t id_hash[STATUS_PAGE_MAX_ROWS];
    int64_t position[STATUS_PAGE_MAX_ROWS]; /* >= 0 */
} status_snapshot;

/* Never waits: a list that keeps changing is given up after a few tries. */
void status_page_read(const status_page *p, status_snapshot *out);
/* Any counter of the stall rule differs. */
bool status_page_moved(const status_snapshot *before, const status_snapshot *after);

#endif
