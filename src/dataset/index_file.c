/* SPDX-License-Identifier: Apache-2.0
 *
 * index_file.c: index-DIGITS.columns. Numbers are little-endian. DIGITS are the first 16 of the
 * digest of its head.
 *
 *   offset  size  field
 *        0     4  magic "RKSI"
 *        4     4  version, 1
 *        8     8  n, samples
 *       16     4  r, rows of a segment; the last segment of an array has what is left
 *       20     4  a, arrays
 *       24   4 a  bytes of an item of each array, then zeros up to a multiple of 8
 *                 digests of the segments (16 bytes each): those of the first array, those of the
 *                 second, ...; then zeros up to a multiple of 64. Here the head ends
 *                 the arrays, each followed by zeros up to a multiple of 64: n lengths (u32), n key
 *                 hashes (u64), n values of each index column
 */
#include "dataset/index_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

enum { HEAD = 24, VERSION = 1, ALIGN = 64, ARRAYS_MAX = RKS_INDEX_FILE_ARRAYS + 1024 };
static const uint32_t MAGIC = 0x49534b52; /* "RKSI" */
static uint32_t rows_of_segment = RKS_INDEX_FILE_ROWS;

void rks_index_file_rows(uint32_t rows)
{
    rows_of_segment = rows == 0 ? RKS_INDEX_FILE_ROWS : rows;
}

#define FRONT "index-"
#define BACK ".columns"

void rks_index_file_name(rks_digest digest, char name[64])
{
    char digits[RKS_DIGEST_TEXT];
    rks_digest_format(digest, digits);
    snprintf(name, 64, FRONT "%.16s" BACK, digits);
}

bool rks_index_file_is_name(const char *name)
{
    size_t front = strlen(FRONT), digits = 16;
    return strncmp(name, FRONT, front) == 0 && strspn(name + front, "0123456789abcdef") == digits &&
           strcmp(name + front + digits, BACK) == 0;
}

/* ---- layout ---------------------------------------------------------------------------------- */

typedef struct layout {
    uint64_t samples;
    uint32_t rows;
    uint64_t segments; /* of one array */
    uint64_t digests;  /* where they begin */
    uint64_t head;     /* size of the head: there the first array begins */
} layout;

static layout lay_out(uint64_t samples, uint32_t rows, size_t arrays)
{
    layout l = {.samples = samples, .rows = rows};
    l.segments = (samples + rows - 1) / rows;
    l.digests = rks_round_up(HEAD + 4 * (uint64_t)arrays, 8);
    l.head = rks_round_up(l.digests + l.segments * arrays * RKS_DIGEST_SIZE, ALIGN);
    return l;
}

/* Returns where array `array` begins; `items.count`: where the file ends. */
static uint64_t array_at(const layout *l, rks_index_items items, size_t array)
{
    uint64_t at = l->head;
    for (size_t i = 0; i < array; i++)
        at += rks_round_up(l->samples * items.sizes[i], ALIGN);
    return at;
}

