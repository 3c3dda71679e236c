/*
 * bench_store: how fast pages come back from disk, beside plain reads of the same files and a copy in memory, and what a
 * put costs the one who calls it.
 *
 *     bench_store FOLDER [PAGE_KIB [PAGES [ROUNDS]]]       an existing folder; 1024, 480 (15k tokens), 9
 *
 * Files come from the page cache (warm) and, after posix_fadvise(DONTNEED), from the device (cold). All ways take turns
 * within a round; printed is the best round of each.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "kv/store.h"
#include "kv/store_header.h"

static size_t page_bytes, n_pages;
static const char *dir;
static uint8_t *pages; /* [n_pages][page_bytes], as a pool's: one mapping, touched before */
static kv_root_key root;

static double now(void)
{
    return (double)clock_mono_ns(clock_system()) * 1e-9;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static store *open_store(void)
{
    store *s = NULL;
    err e;
    const store_config cfg = {.dir = dir,
                              .page_bytes = page_bytes,
                              .budget_bytes = UINT64_MAX,
                              .queue_bytes = 32 * page_bytes,
                              .clock = clock_system()};
    if (store_open(&cfg, &s, &e) != ST_OK) {
        fprintf(stderr, "%s\n", e.msg);
        exit(1);
    }
    store_flush(s);
    return s;
}

static const int32_t *ids_of(size_t i)
{
    static int32_t ids[KV_PAGE_TOKENS];
    ids[0] = (int32_t)i;
    return ids;
}

static store_key key_of(size_t i, const store_key *parent)
{
    return store_chain(&root, i ? parent : NULL, ids_of(i), KV_PAGE_TOKENS);
}

static void path_of(const store_key *key, char out[4096])
{
    char hex[SHA256_HEX_LEN + 1];
    hex_encode(key->bytes, sizeof key->bytes, hex);
    snprintf(out, 4096, "%s/%s.page", dir, hex);
}

/* How long the caller was held up by one page, eight at a time as an engine writes behind, and when all was written. */
static void put_all(store *s, double *call_us, double *all_s)
{
    store_key parent = {{0}};
    double t0 = now(), in_calls = 0;
    for (size_t i = 0; i < n_pages; i++) {
        const store_key key = key_of(i, &parent);
        double t = now();
        if (!store_put(s, &root, i ? &parent : NULL, ids_of(i), KV_PAGE_TOKENS, pages + i * page_bytes)) {
            fprintf(stderr, "page %zu was not taken\n", i);
            exit(1);
        }
        in_calls += now() - t;
        parent = key;
        if (i % 8 == 7) {
            store_flush(s);
        }
    }
    store_flush(s);
    *all_s = now() - t0;
    *call_us = in_calls * 1e6 / (double)n_pages;
}

static double get_all(store *s)
{
    store_key parent = {{0}};
    store_result results[64];
    size_t n = 0;
    double t0 = now();
    for (size_t i = 0; i < n_pages; i++) {
        const store_key key = key_of(i, &parent);
        if (!store_get(s, &root, i ? &parent : NULL, ids_of(i), KV_PAGE_TOKENS, pages + i * page_bytes, i)) {
            die("store_get");
        }
        parent = key;
    }
    while (n < n_pages) {
        size_t got = store_poll(s, results, 64);
        for (size_t i = 0; i < got; i++) {
            if (!results[i].ok) {
                fprintf(stderr, "page %" PRIu64 " is not there\n", results[i].ticket);
                exit(1);
            }
        }
        n += got;
        if (!got) {
            const struct timespec pause = {0, 50000};
            nanosleep(&pause, NULL);
        }
    }
    return now() - t0;
}

static double read_all(void)
{
    store_key parent = {{0}};
    double t0 = now();
    for (size_t i = 0; i < n_pages; i++) {
        char path[4096];
        parent = key_of(i, &parent);
        path_of(&parent, path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 ||
            pread(fd, pages + i * page_bytes, page_bytes, STORE_HEADER_BYTES) != (ssize_t)page_bytes) {
            die(path);
        }
        close(fd);
    }
    return now() - t0;
}

static double copy_all(uint8_t *to)
{
    double t0 = now();
    for (size_t i = 0; i < n_pages; i++) {
        memcpy(to + i * page_bytes, pages + i * page_bytes, page_bytes);
    }
    return now() - t0;
}

static void drop_caches(void)
{
    store_key parent = {{0}};
    sync();
    for (size_t i = 0; i < n_pages; i++) {
        char path[4096];
        parent = key_of(i, &parent);
        path_of(&parent, path);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) {
            die(path);
        }
        close(fd);
    }
}

static void keep_least(double *least, double x)
{
    *least = *least == 0 || x < *least ? x : *least;
}

static void *map(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED) {
        die("mmap");
    }
    return p;
}

static void remove_pages(void)
{
    DIR *d = opendir(dir);
    for (const struct dirent *entry = d ? readdir(d) : NULL; entry; entry = readdir(d)) {
        char path[4096];
        if (strstr(entry->d_name, ".page")) {
            snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
            unlink(path);
        }
    }
    closedir(d);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_store FOLDER [PAGE_KIB [PAGES [ROUNDS]]]\n");
        return 2;
    }
    dir = argv[1];
    page_bytes = (argc > 2 ? strtoul(argv[2], NULL, 10) : 1024) << 10;
    n_pages = argc > 3 ? strtoul(argv[3], NULL, 10) : 480;
    unsigned long rounds = argc > 4 ? strtoul(argv[4], NULL, 10) : 9;
    double warm = 0, plain = 0, copy = 0, cold = 0, plain_cold = 0, call_us = 0, all_s = 0;
    double gb = (double)n_pages * (double)page_bytes * 1e-9;
    pages = map(n_pages * page_bytes);
    uint8_t *to = map(n_pages * page_bytes);
    for (size_t i = 0; i < n_pages * page_bytes; i += 8) {
        uint64_t x = i * 0x9e3779b97f4a7c15u;
        memcpy(pages + i, &x, sizeof x);
    }
    for (unsigned long r = 0; r < rounds; r++) {
        double us, s;
        remove_pages();
        store *st = open_store();
        put_all(st, &us, &s);
        keep_least(&call_us, us);
        keep_least(&all_s, s);
        keep_least(&warm, get_all(st));
        keep_least(&plain, read_all());
        keep_least(&copy, copy_all(to));
        drop_caches();
        keep_least(&cold, get_all(st));
        drop_caches();
        keep_least(&plain_cold, read_all());
        store_close(st, 60000);
    }
    printf("%zu pages of %zu KiB, best of %lu\n", n_pages, page_bytes >> 10, rounds);
    printf("store_put, the caller        %8.1f us a page (%.2f GB/s)\n", call_us,
           (double)page_bytes * 1e-3 / call_us);
    printf("until all is written         %8.1f ms        (%.2f GB/s)\n", all_s * 1e3, gb / all_s);
    printf("copy in memory               %8.1f ms        (%.2f GB/s)\n", copy * 1e3, gb / copy);
    printf("store_get, cached files      %8.1f ms        (%.2f GB/s)\n", warm * 1e3, gb / warm);
    printf("plain reads, cached files    %8.1f ms        (%.2f GB/s)\n", plain * 1e3, gb / plain);
    printf("store_get, from the device   %8.1f ms        (%.2f GB/s)\n", cold * 1e3, gb / cold);
    printf("plain reads, from the device %8.1f ms        (%.2f GB/s)\n", plain_cold * 1e3, gb / plain_cold);
    return 0;
}
