/* SPDX-License-Identifier: Apache-2.0
 *
 * index_stream.c: the wire form of a shard's part of the index.
 *
 * The shard's samples in id order, across spans, cut into pieces of 64 Ki samples (the last one
 * may be smaller). Numbers are little-endian:
 *
 *   offset   size  field
 *        0      4  magic "RKSI"
 *        4      4  shard, its number in the dataset's list
 *        8      4  id of the first sample
 *       12      4  n, samples in this piece
 *       16      8  XXH3-64 of what follows
 *       24    4*n  lengths
 *            8*n  key hashes
 *            s*n  each index column, of item size s
 *
 * Both sides know the dataset, so all of a head but its checksum is known to the receiver: it takes
 * no count or id from the bytes. A piece reaches the index when its checksum is right, not before.
 */
#include "index/index_internal.h"

#include <inttypes.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/usage.h"

enum { HEAD_SIZE = 24, PIECE_SAMPLES = 1 << 16 };

static const uint32_t PIECE_MAGIC = 0x49534b52; /* "RKSI" */

/* A shard's stream: its runs, and how many samples they hold. */
typedef struct stream {
    const rks_index *index;
    uint32_t shard;
    size_t first; /* in by_id */
    size_t end;
    uint64_t samples;
} stream;

static stream stream_of(const rks_index *index, uint32_t shard)
{
    stream s = {.index = index, .shard = shard};
    rks_index_runs_of(index, shard, &s.first, &s.end);
    if (s.first < s.end)
        s.samples =
            index->position[s.end - 1] + rks_index_run_count(index, index->by_id[s.end - 1]);
    return s;
}

static uint64_t pieces_of(const stream *s)
{
    return s->samples / PIECE_SAMPLES + (s->samples % PIECE_SAMPLES != 0);
}

static uint64_t stream_size(const stream *s)
{
    return pieces_of(s) * HEAD_SIZE + s->samples * s->index->row_size;
}

static uint64_t full_piece_size(const rks_index *index)
{
    return HEAD_SIZE + PIECE_SAMPLES * index->row_size;
}

static uint32_t piece_samples(const stream *s, uint64_t piece)
{
    uint64_t left = s->samples - piece * PIECE_SAMPLES;
    return (uint32_t)(left < PIECE_SAMPLES ? left : PIECE_SAMPLES);
}

static uint64_t piece_size(const stream *s, uint64_t piece)
{
    return HEAD_SIZE + piece_samples(s, piece) * s->index->row_size;
}

