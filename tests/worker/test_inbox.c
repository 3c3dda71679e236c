#include "base/test_main.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

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
    assert_int_equal(inbox_new(&r->bell, &r->box, NULL), ST_OK);
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

static status push(rig *r, int number, size_t len)
{
    inbox_item item = numbered(number, len);
    status st = inbox_push(r->box, &item);
    if (st != ST_OK) {
        inbox_item_release(&item); /* it stays the caller's */
    }
    return st;
}

/* Takes one, which must be `number`; it still counts. Returns what for. */
static size_t take(rig *r, int number)
{
    char text[16];
    inbox_item item;
    snprintf(text, sizeof text, "%d", number);
    assert_true(inbox_take(r->box, &item));
    assert_string_equal(item.answer, text);
    size_t bytes = item.bytes;
    inbox_item_release(&item);
    return bytes;
}

static bool readable(int fd)
{
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) > 0;
}

static void test_order_and_end(void **state)
{
    rig r;
    inbox_item item;
    rig_open(&r);
    assert_false(inbox_take(r.box, &item));
    assert_false(inbox_ended(r.box));
    for (int i = 0; i < 10; i++) {
        assert_int_equal(push(&r, i, 20), ST_OK);
    }
    inbox_end(r.box);
    assert_false(inbox_ended(r.box)); /* what was read is still taken */
    for (int i = 0; i < 10; i++) {
        assert_int_equal(take(&r, i), 20);
    }
    assert_true(inbox_ended(r.box));
    assert_false(inbox_take(r.box, &item));
    assert_int_equal(inbox_waiting(r.box), 10); /* taken, and still waiting */
    bell_wait(&r.bell, &r.halt, BELL_FOREVER);  /* rung: returns at once */
    rig_close(&r);
}

static void test_bounded_in_number(void **state)
{
    rig r;
    rig_open(&r);
    for (int i = 0; i < INBOX_MAX_ITEMS; i++) {
        assert_int_equal(push(&r, i, 16), ST_OK);
    }
    assert_int_equal(push(&r, -1, 16), ST_FULL);
    size_t bytes = take(&r, 0);
    assert_int_equal(push(&r, -1, 16), ST_FULL); /* taken is not begun */
    assert_false(readable(inbox_room_fd(r.box)));
    inbox_forget(r.box, bytes);
    assert_true(readable(inbox_room_fd(r.box)));
    assert_true(inbox_heard_room(r.box));
    assert_false(readable(inbox_room_fd(r.box)));
    assert_int_equal(push(&r, INBOX_MAX_ITEMS, 16), ST_OK); /* one is begun: one more is read */
    assert_int_equal(push(&r, -1, 16), ST_FULL);
    for (int i = 1; i <= INBOX_MAX_ITEMS; i++) {
        inbox_forget(r.box, take(&r, i));
    }
    assert_int_equal(inbox_waiting(r.box), 0);
    rig_close(&r);
}

static void test_bounded_in_bytes(void **state)
{
    rig r;
    rig_open(&r);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(push(&r, i, INBOX_MAX_BYTES / 4), ST_OK);
    }
    assert_int_equal(push(&r, -1, 1), ST_FULL);
    inbox_forget(r.box, take(&r, 0));
    assert_int_equal(push(&r, 4, INBOX_MAX_BYTES / 4), ST_OK);
    assert_int_equal(push(&r, -1, 1), ST_FULL);
    for (int i = 1; i < 5; i++) {
        inbox_forget(r.box, take(&r, i));
    }
    assert_int_equal(push(&r, 9, INBOX_MAX_BYTES + 1), ST_OK); /* one of any size always fits */
    assert_int_equal(push(&r, -1, 1), ST_FULL);                /* but nothing beside it */
    inbox_forget(r.box, take(&r, 9));
    assert_int_equal(push(&r, 0, 1), ST_OK);
    rig_close(&r); /* frees what was left */
}

static void test_abort(void **state)
{
    rig r;
    inbox_item item;
    rig_open(&r);
    assert_int_equal(push(&r, 1, 16), ST_OK);
    inbox_abort(r.box);
    assert_true(readable(inbox_room_fd(r.box))); /* wakes the reader */
    assert_false(inbox_heard_room(r.box));
    assert_false(inbox_take(r.box, &item));
    assert_int_equal(push(&r, 2, 16), ST_CLOSED);
    rig_close(&r);
    inbox_free(NULL);
}

/* A reader and an engine: everything arrives once and in order, and the reader is woken whenever it waits. */
#define N_SENT 20000

static void *push_all(void *arg)
{
    rig *r = arg;
    for (int i = 0; i < N_SENT; i++) {
        inbox_item item = numbered(i, 16);
        while (inbox_push(r->box, &item) == ST_FULL) {
            struct pollfd room = {.fd = inbox_room_fd(r->box), .events = POLLIN};
            poll(&room, 1, -1);
            inbox_heard_room(r->box);
        }
    }
    inbox_end(r->box);
    return NULL;
}

static void test_two_threads(void **state)
{
    rig r;
    pthread_t t;
    rig_open(&r);
    assert_int_equal(pthread_create(&t, NULL, push_all, &r), 0);
    for (int i = 0; i < N_SENT;) {
        inbox_item item;
        if (!inbox_take(r.box, &item)) {
            bell_wait(&r.bell, &r.halt, BELL_FOREVER);
            continue;
        }
        char text[16];
        snprintf(text, sizeof text, "%d", i++);
        assert_string_equal(item.answer, text);
        inbox_forget(r.box, item.bytes);
        inbox_item_release(&item);
    }
    pthread_join(t, NULL);
    assert_true(inbox_ended(r.box));
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_end),    cmocka_unit_test(test_bounded_in_number),
        cmocka_unit_test(test_bounded_in_bytes), cmocka_unit_test(test_abort),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
