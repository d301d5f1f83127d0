/* SPDX-License-Identifier: Apache-2.0
 *
 * strategy.c: the table of strategies. */
#include "plan/strategy.h"

static const rks_strategy *const table[] = {&rks_strategy_bucket, &rks_strategy_sorted,
                                            &rks_strategy_random, &rks_strategy_sequential,
                                            &rks_strategy_pack};
static const rks_strategy *added;

const rks_strategy *rks_strategy_at(size_t number)
{
    size_t count = sizeof(table) / sizeof(table[0]);
    return number < count ? table[number] : number == count ? added : NULL;
}

void rks_strategy_add(const rks_strategy *strategy)
{
    added = strategy;
}
