/* SPDX-License-Identifier: Apache-2.0
 *
 * faulty_home.h: the home `directory` of a run: the real one, of which some reads fail or hang, or
 * all for a time. */
#ifndef RKS_TESTS_SIM_FAULTY_HOME_H
#define RKS_TESTS_SIM_FAULTY_HOME_H

#include "scenario.h"

/* From now on homes have the faults of the scenario, which outlives them. */
void faulty_home_begin(const scenario *s);

#endif
