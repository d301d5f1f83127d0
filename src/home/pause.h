/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.h: how long to wait before a request is made again. */
#ifndef RKS_HOME_PAUSE_H
#define RKS_HOME_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns a random time of up to 0.2 s after the first try, twice that after each further one, at
 * most 20 s, so that callers do not keep step. `busy`: the home wants fewer requests: at least a
 * second. */
uint64_t rks_home_pause_ms(uint32_t tries, bool busy);

#endif
