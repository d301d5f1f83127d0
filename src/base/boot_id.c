/* SPDX-License-Identifier: Apache-2.0 */
#include "base/boot_id.h"

#include <stdio.h>
#include <string.h>

bool rks_boot_id(char text[RKS_BOOT_ID])
{
    memset(text, 0, RKS_BOOT_ID);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL)
        return false;
    bool known = fscanf(file, "%36[0-9a-f-]", text) == 1;
    fclose(file);
    return known;
}
