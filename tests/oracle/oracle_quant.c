/*
 * Weight formats (more of them: oracle_formats.c) and the product of an activation row with a weight matrix. A new format is one decode (or
 * widen) function and one row of the table.
 */
#include "oracle_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t load_u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float widen_f32(const uint8_t *p)
{
    return float_of_bits(load_u16(p) | load_u16(p + 2) << 16);
}

/* IEEE binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. Every value is exact in fp32. */
float oracle_f16(const uint8_t *p)
{
    uint32_t h = load_u16(p);
    uint32_t sign = h >> 15;
    int exponent = (int)(h >> 10 & 31u);
    int fraction = (int)(h & 1023u);
    float magnitude;

    if (exponent == 31)
        return float_of_bits(sign << 31 | 0x7f800000u | (uint32_t)fraction << 13);
    if (exponent == 0)
        magnitude = ldexpf((float)fraction, -24);
    else
        magnitude = ldexpf((float)(1024 + fraction), exponent - 25);
    return sign ? -magnitude : magnitude;
}

static float widen_bf16(const uint8_t *p)
{
    return float_of_bits(load_u16(p) << 16);
}

/* The nearest bf16, ties to the even one. x is finite; beyond the largest bf16 the result is infinite. */
static float round_to_bf16(float x)
{
    uint32_t bits = bits_of_float(x);
    uint32_t kept = bits >> 16;
    uint32_t dropped = bits & 0xffffu;

    if (dropped > 0x8000u || (dropped == 0x8000u && (kept & 1u)))
        kept++;
    return float_of_bits(kept << 16);
}

/* A format whose only scale is d: one sub-block of the whole width. */
static void set_single_scale(struct oracle_block *out, float d, size_t width)
{
    memset(out, 0, sizeof *out);
    out->dw[0] = d;
    out->dw_len = width;
    out->sub_len = width;
    out->sc[0] = 1;
}

/* Q4_0, 18 bytes: 0 d (f16) | 2 sixteen bytes; low nibbles are values 0..15, high nibbles 16..31, each
 * less 8. */
static void decode_q4_0(const uint8_t *p, struct oracle_block *out)
{
    set_single_scale(out, oracle_f16(p), 32);
    for (size_t i = 0; i < 16; i++) {
        out->q[i] = (int8_t)((p[2 + i] & 15) - 8);
        out->q[i + 16] = (int8_t)((p[2 + i] >> 4) - 8);
    }
}

/* Q8_0, 34 bytes: 0 d (f16) | 2 thirty-two int8. */
static void decode_q8_0(const uint8_t *p, struct oracle_block *out)
{
    set_single_scale(out, oracle_f16(p), 32);
    memcpy(out->q, p + 2, 32);
}

/*
 * Q4_K, 144 bytes: 0 d (f16) | 2 dmin (f16) | 4 twelve bytes of 6-bit scales and minima | 16 nibbles [4][32].
 *
 *   byte j   (0..3)   top 2 bits: bits 4-5 of sc[4+j]   low 6 bits: sc[j]
 *   byte 4+j (0..3)   top 2 bits: bits 4-5 of m[4+j]    low 6 bits: m[j]
 *   byte 8+j (0..3)   high nibble: bits 0-3 of m[4+j]   low nibble: bits 0-3 of sc[4+j]
 *
 * Each run of 32 nibble bytes holds two sub-blocks of 32: first the low nibbles, then the high ones.
 */
static void decode_q4_k(const uint8_t *p, struct oracle_block *out)
{
    const uint8_t *packed = p + 4;
    const uint8_t *nibbles = p + 16;

    memset(out, 0, sizeof *out);
    out->dw[0] = oracle_f16(p);
    out->dw_len = 256;
    out->dmin = oracle_f16(p + 2);
    out->sub_len = 32;
    for (size_t j = 0; j < 4; j++) {
        out->sc[j] = packed[j] & 63;
        out->m[j] = packed[4 + j] & 63;
        out->sc[4 + j] = (packed[j] >> 6) * 16 + (packed[8 + j] & 15);
        out->m[4 + j] = (packed[4 + j] >> 6) * 16 + (packed[8 + j] >> 4);
    }
    for (size_t run = 0; run < 4; run++) {
        for (size_t i = 0; i < 32; i++) {
            out->q[64 * run + i] = (int8_t)(nibbles[32 * run + i] & 15);
            out->q[64 * run + 32 + i] = (int8_t)(nibbles[32 * run + i] >> 4);
        }
    }
}

