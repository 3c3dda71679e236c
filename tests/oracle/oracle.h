/*
 * oracle: a second forward pass, written to judge the first one.
 *
 * It reads a GGUF file by itself, decodes the weights by itself and computes logits in double precision, one
 * loop per formula. It is slow on purpose and shares no line with src/: when engine and oracle differ, one of
 * them is wrong, and neither can have inherited the other's mistake.
 *
 * What is exact and what is not
 * 1. Activation codes (rule 1 of DESIGN 4) are computed in fp32 as the rule says, so they must EQUAL the
 *    engine's for the same float input. isum and msum are exact integers; only the sum over blocks is in
 * double.
 * 2. Float weights meet activations in double; BF16 weights meet activations rounded to bf16 (nearest even).
 *    Denormals are not flushed here.
 * 3. Everything else (norms, RoPE, softmax, SiLU, residuals, keys and values) stays in double and is never
 *    rounded. An engine with 16-bit keys and values is therefore further away than one with F32.
 * 4. Inside a whole model the codes come from the oracle's own activations rounded to float. These differ
 * from the engine's by fp32 noise, so a code that sits near a tie may differ by one: with quantised weights
 * judge matrix by matrix with oracle_matmul, and whole models by a looser spread.
 * 5. A file is refused if it holds any tensor or RoPE scaling this oracle does not use: better no verdict
 *    than a wrong one.
 *
 * Thread: a model is immutable after open; any number of threads may call oracle_logits on it.
 * Owner: oracle_open* gives a model to the caller, oracle_free takes it back; all other pointers are borrowed
 * for the call. Errors: false or NULL, outputs untouched unless said otherwise; out of memory aborts (this is
 * test code). Limits: little-endian host, GGUF version 2 or 3.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The type numbers are GGUF's own. */
enum oracle_type_id {
    ORACLE_F32 = 0,
    ORACLE_F16 = 1,
    ORACLE_Q4_0 = 2,
    ORACLE_Q4_1 = 3,
    ORACLE_Q5_0 = 6,
    ORACLE_Q5_1 = 7,
    ORACLE_Q8_0 = 8,
    ORACLE_Q2_K = 10,
    ORACLE_Q3_K = 11,
    ORACLE_Q4_K = 12,
    ORACLE_Q5_K = 13,
    ORACLE_Q6_K = 14,
    ORACLE_IQ4_NL = 20,
    ORACLE_IQ4_XS = 23,
    ORACLE_BF16 = 30,
    ORACLE_TQ1_0 = 34,
    ORACLE_TQ2_0 = 35,
    ORACLE_MXFP4 = 39,
    ORACLE_NVFP4 = 40,
    ORACLE_Q1_0 = 41,
    ORACLE_Q2_0 = 42
};

typedef struct oracle_model oracle_model;

/* NULL on failure, with a sentence in err (err_size bytes, always terminated; may be NULL with size 0). */
oracle_model *oracle_open(const char *path, char *err, size_t err_size);
/* The same from a file image; the bytes are copied. */
oracle_model *oracle_open_bytes(const void *bytes, size_t n_bytes, char *err, size_t err_size);
void oracle_free(oracle_model *model); /* takes NULL */

size_t oracle_n_vocab(const oracle_model *model);
size_t oracle_n_embd(const oracle_model *model);
size_t oracle_n_layers(const oracle_model *model);

/*
 * Logits of n tokens at positions 0..n-1, causal, from an empty cache. out is [n][n_vocab].
 * False if n is 0, a token is outside the vocabulary, or a value on the way is not finite.
 */
bool oracle_logits(const oracle_model *model, const int32_t *tokens, size_t n, float *out);
/* The same for what the output matrix is multiplied with, the state behind the last norm: out is [n][n_embd]. */
bool oracle_hidden(const oracle_model *model, const int32_t *tokens, size_t n, float *out);

/* Values and bytes of one block of a type (1 value for float types); false if the type is not known. */
bool oracle_type_size(uint32_t type, size_t *values, size_t *bytes);

/*
 * n_values values of consecutive blocks as float, each value rounded once from its exact product or
 * difference. False if the type is not known or n_values does not fill whole blocks.
 */
bool oracle_dequant(uint32_t type, const void *blocks, size_t n_values, float *out);

/*
 * One activation row x [k] times a weight matrix w, n rows of k values in GGUF row layout: y [n].
 *
 * bound [n] (or NULL) is the largest error the judge allows to an fp32 engine that follows DESIGN 4:
 *   quantised: (2*n_blocks + 4) * 2^-24 * sum over blocks of |dA*dW*isum| + |dA*dMin*msum|, where a block is
 *              an activation block (32 wide; 256 wide for the 256-wide formats);
 *   float:     (2*k + 4) * 2^-24 * sum |x*w|, x already rounded to bf16 for BF16.
 * It counts roundings, so it does not cover fp32 underflow: keep results well above 1e-30 or add a floor.
 *
 * codes [k] (or NULL) receives the int8 activation codes; float types have none and leave it alone.
 * False if the type is not known, k does not fill whole blocks, or x holds a non-finite value.
 */
bool oracle_matmul(uint32_t type, const void *w, size_t n, size_t k, const float *x, double *y, double *bound,
                   int8_t *codes);

/*
 * The same product as the bits that rule 1 of DESIGN 4 demands: every fp32 operation in its order, y [n]. False
 * also for float types.
 */
bool oracle_matmul_bits(uint32_t type, const void *w, size_t n, size_t k, const float *x, float *y);

#endif
