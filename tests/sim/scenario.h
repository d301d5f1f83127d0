/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario.h: what a seed stands for, and one run of it: build, open with its exchange, plan, an
 * epoch, keys, gather, close, on ranks that are threads over the transport in memory. */
#ifndef RKS_TESTS_SIM_SCENARIO_H
#define RKS_TESTS_SIM_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIM_RANKS_MOST = 1024,
    SCARCE = 64, /* ranks above: as much as fits the time and the maps of one process */
};

enum fault {
    FAULT_NONE,
    FAULT_PAUSE,  /* a rank stands still for less than T: nobody fails */
    FAULT_ERROR,  /* a rank brings an error of its own: the same on all */
    FAULT_STOP,   /* a rank stands still until all others have ended */
    FAULT_DIE,    /* the same, and its connections break at once */
    FAULT_CUT,    /* the connections between two ranks break, 1 to 3 times: nobody fails */
    FAULT_SILENT, /* what one rank sends to another does not arrive any more */
    FAULTS,
};

typedef struct scenario {
    uint64_t seed;
    uint32_t ranks, nodes;
    uint32_t silence_ms;
    uint32_t preempt, spurious;
    uint64_t latency_ns, jitter_ns; /* of bytes on their way */
    uint64_t limit_ms;              /* the longest that the run may take */
    bool narrow;                    /* few bytes are written and read at once */
    bool no_share;                  /* remote fetches, also on one node */
    const char *exchange, *strategy;
    uint32_t batch_size;
    enum fault fault;
    uint32_t victim, other;    /* of the fault */
    uint64_t fault_ns;         /* when, from the start */
    uint32_t phase;            /* of FAULT_ERROR */
    uint32_t cuts;             /* of FAULT_CUT */
    uint64_t gap_ns;           /* between two cuts */
    bool home;                 /* the store opens from local directories of the nodes */
    bool stored;               /* that home is an object store (faulty_store.h) */
    uint32_t home_faults;      /* one read in so many fails or hangs; 0: none */
    uint64_t away_ns, back_ns; /* between them, from the start, home gives nothing */
    uint64_t denied_ns;        /* from then on a store denies each read; UINT64_MAX: never */
} scenario;

/* ranks 0: as the seed has it. */
void scenario_draw(uint64_t seed, uint32_t ranks, scenario *s);
void scenario_describe(const scenario *s, char *text, size_t size);
/* Ends the program with 1 and a reason if anything is not as it should be. */
void scenario_run(const scenario *s, char *result, size_t size);

#endif
