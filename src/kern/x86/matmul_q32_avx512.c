/*
 * Products with the formats whose activations come in blocks of 32 (the rule: kern/README.md; the lanes:
 * matmul_avx512.h).
 *
 * vpdpbusd wants unsigned weights: codes are used as stored, or with their table raised, by `offset`. What that
 * adds to a block's sum, offset times the sum of its codes, is taken off in fp32, where all of it is exact: the
 * largest raised sum is 32 * 255 * 127 = 1,036,320 (Q8_0), below 2^24.
 */
#include "kern/x86/matmul_avx512.h"

#define CHUNK_BLOCKS 8

/* A block of a strip: all unpacked. */
typedef struct q32_block {
    pack_line lines[8];
    float d[KERN_PANEL];
    float m[KERN_PANEL];
} q32_block;

/* Where a block's operands lie: `from` is the type whose unit the block is, or this, if it is a q32_block. */
#define STRIP GGUF_TYPE_COUNT

MM_INLINE size_t unit_bytes(const gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_Q4_1:
        return sizeof(unit_q4_1);
    case GGUF_TYPE_Q5_0:
        return sizeof(unit_q5_0);
    case GGUF_TYPE_Q5_1:
        return sizeof(unit_q5_1);
    case GGUF_TYPE_Q8_0:
        return sizeof(unit_q8_0);
    case GGUF_TYPE_MXFP4:
        return sizeof(unit_mxfp4);
    default: /* Q4_0, IQ4_NL */
        return sizeof(unit_q4_0);
    }
}

MM_INLINE float offset_of(const gguf_type type)
{
    switch ((int)type) {
    case GGUF_TYPE_Q4_0:
        return 8.0f;
    case GGUF_TYPE_Q5_0:
        return 16.0f;
    case GGUF_TYPE_Q8_0:
    case GGUF_TYPE_IQ4_NL:
        return 128.0f;
    case GGUF_TYPE_MXFP4:
        return 12.0f;
    default:
        return 0.0f;
    }
}

MM_INLINE bool has_minimum(const gguf_type type)
{
    return type == GGUF_TYPE_Q4_1 || type == GGUF_TYPE_Q5_1;
}

/* Line r of the values, raised. */
MM_INLINE __m512i block_line(const void *block, const gguf_type from, const int r)
{
    const unit_q5_0 *u = block; /* the nibbles of all, the fifth bits of two */
    switch ((int)from) {
    case STRIP:
        return mm_load(((const q32_block *)block)->lines[r]);
    case GGUF_TYPE_Q5_0:
    case GGUF_TYPE_Q5_1:
        return mm_or_and(mm_nibble(u->nibbles, r), mm_shift(mm_load(u->bits), 4 - r), _mm512_set1_epi8(16));
    case GGUF_TYPE_Q8_0:
        return _mm512_xor_si512(mm_load(((const unit_q8_0 *)block)->lines[r]), _mm512_set1_epi8((char)0x80));
    case GGUF_TYPE_IQ4_NL:
        return _mm512_shuffle_epi8(mm_table_iq4(), mm_nibble(u->nibbles, r));
    case GGUF_TYPE_MXFP4:
        return _mm512_shuffle_epi8(mm_table(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0),
                                   mm_nibble(u->nibbles, r));
    default:
        return mm_nibble(u->nibbles, r);
    }
}

/* 2^(e - 128); the two smallest are denormal. */
MM_INLINE __m512 byte_scales(const uint8_t *p)
{
    __m512i e = mm_bytes_u(p);
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __m512i tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    __mmask16 is_tiny = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_tiny, tiny));
}

MM_INLINE __m512 block_scales(const void *block, const gguf_type from)
{
    switch ((int)from) {
    case STRIP:
        return _mm512_load_ps(((const q32_block *)block)->d);
    case GGUF_TYPE_Q5_0:
        return mm_halves(((const unit_q5_0 *)block)->d);
    case GGUF_TYPE_Q5_1:
        return mm_halves(((const unit_q5_1 *)block)->d);
    case GGUF_TYPE_Q8_0:
        return mm_halves(((const unit_q8_0 *)block)->d);
    case GGUF_TYPE_MXFP4:
        return byte_scales(((const unit_mxfp4 *)block)->e);
    default:
        return mm_halves(((const unit_q4_1 *)block)->d); /* Q4_0 and IQ4_NL have them in the same place */
    }
}

MM_INLINE __m512 block_minima(const void *block, const gguf_type from)
{
    switch ((int)from) {
    case STRIP:
        return _mm512_load_ps(((const q32_block *)block)->m);
    case GGUF_TYPE_Q5_1:
        return mm_halves(((const unit_q5_1 *)block)->m);
    default:
        return mm_halves(((const unit_q4_1 *)block)->m);
    }
}

/* One block of each of `panels` panels, `stride` bytes apart, times `rows` rows: codes 64 bytes apart, scales and
 * totals side by side. `from` says what the blocks are. acc: [panel][row]. */
