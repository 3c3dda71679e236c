/*
 * utf8: examples of the Unicode Standard (3.9, tables 3-8 to 3-11 and the example of chapter 5), all code
 * points, and byte strings against a checker written from RFC 3629's other formulation (decode the bits, then
 * ask whether the form is the shortest and the value a scalar).
 */
#include "base/test_main.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

static const struct {
    const char *in;
    size_t n;
    const char *out; /* every U+FFFD written as '?' */
} repairs[] = {
    {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", 9, "????????A"},                   /* table 3-8 */
    {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", 9, "????????A"},                   /* table 3-9 */
    {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", 9, "?????A??B"},                   /* table 3-10 */
    {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", 9, "????A"},                       /* table 3-11 */
    {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", 13, "a???b?c??d"}, /* chapter 5.22's example */
    {"\xC3", 1, "?"},
    {"\xC3\xC3\xA9", 3, "?\xC3\xA9"},
    {"\xF0\x9F\x98", 3, "?"},
    {"\xF5\x80\x80\x80", 4, "????"},
    {"", 0, ""},
    {"plain ASCII that is longer than eight bytes\xFF", 44, "plain ASCII that is longer than eight bytes?"},
};

static void test_repair(void **state)
{
    for (size_t i = 0; i < N_OF(repairs); i++) {
        buf got = {0}, want = {0};
        for (const char *c = repairs[i].out; *c; c++) {
            assert_int_equal(*c == '?' ? buf_append_str(&want, "\xEF\xBF\xBD") : buf_append_char(&want, *c),
                             ST_OK);
        }
        assert_int_equal(utf8_repair(&got, repairs[i].in, repairs[i].n), ST_OK);
        assert_string_equal(buf_str(&got), buf_str(&want));
        assert_true(utf8_valid(buf_str(&got), got.len, NULL));
        buf_release(&got);
        buf_release(&want);
    }
}

/*
 * Every scalar value comes back, in the length RFC 3629 gives; byte order is code point order (a property of
 * UTF-8), which leaves no room for swapped bits.
 */
static void test_all_scalars(void **state)
{
    char before[4] = {0};
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp == 0xD800) {
            cp = 0xE000;
        }
        char s[4] = {0};
        uint32_t back;
        bool ok;
        size_t want = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
        size_t n = utf8_encode(cp, s);
        if (n != want || utf8_decode(s, n, &back, &ok) != n || !ok || back != cp ||
            (cp > 0 && memcmp(before, s, 4) >= 0)) {
            fail_msg("U+%04X", (unsigned)cp);
        }
        memcpy(before, s, 4);
    }
}

static const struct {
    uint32_t cp;
    const char *bytes;
} encodings[] = {
    {0x24, "\x24"},
    {0xA3, "\xC2\xA3"},
    {0x20AC, "\xE2\x82\xAC"},
    {0xD55C, "\xED\x95\x9C"},
    {0x10348, "\xF0\x90\x8D\x88"},
    {0x1F600, "\xF0\x9F\x98\x80"},
    {0x10FFFF, "\xF4\x8F\xBF\xBF"},
};

static void test_known_encodings(void **state)
{
    for (size_t i = 0; i < N_OF(encodings); i++) {
        char s[5] = {0};
        size_t n = utf8_encode(encodings[i].cp, s);
        assert_int_equal(n, strlen(encodings[i].bytes));
        assert_string_equal(s, encodings[i].bytes);
    }
}

/* Length of the character at s, 0 if there is none: bits first, then the two questions of RFC 3629. */
static size_t judge(const unsigned char *s, size_t n)
{
    size_t len = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (len == 0 || len > n) {
        return 0;
    }
    uint32_t v = len == 1 ? s[0] : s[0] & (0xFFu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if (s[i] >> 6 != 2) {
            return 0;
        }
        v = v * 64 + (s[i] & 63);
    }
    return v >= least[len] && v <= 0x10FFFF && (v < 0xD800 || v > 0xDFFF) ? len : 0;
}

/*
 * What a bad sequence must be by the Standard's definition: the longest prefix of s that is a prefix of some
 * valid character, or one byte.
 */
static size_t judge_bad(const unsigned char *s, size_t n)
{
    static const unsigned char fill[] = {0x80, 0x90, 0xA0, 0xBF};
    size_t best = 1;
    for (size_t k = 1; k < n && k <= 3; k++) {
        unsigned char t[4];
        bool found = false;
        for (size_t f = 0; f < 64 && !found; f++) {
            memset(t, 0, sizeof t);
            memcpy(t, s, k);
            for (size_t i = k, c = f; i < 4; i++, c /= 4) {
                t[i] = fill[c % 4];
            }
            found = judge(t, 4) > k;
        }
        if (found) {
            best = k;
        }
    }
    return best;
}

static void test_against_judge(void **state)
{
    static const unsigned char edge[] = {0x41, 0x80, 0x8F, 0x9F, 0xBF, 0xC2};
    for (unsigned a = 0x80; a < 0x100; a++) {
        for (unsigned b = 0; b < 0x100; b++) {
            for (size_t c = 0; c < N_OF(edge) * N_OF(edge); c++) {
                unsigned char s[5] = {(unsigned char)a, (unsigned char)b, edge[c % N_OF(edge)],
                                      edge[c / N_OF(edge)], 0};
                bool ok;
                size_t len = judge(s, 4);
                size_t took = utf8_decode((const char *)s, 4, NULL, &ok);
                size_t want = len ? len : c % 5 == 0 ? judge_bad(s, 5) : took;
                if (ok != (len > 0) || took != want) {
                    fail_msg("%02x %02x %02x %02x: took %zu, want %zu", s[0], s[1], s[2], s[3], took, want);
                }
            }
        }
    }
}

static void test_valid_offset(void **state)
{
    static const struct {
        const char *s;
        size_t bad;
    } cases[] = {
        {"\xFF", 0},
        {"abcdefgh\xC3", 8},
        {"abcdefg\xC3\xA9h\x80", 10},
        {"\xE2\x82\xAC\xED\xA0\x80", 3},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t bad = 99;
        assert_false(utf8_valid(cases[i].s, strlen(cases[i].s), &bad));
        assert_int_equal(bad, cases[i].bad);
    }
    assert_true(utf8_valid("a\0b", 3, NULL));
    assert_true(utf8_valid("", 0, NULL));
    assert_true(utf8_valid("eight is\xF0\x9F\x98\x80 enough", 19, NULL));
}

static void test_incomplete_tail(void **state)
{
    static const struct {
        const char *s;
        size_t tail;
    } cases[] = {
        {"", 0},
        {"a", 0},
        {"\xC3\xA9", 0},
        {"x\xC3", 1},
        {"\xE2\x82", 2},
        {"\xE2", 1},
        {"\xF0\x9F\x98", 3},
        {"\xF0\x9F", 2},
        {"\xF0", 1},
        {"\xF0\x9F\x98\x80", 0},
        {"\xE0\x80", 0},
        {"\xED\xA0", 0},
        {"\xF4\x90", 0},
        {"\xC0", 0},
        {"\xF5", 0},
        {"\x80", 0},
        {"\x80\x80\x80", 0},
        {"\xE2\x82\x41", 0},
        {"\xF0\x9F\x98\xE2", 1},
        {"\xFF\xC2", 1},
        {"\xE2\x82\xAC\x80", 0},
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        assert_int_equal(utf8_incomplete_tail(cases[i].s, strlen(cases[i].s)), cases[i].tail);
    }
}

static void test_printable(void **state)
{
    char s[] = "a\n\x1b\xC2\x85\xE2\x80\xA9\xC3\xA9\xFF\xF0\x9F\x98z\x7f";
    size_t n = utf8_make_printable(s, sizeof s - 1);
    assert_int_equal(n, 11);
    assert_memory_equal(s, "a????\xC3\xA9??z?", n);
}

static void test_repair_nomem(void **state)
{
    buf out = {0};
    mem_fail_at(1, false);
    assert_int_equal(utf8_repair(&out, "abc\xFF", 4), ST_NOMEM);
    mem_fail_at(0, false);
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repair),          cmocka_unit_test(test_all_scalars),
        cmocka_unit_test(test_known_encodings), cmocka_unit_test(test_against_judge),
        cmocka_unit_test(test_valid_offset),    cmocka_unit_test(test_incomplete_tail),
        cmocka_unit_test(test_printable),       cmocka_unit_test(test_repair_nomem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
