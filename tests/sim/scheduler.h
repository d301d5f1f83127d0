/* SPDX-License-Identifier: Apache-2.0
 *
 * scheduler.h: threads and time of a simulation. Exactly one thread runs; the seed decides which
 * one goes on at each lock, signal and wait. The clock is virtual: it jumps to the next deadline
 * once nobody can run. So a seed always gives the same run, and no wait takes real time.
 *
 * The program is linked with --wrap for pthread's calls, clock_gettime, nanosleep and libsodium's
 * random bytes (see meson.build); the library's code does not know about it. */
#ifndef RKS_TESTS_SIM_SCHEDULER_H
#define RKS_TESTS_SIM_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

enum { SIM_NO_RANK = -1 };

/* First of all, on the main thread. One of `preempt` chances at a lock or signal goes to another
 * thread (0: none does), and one of `spurious` waits for a condition ends without a reason. A run
 * that lasts longer than `limit_ns` of virtual time fails, and so does one in which nobody can
 * run: with the state of every thread, and exit code 1. */
void sim_begin(uint64_t seed, uint32_t preempt, uint32_t spurious, uint64_t limit_ns);

uint64_t sim_random(void);
/* 0 to limit - 1. */
uint64_t sim_below(uint64_t limit);
uint64_t sim_now_ns(void);
/* Of all that has happened; `event` becomes part of it. */
uint64_t sim_digest(void);
void sim_event(uint64_t event);
/* Threads that have not ended, and how often another one has gone on. */
uint32_t sim_threads(void);
uint64_t sim_switches(void);

/* This thread, and those that it starts from now on, belong to `rank`. */
void sim_belong(int32_t rank);
/* The threads of a rank do not run any more, from where they hold no lock; until sim_go_on. */
void sim_stop(int32_t rank);
void sim_go_on(int32_t rank);

/* Called by sim_fail before it exits. */
void sim_on_fail(void (*failing)(void));
/* Prints the state of every thread and exits with 1. */
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
