/*
 * fp16: every half and every bfloat16 against a computation in double (ldexp), every rounding boundary
 * between two neighbours from both sides, and where the compiler has _Float16 a sweep over floats against it.
 */
#include "base/test_main.h"

#include <fenv.h>
#include <math.h>

#include "base/fp16.h"
#include "base/le.h"

/* IEEE 754-2008, 3.4: the value of a finite binary16. */
static double half_value(uint16_t h)
{
    int exp = h >> 10 & 0x1F;
    int man = h & 0x3FF;
    double v = exp ? ldexp(1024 + man, exp - 25) : ldexp(man, -24);
    return h & 0x8000 ? -v : v;
}

static void test_widen_all(void **state)
{
    for (uint32_t i = 0; i < 0x10000; i++) {
        uint16_t h = (uint16_t)i;
        float f = fp16_to_f32(h);
        if ((h & 0x7C00) != 0x7C00) {
            assert_true((double)f == half_value(h));
            assert_int_equal(signbit(f) != 0, h >> 15);
            assert_int_equal(fp16_from_f32(f), h);
        } else if ((h & 0x3FF) == 0) {
            assert_true(isinf(f));
            assert_int_equal(signbit(f) != 0, h >> 15);
            assert_int_equal(fp16_from_f32(f), h);
        } else {
            assert_true(isnan(f));
            assert_true(f32_bits(f) & 0x00400000u); /* quiet */
            uint16_t back = fp16_from_f32(f);
            assert_true((back & 0x7C00) == 0x7C00 && (back & 0x200) != 0);
            assert_int_equal(back >> 15, h >> 15);
        }
    }
}

/* Halfway between neighbours goes to the even one, a hair beside it to the nearer one. */
static void test_round_all_boundaries(void **state)
{
    for (uint16_t lo = 0; lo < 0x7C00; lo++) {
        uint16_t hi = (uint16_t)(lo + 1);
        double hi_value = hi == 0x7C00 ? 65536.0 : half_value(hi); /* rounding goes as if 65536 were a half */
        float mid = (float)((half_value(lo) + hi_value) / 2);      /* exact: one more bit */
        uint16_t even = lo & 1 ? hi : lo;
        assert_int_equal(fp16_from_f32(mid), even);
        assert_int_equal(fp16_from_f32(-mid), even | 0x8000);
        assert_int_equal(fp16_from_f32(nextafterf(mid, 0)), lo);
        assert_int_equal(fp16_from_f32(nextafterf(mid, INFINITY)), hi);
        assert_int_equal(fp16_from_f32(-nextafterf(mid, INFINITY)), hi | 0x8000);
    }
}

static void test_narrow_limits(void **state)
{
    static const struct {
        float f;
        uint16_t h;
    } cases[] = {
        {65504.0f, 0x7BFF}, {65519.996f, 0x7BFF}, {65520.0f, 0x7C00}, {1e10f, 0x7C00},
        {INFINITY, 0x7C00}, {0x1p-24f, 0x0001},   {0x1p-25f, 0x0000}, {0x1p-26f, 0x0000},
        {0x1p-149f, 0},     {-0x1p-149f, 0x8000}, {-0.0f, 0x8000},    {0x1.000002p-25f, 0x0001},
        {1.0f, 0x3C00},     {-2.0f, 0xC000},      {0x1p-14f, 0x0400},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        assert_int_equal(fp16_from_f32(cases[i].f), cases[i].h);
    }
    assert_int_equal(fp16_from_f32(f32_from_bits(0x7FC12345)) & 0x7E00, 0x7E00);
    assert_int_equal(fp16_from_f32(f32_from_bits(0xFF800001)) & 0xFE00,
                     0xFE00); /* signalling becomes quiet */
}

static void test_against_compiler(void **state)
{
#ifdef __FLT16_MAX__
    for (uint64_t u = 0; u < UINT64_C(1) << 32; u += 4093) { /* a prime: all low bit patterns come by */
        float f = f32_from_bits((uint32_t)u);
        if (!isnan(f)) {
            _Float16 h = (_Float16)f;
            uint16_t bits;
            memcpy(&bits, &h, sizeof bits);
            assert_int_equal(fp16_from_f32(f), bits);
        }
    }
#else
    skip();
#endif
}

static void test_bf16_all(void **state)
{
    for (uint32_t i = 0; i < 0x10000; i++) {
        uint16_t b = (uint16_t)i;
        float f = bf16_to_f32(b);
        assert_int_equal(f32_bits(f), i << 16); /* bfloat16 is the upper half of binary32 */
        uint16_t back = bf16_from_f32(f);
        if (isnan(f)) {
            assert_true(isnan(bf16_to_f32(back)));
            assert_true(back & 0x40);
        } else {
            assert_int_equal(back, b);
        }
    }
    for (uint16_t lo = 0; lo < 0x7F80; lo++) {
        uint32_t mid = ((uint32_t)lo << 16) + 0x8000;
        uint16_t hi = (uint16_t)(lo + 1);
        assert_int_equal(bf16_from_f32(f32_from_bits(mid)), lo & 1 ? hi : lo);
        assert_int_equal(bf16_from_f32(f32_from_bits(mid - 1)), lo);
        assert_int_equal(bf16_from_f32(f32_from_bits(mid + 1)), hi);
        assert_int_equal(bf16_from_f32(f32_from_bits(mid + 1) * -1.0f), hi | 0x8000);
    }
    assert_true(
        isnan(bf16_to_f32(bf16_from_f32(f32_from_bits(0x7F800001))))); /* payload only in the lower half */
    assert_true(isnan(bf16_to_f32(bf16_from_f32(f32_from_bits(0xFFFFFFFF)))));
}

/* Little-endian bytes at an odd address. */
static void test_le(void **state)
{
    const uint8_t bytes[] = {0xEE, 0x00, 0x00, 0xC0, 0x3F, 0x00, 0x00, 0xF8, 0x3F, 0x88};
    assert_int_equal(le16_get(bytes + 3), 0x3FC0);
    assert_int_equal(le32_get(bytes + 1), 0x3FC00000);
    assert_true(le64_get(bytes + 1) == UINT64_C(0x3FF800003FC00000));
    assert_true(lef32_get(bytes + 1) == 1.5f);
    assert_true(lef64_get(bytes + 1) == 1.5 + 0x3FC00000 * 0x1p-52);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widen_all),     cmocka_unit_test(test_round_all_boundaries),
        cmocka_unit_test(test_narrow_limits), cmocka_unit_test(test_against_compiler),
        cmocka_unit_test(test_bf16_all),      cmocka_unit_test(test_le),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
