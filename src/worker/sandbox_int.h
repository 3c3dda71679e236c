/*
 * sandbox_int: what the files of the sandbox share.
 *
 *   sandbox.c           the order of things, limits, what must be had before
 *   sandbox_landlock.c  no file, no port, no foreign process (Landlock)
 *   sandbox_seccomp.c   the lists of system calls
 *   sandbox_trap.c      what happens at a system call that is in none of them
 */
#ifndef HEARTH_WORKER_SANDBOX_INT_H
#define HEARTH_WORKER_SANDBOX_INT_H

#include <stdbool.h>

#include "base/status.h"

/* A domain without a single right, of everything that version abi of Landlock can take away, but for the files in an
 * open folder (-1: no folder). */
status sandbox_landlock_enter(int abi, int folder_fd, err *e);

bool sandbox_seccomp_available(void);
status sandbox_seccomp_enter(bool with_folder, err *e);
/* A second filter, on all threads: no limits and no filters from now on. */
status sandbox_seccomp_seal(err *e);

/* Catches SIGSYS. Before sandbox_seccomp_enter. */
status sandbox_trap_install(err *e);

#endif
