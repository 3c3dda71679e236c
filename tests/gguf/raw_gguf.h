/*
 * raw_gguf: GGUF bytes laid out by hand, field by field as the format's specification lists them, independent
 * of the writer; and files in a temporary folder. For tests of gguf/ only; out of memory or disk ends the
 * program.
 */
#ifndef HEARTH_TESTS_GGUF_RAW_GGUF_H
#define HEARTH_TESTS_GGUF_RAW_GGUF_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RAW_MAX_BYTES (64u << 10)

typedef struct raw {
    uint8_t data[RAW_MAX_BYTES];
    size_t len;
} raw;

static inline void raw_bytes(raw *r, const void *data, size_t n)
{
    if (n > RAW_MAX_BYTES - r->len) {
        fprintf(stderr, "raw_gguf: more than %u bytes\n", RAW_MAX_BYTES);
        abort();
    }
    if (n) {
        memcpy(r->data + r->len, data, n);
    }
    r->len += n;
}

static inline void raw_u8(raw *r, uint8_t v)
{
    raw_bytes(r, &v, 1);
}

static inline void raw_u32(raw *r, uint32_t v)
{
    raw_bytes(r, &v, 4);
}

static inline void raw_u64(raw *r, uint64_t v)
{
    raw_bytes(r, &v, 8);
}

static inline void raw_str(raw *r, const char *s)
{
    raw_u64(r, strlen(s));
    raw_bytes(r, s, strlen(s));
}

static inline void raw_header(raw *r, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    raw_bytes(r, "GGUF", 4);
    raw_u32(r, version);
    raw_u64(r, n_tensors);
    raw_u64(r, n_kv);
}

/* Key and value type (the number of the specification); the value follows. */
static inline void raw_key(raw *r, const char *key, uint32_t type)
{
    raw_str(r, key);
    raw_u32(r, type);
}

static inline void raw_pad(raw *r, size_t alignment)
{
    while (r->len % alignment) {
        raw_u8(r, 0);
    }
}

/* This program's own temporary folder, made when first asked for. */
static inline const char *temp_folder(void)
{
    static char folder[200];
    if (!folder[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%.100s/hearth-gguf-XXXXXX", base ? base : "/tmp");
        if (!mkdtemp(folder)) {
            perror("raw_gguf: mkdtemp");
            abort();
        }
    }
    return folder;
}

/* Not 0 if a test left files behind; for the group's teardown. */
static inline int temp_folder_remove(void **state)
{
    (void)state;
    return rmdir(temp_folder());
}

/* Path of a file in it; static buffer. */
static inline const char *temp_file(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", temp_folder(), name);
    return path;
}

static inline void file_put(const char *path, const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n || close(fd) != 0) {
        perror("raw_gguf: cannot write a test file");
        abort();
    }
}

#endif
