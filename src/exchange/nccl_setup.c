/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_setup.c: before anything is sent: the options, which rank has which GPU and which NCCL, who
 * carries what, and the communicators' ids. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "exchange/nccl_state.h"
#include "exchange/nccl_setting.h"
#include "group/agreement.h"

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
    *options = (nccl_options){.timeout_ms = NCCL_ROUND_MS, .buffer = NCCL_BUFFER_BYTES};
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
        else if (strncmp(text, "timeout=", 8) == 0) {
            status = read_number("timeout", text + 8, 1, 3600, &value, err);
            options->timeout_ms = (uint32_t)value * 1000;
        } else if (strncmp(text, "slot=", 5) == 0) {
            status = read_number("slot", text + 5, 4096, 1u << 30, &value, err);
            options->buffer = value;
        } else {
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "exchange nccl: \"%.*s\": there are rails=on|off, timeout=SECONDS, "
                              "slot=BYTES and memory=free|keep",
                              (int)size, text);
        }
        text += size + (text[size] == ',');
    }
    return status;
}

/* ---- meeting ---------------------------------------------------------------------------- */

/* What a rank reports about itself:
 *
 *   offset  size  field
 *        0    17  1 and its GPU's UUID, or zeros
 *       17     1  1: NCCL connects all its algorithms at once here
 *       18     2  0
 *       20     4  version of NCCL
 *       24     8  serial of the exchange from which it has kept everything; 0: nothing
 *       32   192  why it has no GPU or NCCL */
enum {
    SELF_AT_ONCE = 17,
    SELF_VERSION = 20,
    SELF_SERIAL = 24,
    SELF_WHY = 32,
    SELF_SIZE = SELF_WHY + 192
};

enum { NCCL_CUMEM_ASKS_DRIVER = -2 }; /* NCCL's default */

static const uint8_t *self_of(const rks_agreed *all, uint32_t rank)
{
    return rks_agreed_get(all, rank, 0, NULL);
}

/* Returns true if a communicator connects all its algorithms when it is made, which happens without
 * the driver's virtual memory. With one GPU a node that includes PAT, which takes hundreds of MB.
 * If nodes have several GPUs, one communicator of all of them has several a node. */
static bool connects_at_once(const rks_gpu *gpu)
{
    int64_t value = 0;
    if (rks_nccl_setting("NCCL_RUNTIME_CONNECT", &value) && value == 0)
        return true;
    if (rks_nccl_setting("NCCL_CUMEM_ENABLE", &value) && value != NCCL_CUMEM_ASKS_DRIVER)
        return value <= 0;
    return gpu != NULL && !rks_gpu_has_virtual_memory(gpu);
}

static const char *why_more(const rks_gpu *gpu)
{
    int64_t value = 0;
    if (rks_nccl_setting("NCCL_MIN_NCHANNELS", &value) && value > 2)
        return "NCCL_MIN_NCHANNELS is above 2";
    if (rks_nccl_setting("NCCL_MIN_CTAS", &value) && value > 2)
        return "NCCL_MIN_CTAS is above 2";
    if (rks_nccl_setting("NCCL_BUFFSIZE", &value) && value > 4 << 20)
        return "NCCL_BUFFSIZE is above 4 MiB";
    if (connects_at_once(gpu))
        return "NCCL connects all its algorithms at once here; see NCCL_CUMEM_ENABLE and "
               "NCCL_RUNTIME_CONNECT";
    return "other work took some of it meanwhile, or NCCL takes more than it is known to";
}

void rks_nccl_judge_memory(const rks_gpu *gpu, uint64_t bytes)
{
    if (bytes > NCCL_MOST_BYTES)
        rks_log("exchange nccl: it took %" PRIu64 " MiB of GPU memory, more than %u: %s",
                bytes >> 20, NCCL_MOST_BYTES >> 20, why_more(gpu));
}

static void flat_for_all(nccl_state *state, const rks_agreed *all)
{
    for (uint32_t rank = 0; rank < state->plan->size; rank++)
        state->options.flat |= self_of(all, rank)[SELF_AT_ONCE] != 0;
}

static void know_self(nccl_state *state, uint8_t self[SELF_SIZE])
{
    const rks_exchange_plan *plan = state->plan;
    uint32_t place = 0;
    for (uint32_t rank = 0; rank < plan->rank; rank++)
        place += rks_group_node_of(plan->group, rank) == rks_group_node(plan->group);
    int version = 0;
    rks_error err;
    rks_status status = rks_nccl_refuse_lost(&err);
    if (status == RKS_OK)
        status = rks_nccl_load(&version, &err);
    if (status == RKS_OK)
        status = state->held->gpu != NULL ? rks_gpu_refuse_capture(&err)
                                          : rks_gpu_open(place, &state->held->gpu, &err);
    self[SELF_AT_ONCE] = connects_at_once(state->held->gpu);
    state->options.flat |= self[SELF_AT_ONCE] != 0;
    if (status == RKS_OK) {
        self[0] = 1;
        memcpy(self + 1, rks_gpu_uuid(state->held->gpu), RKS_GPU_UUID);
    }
    rks_store_u32(self + SELF_VERSION, (uint32_t)version);
    /* A serial and the kind of rails. What was kept for the other kind cannot be used. */
    if (status == RKS_OK && state->held->flat == state->options.flat)
        rks_store_u64(self + SELF_SERIAL, state->held->serial);
    if (status != RKS_OK)
        memcpy(self + SELF_WHY, err.text, 192);
    /* A rank without a GPU may stay out. But a caller that is in the middle of a capture, or has
     * named a GPU that does not exist, must get its error. */
    if (status == RKS_ERR_STATE || status == RKS_ERR_ARGUMENT)
        rks_nccl_note_own(state, status, &err);
}

