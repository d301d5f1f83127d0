/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_meet.c: before anything is sent: the options, which rank has which GPU and which NCCL, who
 * carries what, and the communicators' ids. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "exchange/nccl_inside.h"

/* ---- options ---------------------------------------------------------------------------- */

static rks_status read_number(const char *name, const char *text, uint64_t low, uint64_t high,
                              uint64_t *value, rks_error *err)
{
    char *end;
    *value = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && (*end == '\0' || *end == ',') && *value >= low &&
        *value <= high)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "exchange nccl: %s is a number from %" PRIu64 " to %" PRIu64, name, low, high);
}

rks_status rks_nccl_read_options(const char *text, nccl_options *options, rks_error *err)
{
    *options = (nccl_options){.timeout_ms = NCCL_ROUND_MS, .slot = NCCL_SLOT_BYTES};
    rks_status status = RKS_OK;
    while (status == RKS_OK && text != NULL && *text != '\0') {
        size_t size = strcspn(text, ",");
        uint64_t value = 0;
        if (size == 9 && strncmp(text, "rails=off", size) == 0)
            options->flat = true;
        else if (size == 8 && strncmp(text, "rails=on", size) == 0)
            options->flat = false;
        else if (size == 11 && strncmp(text, "memory=free", size) == 0)
            options->memory = NCCL_FREES;
        else if (size == 11 && strncmp(text, "memory=keep", size) == 0)
            options->memory = NCCL_KEEPS;
        else if (size == 14 && strncmp(text, "memory=suspend", size) == 0)
            options->memory = NCCL_SUSPENDS;
        else if (strncmp(text, "timeout=", 8) == 0) {
            status = read_number("timeout", text + 8, 1, 3600, &value, err);
            options->timeout_ms = (uint32_t)value * 1000;
        } else if (strncmp(text, "slot=", 5) == 0) {
            status = read_number("slot", text + 5, 4096, 1u << 30, &value, err);
            options->slot = value;
        } else {
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "exchange nccl: \"%.*s\": there are rails=on|off, timeout=SECONDS, "
                              "slot=BYTES and memory=free|suspend|keep",
                              (int)size, text);
        }
        text += size + (text[size] == ',');
    }
    return status;
}

/* ---- meeting ---------------------------------------------------------------------------- */

/* What a rank tells the others of itself:
 *
 *   offset  size  field
 *        0    17  1 and its GPU's UUID, or zeros
 *       17     3  0
 *       20     4  version of NCCL
 *       24     8  serial of the exchange that it has kept everything from; 0: it has nothing
 *       32   192  why it has no GPU or NCCL */
enum { SELF_VERSION = 20, SELF_SERIAL = 24, SELF_WHY = 32, SELF_SIZE = SELF_WHY + 192 };

static void know_self(nccl_state *state, uint8_t self[SELF_SIZE])
{
    const rks_exchange_plan *plan = state->plan;
    uint32_t place = 0;
    for (uint32_t rank = 0; rank < plan->rank; rank++)
        place += rks_group_node_of(plan->group, rank) == rks_group_node(plan->group);
    int version = 0;
    rks_error err;
    rks_status status = rks_nccl_load(&version, &err);
    if (status == RKS_OK)
        status = state->held->gpu != NULL ? rks_gpu_refuse_capture(state->held->gpu, &err)
                                          : rks_gpu_open(place, &state->held->gpu, &err);
    if (status == RKS_OK && (status = rks_gpu_enter(state->held->gpu, &err)) == RKS_OK) {
        state->held->entered = true;
        self[0] = 1;
        memcpy(self + 1, rks_gpu_uuid(state->held->gpu), RKS_GPU_UUID);
    }
    rks_store_u32(self + SELF_VERSION, (uint32_t)version);
    /* A serial and the kind of rails; what was kept for the other kind is of no use. */
    if (status == RKS_OK && state->held->flat == state->options.flat)
        rks_store_u64(self + SELF_SERIAL, state->held->serial);
    if (status != RKS_OK)
        memcpy(self + SELF_WHY, err.text, 192);
    /* A rank without a GPU may take no part; one whose caller is in the middle of a capture, or has
     * named a GPU that is not there, must not go on. */
    if (status == RKS_ERR_STATE || status == RKS_ERR_ARGUMENT)
        rks_nccl_note_own(state, status, &err);
}

static rks_status same_version(const rks_exchange_plan *plan, const uint8_t *all, rks_error *err)
{
    int64_t first = -1;
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        const uint8_t *self = all + (size_t)rank * SELF_SIZE;
        if (self[0] == 0)
            continue;
        uint32_t version = rks_load_u32(self + SELF_VERSION);
        if (first < 0)
            first = rank;
        uint32_t known = rks_load_u32(all + (size_t)first * SELF_SIZE + SELF_VERSION);
        if (version != known)
            return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                            "NCCL differs: rank %" PRId64 " (%s) has %u.%u.%u, rank %" PRIu32
                            " (%s) has %u.%u.%u; install the same everywhere",
                            first, rks_group_host(plan->group, (uint32_t)first), known / 10000,
                            known / 100 % 100, known % 100, rank, rks_group_host(plan->group, rank),
                            version / 10000, version / 100 % 100, version % 100);
    }
    return RKS_OK;
}

