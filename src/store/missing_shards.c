/* SPDX-License-Identifier: Apache-2.0
 *
 * missing_shards.c: shards that no rank has. A network file system may show the files of another
 * node late, so an opening looks there again before it calls a shard missing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/available_memory.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/home_file.h"
#include "store/store_reads.h"

static const uint32_t LOOK_AGAIN_MS = 1000;
static uint32_t look_again_ms; /* 0: LOOK_AGAIN_MS, on network file systems only */

void rks_store_look_again_everywhere(uint32_t wait_ms)
{
    look_again_ms = wait_ms;
}

rks_status rks_store_read_missing(const char *missing, bool *partly, rks_error *err)
{
    *partly = missing != NULL && strcmp(missing, "partial") == 0;
    if (missing == NULL || *partly || strcmp(missing, "error") == 0)
        return RKS_OK;
    if (strcmp(missing, "fetch") == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "missing: \"fetch\" needs `local`, a directory on a disk of this node");
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "missing: \"%.40s\" is not \"error\" or \"partial\"",
                    missing);
}

bool rks_store_shows_late(const char *directory)
{
    bool memory = false;
    return look_again_ms != 0 || (rks_shared_filesystem(directory, &memory) != NULL && !memory);
}

uint8_t rks_store_looks_late(const rks_store *store)
{
    const rks_dataset *dataset = store->dataset;
    bool late = false;
    for (size_t i = 0; !late && (i == 0 || i < dataset->source_count); i++) {
        const char *directory =
            dataset->source_count == 0 ? store->directory : dataset->sources[i].directory;
        late = directory != NULL && rks_store_shows_late(directory);
    }
    for (size_t i = 0; !late && i < store->folders.count; i++)
        late = rks_store_shows_late(store->folders.paths[i]);
    return late;
}

static bool seen_by_some(const rks_agreed *agreed, size_t shard)
{
    for (uint32_t rank = 0; rank < rks_group_size(agreed->group); rank++) {
        const uint8_t *seen = rks_agreed_get(agreed, rank, RKS_TELL_SEEN, NULL);
        if ((seen[shard / 8] >> shard % 8 & 1) != 0)
            return true;
    }
    return false;
}

bool rks_store_should_look_again(const rks_store *store, const rks_agreed *agreed, uint32_t looks)
{
    bool late = false, all = true;
    if (rks_group_size(agreed->group) == 1 &&
        store->opens_partly) /* as a loader's worker process */
        return false;
    for (uint32_t rank = 0; rank < rks_group_size(agreed->group); rank++)
        late = late || *(const uint8_t *)rks_agreed_get(agreed, rank, RKS_TELL_LATE, NULL) != 0;
    for (size_t i = 0; late && all && i < store->dataset->shard_count; i++)
        all = seen_by_some(agreed, i);
    return late && !all && looks < RKS_STORE_LOOKS_AGAIN;
}

rks_status rks_store_wait_for_late(rks_error *err)
{
    const uint64_t until = rks_now_ms() + (look_again_ms != 0 ? look_again_ms : LOOK_AGAIN_MS);
    rks_status status = RKS_OK;
    while (status == RKS_OK && rks_now_ms() < until) {
        const struct timespec nap = {.tv_nsec = 20 * 1000 * 1000};
        nanosleep(&nap, NULL);
        status = rks_check_interrupt(err);
    }
    return status;
}

rks_status rks_store_look_again(rks_store *store, rks_error *err)
{
    rks_status status = rks_store_wait_for_late(err);
    return status == RKS_OK ? rks_store_read_shards_again(store, err) : status;
}

/* Says what to do about missing shards of a directory. */
static void put_advice(const char *directory, char *text, size_t room)
{
    char *home = NULL;
    if (directory != NULL)
        (void)rks_home_file_read(directory, &home, NULL);
    if (home != NULL)
        snprintf(text, room,
                 "this is a local copy: without `missing` they are read from its home, %.120s",
                 rks_text_end(home, 120));
    else
        snprintf(text, room,
                 "bring the files, run on nodes that have them, build the lost shards again (the "
                 "same build, or rankstore repair), or open the rest with missing=\"partial\"");
    rks_free(home);
}

rks_status rks_store_check_missing(rks_store *store, const rks_index_gather *filling,
                                   rks_error *err)
{
    size_t shards = store->dataset->shard_count, first = 0;
    uint8_t *missing = rks_alloc(shards, sizeof(*missing), err);
    if (missing == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = shards; i-- > 0;)
        if (store->owners[i][0] < 0) {
            store->missing_shards++;
            missing[i] = 1;
            first = i;
        }
    for (size_t i = 0; store->missing_shards > 0 && i < filling->span_count; i++)
        if (store->owners[filling->spans[i].shard][0] < 0)
            store->missing_samples += filling->spans[i].count;
    enum { SHORT = 96 };
    char origins[256], looked[128];
    rks_store_put_looked(store, looked, sizeof(looked));
    rks_dataset_put_origins(store->dataset, missing, origins,
                            looked[0] == '\0' ? sizeof(origins) : SHORT);
    rks_free(missing);
    if (store->missing_shards == 0 || store->opens_partly)
        return RKS_OK;
    const char *directory = rks_store_directory_of(store, first);
    char advice[256];
    put_advice(directory, advice, sizeof(advice));
    return rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                    "%s: %" PRIu64 " of %zu shards are on no rank's disk, with %" PRIu64
                    " of %" PRIu64 " samples: %s%s%s%s%s; %s",
                    directory == NULL ? "" : directory, store->missing_shards, shards,
                    store->missing_samples, store->dataset->count,
                    store->dataset->shards[first].name, store->missing_shards > 1 ? ", ..." : "",
                    origins[0] != '\0' ? "; built by " : "", origins, looked, advice);
}
