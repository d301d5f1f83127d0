/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_index_file.c: any bytes as an index file, once as they are and once with right digests,
 * which a fuzzer cannot guess. What is read is what the file holds. */
#include "fuzz.h"

#include "base/bytes.h"
#include "dataset/index_file.h"

enum { HEAD = 24, ARRAYS = 3, ROWS_MOST = 4096 };

static const uint32_t SIZES[ARRAYS] = {4, 8, 4};

static uint64_t up(uint64_t size, uint64_t to)
{
    return (size + to - 1) / to * to;
}

/* Puts the right digests into the head, if the file has all that it announces. Returns the head's
 * size; 0: it has not. */
static size_t put_digests(uint8_t *bytes, size_t size)
{
    uint64_t samples = rks_load_u64(bytes + 8);
    uint32_t rows = rks_load_u32(bytes + 16);
    if (samples == 0 || samples > ROWS_MOST || rows == 0 || rks_load_u32(bytes + 20) != ARRAYS)
        return 0;
    uint64_t each = (samples + rows - 1) / rows, at = up(HEAD + 4 * ARRAYS, 8);
    uint64_t head = up(at + 16 * each * ARRAYS, 64), from = head;
    for (size_t array = 0; array < ARRAYS; array++) {
        for (uint64_t first = 0; first < samples; first += rows, at += 16) {
            uint64_t count = samples - first < rows ? samples - first : rows;
            uint64_t begin = from + first * SIZES[array];
            if (begin + count * SIZES[array] > size)
                return 0;
            rks_digest digest = rks_checksum128(bytes + begin, count * SIZES[array]);
            rks_store_u64(bytes + at, digest.low);
            rks_store_u64(bytes + at + 8, digest.high);
        }
        from = up(from + samples * SIZES[array], 64);
    }
    return (size_t)head;
}

static void read_all(const uint8_t *bytes, size_t size, rks_digest digest, uint64_t samples)
{
    rks_error err;
    rks_index_reader *reader = NULL;
    rks_index_file named = {.digest = digest, .bytes = size, .samples = samples};
    const char *path = fuzz_file_of(bytes, size);
    snprintf(named.name, sizeof(named.name), "%s", strrchr(path, '/') + 1);
    const rks_index_items items = {SIZES, ARRAYS};
    if (rks_index_reader_open("/proc/self/fd", &named, items, &reader, &err) != RKS_OK)
        return;
    uint8_t *room = malloc(rks_index_reader_room(reader));
    uint64_t seen[ARRAYS] = {0};
    FUZZ_CHECK(room != NULL);
    for (uint64_t i = 0; i < rks_index_reader_segments(reader); i++) {
        rks_index_segment one = rks_index_reader_segment(reader, i);
        FUZZ_CHECK(one.array < ARRAYS && one.first == seen[one.array] && one.count > 0);
        seen[one.array] += one.count;
        FUZZ_CHECK(one.count * SIZES[one.array] <= rks_index_reader_room(reader));
        (void)!rks_index_reader_read(reader, i, room, &err);
    }
    for (size_t array = 0; array < ARRAYS; array++)
        FUZZ_CHECK(seen[array] == samples);
    free(room);
    rks_index_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD)
        return 0;
    read_all(data, size, rks_checksum128(data, size < 128 ? size : 128), rks_load_u64(data + 8));
    uint8_t *copy = malloc(size);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, data, size);
    size_t head = put_digests(copy, size);
    if (head > 0 && head <= size)
        read_all(copy, size, rks_checksum128(copy, head), rks_load_u64(copy + 8));
    free(copy);
    return 0;
}