static rks_status same_version(const rks_exchange_plan *plan, const rks_agreed *all, rks_error *err)
{
    int64_t first = -1;
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        const uint8_t *self = self_of(all, rank);
        if (self[0] == 0)
            continue;
        uint32_t version = rks_load_u32(self + SELF_VERSION);
        if (first < 0)
            first = rank;
        uint32_t known = rks_load_u32(self_of(all, (uint32_t)first) + SELF_VERSION);
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

/* Returns true if all ranks with a GPU have kept what they hold from the same exchange; its
 * carriers are then the same. */
static bool same_serial(const rks_exchange_plan *plan, const rks_agreed *all)
{
    uint64_t serial = 0;
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        const uint8_t *self = self_of(all, rank);
        uint64_t theirs = rks_load_u64(self + SELF_SERIAL);
        if (self[0] == 0)
            continue;
        if (theirs == 0 || (serial != 0 && theirs != serial))
            return false;
        serial = theirs;
    }
    return serial != 0;
}

static rks_status choose_carriers(nccl_state *state, const rks_agreed *all, uint8_t *gpus,
                                  uint32_t *nodes, rks_error *err)
{
    rks_exchange_plan *plan = state->plan;
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        memcpy(gpus + (size_t)rank * RKS_GPU_RECORD, self_of(all, rank), RKS_GPU_RECORD);
        nodes[rank] = rks_group_node_of(plan->group, rank);
    }
    rks_rails_input input = {
        .ranks = plan->size,
        .rank = plan->rank,
        .nodes = nodes,
        .gpus = gpus,
        .sizes = plan->sizes,
        .flat = state->options.flat,
        .buffer = state->options.buffer,
        .chunk = plan->chunk,
        .segments = plan->job->segments,
    };
    rks_status status = rks_rails_make(&input, &state->rails, err);
    if (status == RKS_ERR_UNSUPPORTED && err->rank >= 0) {
        uint32_t rank = (uint32_t)err->rank;
        char why[192];
        snprintf(why, sizeof(why), "%.191s", (const char *)self_of(all, rank) + SELF_WHY);
        rks_fail(err, status, 0, "%s", why);
        rks_error_place(err, rank, rks_group_host(plan->group, rank));
    }
    return status;
}

rks_status rks_nccl_meet(nccl_state *state, rks_error *err)
{
    rks_exchange_plan *plan = state->plan;
    uint8_t self[SELF_SIZE] = {0};
    rks_agreed all;
    const rks_fact fact = rks_fact_fixed(self, sizeof(self));
    know_self(state, self);
    if (state->status != RKS_OK)
        *err = state->err;
    rks_status status =
        rks_group_agree_on(plan->group, "exchange: GPUs", state->status, &fact, 1, &all, err);
    if (status == RKS_OK)
        flat_for_all(state, &all);
    uint8_t *gpus = rks_alloc(plan->size, RKS_GPU_RECORD, NULL);
    uint32_t *nodes = rks_alloc(plan->size, sizeof(*nodes), NULL);
    if (status == RKS_OK)
        status = same_version(plan, &all, err);
    if (status == RKS_OK && (gpus == NULL || nodes == NULL))
        status = rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: records of GPUs");
    if (status == RKS_OK)
        status = choose_carriers(state, &all, gpus, nodes, err);
    if (status == RKS_OK)
        state->reuses = same_serial(plan, &all);
    if (status == RKS_OK && state->rails.mine >= 0) {
        status = rks_gpu_enter(state->held->gpu, err);
        state->held->entered = status == RKS_OK;
    }
    rks_free(gpus);
    rks_free(nodes);
    return rks_group_agree(plan->group, "exchange: rails", status, err);
}

rks_status rks_nccl_hand_round_ids(nccl_state *state, uint8_t id[RKS_COMMUNICATOR_ID],
                                   rks_error *err)
{
    rks_exchange_plan *plan = state->plan;
    rks_agreed all;
    size_t size = 0;
    bool mine = state->rails.mine >= 0 && state->rails.root == plan->rank;
    /* After what was kept is freed. */
    rks_status status = state->held->left_behind ? rks_nccl_refuse_lost(err) : RKS_OK;
    if (status == RKS_OK && mine)
        status = rks_communicator_draw_id(id, err);
    const rks_fact fact = rks_fact_optional(mine ? id : NULL, RKS_COMMUNICATOR_ID);
    status = rks_group_agree_on(plan->group, "exchange: NCCL ids", status, &fact, 1, &all, err);
    if (status == RKS_OK && state->rails.mine >= 0) {
        uint32_t root = state->rails.root;
        const void *theirs = rks_agreed_get(&all, root, 0, &size);
        if (size == RKS_COMMUNICATOR_ID)
            memcpy(id, theirs, size);
        else
            status = rks_fail(err, RKS_ERR_CORRUPT, 0, "exchange: no id from rank %" PRIu32, root);
    }
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
    int found = version == 0 ? 0
                             : snprintf(text, 192, "NCCL %d.%d.%d, ", version / 10000,
                                        version / 100 % 100, version % 100);
    if (status != RKS_OK)
        snprintf(text + found, 192 - (size_t)found, "%.150s", err.text);
    else
        snprintf(text + found, 192 - (size_t)found, "GPU %d", rks_gpu_number(gpu));
    rks_gpu_close(gpu);
    return status == RKS_OK;
}
