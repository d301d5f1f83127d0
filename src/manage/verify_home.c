/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_home.c: rks_verify of a dataset in an object store: its small files are read whole, shards
 * by ranges and only if every byte is to be looked at. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "manage/verify.h"
#include "shard/checksum_file.h"
#include "shard/manifest.h"
#include "store/home_dataset.h"

enum { AT_ONCE = 32 }; /* MiB of a shard that are asked for together */

/* A shard at home. */
typedef struct home_shard {
    rks_verify_job *job;
    rks_home *home;
    const rks_dataset_shard *listed;
    char *file; /* "URL/NAME.rks", for findings */
    rks_manifest *manifest;
    uint8_t *sums;
    bool good; /* what was looked at so far is */
} home_shard;

static char *object_of_shard(const home_shard *s, const char *ending, rks_error *err)
{
    return rks_format(err, "%s.%s", s->listed->name, ending);
}

/* Makes a finding of an error in the data, at an offset of NAME.rks. */
static rks_status absorb(home_shard *s, uint64_t offset, rks_status status, const rks_error *what,
                         rks_error *err)
{
    s->good = s->good && status == RKS_OK;
    rks_status left = rks_verify_absorb(s->job, s->file, offset, status, what);
    if (left != RKS_OK && err != NULL)
        *err = *what;
    return left;
}

static rks_status read_manifest(home_shard *s, rks_error *what)
{
    char *bytes = NULL, *path = NULL, *name = object_of_shard(s, "json", what);
    size_t size = 0;
    rks_status status = name == NULL ? RKS_ERR_MEMORY
                                     : rks_home_read_all(s->home, name, RKS_MANIFEST_MAX, &bytes,
                                                         &size, NULL, what);
    if (status == RKS_OK) {
        path = rks_format(what, "%s/%s", s->home->name, name);
        status = path == NULL ? RKS_ERR_MEMORY
                              : rks_manifest_decode(bytes, size, path, &s->manifest, what);
    }
    if (status == RKS_OK && !rks_digest_equal(s->manifest->digest, s->listed->manifest))
        status = rks_fail(what, RKS_ERR_CORRUPT, 0, "%s: not the manifest that dataset.json names",
                          path);
    rks_free(path);
    rks_free(bytes);
    rks_free(name);
    return status;
}

static rks_status read_sums(home_shard *s, rks_error *what)
{
    size_t size = 0, expected = (size_t)rks_sums_count(s->manifest->file_size) * RKS_DIGEST_SIZE;
    char *name = object_of_shard(s, "sums", what);
    rks_status status = name == NULL ? RKS_ERR_MEMORY
                                     : rks_home_read_all(s->home, name, expected, (char **)&s->sums,
                                                         &size, NULL, what);
    if (status == RKS_OK &&
        (size != expected || !rks_digest_equal(rks_checksum128(s->sums, size), s->manifest->sums)))
        status = rks_fail(what, RKS_ERR_CORRUPT, 0, "%s/%s: not the sums that the manifest names",
                          s->home->name, name);
    rks_free(name);
    return status;
}

static rks_digest sum_at(const home_shard *s, uint64_t chunk)
{
    const uint8_t *at = s->sums + chunk * RKS_DIGEST_SIZE;
    return (rks_digest){.low = rks_load_u64(at), .high = rks_load_u64(at + 8)};
}

/* Compares the bytes [first, end), which lie at `bytes`, with their sums. */
static void compare_pieces(home_shard *s, uint64_t first, uint64_t end, const uint8_t *bytes)
{
    for (uint64_t at = first; at < end; at += RKS_SUMS_CHUNK) {
        size_t size = (size_t)(end - at < RKS_SUMS_CHUNK ? end - at : RKS_SUMS_CHUNK);
        if (rks_digest_equal(rks_checksum128(bytes + (at - first), size),
                             sum_at(s, at / RKS_SUMS_CHUNK)))
            continue;
        s->good = false;
        rks_verify_report(s->job, s->file, at, NULL, 0,
                          "these %zu bytes are not those that were published; publish again after "
                          "you have removed this object",
                          size);
    }
}

