/*
 * sandbox: what a worker gives up before it parses a byte of a model or reads a byte from a client (PROTOCOL
 * 6).
 *
 * In this order, on the only thread there is:
 *   sandbox_prepare   has done at once what libraries would do later, by calls that will be gone;
 *   sandbox_keep_folder  (where there is a store) says in which folder files may be made later;
 *   (the caller opens everything: the model's files, descriptors, the status page)
 *   sandbox_enter     no new privileges, Landlock without rights, the call filter, a soft limit on memory;
 *   (the model is parsed, threads may start)
 *   sandbox_seal      the memory limit gets its last value, and no thread can change limits or filters again.
 *
 * Inside: memory without execute permission, threads, and the descriptors that are open already. open and
 * stat → EACCES; system calls that nobody thought of → ENOSYS, with one line in the log for the first; a new
 * program or process, a socket, another process' memory, and what else no worker ever asks for → killed by
 * SIGSYS. Signals reach only this process. The parent-death signal stays. On a kernel without Landlock the
 * filter stands alone. Adding a system call to the worker means adding it to the lists in sandbox_seccomp.c.
 *
 * With a folder kept: files directly or deeper in it are made, read, written, renamed, removed and locked; everything
 * else is EACCES as before, now because Landlock says so, which alone knows paths. What no Landlock hides is whether a
 * file exists, how large and how old it is.
 *
 * There is no way back, and one sandbox in a process. Errors: ST_INTERNAL when it comes too late (there is a
 * second thread), ST_IO when the kernel refuses a part that it has: the worker must not go on then.
 */
#ifndef HEARTH_WORKER_SANDBOX_H
#define HEARTH_WORKER_SANDBOX_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Beside the file and the KV pages: the vocabulary's tables, the workspaces of a step, lines, prompts, frames.
 * The largest is a line of 64 MiB full of token ids: 1.4 GiB while it is parsed. */
#define SANDBOX_ALLOWANCE_BYTES ((uint64_t)2 << 30)

#define SANDBOX_OOM_SCORE 500 /* added to what the process has: a worker goes before its daemon does */

/* Why sandbox_enter would do nothing here (a sanitizer that must open and map, a kernel without filters), or
 * NULL. Static storage. */
const char *sandbox_missing(void);
int sandbox_landlock_abi(void); /* 0: the kernel has no Landlock */

/* Also switches core dumps off and leaves one malloc arena. Must come before the second thread. */
status sandbox_prepare(err *e);

/* The one folder of sandbox_enter; it exists. Nothing if sandbox_missing. ST_UNSUPPORTED: there is no Landlock, so that
 * nothing could hold the worker in it: it has to do without. ST_IO: the folder cannot be opened. */
status sandbox_keep_folder(const char *path, err *e);

/* file_bytes: of the model, opened by now. If sandbox_missing, this is one line in the log and ST_OK. */
status sandbox_enter(uint64_t file_bytes, err *e);

/*
 * Once the sizes are known and before the pages are reserved: RLIMIT_DATA, soft and hard, becomes (file + KV)
 * x 1.25 + SANDBOX_ALLOWANCE_BYTES + the stacks of n_threads compute threads and of the worker's own few;
 * afterwards setrlimit and new filters are refused, for the threads that run already too. Nothing without
 * sandbox_enter.
 */
status sandbox_seal(uint64_t file_bytes, uint64_t kv_bytes, size_t n_threads, err *e);

#endif
