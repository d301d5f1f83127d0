/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_use.c: what memory the ranks of a group hold, in one table on each of them.
 *
 * A rank brings its figures, 8 bytes each, little-endian: current and peak of each kind. A library
 * of another version may know more or fewer kinds; what it does not know of is 0. */
#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "group/group.h"

enum { FIGURE = 16, RECORD = FIGURE * RKS_MEMORY_KINDS };

static void encode(const rks_memory_use *use, uint8_t record[RECORD])
{
    for (size_t i = 0; i < RKS_MEMORY_KINDS; i++) {
        rks_store_u64(record + FIGURE * i, use->kinds[i].current);
        rks_store_u64(record + FIGURE * i + 8, use->kinds[i].peak);
    }
}

static void decode_memory_use(const uint8_t *record, uint64_t size, rks_memory_use *use)
{
    for (size_t i = 0; i < RKS_MEMORY_KINDS && FIGURE * (i + 1) <= size; i++) {
        use->kinds[i].current = rks_load_u64(record + FIGURE * i);
        use->kinds[i].peak = rks_load_u64(record + FIGURE * i + 8);
    }
}

static void note_most(rks_memory_most *most, const rks_memory_use *use, uint32_t rank)
{
    for (size_t i = 0; i < RKS_MEMORY_KINDS; i++) {
        const rks_memory_figure *one = &use->kinds[i];
        rks_memory_extreme *of = &most->kinds[i];
        if (rank == 0 || one->current > of->current) {
            of->current = one->current;
            of->current_rank = rank;
        }
        if (rank == 0 || one->peak > of->peak) {
            of->peak = one->peak;
            of->peak_rank = rank;
        }
        if (rank == 0 || one->peak < of->least_peak)
            of->least_peak = one->peak;
    }
}

rks_status rks_memory_use_all(rks_group *group, size_t struct_size, rks_memory_use **ranks,
                              rks_memory_most *most, rks_error *err)
{
    uint8_t record[RECORD];
    rks_gathered all = {0};
    uint32_t size = rks_group_size(group);
    rks_memory_use mine = {.struct_size = sizeof(mine)}, *table = NULL;
    rks_memory_most extremes = {0};
    rks_status status = RKS_OK;
    if (struct_size < sizeof(mine.struct_size) || struct_size % sizeof(uint64_t) != 0 ||
        (most != NULL && most->struct_size < sizeof(most->struct_size)))
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "rks_memory_use_all: struct_size of %zu bytes",
                          struct_size);
    else if (ranks != NULL && (table = rks_alloc(size, struct_size, err)) == NULL)
        status = RKS_ERR_MEMORY;
    rks_memory_use_get(&mine);
    encode(&mine, record);
    status = rks_group_allgather(group, "memory", status, record, sizeof(record), &all, err);
    for (uint32_t rank = 0; status == RKS_OK && rank < size; rank++) {
        rks_memory_use use = {.struct_size = struct_size};
        decode_memory_use(all.bytes + all.offsets[rank], all.offsets[rank + 1] - all.offsets[rank],
                          &use);
        note_most(&extremes, &use, rank);
        if (table != NULL)
            memcpy((uint8_t *)table + rank * struct_size, &use,
                   struct_size < sizeof(use) ? struct_size : sizeof(use));
    }
    rks_free(all.bytes);
    rks_free(all.offsets);
    if (status != RKS_OK) {
        rks_free(table);
        return status;
    }
    if (ranks != NULL)
        *ranks = table;
    if (most != NULL) {
        size_t room = most->struct_size;
        extremes.struct_size = room;
        memcpy(most, &extremes, room < sizeof(extremes) ? room : sizeof(extremes));
    }
    return RKS_OK;
}
