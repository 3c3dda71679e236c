#include "base/test_main.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "worker/inbox.h"

typedef struct rig {
    halt halt;
    bell bell;
    inbox *box;
} rig;

static void rig_open(rig *r)
{
    assert_int_equal(halt_open(&r->halt, NULL), ST_OK);
    assert_int_equal(bell_open(&r->bell, NULL), ST_OK);
    assert_int_equal(inbox_new(&r->bell, &r->box), ST_OK);
}

static void rig_close(rig *r)
{
    inbox_free(r->box);
    bell_close(&r->bell);
    halt_close(&r->halt);
}

/* An answer of len bytes that begins with its number. */
static inbox_item numbered(int number, size_t len)
{
    inbox_item item = {.answer_len = len};
    item.answer = mem_calloc(1, len < 16 ? 16 : len);
    assert_non_null(item.answer);
    snprintf(item.answer, 16, "%d", number);
    return item;
}

static void expect(rig *r, int number)
{
    char text[16];
    inbox_item item;
    snprintf(text, sizeof text, "%d", number);
    assert_true(inbox_take(r->box, &item));
    assert_string_equal(item.answer, text);
    inbox_item_release(&item);
}

static void test_order_and_end(void **state)
{
    rig r;
    inbox_item item;
    rig_open(&r);
    assert_false(inbox_take(r.box, &item));
    assert_false(inbox_ended(r.box));
    for (int i = 0; i < 10; i++) {
        item = numbered(i, 20);
        assert_int_equal(inbox_push(r.box, &item), ST_OK);
    }
    inbox_end(r.box);
    assert_false(inbox_ended(r.box)); /* what was read is still answered */
    for (int i = 0; i < 10; i++) {
        expect(&r, i);
    }
    assert_true(inbox_ended(r.box));
    assert_false(inbox_take(r.box, &item));
    bell_wait(&r.bell, &r.halt); /* rung: returns at once */
    rig_close(&r);
}

typedef struct pusher {
    rig *r;
    size_t n;
    size_t bytes;
    atomic_size_t pushed; /* relaxed: only looked at */
    atomic_bool closed;
} pusher;

static void *push_all(void *arg)
{
    pusher *p = arg;
    for (size_t i = 0; i < p->n; i++) {
        inbox_item item = numbered((int)i, p->bytes);
        if (inbox_push(p->r->box, &item) != ST_OK) {
            inbox_item_release(&item);
            atomic_store(&p->closed, true);
            break;
        }
        atomic_fetch_add(&p->pushed, 1);
    }
    return NULL;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* Waits until the pusher came to `want` items and makes sure that it goes no further. */
static void expect_stuck_at(pusher *p, size_t want)
{
    for (int naps = 0; atomic_load(&p->pushed) < want; naps++) {
        assert_true(naps < 10000);
        nap();
    }
    for (int naps = 0; naps < 30; naps++) {
        nap();
        assert_int_equal(atomic_load(&p->pushed), want);
    }
}

static void test_bounded_in_number(void **state)
{
    rig r;
    pthread_t t;
    rig_open(&r);
    pusher p = {.r = &r, .n = INBOX_MAX_ITEMS + 5, .bytes = 16};
    assert_int_equal(pthread_create(&t, NULL, push_all, &p), 0);
    expect_stuck_at(&p, INBOX_MAX_ITEMS);
    assert_int_equal(inbox_len(r.box), INBOX_MAX_ITEMS);
    expect(&r, 0); /* one ends: one more is read */
    expect_stuck_at(&p, INBOX_MAX_ITEMS + 1);
    for (int i = 1; i < INBOX_MAX_ITEMS + 5; i++) {
        while (inbox_len(r.box) == 0) {
            nap();
        }
        expect(&r, i);
    }
    pthread_join(t, NULL);
    rig_close(&r);
}

static void test_bounded_in_bytes(void **state)
{
    rig r;
    pthread_t t;
    rig_open(&r);
    pusher p = {.r = &r, .n = 6, .bytes = INBOX_MAX_BYTES / 4};
    assert_int_equal(pthread_create(&t, NULL, push_all, &p), 0);
    expect_stuck_at(&p, 4);
    expect(&r, 0);
    expect_stuck_at(&p, 5);
    for (int i = 1; i < 6; i++) {
        while (inbox_len(r.box) == 0) {
            nap();
        }
        expect(&r, i);
    }
    pthread_join(t, NULL);
    inbox_item huge = numbered(9, INBOX_MAX_BYTES + 1); /* one of any size always fits */
    assert_int_equal(inbox_push(r.box, &huge), ST_OK);
    p = (pusher){.r = &r, .n = 1, .bytes = 16};
    assert_int_equal(pthread_create(&t, NULL, push_all, &p), 0);
    expect_stuck_at(&p, 0); /* but nothing beside it */
    expect(&r, 9);
    pthread_join(t, NULL);
    expect(&r, 0);
    rig_close(&r);
}

static void test_abort(void **state)
{
    rig r;
    pthread_t t;
    rig_open(&r);
    pusher p = {.r = &r, .n = INBOX_MAX_ITEMS + 1, .bytes = 16};
    assert_int_equal(pthread_create(&t, NULL, push_all, &p), 0);
    expect_stuck_at(&p, INBOX_MAX_ITEMS);
    inbox_abort(r.box); /* wakes the reader, whose item stays its own */
    pthread_join(t, NULL);
    assert_true(atomic_load(&p.closed));
    inbox_item item = numbered(1, 16);
    assert_false(inbox_take(r.box, &(inbox_item){0}));
    assert_int_equal(inbox_push(r.box, &item), ST_CLOSED);
    inbox_item_release(&item);
    rig_close(&r); /* frees what was left */
    inbox_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_end),
        cmocka_unit_test(test_bounded_in_number),
        cmocka_unit_test(test_bounded_in_bytes),
        cmocka_unit_test(test_abort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
