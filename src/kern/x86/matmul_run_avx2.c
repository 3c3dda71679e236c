/*
 * The walk of the AVX2 products over runs of rows, segments of k, panels, chunks and groups of rows.
 */
#include <assert.h>

#include "kern/x86/matmul_avx2.h"
#include "kern/x86/vec_avx2.h"

#define RUN_ROWS   256     /* rows whose accumulators wait side by side */
#define EXTRAS     32768u  /* of a run and a segment */
#define RUN_VALUES 524288u /* codes of a run and a segment: they stay in L2 while the panels pass */
#define FEW_CHUNK  256     /* up to KERN_ACT_SMALL rows: unpacking and use alternate quickly */

typedef struct mm_walk {
    const mm_format *f;
    const kern_act *a;
    size_t r0; /* the run */
    size_t rows;
    size_t k0; /* the segment */
    size_t k;
    size_t chunk;
    mm_strip strip;
    mm_rows groups[RUN_ROWS / MM_ROWS];
    float acc[RUN_ROWS][KERN_PANEL];
    int32_t extras[EXTRAS];
} mm_walk;

static size_t values_per_extra(mm_extra e)
{
    switch (e) {
    case MM_START16:
        return 16;
    case MM_START32:
        return 32;
    case MM_SUMS64:
        return 64;
    case MM_FLOATS:
        return 1;
    default:
        return 0;
    }
}

/* Words 0 and 1 of each dword: the sums of codes 0, 1 and of codes 2, 3 of the four dwords of its 128-bit lane. */
static __m256i word_sums(const int8_t *q)
{
    __m256i v = _mm256_maddubs_epi16(_mm256_set1_epi8(1), mm_load(q));
    v = _mm256_add_epi16(v, _mm256_shuffle_epi32(v, 0x4E));
    return _mm256_add_epi16(v, _mm256_shuffle_epi32(v, 0xB1));
}

static void starts_fill(const kern_act *a, size_t r, size_t k0, size_t k, const mm_format *f, int32_t *out)
{
    const __m256i factor = _mm256_set1_epi16((short)-f->offset);
    for (size_t c = 0; c < k; c += 32) {
        const int8_t *q = kern_act_q(a, r, (k0 + c) / KERN_ACT_RUN) + (k0 + c) % KERN_ACT_RUN;
        __m256i sums = _mm256_mullo_epi16(word_sums(q), factor);
        __m128i first = _mm256_castsi256_si128(sums);
        __m128i second = _mm256_extracti128_si256(sums, 1);
        if (f->extra == MM_START32) {
            out[c / 32 * MM_ROWS] = _mm_cvtsi128_si32(_mm_add_epi16(first, second));
        } else {
            out[c / 16 * MM_ROWS] = _mm_cvtsi128_si32(first);
            out[(c / 16 + 1) * MM_ROWS] = _mm_cvtsi128_si32(second);
        }
    }
}

static void sums_fill(const kern_act *a, size_t r, size_t k0, size_t k, int32_t *out)
{
    for (size_t c = 0; c < k; c += 64) {
        const int16_t *s = kern_act_sums(a, r, (k0 + c) / 256) + (k0 + c) % 256 / 16;
        uint32_t low = (uint16_t)(s[0] + s[1]);
        uint32_t high = (uint16_t)(s[2] + s[3]);
        out[c / 64 * MM_ROWS] = (int32_t)(low | high << 16);
    }
}

static void floats_fill(const kern_act *a, size_t r, size_t k0, size_t k, int32_t *out)
{
    for (size_t c = 0; c < k; c += 32, out += 32 * MM_ROWS) {
        const uint16_t *v = kern_act_bf16(a, r, (k0 + c) / 32);
        for (size_t i = 0; i < 32; i++) {
            out[i * MM_ROWS] = (int32_t)((uint32_t)v[i] << 16);
        }
    }
}

static void groups_set(mm_walk *w)
{
    const kern_act *a = w->a;
    const size_t per = values_per_extra(w->f->extra);
    const size_t per_group = per ? w->k / per * MM_ROWS : 0;
    for (size_t i = 0; i < w->rows; i++) {
        int32_t *extra = w->extras + i / MM_ROWS * per_group + i % MM_ROWS;
        if (w->f->extra == MM_START16 || w->f->extra == MM_START32) {
            starts_fill(a, w->r0 + i, w->k0, w->k, w->f, extra);
        } else if (w->f->extra == MM_SUMS64) {
            sums_fill(a, w->r0 + i, w->k0, w->k, extra);
        } else if (w->f->extra == MM_FLOATS) {
            floats_fill(a, w->r0 + i, w->k0, w->k, extra);
        }
    }
    for (size_t i = 0; i < w->rows; i += MM_ROWS) {
        const size_t r = w->r0 + i;
        mm_rows *g = &w->groups[i / MM_ROWS];
        *g = (mm_rows){.q_stride = a->tile * KERN_ACT_RUN, .d_stride = a->tile};
        g->extra = w->extras + i / MM_ROWS * per_group;
        if (a->f32) {
            g->x = a->f32 + r * a->k + w->k0;
            g->x_stride = a->k;
        } else if (a->q) {
            g->q = kern_act_q(a, r, w->k0 / KERN_ACT_RUN);
            g->d = kern_act_d(a, r, w->k0 / a->block);
            g->sums = kern_act_sums(a, r, w->k0 / a->block);
            g->totals = a->totals ? kern_act_total(a, r, w->k0 / a->block) : NULL;
        }
    }
}

