/* SPDX-License-Identifier: Apache-2.0
 *
 * other_sequential.c: plan/strategy_sequential.c as it might be in another commit: batches have
 * equally many samples. */
#include "plan/strategy.h"

#define rks_cut_greedy rks_cut_uniform
#include "../../src/plan/strategy_sequential.c"