/* All that have a GPU kept what they hold from one exchange: then its carriers are these again. */
static bool same_serial(const rks_exchange_plan *plan, const uint8_t *all)
{
    uint64_t serial = 0;
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        const uint8_t *self = all + (size_t)rank * SELF_SIZE;
        uint64_t theirs = rks_load_u64(self + SELF_SERIAL);
        if (self[0] == 0)
            continue;
        if (theirs == 0 || (serial != 0 && theirs != serial))
            return false;
        serial = theirs;
    }
    return serial != 0;
}

static rks_status choose_carriers(nccl_state *state, const uint8_t *all, uint8_t *gpus,
                                  uint32_t *nodes, rks_error *err)
{
    rks_exchange_plan *plan = state->plan;
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        memcpy(gpus + (size_t)rank * RKS_GPU_RECORD, all + (size_t)rank * SELF_SIZE,
               RKS_GPU_RECORD);
        nodes[rank] = rks_group_node_of(plan->group, rank);
    }
    rks_rails_input input = {
        .ranks = plan->size,
        .rank = plan->rank,
        .nodes = nodes,
        .gpus = gpus,
        .sizes = plan->sizes,
        .flat = state->options.flat,
        .slot = state->options.slot,
        .chunk = plan->chunk,
        .boundary = plan->job->boundary,
        .user = plan->job->user,
    };
    rks_status status = rks_rails_make(&input, &state->rails, err);
    if (status == RKS_ERR_UNSUPPORTED && err->rank >= 0) {
        uint32_t rank = (uint32_t)err->rank;
        char why[192];
        snprintf(why, sizeof(why), "%.191s", all + (size_t)rank * SELF_SIZE + SELF_WHY);
        rks_fail(err, status, 0, "%s", why);
        rks_error_place(err, rank, rks_group_host(plan->group, rank));
    }
    return status;
}

rks_status rks_nccl_meet(nccl_state *state, rks_error *err)
{
    rks_exchange_plan *plan = state->plan;
    uint8_t self[SELF_SIZE] = {0}, *all = NULL;
    uint64_t *offsets = NULL;
    know_self(state, self);
    if (state->status != RKS_OK)
        *err = state->err;
    rks_status status = rks_group_allgather(plan->group, "exchange: GPUs", state->status, self,
                                            sizeof(self), &all, &offsets, err);
    uint8_t *gpus = rks_alloc(plan->size, RKS_GPU_RECORD, NULL);
    uint32_t *nodes = rks_alloc(plan->size, sizeof(*nodes), NULL);
    if (status == RKS_OK && offsets[plan->size] != (uint64_t)plan->size * SELF_SIZE)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "exchange: records of %" PRIu64 " bytes",
                          offsets[plan->size]);
    if (status == RKS_OK)
        status = same_version(plan, all, err);
    if (status == RKS_OK && (gpus == NULL || nodes == NULL))
        status = rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: records of GPUs");
    if (status == RKS_OK)
        status = choose_carriers(state, all, gpus, nodes, err);
    if (status == RKS_OK)
        state->reuses = same_serial(plan, all);
    rks_free(gpus);
    rks_free(nodes);
    rks_release(all);
    rks_release(offsets);
    return rks_group_agree(plan->group, "exchange: rails", status, err);
}

rks_status rks_nccl_hand_round_ids(nccl_state *state, uint8_t id[RKS_COMMUNICATOR_ID],
                                   rks_error *err)
{
    rks_exchange_plan *plan = state->plan;
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    bool mine = state->rails.mine >= 0 && state->rails.root == plan->rank;
    rks_status status = mine ? rks_communicator_draw_id(id, err) : RKS_OK;
    status = rks_group_allgather(plan->group, "exchange: NCCL ids", status, id,
                                 mine ? RKS_COMMUNICATOR_ID : 0, &all, &offsets, err);
    if (status == RKS_OK && state->rails.mine >= 0) {
        uint32_t root = state->rails.root;
        if (offsets[root + 1] - offsets[root] == RKS_COMMUNICATOR_ID)
            memcpy(id, all + offsets[root], RKS_COMMUNICATOR_ID);
        else
            status = rks_fail(err, RKS_ERR_CORRUPT, 0, "exchange: no id from rank %" PRIu32, root);
    }
    rks_release(all);
    rks_release(offsets);
    return rks_group_agree(plan->group, "exchange: NCCL ids taken", status, err);
}

bool rks_exchange_nccl_usable(char text[192])
{
    int version = 0;
    rks_gpu *gpu = NULL;
    rks_error err;
    rks_status status = rks_nccl_load(&version, &err);
    if (status == RKS_OK)
        status = rks_gpu_open(0, &gpu, &err);
    if (status != RKS_OK)
        snprintf(text, 192, "%s", err.text);
    else
        snprintf(text, 192, "NCCL %d.%d.%d, GPU %d", version / 10000, version / 100 % 100,
                 version % 100, rks_gpu_number(gpu));
    rks_gpu_close(gpu);
    return status == RKS_OK;
}
