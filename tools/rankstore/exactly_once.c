/* SPDX-License-Identifier: Apache-2.0
 *
 * exactly_once.c: the mix is SplitMix64's finaliser (Steele, Lea, Flood: Fast splittable
 * pseudorandom number generators, 2014), with two different starts. */
#include "exactly_once.h"

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void add(cli_ledger *ledger, uint64_t low, uint64_t high)
{
    ledger->low += low;
    ledger->high += high + (ledger->low < low);
}

void cli_ledger_add(cli_ledger *ledger, uint64_t id)
{
    ledger->count++;
    add(ledger, mix(id + UINT64_C(0x9e3779b97f4a7c15)), mix(~id * UINT64_C(0xd1342543de82ef95)));
}

void cli_ledger_merge(cli_ledger *ledger, const cli_ledger *other)
{
    ledger->count += other->count;
    add(ledger, other->low, other->high);
}

bool cli_ledger_equal(const cli_ledger *a, const cli_ledger *b)
{
    return a->count == b->count && a->low == b->low && a->high == b->high;
}
