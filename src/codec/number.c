/* SPDX-License-Identifier: Apache-2.0
 *
 * number.c: exact comparison over 128-bit integers; decimals of at most 15 digits. */
#include "codec/number.h"

#include <math.h>

#include "base/bytes.h"
#include "shard/small_float.h"

__extension__ typedef __int128 wide;

static wide integer_of(rks_number number)
{
    return number.kind == RKS_NUMBER_INT ? (wide)number.as.i : (wide)number.as.u;
}

static int compare_integer_real(wide integer, double real)
{
    if (isnan(real))
        return 2;
    if (real >= 0x1p65)
        return -1;
    if (real <= -0x1p65)
        return 1;
    wide whole = (wide)real; /* towards zero, exact */
    if (integer != whole)
        return integer < whole ? -1 : 1;
    double rest = real - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

int rks_number_compare(rks_number a, rks_number b)
{
    bool a_real = a.kind == RKS_NUMBER_REAL, b_real = b.kind == RKS_NUMBER_REAL;
    if (a_real && b_real) {
        if (isnan(a.as.d) || isnan(b.as.d))
            return 2;
        return a.as.d < b.as.d ? -1 : a.as.d > b.as.d;
    }
    if (b_real)
        return compare_integer_real(integer_of(a), b.as.d);
    if (a_real) {
        int order = compare_integer_real(integer_of(b), a.as.d);
        return order == 2 ? 2 : -order;
    }
    wide x = integer_of(a), y = integer_of(b);
    return x < y ? -1 : x > y;
}

bool rks_kind_is_integer(rks_kind kind)
{
    return kind >= RKS_KIND_INT8 && kind <= RKS_KIND_UINT64;
}

bool rks_kind_is_float(rks_kind kind)
{
    return kind >= RKS_KIND_FLOAT16 && kind <= RKS_KIND_FLOAT8_E5M2;
}

static rks_number of_int(int64_t value)
{
    return (rks_number){.kind = RKS_NUMBER_INT, .as.i = value};
}

static rks_number of_real(double value)
{
    return (rks_number){.kind = RKS_NUMBER_REAL, .as.d = value};
}

rks_number rks_number_load(rks_kind kind, const void *data)
{
    const uint8_t *bytes = data;
    float f32;
    double f64;
    switch (kind) {
    case RKS_KIND_INT8:
        return of_int((int8_t)bytes[0]);
    case RKS_KIND_UINT8:
        return of_int(bytes[0]);
    case RKS_KIND_INT16:
        return of_int((int16_t)rks_load_u16(data));
    case RKS_KIND_UINT16:
        return of_int(rks_load_u16(data));
    case RKS_KIND_INT32:
        return of_int((int32_t)rks_load_u32(data));
    case RKS_KIND_UINT32:
        return of_int(rks_load_u32(data));
    case RKS_KIND_INT64:
        return of_int((int64_t)rks_load_u64(data));
    case RKS_KIND_UINT64:
        return (rks_number){.kind = RKS_NUMBER_UINT, .as.u = rks_load_u64(data)};
    case RKS_KIND_FLOAT32:
        memcpy(&f32, data, sizeof(f32));
        return of_real(f32);
    case RKS_KIND_FLOAT64:
        memcpy(&f64, data, sizeof(f64));
        return of_real(f64);
    case RKS_KIND_FLOAT16:
    case RKS_KIND_BFLOAT16:
        return of_real(rks_small_float_decode(kind, rks_load_u16(data)));
    default:
        return of_real(rks_small_float_decode(kind, bytes[0]));
    }
}

/* Two decimals of at most 15 digits are never next to one double, so the one that is found is the
 * one that printf would print. Powers of ten up to 10^22 are doubles, and a division is rounded
 * once: it says exactly whether the decimal is read as this number. */
static bool find_decimal(double size, uint64_t *whole, int *places)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                                  1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
    static const double limit = 1e15, least = 1e-4; /* beyond them there is an exponent */
    if (!(size < limit) || (size < least && size != 0))
        return false;
    for (int i = 0; i < (int)(sizeof(tens) / sizeof(tens[0])) && size * tens[i] < limit; i++) {
        *whole = (uint64_t)(size * tens[i] + 0.5);
        *places = i;
        if ((double)*whole / tens[i] == size)
            return true;
    }
    return false;
}

size_t rks_real_spell_short(double real, char digits[RKS_SHORT_REAL])
{
    char reversed[RKS_SHORT_REAL];
    size_t count = 0, size = 0;
    uint64_t whole = 0;
    int places = 0;
    if (!find_decimal(fabs(real), &whole, &places))
        return 0;
    if (places == 0) {
        reversed[count++] = '0';
        reversed[count++] = '.';
    }
    for (int i = 0; i <= places || whole != 0; i++, whole /= 10) {
        if (i == places && i > 0)
            reversed[count++] = '.';
        reversed[count++] = (char)('0' + whole % 10);
    }
    if (signbit(real))
        reversed[count++] = '-';
    while (count > 0)
        digits[size++] = reversed[--count];
    return size;
}
