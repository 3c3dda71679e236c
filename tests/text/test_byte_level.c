/* The byte <-> character map against GPT-2's own loop (toy_byte_char) and its published examples. */
#include "text/byte_level.h"
#include "toy_vocab.h"

static void test_map(void **state)
{
    for (unsigned b = 0; b < 256; b++) {
        assert_int_equal(byte_level_char((unsigned char)b), toy_byte_char(b));
        assert_int_equal(byte_level_byte(toy_byte_char(b)), b);
    }
    size_t n_mapped = 0;
    for (uint32_t cp = 0; cp < 0x11000; cp++) {
        n_mapped += byte_level_byte(cp) != BYTE_LEVEL_NONE;
    }
    assert_int_equal(n_mapped, 256);
    assert_int_equal(byte_level_char(' '), 0x120);
    assert_int_equal(byte_level_char('\n'), 0x10A);
    assert_int_equal(byte_level_char('A'), 'A');
    assert_int_equal(byte_level_char(0xAD), 0x143);
    assert_int_equal(byte_level_byte(0x144), BYTE_LEVEL_NONE);
    assert_int_equal(byte_level_byte(' '), BYTE_LEVEL_NONE);
}

static void test_texts(void **state)
{
    static const struct {
        const char *bytes, *text;
    } rows[] = {
        {"", ""},
        {" the", "\xC4\xA0the"},
        {"\r\n", "\xC4\x8D\xC4\x8A"},
        {"\xE4\xBD\xA0", "\xC3\xA4\xC2\xBD\xC5\x82"}}; /* U+4F60: a bytes-as-Latin-1 look, A0 is U+0142 */
    for (size_t i = 0; i < N_OF(rows); i++) {
        char out[64];
        size_t n = byte_level_encode(rows[i].bytes, strlen(rows[i].bytes), out);
        assert_int_equal(n, strlen(rows[i].text));
        assert_memory_equal(out, rows[i].text, n);
        n = byte_level_decode(rows[i].text, strlen(rows[i].text), out);
        assert_int_equal(n, strlen(rows[i].bytes));
        assert_memory_equal(out, rows[i].bytes, n);
    }
}

/* What stands for no byte is kept as it is: a plain space, an ideograph, a stray byte. */
static void test_foreign(void **state)
{
    static const char text[] = "a b\xC4\xA0\xE4\xBD\xA0\xFFz";
    static const char want[] = "a b \xE4\xBD\xA0\xFFz";
    char out[sizeof text];
    size_t n = byte_level_decode(text, strlen(text), out);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(out, want, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_foreign),
    };
    return cmocka_run_group_tests_name("text-byte-level", tests, NULL, NULL);
}
