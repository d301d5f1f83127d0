/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_calls.h: the calls of NCCL that Rankstore makes, declared here, so that every build has
 * them, whether nccl.h is installed or not. libnccl.so.2 keeps its ABI; a newer one reads an older
 * program's configuration by its size and version.
 * tests/unit/exchange/test_declarations.c compares all of it with nccl.h where that is installed.
 */
#ifndef RKS_EXCHANGE_NCCL_CALLS_H
#define RKS_EXCHANGE_NCCL_CALLS_H

#include <limits.h>
#include <stddef.h>

#include "exchange/cuda_calls.h"

struct ncclComm;

typedef unsigned rks_nccl_result;
typedef unsigned rks_nccl_type;
typedef struct ncclComm *rks_nccl_comm;
typedef struct rks_nccl_id {
    char bytes[128];
} rks_nccl_id;

enum rks_nccl_values {
    RKS_NCCL_SUCCESS = 0,
    RKS_NCCL_IN_PROGRESS = 7,
    RKS_NCCL_INT8 = 0,
    RKS_NCCL_UNDEFINED = INT_MIN, /* NCCL's own default */
    RKS_NCCL_MAGIC = (int)0xcafebeef,
    RKS_NCCL_CONFIG_VERSION = 22700, /* NCCL reads the fields that this version has */
};

/* ncclConfig_t as of 2.27. Libraries from 2.18 to 2.26 read its first fields. */
typedef struct rks_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas;
} rks_nccl_config;

/* CALL(result, name, parameters) */
#define RKS_NCCL_CALLS(CALL)                                                                       \
    CALL(rks_nccl_result, ncclGetVersion, (int *version))                                          \
    CALL(const char *, ncclGetErrorString, (rks_nccl_result result))                               \
    CALL(const char *, ncclGetLastError, (rks_nccl_comm comm))                                     \
    CALL(rks_nccl_result, ncclGetUniqueId, (rks_nccl_id * id))                                     \
    CALL(rks_nccl_result, ncclCommInitRankConfig,                                                  \
         (rks_nccl_comm * comm, int ranks, rks_nccl_id id, int rank, rks_nccl_config *config))     \
    CALL(rks_nccl_result, ncclCommGetAsyncError, (rks_nccl_comm comm, rks_nccl_result * result))   \
    CALL(rks_nccl_result, ncclGroupStart, (void))                                                  \
    CALL(rks_nccl_result, ncclGroupEnd, (void))                                                    \
    CALL(rks_nccl_result, ncclBroadcast,                                                           \
         (const void *send, void *receive, size_t count, rks_nccl_type type, int root,             \
          rks_nccl_comm comm, rks_cu_stream stream))                                               \
    CALL(rks_nccl_result, ncclCommFinalize, (rks_nccl_comm comm))                                  \
    CALL(rks_nccl_result, ncclCommDestroy, (rks_nccl_comm comm))                                   \
    CALL(rks_nccl_result, ncclCommAbort, (rks_nccl_comm comm))

#endif
