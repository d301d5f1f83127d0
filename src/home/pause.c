/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.c: pauses between tries. */
#include "home/pause.h"

#include "base/secret.h"

enum { FIRST_MS = 200, LONGEST_MS = 20000, BUSY_MS = 1000 };

uint64_t rks_home_pause_ms(uint32_t tries, bool busy)
{
    uint64_t most = FIRST_MS, random = 0;
    rks_error ignored;
    for (uint32_t i = 1; i < tries && most < LONGEST_MS; i++)
        most *= 2;
    most = most < LONGEST_MS ? most : LONGEST_MS;
    if (rks_random(&random, sizeof(random), &ignored) != RKS_OK)
        random = most;
    return (busy ? BUSY_MS : 0) + random % most + 1;
}
