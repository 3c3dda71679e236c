#include "kv/store_rig.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/philox.h"

#define WAIT_MS 60000u

static pthread_mutex_t log_mu = PTHREAD_MUTEX_INITIALIZER;
static char log_text[65536]; /* guarded by log_mu; what is too much is left out */
static size_t log_len;

static void keep_line(void *ctx, log_level level, const char *line, size_t len)
{
    (void)ctx, (void)level;
    pthread_mutex_lock(&log_mu);
    if (log_len + len < sizeof log_text) {
        memcpy(log_text + log_len, line, len);
        log_len += len;
    }
    pthread_mutex_unlock(&log_mu);
}

unsigned rig_lines(const char *text)
{
    unsigned n = 0;
    pthread_mutex_lock(&log_mu);
    for (const char *p = log_text; (p = strstr(p, text)) != NULL; p++) {
        n++;
    }
    pthread_mutex_unlock(&log_mu);
    return n;
}

void rig_init(store_rig *r)
{
    const char *tmp = getenv("TMPDIR");
    memset(r, 0, sizeof *r);
    snprintf(r->dir, sizeof r->dir, "%s/hearth-store-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(r->dir));
    clock_fake_init(&r->clock, 1, (int64_t)20000 * 86400000 + 1000);
    r->cfg = (store_config){
        .dir = r->dir,
        .page_bytes = RIG_PAGE_BYTES,
        .budget_bytes = UINT64_MAX,
        .queue_bytes = (size_t)1 << 20,
        .clock = &r->clock.src,
    };
    memset(r->cfg.layout, 0x5a, sizeof r->cfg.layout);
    rig_catch_log();
}

void rig_catch_log(void)
{
    log_set_sink(keep_line, NULL, LOG_INFO);
    memset(log_text, 0, sizeof log_text);
    log_len = 0;
}

void rig_open(store_rig *r)
{
    err e = {.msg = ""};
    if (store_open(&r->cfg, &r->s, &e) != ST_OK) {
        fail_msg("store_open: %s", e.msg);
    }
    store_flush(r->s);
}

void rig_close(store_rig *r)
{
    store_close(r->s, WAIT_MS);
    r->s = NULL;
}

void rig_end(store_rig *r)
{
    char command[2 * RIG_PATH_BYTES + 64];
    rig_close(r);
    snprintf(command, sizeof command, "chmod u+rwx %s 2>/dev/null; rm -rf %s", r->dir, r->dir);
    assert_int_equal(system(command) == -1, 0);
}

static void fill(uint8_t *out, size_t n, unsigned c, unsigned i)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (c * 100003u + i + 1);
    for (size_t at = 0; at < n; at += sizeof x) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(out + at, &x, sizeof x);
    }
}

static void ids_of(int32_t *ids, unsigned c, unsigned i)
{
    for (unsigned t = 0; t < KV_PAGE_TOKENS; t++) {
        ids[t] = (int32_t)(c * 1000000 + i * KV_PAGE_TOKENS + t);
    }
}

void rig_page_make(rig_page *p, unsigned c, unsigned i)
{
    memset(p, 0, sizeof *p);
    memset(p->root.bytes, 7, sizeof p->root.bytes);
    p->n_ids = KV_PAGE_TOKENS;
    for (unsigned j = 0; j <= i; j++) {
        ids_of(p->ids, c, j);
        p->parent = p->key;
        p->has_parent = j > 0;
        p->key = store_chain(&p->root, p->has_parent ? &p->parent : NULL, p->ids, p->n_ids);
    }
    fill(p->bytes, sizeof p->bytes, c, i);
}

bool rig_put_page(store_rig *r, const rig_page *p)
{
    return store_put(r->s, &p->root, p->has_parent ? &p->parent : NULL, p->ids, p->n_ids, p->bytes);
}

bool rig_put(store_rig *r, unsigned c, unsigned i)
{
    rig_page p;
    rig_page_make(&p, c, i);
    return rig_put_page(r, &p);
}

void rig_put_all(store_rig *r, unsigned c, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        (void)rig_put(r, c, i);
        store_flush(r->s);
    }
}

static store_result wait_for_result(store_rig *r)
{
    const struct timespec pause = {0, 200000};
    store_result result;
    for (unsigned i = 0; i < 5 * WAIT_MS; i++) {
        if (store_poll(r->s, &result, 1) == 1) {
            return result;
        }
        nanosleep(&pause, NULL);
    }
    fail_msg("no result in %u ms", WAIT_MS);
    return (store_result){0};
}

bool rig_get_page(store_rig *r, const rig_page *p)
{
    static uint64_t ticket;
    static uint8_t dst[RIG_PAGE_BYTES];
    memset(dst, 0xee, sizeof dst);
    if (!store_get(r->s, &p->root, p->has_parent ? &p->parent : NULL, p->ids, p->n_ids, dst, ++ticket)) {
        return false;
    }
    const store_result result = wait_for_result(r);
    assert_int_equal(result.ticket, ticket);
    if (result.ok) {
        assert_memory_equal(dst, p->bytes, sizeof dst);
    }
    return result.ok;
}

bool rig_get(store_rig *r, unsigned c, unsigned i)
{
    rig_page p;
    rig_page_make(&p, c, i);
    return rig_get_page(r, &p);
}

unsigned rig_prefix(store_rig *r, unsigned c, unsigned most)
{
    unsigned n = 0;
    while (n < most && rig_get(r, c, n)) {
        n++;
    }
    return n;
}

store_stats rig_stats(const store_rig *r)
{
    return store_stats_read(r->s);
}

void rig_name(const store_rig *r, const char *name, char out[RIG_PATH_BYTES])
{
    assert_true(snprintf(out, RIG_PATH_BYTES, "%s/%s", r->dir, name) < (int)RIG_PATH_BYTES);
}

void rig_path(const store_rig *r, const rig_page *p, char out[RIG_PATH_BYTES])
{
    char name[SHA256_HEX_LEN + 8];
    hex_encode(p->key.bytes, sizeof p->key.bytes, name);
    strcpy(name + SHA256_HEX_LEN, ".page");
    rig_name(r, name, out);
}

size_t rig_count_files(const store_rig *r, const char *ending)
{
    size_t n = 0, n_ending = strlen(ending);
    DIR *d = opendir(r->dir);
    assert_non_null(d);
    for (const struct dirent *entry = readdir(d); entry; entry = readdir(d)) {
        size_t len = strlen(entry->d_name);
        n += len >= n_ending && strcmp(entry->d_name + len - n_ending, ending) == 0;
    }
    closedir(d);
    return n;
}
