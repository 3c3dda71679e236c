#include "cmd/quantize_plan.h"

#include <string.h>
#include <strings.h>

#include "gguf/quant.h"

/*
 * general.file_type numbers files by their recipe (llama_ftype in llama.h), not by their type. A file of one
 * K format is what the small recipes of that format come nearest to.
 */
static const struct named_recipe {
    gguf_type type;
    uint32_t file_type;
} recipes[] = {
    {GGUF_TYPE_F32, 0},      {GGUF_TYPE_F16, 1},     {GGUF_TYPE_Q4_0, 2},     {GGUF_TYPE_Q4_1, 3},
    {GGUF_TYPE_Q8_0, 7},     {GGUF_TYPE_Q5_0, 8},    {GGUF_TYPE_Q5_1, 9},     {GGUF_TYPE_Q2_K, 10},
    {GGUF_TYPE_Q3_K, 11},    {GGUF_TYPE_Q4_K, 14},   {GGUF_TYPE_Q5_K, 16},    {GGUF_TYPE_Q6_K, 18},
    {GGUF_TYPE_IQ2_XXS, 19}, {GGUF_TYPE_IQ2_XS, 20}, {GGUF_TYPE_IQ3_XXS, 23}, {GGUF_TYPE_IQ1_S, 24},
    {GGUF_TYPE_IQ4_NL, 25},  {GGUF_TYPE_IQ3_S, 26},  {GGUF_TYPE_IQ2_S, 28},   {GGUF_TYPE_IQ4_XS, 30},
    {GGUF_TYPE_IQ1_M, 31},   {GGUF_TYPE_BF16, 32},   {GGUF_TYPE_TQ1_0, 36},   {GGUF_TYPE_TQ2_0, 37},
    {GGUF_TYPE_MXFP4, 38},   {GGUF_TYPE_NVFP4, 39},  {GGUF_TYPE_Q1_0, 40},    {GGUF_TYPE_Q2_0, 41},
};
#define N_RECIPES (sizeof recipes / sizeof recipes[0])

static const char *type_name(gguf_type type)
{
    return gguf_type_info_of((uint32_t)type).name;
}

bool quantize_type_parse(const char *text, gguf_type *out)
{
    for (size_t i = 0; i < N_RECIPES; i++) {
        if (strcasecmp(text, type_name(recipes[i].type)) == 0) {
            *out = recipes[i].type;
            return true;
        }
    }
    return false;
}

status quantize_type_list(buf *out)
{
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < N_RECIPES; i++) {
        st = buf_printf(out, "%s%s", i ? " " : "", type_name(recipes[i].type));
    }
    return st;
}

uint32_t quantize_file_type(gguf_type type)
{
    for (size_t i = 0; i < N_RECIPES; i++) {
        if (recipes[i].type == type) {
            return recipes[i].file_type;
        }
    }
    return 0;
}

static bool is_float(gguf_type type)
{
    return type == GGUF_TYPE_F32 || type == GGUF_TYPE_F16 || type == GGUF_TYPE_BF16;
}

static bool is_number(gguf_type type) /* a plain one that no decoder is for */
{
    return type == GGUF_TYPE_I8 || type == GGUF_TYPE_I16 || type == GGUF_TYPE_I32 || type == GGUF_TYPE_I64 ||
           type == GGUF_TYPE_F64;
}

static bool ends_with(gguf_str name, const char *end)
{
    size_t n = strlen(end);
    return name.len >= n && memcmp(name.data + name.len - n, end, n) == 0;
}

/* Experts are matrices in a third dimension. */
static bool is_matrix(const gguf_tensor *t)
{
    static const char *const kept[] = {"_norm.weight",       "ffn_gate_inp.weight", "position_embd.weight",
                                       "token_types.weight", "ssm_conv1d.weight",   "attn_rel_b.weight"};
    if (t->dims[1] * t->dims[2] * t->dims[3] < 2 || !ends_with(t->name, ".weight")) {
        return false;
    }
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        if (ends_with(t->name, kept[i])) {
            return false;
        }
    }
    return true;
}

status quantize_plan(const gguf_tensor *t, gguf_type wanted, quantize_step *out, err *e)
{
    char name[GGUF_MAX_TENSOR_NAME_BYTES + 1];
    memcpy(name, t->name.data, t->name.len);
    name[t->name.len] = 0;
    if (is_number(t->type)) {
        *out = (quantize_step){.type = t->type, .is_copy = true};
        return ST_OK;
    }
    if (!quant_supported(t->type)) {
        return err_set(e, ST_UNSUPPORTED, name, "tensor %s has type %s, which cannot be decoded", name,
                       type_name(t->type));
    }
    if (!is_float(t->type) && !is_float(wanted)) {
        return err_set(e, ST_UNSUPPORTED, name,
                       "tensor %s is quantised already (%s): begin with the F32, F16 or BF16 model", name,
                       type_name(t->type));
    }
    quantize_step s = {.type = GGUF_TYPE_F32, .is_matrix = is_matrix(t)};
    if (s.is_matrix) {
        s.is_fallback = quant_row_bytes(wanted, (size_t)t->dims[0]) == 0;
        s.type = s.is_fallback ? GGUF_TYPE_F16 : wanted;
    }
    *out = s;
    return ST_OK;
}
