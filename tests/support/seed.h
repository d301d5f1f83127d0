/* SPDX-License-Identifier: Apache-2.0
 *
 * seed.h: the seed of a random test. SEED=N in the environment repeats a run. */
#ifndef RKS_TESTS_SEED_H
#define RKS_TESTS_SEED_H

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "support/check.h"

/* SEED of the environment, else `usual`; if that is 0, another one each time. Prints it. */
static inline uint64_t test_seed(uint64_t usual)
{
    const char *given = getenv("SEED");
    uint64_t seed = usual;
    if (given != NULL)
        seed = strtoull(given, NULL, 0);
    else if (usual == 0)
        seed = ((uint64_t)time(NULL) << 22) + (uint64_t)getpid();
    print_message("SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

#endif
