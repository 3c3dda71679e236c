#include "base/folder.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

status folder_make(const char *path, err *e)
{
    char part[PATH_MAX];
    const size_t n = strlen(path);
    if (n == 0 || n >= sizeof part) {
        return err_set(e, ST_IO, NULL, "the path of a folder is %s", n == 0 ? "empty" : "too long");
    }
    memcpy(part, path, n + 1);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(part, 0700); /* the last one tells */
        *slash = '/';
    }
    if (mkdir(part, 0700) != 0 && errno != EEXIST) {
        return err_set(e, ST_IO, NULL, "cannot make the folder %s: %s", path, strerror(errno));
    }
    return ST_OK;
}