static rks_status read_bytes(home_shard *s, char *version, rks_error *err)
{
    const uint64_t size = s->manifest->file_size, most = (uint64_t)AT_ONCE * RKS_SUMS_CHUNK;
    rks_error what = {0};
    rks_status status = RKS_OK;
    char *name = object_of_shard(s, "rks", err);
    uint8_t *bytes = rks_alloc_raw((size_t)(size < most ? size : most), 1, err);
    if (name == NULL || bytes == NULL)
        status = RKS_ERR_MEMORY;
    for (uint64_t at = 0; status == RKS_OK && at < size; at += most) {
        uint64_t end = size - at < most ? size : at + most;
        status = rks_home_fetch(s->home, name, at, end, bytes, version, &what);
        if (status != RKS_OK) {
            status = absorb(s, at, status, &what, err);
            break;
        }
        compare_pieces(s, at, end, bytes);
    }
    rks_free(bytes);
    rks_free(name);
    return status;
}

static rks_status compare_size(home_shard *s, char *version, rks_error *what)
{
    uint64_t size = 0;
    char *name = object_of_shard(s, "rks", what);
    rks_status status =
        name == NULL ? RKS_ERR_MEMORY : rks_home_size(s->home, name, &size, version, what);
    if (status == RKS_OK && size != s->manifest->file_size)
        status = rks_fail(what, RKS_ERR_CORRUPT, 0,
                          "%s: %" PRIu64 " bytes, %" PRIu64 " when it was sealed", s->file, size,
                          s->manifest->file_size);
    rks_free(name);
    return status;
}

static rks_status verify_home_shard(rks_verify_job *job, rks_home *home,
                                    const rks_dataset_shard *listed, rks_error *err)
{
    home_shard s = {.job = job, .home = home, .listed = listed, .good = true};
    char version[RKS_HOME_VERSION] = "";
    rks_error what = {0};
    s.file = rks_format(err, "%s/%s.rks", home->name, listed->name);
    if (s.file == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = absorb(&s, 0, read_manifest(&s, &what), &what, err);
    if (status == RKS_OK && s.good)
        status = absorb(&s, 0, read_sums(&s, &what), &what, err);
    if (status == RKS_OK && s.good)
        status = absorb(&s, 0, compare_size(&s, version, &what), &what, err);
    if (status == RKS_OK && s.good && job->options.level >= RKS_VERIFY_FULL) {
        status = read_bytes(&s, version, err);
        job->samples += s.good ? listed->samples : 0;
    }
    rks_manifest_free(s.manifest);
    rks_free(s.sums);
    rks_free(s.file);
    return status;
}

static rks_status verify_named(rks_verify_job *job, const char *url, uint64_t generation,
                               rks_error *err)
{
    rks_dataset *dataset = NULL;
    rks_home *home = NULL;
    rks_error what = {0};
    char *file = rks_format(err, "%s/%s", url, RKS_VERIFY_DATASET);
    if (file == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_home_dataset_load(url, NULL, generation, &dataset, &what);
    if (status != RKS_ERR_NOT_FOUND) /* then there is nothing to look at */
        status = rks_verify_absorb(job, file, 0, status, &what);
    if (status != RKS_OK && err != NULL)
        *err = what;
    if (status == RKS_OK && dataset != NULL) {
        rks_verify_totals(job, file, dataset);
        status = rks_home_open(url, NULL, &home, err);
    }
    for (size_t i = 0; status == RKS_OK && dataset != NULL && i < dataset->shard_count; i++)
        status = verify_home_shard(job, home, &dataset->shards[i], err);
    rks_home_close(home);
    rks_dataset_free(dataset);
    rks_free(file);
    return status;
}

rks_status rks_verify_stored(rks_verify_job *job, const char *url, rks_error *err)
{
    if (job->options.level >= RKS_VERIFY_DEEP)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "%s: LMDB reads files alone: stage the dataset, and verify the local "
                        "directory",
                        url);
    char *named = rks_strdup(url, err);
    if (named == NULL)
        return RKS_ERR_MEMORY;
    uint64_t generation = rks_dataset_take_generation(named);
    rks_status status = verify_named(job, named, generation, err);
    rks_free(named);
    return status;
}
