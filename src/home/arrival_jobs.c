/* SPDX-License-Identifier: Apache-2.0
 *
 * arrival_jobs.c: what a thread does next. All with the mutex of the set. */
#include "base/clock.h"
#include "home/arrivals_state.h"

enum { RECORD_MOST = RKS_PIECE, RECORD_SHARE = 100 };
enum { QUIET_TIMES = 8, FIRST_STEPS_MS = 1500 };
enum { WANTED_MS = 1000 };         /* after a need others are likely */
static const double SOON_S = 0.25; /* what comes within it is no wait */
static const double SLOW_PIECE_S = 0.005, FAST_PIECE_S = 0.0125;
static const double FAR_S = 0.05; /* what is on its way from a store beside records, at least ... */
enum { FAR_PIECES = 4 };          /* ... and pieces: one alone shows no link's rate */

/* Returns true if the piece is to be brought, and nobody brings it. *claimed: it may lie here. */
static bool is_free(const rks_arriving_one *shard, uint64_t piece, bool *claimed)
{
    if (shard->busy[piece] != 0)
        return false;
    const enum rks_piece_state state = rks_pieces_get(rks_arrival_pieces(shard->arrival), piece);
    *claimed = state == RKS_PIECE_CLAIMED;
    return state != RKS_PIECE_HERE;
}

/* Takes free pieces of [first, end), from the first such one on: up to RKS_ARRIVAL_PIECES that are
 * claimed, which the local disk gives, or `most` that home has to give. */
static bool choose_pieces(rks_arriving_one *shard, uint64_t first, uint64_t end, uint64_t most,
                          rks_arrival_job *next)
{
    uint64_t count = rks_pieces_count(rks_arrival_pieces(shard->arrival)), taken = 0;
    bool claimed = false, same = false;
    end = end < count ? end : count;
    while (first < end && (!is_free(shard, first, &claimed) || (!claimed && most == 0)))
        first++;
    if (first == end)
        return false;
    same = claimed;
    most = claimed ? RKS_ARRIVAL_PIECES : most;
    while (first + taken < end && taken < most && is_free(shard, first + taken, &same) &&
           same == claimed)
        shard->busy[first + taken++] = 1;
    shard->under_way++;
    *next = (rks_arrival_job){
        .shard = shard, .stage = ARRIVING, .first = first, .count = taken, .is_local = claimed};
    return true;
}

static bool may_read_records(const rks_arrivals *set)
{
    return set->records <= set->bytes / RECORD_SHARE;
}

void rks_arrivals_quiet(rks_arrivals *set, uint64_t bytes)
{
    const uint64_t now = rks_now_ns();
    const double s = QUIET_TIMES * rks_link_rate_seconds(&set->rate, bytes);
    const uint64_t ns = (uint64_t)((s < SOON_S ? s : SOON_S) * 1e9),
                   most = now + (uint64_t)(SOON_S * 1e9);
    set->wanted_ms = now / NS_A_MS;
    set->quiet_ns = (set->quiet_ns > now ? set->quiet_ns : now) + ns;
    set->quiet_ns = set->quiet_ns < most ? set->quiet_ns : most;
}

/* Records that are read alone wait for a store's answers most of the time, and the link would be
 * idle meanwhile. Only a job's first steps have it for themselves. */
static bool shares_link(const rks_arrivals *set, uint64_t now)
{
    return set->stored && !set->paused && now >= set->begun_ms + FIRST_STEPS_MS;
}

/* Returns true if another piece may be asked for while records are read alone now and then: they
 * share the link with it. From a store it is asked for before the last one has come. */
static bool leaves_room(const rks_arrivals *set, uint64_t now)
{
    const rks_link_rate *rate = &set->rate;
    if (shares_link(set, now))
        return rate->under_way == 0 || rks_link_rate_seconds(rate, rate->under_way) <= FAR_S ||
               (rate->under_way < FAR_PIECES * RKS_PIECE &&
                rks_link_rate_seconds(rate, RKS_PIECE) <= SOON_S);
    return rate->under_way == 0 && rks_now_ns() >= set->quiet_ns;
}

/* Returns how many pieces of the rest may be asked for together: as much as comes soon. As long as
 * records are read alone now and then it is one piece: they share the link with it. */
static uint64_t rest_most(const rks_arrivals *set, uint64_t now)
{
    const rks_link_rate *rate = &set->rate;
    const uint64_t soon = (uint64_t)(rate->bytes_per_s * SOON_S) / RKS_PIECE;
    if (set->unread)
        return RKS_ARRIVAL_PIECES;
    if (rate->under_way > 0 && rks_link_rate_seconds(rate, rate->under_way) > SOON_S)
        return 0;
    if (may_read_records(set) && now < set->wanted_ms + WANTED_MS &&
        rks_link_rate_seconds(rate, RKS_PIECE) > SLOW_PIECE_S)
        return leaves_room(set, now) ? 1 : 0;
    return soon < 1 ? 1 : soon > RKS_ARRIVAL_PIECES ? RKS_ARRIVAL_PIECES : soon;
}

