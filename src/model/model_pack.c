/*
 * How the weights of a model come into the layout of the kernels: from a packed file, or packed into memory.
 */
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/mem.h"
#include "model/model_int.h"
#include "model/pack_fill.h"

#define SYSTEM_PAGE 4096u
#define TOUCH_BYTES (4u << 20) /* a task's */

bool model_wants_packing(const model *m)
{
    return m->plan.image_bytes > 0;
}

uint64_t model_packed_bytes(const model *m)
{
    return m->plan.image_bytes;
}

/* The embedding is a table of rows, also where it is the output matrix as well. */
bool model_reads_tensor(const model *m, const gguf_tensor *t)
{
    for (size_t i = 0; i < m->plan.n_items && t->data != m->w.embd.data; i++) {
        if (m->plan.items[i].w->data == t->data) {
            return false;
        }
    }
    return true;
}

void model_unpack(model *m)
{
    if (m->image_mapped) {
        munmap(m->image, (size_t)m->plan.image_bytes);
    } else {
        mem_unreserve(m->image, (size_t)m->plan.image_bytes);
    }
    m->image = NULL;
    m->image_mapped = false;
}

bool model_maps(const model *m, const void *address)
{
    const unsigned char *at = address, *image = m->image;
    return m->image_mapped && at >= image && (uint64_t)(at - image) < m->plan.image_bytes;
}

typedef struct touch_job {
    const volatile unsigned char *image;
    uint64_t n_bytes;
    size_t n_tasks;
} touch_job;

/* Reads a byte of each system page. */
static void touch_task(void *arg, size_t task, size_t thread)
{
    const touch_job *job = arg;
    uint64_t from = (uint64_t)task * TOUCH_BYTES;
    uint64_t to = job->n_bytes - from < TOUCH_BYTES ? job->n_bytes : from + TOUCH_BYTES;
    (void)thread;
    for (uint64_t at = from; at < to; at += SYSTEM_PAGE) {
        (void)job->image[at];
    }
}

static void touch(const model *m, pool *p)
{
    touch_job job = {.image = m->image, .n_bytes = m->plan.image_bytes};
    (void)madvise(m->image, (size_t)job.n_bytes, MADV_WILLNEED); /* a cold disk reads far ahead */
    pool_run(p, touch_task, &job, (size_t)((job.n_bytes + TOUCH_BYTES - 1) / TOUCH_BYTES));
}

/* Memory for the image. Huge pages: decode reads all of it for every token, and misses the address cache less. */
static status reserve(model *m, err *e)
{
    m->image = mem_reserve((size_t)m->plan.image_bytes);
    if (!m->image) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for %llu bytes of packed weights",
                       (unsigned long long)m->plan.image_bytes);
    }
    (void)madvise(m->image, (size_t)m->plan.image_bytes, MADV_HUGEPAGE);
    return ST_OK;
}

static status read_file(model *m, pool *p, const pack_file *f, err *e)
{
    status st = reserve(m, e);
    return st == ST_OK ? pack_file_read(f, &m->plan, p, m->image, e) : st;
}

static status map_file(model *m, pool *p, const pack_file *f, bool wait, err *e)
{
    status st = pack_file_map(f, &m->plan, &m->image, e);
    m->image_mapped = st == ST_OK;
    if (st == ST_OK && wait) {
        touch(m, p);
    }
    return st;
}

static status pack_with_file(model *m, pool *p, const model_pack_options *opt, const pack_progress *progress,
                             err *e)
{
    status st = pack_file_complete(opt->file, &m->plan, p, progress, e);
    if (st == ST_OK) {
        st = opt->huge_pages ? read_file(m, p, opt->file, e) : map_file(m, p, opt->file, opt->touch, e);
    }
    if (st == ST_OK) {
        m->has_digest = true;
        memcpy(m->digest, pack_file_digest(opt->file), SHA256_BYTES);
    }
    return st;
}

/* What has no packed kernel runs with the reference's. */
static void name_unpacked(const model *m)
{
    for (size_t i = 0; m->kern->set != KERN_REF && i < GGUF_TYPE_COUNT; i++) {
        if (m->plan.unpacked[i]) {
            log_emit(LOG_WARN, "model", "event=no_packed_kernel type=%s kernels=%s effect=slow",
                     gguf_type_info_of((uint32_t)i).name, m->kern->name);
        }
    }
}

status model_pack(model *m, pool *p, const model_pack_options *opt, err *e)
{
    const pack_progress progress = {opt->progress, opt->progress_ctx};
    err why;
    name_unpacked(m);
    if (m->packed) {
        return ST_OK;
    }
    err_clear(&why);
    status st = opt->file ? pack_with_file(m, p, opt, &progress, &why) : ST_NOT_FOUND;
    if (st != ST_OK) {
        if (opt->file) {
            log_emit(LOG_WARN, "pack", "event=packing_in_memory error=\"%s\"", why.msg);
        }
        model_unpack(m);
        st = reserve(m, e);
        if (st != ST_OK) {
            return st;
        }
        pack_fill_memory(&m->plan, p, m->image, &progress);
    }
    for (size_t i = 0; i < m->plan.n_items; i++) {
        const pack_item *item = &m->plan.items[i];
        weights_matrix(&m->w, m->hp.shape.n_layers, item->matrix)->packed =
            (unsigned char *)m->image + item->offset;
    }
    m->packed = true;
    return ST_OK;
}

const uint8_t *model_digest(const model *m)
{
    return m->has_digest ? m->digest : NULL;
}
