/* SPDX-License-Identifier: 0BSD
 * Prints the statistics of a pack's tensors, a line a tensor, as `emitter inspect --tensors --stats` prints them on the host:
 *
 *     dtype [shape] crc32c CRC min MIN max MAX mean MEAN nan COUNT inf COUNT name
 *
 * Least, greatest and mean are of the finite values; the mean is the sum, from the first value to the last, over their number.
 * Of complex numbers both parts are values. `-` stands for what there is not: no finite value, or bytes of an unknown type. */

#ifndef STATS_H
#define STATS_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "emitter.h"

/* A floating-point type of at most 16 bits. What its highest exponent means: infinity and NaN (IEEE); NaN where the mantissa is
 * all ones too (FN); nothing (FINITE). FNUZ has one NaN, where minus zero would be. */
enum stats_kind { STATS_IEEE, STATS_FN, STATS_FNUZ, STATS_FINITE };

struct stats_small {
    uint8_t code, bits, mantissa;
    enum stats_kind kind;
    int bias;
};

static const struct stats_small stats_small_types[] = {
    {EMITTER_DTYPE_FLOAT, 16, 10, STATS_IEEE, 15},
    {EMITTER_DTYPE_BFLOAT, 16, 7, STATS_IEEE, 127},
    {EMITTER_DTYPE_FLOAT8_E3M4, 8, 4, STATS_IEEE, 3},
    {EMITTER_DTYPE_FLOAT8_E4M3, 8, 3, STATS_IEEE, 7},
    {EMITTER_DTYPE_FLOAT8_E4M3B11FNUZ, 8, 3, STATS_FNUZ, 11},
    {EMITTER_DTYPE_FLOAT8_E4M3FN, 8, 3, STATS_FN, 7},
    {EMITTER_DTYPE_FLOAT8_E4M3FNUZ, 8, 3, STATS_FNUZ, 8},
    {EMITTER_DTYPE_FLOAT8_E5M2, 8, 2, STATS_IEEE, 15},
    {EMITTER_DTYPE_FLOAT8_E5M2FNUZ, 8, 2, STATS_FNUZ, 16},
    {EMITTER_DTYPE_FLOAT6_E2M3FN, 6, 3, STATS_FINITE, 1},
    {EMITTER_DTYPE_FLOAT6_E3M2FN, 6, 2, STATS_FINITE, 3},
    {EMITTER_DTYPE_FLOAT4_E2M1FN, 4, 1, STATS_FINITE, 1},
};

static double stats_scale(double value, int exponent)
{
    for (; exponent > 0; exponent--)
        value *= 2;
    for (; exponent < 0; exponent++)
        value /= 2;
    return value;
}

static double stats_decode(const struct stats_small *type, unsigned code)
{
    double zero = 0, value;
    unsigned sign = code >> (type->bits - 1), mantissa = code & ((1u << type->mantissa) - 1);
    unsigned exponent = (code & ((1u << (type->bits - 1)) - 1)) >> type->mantissa;
    unsigned highest = (1u << (type->bits - 1 - type->mantissa)) - 1;
    if (type->kind == STATS_IEEE && exponent == highest)
        return mantissa ? zero / zero : (sign ? -1 : 1) / zero;
    if (type->kind == STATS_FN && exponent == highest && mantissa == (1u << type->mantissa) - 1)
        return zero / zero;
    if (type->kind == STATS_FNUZ && code == 1u << (type->bits - 1))
        return zero / zero;
    value = stats_scale(mantissa, -(int)type->mantissa);
    value = exponent ? stats_scale(1 + value, (int)exponent - type->bias) : stats_scale(value, 1 - type->bias);
    return sign ? -value : value;
}

