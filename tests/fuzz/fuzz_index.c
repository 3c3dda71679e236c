/*
 * fuzz_index: the store's index, an SQLite database, as any bytes, or as a good one in which some bytes are others. It is
 * opened and used as the store does; whatever it says, each call ends with one of the statuses of its header, and a new one
 * can be made in its place.
 *
 * The first byte: 0: the rest is the file; 1: the rest is the file of its log (-wal) beside a good one; else the rest are
 * changes of a good one, each a place (2 bytes) and a value.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/le.h"
#include "kv/store_index.h"

#define N_KEYS 12

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static char folder[] = "/tmp/hearth-fuzz-index-XXXXXX";
static int dir_fd;
static buf good; /* index.db */

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void remove_files(void)
{
    static const char *const names[] = {"index.db", "index.db-wal", "index.db-shm", "index.db-journal",
                                        "index.lock"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unlinkat(dir_fd, names[i], 0);
    }
}

static void remove_folder(void)
{
    remove_files();
    rmdir(folder);
    buf_release(&good);
}

static bool at_once(void *ctx)
{
    return true;
}

static const store_patience patience = {at_once, NULL};

static store_key key_of(unsigned i)
{
    store_key key;
    memset(&key, 0, sizeof key);
    memcpy(&key, &i, sizeof i);
    return key;
}

static store_index *open_index(bool fresh, status *st)
{
    store_index *ix = NULL;
    bool made = false;
    err e;
    err_clear(&e);
    *st = store_index_open(folder, dir_fd, fresh, &patience, &ix, &made, &e);
    must(*st == ST_OK || *st == ST_BAD_FORMAT || *st == ST_IO || *st == ST_CAPACITY || *st == ST_NOMEM);
    must((*st == ST_OK) == (ix != NULL) && (*st == ST_OK || e.msg[0] != '\0'));
    return ix;
}

static void put_file(const char *name, const void *data, size_t size)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

static void keep_good(void)
{
    char block[4096];
    int fd = openat(dir_fd, "index.db", O_RDONLY);
    must(fd >= 0);
    for (ssize_t n; (n = read(fd, block, sizeof block)) > 0;) {
        must(buf_append(&good, block, (size_t)n) == ST_OK);
    }
    close(fd);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    status st;
    err e;
    must(mkdtemp(folder) != NULL);
    dir_fd = open(folder, O_RDONLY | O_DIRECTORY);
    atexit(remove_folder);
    store_index *ix = open_index(true, &st);
    must(ix != NULL);
    for (unsigned i = 0; i < N_KEYS; i++) {
        store_key key = key_of(i + 1), parent = key_of(i / 2);
        must(store_index_add(ix, &key, &parent, 1000, 0, 1700000000000 + i, &e) == ST_OK);
    }
    store_index_close(ix); /* nothing is left in the log */
    keep_good();
    return 0;
}

static void put_input(const uint8_t *data, size_t size)
{
    remove_files();
    if (data[0] == 0) {
        put_file("index.db", data + 1, size - 1);
        return;
    }
    buf file = {0};
    must(buf_append(&file, good.data, good.len) == ST_OK);
    for (size_t i = 1; data[0] > 1 && i + 3 <= size; i += 3) {
        file.data[le16_get(data + i) % file.len] = (char)data[i + 2];
    }
    put_file("index.db", file.data, file.len);
    if (data[0] == 1) {
        put_file("index.db-wal", data + 1, size - 1);
    }
    buf_release(&file);
}

/* The statuses after which the store goes on in one way or the other. */
static bool known(status st)
{
    return st == ST_OK || st == ST_NOT_FOUND || st == ST_BAD_FORMAT || st == ST_IO || st == ST_CAPACITY ||
           st == ST_NOMEM;
}

static void on_key(void *ctx, const store_key *key)
{
    (*(unsigned *)ctx)++;
    must(key != NULL);
}

static void use(store_index *ix)
{
    store_index_totals t;
    store_key key = key_of(3), other = key_of(100), root = key_of(0), victim;
    unsigned n = 0;
    int64_t seq = 0;
    err e;
    must(known(store_index_totals_read(ix, &t, &e)));
    must(known(store_index_since(ix, &seq, on_key, &n, &e)));
    must(known(store_index_has(ix, &key, &e)));
    if (store_index_begin(ix, &e) == ST_OK) {
        status st = store_index_victim(ix, &key, &victim, &e);
        must(known(st));
        st = st == ST_OK ? store_index_remove(ix, &victim, &e) : st;
        if (st == ST_OK || st == ST_NOT_FOUND) {
            must(known(store_index_commit(ix, &e)));
        } else {
            store_index_rollback(ix);
        }
    }
    must(known(store_index_add(ix, &other, &root, 1000, 0, 1700000001000, &e)));
    must(known(store_index_use(ix, &key, 1, 1700000002000, &e)));
    must(known(store_index_spend(ix, 19000, 5, &e)));
    must(known(store_index_recount(ix, &e)));
    must(known(store_index_remove(ix, &other, &e)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    status st;
    if (size < 1) {
        return 0;
    }
    put_input(data, size);
    store_index *ix = open_index(false, &st);
    if (ix) {
        use(ix);
        store_index_close(ix);
    } else {
        must(st == ST_BAD_FORMAT);
    }
    ix = open_index(true, &st); /* in the place of whatever is there */
    must(ix != NULL);
    use(ix);
    store_index_close(ix);
    return 0;
}
