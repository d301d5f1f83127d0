/* SPDX-License-Identifier: Apache-2.0
 *
 * csv_value.c: reads values. Most reals have few digits: an integer below 2^53 times or divided by
 * a power of ten that a double holds exactly is rounded once, as required (the fast path of
 * Clinger, How to read floating point numbers accurately, 1990). The C library reads the others. */
#include "ingest/csv_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"

enum { EXACT_DIGITS = 15, EXACT_POWER = 22, EXPONENT_MOST = 9999 };

static const double POWERS[EXACT_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                               1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                               1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static bool is_word(const rks_csv_field *field, const char *small, const char *large,
                    const char *capital)
{
    size_t size = strlen(small);
    return field->size == size &&
           (memcmp(field->text, small, size) == 0 || memcmp(field->text, large, size) == 0 ||
            memcmp(field->text, capital, size) == 0);
}

bool rks_csv_truth(const rks_csv_field *field, bool *truth)
{
    *truth = is_word(field, "true", "TRUE", "True");
    return *truth || is_word(field, "false", "FALSE", "False");
}

bool rks_csv_integer(const rks_csv_field *field, int64_t *number)
{
    bool minus = field->size > 0 && field->text[0] == '-';
    size_t at = minus;
    int64_t value = 0;
    if (at == field->size || (field->text[at] == '0' && field->size > at + 1))
        return false;
    for (; at < field->size; at++) {
        int digit = field->text[at] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, digit, &value)) /* negative: one value more */
            return false;
    }
    if (!minus && value == INT64_MIN)
        return false;
    *number = minus ? value : -value;
    return true;
}

bool rks_csv_large_integer(const rks_csv_field *field, uint64_t *number)
{
    enum { DIGITS = 19, MOST_DIGITS = 20 };
    uint64_t value = 0;
    if (field->size < DIGITS || field->size > MOST_DIGITS || field->text[0] == '0')
        return false;
    for (size_t at = 0; at < field->size; at++) {
        int digit = field->text[at] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value))
            return false;
    }
    *number = value;
    return value > INT64_MAX;
}

typedef struct digits {
    const char *at, *end;
    uint64_t value; /* of the first EXACT_DIGITS */
    int count;      /* without leading zeros */
} digits;

/* Reads digits and returns how many there were. */
static size_t read_digits(digits *d)
{
    const char *begin = d->at;
    for (; d->at < d->end && *d->at >= '0' && *d->at <= '9'; d->at++) {
        d->count += d->value > 0 || *d->at > '0';
        if (d->count <= EXACT_DIGITS)
            d->value = d->value * 10 + (uint64_t)(*d->at - '0');
    }
    return (size_t)(d->at - begin);
}

static bool accept(digits *d, char one, char other)
{
    bool there = d->at < d->end && (*d->at == one || *d->at == other);
    d->at += there;
    return there;
}

static bool read_exponent(digits *d, int *exponent)
{
    bool minus = accept(d, '-', '-');
    if (!minus)
        accept(d, '+', '+');
    int value = 0;
    const char *begin = d->at;
    for (; d->at < d->end && *d->at >= '0' && *d->at <= '9'; d->at++)
        if (value < EXPONENT_MOST)
            value = value * 10 + (*d->at - '0');
    *exponent += minus ? -value : value;
    return d->at > begin;
}

bool rks_csv_real(const rks_csv_field *field, double *number)
{
    digits d = {.at = field->text, .end = field->text + field->size};
    int exponent = 0;
    bool minus = accept(&d, '-', '-');
    bool zero = d.at < d.end && *d.at == '0';
    size_t whole = read_digits(&d);
    if (whole == 0 || (zero && whole > 1))
        return false;
    if (accept(&d, '.', '.')) {
        size_t parts = read_digits(&d);
        if (parts == 0)
            return false;
        exponent = parts < EXPONENT_MOST ? -(int)parts : -EXPONENT_MOST;
    }
    if (accept(&d, 'e', 'E') && !read_exponent(&d, &exponent))
        return false;
    if (d.at != d.end)
        return false;
    if (d.count > EXACT_DIGITS || exponent < -EXACT_POWER || exponent > EXACT_POWER) {
        *number = rks_strtod(field->text, NULL); /* the number ends where the field does */
        return *number - *number == 0;
    }
    double value = (double)d.value;
    value = exponent < 0 ? value / POWERS[-exponent] : value * POWERS[exponent];
    *number = minus ? -value : value;
    return true;
}

bool rks_csv_holds(const rks_csv_field *field, double number)
{
    char exact[320]; /* the largest double has 309 */
    if (field->size <= EXACT_DIGITS)
        return true;
    for (size_t i = 0; i < field->size; i++)
        if ((field->text[i] < '0' || field->text[i] > '9') && (i > 0 || field->text[i] != '-'))
            return true; /* a point or an exponent asks for rounding */
    int size = rks_snprintf(exact, sizeof(exact), "%.0f", number);
    return (size_t)size == field->size && memcmp(exact, field->text, field->size) == 0;
}