/* Put value number `i` of the tensor into `*value`; return 0, or 1 for a type whose values are not known here. */
static int stats_value(const emitter_tensor *tensor, uint64_t i, double *value)
{
    const unsigned char *data = (const unsigned char *)tensor->data;
    unsigned code = tensor->dtype_code, bits = tensor->dtype_bits, raw = 0;
    size_t n;
    union {
        float f;
        double d;
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
    } is;
    if (code == EMITTER_DTYPE_COMPLEX)
        bits /= 2;
    if (bits >= 8) {
        memcpy(&is, data + i * (bits / 8), bits / 8 < sizeof is ? bits / 8 : sizeof is);
        raw = bits == 16 ? is.u16 : data[i];
    } else {
        unsigned shift = (unsigned)(i * bits % 8);
        const unsigned char *byte = data + i * bits / 8;
        raw = (unsigned)*byte >> shift;
        if (shift + bits > 8)
            raw |= (unsigned)byte[1] << (8 - shift);
        raw &= (1u << bits) - 1;
    }
    for (n = 0; n < sizeof stats_small_types / sizeof *stats_small_types; n++)
        if (stats_small_types[n].code == code && stats_small_types[n].bits == bits) {
            *value = stats_decode(&stats_small_types[n], raw);
            return 0;
        }
    if ((code == EMITTER_DTYPE_FLOAT || code == EMITTER_DTYPE_COMPLEX) && bits == 32)
        *value = is.f;
    else if ((code == EMITTER_DTYPE_FLOAT || code == EMITTER_DTYPE_COMPLEX) && bits == 64)
        *value = is.d;
    else if (code == EMITTER_DTYPE_FLOAT8_E8M0FNU && bits == 8)
        *value = raw == 255 ? stats_decode(&stats_small_types[0], 0x7E00) : stats_scale(1, (int)raw - 127);
    else if (code == EMITTER_DTYPE_INT && bits <= 4 && bits != 3)
        *value = (int)(raw ^ (1u << (bits - 1))) - (int)(1u << (bits - 1));
    else if (code == EMITTER_DTYPE_UINT && bits <= 4 && bits != 3)
        *value = raw;
    else if ((code == EMITTER_DTYPE_UINT || code == EMITTER_DTYPE_BOOL) && bits == 8)
        *value = raw;
    else if (code == EMITTER_DTYPE_INT && bits == 8)
        *value = is.i8;
    else if (code == EMITTER_DTYPE_INT && bits == 16)
        *value = is.i16;
    else if (code == EMITTER_DTYPE_INT && bits == 32)
        *value = is.i32;
    else if (code == EMITTER_DTYPE_INT && bits == 64)
        *value = (double)is.i64;
    else if (code == EMITTER_DTYPE_UINT && bits == 16)
        *value = is.u16;
    else if (code == EMITTER_DTYPE_UINT && bits == 32)
        *value = is.u32;
    else if (code == EMITTER_DTYPE_UINT && bits == 64)
        *value = (double)is.u64;
    else
        return 1;
    return 0;
}

static void stats_tensor(const emitter_tensor *tensor)
{
    const char *name = emitter_dtype_name(tensor->dtype_code, tensor->dtype_bits);
    uint64_t i, count = tensor->dtype_lanes, nan = 0, inf = 0, finite = 0;
    double value = 0, low = 0, high = 0;
    volatile double total = 0; /* x87 would keep more digits than a double has, and the host does not */
    int32_t dim;
    int known = !tensor->encoding;
    for (dim = 0; dim < tensor->ndim; dim++)
        count *= (uint64_t)tensor->shape[dim];
    if (tensor->dtype_code == EMITTER_DTYPE_COMPLEX)
        count *= 2;
    if (known && !count) {
        static const uint64_t nothing[2] = {0, 0};
        emitter_tensor probe = *tensor;
        probe.data = nothing;
        known = !stats_value(&probe, 0, &value);
    }
    for (i = 0; known && i < count; i++) {
        if (stats_value(tensor, i, &value)) {
            known = 0;
        } else if (value != value) {
            nan++;
        } else if (value - value != 0) {
            inf++;
        } else {
            low = !finite || value < low ? value : low;
            high = !finite || value > high ? value : high;
            total += value;
            finite++;
        }
    }
    if (strcmp(name, "unknown"))
        printf("%s", name);
    else
        printf("%u:%u:%u", tensor->dtype_code, tensor->dtype_bits, tensor->dtype_lanes);
    if (tensor->dtype_lanes > 1 && strcmp(name, "unknown"))
        printf("x%u", tensor->dtype_lanes);
    printf(" [");
    for (dim = 0; dim < tensor->ndim; dim++)
        printf(dim ? ",%" PRId64 : "%" PRId64, tensor->shape[dim]);
    printf("] crc32c 0x%08" PRIx32, emitter_crc32c(tensor->data, (size_t)tensor->nbytes, 0));
    if (known && finite)
        printf(" min %.9g max %.9g mean %.6g", low, high, total / (double)finite);
    else
        printf(" min - max - mean -");
    if (known)
        printf(" nan %" PRIu64 " inf %" PRIu64 " %s\n", nan, inf, tensor->name);
    else
        printf(" nan - inf - %s\n", tensor->name);
}

/* Print the statistics of every tensor; return 0, or 1 after saying on standard error what is wrong with the pack. */
static int print_stats(emitter_reader *reader)
{
    uint32_t i;
    emitter_status status = emitter_validate(reader);
    if (status != EMITTER_OK) {
        fprintf(stderr, "error: %s: %s\n", emitter_status_string(status), reader->where);
        return 1;
    }
    for (i = 0; i < emitter_count(reader); i++) {
        emitter_tensor tensor;
        status = emitter_at(reader, i, &tensor);
        if (status != EMITTER_OK) {
            fprintf(stderr, "error: tensor %" PRIu32 ": %s\n", i, emitter_status_string(status));
            return 1;
        }
        stats_tensor(&tensor);
    }
    return 0;
}

#endif
