#include "model/product.h"

#include <assert.h>

/* Columns that are worth a task: below that a matrix unit is set up more often than it computes. */
#define CHUNK_WORTH ((size_t)4 * KERN_PANEL)
/* Tasks per thread: enough that a slow thread does not hold up the rest, few enough that a task is real work.
 */
#define TASKS_PER_THREAD 6

typedef struct product_job {
    const kern_table *kern;
    const product *list;
    size_t n_list;
    size_t chunk;
    size_t first_task[PRODUCT_MAX + 1]; /* of each product; the last is the number of tasks */
} product_job;

/* n_columns in so many pieces: whole panels, the smallest chunk that kernels compute. */
static size_t panels_for(size_t n_columns, size_t n_pieces)
{
    size_t chunk = n_columns / n_pieces + (n_columns % n_pieces != 0);
    return (chunk + KERN_PANEL - 1) / KERN_PANEL * KERN_PANEL;
}

/* Columns per task if n_columns are shared by all threads: none of which is idle for the sake of larger tasks. */
static size_t chunk_of(const pool *p, size_t n_columns)
{
    size_t chunk = panels_for(n_columns, pool_threads(p) * TASKS_PER_THREAD);
    size_t most = panels_for(n_columns, pool_threads(p));
    size_t least = most < CHUNK_WORTH ? most : CHUNK_WORTH;
    return chunk < least ? least : chunk;
}

static size_t chunk_end(size_t n0, size_t chunk, size_t n)
{
    return n - n0 < chunk ? n : n0 + chunk;
}

static void product_columns(const kern_table *kern, const product *pr, size_t n0, size_t n1)
{
    kern->matmul[pr->w->type](pr->w, pr->act, n0, n1, pr->y, pr->y_stride);
    for (size_t r = 0; pr->add_to && r < pr->act->m; r++) {
        kern->add(pr->add_to + r * pr->add_stride + n0, pr->y + r * pr->y_stride + n0, n1 - n0);
    }
    for (size_t r = 0; pr->bad && r < pr->act->m; r++) {
        if (!kern->all_finite(pr->y + r * pr->y_stride + n0, n1 - n0)) {
            /* Several tasks may say so of one row; pool_run's end orders the stores before the caller's
             * loads. */
            __atomic_store_n(&pr->bad[r], 1, __ATOMIC_RELAXED);
        }
    }
}

static void product_task(void *arg, size_t task, size_t thread)
{
    const product_job *job = arg;
    size_t i = 0;
    (void)thread;
    while (task >= job->first_task[i + 1]) {
        i++;
    }
    size_t n0 = (task - job->first_task[i]) * job->chunk;
    product_columns(job->kern, &job->list[i], n0, chunk_end(n0, job->chunk, job->list[i].w->n));
}

void product_run(const kern_table *kern, pool *p, const product *list, size_t n_list)
{
    assert(n_list >= 1 && n_list <= PRODUCT_MAX);
    product_job job = {.kern = kern, .list = list, .n_list = n_list};
    size_t columns = 0;
    for (size_t i = 0; i < n_list; i++) {
        columns += list[i].w->n;
    }
    job.chunk = chunk_of(p, columns);
    for (size_t i = 0; i < n_list; i++) {
        size_t n_tasks = list[i].w->n / job.chunk + (list[i].w->n % job.chunk != 0);
        job.first_task[i + 1] = job.first_task[i] + n_tasks;
    }
    pool_run(p, product_task, &job, job.first_task[n_list]);
}

static void gated_task(void *arg, size_t task, size_t thread)
{
    const product_job *job = arg;
    const product *gate = &job->list[0];
    const product *up = &job->list[1];
    size_t n = gate->w->n;
    size_t n0 = task * job->chunk;
    size_t n1 = chunk_end(n0, job->chunk, n);
    (void)thread;
    product_columns(job->kern, gate, n0, n1);
    product_columns(job->kern, up, n0, n1);
    for (size_t r = 0; r < gate->act->m; r++) {
        float *y = gate->y + r * gate->y_stride + n0;
        job->kern->silu_mul(y, y, up->y + r * up->y_stride + n0, n1 - n0);
    }
}

void product_run_gated(const kern_table *kern, pool *p, const product *gate, const product *up)
{
    const product list[2] = {*gate, *up};
    product_job job = {.kern = kern, .list = list, .n_list = 2, .chunk = chunk_of(p, gate->w->n)};
    assert(gate->w->n == up->w->n && gate->act->m == up->act->m);
    pool_run(p, gated_task, &job, gate->w->n / job.chunk + (gate->w->n % job.chunk != 0));
}
