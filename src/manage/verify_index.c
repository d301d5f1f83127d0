/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_index.c: the index files of a dataset. A directory may lack them, so one that is not there
 * is no finding. Checked on every level: they are small beside the shards. */
#include "manage/verify.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

static rks_status read_segments(const rks_index_reader *reader, rks_error *err)
{
    uint64_t segments = rks_index_reader_segments(reader);
    uint8_t *bytes = rks_alloc_raw(rks_index_reader_room(reader), 1, err);
    rks_status status = bytes == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (uint64_t i = 0; status == RKS_OK && i < segments; i++) {
        status = rks_index_reader_read(reader, i, bytes, err);
        if (status == RKS_OK)
            status = rks_check_interrupt(err);
    }
    rks_free(bytes);
    return status;
}

static rks_status verify_file(rks_verify_job *job, const char *directory,
                              const rks_index_file *named, rks_index_items items, rks_error *err)
{
    rks_index_reader *reader = NULL;
    rks_error what = {0};
    char *file = rks_format(err, "%s/%s", directory, named->name);
    if (file == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_index_reader_open(directory, named, items, &reader, &what);
    if (status == RKS_OK)
        status = read_segments(reader, &what);
    rks_index_reader_close(reader);
    status = status == RKS_ERR_NOT_FOUND ? RKS_OK : rks_verify_absorb(job, file, 0, status, &what);
    if (status != RKS_OK && err != NULL)
        *err = what;
    rks_free(file);
    return status;
}

rks_status rks_verify_index_files(rks_verify_job *job, const char *directory,
                                  const rks_dataset *dataset, rks_error *err)
{
    rks_index_items items;
    rks_status status = rks_dataset_index_items(dataset, &items, err);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; status == RKS_OK && i < dataset->index_file_count; i++)
        status = verify_file(job, directory, &dataset->index_files[i], items, err);
    rks_free((void *)(uintptr_t)items.sizes);
    return status;
}
