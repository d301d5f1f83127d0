/* SPDX-License-Identifier: Apache-2.0
 *
 * boot_id.h: which running of the machine this is. */
#ifndef RKS_BASE_BOOT_ID_H
#define RKS_BASE_BOOT_ID_H

#include <stdbool.h>

enum { RKS_BOOT_ID = 40 }; /* bytes of its text, the NUL included */

/* Writes the kernel's boot id, a UUID; the rest of `text` becomes 0. Returns false, with an empty
 * text, if nobody knows, as without /proc. */
bool rks_boot_id(char text[RKS_BOOT_ID]);

#endif