/* Returns true if the records that are waited for are to be read alone. */
static bool reads_records(const rks_arrivals *set)
{
    if (set->needs.first == NULL || !may_read_records(set))
        return false;
    if (set->rate.bytes_per_s == 0)
        return true; /* the link is not known yet */
    const double slow = rks_link_rate_seconds(&set->rate, set->need_count * RKS_PIECE);
    return slow > SOON_S && slow > 1.25 * rks_link_rate_seconds(&set->rate, set->need_bytes);
}

static bool choose_record(rks_arrivals *set, rks_arrival_job *next)
{
    for (rks_need *need = set->needs.first; need != NULL; need = need->next) {
        rks_arriving_one *shard = &set->shards[need->shard];
        if (shard->stage != ARRIVING || need->busy || need->by_pieces || need->check == NULL ||
            need->end - need->first > RECORD_MOST)
            continue;
        need->busy = true;
        set->turn = need->turn;
        set->records += need->end - need->first;
        shard->under_way++;
        *next = (rks_arrival_job){.shard = shard, .stage = ARRIVING, .record = need};
        return true;
    }
    return false;
}

/* Returns how many pieces a need brings at least. Once records no longer come alone a fast link is
 * better used by larger requests: what lies behind a record is wanted later in the same epoch. */
static uint64_t pieces_of_need(const rks_arrivals *set)
{
    const bool fast =
        set->rate.bytes_per_s > 0 && rks_link_rate_seconds(&set->rate, RKS_PIECE) < FAST_PIECE_S;
    return set->stored && fast && !may_read_records(set) ? RKS_ARRIVAL_PIECES : 1;
}

static bool choose_need(rks_arrivals *set, rks_arrival_job *next)
{
    const uint64_t least = pieces_of_need(set);
    for (const rks_need *need = set->needs.first; need != NULL; need = need->next) {
        rks_arriving_one *shard = &set->shards[need->shard];
        if (need->busy)
            continue;
        if (shard->stage == TO_OPEN) {
            *next = (rks_arrival_job){.shard = shard, .stage = TO_OPEN};
            return true;
        }
        const uint64_t first = need->first / RKS_PIECE, end = (need->end - 1) / RKS_PIECE + 1;
        if (shard->stage == ARRIVING &&
            choose_pieces(shard, first, end - first < least ? first + least : end,
                          RKS_ARRIVAL_PIECES, next)) {
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

static bool choose_opening(rks_arrivals *set, bool copies, rks_arrival_job *next)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->shards[i].stage == TO_OPEN &&
            rks_arrival_is_copy(&set->shards[i].wish) == copies) {
            *next = (rks_arrival_job){.shard = &set->shards[i], .stage = TO_OPEN};
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

static bool choose_rest(rks_arrivals *set, rks_arrival_job *next)
{
    const uint64_t now = rks_now_ms();
    const uint64_t most = rest_most(set, now);
    for (size_t i = 0; i < set->count; i++) {
        rks_arriving_one *shard = &set->shards[i];
        if (shard->stage != ARRIVING || shard->pause_ms > now)
            continue;
        if (choose_pieces(shard, shard->next, UINT64_MAX, most, next) ||
            choose_pieces(shard, 0, shard->next, most, next)) {
            shard->next = next->first + next->count;
            return true;
        }
        if (has_all(shard)) {
            *next = (rks_arrival_job){.shard = shard, .stage = FINISHING};
            return true;
        }
    }
    return false;
}

static bool may_read_pieces(const rks_arrivals *set)
{
    return set->piece_jobs < (set->stored ? RKS_ARRIVALS_STORE_PIECES : RKS_ARRIVALS_THREADS);
}

/* While records are read alone the rest waits: they are few, and each would wait behind it. A
 * store's link bears both. */
bool rks_arrivals_take_job(rks_arrivals *set, rks_arrival_job *next)
{
    if (set->over)
        return false;
    const bool alone = reads_records(set), pieces = may_read_pieces(set);
    const bool goes_on = !set->paused && !alone;
    const bool both = alone && pieces && shares_link(set, rks_now_ms());
    bool took = (both && choose_rest(set, next)) || (alone && choose_record(set, next)) ||
                (pieces && choose_need(set, next)) || choose_opening(set, false, next) ||
                (goes_on && ((pieces && choose_rest(set, next)) ||
                             (only_copies_lack(set) && choose_opening(set, true, next))));
    if (took && next->stage == TO_OPEN)
        next->shard->stage = OPENING;
    if (took && next->stage == FINISHING)
        next->shard->stage = FINISHING;
    return took;
}
