/* SPDX-License-Identifier: Apache-2.0
 *
 * prefetch.c: a ring of fetches that were started ahead. */
#include "fetch/prefetch.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/trace.h"

enum { MOST_BATCHES = 4096 };

/* If neither limit is set: four batches, or more if they are small. */
enum { AUTO_BATCHES = 4, AUTO_MOST = 64, AUTO_LIMIT = 512, AUTO_SMALL_EACH = 32 << 10 };
enum { NEAR_BATCHES = 4, QUIET_BATCHES = 8 }; /* while samples come from home */
/* Batches of this rank are started in groups from so many ahead on, and up to so many bytes each.
 */
enum { GROUP_FROM = 4, GROUP_EACH = 1 << 20 };
enum { WAVE_FROM = 8 }; /* batches ahead above which they are started in waves */
static const uint64_t AUTO_BYTES = (uint64_t)1 << 30;

/* A list whose fetch was started. */
typedef struct slot {
    rks_prefetch_list list; /* its samples belong to the fetch */
    rks_fetch *fetch;
    uint64_t traced; /* rks_trace_begin when it was started */
} slot;

struct rks_prefetch {
    rks_prefetch_options options;
    slot *ring;
    size_t room, first, count;
    uint64_t small_bytes;   /* limit for the batches after the first AUTO_BATCHES */
    rks_prefetch_list next; /* the list that was pushed and is not started, if has_next */
    bool has_next;
    bool waves;          /* batches come from other ranks: see rks_prefetch_start */
    bool open;           /* batches are being started */
    size_t low;          /* no batch is started while more are ahead */
    bool gathers;        /* requests are being gathered */
    size_t near;         /* most batches ahead, if options.near */
    size_t quiet;        /* batches since the last wait for home, or since `near` grew */
    uint64_t home_waits; /* rks_fetcher_home_waits before the batch that comes next */
    double seen_bytes, seen_weight;
};

/* ---- how far ahead --------------------------------------------------------------------------- */

static size_t least_near(const rks_prefetch *prefetch)
{
    return prefetch->room < NEAR_BATCHES ? prefetch->room : NEAR_BATCHES;
}

static bool is_near(const rks_prefetch *prefetch)
{
    return prefetch->near < prefetch->room;
}

/* Looks, when a batch has come, whether samples had to come from home meanwhile. */
static void notice_home(rks_prefetch *prefetch)
{
    if (!prefetch->options.near)
        return;
    const uint64_t waits = rks_fetcher_home_waits(prefetch->options.fetcher);
    const bool waited = waits != prefetch->home_waits;
    prefetch->home_waits = waits;
    prefetch->quiet = waited ? 0 : prefetch->quiet + 1;
    if (waited) {
        prefetch->near = least_near(prefetch);
    } else if (prefetch->quiet == QUIET_BATCHES && is_near(prefetch)) {
        prefetch->quiet = 0;
        prefetch->near = prefetch->near < prefetch->room / 2 ? prefetch->near * 2 : prefetch->room;
    }
}

/* ---- the ring ----------------------------------------------------------------------------- */

rks_status rks_prefetch_open(const rks_prefetch_options *options, rks_prefetch **prefetch,
                             rks_error *err)
{
    rks_prefetch *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->options = *options;
    made->waves = rks_fetcher_is_remote(options->fetcher);
    made->small_bytes = made->options.max_bytes;
    made->room = options->max_batches == 0 ? MOST_BATCHES : options->max_batches;
    if (options->max_bytes == 0) {
        made->options.max_bytes = AUTO_BYTES;
        size_t most = options->ranks > AUTO_MOST ? options->ranks : AUTO_MOST;
        most = most < AUTO_LIMIT ? most : AUTO_LIMIT;
        made->small_bytes = options->max_batches == 0 ? most * AUTO_SMALL_EACH : AUTO_BYTES;
        made->room = options->max_batches == 0 ? most : made->room;
    }
    if (made->room > MOST_BATCHES)
        made->room = MOST_BATCHES;
    made->near = options->near ? least_near(made) : made->room;
    made->home_waits = rks_fetcher_home_waits(options->fetcher);
    made->seen_bytes = (double)options->known_bytes;
    made->seen_weight = (double)options->known_weight;
    made->ring = rks_alloc(made->room, sizeof(*made->ring), err);
    if (made->ring == NULL) {
        rks_free(made);
        return RKS_ERR_MEMORY;
    }
    *prefetch = made;
    return RKS_OK;
}

size_t rks_prefetch_ahead(const rks_prefetch *prefetch)
{
    return prefetch->count;
}

void rks_prefetch_close(rks_prefetch *prefetch)
{
    if (prefetch == NULL)
        return;
    for (size_t i = 0; i < prefetch->count; i++)
        rks_fetch_cancel(prefetch->ring[(prefetch->first + i) % prefetch->room].fetch);
    if (prefetch->has_next)
        rks_request_list_free(prefetch->next.samples);
    rks_free(prefetch->ring);
    rks_free(prefetch);
}

