#include "model/product.h"

#include <assert.h>

/* Columns that are worth a task: below that a matrix unit is set up more often than it computes. */
#define CHUNK_WORTH ((size_t)4 * KERN_PANEL)
/* Tasks become smaller towards the end, so that no thread waits long for another one's last: per thread some of four
 * chunks each, then two of two, then four of one. */
#define CHUNKS_PER_THREAD 24
#define PAIRS_PER_THREAD  2
#define ONES_PER_THREAD   4

/* Parts of a row to prepare that a thread has at least, where tasks are made of such. */
#define PREPARE_WORTH 4

/* Columns [0, n) in tasks: n_fours of four chunks (the last of which may be shorter), n_pairs, n_ones. */
typedef struct cut {
    size_t n;
    size_t chunk;
    size_t n_fours;
    size_t n_pairs;
    size_t n_ones;
} cut;

typedef struct product_job {
    const kern_table *kern;
    const product *list;
    size_t n_list;
    cut cut; /* of the products' columns, one product's after the other's */
} product_job;

static size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

static size_t multiple(size_t n, size_t of)
{
    return (n + of - 1) / of * of;
}

/* step: what chunks are a multiple of, a multiple of KERN_PANEL. */
static cut cut_of(const pool *p, size_t n, size_t step)
{
    size_t threads = pool_threads(p);
    size_t wanted = CHUNKS_PER_THREAD * threads;
    size_t chunk = multiple((n + wanted - 1) / wanted, step);
    size_t most = multiple((n + threads - 1) / threads, step); /* none is idle for the sake of larger tasks */
    size_t least = at_most(CHUNK_WORTH, most);
    cut c = {.n = n, .chunk = chunk < least ? multiple(least, step) : chunk};
    size_t left = (n + c.chunk - 1) / c.chunk;
    c.n_ones = at_most(left, ONES_PER_THREAD * threads);
    left -= c.n_ones;
    c.n_pairs = at_most(left / 2, PAIRS_PER_THREAD * threads);
    left -= 2 * c.n_pairs;
    c.n_fours = (left + 3) / 4;
    return c;
}

static size_t cut_tasks(const cut *c)
{
    return c->n_fours + c->n_pairs + c->n_ones;
}

/* Where a task begins; that of the one behind the last is n. */
static size_t cut_begin(const cut *c, size_t task)
{
    if (task >= cut_tasks(c)) {
        return c->n;
    }
    size_t all = (c->n + c->chunk - 1) / c->chunk;
    if (task < c->n_fours) {
        return 4 * task * c->chunk;
    }
    task -= c->n_fours;
    size_t ones = all - c->n_ones;
    return (task < c->n_pairs ? ones - 2 * (c->n_pairs - task) : ones + task - c->n_pairs) * c->chunk;
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
    const size_t begin = cut_begin(&job->cut, task), end = cut_begin(&job->cut, task + 1);
    size_t first = 0; /* column of a product */
    (void)thread;
    for (size_t i = 0; i < job->n_list && first < end; i++) {
        const size_t n = job->list[i].w->n, width = multiple(n, KERN_PANEL);
        const size_t n0 = begin > first ? begin - first : 0, n1 = at_most(end - first, n);
        if (n0 < n1) {
            product_columns(job->kern, &job->list[i], n0, n1);
        }
        first += width;
    }
}

void product_run(const kern_table *kern, pool *p, const product *list, size_t n_list)
{
    assert(n_list >= 1 && n_list <= PRODUCT_MAX);
    product_job job = {.kern = kern, .list = list, .n_list = n_list};
    size_t n = 0;
    for (size_t i = 0; i < n_list; i++) {
        n += multiple(list[i].w->n, KERN_PANEL);
    }
    job.cut = cut_of(p, n, KERN_PANEL);
    pool_run(p, product_task, &job, cut_tasks(&job.cut));
}

typedef struct gated_job {
    product_job job; /* gate, up */
    kern_act *to;    /* or NULL */
    uint8_t *bad;
} gated_job;

static void gated_task(void *arg, size_t task, size_t thread)
{
    const gated_job *g = arg;
    const kern_table *kern = g->job.kern;
    const product *gate = &g->job.list[0];
    const product *up = &g->job.list[1];
    const size_t n0 = cut_begin(&g->job.cut, task), n1 = cut_begin(&g->job.cut, task + 1);
    (void)thread;
    product_columns(kern, gate, n0, n1);
    product_columns(kern, up, n0, n1);
    for (size_t r = 0; r < gate->act->m; r++) {
        float *y = gate->y + r * gate->y_stride;
        kern->silu_mul(y + n0, y + n0, up->y + r * up->y_stride + n0, n1 - n0);
        if (g->to) {
            kern->act_prepare(g->to, y, r, n0, n1, g->bad);
        }
    }
}

bool product_run_gated(const kern_table *kern, pool *p, const product *gate, const product *up, kern_act *to,
                       uint8_t *bad)
{
    const product list[2] = {*gate, *up};
    const bool prepares = gate->w->n >= PREPARE_WORTH * KERN_ACT_STEP * pool_threads(p);
    const size_t step = prepares ? KERN_ACT_STEP : KERN_PANEL;
    gated_job g = {{kern, list, 2, cut_of(p, gate->w->n, step)}, prepares ? to : NULL, bad};
    assert(gate->w->n == up->w->n && gate->act->m == up->act->m);
    pool_run(p, gated_task, &g, cut_tasks(&g.job.cut));
    return prepares;
}