/*
 * Q6_K, 210 bytes: 0 low nibbles [2][64] | 128 high bit pairs [2][32] | 192 scales int8 [16] | 208 d (f16).
 *
 * A half is 128 values, four quarters of 32. Quarter r, value i: the nibble is in byte 32*(r mod 2) + i, low
 * for r < 2 and high after; the pair is bits 2r, 2r+1 of high byte i. The six bits less 32 are the code.
 */
static void decode_q6_k(const uint8_t *p, struct oracle_block *out)
{
    memset(out, 0, sizeof *out);
    out->dw[0] = oracle_f16(p + 208);
    out->dw_len = 256;
    out->sub_len = 16;
    for (size_t j = 0; j < 16; j++)
        out->sc[j] = (int8_t)p[192 + j];
    for (size_t at = 0; at < 256; at++) {
        size_t half = at / 128;
        size_t quarter = at % 128 / 32;
        size_t i = at % 32;
        int low = p[64 * half + 32 * (quarter % 2) + i] >> (quarter < 2 ? 0 : 4) & 15;
        int high = p[128 + 32 * half + i] >> (2 * quarter) & 3;
        out->q[at] = (int8_t)(high * 16 + low - 32);
    }
}

static const struct oracle_type types[] = {
    {ORACLE_F32, "F32", 1, 4, 0, NULL, widen_f32, false},
    {ORACLE_F16, "F16", 1, 2, 0, NULL, oracle_f16, false},
    {ORACLE_BF16, "BF16", 1, 2, 0, NULL, widen_bf16, true},
    {ORACLE_Q4_0, "Q4_0", 32, 18, 32, decode_q4_0, NULL, false},
    {ORACLE_Q4_1, "Q4_1", 32, 20, 32, oracle_decode_q4_1, NULL, false},
    {ORACLE_Q5_0, "Q5_0", 32, 22, 32, oracle_decode_q5_0, NULL, false},
    {ORACLE_Q5_1, "Q5_1", 32, 24, 32, oracle_decode_q5_1, NULL, false},
    {ORACLE_Q8_0, "Q8_0", 32, 34, 32, decode_q8_0, NULL, false},
    {ORACLE_Q2_K, "Q2_K", 256, 84, 256, oracle_decode_q2_k, NULL, false},
    {ORACLE_Q3_K, "Q3_K", 256, 110, 256, oracle_decode_q3_k, NULL, false},
    {ORACLE_Q4_K, "Q4_K", 256, 144, 256, decode_q4_k, NULL, false},
    {ORACLE_Q5_K, "Q5_K", 256, 176, 256, oracle_decode_q5_k, NULL, false},
    {ORACLE_Q6_K, "Q6_K", 256, 210, 256, decode_q6_k, NULL, false},
    {ORACLE_IQ4_NL, "IQ4_NL", 32, 18, 32, oracle_decode_iq4_nl, NULL, false},
    {ORACLE_IQ4_XS, "IQ4_XS", 256, 136, 256, oracle_decode_iq4_xs, NULL, false},
    {ORACLE_TQ1_0, "TQ1_0", 256, 54, 256, oracle_decode_tq1_0, NULL, false},
    {ORACLE_TQ2_0, "TQ2_0", 256, 66, 256, oracle_decode_tq2_0, NULL, false},
    {ORACLE_MXFP4, "MXFP4", 32, 17, 32, oracle_decode_mxfp4, NULL, false},
    {ORACLE_NVFP4, "NVFP4", 64, 36, 32, oracle_decode_nvfp4, NULL, false},
    {ORACLE_Q1_0, "Q1_0", 128, 18, 32, oracle_decode_q1_0, NULL, false},
    {ORACLE_Q2_0, "Q2_0", 64, 18, 32, oracle_decode_q2_0, NULL, false},
};

const struct oracle_type *oracle_type_find(uint32_t id)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].id == id)
            return &types[i];
    }
    return NULL;
}

bool oracle_type_size(uint32_t type, size_t *values, size_t *bytes)
{
    const struct oracle_type *t = oracle_type_find(type);

    if (!t)
        return false;
    *values = t->values;
    *bytes = t->bytes;
    return true;
}

