/*
 * cgroup: the control groups that this process is in, as folders of files: both versions, alone or side by side.
 *
 * Where a hierarchy is mounted is what /proc/self/mountinfo says, and, if it says nothing, one of the usual places.
 * A group that lies outside of what is mounted here (a container without a cgroup namespace names a path of the
 * host) is invisible: then only the mount's own files count.
 *
 * Pure reading, any thread, nothing is kept. Everything is read below `root`: "" in production, a folder in tests.
 * What cannot be read or makes no sense is as if it were not there.
 */
#ifndef HEARTH_BASE_CGROUP_H
#define HEARTH_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* One group's folder. v2: of version 2, which has the files of all controllers. */
typedef void (*cgroup_fn)(void *ctx, const char *dir, bool v2);

/* The groups that hold this process, by that controller ("cpu", "memory"): from its own one up to the mount. A folder
 * may be named that is not there, and one twice. */
void cgroup_each(const char *root, const char *controller, cgroup_fn fn, void *ctx);

/* The first line of dir/name, without its end; false if it is not there, empty or longer than cap. */
bool cgroup_line(const char *dir, const char *name, char *line, size_t cap);
/* The number behind "key " at the beginning of a line of dir/name. */
bool cgroup_keyed(const char *dir, const char *name, const char *key, uint64_t *out);
/* A small file whole; false if it cannot be read. */
bool cgroup_read_file(const char *path, buf *out);

#endif
