/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu_features.h: reports which wide vector instructions this processor has. */
#ifndef RKS_BASE_CPU_FEATURES_H
#define RKS_BASE_CPU_FEATURES_H

#include <stdbool.h>

/* True if the processor has the instructions and the kernel saves their registers; always false on
 * processors other than x86-64. The first call asks the processor; later ones cost a load. */
bool rks_has_avx(void);
bool rks_has_avx2(void);

#endif
