/*
 * le: little-endian values at any address. Pure, any thread.
 */
#ifndef HEARTH_BASE_LE_H
#define HEARTH_BASE_LE_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "hearth runs on little-endian machines only: weights are used where they lie in the file"
#endif

static inline uint16_t le16_get(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t le32_get(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t le64_get(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float lef32_get(const void *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline double lef64_get(const void *p)
{
    double v;
    memcpy(&v, p, sizeof v);
    return v;
}

#endif
