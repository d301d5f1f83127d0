/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_cache_image.c: an epoch in a place: first the ids, which the maker shuffles there, then the
 * other arrays, which are small beside them.
 *
 * Pages are allocated before anything is written. So short memory is an error here, and no
 * SIGBUS. */
#include "plan/cache/epoch_cache_area.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/shared_memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"

/* Places are so far apart that none grows into another. Only pages that are used take memory. */
#define FIRST_PLACE ((uint64_t)1 << 20)
#define BETWEEN_PLACES ((uint64_t)1 << 40)
enum { PAGE = 4096, CHUNK = 16 << 20 };
_Static_assert(sizeof(rks_cache_control) < 1 << 20, "the control memory ends before the places");

static const char WHAT[] = "the plan's epochs";

uint64_t rks_cache_place_at(int place)
{
    return FIRST_PLACE + (uint64_t)place * BETWEEN_PLACES;
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static rks_status grow_ids(rks_epoch_image *image, uint64_t count, rks_error *err)
{
    rks_cache_room *room = (rks_cache_room *)image->room; /* its first member */
    uint64_t bytes = round_up(count * sizeof(*image->ids) + 1);
    if (bytes > room->bytes) {
        rks_status status =
            rks_shared_grow(WHAT, room->fd, room->at + room->bytes, bytes - room->bytes, err);
        room->lacks = status != RKS_OK && status != RKS_ERR_CANCELLED;
        if (status != RKS_OK)
            return status;
        void *map = room->bytes == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                            room->fd, (off_t)room->at)
                                     : mremap(image->ids, room->bytes, bytes, MREMAP_MAYMOVE);
        if (map == MAP_FAILED)
            return rks_fail_errno(err, errno, "mapping %s", WHAT);
        image->ids = map;
        room->bytes = bytes;
    }
    image->ids_room = count > image->ids_room ? count : image->ids_room;
    return RKS_OK;
}

