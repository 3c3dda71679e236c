/*
 * SHA-256: FIPS 180-2 appendix B and the empty message. XXH3: values of the reference implementation's sanity
 * test and of `xxhsum -H3`. Both are checked so that a swap of the library, or of the variant, is seen.
 */
#include "base/test_main.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

static const struct {
    const char *text, *hex;
} sha_known[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
};

static void test_sha256_known(void **state)
{
    for (size_t i = 0; i < N_OF(sha_known); i++) {
        uint8_t digest[SHA256_BYTES];
        char hex[SHA256_HEX_LEN + 1];
        assert_int_equal(sha256_once(sha_known[i].text, strlen(sha_known[i].text), digest), ST_OK);
        hex_encode(digest, sizeof digest, hex);
        assert_string_equal(hex, sha_known[i].hex);
    }
}

/* A million 'a' (FIPS 180-2, B.3), in pieces that do not divide it. */
static void test_sha256_pieces(void **state)
{
    char piece[977];
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX_LEN + 1];
    sha256 *s = NULL;
    memset(piece, 'a', sizeof piece);
    assert_int_equal(sha256_new(&s), ST_OK);
    for (size_t left = 1000000; left > 0;) {
        size_t n = left < sizeof piece ? left : sizeof piece;
        assert_int_equal(sha256_update(s, piece, n), ST_OK);
        left -= n;
    }
    assert_int_equal(sha256_final(s, digest), ST_OK);
    sha256_free(s);
    hex_encode(digest, sizeof digest, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* In the middle of "abc": the digests of FIPS 180-2, and what goes on is not changed by looking. */
static void test_sha256_peek(void **state)
{
    static const struct {
        const char *given, *more, *hex;
    } rows[] = {
        {"", "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"", "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"ab", "c", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    };
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX_LEN + 1];
    for (size_t i = 0; i < N_OF(rows); i++) {
        sha256 *s = NULL;
        assert_int_equal(sha256_new(&s), ST_OK);
        assert_int_equal(sha256_update(s, rows[i].given, strlen(rows[i].given)), ST_OK);
        for (int twice = 0; twice < 2; twice++) {
            assert_int_equal(sha256_peek(s, rows[i].more, strlen(rows[i].more), digest), ST_OK);
            hex_encode(digest, sizeof digest, hex);
            assert_string_equal(hex, rows[i].hex);
        }
        assert_int_equal(sha256_update(s, rows[i].more, strlen(rows[i].more)), ST_OK);
        assert_int_equal(sha256_final(s, digest), ST_OK);
        hex_encode(digest, sizeof digest, hex);
        assert_string_equal(hex, rows[i].hex);
        sha256_free(s);
    }
}

static void test_sha256_nomem(void **state)
{
    uint8_t digest[SHA256_BYTES] = {7};
    mem_fail_at(1, false);
    assert_int_equal(sha256_once("x", 1, digest), ST_NOMEM);
    mem_fail_at(0, false);
    assert_int_equal(digest[0], 7);
    sha256_free(NULL);
}

static void test_hash64(void **state)
{
    assert_true(hash64("", 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(hash64("a", 1) == UINT64_C(0xe6c632b61e964e1f));
    assert_true(hash64("abc", 3) == UINT64_C(0x78af5f94892f3950));
}

static void test_hash64_keyed(void **state)
{
    assert_true(hash64_keyed("abc", 3) == hash64_keyed("abc", 3));
    assert_true(hash64_keyed("abc", 3) != hash64_keyed("abd", 3));
    assert_true(hash64_keyed("abc", 3) != hash64("abc", 3)); /* a seed of 0 would be no key at all */
}

static void test_hex(void **state)
{
    const uint8_t bytes[] = {0x00, 0x0f, 0xf0, 0xab, 0xff};
    char hex[2 * sizeof bytes + 1];
    hex_encode(bytes, sizeof bytes, hex);
    assert_string_equal(hex, "000ff0abff");
    hex_encode(bytes, 0, hex);
    assert_string_equal(hex, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256_known), cmocka_unit_test(test_sha256_pieces),
        cmocka_unit_test(test_sha256_peek),  cmocka_unit_test(test_sha256_nomem),
        cmocka_unit_test(test_hash64),       cmocka_unit_test(test_hash64_keyed),
        cmocka_unit_test(test_hex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
