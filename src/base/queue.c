#include "base/queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

struct queue {
    pthread_mutex_t mu;
    pthread_cond_t not_empty; /* monotonic clock */
    pthread_cond_t not_full;  /* monotonic clock */
    size_t capacity;
    size_t item_bytes;
    char *items; /* owned [capacity][item_bytes]; guarded by mu */
    /* guarded by mu */
    size_t first, len;
    bool closed;
};

static int cond_init_monotonic(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc) {
        return rc;
    }
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (!rc) {
        rc = pthread_cond_init(c, &attr);
    }
    pthread_condattr_destroy(&attr);
    return rc;
}

status queue_new(size_t capacity, size_t item_bytes, queue **out)
{
    queue *q = mem_calloc(1, sizeof *q);
    if (!q || capacity == 0) {
        mem_free(q);
        return capacity == 0 ? ST_INTERNAL : ST_NOMEM;
    }
    q->items = mem_alloc_array(capacity, item_bytes);
    if (!q->items) {
        goto fail;
    }
    if (pthread_mutex_init(&q->mu, NULL)) {
        goto fail;
    }
    if (cond_init_monotonic(&q->not_empty)) {
        goto fail_mutex;
    }
    if (cond_init_monotonic(&q->not_full)) {
        goto fail_cond;
    }
    q->capacity = capacity;
    q->item_bytes = item_bytes;
    *out = q;
    return ST_OK;
fail_cond:
    pthread_cond_destroy(&q->not_empty);
fail_mutex:
    pthread_mutex_destroy(&q->mu);
fail:
    mem_free(q->items);
    mem_free(q);
    return ST_NOMEM;
}

void queue_free(queue *q)
{
    if (q) {
        pthread_cond_destroy(&q->not_full);
        pthread_cond_destroy(&q->not_empty);
        pthread_mutex_destroy(&q->mu);
        mem_free(q->items);
        mem_free(q);
    }
}

void queue_close(queue *q)
{
    pthread_mutex_lock(&q->mu);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->mu);
}

static struct timespec deadline_in(int timeout_ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* the conditions' own clock, so not the replaceable one */
    t.tv_sec += timeout_ms / 1000;
    t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

/* One wait on c; false when the time is over. */
static bool wait_locked(queue *q, pthread_cond_t *c, int timeout_ms, const struct timespec *deadline)
{
    if (timeout_ms == 0) {
        return false;
    }
    if (timeout_ms < 0) {
        pthread_cond_wait(c, &q->mu);
        return true;
    }
    return pthread_cond_timedwait(c, &q->mu, deadline) != ETIMEDOUT;
}

status queue_push(queue *q, const void *item, int timeout_ms)
{
    struct timespec deadline = deadline_in(timeout_ms > 0 ? timeout_ms : 0);
    status st = ST_OK;
    bool in_time = true;
    pthread_mutex_lock(&q->mu);
    while (in_time && !q->closed && q->len == q->capacity) {
        in_time = wait_locked(q, &q->not_full, timeout_ms, &deadline);
    }
    if (q->closed) {
        st = ST_CLOSED;
    } else if (q->len == q->capacity) {
        st = ST_FULL;
    } else {
        size_t at = (q->first + q->len) % q->capacity;
        memcpy(q->items + at * q->item_bytes, item, q->item_bytes);
        q->len++;
        pthread_cond_signal(&q->not_empty);
    }
    pthread_mutex_unlock(&q->mu);
    return st;
}

status queue_pop(queue *q, void *item, int timeout_ms)
{
    struct timespec deadline = deadline_in(timeout_ms > 0 ? timeout_ms : 0);
    status st = ST_OK;
    bool in_time = true;
    pthread_mutex_lock(&q->mu);
    while (in_time && !q->closed && q->len == 0) {
        in_time = wait_locked(q, &q->not_empty, timeout_ms, &deadline);
    }
    if (q->len > 0) {
        memcpy(item, q->items + q->first * q->item_bytes, q->item_bytes);
        q->first = (q->first + 1) % q->capacity;
        q->len--;
        pthread_cond_signal(&q->not_full);
    } else {
        st = q->closed ? ST_CLOSED : ST_NOT_FOUND;
    }
    pthread_mutex_unlock(&q->mu);
    return st;
}

size_t queue_len(queue *q)
{
    pthread_mutex_lock(&q->mu);
    size_t n = q->len;
    pthread_mutex_unlock(&q->mu);
    return n;
}
