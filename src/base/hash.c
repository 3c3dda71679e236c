#include "base/hash.h"

#include <openssl/evp.h>
#include <string.h>
#include <sys/auxv.h>
#include <xxhash.h>

#include "base/mem.h"

struct sha256 {
    EVP_MD_CTX *ctx; /* owned */
};

status sha256_new(sha256 **out)
{
    status st = ST_OK;
    sha256 *s = mem_calloc(1, sizeof *s);
    if (!s) {
        return ST_NOMEM;
    }
    s->ctx = EVP_MD_CTX_new();
    if (!s->ctx) {
        st = ST_NOMEM;
        goto out;
    }
    if (EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) != 1) {
        st = ST_INTERNAL;
        goto out;
    }
    *out = s;
    s = NULL;
out:
    sha256_free(s);
    return st;
}

status sha256_update(sha256 *s, const void *data, size_t n)
{
    return EVP_DigestUpdate(s->ctx, data, n) == 1 ? ST_OK : ST_INTERNAL;
}

status sha256_final(sha256 *s, uint8_t out[SHA256_BYTES])
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_DigestFinal_ex(s->ctx, digest, &n) != 1 || n != SHA256_BYTES) {
        return ST_INTERNAL;
    }
    memcpy(out, digest, SHA256_BYTES);
    return ST_OK;
}

status sha256_peek(const sha256 *s, const void *data, size_t n, uint8_t out[SHA256_BYTES])
{
    sha256 *copy = NULL;
    status st = sha256_new(&copy);
    if (st == ST_OK && EVP_MD_CTX_copy_ex(copy->ctx, s->ctx) != 1) {
        st = ST_NOMEM;
    }
    st = st == ST_OK ? sha256_update(copy, data, n) : st;
    st = st == ST_OK ? sha256_final(copy, out) : st;
    sha256_free(copy);
    return st;
}

void sha256_free(sha256 *s)
{
    if (s) {
        EVP_MD_CTX_free(s->ctx);
        mem_free(s);
    }
}

status sha256_once(const void *data, size_t n, uint8_t out[SHA256_BYTES])
{
    sha256 *s = NULL;
    status st = sha256_new(&s);
    if (st == ST_OK) {
        st = sha256_update(s, data, n);
    }
    if (st == ST_OK) {
        st = sha256_final(s, out);
    }
    sha256_free(s);
    return st;
}

void hex_encode(const uint8_t *data, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[data[i] >> 4];
        out[2 * i + 1] = digits[data[i] & 15];
    }
    out[2 * n] = '\0';
}

uint64_t hash64(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}

/* The 16 random bytes the kernel gives to every process: no system call, so a sandbox cannot forbid it. */
static uint64_t process_seed(void)
{
    unsigned long at = getauxval(AT_RANDOM);
    uint8_t bytes[16] = {0};
    if (at) {
        memcpy(bytes, (const void *)at, sizeof bytes);
    }
    return XXH3_64bits(bytes, sizeof bytes);
}

uint64_t hash64_keyed(const void *data, size_t n)
{
    /* Hashed anew each time (some 5 ns): no shared state, nothing to initialise. */
    return XXH3_64bits_withSeed(data, n, process_seed());
}
