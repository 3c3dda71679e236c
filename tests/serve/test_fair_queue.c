/* fair_queue: orders computed by hand, positions against what then happens, bounds, memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test_main.h"
#include "serve/fair_queue.h"

#define MAX_ITEMS 64

typedef struct named {
    fair_item item; /* first */
    char name;
} named;

static named items[MAX_ITEMS];

static named *push_ranked(fair_queue *q, size_t i, uint32_t key, char name, int64_t rank)
{
    items[i] = (named){.item = {.key = key, .n_bytes = 1, .rank = rank}, .name = name};
    assert_int_equal(fair_queue_push(q, &items[i].item, NULL), ST_OK);
    return &items[i];
}

static named *push(fair_queue *q, size_t i, uint32_t key, char name)
{
    return push_ranked(q, i, key, name, 0);
}

/* "A0" pushes A for key 0, "A0:5" with rank 5, "-" pops, "!A" removes A; what is popped, in order, then what is left. */
static void orders(void **state)
{
    static const struct {
        const char *script, *popped;
    } rows[] = {
        {"", ""},
        {"A0 B0 C0", "ABC"},                 /* first come first served */
        {"A0 B0 C0 D1", "ADBC"},             /* the second key gets the second turn */
        {"A0 B0 C0 D1 E2 F2 G1", "ADEBGFC"}, /* round after round */
        {"A0 B0 C1 - D0", "ACBD"},           /* A is popped, then it is key 1's turn */
        {"A0 - B0 C1 - D0 E0", "ABCDE"},     /* key 0 leaves and comes again: behind key 1 */
        {"A0 B1 - C0 D1", "ABCD"},           /* 0 came again after 1: the turns go on 1 0 1 */
        {"A0 B0 C1 D1 !A", "BCD"},           /* a removal keeps the turn of the key */
        {"A0 B1 C1 !A", "BC"},               /* the last of a key takes its turn with it */
        {"A0 B1 C2 !B - D1", "ACD"},
        {"A0 B0 C0 !B", "AC"},
        {"A7 B4294967295 C7", "ABC"},
        {"A0:3 B0:1 C0:2 D0:1", "BDCA"}, /* the smallest rank, then who came first */
        {"A0:5 B0:6 - C0:-1 D0:5", "ACDB"},
        {"A0:1 B0:9 C1:5 D1:4", "ADBC"}, /* ranks of other keys are nothing to it */
        {"A0:2 B0:1 !B C0:3 D0:0", "DAC"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        fair_queue q;
        char popped[MAX_ITEMS + 1] = "";
        size_t n = 0, used = 0;
        fair_queue_init(&q, MAX_ITEMS, 1000);
        char script[128];
        snprintf(script, sizeof script, "%s", rows[r].script);
        for (char *word = strtok(script, " "); word; word = strtok(NULL, " ")) {
            if (word[0] == '-') {
                popped[n++] = ((named *)fair_queue_pop(&q))->name;
            } else if (word[0] == '!') {
                for (size_t i = 0; i < used; i++) {
                    if (items[i].name == word[1]) {
                        fair_queue_remove(&q, &items[i].item);
                        assert_null(items[i].item.of);
                    }
                }
            } else {
                char *colon;
                uint32_t key = (uint32_t)strtoul(word + 1, &colon, 10);
                push_ranked(&q, used++, key, word[0], *colon == ':' ? strtol(colon + 1, NULL, 10) : 0);
            }
        }
        for (fair_item *i; (i = fair_queue_pop(&q));) {
            popped[n++] = ((named *)i)->name;
        }
        popped[n] = 0;
        assert_string_equal(popped, rows[r].popped);
        assert_int_equal(q.n_items, 0);
        assert_int_equal(q.n_bytes, 0);
        fair_queue_release(&q);
    }
}

/* Whatever waits: the position is the number of pops. */
static void positions(void **state)
{
    uint32_t seed = 1;
    for (int round = 0; round < 200; round++) {
        fair_queue q;
        size_t expected[MAX_ITEMS], used = 0;
        fair_queue_init(&q, MAX_ITEMS, 1000);
        while (used < 40) {
            seed = seed * 1664525u + 1013904223u;
            push(&q, used++, seed >> 29, 'x');
            if ((seed >> 20 & 3) == 0) {
                fair_queue_pop(&q);
            }
        }
        for (size_t i = 0; i < used; i++) {
            expected[i] = items[i].item.of ? fair_queue_position(&q, &items[i].item) : 0;
        }
        size_t pops = 0;
        for (fair_item *i; (i = fair_queue_pop(&q));) {
            assert_int_equal(expected[(named *)i - items], ++pops);
        }
        assert_true(pops > 10);
    }
}

/* A key with many requests costs another one's first request one turn, not all of them. */
static void a_crowd_does_not_starve_the_others(void **state)
{
    fair_queue q;
    fair_queue_init(&q, MAX_ITEMS, 1000);
    for (size_t i = 0; i < 50; i++) {
        push(&q, i, 1, 'a');
    }
    named *late = push(&q, 50, 2, 'b');
    assert_int_equal(fair_queue_position(&q, &late->item), 2);
    fair_queue_release(&q);
}

static void bounds(void **state)
{
    fair_queue q;
    err e;
    fair_queue_init(&q, 2, 10);
    named big = {.item = {.key = 1, .n_bytes = 11}}, a = {.item = {.key = 1, .n_bytes = 10}},
          b = {.item = {.key = 2, .n_bytes = 1}}, c = {.item = {.key = 2}}, d = {.item = {.key = 3}};
    assert_int_equal(fair_queue_push(&q, &big.item, &e), ST_QUEUE_FULL);
    assert_int_equal(fair_queue_push(&q, &a.item, &e), ST_OK);
    assert_int_equal(fair_queue_push(&q, &b.item, &e), ST_QUEUE_FULL); /* one byte too many */
    assert_null(b.item.of);
    assert_int_equal(fair_queue_push(&q, &c.item, &e), ST_OK); /* exactly full */
    assert_int_equal(fair_queue_push(&q, &d.item, &e), ST_QUEUE_FULL);
    assert_non_null(strstr(e.msg, "2"));
    fair_queue_remove(&q, &a.item);
    assert_int_equal(fair_queue_push(&q, &b.item, &e), ST_OK); /* what left made room */
    fair_queue_release(&q);
    assert_null(c.item.of);
}

static void without_memory(void **state)
{
    fair_queue q;
    named a = {.item = {.key = 1, .n_bytes = 1}};
    fair_queue_init(&q, 2, 10);
    mem_fail_at(1, false);
    assert_int_equal(fair_queue_push(&q, &a.item, NULL), ST_NOMEM);
    mem_fail_at(0, false);
    assert_int_equal(q.n_items + q.n_bytes, 0);
    assert_int_equal(fair_queue_push(&q, &a.item, NULL), ST_OK);
    assert_ptr_equal(fair_queue_pop(&q), &a.item);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders),
        cmocka_unit_test(positions),
        cmocka_unit_test(a_crowd_does_not_starve_the_others),
        cmocka_unit_test(bounds),
        cmocka_unit_test(without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
