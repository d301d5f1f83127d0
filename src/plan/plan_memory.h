/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_memory.h: how much memory a process needs for a plan and one of its epochs, by the formula
 * of base/call_memory.h. */
#ifndef RKS_PLAN_PLAN_MEMORY_H
#define RKS_PLAN_PLAN_MEMORY_H

#include "plan/plan_input.h"

/* Returns the bytes at the peak, within about 25 %. */
uint64_t rks_plan_memory(const rks_plan_input *in);

/* Compares that with what is left of the machine's memory and the control group's, before it is
 * taken. RKS_ERR_MEMORY with both numbers and the option to change. */
rks_status rks_plan_memory_check(const rks_plan_input *in, rks_error *err);

#endif
