/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario_draw.c: what a seed stands for. */
#include <stdio.h>
#include <string.h>

#include "scenario.h"

enum {
    RANKS_DRAWN = 256, /* most that a seed has by itself */
    OF_A_NODE = 16,    /* where there are more */
    /* Virtual time of a run in which nothing takes time: 4 to 8 ms were seen. Beats and slices of
     * waits (100 ms and more) would hide a wake-up that is lost: here it shows. */
    IDLE_LIMIT_MS = 50,
    HOME_MS =
        600000, /* a home may be away for 20 s, and reads that hang are asked again after 15 */
};

#define MS 1000000u

static const char *const FAULT_NAMES[] = {"no fault", "pause", "error", "stop",
                                          "die",      "cut",   "silent"};

/* 0 to limit - 1. */
static uint32_t draw(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % limit);
}

void scenario_draw(uint64_t seed, uint32_t ranks, scenario *s)
{
    static const char *const exchanges[] = {"auto", "local", "pull"};
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    static const uint32_t silences[] = {1000, 5000, 15000};
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 77;
    memset(s, 0, sizeof(*s));
    s->seed = seed;
    s->denied_ns = UINT64_MAX;
    s->ranks = draw(&state, 8) == 0 ? 9 + draw(&state, 8) : 2 + draw(&state, 7);
    if (seed % 100 == 50 || seed % 200 == 52) /* the latter with a home */
        s->ranks = RANKS_DRAWN;
    if (ranks > 0)
        s->ranks = ranks;
    s->nodes = 1 + draw(&state, s->ranks < 6 ? s->ranks : 6);
    s->silence_ms = silences[draw(&state, 3)];
    s->preempt = (uint32_t[]){0, 64, 8, 2}[draw(&state, 4)];
    s->spurious = (uint32_t[]){0, 200, 20}[draw(&state, 3)];
    s->latency_ns = (uint64_t[]){0, 50000, 2 * MS}[draw(&state, 3)];
    s->jitter_ns = (uint64_t[]){0, 100000, 5 * MS}[draw(&state, 3)];
    s->narrow = draw(&state, 3) == 0;
    s->no_share = draw(&state, 3) != 0;
    s->exchange = exchanges[draw(&state, 3)];
    s->strategy = strategies[draw(&state, 4)];
    s->batch_size = 2 + draw(&state, 11);
    s->fault = draw(&state, 3) == 0 ? FAULT_NONE : (enum fault)(1 + draw(&state, FAULTS - 1));
    s->victim = draw(&state, s->ranks);
    s->other = (s->victim + 1 + draw(&state, s->ranks - 1)) % s->ranks;
    /* While ranks connect, while they work, or late. */
    uint32_t span_us = (uint32_t[]){1000, 40000, 2000000}[draw(&state, 3)];
    s->fault_ns = draw(&state, span_us) * 1000ull;
    s->phase = 1 + draw(&state, 5);
    s->cuts = 1 + draw(&state, 3);
    s->gap_ns =
        draw(&state, (uint32_t[]){1000, 50000, s->silence_ms * 200}[draw(&state, 3)]) * 1000ull;
    if (seed % 8 == 5) { /* nothing takes time, see IDLE_LIMIT_MS */
        s->fault = s->fault == FAULT_ERROR ? FAULT_ERROR : FAULT_NONE;
        s->latency_ns = s->jitter_ns = 0;
    }
    s->home =
        seed % 5 == 2; /* never run twice: who brings what depends on the directories' names */
    s->home_faults = (uint32_t[]){0, 100, 10, 3}[draw(&state, 4)];
    s->away_ns = draw(&state, 100000) * 1000ull;
    s->back_ns = s->away_ns + (draw(&state, 3) == 0 ? draw(&state, 20000) * (uint64_t)MS : 0);
    bool idle = s->latency_ns == 0 && s->jitter_ns == 0 &&
                (s->fault == FAULT_NONE || s->fault == FAULT_ERROR);
    s->stored = seed % 5 == 1; /* likewise */
    if (s->stored) {
        s->home = true;
        s->ranks = ranks > 0 ? ranks : draw(&state, 4) == 0 ? 9 + draw(&state, 56) : s->ranks;
        s->nodes = s->ranks < s->nodes ? s->ranks : s->nodes;
        s->denied_ns = draw(&state, 5) == 0 ? draw(&state, 3000) * (uint64_t)MS : UINT64_MAX;
        if (s->denied_ns != UINT64_MAX)
            s->fault = s->fault == FAULT_PAUSE || s->fault == FAULT_CUT ? s->fault : FAULT_NONE;
    }
    s->limit_ms = idle ? IDLE_LIMIT_MS : 3 * (uint64_t)s->silence_ms + 2000;
    if (s->ranks > SCARCE) {
        s->nodes += 4; /* ranks of a node map each other's shards, and a process has 65,530 maps */
        if (s->ranks > RANKS_DRAWN)
            s->nodes = s->ranks / OF_A_NODE;
        s->narrow = false;
        s->spurious = 0;
        s->preempt = 0;
        s->limit_ms = 3 * (uint64_t)s->silence_ms + 2000; /* every step counts */
    }
    if (s->home)
        s->limit_ms += HOME_MS;
}

void scenario_describe(const scenario *s, char *text, size_t size)
{
    snprintf(text, size,
             "%u ranks on %u nodes, T %u ms, %s, exchange %s, plan %s of %u%s%s, latency %u us, "
             "jitter %u us, preempt 1/%u%s",
             s->ranks, s->nodes, s->silence_ms, FAULT_NAMES[s->fault], s->exchange, s->strategy,
             s->batch_size, s->no_share ? ", not shared" : "", s->narrow ? ", narrow" : "",
             (unsigned)(s->latency_ns / 1000), (unsigned)(s->jitter_ns / 1000), s->preempt,
             !s->home                                  ? ""
             : s->stored && s->denied_ns != UINT64_MAX ? ", a store that denies at last"
             : s->stored && s->back_ns > s->away_ns    ? ", a store with a storm of 503"
             : s->stored && s->home_faults > 0         ? ", a store with faults"
             : s->stored                               ? ", a store"
             : s->back_ns > s->away_ns                 ? ", a home that goes away"
             : s->home_faults > 0                      ? ", a home with faults"
                                                       : ", a home");
}
