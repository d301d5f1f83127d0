/* SPDX-License-Identifier: Apache-2.0
 *
 * number.h: scalar numbers of any column type, compared exactly. */
#ifndef RKS_CODEC_NUMBER_H
#define RKS_CODEC_NUMBER_H

#include "shard/schema.h"

typedef enum rks_number_kind { RKS_NUMBER_INT, RKS_NUMBER_UINT, RKS_NUMBER_REAL } rks_number_kind;

typedef struct rks_number {
    rks_number_kind kind;
    union {
        int64_t i;
        uint64_t u;
        double d;
    } as;
} rks_number;

/* Returns -1, 0 or 1 if a is below, equal to or above b; 2 if one is NaN. Nothing is rounded: 2^53
 * + 1 is above 2^53, whatever the types. */
int rks_number_compare(rks_number a, rks_number b);

/* Reads a scalar of an integer or float kind; `data` has the kind's size, at any alignment. */
rks_number rks_number_load(rks_kind kind, const void *data);

enum { RKS_REAL_ROOM = 24 };
/* Prints the number as "%.15g" of the C locale does, or as "%.16g" or "%.17g" if the shorter form
 * is read as another double, with ".0" after a whole number. Returns the bytes written, without a
 * NUL. Returns 0 for numbers that are not finite or need an exponent: use printf for those. Takes a
 * small part of the time of printf and strtod. */
size_t rks_real_spell(double real, char digits[RKS_REAL_ROOM]);

#endif
