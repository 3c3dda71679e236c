/*
 * The known answers of Random123's kat_vectors, philox4x32 with 10 rounds.
 */
#include "base/test_main.h"

#include "base/philox.h"

static const struct {
    uint32_t ctr[4], key[2], out[4];
} known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void test_known_answers(void **state)
{
    for (size_t i = 0; i < N_OF(known); i++) {
        uint32_t out[4];
        philox4x32_10(known[i].ctr, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

/* The caller may reuse the counter's array for the result. */
static void test_in_place(void **state)
{
    uint32_t io[4] = {0, 0, 0, 0};
    philox4x32_10(io, known[0].key, io);
    assert_memory_equal(io, known[0].out, sizeof io);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
