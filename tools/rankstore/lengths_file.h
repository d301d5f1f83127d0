/* SPDX-License-Identifier: Apache-2.0
 *
 * lengths_file.h: lengths of samples that lie in no dataset, for `plan --lengths`. */
#ifndef RKS_TOOLS_LENGTHS_FILE_H
#define RKS_TOOLS_LENGTHS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "rankstore.h"

/* Reads `path` ("-": standard input): .npy with one dimension of integers (its first bytes tell),
 * or text: numbers between blanks and line ends. Fails with RKS_ERR_IO or RKS_ERR_DATA, which name
 * the file and the place. The caller frees *lengths with free(). */
rks_status cli_read_lengths(const char *path, uint32_t **lengths, uint64_t *count, rks_error *err);

#endif
