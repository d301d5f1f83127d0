/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/index.h: the index of all samples, one copy a node. Part of rankstore.h. */
#ifndef RANKSTORE_INDEX_H
#define RANKSTORE_INDEX_H

#include "rankstore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The caller of rks_store_index() owns it. Any thread. */
typedef struct rks_index rks_index;
RKS_API void rks_index_close(rks_index *index); /* NULL is accepted */

#ifdef __cplusplus
}
#endif

#endif