MM_INLINE void block_add(const uint8_t *block, size_t stride, const gguf_type from, const gguf_type type,
                         const int8_t *q, const float *d, const float *total, __m512 *acc, const size_t rows,
                         const size_t panels)
{
    __m512i dot[MM_TILE];
    mm_zero_int(dot, rows * panels);
    MM_UNROLL
    for (int i = 0; i < 8; i++) {
        __m512i line[MM_PANELS];
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            line[p] = block_line(block + p * stride, from, i);
        }
        MM_UNROLL
        for (size_t r = 0; r < rows; r++) {
            const __m512i codes = mm_dword(q + r * KERN_ACT_RUN + 4 * i);
            MM_UNROLL
            for (size_t p = 0; p < panels; p++) {
                dot[p * rows + r] = _mm512_dpbusd_epi32(dot[p * rows + r], line[p], codes);
            }
        }
        MM_ORDER();
    }
    MM_UNROLL
    for (size_t p = 0; p < panels; p++) {
        const __m512 dw = block_scales(block + p * stride, from);
        MM_UNROLL
        for (size_t r = 0; r < rows; r++) {
            __m512 isum = _mm512_cvtepi32_ps(dot[p * rows + r]);
            if (offset_of(type) != 0.0f) {
                isum = _mm512_fmadd_ps(_mm512_set1_ps(total[r]), _mm512_set1_ps(-offset_of(type)), isum);
            }
            __m512 *to = &acc[p * rows + r];
            *to = _mm512_fmadd_ps(isum, _mm512_mul_ps(_mm512_set1_ps(d[r]), dw), *to);
        }
        if (has_minimum(type)) {
            const __m512 mw = block_minima(block + p * stride, from);
            MM_UNROLL
            for (size_t r = 0; r < rows; r++) {
                __m512 *to = &acc[p * rows + r];
                __m512 m = _mm512_mul_ps(_mm512_set1_ps(d[r]), mw);
                *to = _mm512_fmadd_ps(_mm512_set1_ps(total[r]), m, *to);
            }
        }
    }
}

MM_INLINE void few(const uint8_t *panel, size_t panel_bytes, const kern_act *a, const gguf_type type,
                   __m512 *out, const size_t rows, const size_t panels)
{
    const int8_t *q = a->q;
    const float *d = a->d;
    const float *total = a->totals;
    __m512 acc[MM_TILE];
    mm_zero(acc, rows * panels);
    for (size_t b = 0; b < a->n_blocks; b++, d += rows, total += rows) {
        const size_t at = b * unit_bytes(type);
        MM_UNROLL
        for (size_t p = 0; p < panels; p++) {
            mm_prefetch(panel + p * panel_bytes + at, mm_ahead(at, unit_bytes(type), panel_bytes, panels),
                        unit_bytes(type));
        }
        block_add(panel + at, panel_bytes, type, type, q + b % 2 * 32, d, total, acc, rows, panels);
        q += b % 2 * rows * KERN_ACT_RUN;
    }
    mm_copy(out, acc, rows * panels);
}

MM_INLINE void unpack(const uint8_t *panel, size_t at, size_t n, size_t ahead, const gguf_type type,
                      q32_block *strip)
{
    const uint8_t *unit = panel + at / 32 * unit_bytes(type);
    for (q32_block *block = strip; block < strip + n / 32; block++, unit += unit_bytes(type)) {
        mm_prefetch(unit, ahead, unit_bytes(type));
        MM_UNROLL
        for (int i = 0; i < 8; i++) {
            _mm512_store_si512(block->lines[i], block_line(unit, type, i));
        }
        _mm512_store_ps(block->d, block_scales(unit, type));
        if (has_minimum(type)) {
            _mm512_store_ps(block->m, block_minima(unit, type));
        }
    }
}

MM_INLINE void add(const void *strips, size_t at, size_t n, const gguf_type type, const kern_act *a,
                   size_t row, float *sums, const size_t panels)
{
    const int8_t *q = mm_codes(a, row, at / KERN_ACT_RUN);
    const float *d = a->d + mm_place(row, a->n_blocks, at / 32);
    const float *total = a->totals + mm_place(row, a->n_blocks, at / 32);
    const uint8_t *block = strips;
    __m512 acc[MM_TILE];
    mm_load_sums(acc, sums, MM_GROUP * panels);
    for (size_t b = 0; b < n / 32;
         b++, d += KERN_ACT_TILE, total += KERN_ACT_TILE, block += sizeof(q32_block)) {
        block_add(block, CHUNK_BLOCKS * sizeof(q32_block), STRIP, type, q + b % 2 * 32, d, total, acc,
                  MM_GROUP, panels);
        q += b % 2 * KERN_ACT_TILE * KERN_ACT_RUN;
    }
    mm_store_sums(sums, acc, MM_GROUP * panels);
}

#define Q32_PRODUCT(name, type) \
    MM_TYPE(name, type, CHUNK_BLOCKS * 32, CHUNK_BLOCKS * sizeof(q32_block), MM_PANELS)

Q32_PRODUCT(q4_0, GGUF_TYPE_Q4_0)
Q32_PRODUCT(q4_1, GGUF_TYPE_Q4_1)
Q32_PRODUCT(q5_0, GGUF_TYPE_Q5_0)
Q32_PRODUCT(q5_1, GGUF_TYPE_Q5_1)
Q32_PRODUCT(q8_0, GGUF_TYPE_Q8_0)
Q32_PRODUCT(iq4_nl, GGUF_TYPE_IQ4_NL)
Q32_PRODUCT(mxfp4, GGUF_TYPE_MXFP4)
