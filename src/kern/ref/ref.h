/*
 * ref: the reference kernels, one file per family. Internal to kern/ref. Contracts in kern/kern.h; the rules,
 * in kern/README.md (NUMERICS), are what these files must read like.
 */
#ifndef HEARTH_KERN_REF_REF_H
#define HEARTH_KERN_REF_REF_H

#include "kern/kern.h"

void rms_norm_ref(float *y, const float *x, const float *w, size_t n, float eps);
void add_ref(float *y, const float *x, size_t n);
void silu_mul_ref(float *y, const float *gate, const float *up, size_t n);
bool all_finite_ref(const float *x, size_t n);
void exp_array_ref(float *y, const float *x, size_t n);
void log_array_ref(float *y, const float *x, size_t n);
void tanh_array_ref(float *y, const float *x, size_t n);
void sin_cos_array_ref(float *s, float *c, const float *x, size_t n);
size_t argmax_ref(const float *x, size_t n);
void scale_tops_ref(float *y, float *tops, const float *x, float t, size_t n);
float softmax_terms_ref(float *y, const float *x, float max, size_t n);
float sum_at_least_ref(const float *y, const float *x, size_t n, float least);
size_t at_least_ref(int32_t *index, const float *x, size_t n, float least);
size_t gumbel_argmax_ref(const float *x, const int32_t *token, int32_t first, size_t n, uint64_t seed,
                         int32_t position, float least, float *score);
void rope_ref(float *x, const float *cos_sin, size_t n_rot, kern_rope_style style);
void rope_angles_ref(float *cos_sin, const double *inv_freq, size_t n_half, int32_t pos, float magnitude);
void kv_store_ref(void *page, const kv_layer *layer, kv_type type, size_t slot, size_t n, const float *k,
                  size_t k_stride, const float *v, size_t v_stride);
void attention_ref(const kern_attn *a);
void attention_spans_ref(const kern_attn *a, size_t span0, size_t span1, float *parts);
void attention_join_ref(const kern_attn *a, size_t span0, const float *parts);

/* Value d of K and of V of a slot, widened; head is where the head's K begins. */
float kv_key_ref(const unsigned char *head, const kv_layer *layer, kv_type type, size_t slot, size_t d);
float kv_value_ref(const unsigned char *head, const kv_layer *layer, kv_type type, size_t slot, size_t d);

/* The sum of 16 lanes: 8+8, 4+4, 2+2, 1+1 (rule 6). Destroys them. */
float lanes_sum_ref(float lane[16]);

#endif