static double estimate(const rks_prefetch *prefetch, const rks_prefetch_list *list)
{
    return prefetch->seen_bytes / prefetch->seen_weight * (double)list->weight;
}

/* Returns true if there is room for another batch, with this list. */
static bool has_room(const rks_prefetch *prefetch, const rks_prefetch_list *list)
{
    if (prefetch->count == 0)
        return true;
    if (prefetch->count >= prefetch->near || prefetch->seen_weight <= 0)
        return false;
    double bytes = estimate(prefetch, list);
    for (size_t i = 0; i < prefetch->count; i++) {
        const slot *ahead = &prefetch->ring[(prefetch->first + i) % prefetch->room];
        uint64_t memory = rks_fetch_memory(ahead->fetch);
        bytes += memory != 0 ? (double)memory : estimate(prefetch, &ahead->list);
    }
    return bytes <= (double)(prefetch->count < AUTO_BATCHES ? prefetch->options.max_bytes
                                                            : prefetch->small_bytes);
}

static rks_status start_next(rks_prefetch *prefetch, rks_error *err)
{
    const rks_prefetch_options *options = &prefetch->options;
    rks_request_list *samples = prefetch->next.samples;
    rks_fetch *fetch = NULL;
    rks_status status =
        options->collate == NULL
            ? rks_fetcher_start(options->fetcher, samples, &fetch, err)
            : rks_fetcher_start_arrays(options->fetcher, samples, options->collate, &fetch, err);
    if (status != RKS_OK)
        return status;
    prefetch->ring[(prefetch->first + prefetch->count++) % prefetch->room] =
        (slot){prefetch->next, fetch, rks_trace_begin()};
    prefetch->has_next = false;
    return RKS_OK;
}

rks_status rks_prefetch_start(rks_prefetch *prefetch, bool *wants, rks_error *err)
{
    *wants = false;
    if (!prefetch->open) {
        if (prefetch->count > prefetch->low)
            return RKS_OK;
        prefetch->open = true;
        prefetch->gathers = !is_near(prefetch);
        if (prefetch->gathers)
            rks_fetcher_gather(prefetch->options.fetcher, true);
    }
    if (prefetch->has_next) {
        if (!has_room(prefetch, &prefetch->next))
            return RKS_OK;
        rks_status status = start_next(prefetch, err);
        if (status != RKS_OK)
            return status;
    }
    *wants = true;
    return RKS_OK;
}

void rks_prefetch_push(rks_prefetch *prefetch, const rks_prefetch_list *list)
{
    prefetch->next = *list;
    prefetch->has_next = true;
}

/* Returns how many batches may be ahead when the next ones are started. */
static size_t next_low(const rks_prefetch *prefetch)
{
    if (prefetch->waves)
        return prefetch->count > WAVE_FROM ? prefetch->count / 2 : prefetch->count;
    bool small = !is_near(prefetch) && prefetch->count >= GROUP_FROM && prefetch->seen_weight > 0 &&
                 estimate(prefetch, &prefetch->ring[prefetch->first].list) <= GROUP_EACH;
    return small ? prefetch->count / 2 : prefetch->count;
}

void rks_prefetch_send(rks_prefetch *prefetch)
{
    if (!prefetch->open)
        return;
    prefetch->open = false;
    if (prefetch->gathers)
        rks_fetcher_gather(prefetch->options.fetcher, false);
    prefetch->low = next_low(prefetch);
}

bool rks_prefetch_drop(rks_prefetch *prefetch)
{
    if (!prefetch->has_next)
        return false;
    rks_request_list_free(prefetch->next.samples);
    prefetch->has_next = false;
    return true;
}

/* ---- results ------------------------------------------------------------------------------- */

static void pop(rks_prefetch *prefetch)
{
    prefetch->first = (prefetch->first + 1) % prefetch->room;
    prefetch->count--;
}

rks_status rks_prefetch_next(rks_prefetch *prefetch, rks_batch **batch, rks_arrays **arrays,
                             uint64_t *tag, rks_error *err)
{
    if (prefetch->count == 0) {
        *batch = NULL;
        *arrays = NULL;
        return RKS_OK;
    }
    slot *oldest = &prefetch->ring[prefetch->first];
    rks_status status = rks_fetch_wait_either(&oldest->fetch, batch, arrays, err);
    if (status != RKS_OK) {
        if (status != RKS_ERR_CANCELLED)
            pop(prefetch);
        return status;
    }
    uint64_t memory = *arrays != NULL ? rks_arrays_memory(*arrays) : rks_batch_memory(*batch);
    rks_trace_end(oldest->traced, RKS_TRACE_PREFETCH, -1, oldest->list.count, memory);
    prefetch->seen_bytes += (double)memory;
    prefetch->seen_weight += (double)oldest->list.weight;
    notice_home(prefetch);
    if (tag != NULL)
        *tag = oldest->list.tag;
    pop(prefetch);
    return RKS_OK;
}