/* Leaves the place, so that the image allocates its own ids. */
static void leave_room(rks_epoch_image *image)
{
    rks_cache_room *room = (rks_cache_room *)image->room;
    if (room->bytes > 0)
        munmap(image->ids, room->bytes);
    image->ids = NULL;
    image->ids_room = 0;
    image->room = NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

static rks_status write_part(const rks_cache_room *room, rks_cache_image *image,
                             enum rks_cache_part part, const void *items, uint64_t count,
                             size_t size, rks_error *err)
{
    const uint8_t *from = items;
    image->at[part] = round_up(image->bytes);
    image->count[part] = count;
    if (count == 0)
        return RKS_OK;
    rks_status status =
        rks_shared_grow(WHAT, room->fd, room->at + image->at[part], count * size, err);
    if (status != RKS_OK)
        return status;
    for (uint64_t done = 0, left = count * size; left > 0;) {
        ssize_t put = pwrite(room->fd, from + done, left < CHUNK ? left : CHUNK,
                             (off_t)(room->at + image->at[part] + done));
        if (put < 0 && errno != EINTR)
            return rks_fail_errno(err, errno, "%s in memory: %" PRIu64 " bytes", WHAT, left);
        done += put < 0 ? 0 : (uint64_t)put;
        left -= put < 0 ? 0 : (uint64_t)put;
        uint64_t paused = UINT64_MAX / 2; /* checks each time */
        status = rks_plan_pause(&paused, 0, err);
        if (status != RKS_OK)
            return status;
    }
    image->bytes = image->at[part] + count * size;
    return RKS_OK;
}

/* Returns the number of ids of an epoch that is made, repeats included. */
static uint64_t count_ids(const rks_epoch_image *image)
{
    const rks_plan_layout *layout = image->layout;
    if (layout->pack != NULL)
        return image->samples;
    uint64_t count = layout->base;
    if (layout->count > 0) {
        const rks_plan_group *last = &layout->groups[layout->count - 1];
        uint64_t end = (uint64_t)last->first + last->count;
        count = end > count ? end : count;
    }
    return count < image->ids_room ? count : image->ids_room;
}

static rks_status write_parts(const rks_plan_input *in, const rks_epoch_image *made,
                              const rks_cache_room *room, rks_cache_image *image, rks_error *err)
{
    const rks_plan_layout *layout = made->layout;
    const rks_pack *pack = layout->pack;
    uint64_t ids = count_ids(made);
    *image = (rks_cache_image){.layout = *layout, .packed = pack != NULL};
    image->layout.samples = made->samples;
    image->layout.repeated = made->repeated;
    image->whole = layout == &in->whole;
    image->slotted = made->slotted;
    rks_status status = RKS_OK;
    if (pack != NULL)
        image->pack = *pack;
    if (made->room != NULL) {
        image->count[CACHE_IDS] = ids;
        image->bytes = ids * sizeof(uint32_t);
    } else {
        status = write_part(room, image, CACHE_IDS, made->ids, ids, sizeof(uint32_t), err);
    }
    if (status == RKS_OK)
        status = write_part(room, image, CACHE_SLOTS, made->slots,
                            made->slotted ? layout->batches : 0, sizeof(uint32_t), err);
    if (status == RKS_OK)
        status =
            write_part(room, image, CACHE_STARTS, made->starts,
                       pack == NULL ? 0 : pack->bins + pack->repeated + 1, sizeof(uint32_t), err);
    if (status == RKS_OK)
        status = write_part(room, image, CACHE_GROUPS, layout->groups,
                            image->whole ? 0 : layout->count, sizeof(*layout->groups), err);
    if (status == RKS_OK)
        status = write_part(room, image, CACHE_PIECES, made->pieces, made->pieces_shown,
                            sizeof(*made->pieces), err);
    if (status == RKS_OK)
        status = write_part(room, image, CACHE_PIECE_PLACES, made->piece_places, made->pieces_shown,
                            sizeof(uint32_t), err);
    return status;
}

rks_status rks_cache_write(const rks_cache_maker *maker, int fd, rks_cache_place *place, int number,
                           uint64_t epoch, bool *lacks, bool *rest_over, rks_error *err)
{
    rks_cache_room room = {
        .room = {grow_ids, leave_room}, .fd = fd, .at = rks_cache_place_at(number)};
    rks_epoch_image made = {.room = &room.room};
    rks_status status = rks_epoch_make(maker->in, &maker->progress, epoch, 0, &made, err);
    *lacks = room.lacks;
    *rest_over = made.rest_over;
    if (status == RKS_OK) {
        status = write_parts(maker->in, &made, &room, &place->image, err);
        *lacks = status == RKS_ERR_IO || status == RKS_ERR_MEMORY;
    }
    if (made.room != NULL)
        leave_room(&made);
    rks_epoch_image_clear(&made);
    return status;
}

rks_status rks_cache_write_layout(const rks_plan_layout *whole, int fd, rks_cache_image *image,
                                  rks_error *err)
{
    const rks_cache_room room = {.fd = fd, .at = rks_cache_place_at(CACHE_FACTS)};
    *image = (rks_cache_image){.layout = *whole};
    return write_part(&room, image, CACHE_GROUPS, whole->groups, whole->count,
                      sizeof(*whole->groups), err);
}

rks_status rks_cache_read_layout(rks_plan_input *in, int fd, const rks_cache_image *image,
                                 rks_error *err)
{
    rks_plan_layout layout = image->layout;
    uint64_t at = rks_cache_place_at(CACHE_FACTS) + image->at[CACHE_GROUPS], got = 0;
    uint64_t bytes = layout.count * sizeof(*layout.groups);
    layout.groups = NULL;
    layout.pack = NULL;
    layout.room = layout.count;
    if (layout.count > 0) {
        layout.groups = rks_alloc_raw(layout.count, sizeof(*layout.groups), err);
        if (layout.groups == NULL)
            return RKS_ERR_MEMORY;
    }
    while (got < bytes) {
        ssize_t more = pread(fd, (uint8_t *)layout.groups + got, bytes - got, (off_t)(at + got));
        if (more == 0 || (more < 0 && errno != EINTR)) {
            rks_free(layout.groups);
            return rks_fail_errno(err, more == 0 ? EIO : errno, "reading %s", WHAT);
        }
        got += more < 0 ? 0 : (uint64_t)more;
    }
    rks_usage_add(RKS_MEMORY_PLAN, bytes);
    in->whole = layout;
    return RKS_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

void rks_cache_unmap(rks_cache_area *area, int number)
{
    if (area->maps[number].map == NULL)
        return;
    munmap(area->maps[number].map, area->maps[number].bytes);
    rks_usage_sub(RKS_MEMORY_INDEX, area->maps[number].bytes);
    area->maps[number].map = NULL;
    area->maps[number].bytes = 0;
}

static rks_status map_place(rks_cache_area *area, int number, uint64_t bytes, rks_error *err)
{
    if (area->maps[number].bytes >= bytes)
        return RKS_OK;
    rks_cache_unmap(area, number);
    bytes = round_up(bytes);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, area->options.fd,
                     (off_t)rks_cache_place_at(number));
    if (map == MAP_FAILED)
        return rks_fail_errno(err, errno, "mapping %s", WHAT);
    area->maps[number].map = map;
    area->maps[number].bytes = bytes;
    rks_usage_add(RKS_MEMORY_INDEX, bytes);
    return RKS_OK;
}

rks_status rks_cache_map(const rks_plan_input *in, rks_epoch_image *image, rks_cache_area *area,
                         int number, rks_plan_layout *layout, rks_pack *pack, rks_error *err)
{
    const rks_cache_image *there = &area->control->places[number].image;
    rks_status status = map_place(area, number, there->bytes + 1, err);
    if (status != RKS_OK)
        return status;
    uint8_t *map = area->maps[number].map;
    *layout = there->layout;
    *pack = there->pack;
    layout->groups =
        there->whole ? in->whole.groups : (rks_plan_group *)(void *)(map + there->at[CACHE_GROUPS]);
    layout->pack = !there->packed ? NULL : there->whole ? in->whole.pack : pack;
    image->layout = layout;
    image->samples = layout->samples;
    image->repeated = layout->repeated;
    image->ids = (uint32_t *)(void *)map;
    image->slots = (uint32_t *)(void *)(map + there->at[CACHE_SLOTS]);
    image->slotted = there->slotted;
    image->starts = (uint32_t *)(void *)(map + there->at[CACHE_STARTS]);
    image->pieces = (rks_piece *)(void *)(map + there->at[CACHE_PIECES]);
    image->piece_places = (uint32_t *)(void *)(map + there->at[CACHE_PIECE_PLACES]);
    image->pieces_shown = there->count[CACHE_PIECES];
    return RKS_OK;
}
