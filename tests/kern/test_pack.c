/*
 * Packed weights are kept on disk: files of one KERN_PACK_VERSION must hold the same bytes for ever. Digests of what
 * kern_pack makes of fixed bytes in every type; whoever changes a layout raises the version, then this table.
 * (That the layouts are right is shown by the products that read them: test_matmul.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "kern/pack.h"

#define N 33 /* two panels and one output of a third */
#define K 512

static const int version = 1;
static const struct {
    gguf_type type;
    uint64_t digest; /* XXH3 */
} rows[] = {
    {GGUF_TYPE_F32, 0xbd8aed28017a46f8},    {GGUF_TYPE_F16, 0x017c7ce397c04401},
    {GGUF_TYPE_BF16, 0x7f104d237ca9a4b4},   {GGUF_TYPE_Q4_0, 0xee00f28c44f51379},
    {GGUF_TYPE_IQ4_NL, 0xee00f28c44f51379}, {GGUF_TYPE_Q4_1, 0x53d20c35c5f5c777},
    {GGUF_TYPE_Q5_0, 0x1910c28ba9c8434e},   {GGUF_TYPE_Q5_1, 0x74d72bdcde65894c},
    {GGUF_TYPE_Q8_0, 0x48e6dba502e38a90},   {GGUF_TYPE_MXFP4, 0xba4adad166f7f470},
    {GGUF_TYPE_Q2_K, 0x54008f849353f031},   {GGUF_TYPE_Q3_K, 0x9caddbfcc77b1fe2},
    {GGUF_TYPE_Q4_K, 0xd9d1a7e11071c86c},   {GGUF_TYPE_Q5_K, 0x424d32a43c48f651},
    {GGUF_TYPE_Q6_K, 0xd5cc62c094e29f91},   {GGUF_TYPE_IQ4_XS, 0x1e2737c7a6fda69b},
};

/* Bytes of a generator that needs no library: a linear congruence mod 2^32, its upper byte. */
static void fill(uint8_t *to, size_t n)
{
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = 1664525u * x + 1013904223u;
        to[i] = (uint8_t)(x >> 24);
    }
}

static uint64_t digest_of(gguf_type type)
{
    const gguf_type_info info = gguf_type_info_of((uint32_t)type);
    size_t row_bytes = K / info.block_values * info.block_bytes, n = kern_packed_bytes(type, N, K);
    uint8_t *data = mem_alloc(N * row_bytes), *packed = mem_alloc(n);
    assert_true(data && packed && n > 0);
    fill(data, N * row_bytes);
    const kern_matrix w = {.type = type, .n = N, .k = K, .row_bytes = row_bytes, .data = data};
    memset(packed, 0xA5, n);
    kern_pack(&w, 0, 1, packed); /* panel by panel is the same as all at once */
    kern_pack(&w, 1, (N + KERN_PANEL - 1) / KERN_PANEL, packed + kern_packed_panel_bytes(type, K));
    uint64_t digest = hash64(packed, n);
    mem_free(data);
    mem_free(packed);
    return digest;
}

static void same_bytes(void **state)
{
    size_t n_wrong = 0;
    assert_int_equal(KERN_PACK_VERSION, version);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t digest = digest_of(rows[i].type);
        if (digest != rows[i].digest) {
            print_error("%s: 0x%016llx\n", gguf_type_info_of((uint32_t)rows[i].type).name,
                        (unsigned long long)digest);
            n_wrong++;
        }
    }
    assert_int_equal(n_wrong, 0);
}

/* No type is missing above. */
static void all_types(void **state)
{
    size_t n = 0;
    for (uint32_t i = 0; i < GGUF_TYPE_COUNT; i++) {
        size_t values = gguf_type_info_of(i).block_values;
        n += values > 0 && kern_packed_panel_bytes((gguf_type)i, values) > 0;
    }
    assert_int_equal(n, sizeof rows / sizeof *rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes),
        cmocka_unit_test(all_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
