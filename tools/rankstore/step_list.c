/* SPDX-License-Identifier: Apache-2.0
 *
 * step_list.c: the samples of one step, rank by rank. */
#include "step_list.h"

#include <inttypes.h>

#include "mix.h"
#include "value.h"

static rks_status print_planned(rks_store *store, const cli_plan_args *args, uint32_t rank,
                                uint32_t id, const rks_piece *piece, bool as_json, rks_error *err)
{
    uint8_t key[RKS_KEY_MAX] = {0};
    size_t size = 0;
    uint32_t length = store == NULL ? args->lengths[id] : rks_store_sealed_lengths(store)[id];
    length = piece != NULL ? piece->count : length;
    rks_status status = store == NULL ? RKS_OK : rks_store_key(store, id, key, &size, err);
    if (status != RKS_OK)
        return status;
    if (as_json) {
        json_t *line = json_pack("{s:I, s:I, s:I}", "rank", (json_int_t)rank, "id", (json_int_t)id,
                                 "length", (json_int_t)length);
        if (piece != NULL)
            json_object_set_new(line, "start", json_integer(piece->start));
        if (store != NULL)
            json_object_set_new(line, "key", cli_text_json(key, size));
        cli_print_json(line, JSON_COMPACT);
        return RKS_OK;
    }
    printf("%-6" PRIu32 " #%-10" PRIu32 " %10" PRIu32 "  ", rank, id, length);
    cli_print_key(stdout, key, size);
    if (piece != NULL)
        printf("  [%" PRIu32 ":%" PRIu64 "]", piece->start, (uint64_t)piece->start + piece->count);
    printf("\n");
    return RKS_OK;
}

static rks_status print_step(rks_store *store, rks_plan *plan, const cli_plan_args *args,
                             uint64_t epoch, const cli_step_place *place, bool as_json,
                             rks_error *err)
{
    uint32_t world = rks_plan_world(plan), rank = place->rank == UINT32_MAX ? 0 : place->rank;
    uint32_t end = place->rank == UINT32_MAX ? world : rank + 1;
    rks_status status = RKS_OK;
    for (; rank < end && status == RKS_OK; rank++) {
        const uint32_t *ids;
        const rks_piece *piece = NULL;
        size_t count = 0, pieces = 0;
        status = rks_plan_batch(plan, epoch, place->step, rank, &ids, &count, err);
        if (status == RKS_OK)
            status = rks_plan_pieces(plan, epoch, place->step, rank, &piece, &pieces, err);
        for (size_t i = 0; i < count && status == RKS_OK; i++) {
            bool is_piece = pieces > 0 && piece->place == i;
            status =
                print_planned(store, args, rank, ids[i], is_piece ? piece : NULL, as_json, err);
            piece += is_piece;
            pieces -= is_piece;
        }
    }
    return status;
}

rks_status cli_list_step(rks_store *store, const cli_plan_args *args, const cli_step_place *place,
                         bool as_json, rks_error *err)
{
    rks_plan *plan = NULL;
    rks_group *group = store == NULL ? NULL : rks_store_group(store);
    uint64_t epoch = args->epoch;
    rks_status status = cli_mix_plan(store, args, &args->options, &plan, err);
    if (status != RKS_OK)
        return status;
    if (group == NULL || rks_group_rank(group) == 0) {
        uint64_t step = 0;
        if (place->path != NULL)
            status = rks_plan_resume(plan, place->state.text, &epoch, &step, err);
        if (status == RKS_OK)
            status = print_step(store, plan, args, epoch, place, as_json, err);
    }
    rks_plan_free(plan);
    return group == NULL ? status : rks_group_agree(group, "plan: step", status, err);
}
