#include "base/cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX_BYTES ((size_t)1 << 20)
#define MOUNT_FIELDS \
    6 /* id, parent, device, root, point, options; then optional ones, " - ", kind, source, more */

typedef struct walk {
    const char *root;       /* of the tree of files */
    const char *controller; /* looked for */
    cgroup_fn fn;
    void *ctx;
} walk;

bool cgroup_read_file(const char *path, buf *out)
{
    bool ok = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    buf_reset(out);
    while (out->len < FILE_MAX_BYTES && buf_reserve(out, 4096) == ST_OK) {
        ssize_t n = read(fd, out->data + out->len, 4096);
        if (n <= 0) {
            ok = n == 0;
            break;
        }
        out->len += (size_t)n;
        out->data[out->len] = '\0';
    }
    close(fd);
    return ok;
}

static bool read_in(const char *dir, const char *name, buf *out)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path && cgroup_read_file(path, out);
}

bool cgroup_line(const char *dir, const char *name, char *line, size_t cap)
{
    buf text = {0};
    bool ok = false;
    if (read_in(dir, name, &text)) {
        size_t len = strcspn(buf_str(&text), "\n");
        ok = len > 0 && len < cap;
        if (ok) {
            memcpy(line, text.data, len);
            line[len] = '\0';
        }
    }
    buf_release(&text);
    return ok;
}

bool cgroup_keyed(const char *dir, const char *name, const char *key, uint64_t *out)
{
    buf text = {0};
    bool ok = false;
    size_t n_key = strlen(key);
    if (read_in(dir, name, &text) && text.len > 0) {
        char *rest = NULL;
        for (char *line = strtok_r(text.data, "\n", &rest); line && !ok; line = strtok_r(NULL, "\n", &rest)) {
            const char *value = line + n_key;
            ok = strncmp(line, key, n_key) == 0 && *value == ' ' && value[1] >= '0' && value[1] <= '9';
            if (ok) {
                *out = strtoull(value + 1, NULL, 10);
            }
        }
    }
    buf_release(&text);
    return ok;
}

/* Visits point/group, then each parent up to point itself. */
static void climb(const walk *w, const char *point, const char *group, bool v2)
{
    char dir[PATH_MAX];
    int base = snprintf(dir, sizeof dir, "%s%s", w->root, point);
    if (base < 0 || (size_t)base >= sizeof dir) {
        return;
    }
    size_t room = sizeof dir - (size_t)base;
    int n = snprintf(dir + base, room, "%s", group);
    if (n < 0 || (size_t)n >= room) {
        dir[base] = '\0';
    }
    for (;;) {
        w->fn(w->ctx, dir, v2);
        char *slash = strrchr(dir + base, '/');
        if (!slash) {
            break;
        }
        *slash = '\0';
    }
}

static bool in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ",");
        if (len == n && memcmp(at, name, n) == 0) {
            return true;
        }
        at += len + (at[len] == ',');
    }
    return false;
}

/* The path of the group below what is mounted (mounted: which group that is); "" if it lies elsewhere. */
static const char *below(const char *group, const char *mounted)
{
    size_t n = strcmp(mounted, "/") == 0 ? 0 : strlen(mounted);
    if (strstr(group, "/..")) { /* above the cgroup namespace: nothing we can see */
        return "";
    }
    return strncmp(group, mounted, n) == 0 && (group[n] == '/' || group[n] == '\0') ? group + n : "";
}

/* One line of mountinfo; whether it mounts that hierarchy. */
static bool climb_mount(const walk *w, char *line, const char *group, bool v2)
{
    char *fields[MOUNT_FIELDS] = {0}, *rest = NULL;
    char *tail = strstr(line, " - ");
    if (!tail) {
        return false;
    }
    *tail = '\0';
    tail += 3;
    fields[0] = strtok_r(line, " ", &rest);
    for (size_t i = 1; i < MOUNT_FIELDS && fields[i - 1]; i++) {
        fields[i] = strtok_r(NULL, " ", &rest);
    }
    const char *kind = strtok_r(tail, " ", &rest);
    const char *source = strtok_r(NULL, " ", &rest), *more = strtok_r(NULL, " ", &rest);
    if (!fields[MOUNT_FIELDS - 1] || !kind || !source || !more ||
        strcmp(kind, v2 ? "cgroup2" : "cgroup") != 0 || (!v2 && !in_list(more, w->controller))) {
        return false;
    }
    climb(w, fields[4], below(group, fields[3]), v2);
    return true;
}

static bool climb_mounts(const walk *w, const char *group, bool v2)
{
    char dir[PATH_MAX];
    buf text = {0};
    bool any = false;
    int n = snprintf(dir, sizeof dir, "%s/proc/self", w->root);
    if (n > 0 && (size_t)n < sizeof dir && read_in(dir, "mountinfo", &text) && text.len > 0) {
        char *rest = NULL;
        for (char *line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            any = climb_mount(w, line, group, v2) || any;
        }
    }
    buf_release(&text);
    return any;
}

/* Where a hierarchy usually is. */
static void climb_usual(const walk *w, const char *group, bool v2)
{
    char own[64], with_account[64];
    snprintf(own, sizeof own, "/sys/fs/cgroup/%.16s", w->controller);
    snprintf(with_account, sizeof with_account, "/sys/fs/cgroup/%.16s,cpuacct", w->controller);
    climb(w, v2 ? "/sys/fs/cgroup" : own, group, v2);
    climb(w, v2 ? "/sys/fs/cgroup/unified" : with_account, group, v2);
}

/* One line of /proc/self/cgroup: "ID:CONTROLLERS:PATH"; no controllers are version 2, alone or beside version 1. */
static void take_line(const walk *w, char *line)
{
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) {
        return;
    }
    *controllers++ = '\0';
    *group++ = '\0';
    bool v2 = *controllers == '\0';
    if ((v2 || in_list(controllers, w->controller)) && !climb_mounts(w, group, v2)) {
        climb_usual(w, strcmp(group, "/") == 0 ? "" : below(group, "/"), v2);
    }
}

void cgroup_each(const char *root, const char *controller, cgroup_fn fn, void *ctx)
{
    const walk w = {root, controller, fn, ctx};
    char dir[PATH_MAX];
    buf text = {0};
    int n = snprintf(dir, sizeof dir, "%s/proc/self", root);
    if (n > 0 && (size_t)n < sizeof dir && read_in(dir, "cgroup", &text) && text.len > 0) {
        char *rest = NULL;
        for (char *line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            take_line(&w, line);
        }
    }
    buf_release(&text);
}
