/* SPDX-License-Identifier: Apache-2.0
 *
 * sim.c: one seed of the simulation. `run` beside it runs many.
 *
 * Usage: sim SEED [RANKS]
 * Prints "SEED DIGEST SWITCHES VIRTUAL-MS SCENARIO; RESULT"; or "failed ..." and exits with 1. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "scenario.h"
#include "scheduler.h"

/* Threads hand the run to each other: on one core that is cheap. */
static void stay_on_one_core(uint64_t seed)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    uint64_t skip = seed % (uint64_t)CPU_COUNT(&all);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && skip-- == 0) {
            CPU_SET(core, &one);
            sched_setaffinity(0, sizeof(one), &one);
            return;
        }
}

int main(int argc, char **argv)
{
    char text[256], result[512];
    scenario s;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: sim SEED [RANKS]\n");
        return 2;
    }
    uint64_t seed = strtoull(argv[1], NULL, 10);
    unsigned long ranks = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    if (argc == 3 && (ranks < 2 || ranks > SIM_RANKS_MOST)) {
        fprintf(stderr, "sim: RANKS is 2 to %d\n", SIM_RANKS_MOST);
        return 2;
    }
    scenario_draw(seed, (uint32_t)ranks, &s);
    scenario_describe(&s, text, sizeof(text));
    stay_on_one_core(seed);
    setenv("RKS_TOP", "off", 1); /* its thread waits for clients, and no event here wakes it */
    unsetenv("RKS_METRICS");
    sim_begin(seed, s.preempt, s.spurious, s.limit_ms * 1000000);
    printf("%s\n", text);
    fflush(stdout);
    scenario_run(&s, result, sizeof(result));
    printf("%" PRIu64 " %016" PRIx64 " %" PRIu64 " %" PRIu64 " %s\n", seed, sim_digest(),
           sim_switches(), sim_now_ns() / 1000000, result);
    return 0;
}
