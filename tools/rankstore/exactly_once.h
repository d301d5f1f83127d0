/* SPDX-License-Identifier: Apache-2.0
 *
 * exactly_once.h: which samples were delivered, kept as a count and a sum, so that ranks compare 24
 * bytes and not lists. Each id adds a 128-bit mix of itself modulo 2^128: two multisets of ids with
 * equal counts and sums are equal but for a chance of 2^-64 and less. */
#ifndef RKS_TOOLS_EXACTLY_ONCE_H
#define RKS_TOOLS_EXACTLY_ONCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cli_ledger {
    uint64_t count;
    uint64_t low, high;
} cli_ledger;

void cli_ledger_add(cli_ledger *ledger, uint64_t id);
void cli_ledger_merge(cli_ledger *ledger, const cli_ledger *other);
bool cli_ledger_equal(const cli_ledger *a, const cli_ledger *b);

#endif
