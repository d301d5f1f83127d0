/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: what memory the ranks hold, as JSON and as a table. */
#include <jansson.h>

#include "cli.h"
#include "memory.h"

json_t *cli_memory_json(const cli_memory *memory)
{
    json_t *object = json_object();
    for (uint32_t kind = 0; kind < RKS_MEMORY_KINDS; kind++) {
        const rks_memory_extreme *most = &memory->most.kinds[kind];
        json_t *ranks = json_array();
        for (uint32_t rank = 0; rank < memory->rank_count; rank++) {
            const rks_memory_figure *one = &memory->ranks[rank].kinds[kind];
            json_array_append_new(ranks,
                                  json_pack("{s:I, s:I}", "current", (json_int_t)one->current,
                                            "peak", (json_int_t)one->peak));
        }
        json_object_set_new(
            object, rks_memory_kind_name(kind),
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "current", (json_int_t)most->current,
                      "current_rank", (json_int_t)most->current_rank, "peak",
                      (json_int_t)most->peak, "peak_rank", (json_int_t)most->peak_rank,
                      "least_peak", (json_int_t)most->least_peak, "ranks", ranks));
    }
    return object;
}

void cli_memory_print(const cli_memory *memory)
{
    printf("  %-10s %11s %6s %11s %11s\n", "memory", "peak", "rank", "least peak", "now");
    for (uint32_t kind = 0; kind < RKS_MEMORY_KINDS; kind++) {
        const rks_memory_extreme *most = &memory->most.kinds[kind];
        if (most->peak > 0)
            printf("  %-10s %11s %6u %11s %11s%s\n", rks_memory_kind_name(kind),
                   cli_bytes(most->peak), most->peak_rank, cli_bytes(most->least_peak),
                   cli_bytes(most->current),
                   kind == RKS_MEMORY_INDEX ? "  one copy a node, reported by each rank" : "");
    }
}

rks_status cli_memory_gather(rks_group *group, cli_memory *memory, rks_error *err)
{
    memory->most.struct_size = sizeof(memory->most);
    memory->rank_count = rks_group_size(group);
    return rks_memory_use_all(group, sizeof(*memory->ranks), &memory->ranks, &memory->most, err);
}

void cli_memory_free(cli_memory *memory)
{
    rks_release(memory->ranks);
}
