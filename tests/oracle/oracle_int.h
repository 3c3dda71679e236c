/*
 * Private to the oracle's own files: the decoded block, the type table, the parsed file, the loaded model.
 */
#ifndef ORACLE_INT_H
#define ORACLE_INT_H

#include "oracle.h"

/*
 * One weight block of any integer format, unpacked:
 *   value[i] = dw[i / dw_len] * sc[i / sub_len] * q[i]  -  dmin * m[i / sub_len]
 * Formats without sub-scales have one sub-block with sc = 1; formats without minima have dmin = 0 and m = 0.
 * Formats that ADD a minimum store it negated in dmin with m = 1. All but NVFP4 have one dw for the whole block.
 */
struct oracle_block {
    float dw[4];
    float dmin;
    size_t dw_len;
    size_t sub_len;
    int sc[16];
    int m[16];
    int8_t q[256];
};

/* A row of the type table. Exactly one of decode (integer formats) and widen (float formats) is set. */
struct oracle_type {
    uint32_t id;
    const char *name;
    size_t values;
    size_t bytes;
    size_t act_width; /* values per activation block; 0 for float formats; divides values */
    void (*decode)(const uint8_t *bytes, struct oracle_block *out);
    float (*widen)(const uint8_t *bytes);
    bool bf16_activations;
};

/* The decoders of oracle_formats.c. */
float oracle_f16(const uint8_t *p);
void oracle_decode_q4_1(const uint8_t *p, struct oracle_block *out);
void oracle_decode_q5_0(const uint8_t *p, struct oracle_block *out);
void oracle_decode_q5_1(const uint8_t *p, struct oracle_block *out);
void oracle_decode_q2_k(const uint8_t *p, struct oracle_block *out);
void oracle_decode_q3_k(const uint8_t *p, struct oracle_block *out);
void oracle_decode_q5_k(const uint8_t *p, struct oracle_block *out);
void oracle_decode_iq4_nl(const uint8_t *p, struct oracle_block *out);
void oracle_decode_iq4_xs(const uint8_t *p, struct oracle_block *out);
void oracle_decode_tq1_0(const uint8_t *p, struct oracle_block *out);
void oracle_decode_tq2_0(const uint8_t *p, struct oracle_block *out);
void oracle_decode_mxfp4(const uint8_t *p, struct oracle_block *out);
void oracle_decode_nvfp4(const uint8_t *p, struct oracle_block *out);
void oracle_decode_q1_0(const uint8_t *p, struct oracle_block *out);
void oracle_decode_q2_0(const uint8_t *p, struct oracle_block *out);

const struct oracle_type *oracle_type_find(uint32_t id); /* NULL if not known */

/*
 * oracle_matmul for n_tok rows of double activations: x [n_tok][k], y and bound [n_tok][n_out], codes
 * [n_tok][k]. Integer and BF16 formats round x to float first, F32 and F16 use it as it is. False on a
 * non-finite x.
 */
bool oracle_matmul_rows(const struct oracle_type *type, const uint8_t *w, size_t n_out, size_t k,
                        const double *x, size_t n_tok, double *y, double *bound, int8_t *codes);

/* Zeroed memory for n items; aborts when there is none. */
void *oracle_alloc(size_t n, size_t item_bytes);

struct oracle_kv {
    const char *key; /* not terminated */
    size_t key_len;
    uint32_t type;
    const uint8_t *value; /* its extent was checked when the file was read */
};

struct oracle_tensor {
    const char *name; /* not terminated */
    size_t name_len;
    size_t k;    /* row width: the first dimension */
    size_t rows; /* product of the others */
    const struct oracle_type *type;
    const uint8_t *data;
    bool used; /* asked for by the model; see invariant 5 of oracle.h */
};

struct oracle_file {
    uint8_t *bytes; /* owned */
    size_t n_bytes;
    struct oracle_kv *kv; /* owned */
    size_t n_kv;
    struct oracle_tensor *tensors; /* owned */
    size_t n_tensors;
};

/* Takes bytes (malloc'd), also on failure. On failure the file is empty and err says why. */
bool oracle_file_parse_take(struct oracle_file *file, uint8_t *bytes, size_t n_bytes, char *err,
                            size_t err_size);
void oracle_file_release(struct oracle_file *file);
uint8_t *oracle_file_read(const char *path, size_t *n_bytes, char *err,
                          size_t err_size); /* NULL on failure */
/* Lookups: false if the key is absent or of another kind. */
bool oracle_file_uint(const struct oracle_file *file, const char *key, uint64_t *out);
bool oracle_file_float(const struct oracle_file *file, const char *key, double *out);
bool oracle_file_string(const struct oracle_file *file, const char *key, const char **text, size_t *len);
struct oracle_tensor *oracle_file_tensor(const struct oracle_file *file,
                                         const char *name); /* NULL if absent */

/* What sets one family apart. A new family is a row of the table in oracle_model.c and, if need be, a flag
 * here. */
struct oracle_arch {
    const char *name;
    bool rope_split_half; /* NeoX: pair (i, i + n_rot/2); otherwise the pair (2i, 2i + 1) */
    bool qk_head_norm;    /* RMS norm over each head of Q and K, before RoPE */
    bool rope_divisors;   /* the file may hold rope_freqs.weight */
};

struct oracle_layer {
    const struct oracle_tensor *attn_norm, *q, *k, *v, *o, *q_norm, *k_norm;
    const struct oracle_tensor *ffn_norm, *gate, *up, *down;
};

struct oracle_model {
    struct oracle_file file; /* owned */
    const struct oracle_arch *arch;
    size_t n_vocab, n_embd, n_layers, n_head, n_head_kv, head_k, head_v, n_ff, n_rot;
    double norm_eps;
    double rope_base;
    double *rope_freq; /* owned, [n_rot/2]: radians per position, divisors applied */
    const struct oracle_tensor *embd, *output_norm, *output;
    struct oracle_layer *layers; /* owned, [n_layers] */
};

#endif
