/* SPDX-License-Identifier: Apache-2.0
 *
 * wide.h: which wide vector instructions this processor has. */
#ifndef RKS_BASE_WIDE_H
#define RKS_BASE_WIDE_H

#include <stdbool.h>

/* True if the processor has them and the kernel keeps their registers. False on any other
 * processor than x86-64. The first call asks the processor; later ones cost a load. */
bool rks_has_avx(void);
bool rks_has_avx2(void);

#endif
