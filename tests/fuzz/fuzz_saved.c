/*
 * fuzz_saved: any bytes as the file of a saved session. Exactly what would be written for the ids that come out passes; any
 * other file is refused by name, and is gone.
 *
 * The mutator sums anew what it changed.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "worker/saved.h"

#define MAX_IDS    64
#define MAX_FILE   512
#define SUM_BYTES  sizeof(uint64_t)
#define HEAD_BYTES 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size); /* libFuzzer's own */

static char folder[] = "/tmp/hearth-fuzz-saved-XXXXXX";
static saved where = {.kv_type = "f16", .identity = {1, 2, [31] = 3}, .max_ids = MAX_IDS};

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void path_of(const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s.session", folder, name);
}

static void remove_folder(void)
{
    static const char *const names[] = {"a", "b"};
    char path[128];
    for (size_t i = 0; i < 2; i++) {
        path_of(names[i], path);
        unlink(path);
    }
    saved_close(&where);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    err e;
    must(mkdtemp(folder) != NULL && saved_open(&where, folder, &e) == ST_OK);
    atexit(remove_folder);
    return 0;
}

static void put_file(const uint8_t *data, size_t size)
{
    char path[128];
    path_of("a", path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

static void check_same(const ivec *ids, const uint8_t *data, size_t size)
{
    char path[128];
    uint8_t again[HEAD_BYTES + 4 * MAX_IDS + SUM_BYTES + 1];
    err e;
    must(ids->len <= MAX_IDS && saved_put(&where, "b", ids->data, ids->len, &e) == ST_OK);
    path_of("b", path);
    int fd = open(path, O_RDONLY);
    must(fd >= 0);
    ssize_t n = read(fd, again, sizeof again);
    must(n == (ssize_t)size && memcmp(again, data, size) == 0);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ivec ids = {0};
    err e;
    err_clear(&e);
    put_file(data, size);
    status st = saved_get(&where, "a", &ids, &e);
    if (st == ST_OK) {
        check_same(&ids, data, size);
        size_t n = 0;
        must(saved_drop(&where, "a", &n, &e) == ST_OK && n == ids.len);
    } else {
        must(st == ST_INVALID_FIELD && strcmp(e.field, "name") == 0 && e.msg[0] != '\0' && ids.len == 0);
        st = saved_drop(&where, "a", NULL, &e); /* of another model, or gone already */
        must(st == ST_OK || st == ST_UNKNOWN_ID);
    }
    must(saved_get(&where, "a", &ids, &e) == ST_UNKNOWN_ID);
    ivec_release(&ids);
    return 0;
}

static size_t good_file(uint8_t *data, unsigned seed)
{
    char path[128];
    int32_t ids[8];
    size_t n = seed % 9;
    err e;
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(seed + i);
    }
    must(saved_put(&where, "b", ids, n, &e) == ST_OK);
    path_of("b", path);
    int fd = open(path, O_RDONLY);
    must(fd >= 0);
    ssize_t len = read(fd, data, MAX_FILE);
    close(fd);
    must(len > 0);
    return (size_t)len;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    if (seed % 16 == 0 && max_size >= MAX_FILE) {
        return good_file(data, seed / 16);
    }
    size_t n = LLVMFuzzerMutate(data, size, max_size);
    if (n > SUM_BYTES && seed % 4) {
        uint64_t sum = hash64(data, n - SUM_BYTES);
        memcpy(data + n - SUM_BYTES, &sum, sizeof sum);
    }
    return n;
}