bool oracle_dequant(uint32_t type, const void *blocks, size_t n_values, float *out)
{
    const struct oracle_type *t = oracle_type_find(type);
    const uint8_t *p = blocks;
    struct oracle_block b;

    if (!t || n_values % t->values != 0)
        return false;
    for (size_t at = 0; at < n_values; at += t->values, p += t->bytes) {
        if (t->widen) {
            out[at] = t->widen(p);
            continue;
        }
        t->decode(p, &b);
        for (size_t i = 0; i < t->values; i++) {
            /* scale and minimum are products of 11 and at most 8 bits, hence exact; what follows rounds once
             */
            float scale = b.dw[i / b.dw_len] * (float)b.sc[i / b.sub_len];
            float minimum = b.dmin * (float)b.m[i / b.sub_len];
            out[at + i] = scale * (float)b.q[i] - minimum;
        }
    }
    return true;
}

/*
 * Rule 1 for one activation block: every step is an fp32 operation rounded once, because the codes must equal
 * the engine's, and double arithmetic would now and then fall on the other side of a tie.
 */
static float encode_activations(const float *x, size_t width, int8_t *codes)
{
    float absmax = 0.0f;
    float d, inverse;

    for (size_t i = 0; i < width; i++)
        absmax = fmaxf(absmax, fabsf(x[i]));
    memset(codes, 0, width);
    if (absmax < 0x1p-100f)
        return 0.0f;
    d = absmax / 127.0f;
    inverse = 127.0f / absmax;
    for (size_t i = 0; i < width; i++) {
        float scaled = x[i] * inverse;
        codes[i] = (int8_t)nearbyintf(scaled); /* default rounding mode: half to even */
    }
    return d;
}

/* The sum and the sum of magnitudes of one row's terms. */
struct dot {
    double sum;
    double magnitude;
};

/* Exact: isum = sum_j sc_j * dot_j and msum = sum_j m_j * sum_j over the `width` values from `inside` on. */
static void integer_sums(const struct oracle_block *b, size_t inside, size_t width, const int8_t *codes,
                         int64_t *isum, int64_t *msum)
{
    size_t run = b->sub_len < width ? b->sub_len : width; /* values that share one sub-scale */

    *isum = 0;
    *msum = 0;
    for (size_t at = 0; at < width; at += run) {
        size_t j = (inside + at) / b->sub_len;
        int32_t dot = 0, sum = 0;

        for (size_t i = at; i < at + run; i++) {
            dot += b->q[inside + i] * codes[i];
            sum += codes[i];
        }
        *isum += (int64_t)b->sc[j] * dot;
        *msum += (int64_t)b->m[j] * sum;
    }
}

/* blocks: one weight row; codes [k] and d [k / act_width]: one activation row. A term for each float scale of
 * the weights inside an activation block. */
static struct dot dot_blocks(const struct oracle_type *t, const struct oracle_block *blocks, size_t k,
                             const int8_t *codes, const float *d)
{
    struct dot r = {0.0, 0.0};

    for (size_t at = 0, step; at < k; at += step) {
        const struct oracle_block *b = &blocks[at / t->values];
        double dA = (double)d[at / t->act_width];
        double dW = (double)b->dw[at % t->values / b->dw_len];
        int64_t isum, msum;
        double term, minimum;

        step = b->dw_len < t->act_width ? b->dw_len : t->act_width;
        integer_sums(b, at % t->values, step, codes + at, &isum, &msum);
        term = dA * dW * (double)isum;
        minimum = dA * (double)b->dmin * (double)msum;
        r.sum += term - minimum;
        r.magnitude += fabs(term) + fabs(minimum);
    }
    return r;
}

static struct dot dot_floats(const double *w, const double *x, size_t k)
{
    struct dot r = {0.0, 0.0};

    for (size_t i = 0; i < k; i++) {
        r.sum += x[i] * w[i];
        r.magnitude += fabs(x[i] * w[i]);
    }
    return r;
}

static void store(struct dot r, size_t n_roundings, size_t at, double *y, double *bound)
{
    y[at] = r.sum;
    if (bound)
        bound[at] = (2.0 * (double)n_roundings + 4.0) * 0x1p-24 * r.magnitude;
}

