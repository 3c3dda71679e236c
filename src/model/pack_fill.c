#include "model/pack_fill.h"

#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "kern/pack.h"

#define SYSTEM_PAGE 4096u

/* The tasks of one step: chores first, then its slices. */
typedef struct fill_job {
    const pack_plan *plan;
    const pack_step *step;
    unsigned char *out; /* where image_from of the step goes */
    /* Chores, if this is a stream */
    size_t n_chores;
    const pack_sink *sink;
    sha256 *hash;
    const void *ready; /* of the step before; n_ready bytes */
    size_t n_ready;
    status written; /* of the write chore, with its error */
    err write_error;
    status hashed;
} fill_job;

enum { CHORE_WRITE, CHORE_HASH, N_CHORES };

static const unsigned char *source_of(const pack_plan *plan, const pack_step *s)
{
    uint64_t n;
    return (const unsigned char *)gguf_part_bytes(plan->file, s->part, &n) + s->from;
}

static void write_chore(fill_job *job)
{
    if (job->n_ready > 0) {
        job->written = job->sink->write(job->sink->ctx, job->ready, job->n_ready, &job->write_error);
    }
}

static void hash_chore(fill_job *job)
{
    job->hashed =
        sha256_update(job->hash, source_of(job->plan, job->step), (size_t)(job->step->to - job->step->from));
}

static void fill_task(void *arg, size_t task, size_t thread)
{
    fill_job *job = arg;
    (void)thread;
    if (task < job->n_chores) {
        if (task == CHORE_WRITE) {
            write_chore(job);
        } else {
            hash_chore(job);
        }
        return;
    }
    const pack_slice *s = &job->plan->slices[job->step->slice0 + task - job->n_chores];
    kern_pack(s->item->w, s->p0, s->p1, job->out + (pack_slice_offset(s) - job->step->image_from));
}

/* The mapping's pages of a step that is done leave this process (not the page cache). */
static void give_back(const pack_plan *plan, const pack_step *s)
{
    uint64_t n;
    const unsigned char *bytes = gguf_part_bytes(plan->file, s->part, &n);
    uint64_t from = s->from / SYSTEM_PAGE * SYSTEM_PAGE, to = s->to / SYSTEM_PAGE * SYSTEM_PAGE;
    if (to > from) { /* read-only and of a file: the bytes are there when they are asked for again */
        (void)madvise((void *)(uintptr_t)(bytes + from), (size_t)(to - from), MADV_DONTNEED);
    }
}

static void run_step(fill_job *job, pool *p)
{
    size_t n_slices = job->step->slice1 - job->step->slice0;
    pool_run(p, fill_task, job, job->n_chores + n_slices);
    give_back(job->plan, job->step);
}

static void report(const pack_plan *plan, const pack_progress *progress, size_t n_done)
{
    if (progress->report) {
        progress->report(progress->ctx, (double)n_done / (double)plan->n_steps);
    }
}

void pack_fill_memory(const pack_plan *plan, pool *p, void *image, const pack_progress *progress)
{
    for (size_t i = 0; i < plan->n_steps; i++) {
        const pack_step *s = &plan->steps[i];
        fill_job job = {.plan = plan, .step = s, .out = (unsigned char *)image + s->image_from};
        if (s->slice0 < s->slice1) {
            run_step(&job, p);
            report(plan, progress, i + 1);
        }
    }
}

static size_t largest_step(const pack_plan *plan)
{
    uint64_t most = 1;
    for (size_t i = 0; i < plan->n_steps; i++) {
        uint64_t n = plan->steps[i].image_to - plan->steps[i].image_from;
        most = n > most ? n : most;
    }
    return (size_t)most;
}

static status stream_steps(fill_job *job, pool *p, unsigned char *buffers[2], const pack_progress *progress)
{
    const pack_plan *plan = job->plan;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const pack_step *s = &plan->steps[i];
        size_t n = (size_t)(s->image_to - s->image_from);
        job->step = s;
        job->out = buffers[i % 2];
        size_t tail = n < PACK_ALIGN ? n : PACK_ALIGN;
        memset(job->out + n - tail, 0, tail); /* some of it may only fill up to the next matrix */
        run_step(job, p);
        if (job->written != ST_OK || job->hashed != ST_OK) {
            break;
        }
        job->ready = job->out;
        job->n_ready = n;
        report(plan, progress, i + 1);
    }
    if (job->written == ST_OK && job->hashed == ST_OK) {
        write_chore(job);
    }
    return job->written != ST_OK ? job->written : job->hashed;
}

status pack_fill_stream(const pack_plan *plan, pool *p, const pack_sink *sink, const pack_progress *progress,
                        uint8_t digest[SHA256_BYTES], err *e)
{
    size_t n = largest_step(plan);
    fill_job job = {.plan = plan, .n_chores = N_CHORES, .sink = sink};
    unsigned char *buffers[2] = {mem_alloc_aligned(PACK_ALIGN, n), mem_alloc_aligned(PACK_ALIGN, n)};
    status st = buffers[0] && buffers[1] ? sha256_new(&job.hash) : ST_NOMEM;
    if (st == ST_OK) {
        st = stream_steps(&job, p, buffers, progress);
    }
    if (st == ST_OK) {
        st = sha256_final(job.hash, digest);
    }
    sha256_free(job.hash);
    mem_free(buffers[0]);
    mem_free(buffers[1]);
    if (job.written != ST_OK) {
        if (e) {
            *e = job.write_error;
        }
        return job.written;
    }
    return st == ST_OK ? ST_OK : err_set(e, st, NULL, "out of memory for packing");
}
