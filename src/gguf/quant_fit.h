/*
 * quant_fit: scales for the encoders. All in double, in a fixed order, so that a row gives the same bytes
 * everywhere and no finite input overflows on the way. The method is one for all formats: for several trial
 * scales the codes are rounded and the scale (and minimum) that is best for these codes is solved by least
 * squares; the trial with the least error wins. Pure functions, any thread; n <= QUANT_FIT_MAX.
 */
#ifndef HEARTH_GGUF_QUANT_FIT_H
#define HEARTH_GGUF_QUANT_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QUANT_FIT_MAX 256

/* To binary16, cut to its largest finite value; never -0, so that a block of zeros decodes to +0. */
uint16_t quant_fit_fp16(double d);
/* x / d to the nearest code, halves upwards, within [lo, hi]; 0 (or the end nearest to it) where d is 0. */
int quant_fit_code(double x, double d, int lo, int hi);
/* The value of largest magnitude, with its sign. */
double quant_fit_extreme(const float *x, size_t n);

typedef struct quant_affine { /* value = scale * code - min, the scale not negative */
    double scale;
    double min;
} quant_affine;

/* Codes 0..max_code; with any_min false the minimum is not negative. Weights favour large values: they matter
 * more in a product with the same activations. n <= 32. */
quant_affine quant_fit_affine(const float *x, size_t n, int max_code, bool any_min);

typedef struct quant_scale_form { /* value = scale * code; the scale may be negative */
    int lo, hi;
    double steps;     /* trials put the value of largest magnitude near this code */
    int n_trials;     /* 0.1 apart, the middle one exactly there */
    bool is_weighted; /* by the square of the value; else all count alike */
} quant_scale_form;

double quant_fit_scale(const float *x, size_t n, quant_scale_form form);

/* The least error of three codes -1, 0, 1, over all scales: exact. */
double quant_fit_ternary(const float *x, size_t n);

/* The index of the nearest of n rising values, of the lower one where two are as near. */
size_t quant_fit_nearest(double v, const int8_t *values, size_t n);
/* value = scale * values[code] for 16 rising values, the first of them the one of largest magnitude. */
double quant_fit_codebook(const float *x, size_t n, const int8_t *values);

#endif
