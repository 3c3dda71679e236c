#include "worker/own_folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_BYTES 16 /* of the identity: enough to tell models apart */

/* Each folder on the way that is missing. */
static status make_all(char *path, err *e)
{
    for (char *at = path + 1; *at; at++) {
        if (*at == '/') {
            *at = '\0';
            (void)mkdir(path, 0700); /* the last one tells */
            *at = '/';
        }
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return err_set(e, ST_IO, NULL, "cannot make the folder %s: %s", path, strerror(errno));
    }
    return ST_OK;
}

status own_folder_make(const char *below, const uint8_t identity[SHA256_BYTES], char *path, size_t size,
                       err *e)
{
    char name[2 * NAME_BYTES + 1], real[PATH_MAX];
    hex_encode(identity, NAME_BYTES, name);
    int n = snprintf(path, size, "%s/%s", below, name);
    if (n < 0 || (size_t)n >= size) {
        return err_set(e, ST_IO, NULL, "the path of the store's folder is too long");
    }
    status st = make_all(path, e);
    if (st != ST_OK || path[0] == '/') {
        return st;
    }
    n = realpath(path, real) ? snprintf(path, size, "%s", real) : -1;
    return n > 0 && (size_t)n < size ? ST_OK
                                     : err_set(e, ST_IO, NULL, "cannot find the folder %s/%s", below, name);
}
