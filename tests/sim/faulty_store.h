/* SPDX-License-Identifier: Apache-2.0
 *
 * faulty_store.h: the home `helper` of a run, as a table of functions in place of a process: it
 * serves the files of a directory as an object store does, each read after some milliseconds, and
 * has the faults of one: storms of 503, cut bodies, wrong lengths, lost connections, stalls, and
 * 403 from some time on. */
#ifndef RKS_TESTS_SIM_FAULTY_STORE_H
#define RKS_TESTS_SIM_FAULTY_STORE_H

#include "scenario.h"

/* Whatever URL a home has, it serves `directory` from now on. Both outlive the homes. */
void faulty_store_begin(const scenario *s, const char *directory);
/* Reads since then, of all ranks, and those of them that failed or were given up. */
uint64_t faulty_store_reads(void);
uint64_t faulty_store_failed(void);

#endif
