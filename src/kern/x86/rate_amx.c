/*
 * rate: what tdpbssd can do with its operands in tiles: 16 x 16 x 64 multiply-adds each. Four sums, two tiles of
 * each operand: the shape in which a product reuses what it has loaded.
 */
#include <string.h>

#include "kern/x86/amx.h"
#include "kern/x86/matmul_amx.h"

#define OPS_PER_ROUND (8u * 16u * 16u * 64u * 2u)

uint64_t int8_rate_amx(uint64_t n_rounds)
{
    amx_config config = {.palette = 1};
    uint8_t codes[16 * 64];
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    memset(codes, 37, sizeof codes);
    amx_configure(&config);
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    AMX_LOAD(4, codes, 64);
    AMX_LOAD(5, codes, 64);
    AMX_LOAD(6, codes, 64);
    AMX_LOAD(7, codes, 64);
    for (uint64_t i = 0; i < n_rounds; i++) {
        AMX_DOT_INT8(0, 4, 6);
        AMX_DOT_INT8(1, 4, 7);
        AMX_DOT_INT8(2, 5, 6);
        AMX_DOT_INT8(3, 5, 7);
        AMX_DOT_INT8(0, 4, 6);
        AMX_DOT_INT8(1, 4, 7);
        AMX_DOT_INT8(2, 5, 6);
        AMX_DOT_INT8(3, 5, 7);
    }
    amx_release();
    return n_rounds * OPS_PER_ROUND;
}