static void acc_load(mm_walk *w, size_t lanes, const float *y, size_t y_stride)
{
    if (w->k0 == 0) {
        memset(w->acc, 0, w->rows * sizeof w->acc[0]);
        return;
    }
    for (size_t r = 0; r < w->rows; r++) {
        for (size_t i = 0; i < lanes; i += 8) {
            _mm256_store_ps(w->acc[r] + i, v8_load_n(y + r * y_stride + i, lanes - i < 8 ? lanes - i : 8));
        }
    }
}

static void acc_store(const mm_walk *w, size_t lanes, float *y, size_t y_stride)
{
    for (size_t r = 0; r < w->rows; r++) {
        for (size_t i = 0; i < lanes; i += 8) {
            v8_store_n(y + r * y_stride + i, lanes - i < 8 ? lanes - i : 8, _mm256_load_ps(w->acc[r] + i));
        }
    }
}

/* The segment of one panel for all rows of the run; units: from the segment's start. */
static void panel_add(mm_walk *w, const uint8_t *units)
{
    const mm_format *f = w->f;
    if (f->direct && w->rows <= MM_ROWS) {
        f->direct[w->rows - 1](NULL, units, &w->groups[0], 0, w->k, w->acc[0]);
        return;
    }
    for (size_t c = 0; c < w->k; c += w->chunk) {
        size_t k = w->k - c < w->chunk ? w->k - c : w->chunk;
        const uint8_t *from = units + c / f->unit_values * f->unit_bytes;
        if (f->unpack) {
            f->unpack(from, k, &w->strip);
        }
        for (size_t r = 0; r < w->rows; r += MM_ROWS) {
            size_t rows = w->rows - r < MM_ROWS ? w->rows - r : MM_ROWS;
            f->rows[rows - 1](&w->strip, from, &w->groups[r / MM_ROWS], c, k, w->acc[r]);
        }
    }
}

/* Values of k that a run of so many rows takes at once: whole chunks. */
static size_t segment_of(const mm_format *f, size_t rows)
{
    const size_t per = values_per_extra(f->extra);
    size_t all = per && per * EXTRAS < RUN_VALUES ? per * EXTRAS : RUN_VALUES;
    size_t full = (rows + MM_ROWS - 1) / MM_ROWS * MM_ROWS;
    return all / full / MM_CHUNK * MM_CHUNK;
}

void mm_run(const mm_format *f, const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
            size_t y_stride)
{
    assert(a->k > 0);
    const size_t k_padded = (a->k + f->unit_values - 1) / f->unit_values * f->unit_values;
    const size_t panel_bytes = k_padded / f->unit_values * f->unit_bytes;
    const size_t run = f->extra == MM_FLOATS ? EXTRAS / MM_CHUNK : RUN_ROWS;
    _Alignas(64) mm_walk walk;
    walk.f = f;
    walk.a = a;
    for (size_t r0 = 0; r0 < a->m; r0 += run) {
        walk.r0 = r0;
        walk.rows = a->m - r0 < run ? a->m - r0 : run;
        walk.chunk = walk.rows <= KERN_ACT_SMALL ? FEW_CHUNK : f->chunk;
        const size_t segment = segment_of(f, walk.rows);
        for (size_t k0 = 0; k0 < k_padded; k0 += segment) {
            walk.k0 = k0;
            walk.k = k_padded - k0 < segment ? k_padded - k0 : segment;
            groups_set(&walk);
            for (size_t i = n0; i < n1; i += KERN_PANEL) {
                size_t lanes = n1 - i < KERN_PANEL ? n1 - i : KERN_PANEL;
                const uint8_t *panel = (const uint8_t *)w->packed + i / KERN_PANEL * panel_bytes;
                float *out = y + r0 * y_stride + i;
                acc_load(&walk, lanes, out, y_stride);
                panel_add(&walk, panel + k0 / f->unit_values * f->unit_bytes);
                acc_store(&walk, lanes, out, y_stride);
            }
        }
    }
}