/* Returns the place in by_id of the run that holds the stream's sample `position`. */
static size_t run_at(const stream *s, uint64_t position)
{
    size_t low = s->first, high = s->end;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s->index->position[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint64_t id_at(const stream *s, uint64_t position)
{
    size_t at = run_at(s, position);
    return s->index->runs[s->index->by_id[at]].first_id + (position - s->index->position[at]);
}

/* Copies one array of a piece from the index to `out`, or from `in` to the index. */
static void copy_array(const stream *s, uint64_t position, uint32_t count, uint8_t *array,
                       uint32_t item_size, uint8_t *out, const uint8_t *in)
{
    const rks_index *index = s->index;
    size_t at = run_at(s, position);
    uint64_t done = 0;
    while (done < count) {
        size_t run = index->by_id[at];
        uint64_t within = position + done - index->position[at];
        uint64_t part = rks_index_run_count(index, run) - within;
        if (part > count - done)
            part = count - done;
        uint8_t *place = array + (index->runs[run].first_id + within) * item_size;
        if (out != NULL)
            memcpy(out + done * item_size, place, part * item_size);
        else
            memcpy(place, in + done * item_size, part * item_size);
        done += part;
        at++;
    }
}

/* Copies all arrays of a piece, in the same way. */
static void copy_piece(const stream *s, uint64_t piece, uint8_t *out, const uint8_t *in)
{
    const rks_index *index = s->index;
    uint64_t position = piece * PIECE_SAMPLES, at = 0;
    uint32_t count = piece_samples(s, piece);
    for (size_t i = 0; i < 2 + index->column_count; i++) {
        uint64_t array = i == 0   ? index->lengths_at
                         : i == 1 ? index->hashes_at
                                  : index->column_at[i - 2];
        uint32_t item_size = i == 0 ? 4 : i == 1 ? 8 : index->item_sizes[i - 2];
        copy_array(s, position, count, index->map + array, item_size, out != NULL ? out + at : NULL,
                   in != NULL ? in + at : NULL);
        at += (uint64_t)count * item_size;
    }
}

/* ---- reading a stream ------------------------------------------------------------------- */

void rks_index_sums_free(rks_index_sums *sums)
{
    if (sums == NULL)
        return;
    rks_usage_sub(RKS_MEMORY_INDEX_OWN, sums->bytes);
    rks_free(sums->first);
    rks_free((void *)sums->of);
    rks_free(sums);
}

static rks_index_sums *make_sums(const rks_index *index, rks_error *err)
{
    uint32_t shards =
        index->run_count == 0 ? 0 : index->runs[index->by_id[index->run_count - 1]].shard + 1;
    rks_index_sums *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL || (made->first = rks_alloc(shards, sizeof(*made->first), err)) == NULL)
        goto failed;
    uint64_t pieces = 0;
    for (uint32_t shard = 0; shard < shards; shard++) {
        stream s = stream_of(index, shard);
        made->first[shard] = pieces;
        pieces += pieces_of(&s);
    }
    made->of = rks_alloc(pieces, sizeof(*made->of), err);
    if (made->of == NULL)
        goto failed;
    made->bytes = shards * sizeof(*made->first) + pieces * sizeof(*made->of);
    rks_usage_add(RKS_MEMORY_INDEX_OWN, made->bytes);
    return made;

failed:
    rks_index_sums_free(made);
    return NULL;
}

/* Returns the checksums; makes them in the first call. NULL with err if memory is short. */
static rks_index_sums *sums_of(rks_index *index, rks_error *err)
{
    rks_index_sums *sums = atomic_load(&index->sums);
    if (sums != NULL)
        return sums;
    pthread_mutex_lock(&index->mutex);
    sums = atomic_load(&index->sums);
    if (sums == NULL && (sums = make_sums(index, err)) != NULL)
        atomic_store(&index->sums, sums);
    pthread_mutex_unlock(&index->mutex);
    return sums;
}

static void encode_piece(const stream *s, rks_index_sums *sums, uint64_t piece, uint8_t *bytes)
{
    _Atomic(uint64_t) *known = &sums->of[sums->first[s->shard] + piece];
    copy_piece(s, piece, bytes + HEAD_SIZE, NULL);
    rks_store_u32(bytes, PIECE_MAGIC);
    rks_store_u32(bytes + 4, s->shard);
    rks_store_u32(bytes + 8, (uint32_t)id_at(s, piece * PIECE_SAMPLES));
    rks_store_u32(bytes + 12, piece_samples(s, piece));
    uint64_t sum = atomic_load_explicit(known, memory_order_relaxed);
    if (sum == 0) {
        sum = rks_checksum64(bytes + HEAD_SIZE, piece_size(s, piece) - HEAD_SIZE);
        atomic_store_explicit(known, sum, memory_order_relaxed);
    }
    rks_store_u64(bytes + 16, sum);
}

uint64_t rks_index_stream_size(const rks_index *index, uint32_t shard)
{
    stream s = stream_of(index, shard);
    return stream_size(&s);
}

uint64_t rks_index_stream_boundary(const rks_index *index, uint32_t shard, uint64_t offset)
{
    uint64_t piece = full_piece_size(index), total = rks_index_stream_size(index, shard);
    uint64_t pieces = offset / piece + (offset % piece != 0);
    return pieces > total / piece ? total : pieces * piece;
}

rks_status rks_index_stream_read(rks_index *index, uint32_t shard, uint64_t offset, void *bytes,
                                 size_t size, rks_error *err)
{
    stream s = stream_of(index, shard);
    uint64_t total = stream_size(&s);
    if (offset > total || size > total - offset)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "index of shard %" PRIu32 ": %zu bytes at %" PRIu64 " of %" PRIu64, shard,
                        size, offset, total);
    rks_index_sums *sums = sums_of(index, err);
    if (sums == NULL)
        return RKS_ERR_MEMORY;
    uint8_t *out = bytes, *whole = NULL;
    while (size > 0) {
        uint64_t piece = offset / full_piece_size(index), skip = offset % full_piece_size(index);
        uint64_t piece_bytes = piece_size(&s, piece);
        size_t part = (size_t)(piece_bytes - skip < size ? piece_bytes - skip : size);
        if (part == piece_bytes) {
            encode_piece(&s, sums, piece, out);
        } else {
            /* The checksum needs the whole piece, and only a part of it is asked for. */
            if (whole == NULL)
                whole = rks_alloc_raw(full_piece_size(index), 1, err);
            if (whole == NULL)
                return RKS_ERR_MEMORY;
            encode_piece(&s, sums, piece, whole);
            memcpy(out, whole + skip, part);
        }
        out += part;
        offset += part;
        size -= part;
    }
    rks_free(whole);
    return RKS_OK;
}

/* ---- taking a stream in ----------------------------------------------------------------- */

struct rks_index_intake {
    stream s;
    uint64_t first;   /* the piece at which the stream begins */
    uint64_t piece;   /* the piece to come next */
    uint8_t *partial; /* what has come of that piece, `held` bytes; NULL if nothing has */
    size_t room;      /* bytes allocated for `partial` */
    size_t held;
    bool damaged;
};

