/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_rails.c: carriers, slices and rounds. */
#include "exchange/gpu_rails.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"

enum { ALIGN = 16 };

static const uint8_t *gpu_of(const rks_rails_input *in, uint32_t rank)
{
    return in->gpus + (size_t)rank * RKS_GPU_RECORD;
}

/* Returns true if the rank has a GPU that no lower rank of its node has. */
static bool has_own_gpu(const rks_rails_input *in, uint32_t rank)
{
    const uint8_t *gpu = gpu_of(in, rank);
    if (gpu[0] == 0)
        return false;
    for (uint32_t other = 0; other < rank; other++)
        if (in->nodes[other] == in->nodes[rank] &&
            memcmp(gpu_of(in, other), gpu, RKS_GPU_RECORD) == 0)
            return false;
    return true;
}

static uint32_t count_nodes(const rks_rails_input *in)
{
    uint32_t nodes = 0;
    for (uint32_t rank = 0; rank < in->ranks; rank++)
        if (in->nodes[rank] >= nodes)
            nodes = in->nodes[rank] + 1;
    return nodes;
}

/* Finds the carriers: carriers[node * ranks + i] is the node's i-th rank with a GPU of its own;
 * there are counts[node] of them. */
static rks_status find_carriers(const rks_rails_input *in, uint32_t nodes, uint32_t *carriers,
                                uint32_t *counts, uint32_t *fewest, rks_error *err)
{
    for (uint32_t rank = 0; rank < in->ranks; rank++) {
        uint32_t node = in->nodes[rank];
        if (has_own_gpu(in, rank))
            carriers[(size_t)node * in->ranks + counts[node]++] = rank;
    }
    *fewest = UINT32_MAX;
    for (uint32_t node = 0; node < nodes; node++) {
        uint32_t lowest = 0;
        while (in->nodes[lowest] != node)
            lowest++;
        if (counts[node] == 0) {
            rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "its node has no GPU");
            rks_error_place(err, lowest, "");
            return RKS_ERR_UNSUPPORTED;
        }
        if (counts[node] < *fewest)
            *fewest = counts[node];
    }
    return RKS_OK;
}

/* Returns where slice `i` begins in a node's stream: an even share, moved on to where the stream of
 * that rank may be divided. */
static uint64_t slice_begin(const rks_rails_input *in, uint32_t node, uint32_t i, uint32_t rails)
{
    uint64_t total = 0;
    for (uint32_t rank = 0; rank < in->ranks; rank++)
        if (in->nodes[rank] == node)
            total += in->sizes[rank];
    uint64_t at = total / rails * i + total % rails * i / rails, before = 0;
    if (i == 0 || i == rails || in->segments == NULL)
        return at;
    for (uint32_t rank = 0; rank < in->ranks; rank++) {
        if (in->nodes[rank] != node)
            continue;
        if (at - before < in->sizes[rank])
            return before + rks_exchange_boundary(in->segments, rank, at - before);
        before += in->sizes[rank];
    }
    return total;
}

/* Appends the stretches that make up [begin, end) of a node's stream. */
static void add_stretches(const rks_rails_input *in, uint32_t node, uint64_t begin, uint64_t end,
                          rks_rails *rails, rks_member *member)
{
    uint64_t before = 0;
    member->first_stretch = rails->stretch_count;
    for (uint32_t rank = 0; rank < in->ranks && before < end; rank++) {
        if (in->nodes[rank] != node)
            continue;
        uint64_t size = in->sizes[rank], from = begin > before ? begin - before : 0;
        uint64_t to = end - before < size ? end - before : size;
        if (from < to)
            rails->stretches[rails->stretch_count++] = (rks_stretch){rank, from, to - from};
        before += size;
    }
    member->stretch_count = rails->stretch_count - member->first_stretch;
    member->bytes = end - begin;
}

static void find_self(const rks_rails_input *in, const uint32_t *carriers, rks_rails *rails)
{
    rails->mine = -1;
    for (uint32_t i = 0; i < rails->rails; i++)
        if (carriers[(size_t)in->nodes[in->rank] * in->ranks + i] == in->rank)
            rails->mine = rails->flat ? 0 : i;
}

