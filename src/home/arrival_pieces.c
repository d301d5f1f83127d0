/* SPDX-License-Identifier: Apache-2.0
 *
 * arrival_pieces.c: what comes into the files of an arriving shard: its pieces, and its head. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "home/arrival_state.h"
#include "shard/checksum_file.h"

_Static_assert((int)RKS_PIECE == (int)RKS_SUMS_CHUNK, "a piece has one sum");

/* ---- pieces ---------------------------------------------------------------------------------- */

static size_t piece_size(const rks_arrival *a, uint64_t piece)
{
    uint64_t left = a->size - piece * RKS_PIECE;
    return left < RKS_PIECE ? (size_t)left : RKS_PIECE;
}

static bool is_right(const rks_arrival *a, uint64_t piece, const uint8_t *bytes)
{
    return rks_digest_equal(rks_checksum128(bytes, piece_size(a, piece)), a->sums[piece]);
}

rks_status rks_arrival_write(rks_arrival *a, uint64_t first, const uint8_t *bytes, uint64_t size,
                             rks_error *err)
{
    for (uint64_t done = 0; done < size;) {
        ssize_t put = pwrite(a->fd, bytes + done, (size_t)(size - done), (off_t)(first + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return rks_fail_write(err, put < 0 ? errno : EIO, a->file, size - done);
        done += (uint64_t)put;
    }
    return RKS_OK;
}

static rks_status write_piece(rks_arrival *a, uint64_t piece, const uint8_t *bytes, uint32_t doubts,
                              rks_error *err)
{
    rks_status status = rks_arrival_write(a, piece * RKS_PIECE, bytes, piece_size(a, piece), err);
    if (status == RKS_OK)
        rks_pieces_mark(a->pieces, piece, doubts);
    return status;
}

/* Reads a claimed piece from the local file. A wrong one, and one that the disk does not give, is
 * missing. After a failed sync the page cache may still show what the disk has not, and says that
 * nothing is to be written: then a right one is written again. */
static void settle_claim(rks_arrival *a, uint64_t piece, uint8_t *room)
{
    const uint32_t doubts = rks_pieces_doubts(a->pieces);
    bool right = rks_file_read_at(a->fd, a->file, piece * RKS_PIECE, room, piece_size(a, piece),
                                  NULL) == RKS_OK &&
                 is_right(a, piece, room);
    if (right && doubts > 0)
        right = write_piece(a, piece, room, doubts, NULL) == RKS_OK;
    else if (right)
        rks_pieces_mark(a->pieces, piece, doubts);
    if (!right)
        rks_pieces_set(a->pieces, piece, RKS_PIECE_MISSING);
}

/* Brings missing pieces that follow each other. */
static rks_status bring_run(rks_arrival *a, uint64_t first, uint64_t count, uint64_t *brought,
                            rks_error *err)
{
    uint64_t begin = first * RKS_PIECE, end = (first + count) * RKS_PIECE;
    end = end < a->size ? end : a->size;
    for (int try = 1;; try++) {
        uint64_t wrong = UINT64_MAX;
        const uint32_t doubts = rks_pieces_doubts(a->pieces);
        rks_home_loan got;
        rks_status status = rks_arrival_borrow(a, begin, end, &got, err);
        for (uint64_t i = 0; status == RKS_OK && i < count; i++) {
            const uint8_t *bytes = got.bytes + i * RKS_PIECE;
            if (rks_pieces_get(a->pieces, first + i) == RKS_PIECE_HERE)
                continue; /* another process has brought it, or the first try */
            if (is_right(a, first + i, bytes))
                status = write_piece(a, first + i, bytes, doubts, err);
            else if (wrong == UINT64_MAX)
                wrong = first + i;
        }
        rks_home_give_back(&got);
        if (status == RKS_OK && wrong == UINT64_MAX && atomic_load(&a->from) == a->home)
            *brought += end - begin;
        if (status != RKS_OK || wrong == UINT64_MAX)
            return status;
        if (try == 2 && rks_arrival_turns_home(a, atomic_load(&a->from), RKS_ERR_CORRUPT))
            try = 0;
        else if (try == 2)
            return rks_fail(err, RKS_ERR_CORRUPT, 0,
                            "%s/%s: the MiB at offset %" PRIu64
                            " is not the one that was published; publish it again from a node that "
                            "has the shard, or repair the dataset",
                            rks_arrival_source(a), a->home_file, wrong * RKS_PIECE);
    }
}

rks_status rks_arrival_bring(rks_arrival *a, uint64_t first, uint64_t count, uint8_t *room,
                             uint64_t *brought, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t end = first + count;
    *brought = 0;
    for (uint64_t i = first; i < end; i++)
        if (rks_pieces_get(a->pieces, i) == RKS_PIECE_CLAIMED)
            settle_claim(a, i, room);
    for (uint64_t i = first; status == RKS_OK && i < end;) {
        uint64_t run = i;
        while (run < end && rks_pieces_get(a->pieces, run) == RKS_PIECE_MISSING)
            run++;
        if (run > i) {
            status = bring_run(a, i, run - i, brought, err);
            /* begins to write now, so that the sync at the end has little left */
            sync_file_range(a->fd, (off_t)(first * RKS_PIECE), (off_t)(count * RKS_PIECE),
                            SYNC_FILE_RANGE_WRITE);
        }
        i = run + (run == i);
    }
    return status;
}

/* ---- the head -------------------------------------------------------------------------------- */

enum { HEAD_GAP = 64 << 10 }; /* bytes between parts that are read together */

static bool is_part_right(const head_part *part, const uint8_t *bytes)
{
    const size_t size = (size_t)(part->end - part->first);
    return part->is_segment ? rks_checksum64(bytes, size) == part->check
                            : rks_digest_equal(rks_checksum128(bytes, size), part->digest);
}

/* Reads parts [first, end), which lie close together, and writes those that are right. */
static rks_status bring_parts(rks_arrival *a, size_t first, size_t end, uint8_t *room,
                              uint64_t *brought, rks_error *err)
{
    const uint64_t begin = a->head[first].first, stop = a->head[end - 1].end;
    rks_status status = rks_arrival_read(a, begin, stop, room, err);
    for (size_t i = first; status == RKS_OK && i < end; i++) {
        const head_part *part = &a->head[i];
        const uint8_t *bytes = room + (part->first - begin);
        if (!is_part_right(part, bytes))
            return rks_fail(err, RKS_ERR_CORRUPT, 0,
                            "%s/%s: the index at offset %" PRIu64
                            " is not the one that was published; publish it again from a node "
                            "that has the shard, or repair the dataset",
                            rks_arrival_source(a), a->home_file, part->first);
        status = rks_arrival_write(a, part->first, bytes, part->end - part->first, err);
    }
    *brought += status == RKS_OK ? stop - begin : 0;
    return status;
}

/* Brings the pieces of a part that one request cannot bring. */
static rks_status bring_large(rks_arrival *a, const head_part *part, uint8_t *room,
                              uint64_t *brought, rks_error *err)
{
    rks_status status = RKS_OK;
    const uint64_t end = (part->end - 1) / RKS_PIECE + 1;
    for (uint64_t i = part->first / RKS_PIECE; status == RKS_OK && i < end;
         i += RKS_ARRIVAL_PIECES) {
        uint64_t some = 0, count = end - i < RKS_ARRIVAL_PIECES ? end - i : RKS_ARRIVAL_PIECES;
        status = rks_arrival_bring(a, i, count, room, &some, err);
        *brought += some;
    }
    return status;
}

rks_status rks_arrival_bring_head(rks_arrival *a, uint8_t *room, uint64_t *brought, rks_error *err)
{
    const uint64_t most = (uint64_t)RKS_ARRIVAL_PIECES * RKS_PIECE;
    rks_status status = RKS_OK;
    *brought = 0;
    for (size_t i = 0, next; status == RKS_OK && i < a->head_count; i = next) {
        const head_part *part = &a->head[i];
        next = i + 1;
        if (rks_pieces_have(a->pieces, part->first, part->end))
            continue;
        if (part->end - part->first > most) {
            status = bring_large(a, part, room, brought, err);
            continue;
        }
        while (next < a->head_count && a->head[next].first <= a->head[next - 1].end + HEAD_GAP &&
               a->head[next].end - part->first <= most)
            next++;
        status = bring_parts(a, i, next, room, brought, err);
    }
    atomic_store(&a->head_here, status == RKS_OK);
    return status;
}
