/* SPDX-License-Identifier: Apache-2.0
 *
 * counting_writer.h: takes the place of the shard writer in a program that links with
 * --wrap=rks_unit_writer_create, ..._place, ..._add, ..._end and ..._free: counts the samples of an
 * input and writes none. */
#ifndef RKS_TESTS_COUNTING_WRITER_H
#define RKS_TESTS_COUNTING_WRITER_H

#include <stdlib.h>

#include "base/checksum.h"
#include "ingest/ingest.h"
#include "shard/record.h"

typedef struct counted_samples {
    uint64_t samples;
    uint64_t sum;     /* of the payloads' checksums */
    uint64_t in_unit; /* samples since the unit began */
} counted_samples;

static counted_samples counted;
/* NULL: samples are only counted. Otherwise each is encoded and its checksum added. */
static const rks_schema *counted_schema;
static rks_buffer counted_payload;

rks_status __wrap_rks_unit_writer_create(rks_shard_writer *shard, uint64_t unit,
                                         const char *key_name, rks_unit_writer **writer,
                                         rks_error *err);
rks_status __wrap_rks_unit_writer_place(rks_unit_writer *writer, uint64_t first_source_row,
                                        rks_error *err);
rks_status __wrap_rks_unit_writer_add(rks_unit_writer *writer, const rks_value *values,
                                      const void *key, size_t key_size, uint32_t length,
                                      uint32_t source_row, rks_error *err);
rks_status __wrap_rks_unit_writer_end(rks_unit_writer *writer, uint64_t seen, uint64_t filtered,
                                      uint64_t bad, rks_error *err);
void __wrap_rks_unit_writer_free(rks_unit_writer *writer);

rks_status __wrap_rks_unit_writer_create(rks_shard_writer *shard, uint64_t unit,
                                         const char *key_name, rks_unit_writer **writer,
                                         rks_error *err)
{
    (void)shard, (void)unit, (void)key_name, (void)err;
    *writer = NULL;
    return RKS_OK;
}

rks_status __wrap_rks_unit_writer_place(rks_unit_writer *writer, uint64_t first_source_row,
                                        rks_error *err)
{
    (void)writer, (void)first_source_row, (void)err;
    counted.in_unit = 0;
    return RKS_OK;
}

rks_status __wrap_rks_unit_writer_add(rks_unit_writer *writer, const rks_value *values,
                                      const void *key, size_t key_size, uint32_t length,
                                      uint32_t source_row, rks_error *err)
{
    (void)writer, (void)key, (void)key_size, (void)length, (void)source_row;
    if (counted_schema != NULL) {
        uint32_t align = 0;
        uint64_t plain = 0;
        counted_payload.size = 0;
        rks_status status =
            rks_record_encode(counted_schema, values, &counted_payload, &align, &plain, err);
        if (status == RKS_ERR_DATA) /* str that is not UTF-8 */
            return status;
        if (status != RKS_OK)
            abort();
        counted.sum += rks_checksum64(counted_payload.data, counted_payload.size);
    }
    counted.samples++;
    counted.in_unit++;
    return RKS_OK;
}

rks_status __wrap_rks_unit_writer_end(rks_unit_writer *writer, uint64_t seen, uint64_t filtered,
                                      uint64_t bad, rks_error *err)
{
    (void)writer, (void)filtered, (void)err;
    if (counted.in_unit > seen || bad > seen)
        abort();
    return RKS_OK;
}

void __wrap_rks_unit_writer_free(rks_unit_writer *writer)
{
    (void)writer;
}

#endif
