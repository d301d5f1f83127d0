/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_setting.h: a number that NCCL takes from its settings: the environment, else the file that
 * NCCL_CONF_FILE names, or ~/.nccl.conf without it, else /etc/nccl.conf. NCCL reads the files when
 * its first communicator is made, which is too late to ask it. */
#ifndef RKS_EXCHANGE_NCCL_SETTING_H
#define RKS_EXCHANGE_NCCL_SETTING_H

#include <stdbool.h>
#include <stdint.h>

/* Returns false if it is not set, or empty. *value becomes 0 if it is not a number, as NCCL reads
 * it. */
bool rks_nccl_setting(const char *name, int64_t *value);

#endif
