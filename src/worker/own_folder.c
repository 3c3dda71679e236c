#include "worker/own_folder.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/folder.h"

#define NAME_BYTES 16 /* of the identity: enough to tell models apart */

status own_folder_make(const char *below, const uint8_t identity[SHA256_BYTES], char *path, size_t size,
                       err *e)
{
    char name[2 * NAME_BYTES + 1], real[PATH_MAX];
    hex_encode(identity, NAME_BYTES, name);
    int n = snprintf(path, size, "%s/%s", below, name);
    if (n < 0 || (size_t)n >= size) {
        return err_set(e, ST_IO, NULL, "the path of the store's folder is too long");
    }
    status st = folder_make(path, e);
    if (st != ST_OK || path[0] == '/') {
        return st;
    }
    n = realpath(path, real) ? snprintf(path, size, "%s", real) : -1;
    return n > 0 && (size_t)n < size ? ST_OK
                                     : err_set(e, ST_IO, NULL, "cannot find the folder %s/%s", below, name);
}