static void matmul_integer(const struct oracle_type *t, const uint8_t *w, size_t n_out, size_t k,
                           const double *x, size_t n_tok, double *y, double *bound, int8_t *codes_out)
{
    size_t n_blocks = k / t->values;
    size_t n_act = k / t->act_width;
    float *xf = oracle_alloc(k, sizeof *xf);
    float *d = oracle_alloc(n_tok * n_act, sizeof *d);
    int8_t *codes = oracle_alloc(n_tok * k, 1);
    struct oracle_block *row = oracle_alloc(n_blocks, sizeof *row);

    for (size_t t_at = 0; t_at < n_tok; t_at++) {
        for (size_t i = 0; i < k; i++)
            xf[i] = (float)x[t_at * k + i];
        for (size_t a = 0; a < n_act; a++)
            d[t_at * n_act + a] =
                encode_activations(xf + a * t->act_width, t->act_width, codes + t_at * k + a * t->act_width);
    }
    for (size_t o = 0; o < n_out; o++) {
        for (size_t b = 0; b < n_blocks; b++)
            t->decode(w + (o * n_blocks + b) * t->bytes, &row[b]);
        for (size_t t_at = 0; t_at < n_tok; t_at++)
            store(dot_blocks(t, row, k, codes + t_at * k, d + t_at * n_act), n_act, t_at * n_out + o, y,
                  bound);
    }
    if (codes_out)
        memcpy(codes_out, codes, n_tok * k);
    free(row);
    free(codes);
    free(d);
    free(xf);
}

static void matmul_float(const struct oracle_type *t, const uint8_t *w, size_t n_out, size_t k,
                         const double *x, size_t n_tok, double *y, double *bound)
{
    double *xd = oracle_alloc(n_tok * k, sizeof *xd);
    double *row = oracle_alloc(k, sizeof *row);

    for (size_t i = 0; i < n_tok * k; i++)
        xd[i] = t->bf16_activations ? (double)round_to_bf16((float)x[i]) : x[i];
    for (size_t o = 0; o < n_out; o++) {
        for (size_t i = 0; i < k; i++)
            row[i] = (double)t->widen(w + (o * k + i) * t->bytes);
        for (size_t t_at = 0; t_at < n_tok; t_at++)
            store(dot_floats(row, xd + t_at * k, k), k, t_at * n_out + o, y, bound);
    }
    free(row);
    free(xd);
}

bool oracle_matmul_rows(const struct oracle_type *type, const uint8_t *w, size_t n_out, size_t k,
                        const double *x, size_t n_tok, double *y, double *bound, int8_t *codes)
{
    if (k % type->values != 0)
        return false;
    for (size_t i = 0; i < n_tok * k; i++) {
        if (!isfinite((float)x[i]))
            return false;
    }
    if (type->widen)
        matmul_float(type, w, n_out, k, x, n_tok, y, bound);
    else
        matmul_integer(type, w, n_out, k, x, n_tok, y, bound, codes);
    return true;
}

bool oracle_matmul(uint32_t type, const void *w, size_t n, size_t k, const float *x, double *y, double *bound,
                   int8_t *codes)
{
    const struct oracle_type *t = oracle_type_find(type);
    double *xd;
    bool ok;

    if (!t)
        return false;
    xd = oracle_alloc(k, sizeof *xd);
    for (size_t i = 0; i < k; i++)
        xd[i] = (double)x[i];
    ok = oracle_matmul_rows(t, w, n, k, xd, 1, y, bound, codes);
    free(xd);
    return ok;
}

/* Rule 1 word by word. Without minima msum and dmin are zero, and the fma adds a -0, which changes nothing. */
static float row_bits(const struct oracle_type *t, const uint8_t *w, size_t k, const int8_t *codes,
                      const float *d)
{
    struct oracle_block b;
    float acc = 0.0f;

    for (size_t at = 0, step; at < k; at += step) {
        float dA = d[at / t->act_width];
        int64_t isum, msum;

        t->decode(w + at / t->values * t->bytes, &b);
        step = b.dw_len < t->act_width ? b.dw_len : t->act_width;
        integer_sums(&b, at % t->values, step, codes + at, &isum, &msum);
        acc = fmaf((float)isum, dA * b.dw[at % t->values / b.dw_len], acc);
        acc = fmaf(-(float)msum, dA * b.dmin, acc);
    }
    return acc;
}

bool oracle_matmul_bits(uint32_t type, const void *w, size_t n, size_t k, const float *x, float *y)
{
    const struct oracle_type *t = oracle_type_find(type);
    int8_t *codes;
    float *d;

    if (!t || t->widen || k % t->values != 0)
        return false;
    codes = oracle_alloc(k, 1);
    d = oracle_alloc(k / t->act_width, sizeof *d);
    for (size_t at = 0; at < k; at += t->act_width)
        d[at / t->act_width] = encode_activations(x + at, t->act_width, codes + at);
    for (size_t i = 0; i < n; i++)
        y[i] = row_bits(t, (const uint8_t *)w + i * (k / t->values) * t->bytes, k, codes, d);
    free(d);
    free(codes);
    return true;
}
