/* SPDX-License-Identifier: Apache-2.0
 *
 * index_stream.c: the wire form of a shard's part of the index.
 *
 * The shard's samples in id order, across spans, cut into sections of 64 Ki samples (the last one
 * may be smaller). Numbers are little-endian:
 *
 *   offset   size  field
 *        0      4  magic "RKSI"
 *        4      4  shard, its number in the dataset's list
 *        8      4  id of the first sample
 *       12      4  n, samples in this section
 *       16      8  XXH3-64 of what follows
 *       24    4*n  lengths
 *            8*n  key hashes
 *            s*n  each index column, of item size s
 *
 * Both sides know the dataset, so all of a head but its checksum is known to the receiver: it takes
 * no count or id from the bytes. A section reaches the index when its checksum is right, not
 * before.
 */
#include "index/index_layout.h"

#include <inttypes.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"

enum { HEAD_SIZE = 24, SECTION_SAMPLES = 1 << 16 };

static const uint32_t SECTION_MAGIC = 0x49534b52; /* "RKSI" */

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

static uint64_t sections_of(const stream *s)
{
    return s->samples / SECTION_SAMPLES + (s->samples % SECTION_SAMPLES != 0);
}

static uint64_t stream_size(const stream *s)
{
    return sections_of(s) * HEAD_SIZE + s->samples * s->index->row_size;
}

uint64_t rks_index_section_size(const rks_index *index)
{
    return HEAD_SIZE + SECTION_SAMPLES * index->row_size;
}

static uint32_t section_samples(const stream *s, uint64_t section)
{
    uint64_t left = s->samples - section * SECTION_SAMPLES;
    return (uint32_t)(left < SECTION_SAMPLES ? left : SECTION_SAMPLES);
}

