#include "worker/greeting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "wire/frame.h"

#define READ_BYTES   65536
#define MODEL_SUFFIX ".gguf"

static status hash_bytes(int fd, sha256 *h)
{
    char chunk[READ_BYTES];
    status st = ST_OK;
    ssize_t n = 1;
    while (st == ST_OK && n > 0) {
        n = read(fd, chunk, sizeof chunk);
        if (n > 0) {
            st = sha256_update(h, chunk, (size_t)n);
        } else if (n < 0) {
            st = errno == EINTR ? ST_OK : ST_IO;
            n = errno == EINTR ? 1 : n;
        }
    }
    return st;
}

/* False: too large, in several files, or not readable; then there is no digest. */
static bool digest_of(const char *path, uint64_t file_bytes, char hex[SHA256_HEX_LEN + 1])
{
    uint8_t sum[SHA256_BYTES];
    struct stat s;
    sha256 *h = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool one_small_file = fstat(fd, &s) == 0 && s.st_size >= 0 && (uint64_t)s.st_size == file_bytes &&
                          file_bytes <= GREETING_DIGEST_BYTES;
    status st = one_small_file ? sha256_new(&h) : ST_UNSUPPORTED;
    if (st == ST_OK) {
        st = hash_bytes(fd, h);
    }
    if (st == ST_OK) {
        st = sha256_final(h, sum);
    }
    if (st == ST_OK) {
        hex_encode(sum, sizeof sum, hex);
    }
    sha256_free(h);
    close(fd);
    return st == ST_OK;
}

/* The model's own name, else the file's. */
static status put_name(buf *name, const char *path, const instance_info *info)
{
    if (info->name[0] != '\0') {
        return buf_append_str(name, info->name);
    }
    const char *slash = strrchr(path, '/');
    const char *file = slash ? slash + 1 : path;
    size_t len = strlen(file), suffix = strlen(MODEL_SUFFIX);
    if (len > suffix && strcmp(file + len - suffix, MODEL_SUFFIX) == 0) {
        len -= suffix;
    }
    return buf_append(name, file, len);
}

status greeting_put(buf *out, const char *model_path, const instance_info *info, int32_t max_sessions)
{
    char digest[SHA256_HEX_LEN + 1];
    buf name = {0};
    status st = put_name(&name, model_path, info);
    frame_ready r = {
        .max_sessions = max_sessions,
        .supports_cancel = false,
        .protocol = WIRE_PROTOCOL,
        .pid = getpid(),
        .name = buf_str(&name),
        .arch = info->arch,
        .quant = info->quant,
        .params = info->params,
        .digest = digest_of(model_path, info->file_bytes, digest) ? digest : NULL,
        .context_length = info->context,
        .vocab_size = info->n_vocab,
        .kernels = info->kernels,
        .kv_pages = info->kv_pages,
    };
    if (st == ST_OK) {
        st = frame_put_ready(out, &r);
    }
    buf_release(&name);
    return st;
}
