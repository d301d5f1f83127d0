/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_memory.h: how much memory a process needs for a plan and one of its epochs. The formula is
 * measured (tests/unit/plan/test_plan_memory.c compares it with peaks). For each sample and each
 * piece that planning makes of samples:
 *
 *   4   the order of lengths, or an order to shuffle; not for "sequential"
 *   4   the epoch's ids; with a mix for each draw instead
 *   4   with a mix: the draws that remain
 *   4   "pack": the places in bins
 *   60  pack_window: the bins while they are packed
 *   16  for a piece: its sample, begin and place
 *
 * and 8 for each batch or bin. The lengths are the caller's. */
#ifndef RKS_PLAN_PLAN_MEMORY_H
#define RKS_PLAN_PLAN_MEMORY_H

#include "plan/plan_input.h"

/* Returns the bytes at the peak, within about 25 %. */
uint64_t rks_plan_memory(const rks_plan_input *in);

/* Compares that with what is left of the machine's memory and the control group's, before it is
 * taken. RKS_ERR_MEMORY with both numbers and the option to change. */
rks_status rks_plan_memory_check(const rks_plan_input *in, rks_error *err);

#endif
