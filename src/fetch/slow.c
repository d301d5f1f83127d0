/* SPDX-License-Identifier: Apache-2.0
 *
 * slow.c: which records are not in memory, and the line that names them. */
#include "fetch/slow.h"

#include <inttypes.h>

#include "base/log.h"
#include "fetch/request.h"

static const rks_shard *local_shard(const rks_fetcher *fetcher, const rks_wanted *wanted)
{
    return wanted->shard < fetcher->options.shard_count ? fetcher->shards[wanted->shard] : NULL;
}

/* Returns the first sample of the list that the storage may have to deliver; NULL: there is none.
 */
static const rks_wanted *find_slow(const rks_request_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const rks_shard *shard = local_shard(list->fetcher, &list->wanted[i]);
        if (shard != NULL && !rks_shard_is_ready(shard, list->wanted[i].row))
            return &list->wanted[i];
    }
    return NULL;
}

bool rks_fetch_may_wait(rks_fetcher *fetcher, const rks_wanted *wanted)
{
    const rks_shard *shard = local_shard(fetcher, wanted);
    return !rks_disk_reader_is_warm(&fetcher->disk) && shard != NULL &&
           !rks_shard_is_ready(shard, wanted->row);
}

bool rks_fetch_list_may_wait(rks_request_list *list)
{
    if (rks_disk_reader_is_warm(&list->fetcher->disk))
        return false;
    list->ready = find_slow(list) == NULL;
    return !list->ready;
}

static void say_owner(const rks_fetcher *fetcher, uint32_t owner, const rks_wanted *wanted,
                      uint64_t seconds)
{
    char text[512] = "samples";
    const char *what = text;
    if (fetcher->options.describe != NULL)
        what = fetcher->options.describe(fetcher->options.user, wanted->id, text, sizeof(text));
    rks_log("rank %" PRIu32 " has waited %" PRIu64 " s for rank %" PRIu32
            ", which reads %s: its storage may hang",
            fetcher->options.rank, seconds, owner, what);
}

void rks_fetch_say_slow(rks_fetch *fetch, uint64_t waited_ms)
{
    rks_fetcher *fetcher = fetch->fetcher;
    uint64_t seconds = waited_ms / 1000;
    rks_wanted asked;
    uint32_t owner = 0;
    pthread_mutex_lock(&fetcher->mutex);
    const rks_fetch_request *sent = fetch->sent;
    if (sent != NULL) {
        asked = *rks_fetch_request_wanted(sent, 0);
        owner = sent->call.peer;
    }
    const rks_wanted *slow = fetch->batch == NULL ? NULL : find_slow(fetch->batch->list);
    if (slow != NULL)
        asked = *slow;
    pthread_mutex_unlock(&fetcher->mutex);
    if (slow != NULL)
        rks_log("rank %" PRIu32 " has waited %" PRIu64 " s for %s (row %" PRIu64
                "): its storage may hang",
                fetcher->options.rank, seconds, rks_shard_path(fetcher->shards[asked.shard]),
                asked.row);
    else if (sent != NULL)
        say_owner(fetcher, owner, &asked, seconds);
}
