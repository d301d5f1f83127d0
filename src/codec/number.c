/* SPDX-License-Identifier: Apache-2.0
 *
 * number.c: compares exactly in 128-bit integers; prints decimals of 15 to 17 digits. */
#include "codec/number.h"

#include <math.h>

#include "base/bytes.h"
#include "shard/small_float.h"

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 natural;

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
    wide whole = (wide)real; /* rounds towards zero, exactly */
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

/* A decimal number: digits / 10^places. */
typedef struct decimal {
    uint64_t digits;
    int places;
} decimal;

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                                1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
/* Numbers outside these get an exponent. */
static const double LEAST = 1e-4, LIMIT = 1e15;

/* Finds a decimal of at most 15 digits that is read as this double. No two such decimals are
 * nearest to the same double, so it is the one that printf would print. Powers of ten up to 10^22
 * are doubles, and a division is rounded once, so the test is exact. */
static bool find_short(double size, decimal *found)
{
    const int count = sizeof(POWERS) / sizeof(POWERS[0]);
    for (int i = 0; i < count && size * POWERS[i] < LIMIT; i++) {
        *found = (decimal){(uint64_t)(size * POWERS[i] + 0.5), i};
        if ((double)found->digits / POWERS[i] == size)
            return true;
    }
    return false;
}

/* Finds the nearest decimal of `count` digits, 16 or 17. Returns false if it is read as another
 * double. With the number as m / 2^shift, all values are below 2^123 and exact. */
static bool find_long(double size, int count, decimal *found)
{
    int exponent = 0, highest = -4; /* exponent of its first digit */
    uint64_t m = (uint64_t)ldexp(frexp(size, &exponent), 53);
    int shift = 53 - exponent;
    if (m == UINT64_C(1) << 52) /* the doubles below it are closer together */
        return false;
    while (highest < 14 &&
           size >= (highest < -1 ? POWERS[0] / POWERS[-highest - 1] : POWERS[highest + 1]))
        highest++;
    natural power = 1;
    found->places = count - 1 - highest;
    for (int i = 0; i < found->places; i++)
        power *= 10;
    natural scaled = m * power, down = scaled >> shift, rest = scaled - (down << shift);
    natural half = (natural)1 << (shift - 1);
    bool up = rest > half || (rest == half && down % 2 == 1);
    natural off = up ? ((natural)1 << shift) - rest : rest;
    found->digits = (uint64_t)down + up;
    for (; found->digits % 10 == 0 && found->places > 0; found->places--)
        found->digits /= 10;
    return 2 * off < power || (2 * off == power && m % 2 == 0);
}

size_t rks_real_spell(double real, char digits[RKS_REAL_ROOM])
{
    char reversed[RKS_REAL_ROOM];
    size_t count = 0, size = 0;
    double plain = fabs(real);
    decimal found = {0};
    if (!(plain < LIMIT) || (plain < LEAST && plain != 0))
        return 0;
    if (!find_short(plain, &found) && !find_long(plain, 16, &found) &&
        !find_long(plain, 17, &found))
        return 0;
    if (found.places == 0) {
        reversed[count++] = '0';
        reversed[count++] = '.';
    }
    for (int i = 0; i <= found.places || found.digits != 0; i++, found.digits /= 10) {
        if (i == found.places && i > 0)
            reversed[count++] = '.';
        reversed[count++] = (char)('0' + found.digits % 10);
    }
    if (signbit(real))
        reversed[count++] = '-';
    while (count > 0)
        digits[size++] = reversed[--count];
    return size;
}
