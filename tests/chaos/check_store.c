/*
 * check_store FOLDER …: whether every page file in these folders of a store (kv/store_header.h) is what its name and its
 * header say, byte by byte. Prints those that are not and a line of counts; exit 1 if there is one. Nobody may have the
 * folders open.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv/store_header.h"

#define PAGE_ENDING ".page"
#define PAGE_MOST   ((size_t)64 << 20)

static size_t n_good, n_bad;

/* The bytes of a file; NULL with *n 0 if it cannot be read. */
static uint8_t *read_whole(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = malloc(PAGE_MOST);
    *n = f && bytes ? fread(bytes, 1, PAGE_MOST, f) : 0;
    if (f) {
        fclose(f);
    }
    return bytes;
}

static const char *what_is_wrong(const char *name, const uint8_t *bytes, size_t n)
{
    store_header h;
    char hex[65];
    err e;
    if (n < STORE_HEADER_BYTES || store_header_get(bytes, &h, &e) != ST_OK) {
        return "header";
    }
    const store_key key = store_header_key(&h);
    for (size_t i = 0; i < sizeof key.bytes; i++) {
        snprintf(hex + 2 * i, 3, "%02x", key.bytes[i]);
    }
    if (strncmp(hex, name, 64) != 0) {
        return "name";
    }
    if (n != STORE_HEADER_BYTES + h.page_bytes) {
        return "size";
    }
    uint64_t sum = store_sum(bytes + STORE_HEADER_BYTES, (size_t)h.page_bytes);
    return store_header_check(bytes, &h, sum, &e) == ST_OK ? NULL : "checksum";
}

static void check_folder(const char *folder)
{
    DIR *d = opendir(folder);
    for (struct dirent *x = d ? readdir(d) : NULL; x; x = readdir(d)) {
        size_t len = strlen(x->d_name), n;
        char path[4096];
        if (len <= sizeof PAGE_ENDING ||
            strcmp(x->d_name + len - (sizeof PAGE_ENDING - 1), PAGE_ENDING) != 0) {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", folder, x->d_name);
        uint8_t *bytes = read_whole(path, &n);
        const char *wrong = bytes ? what_is_wrong(x->d_name, bytes, n) : "memory";
        free(bytes);
        n_good += wrong == NULL;
        n_bad += wrong != NULL;
        if (wrong) {
            printf("%s: %s\n", path, wrong);
        }
    }
    if (d) {
        closedir(d);
    }
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        check_folder(argv[i]);
    }
    printf("%zu pages, %zu bad\n", n_good + n_bad, n_bad);
    return n_bad != 0;
}
