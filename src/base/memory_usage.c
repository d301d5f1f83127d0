/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_usage.c: a counter and its peak for each kind of memory, and the kernel's figure for the
 * process. */
#include "base/memory_usage.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const char *const names[RKS_MEMORY_KINDS] = {
    [RKS_MEMORY_INDEX] = "index",       [RKS_MEMORY_INDEX_OWN] = "index_own",
    [RKS_MEMORY_PLAN] = "plan",         [RKS_MEMORY_STAGING] = "staging",
    [RKS_MEMORY_BATCHES] = "batches",   [RKS_MEMORY_IN_FLIGHT] = "in_flight",
    [RKS_MEMORY_PINNED] = "pinned",     [RKS_MEMORY_GPU_SLOTS] = "gpu_slots",
    [RKS_MEMORY_GPU_NCCL] = "gpu_nccl", [RKS_MEMORY_RESIDENT] = "resident",
};

static struct {
    atomic_uint_least64_t current, peak;
} counters[RKS_MEMORY_KINDS];

void rks_usage_add(enum rks_memory_kind kind, uint64_t bytes)
{
    uint64_t now =
        atomic_fetch_add_explicit(&counters[kind].current, bytes, memory_order_relaxed) + bytes;
    uint64_t peak = atomic_load_explicit(&counters[kind].peak, memory_order_relaxed);
    while (now > peak &&
           !atomic_compare_exchange_weak_explicit(&counters[kind].peak, &peak, now,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void rks_usage_sub(enum rks_memory_kind kind, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&counters[kind].current, bytes, memory_order_relaxed);
}

/* Reads VmRSS and VmHWM; leaves 0 if /proc is not available. */
static void read_resident(rks_memory_figure *figure)
{
    char line[128];
    uint64_t kib;
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "VmRSS: %" SCNu64, &kib) == 1)
            figure->current = kib << 10;
        else if (sscanf(line, "VmHWM: %" SCNu64, &kib) == 1)
            figure->peak = kib << 10;
    }
    fclose(file);
}

const char *rks_memory_kind_name(uint32_t kind)
{
    return kind < RKS_MEMORY_KINDS ? names[kind] : NULL;
}

void rks_memory_use_get(rks_memory_use *use)
{
    size_t room = use->struct_size;
    rks_memory_use all = {.struct_size = room};
    for (size_t i = 0; i < RKS_MEMORY_KINDS; i++) {
        all.kinds[i].current = atomic_load_explicit(&counters[i].current, memory_order_relaxed);
        all.kinds[i].peak = atomic_load_explicit(&counters[i].peak, memory_order_relaxed);
    }
    read_resident(&all.kinds[RKS_MEMORY_RESIDENT]);
    memcpy(use, &all, room < sizeof(all) ? room : sizeof(all));
}