static void add_members(const rks_rails_input *in, const uint32_t *carriers, uint32_t nodes,
                        rks_rails *rails)
{
    for (uint32_t node = 0; node < nodes; node++) {
        for (uint32_t i = 0; i < rails->rails; i++) {
            if (!rails->flat && i != rails->mine)
                continue;
            rks_member *member = &rails->members[rails->member_count];
            *member = (rks_member){
                .rank = carriers[(size_t)node * in->ranks + i], .node = node, .carrier = i};
            if (member->rank == in->rank)
                rails->me = rails->member_count;
            rails->member_count++;
            add_stretches(in, node, slice_begin(in, node, i, rails->rails),
                          slice_begin(in, node, i + 1, rails->rails), rails, member);
        }
    }
    rails->root = rails->members[0].rank;
}

static rks_status size_rounds(const rks_rails_input *in, rks_rails *rails, rks_error *err)
{
    uint64_t share = in->buffer / rails->member_count & ~(uint64_t)(ALIGN - 1);
    if (share < RKS_ROUND_HEAD + ALIGN)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "%" PRIu32 " GPUs share a buffer of %" PRIu64 " bytes", rails->member_count,
                        in->buffer);
    rails->room = share - RKS_ROUND_HEAD;
    uint64_t chunk = rks_round_up(in->chunk, ALIGN);
    if (chunk != 0 && chunk < rails->room)
        rails->room = chunk;
    for (uint32_t i = 0; i < rails->member_count; i++) {
        uint64_t bytes = rails->members[i].bytes;
        uint64_t rounds = bytes / rails->room + (bytes % rails->room != 0);
        if (rounds > rails->rounds)
            rails->rounds = rounds;
    }
    return RKS_OK;
}

rks_status rks_rails_make(const rks_rails_input *in, rks_rails *rails, rks_error *err)
{
    uint32_t nodes = count_nodes(in);
    rks_rails made = {.flat = in->flat};
    uint32_t *carriers = rks_alloc((size_t)nodes * in->ranks, sizeof(*carriers), err);
    uint32_t *counts = rks_alloc(nodes, sizeof(*counts), err);
    rks_status status = carriers == NULL || counts == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = find_carriers(in, nodes, carriers, counts, &made.rails, err);
    if (status == RKS_OK) {
        find_self(in, carriers, &made);
        size_t most = (size_t)nodes * (made.flat ? made.rails : 1);
        made.members = rks_alloc(most, sizeof(*made.members), err);
        made.stretches = rks_alloc(in->ranks + most, sizeof(*made.stretches), err);
        status = made.members == NULL || made.stretches == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    if (status == RKS_OK && made.mine >= 0) {
        add_members(in, carriers, nodes, &made);
        status = size_rounds(in, &made, err);
    }
    rks_free(carriers);
    rks_free(counts);
    if (status != RKS_OK) {
        rks_rails_free(&made);
        return status;
    }
    *rails = made;
    return RKS_OK;
}

void rks_rails_free(rks_rails *rails)
{
    rks_free(rails->members);
    rks_free(rails->stretches);
    *rails = (rks_rails){.mine = -1};
}

uint64_t rks_rails_payload(const rks_rails *rails, uint32_t member, uint64_t round)
{
    uint64_t bytes = rails->members[member].bytes;
    if (round >= rails->rounds || round * rails->room >= bytes)
        return 0;
    uint64_t left = bytes - round * rails->room;
    return left < rails->room ? left : rails->room;
}

uint64_t rks_rails_round(const rks_rails *rails, uint64_t round)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < rails->member_count; i++) {
        uint64_t payload = rks_rails_payload(rails, i, round);
        longest = payload > longest ? payload : longest;
    }
    return RKS_ROUND_HEAD + rks_round_up(longest, ALIGN);
}

rks_status rks_rails_each(const rks_rails *rails, uint32_t member, uint64_t offset, uint64_t size,
                          rks_status (*visit)(void *user, const rks_stretch *stretch, uint64_t at,
                                              rks_error *err),
                          void *user, rks_error *err)
{
    const rks_member *m = &rails->members[member];
    uint64_t at = 0, before = 0;
    for (size_t i = 0; i < m->stretch_count && at < size; i++) {
        const rks_stretch *whole = &rails->stretches[m->first_stretch + i];
        if (offset + at < before + whole->size) {
            uint64_t skip = offset + at - before, part = whole->size - skip;
            part = part < size - at ? part : size - at;
            rks_stretch stretch = {whole->sender, whole->offset + skip, part};
            rks_status status = visit(user, &stretch, at, err);
            if (status != RKS_OK)
                return status;
            at += part;
        }
        before += whole->size;
    }
    return RKS_OK;
}
