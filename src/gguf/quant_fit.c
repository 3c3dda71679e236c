/* Scales by least squares over trials: quant_fit.h. */
#include "gguf/quant_fit.h"

#include <math.h>
#include <stdlib.h>

#include "base/fp16.h"

#define FP16_MAX            65504.0
#define TRIAL_STEP          0.1
#define AFFINE_MAX          32
#define AFFINE_TRIALS       21 /* trial ranges of max_code - 1 to max_code + 1 steps */
#define CODEBOOK_TRIALS     21
#define CODEBOOK_TRIAL_STEP 0.015 /* of the end that the extreme is put on: 0.85 to 1.15 of it */

uint16_t quant_fit_fp16(double d)
{
    uint16_t half = fp16_from_f32((float)fmax(-FP16_MAX, fmin(FP16_MAX, d)));
    return half == 0x8000u ? 0 : half;
}

int quant_fit_code(double x, double d, int lo, int hi)
{
    double v = d == 0 ? 0 : floor(x / d + 0.5);
    return v <= lo ? lo : v >= hi ? hi : (int)v;
}

double quant_fit_extreme(const float *x, size_t n)
{
    double best = 0;
    for (size_t i = 0; i < n; i++) {
        if (fabs((double)x[i]) > fabs(best)) {
            best = (double)x[i];
        }
    }
    return best;
}

/* Best scale and minimum for given codes; false if the codes do not determine them. */
static bool affine_solve(const float *x, const double *w, const int *code, size_t n, bool any_min,
                         quant_affine *out)
{
    double sw = 0, sx = 0, sl = 0, sll = 0, sxl = 0;
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i], l = code[i];
        sw += w[i];
        sx += w[i] * v;
        sl += w[i] * l;
        sll += w[i] * l * l;
        sxl += w[i] * l * v;
    }
    double det = sw * sll - sl * sl;
    if (!(det > 0)) {
        return false;
    }
    out->scale = (sw * sxl - sx * sl) / det;
    out->min = -(sll * sx - sl * sxl) / det;
    if (out->min < 0 && !any_min) { /* the format only subtracts: without a minimum, the scale alone */
        out->min = 0;
        out->scale = sxl / sll;
    }
    return out->scale > 0;
}

static double affine_error(const float *x, const double *w, const int *code, size_t n, quant_affine a)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double diff = a.scale * code[i] - a.min - (double)x[i];
        sum += w[i] * diff * diff;
    }
    return sum;
}

quant_affine quant_fit_affine(const float *x, size_t n, int max_code, bool any_min)
{
    double lo = any_min ? (double)x[0] : 0, hi = (double)x[0], square = 0, w[AFFINE_MAX];
    int code[AFFINE_MAX];
    for (size_t i = 0; i < n; i++) {
        lo = fmin(lo, (double)x[i]);
        hi = fmax(hi, (double)x[i]);
        square += (double)x[i] * (double)x[i];
    }
    if (hi <= lo) {
        return (quant_affine){0, -lo};
    }
    for (size_t i = 0; i < n; i++) {
        w[i] = sqrt(square / (double)n) + fabs((double)x[i]);
    }
    quant_affine best = {(hi - lo) / max_code, -lo};
    double best_error = HUGE_VAL;
    for (int trial = 0; trial < AFFINE_TRIALS; trial++) {
        double step = (hi - lo) / (max_code - 1 + TRIAL_STEP * trial);
        quant_affine a;
        for (size_t i = 0; i < n; i++) {
            code[i] = quant_fit_code((double)x[i] - lo, step, 0, max_code);
        }
        if (!affine_solve(x, w, code, n, any_min, &a)) {
            continue;
        }
        double error = affine_error(x, w, code, n, a);
        if (error < best_error) {
            best_error = error;
            best = a;
        }
    }
    return best;
}

typedef struct scale_best {
    double scale;
    double gain;
} scale_best;

/* With scale = sxl / sll the error is constant - sxl^2 / sll: the largest gain is the least error. */
static void keep_better(scale_best *best, double sxl, double sll)
{
    if (sll > 0 && sxl * (sxl / sll) > best->gain) {
        best->gain = sxl * (sxl / sll);
        best->scale = sxl / sll;
    }
}

double quant_fit_scale(const float *x, size_t n, quant_scale_form form)
{
    double extreme = quant_fit_extreme(x, n);
    scale_best best = {0, 0};
    for (int trial = 0; trial < form.n_trials; trial++) {
        int aside = trial - form.n_trials / 2;
        double d = extreme / (form.steps - TRIAL_STEP * aside);
        double sll = 0, sxl = 0;
        for (size_t i = 0; i < n; i++) {
            double v = (double)x[i], w = form.is_weighted ? v * v : 1;
            int l = quant_fit_code(v, d, form.lo, form.hi);
            sll += w * l * l;
            sxl += w * l * v;
        }
        keep_better(&best, sxl, sll);
    }
    return best.scale;
}

static int falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Which k values are not zero: the k largest; their scale is their mean, and each k is tried. */
double quant_fit_ternary(const float *x, size_t n)
{
    double magnitude[QUANT_FIT_MAX] = {0}, sum = 0;
    scale_best best = {0, 0};
    for (size_t i = 0; i < n; i++) {
        magnitude[i] = fabs((double)x[i]);
    }
    qsort(magnitude, n, sizeof *magnitude, falling);
    for (size_t k = 0; k < n; k++) {
        sum += magnitude[k];
        keep_better(&best, sum, (double)(k + 1));
    }
    return best.scale;
}

size_t quant_fit_nearest(double v, const int8_t *values, size_t n)
{
    size_t at = 0, above = n;
    while (above - at > 1) {
        size_t middle = (at + above) / 2;
        if (2 * v > (double)(values[middle - 1] + values[middle])) {
            at = middle;
        } else {
            above = middle;
        }
    }
    return at;
}

double quant_fit_codebook(const float *x, size_t n, const int8_t *values)
{
    const double ends[2] = {values[0], values[15]};
    double extreme = quant_fit_extreme(x, n);
    scale_best best = {0, 0};
    if (extreme == 0) {
        return 0;
    }
    for (int trial = 0; trial < 2 * CODEBOOK_TRIALS; trial++) {
        int aside = trial / 2 - CODEBOOK_TRIALS / 2;
        double part = 1 + CODEBOOK_TRIAL_STEP * aside;
        double inverse = ends[trial % 2] * part / extreme, sll = 0, sxl = 0;
        for (size_t i = 0; i < n; i++) {
            double v = (double)x[i], l = values[quant_fit_nearest(v * inverse, values, 16)];
            sll += l * l;
            sxl += l * v;
        }
        keep_better(&best, sxl, sll);
    }
    return best.scale;
}
