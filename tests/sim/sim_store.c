#include "sim/sim_store.h"

#include <string.h>

#define PAGE_MOST 4096 /* bytes of a page */
#define READS     64

typedef struct file {
    store_key key;
    unsigned char page[PAGE_MOST];
} file;

typedef struct reading {
    store_key key;
    void *dst;
    uint64_t ticket, due_ns;
} reading;

struct store {
    sim_disk disk;
    size_t n_files, n_reads;
    reading reads[READS];
    file files[SIM_STORE_MOST];
};

static store the;

static uint64_t now_ns(void)
{
    return clock_mono_ns(the.disk.clock);
}

store *sim_store_new(const sim_disk *d)
{
    the.disk = *d;
    the.n_files = the.n_reads = 0;
    return &the;
}

sim_disk *sim_store_disk(void)
{
    return &the.disk;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t sim_store_due(void)
{
    if (the.n_reads > 0) {
        return later(the.reads[0].due_ns, the.disk.stuck_ns);
    }
    return the.disk.clock && now_ns() < the.disk.ready_ns ? the.disk.ready_ns : UINT64_MAX;
}

static file *find(const store_key *key)
{
    for (size_t i = 0; i < the.n_files; i++) {
        if (memcmp(&the.files[i].key, key, sizeof *key) == 0) {
            return &the.files[i];
        }
    }
    return NULL;
}

bool store_ready(store *s)
{
    return now_ns() >= s->disk.ready_ns;
}

bool store_has(store *s, const store_key *key)
{
    return store_ready(s) && find(key);
}

bool store_put(store *s, const kv_root_key *root, const store_key *parent, const int32_t *ids, size_t n,
               const void *page)
{
    store_key key = store_chain(root, parent, ids, n);
    if (s->disk.full || s->n_files >= s->disk.room || find(&key) || (parent && !find(parent))) {
        return false;
    }
    file *f = &s->files[s->n_files++];
    f->key = key;
    memcpy(f->page, page, s->disk.page_bytes);
    return true;
}

bool store_get(store *s, const kv_root_key *root, const store_key *parent, const int32_t *ids, size_t n,
               void *dst, uint64_t ticket)
{
    if (s->n_reads == READS) {
        return false;
    }
    uint64_t begin = s->n_reads > 0 ? s->reads[s->n_reads - 1].due_ns : now_ns();
    s->reads[s->n_reads++] =
        (reading){store_chain(root, parent, ids, n), dst, ticket, later(begin, now_ns()) + s->disk.read_ns};
    return true;
}

/* A file that is damaged is deleted. */
static bool read_file(store *s, const reading *r)
{
    file *f = find(&r->key);
    if (f && s->disk.n_damaged > 0) {
        s->disk.n_damaged--;
        *f = s->files[--s->n_files];
        f = NULL;
    }
    if (!f) {
        memset(r->dst, 0xA5, s->disk.page_bytes); /* it holds anything */
        return false;
    }
    memcpy(r->dst, f->page, s->disk.page_bytes);
    return true;
}

size_t store_poll(store *s, store_result *out, size_t most)
{
    size_t n = 0;
    while (n < most && s->n_reads > 0 && now_ns() >= s->disk.stuck_ns && s->reads[0].due_ns <= now_ns()) {
        out[n] = (store_result){.ticket = s->reads[0].ticket, .ok = read_file(s, &s->reads[0])};
        n++;
        memmove(s->reads, s->reads + 1, --s->n_reads * sizeof *s->reads);
    }
    return n;
}