rks_status rks_index_intake_create(rks_index *index, uint32_t shard, uint64_t offset,
                                   rks_index_intake **intake, rks_error *err)
{
    if (rks_index_stream_boundary(index, shard, offset) != offset)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "index of shard %" PRIu32 ": no piece begins at %" PRIu64, shard, offset);
    rks_index_intake *created = rks_alloc(1, sizeof(*created), err);
    if (created == NULL)
        return RKS_ERR_MEMORY;
    created->s = stream_of(index, shard);
    created->first = created->piece = offset / full_piece_size(index);
    *intake = created;
    return RKS_OK;
}

static void drop_partial(rks_index_intake *intake)
{
    rks_usage_sub(RKS_MEMORY_INDEX_OWN, intake->room);
    rks_free(intake->partial);
    intake->partial = NULL;
    intake->room = 0;
    intake->held = 0;
}

void rks_index_intake_free(rks_index_intake *intake)
{
    if (intake == NULL)
        return;
    drop_partial(intake);
    rks_free(intake);
}

static rks_status damaged_stream(rks_index_intake *intake, const char *what, rks_error *err)
{
    intake->damaged = true;
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "index of shard %" PRIu32 ", piece %" PRIu64 ": %s",
                    intake->s.shard, intake->piece, what);
}

/* Checks a head as soon as it is complete, so that a stream of something else is refused early. */
static rks_status check_head(rks_index_intake *intake, const uint8_t *head, rks_error *err)
{
    const stream *s = &intake->s;
    if (rks_load_u32(head) != PIECE_MAGIC)
        return damaged_stream(intake, "wrong magic", err);
    if (rks_load_u32(head + 4) != s->shard)
        return damaged_stream(intake, "it belongs to another shard", err);
    if (rks_load_u32(head + 8) != id_at(s, intake->piece * PIECE_SAMPLES))
        return damaged_stream(intake, "it begins at another sample", err);
    if (rks_load_u32(head + 12) != piece_samples(s, intake->piece))
        return damaged_stream(intake, "it holds another number of samples", err);
    return RKS_OK;
}

static rks_status take_piece(rks_index_intake *intake, const uint8_t *bytes, rks_error *err)
{
    const stream *s = &intake->s;
    rks_status status = check_head(intake, bytes, err);
    if (status != RKS_OK)
        return status;
    uint64_t body = piece_size(s, intake->piece) - HEAD_SIZE;
    if (rks_checksum64(bytes + HEAD_SIZE, body) != rks_load_u64(bytes + 16))
        return damaged_stream(intake, "wrong checksum", err);
    copy_piece(s, intake->piece, NULL, bytes + HEAD_SIZE);
    intake->piece++;
    return RKS_OK;
}

/* Adds bytes to a piece that comes in parts. *used: how many of the bytes belong to it. */
static rks_status take_part(rks_index_intake *intake, const uint8_t *bytes, size_t size,
                            size_t *used, rks_error *err)
{
    size_t want = (size_t)piece_size(&intake->s, intake->piece), before = intake->held;
    if (intake->partial == NULL) {
        intake->partial = rks_alloc_raw(want, 1, err);
        if (intake->partial == NULL)
            return RKS_ERR_MEMORY;
        intake->room = want;
        rks_usage_add(RKS_MEMORY_INDEX_OWN, want);
    }
    *used = want - before < size ? want - before : size;
    memcpy(intake->partial + before, bytes, *used);
    intake->held += *used;
    rks_status status = RKS_OK;
    if (before < HEAD_SIZE && intake->held >= HEAD_SIZE)
        status = check_head(intake, intake->partial, err);
    if (status != RKS_OK || intake->held < want)
        return status;
    status = take_piece(intake, intake->partial, err);
    drop_partial(intake);
    return status;
}

rks_status rks_index_intake_write(rks_index_intake *intake, const void *bytes, size_t size,
                                  rks_error *err)
{
    const uint8_t *in = bytes;
    if (intake->damaged)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "index of shard %" PRIu32 ": damaged before",
                        intake->s.shard);
    while (size > 0) {
        if (intake->piece * PIECE_SAMPLES >= intake->s.samples)
            return damaged_stream(intake, "there is none, but more bytes", err);
        uint64_t want = piece_size(&intake->s, intake->piece);
        size_t used = (size_t)want;
        rks_status status = intake->held == 0 && size >= want
                                ? take_piece(intake, in, err)
                                : take_part(intake, in, size, &used, err);
        if (status != RKS_OK)
            return status;
        in += used;
        size -= used;
    }
    return RKS_OK;
}

rks_status rks_index_intake_end(rks_index_intake *intake, uint64_t *taken, rks_error *err)
{
    if (intake->damaged)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "index of shard %" PRIu32 ": damaged before",
                        intake->s.shard);
    if (intake->held > 0)
        return damaged_stream(intake, "the stream ends inside it", err);
    uint64_t piece = full_piece_size(intake->s.index), total = stream_size(&intake->s);
    uint64_t end = intake->piece * piece < total ? intake->piece * piece : total;
    if (taken != NULL)
        *taken = end - intake->first * piece;
    return RKS_OK;
}
