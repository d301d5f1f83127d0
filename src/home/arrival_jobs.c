/* SPDX-License-Identifier: Apache-2.0
 *
 * arrival_jobs.c: what a thread does next. All with the mutex of the set. */
#include "base/clock.h"
#include "home/arrivals_state.h"

enum { RECORD_MOST = RKS_PIECE, RECORD_SHARE = 100 };
static const double SOON_S = 0.25; /* what comes within it is no wait */

/* Returns true if the piece is to be brought, and nobody brings it. */
static bool is_free(const rks_arriving_one *shard, uint64_t piece)
{
    return shard->busy[piece] == 0 &&
           rks_pieces_get(rks_arrival_pieces(shard->arrival), piece) != RKS_PIECE_HERE;
}

/* Takes up to RKS_ARRIVAL_PIECES free pieces of [first, end), from the first such one on. */
static bool take_pieces(rks_arriving_one *shard, uint64_t first, uint64_t end,
                        rks_arrival_job *next)
{
    uint64_t count = rks_pieces_count(rks_arrival_pieces(shard->arrival));
    end = end < count ? end : count;
    while (first < end && !is_free(shard, first))
        first++;
    uint64_t taken = 0;
    while (first + taken < end && taken < RKS_ARRIVAL_PIECES && is_free(shard, first + taken))
        shard->busy[first + taken++] = 1;
    if (taken == 0)
        return false;
    shard->under_way++;
    *next = (rks_arrival_job){shard, ARRIVING, first, taken, NULL};
    return true;
}

/* Returns true if the records that are waited for are to be read alone. */
static bool reads_records(const rks_arrivals *set)
{
    uint64_t pieces = 0, records = 0;
    if (set->records > set->bytes / RECORD_SHARE)
        return false;
    if (set->rate.bytes_per_s == 0)
        return true; /* the link is not known yet */
    for (const rks_need *need = set->needs.first; need != NULL; need = need->next) {
        pieces += RKS_PIECE;
        records += need->end - need->first;
    }
    const double slow = rks_link_rate_seconds(&set->rate, pieces);
    return slow > SOON_S && slow > 1.25 * rks_link_rate_seconds(&set->rate, records);
}

static bool take_record(rks_arrivals *set, rks_arrival_job *next)
{
    if (set->needs.first == NULL || !reads_records(set))
        return false;
    for (rks_need *need = set->needs.first; need != NULL; need = need->next) {
        rks_arriving_one *shard = &set->shards[need->shard];
        if (shard->stage != ARRIVING || need->busy || need->by_pieces || need->check == NULL ||
            need->end - need->first > RECORD_MOST)
            continue;
        need->busy = true;
        set->turn = need->turn;
        set->records += need->end - need->first;
        shard->under_way++;
        *next = (rks_arrival_job){shard, ARRIVING, 0, 0, need};
        return true;
    }
    return false;
}

static bool take_need(rks_arrivals *set, rks_arrival_job *next)
{
    for (const rks_need *need = set->needs.first; need != NULL; need = need->next) {
        rks_arriving_one *shard = &set->shards[need->shard];
        if (need->busy)
            continue;
        if (shard->stage == TO_OPEN) {
            *next = (rks_arrival_job){shard, TO_OPEN, 0, 0, NULL};
            return true;
        }
        if (shard->stage == ARRIVING &&
            take_pieces(shard, need->first / RKS_PIECE, (need->end - 1) / RKS_PIECE + 1, next)) {
            set->turn = need->turn;
            return true;
        }
    }
    return false;
}

/* Returns true if nothing is to come but copies. */
static bool only_copies_lack(const rks_arrivals *set)
{
    for (size_t i = 0; i < set->count; i++)
        if (!rks_arrival_is_copy(&set->shards[i].wish) && set->shards[i].stage != WHOLE)
            return false;
    return true;
}

static bool take_opening(rks_arrivals *set, bool copies, rks_arrival_job *next)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->shards[i].stage == TO_OPEN &&
            rks_arrival_is_copy(&set->shards[i].wish) == copies) {
            *next = (rks_arrival_job){&set->shards[i], TO_OPEN, 0, 0, NULL};
            return true;
        }
    return false;
}

/* Returns true if all pieces of the shard are here, and nobody works on it. */
static bool has_all(const rks_arriving_one *shard)
{
    const rks_pieces *pieces = rks_arrival_pieces(shard->arrival);
    return shard->stage == ARRIVING && shard->under_way == 0 &&
           rks_pieces_have(pieces, 0, rks_arrival_size(shard->arrival));
}

static bool take_rest(rks_arrivals *set, rks_arrival_job *next)
{
    const uint64_t now = rks_now_ms();
    if (set->rate.under_way > 0 && rks_link_rate_seconds(&set->rate, set->rate.under_way) > SOON_S)
        return false;
    for (size_t i = 0; i < set->count; i++) {
        rks_arriving_one *shard = &set->shards[i];
        if (shard->stage != ARRIVING || shard->pause_ms > now)
            continue;
        if (take_pieces(shard, shard->next, UINT64_MAX, next) ||
            take_pieces(shard, 0, shard->next, next)) {
            shard->next = next->first + next->count;
            return true;
        }
        if (has_all(shard)) {
            *next = (rks_arrival_job){shard, FINISHING, 0, 0, NULL};
            return true;
        }
    }
    return false;
}

bool rks_arrivals_take_job(rks_arrivals *set, rks_arrival_job *next)
{
    if (set->over)
        return false;
    bool took = take_record(set, next) || take_need(set, next) || take_opening(set, false, next) ||
                (!set->paused && (take_rest(set, next) ||
                                  (only_copies_lack(set) && take_opening(set, true, next))));
    if (took && next->stage == TO_OPEN)
        next->shard->stage = OPENING;
    if (took && next->stage == FINISHING)
        next->shard->stage = FINISHING;
    return took;
}
