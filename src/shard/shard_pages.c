/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_pages.c: which pages of an open shard are in memory, and what the disk is asked for. */
#include "shard/shard_state.h"

enum {
    RANDOM_LEAST = 1 << 20,  /* bytes: reading a smaller file whole is as fast */
    RANDOM_SEGMENTS = 4096,  /* segments of the index: each may split a map */
    RANDOM_GAP = 64 << 10,   /* at most these bytes between two segments of one stretch */
    EXTENT_GUESS = 64 << 10, /* bytes */
    BETWEEN_BLOCKS = 16 << 10,
};

/* Treats segments that lie close together as one stretch: each change of advice splits the map in
 * two, and a process may have some 65,000 maps. */
void rks_shard_advise_random(const rks_shard *shard)
{
    const rks_manifest *manifest = shard->manifest;
    uint64_t first = 0, end = 0;
    if (shard->map->size < RANDOM_LEAST || manifest->segment_count > RANDOM_SEGMENTS)
        return;
    rks_resident_expect_random(shard->resident, 0, shard->map->size, true);
    for (size_t i = 0; i < manifest->segment_count; i++) {
        const rks_segment *segment = &manifest->segments[i];
        if (end == 0 || segment->offset < first || segment->offset > end + RANDOM_GAP) {
            rks_resident_expect_random(shard->resident, first, end, false);
            first = segment->offset;
            end = first;
        }
        if (segment->offset + segment->size > end)
            end = segment->offset + segment->size;
    }
    rks_resident_expect_random(shard->resident, first, end, false);
}

void rks_shard_expect_random(rks_shard *shard)
{
    atomic_store(&shard->random, true);
    rks_shard_advise_random(shard);
}

bool rks_shard_extent(const rks_shard *shard, uint64_t row, uint64_t *first, uint64_t *end)
{
    uint64_t size = shard->map->size, largest = shard->manifest->largest;
    if (row >= shard->manifest->samples)
        return false;
    uint64_t offset = rks_shard_locator(shard, row);
    uint64_t next = row + 1 < shard->manifest->samples ? rks_shard_locator(shard, row + 1) : size;
    if (offset >= size)
        return false;
    /* Anything may follow the last record of a block. The mean size says little about one
     * record. */
    uint64_t most = largest < EXTENT_GUESS ? largest : EXTENT_GUESS;
    if (next > offset && next - offset <= largest + BETWEEN_BLOCKS)
        most = next - offset < largest ? next - offset : largest;
    *first = offset;
    *end = most < size - offset ? offset + most : size;
    return true;
}

bool rks_shard_place_in_memory(const rks_shard *shard, uint64_t row)
{
    if (row >= shard->manifest->samples)
        return true;
    uint64_t place = rks_shard_place(shard, row);
    return rks_resident_has(shard->resident, place, place + 16);
}

static bool is_there(const rks_shard *shard, uint64_t first, uint64_t end)
{
    return rks_resident_has(shard->resident, first, end) ||
           rks_resident_now(shard->resident, first, end);
}

/* Returns true if the locators of rows [first, last], which are of one segment, are in memory. */
static bool places_are_there(const rks_shard *shard, uint64_t first, uint64_t last)
{
    const rks_locators *locators = &shard->locators[first / RKS_SEGMENT_ROWS];
    if (!is_there(shard, rks_shard_place(shard, first), rks_shard_place(shard, last) + 8))
        return false;
    if (locators->bases == NULL)
        return true;
    uint64_t bases = (uint64_t)(locators->bases - shard->map->bytes);
    return is_there(shard, bases + first % RKS_SEGMENT_ROWS / RKS_LOCATOR_GROUP * 8,
                    bases + last % RKS_SEGMENT_ROWS / RKS_LOCATOR_GROUP * 8 + 8);
}

/* Looks at the next row's place, too, which says where the record ends. */
bool rks_shard_is_ready(const rks_shard *shard, uint64_t row)
{
    uint64_t first = 0, end = 0, samples = shard->manifest->samples;
    if (row >= samples)
        return true;
    uint64_t last = row + 1 < samples && (row + 1) % RKS_SEGMENT_ROWS != 0 ? row + 1 : row;
    if (!places_are_there(shard, row, last) ||
        (last == row && row + 1 < samples && !places_are_there(shard, row + 1, row + 1)))
        return false;
    if (!rks_shard_extent(shard, row, &first, &end) || end - first == EXTENT_GUESS)
        return false;
    if (atomic_load_explicit(&shard->arriving, memory_order_relaxed) &&
        !rks_pieces_have(shard->pieces, first, end))
        return true; /* it comes from home, and whoever waits for that can be woken */
    return is_there(shard, first, end);
}

bool rks_shard_in_memory(const rks_shard *shard, uint64_t first, uint64_t end)
{
    if (atomic_load_explicit(&shard->arriving, memory_order_relaxed) &&
        !rks_pieces_have(shard->pieces, first, end))
        return false; /* a hole that was touched is in memory, and says nothing */
    return rks_resident_has(shard->resident, first, end);
}

rks_resident_state rks_shard_scan(rks_shard *shard, size_t *budget)
{
    if (atomic_load_explicit(&shard->arriving, memory_order_relaxed)) {
        if (!rks_pieces_sealed(shard->pieces))
            return RKS_RESIDENT_SOME;
        atomic_store(&shard->arriving, false);
    }
    return rks_resident_scan(shard->resident, budget);
}

void rks_shard_ask(const rks_shard *shard, uint64_t first, uint64_t end)
{
    rks_resident_ask(shard->resident, first, end);
}

bool rks_shard_stream_to(rks_resident_stream *stream, const rks_shard *shard, uint64_t first,
                         uint64_t end, const atomic_bool *stop)
{
    return rks_resident_stream_to(stream, shard->resident, first, end, stop);
}

uint64_t rks_shard_follow(const rks_shard *shard, uint64_t first, uint64_t end)
{
    return rks_resident_follow(shard->resident, first, end);
}

void rks_shard_leave(const rks_shard *shard, uint64_t first, uint64_t end)
{
    rks_resident_leave(shard->resident, first, end);
}

void rks_shard_forget(const rks_shard *shard, uint64_t first, uint64_t end)
{
    rks_resident_forget(shard->resident, first, end);
}

void rks_shard_drop(const rks_shard *shard)
{
    rks_resident_drop(shard->resident);
}

bool rks_shard_resident_bytes(const rks_shard *shard, uint64_t *bytes)
{
    return rks_resident_bytes(shard->resident, bytes);
}

void rks_shard_touch(const rks_shard *shard, const rks_record_view *view)
{
    rks_guarded_map_renew();
    (void)rks_guarded_map_touch(shard->map, view->record, view->record_size);
}
