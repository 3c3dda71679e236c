/* Finding keys and tensors, and reading values in the type the caller wants. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/le.h"
#include "gguf/reader_int.h"

#define TYPE_TEXT_BYTES 32

const char *gguf_value_type_name(gguf_value_type t)
{
    static const char *const names[GGUF_VALUE_TYPE_COUNT] = {
        [GGUF_U8] = "u8",      [GGUF_I8] = "i8",       [GGUF_U16] = "u16", [GGUF_I16] = "i16",
        [GGUF_U32] = "u32",    [GGUF_I32] = "i32",     [GGUF_F32] = "f32", [GGUF_BOOL] = "bool",
        [GGUF_STR] = "string", [GGUF_ARRAY] = "array", [GGUF_U64] = "u64", [GGUF_I64] = "i64",
        [GGUF_F64] = "f64",
    };
    return (unsigned)t < GGUF_VALUE_TYPE_COUNT ? names[t] : "unknown";
}

size_t gguf_value_bytes(gguf_value_type t)
{
    switch (t) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL:
        return 1;
    case GGUF_U16:
    case GGUF_I16:
        return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32:
        return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64:
        return 8;
    default:
        return 0;
    }
}

static bool signed_parts(int64_t v, bool *negative, uint64_t *magnitude)
{
    *negative = v < 0;
    *magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    return true;
}

bool gguf_kv_integer(const gguf_kv *kv, bool *negative, uint64_t *magnitude)
{
    const void *p = kv->data;
    *negative = false;
    switch (kv->type) {
    case GGUF_U8:
        *magnitude = *(const uint8_t *)p;
        return true;
    case GGUF_U16:
        *magnitude = le16_get(p);
        return true;
    case GGUF_U32:
        *magnitude = le32_get(p);
        return true;
    case GGUF_U64:
        *magnitude = le64_get(p);
        return true;
    case GGUF_I8:
        return signed_parts(*(const int8_t *)p, negative, magnitude);
    case GGUF_I16:
        return signed_parts((int16_t)le16_get(p), negative, magnitude);
    case GGUF_I32:
        return signed_parts((int32_t)le32_get(p), negative, magnitude);
    case GGUF_I64:
        return signed_parts((int64_t)le64_get(p), negative, magnitude);
    default:
        return false;
    }
}

size_t gguf_n_kv(const gguf_file *f)
{
    return f->parts[0].n_kv;
}

const gguf_kv *gguf_kv_at(const gguf_file *f, size_t i)
{
    return &f->parts[0].kv[i];
}

const gguf_kv *gguf_find(const gguf_file *f, const char *key)
{
    int32_t i;
    return strmap_get(f->parts[0].keys, key, strlen(key), &i) ? &f->parts[0].kv[i] : NULL;
}

size_t gguf_n_tensors(const gguf_file *f)
{
    return f->n_tensors;
}

const gguf_tensor *gguf_tensor_at(const gguf_file *f, size_t i)
{
    return &f->tensors[i];
}

const gguf_tensor *gguf_find_tensor(const gguf_file *f, const char *name)
{
    int32_t i;
    return strmap_get(f->tensor_index, name, strlen(name), &i) ? &f->tensors[i] : NULL;
}

static status key_absent(const char *key, err *e)
{
    return err_set(e, ST_NOT_FOUND, key, "key %.100s is not in the file", key);
}

static status key_mistyped(const gguf_kv *kv, const char *key, const char *wanted, err *e)
{
    bool array = kv->type == GGUF_ARRAY;
    return err_at(e, ST_LOAD_FAILED, kv->offset, key,
                  "key %.100s at byte %llu: has type %s%s%s, it must be %s", key,
                  (unsigned long long)kv->offset, gguf_value_type_name(kv->type), array ? " of " : "",
                  array ? gguf_value_type_name(kv->elem) : "", wanted);
}

static status get_integer(const gguf_file *f, const char *key, uint64_t max, uint64_t *out, err *e)
{
    const gguf_kv *kv = gguf_find(f, key);
    bool negative;
    uint64_t v;
    if (!kv) {
        return key_absent(key, e);
    }
    if (!gguf_kv_integer(kv, &negative, &v)) {
        return key_mistyped(kv, key, "an integer", e);
    }
    if (negative || v > max) {
        return err_at(e, ST_LOAD_FAILED, kv->offset, key,
                      "key %.100s at byte %llu: is %s%llu, it must be 0 to %llu", key,
                      (unsigned long long)kv->offset, negative ? "-" : "", (unsigned long long)v,
                      (unsigned long long)max);
    }
    *out = v;
    return ST_OK;
}

status gguf_get_u32(const gguf_file *f, const char *key, uint32_t *out, err *e)
{
    uint64_t v = 0;
    status st = get_integer(f, key, UINT32_MAX, &v, e);
    if (st == ST_OK) {
        *out = (uint32_t)v;
    }
    return st;
}

status gguf_get_u64(const gguf_file *f, const char *key, uint64_t *out, err *e)
{
    return get_integer(f, key, UINT64_MAX, out, e);
}

status gguf_get_f32(const gguf_file *f, const char *key, float *out, err *e)
{
    const gguf_kv *kv = gguf_find(f, key);
    if (!kv) {
        return key_absent(key, e);
    }
    if (kv->type != GGUF_F32 && kv->type != GGUF_F64) {
        return key_mistyped(kv, key, "f32 or f64", e);
    }
    double v = kv->type == GGUF_F32 ? (double)lef32_get(kv->data) : lef64_get(kv->data);
    if (!isfinite(v) || fabs(v) > (double)FLT_MAX) {
        return err_at(e, ST_LOAD_FAILED, kv->offset, key,
                      "key %.100s at byte %llu: is %g, it must be a finite f32", key,
                      (unsigned long long)kv->offset, v);
    }
    *out = (float)v;
    return ST_OK;
}

status gguf_get_bool(const gguf_file *f, const char *key, bool *out, err *e)
{
    const gguf_kv *kv = gguf_find(f, key);
    if (!kv) {
        return key_absent(key, e);
    }
    if (kv->type != GGUF_BOOL) {
        return key_mistyped(kv, key, "bool", e);
    }
    *out = *(const uint8_t *)kv->data != 0;
    return ST_OK;
}

status gguf_get_str(const gguf_file *f, const char *key, gguf_str *out, err *e)
{
    const gguf_kv *kv = gguf_find(f, key);
    if (!kv) {
        return key_absent(key, e);
    }
    if (kv->type != GGUF_STR) {
        return key_mistyped(kv, key, "string", e);
    }
    *out = kv->strs[0];
    return ST_OK;
}

static status check_top_bits(const gguf_kv *kv, const char *key, const char *wanted, err *e)
{
    const uint8_t *p = kv->data;
    for (uint64_t i = 0; i < kv->n; i++) {
        uint32_t v = le32_get(p + 4 * i);
        if (v > INT32_MAX) {
            return err_at(e, ST_LOAD_FAILED, kv->offset, key,
                          "key %.100s at byte %llu: element %llu of type %s (bits 0x%x) does not fit %s", key,
                          (unsigned long long)kv->offset, (unsigned long long)i,
                          gguf_value_type_name(kv->elem), v, wanted);
        }
    }
    return ST_OK;
}

status gguf_get_array(const gguf_file *f, const char *key, gguf_value_type elem, const gguf_kv **out, err *e)
{
    const gguf_kv *kv = gguf_find(f, key);
    if (!kv) {
        return key_absent(key, e);
    }
    bool swapped = kv->type == GGUF_ARRAY &&
                   ((elem == GGUF_I32 && kv->elem == GGUF_U32) || (elem == GGUF_U32 && kv->elem == GGUF_I32));
    if (kv->type != GGUF_ARRAY || (kv->elem != elem && !swapped)) {
        char wanted[TYPE_TEXT_BYTES];
        snprintf(wanted, sizeof wanted, "array of %s", gguf_value_type_name(elem));
        return key_mistyped(kv, key, wanted, e);
    }
    if (swapped) { /* u32 and i32 agree exactly where the top bit is clear */
        status st = check_top_bits(kv, key, gguf_value_type_name(elem), e);
        if (st != ST_OK) {
            return st;
        }
    }
    *out = kv;
    return ST_OK;
}
