#include "base/test_main.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/queue.h"

typedef struct item {
    uint32_t producer, number;
    char pad[5]; /* an odd size: items lie unaligned in the ring */
} item;

static void test_order_and_bounds(void **state)
{
    queue *q = NULL;
    assert_int_equal(queue_new(3, sizeof(item), &q), ST_OK);
    item got = {0};
    assert_int_equal(queue_pop(q, &got, 0), ST_NOT_FOUND);
    uint32_t in = 0, out = 0;
    for (int round = 0; round < 10; round++) { /* the ring wraps at every offset */
        while (queue_len(q) < 3) {
            item it = {1, in++, "abcd"};
            assert_int_equal(queue_push(q, &it, 0), ST_OK);
        }
        assert_int_equal(queue_push(q, &got, 0), ST_FULL);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(queue_pop(q, &got, 0), ST_OK);
            assert_int_equal(got.number, out++);
            assert_string_equal(got.pad, "abcd");
        }
    }
    queue_free(q);
    queue_free(NULL);
}

static void test_timeouts(void **state)
{
    queue *q = NULL;
    int v = 1;
    assert_int_equal(queue_new(1, sizeof v, &q), ST_OK);
    uint64_t t0 = clock_mono_ns(clock_system());
    assert_int_equal(queue_pop(q, &v, 30), ST_NOT_FOUND);
    uint64_t t1 = clock_mono_ns(clock_system());
    assert_true(clock_ms_between(t0, t1) >= 29.0);
    assert_int_equal(queue_push(q, &v, 30), ST_OK);
    assert_int_equal(queue_push(q, &v, 1030), ST_FULL); /* crosses a second in the deadline's arithmetic */
    assert_true(clock_ms_between(t1, clock_mono_ns(clock_system())) >= 1029.0);
    queue_free(q);
}

static void test_close(void **state)
{
    queue *q = NULL;
    int v = 5;
    assert_int_equal(queue_new(4, sizeof v, &q), ST_OK);
    assert_int_equal(queue_push(q, &v, 0), ST_OK);
    queue_close(q);
    queue_close(q);
    assert_int_equal(queue_push(q, &v, QUEUE_FOREVER), ST_CLOSED);
    v = 0;
    assert_int_equal(queue_pop(q, &v, QUEUE_FOREVER), ST_OK); /* what is left is handed out */
    assert_int_equal(v, 5);
    assert_int_equal(queue_pop(q, &v, QUEUE_FOREVER), ST_CLOSED);
    queue_free(q);
}

static void *pop_forever(void *arg)
{
    int v;
    status st = queue_pop(arg, &v, QUEUE_FOREVER);
    return st == ST_CLOSED ? arg : NULL;
}

static void *push_forever(void *arg)
{
    int v = 1;
    status st = queue_push(arg, &v, QUEUE_FOREVER);
    return st == ST_CLOSED ? arg : NULL;
}

/* Closing wakes whoever waits, on either side. */
static void test_close_wakes(void **state)
{
    for (int full = 0; full < 2; full++) {
        queue *q = NULL;
        int v = 0;
        pthread_t t[3];
        assert_int_equal(queue_new(1, sizeof v, &q), ST_OK);
        if (full) {
            assert_int_equal(queue_push(q, &v, 0), ST_OK);
        }
        for (size_t i = 0; i < N_OF(t); i++) {
            assert_int_equal(pthread_create(&t[i], NULL, full ? push_forever : pop_forever, q), 0);
        }
        nanosleep(&(struct timespec){0, 20000000}, NULL); /* most likely they wait by now; right either way */
        queue_close(q);
        for (size_t i = 0; i < N_OF(t); i++) {
            void *r = NULL;
            assert_int_equal(pthread_join(t[i], &r), 0);
            assert_ptr_equal(r, q);
        }
        queue_free(q);
    }
}

#define N_SIDES 3
#define N_EACH  4000

typedef struct side {
    queue *q;
    uint32_t id;
    uint64_t n, sum;
    bool in_order;
} side;

static void *produce(void *arg)
{
    side *s = arg;
    for (uint32_t i = 0; i < N_EACH; i++) {
        item it = {s->id, i, ""};
        if (queue_push(s->q, &it, QUEUE_FOREVER) != ST_OK) {
            break;
        }
    }
    return NULL;
}

static void *consume(void *arg)
{
    side *s = arg;
    item it;
    int64_t last[N_SIDES] = {-1, -1, -1};
    s->in_order = true;
    while (queue_pop(s->q, &it, QUEUE_FOREVER) == ST_OK) {
        s->n++;
        s->sum += it.number;
        s->in_order = s->in_order && (int64_t)it.number > last[it.producer];
        last[it.producer] = it.number;
    }
    return NULL;
}

/* Nothing is lost or doubled, and what one consumer sees of one producer is in order. */
static void test_many_threads(void **state)
{
    queue *q = NULL;
    side in[N_SIDES] = {{0}}, out[N_SIDES] = {{0}};
    pthread_t tin[N_SIDES], tout[N_SIDES];
    uint64_t n = 0, sum = 0;
    assert_int_equal(queue_new(7, sizeof(item), &q), ST_OK);
    for (uint32_t i = 0; i < N_SIDES; i++) {
        in[i] = out[i] = (side){.q = q, .id = i};
        assert_int_equal(pthread_create(&tout[i], NULL, consume, &out[i]), 0);
        assert_int_equal(pthread_create(&tin[i], NULL, produce, &in[i]), 0);
    }
    for (size_t i = 0; i < N_SIDES; i++) {
        pthread_join(tin[i], NULL);
    }
    queue_close(q);
    for (size_t i = 0; i < N_SIDES; i++) {
        pthread_join(tout[i], NULL);
        assert_true(out[i].in_order);
        n += out[i].n;
        sum += out[i].sum;
    }
    assert_int_equal(n, N_SIDES * N_EACH);
    assert_true(sum == (uint64_t)N_SIDES * N_EACH * (N_EACH - 1) / 2);
    queue_free(q);
}

static void test_nomem(void **state)
{
    queue *q = NULL;
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_at(n, false);
        assert_int_equal(queue_new(4, 4, &q), ST_NOMEM);
        mem_fail_at(0, false);
    }
    assert_int_equal(queue_new(SIZE_MAX / 2, 4, &q), ST_NOMEM);
    assert_null(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_bounds),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_close_wakes),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_nomem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
