/* SPDX-License-Identifier: Apache-2.0
 *
 * test_declarations.c: the calls of CUDA and NCCL, as src/exchange declares them, are those of
 * NVIDIA's headers. The compiler compares; a difference does not build. */
#include <cuda.h>
#include <nccl.h>
#include <stddef.h>

#include "exchange/cuda_calls.h"
#include "exchange/gpu.h"
#include "exchange/nccl_calls.h"
#include "support/check.h"

/* Handles are pointers to the same structs, and NVIDIA's enums are unsigned ints. */
#define SAME_CUDA(name, parameters)                                                                \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), rks_cu_result(*) parameters),   \
                   #name " is declared otherwise in cuda.h");
RKS_CUDA_CALLS(SAME_CUDA)

/* Two structs of NCCL are ours by another name; they are compared below. */
typedef ncclUniqueId same_id;
typedef ncclConfig_t same_config;
#define rks_nccl_id same_id
#define rks_nccl_config same_config
#define SAME_NCCL(result, name, parameters)                                                        \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) parameters),          \
                   #name " is declared otherwise in nccl.h");
RKS_NCCL_CALLS(SAME_NCCL)
#undef rks_nccl_id
#undef rks_nccl_config

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #ours)
SAME(RKS_CU_SUCCESS, CUDA_SUCCESS);
SAME(RKS_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(RKS_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(RKS_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(RKS_CU_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(RKS_CU_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
SAME(RKS_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(RKS_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(RKS_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(RKS_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME(RKS_CU_DEVICE_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(RKS_GPU_UUID, sizeof(CUuuid));
SAME(RKS_NCCL_SUCCESS, ncclSuccess);
SAME(RKS_NCCL_IN_PROGRESS, ncclInProgress);
SAME(RKS_NCCL_INT8, ncclInt8);
SAME(RKS_NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
SAME(sizeof(rks_nccl_id), sizeof(ncclUniqueId));

#define FIELD(ours, theirs)                                                                        \
    SAME(offsetof(rks_nccl_config, ours), offsetof(ncclConfig_t, theirs));                         \
    SAME(sizeof(((rks_nccl_config *)0)->ours), sizeof(((ncclConfig_t *)0)->theirs))
FIELD(size, size);
FIELD(magic, magic);
FIELD(version, version);
FIELD(blocking, blocking);
FIELD(cga_cluster_size, cgaClusterSize);
FIELD(min_ctas, minCTAs);
FIELD(max_ctas, maxCTAs);
FIELD(net_name, netName);
FIELD(split_share, splitShare);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
FIELD(traffic_class, trafficClass);
FIELD(comm_name, commName);
FIELD(collnet_enable, collnetEnable);
FIELD(cta_policy, CTAPolicy);
FIELD(shrink_share, shrinkShare);
FIELD(nvls_ctas, nvlsCTAs);
#endif

static void values_that_only_a_program_can_compare(void **state)
{
    (void)state;
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    assert_int_equal((unsigned)RKS_NCCL_MAGIC, theirs.magic);
    assert_ptr_equal(RKS_CU_STREAM_LEGACY, CU_STREAM_LEGACY);
    assert_ptr_equal(RKS_CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_only_a_program_can_compare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
