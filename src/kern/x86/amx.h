/* amx: the kernels with AMX tiles (int8, bf16) and AVX-512 VBMI and GFNI beside them. Internal to kern/x86;
 * contracts in kern/kern.h. */
#ifndef HEARTH_KERN_X86_AMX_H
#define HEARTH_KERN_X86_AMX_H

#include "kern/kern.h"

uint64_t int8_rate_amx(uint64_t n_rounds); /* rate_amx.c */

void matmul_amx_q8_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_amx_q4_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_amx_q4_1(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_amx_q5_0(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_amx_q5_1(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_amx_iq4_nl(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                       size_t y_stride);
void matmul_amx_mxfp4(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                      size_t y_stride);
void matmul_amx_q2_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_amx_q3_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_amx_q4_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_amx_q5_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_amx_q6_k(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);
void matmul_amx_iq4_xs(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                       size_t y_stride);
void matmul_amx_bf16(const kern_matrix *w, const kern_act *a, size_t n0, size_t n1, float *y,
                     size_t y_stride);

#endif