static uint64_t section_size(const stream *s, uint64_t section)
{
    return HEAD_SIZE + section_samples(s, section) * s->index->row_size;
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

/* Copies one array of a section from the index to `out`, or from `in` to the index. */
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

/* Copies all arrays of a section, in the same way. */
static void copy_section(const stream *s, uint64_t section, uint8_t *out, const uint8_t *in)
{
    const rks_index *index = s->index;
    uint64_t position = section * SECTION_SAMPLES, at = 0;
    uint32_t count = section_samples(s, section);
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
    uint64_t sections = 0;
    for (uint32_t shard = 0; shard < shards; shard++) {
        stream s = stream_of(index, shard);
        made->first[shard] = sections;
        sections += sections_of(&s);
    }
    made->of = rks_alloc(sections, sizeof(*made->of), err);
    if (made->of == NULL)
        goto failed;
    made->bytes = shards * sizeof(*made->first) + sections * sizeof(*made->of);
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

static void encode_section(const stream *s, rks_index_sums *sums, uint64_t section, uint8_t *bytes)
{
    _Atomic(uint64_t) *known = &sums->of[sums->first[s->shard] + section];
    copy_section(s, section, bytes + HEAD_SIZE, NULL);
    rks_store_u32(bytes, SECTION_MAGIC);
    rks_store_u32(bytes + 4, s->shard);
    rks_store_u32(bytes + 8, (uint32_t)id_at(s, section * SECTION_SAMPLES));
    rks_store_u32(bytes + 12, section_samples(s, section));
    uint64_t sum = atomic_load_explicit(known, memory_order_relaxed);
    if (sum == 0) {
        sum = rks_checksum64(bytes + HEAD_SIZE, section_size(s, section) - HEAD_SIZE);
        atomic_store_explicit(known, sum, memory_order_relaxed);
    }
    rks_store_u64(bytes + 16, sum);
}

uint64_t rks_index_stream_size(const rks_index *index, uint32_t shard)
{
    stream s = stream_of(index, shard);
    return stream_size(&s);
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
        uint64_t section = offset / rks_index_section_size(index),
                 skip = offset % rks_index_section_size(index);
        uint64_t section_bytes = section_size(&s, section);
        size_t part = (size_t)(section_bytes - skip < size ? section_bytes - skip : size);
        if (part == section_bytes) {
            encode_section(&s, sums, section, out);
        } else {
            /* The checksum needs the whole section, and only a part of it is asked for. */
            if (whole == NULL)
                whole = rks_alloc_raw(rks_index_section_size(index), 1, err);
            if (whole == NULL)
                return RKS_ERR_MEMORY;
            encode_section(&s, sums, section, whole);
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
    uint64_t first;   /* the section at which the stream begins */
    uint64_t section; /* the section to come next */
    uint8_t *partial; /* what has come of that section, `held` bytes; NULL if nothing has */
    size_t room;      /* bytes allocated for `partial` */
    size_t held;
    bool damaged;
};

rks_status rks_index_intake_create(rks_index *index, uint32_t shard, uint64_t offset,
                                   rks_index_intake **intake, rks_error *err)
{
    stream s = stream_of(index, shard);
    uint64_t section = rks_index_section_size(index), total = stream_size(&s);
    if (offset > total || (offset < total && offset % section != 0))
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "index of shard %" PRIu32 ": no section begins at %" PRIu64, shard, offset);
    rks_index_intake *created = rks_alloc(1, sizeof(*created), err);
    if (created == NULL)
        return RKS_ERR_MEMORY;
    created->s = s;
    created->first = created->section = offset / section;
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
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "index of shard %" PRIu32 ", section %" PRIu64 ": %s",
                    intake->s.shard, intake->section, what);
}

/* Checks a head as soon as it is complete, so that a stream of something else is refused early. */
static rks_status check_head(rks_index_intake *intake, const uint8_t *head, rks_error *err)
{
    const stream *s = &intake->s;
    if (rks_load_u32(head) != SECTION_MAGIC)
        return damaged_stream(intake, "wrong magic", err);
    if (rks_load_u32(head + 4) != s->shard)
        return damaged_stream(intake, "it belongs to another shard", err);
    if (rks_load_u32(head + 8) != id_at(s, intake->section * SECTION_SAMPLES))
        return damaged_stream(intake, "it begins at another sample", err);
    if (rks_load_u32(head + 12) != section_samples(s, intake->section))
        return damaged_stream(intake, "it holds another number of samples", err);
    return RKS_OK;
}

static rks_status add_section(rks_index_intake *intake, const uint8_t *bytes, rks_error *err)
{
    const stream *s = &intake->s;
    rks_status status = check_head(intake, bytes, err);
    if (status != RKS_OK)
        return status;
    uint64_t body = section_size(s, intake->section) - HEAD_SIZE;
    if (rks_checksum64(bytes + HEAD_SIZE, body) != rks_load_u64(bytes + 16))
        return damaged_stream(intake, "wrong checksum", err);
    copy_section(s, intake->section, NULL, bytes + HEAD_SIZE);
    intake->section++;
    return RKS_OK;
}

/* Adds bytes to a section that comes in parts. *used: how many of the bytes belong to it. */
static rks_status join_part(rks_index_intake *intake, const uint8_t *bytes, size_t size,
                            size_t *used, rks_error *err)
{
    size_t want = (size_t)section_size(&intake->s, intake->section), before = intake->held;
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
    status = add_section(intake, intake->partial, err);
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
        if (intake->section * SECTION_SAMPLES >= intake->s.samples)
            return damaged_stream(intake, "there is none, but more bytes", err);
        uint64_t want = section_size(&intake->s, intake->section);
        size_t used = (size_t)want;
        rks_status status = intake->held == 0 && size >= want
                                ? add_section(intake, in, err)
                                : join_part(intake, in, size, &used, err);
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
    uint64_t section = rks_index_section_size(intake->s.index), total = stream_size(&intake->s);
    uint64_t end = intake->section * section < total ? intake->section * section : total;
    if (taken != NULL)
        *taken = end - intake->first * section;
    return RKS_OK;
}