static void store_digest_at(uint8_t *at, rks_digest digest)
{
    rks_store_u64(at, digest.low);
    rks_store_u64(at + 8, digest.high);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* What receives the bytes of an array, in order. */
typedef rks_status (*take_fn)(void *user, const void *bytes, size_t size, rks_error *err);

/* Passes the segment's rows of an array, which may lie in several pieces. */
static rks_status pass_rows(const rks_index_piece *pieces, uint32_t item, rks_index_segment rows,
                            take_fn take, void *user, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t first = rows.first, count = rows.count;
    for (; status == RKS_OK && count > 0; pieces++) {
        if (first >= pieces->samples) {
            first -= pieces->samples;
            continue;
        }
        uint64_t here = pieces->samples - first < count ? pieces->samples - first : count;
        status = take(user, pieces->arrays[rows.array] + first * item, (size_t)(here * item), err);
        count -= here;
        first = 0;
    }
    return status;
}

static rks_status feed(void *user, const void *bytes, size_t size, rks_error *err)
{
    (void)err;
    rks_digester_update(user, bytes, size);
    return RKS_OK;
}

static rks_status make_head(const layout *l, rks_index_items items, const rks_index_piece *pieces,
                            uint8_t *head, rks_error *err)
{
    rks_digester *digester = rks_digester_create(err);
    if (digester == NULL)
        return RKS_ERR_MEMORY;
    rks_store_u32(head, MAGIC);
    rks_store_u32(head + 4, VERSION);
    rks_store_u64(head + 8, l->samples);
    rks_store_u32(head + 16, l->rows);
    rks_store_u32(head + 20, (uint32_t)items.count);
    uint8_t *at = head + l->digests;
    rks_status status = RKS_OK;
    for (size_t i = 0; i < items.count; i++) {
        rks_store_u32(head + HEAD + 4 * i, items.sizes[i]);
        for (uint64_t first = 0; status == RKS_OK && first < l->samples; first += l->rows) {
            uint64_t left = l->samples - first;
            rks_digester_reset(digester);
            const rks_index_segment rows = {i, first, left < l->rows ? left : l->rows};
            status = pass_rows(pieces, items.sizes[i], rows, feed, digester, err);
            store_digest_at(at, rks_digester_result(digester));
            at += RKS_DIGEST_SIZE;
        }
    }
    rks_digester_free(digester);
    return status;
}

typedef struct output {
    int fd;
    const char *path;
} output;

static rks_status put_bytes(void *user, const void *bytes, size_t size, rks_error *err)
{
    const output *out = user;
    return rks_file_write(out->fd, out->path, bytes, size, err);
}

typedef struct contents {
    const layout *layout;
    rks_index_items items;
    const rks_index_piece *pieces;
    const uint8_t *head;
} contents;

static rks_status write_contents(void *user, int fd, const char *path, rks_error *err)
{
    static const uint8_t zeros[ALIGN] = {0};
    const contents *c = user;
    output out = {fd, path};
    rks_status status = put_bytes(&out, c->head, (size_t)c->layout->head, err);
    for (size_t i = 0; status == RKS_OK && i < c->items.count; i++) {
        uint64_t size = c->layout->samples * c->items.sizes[i];
        const rks_index_segment all = {i, 0, c->layout->samples};
        status = pass_rows(c->pieces, c->items.sizes[i], all, put_bytes, &out, err);
        if (status == RKS_OK)
            status = put_bytes(&out, zeros, (size_t)(rks_round_up(size, ALIGN) - size), err);
    }
    return status;
}

rks_status rks_index_file_write(const char *directory, rks_index_items items,
                                const rks_index_piece *pieces, size_t count, rks_index_file *made,
                                rks_error *err)
{
    uint64_t samples = 0;
    for (size_t i = 0; i < count; i++)
        samples += pieces[i].samples;
    const layout l = lay_out(samples, rows_of_segment, items.count);
    uint8_t *head = rks_alloc(l.head, 1, err);
    rks_status status = head == NULL ? RKS_ERR_MEMORY : make_head(&l, items, pieces, head, err);
    rks_index_file file = {.bytes = array_at(&l, items, items.count), .samples = samples};
    char *path = NULL;
    if (status == RKS_OK) {
        file.digest = rks_checksum128(head, (size_t)l.head);
        rks_index_file_name(file.digest, file.name);
        *made = file;
    }
    if (status == RKS_OK && directory != NULL) {
        path = rks_format(err, "%s/%s", directory, file.name);
        status = path == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    contents all = {&l, items, pieces, head};
    if (path != NULL)
        status = rks_file_replace_by(path, file.bytes, write_contents, &all, err);
    rks_free(path);
    rks_free(head);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct rks_index_reader {
    int fd;
    char *path;
    rks_index_items items;
    layout layout;
    uint8_t *head;
};

static rks_status fail_unlike(const char *path, rks_error *err)
{
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: does not match its digest in dataset.json", path);
}

/* Checks the first bytes before anything of the size that they say is allocated. */
static rks_status read_layout(rks_index_reader *reader, const rks_index_file *named,
                              uint64_t file_size, rks_error *err)
{
    uint8_t bytes[HEAD];
    if (file_size != named->bytes || file_size < HEAD)
        return fail_unlike(reader->path, err);
    rks_status status = rks_file_read_at(reader->fd, reader->path, 0, bytes, HEAD, err);
    if (status != RKS_OK)
        return status;
    uint64_t samples = rks_load_u64(bytes + 8);
    uint32_t rows = rks_load_u32(bytes + 16), arrays = rks_load_u32(bytes + 20);
    if (rks_load_u32(bytes) != MAGIC || rks_load_u32(bytes + 4) != VERSION)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: no index file of version %d", reader->path,
                        VERSION);
    if (samples != named->samples || samples == 0 || samples > UINT32_MAX || rows == 0 ||
        rows > RKS_INDEX_FILE_ROWS || arrays != reader->items.count || arrays > ARRAYS_MAX)
        return fail_unlike(reader->path, err);
    reader->layout = lay_out(samples, rows, arrays);
    if (array_at(&reader->layout, reader->items, arrays) != file_size)
        return fail_unlike(reader->path, err);
    return RKS_OK;
}

static rks_status check_head(rks_index_reader *reader, const rks_index_file *named, rks_error *err)
{
    size_t size = (size_t)reader->layout.head;
    reader->head = rks_alloc_raw(size, 1, err);
    if (reader->head == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_file_read_at(reader->fd, reader->path, 0, reader->head, size, err);
    bool same =
        status == RKS_OK && rks_digest_equal(rks_checksum128(reader->head, size), named->digest);
    for (size_t i = 0; same && i < reader->items.count; i++)
        same = rks_load_u32(reader->head + HEAD + 4 * i) == reader->items.sizes[i];
    return status == RKS_OK && !same ? fail_unlike(reader->path, err) : status;
}

/* No digest covers the zeros behind an array. */
static rks_status check_gaps(const rks_index_reader *reader, rks_error *err)
{
    static const uint8_t zeros[ALIGN] = {0};
    uint8_t bytes[ALIGN];
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < reader->items.count; i++) {
        uint64_t size = reader->layout.samples * reader->items.sizes[i];
        size_t gap = (size_t)(rks_round_up(size, ALIGN) - size);
        uint64_t at = array_at(&reader->layout, reader->items, i) + size;
        status = rks_file_read_at(reader->fd, reader->path, at, bytes, gap, err);
        if (status == RKS_OK && memcmp(bytes, zeros, gap) != 0)
            status = fail_unlike(reader->path, err);
    }
    return status;
}

rks_status rks_index_reader_open(const char *directory, const rks_index_file *named,
                                 rks_index_items items, rks_index_reader **reader, rks_error *err)
{
    uint64_t size = 0;
    rks_index_reader *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->fd = -1;
    made->items = items;
    made->path = rks_format(err, "%s/%s", directory, named->name);
    rks_status status = made->path == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = rks_file_open(made->path, &made->fd, &size, err);
    if (status == RKS_OK)
        status = read_layout(made, named, size, err);
    if (status == RKS_OK)
        status = check_head(made, named, err);
    if (status == RKS_OK)
        status = check_gaps(made, err);
    if (status != RKS_OK) {
        rks_index_reader_close(made);
        return status;
    }
    *reader = made;
    return RKS_OK;
}

void rks_index_reader_close(rks_index_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->fd >= 0)
        close(reader->fd);
    rks_free(reader->path);
    rks_free(reader->head);
    rks_free(reader);
}

uint64_t rks_index_reader_segments(const rks_index_reader *reader)
{
    return reader->layout.segments * reader->items.count;
}

rks_index_segment rks_index_reader_segment(const rks_index_reader *reader, uint64_t number)
{
    const layout *l = &reader->layout;
    uint64_t first = number % l->segments * l->rows, left = l->samples - first;
    return (rks_index_segment){(size_t)(number / l->segments), first,
                               left < l->rows ? left : l->rows};
}

rks_status rks_index_reader_read(const rks_index_reader *reader, uint64_t number, void *bytes,
                                 rks_error *err)
{
    const rks_index_segment segment = rks_index_reader_segment(reader, number);
    uint32_t item = reader->items.sizes[segment.array];
    uint64_t at = array_at(&reader->layout, reader->items, segment.array) + segment.first * item;
    size_t size = (size_t)(segment.count * item);
    const uint8_t *right = reader->head + reader->layout.digests + number * RKS_DIGEST_SIZE;
    rks_status status = rks_file_read_at(reader->fd, reader->path, at, bytes, size, err);
    if (status != RKS_OK)
        return status;
    const rks_digest digest = {rks_load_u64(right), rks_load_u64(right + 8)};
    return rks_digest_equal(rks_checksum128(bytes, size), digest)
               ? RKS_OK
               : rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: segment %" PRIu64 " has another digest",
                          reader->path, number);
}

size_t rks_index_reader_room(const rks_index_reader *reader)
{
    uint64_t rows =
        reader->layout.samples < reader->layout.rows ? reader->layout.samples : reader->layout.rows;
    uint32_t item = 0;
    for (size_t i = 0; i < reader->items.count; i++)
        item = reader->items.sizes[i] > item ? reader->items.sizes[i] : item;
    return (size_t)(rows * item);
}
