/* SPDX-License-Identifier: Apache-2.0
 *
 * close_protocol.c: a store's end. A rank that has closed goes on serving until all have closed.
 * Words go along the group's control tree, whose connections are there and metrics_source: no rank
 * hears from all others, and a pair of ranks that cannot reach each other delays nobody.
 *
 *   CLOSED      up, once this rank and all below it have closed
 *   ALL_CLOSED  down, from the root
 *               Without memory for one of these two it is said again until rks_store_leave ends.
 *   GIVEN_UP    up and down: the sender waits no longer. Its heir takes over the ranks below it:
 * its parent, or, of the root, the lowest rank below it that has not closed.
 *
 *     offset  size  field
 *          0     4  word
 *          4     4  of GIVEN_UP: the heir; else 0
 *          8     n  of GIVEN_UP: the ranks below, each as u32 rank, u32 1: it has closed */
#include <string.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/memory.h"
#include "store/store.h"

enum { LIFE_CLOSED = 1, LIFE_ALL_CLOSED = 2, LIFE_GIVEN_UP = 3, LIFE_WORD = 8, LIFE_ENTRY = 8 };

/* What is known about a rank. A word may arrive before the one that says where in the tree the
 * sender is. */
enum { HAS_CLOSED = 1, IS_BELOW = 2, SAID_ALL = 4, IS_OWED = 8 };

/* Without memory for the word it is owed, and said again by rks_store_leave. */
static void say_life(rks_store *store, uint32_t to, uint32_t word)
{
    uint8_t note[LIFE_WORD] = {0};
    rks_store_u32(note, word);
    rks_status status =
        rks_engine_note(rks_group_engine(store->group), to,
                        rks_store_service(store, RKS_SERVICE_STORE), note, sizeof(note), NULL);
    pthread_mutex_lock(&store->mutex);
    store->life[to] &= (uint8_t)~IS_OWED;
    store->life[to] |= status == RKS_ERR_MEMORY ? IS_OWED : 0;
    pthread_mutex_unlock(&store->mutex);
}

static uint8_t life_of(rks_store *store, uint32_t rank)
{
    pthread_mutex_lock(&store->mutex);
    uint8_t life = store->life[rank];
    pthread_mutex_unlock(&store->mutex);
    return life;
}

/* Passes it to the others first: a thread that knows it may end the store at once. */
static void note_all_closed(rks_store *store)
{
    for (uint32_t rank = 0; rank < rks_group_size(store->group); rank++)
        if (life_of(store, rank) & IS_BELOW)
            say_life(store, rank, LIFE_ALL_CLOSED);
    pthread_mutex_lock(&store->mutex);
    store->all_closed = true;
    pthread_cond_broadcast(&store->cond);
    pthread_mutex_unlock(&store->mutex);
}

/* Sends CLOSED up, once this rank and all below it have closed. */
static void tell_next(rks_store *store)
{
    pthread_mutex_lock(&store->mutex);
    bool whole = !store->all_closed && store->life[rks_group_rank(store->group)] & HAS_CLOSED;
    for (uint32_t rank = 0; whole && rank < rks_group_size(store->group); rank++)
        whole = (store->life[rank] & (IS_BELOW | HAS_CLOSED)) != IS_BELOW;
    int64_t up = store->life_up;
    pthread_mutex_unlock(&store->mutex);
    if (whole && up >= 0)
        say_life(store, (uint32_t)up, LIFE_CLOSED);
    else if (whole)
        note_all_closed(store);
}

/* Notes that this rank has closed, or another one with all below it. It may be repeated if a word
 * was lost; then what followed from it is repeated, too. */
static void note_closed(rks_store *store, uint32_t from)
{
    pthread_mutex_lock(&store->mutex);
    store->life[from] |= HAS_CLOSED;
    bool all = store->all_closed;
    pthread_mutex_unlock(&store->mutex);
    if (all && from != rks_group_rank(store->group))
        say_life(store, from, LIFE_ALL_CLOSED);
    else
        tell_next(store);
}

/* Makes this rank the heir: the ranks below the other one are now below this one. The mutex must be
 * held. */
static void inherit(rks_store *store, uint32_t from, const uint8_t *entry, const uint8_t *end)
{
    uint32_t size = rks_group_size(store->group), own = rks_group_rank(store->group);
    if (store->life_up == (int64_t)from)
        store->life_up = -1;
    store->life[from] = HAS_CLOSED;
    for (; entry < end; entry += LIFE_ENTRY) {
        uint32_t rank = rks_load_u32(entry);
        if (rank < size && rank != own && rank != from)
            store->life[rank] |= IS_BELOW | (rks_load_u32(entry + 4) == 1 ? HAS_CLOSED : 0);
    }
}

static void note_given_up(rks_store *store, uint32_t from, const uint8_t *body, size_t size)
{
    uint32_t heir = rks_load_u32(body + 4), own = rks_group_rank(store->group);
    if (heir >= rks_group_size(store->group) || heir == from ||
        (size - LIFE_WORD) % LIFE_ENTRY != 0)
        return;
    pthread_mutex_lock(&store->mutex);
    if (heir == own && (store->life_up == (int64_t)from || store->life[from] & IS_BELOW))
        inherit(store, from, body + LIFE_WORD, body + size);
    else if (store->life_up == (int64_t)from)
        store->life_up = heir;
    bool all = store->life_up >= 0 && store->life[store->life_up] & SAID_ALL;
    pthread_mutex_unlock(&store->mutex);
    if (all)
        note_all_closed(store);
    else
        tell_next(store);
}

/* Takes ALL_CLOSED, which comes from above. From another rank it may have overtaken the word that
 * makes that rank the one above. */
static void hear_all_closed(rks_store *store, uint32_t from)
{
    pthread_mutex_lock(&store->mutex);
    store->life[from] |= SAID_ALL;
    bool from_up = store->life_up == (int64_t)from;
    pthread_mutex_unlock(&store->mutex);
    if (from_up)
        note_all_closed(store);
}

static void on_life(void *user, uint32_t from, const uint8_t *body, size_t size)
{
    rks_store *store = user;
    uint32_t word = size < LIFE_WORD ? 0 : rks_load_u32(body);
    if (word == LIFE_CLOSED)
        note_closed(store, from);
    else if (word == LIFE_ALL_CLOSED)
        hear_all_closed(store, from);
    else if (word == LIFE_GIVEN_UP)
        note_given_up(store, from, body, size);
}

void rks_store_serve_life(rks_store *store)
{
    uint32_t count = 0;
    const uint32_t *children = rks_group_children(store->group, &count);
    for (uint32_t i = 0; i < count; i++)
        store->life[children[i]] = IS_BELOW;
    store->life_up = rks_group_parent(store->group);
    rks_engine_serve(rks_group_engine(store->group), rks_store_service(store, RKS_SERVICE_STORE),
                     NULL, on_life, store);
}

static bool owes_words(const rks_store *store)
{
    for (uint32_t rank = 0; rank < rks_group_size(store->group); rank++)
        if (store->life[rank] & IS_OWED)
            return true;
    return false;
}

/* Says the words that this rank owes, to those whom they are for by now: what one hears twice does
 * no harm. With the mutex, which it gives back meanwhile. */
static void say_owed(rks_store *store)
{
    bool all = store->all_closed;
    for (uint32_t rank = 0; rank < rks_group_size(store->group); rank++)
        store->life[rank] &= (uint8_t)~IS_OWED;
    pthread_mutex_unlock(&store->mutex);
    if (all)
        note_all_closed(store);
    else
        tell_next(store);
    pthread_mutex_lock(&store->mutex);
}

/* Waits until all have closed, and this rank has passed that on. */
int rks_store_leave(rks_store *store, uint32_t timeout_ms)
{
    if (rks_group_size(store->group) == 1)
        return 1;
    note_closed(store, rks_group_rank(store->group));
    uint64_t until = rks_now_ms() + timeout_ms;
    pthread_mutex_lock(&store->mutex);
    while ((!store->all_closed || owes_words(store)) && rks_now_ms() < until &&
           !rks_group_failed(store->group) && rks_check_interrupt(NULL) == RKS_OK) {
        if (owes_words(store))
            say_owed(store);
        if (!store->all_closed || owes_words(store))
            rks_cond_wait_ms(&store->cond, &store->mutex, RKS_WAIT_SLICE_MS);
    }
    bool all = store->all_closed;
    pthread_mutex_unlock(&store->mutex);
    return all;
}

/* Lists the ranks below for the heir. Returns -1 if no rank has to know. */
static int64_t list_below(rks_store *store, rks_buffer *list)
{
    uint8_t entry[LIFE_ENTRY] = {0}; /* the first entry is the word */
    rks_status status = rks_buffer_add(list, entry, LIFE_WORD, NULL);
    pthread_mutex_lock(&store->mutex);
    int64_t heir = store->all_closed ? -1 : store->life_up;
    bool root = heir < 0 && !store->all_closed;
    for (uint32_t rank = 0; status == RKS_OK && rank < rks_group_size(store->group); rank++) {
        uint8_t life = store->life[rank];
        if ((life & IS_BELOW) == 0)
            continue;
        rks_store_u32(entry, rank);
        rks_store_u32(entry + 4, life & HAS_CLOSED);
        status = rks_buffer_add(list, entry, sizeof(entry), NULL);
        heir = root && heir < 0 && (life & HAS_CLOSED) == 0 ? rank : heir;
    }
    pthread_mutex_unlock(&store->mutex);
    return status == RKS_OK && list->size > LIFE_WORD ? heir : -1;
}

void rks_store_give_up(rks_store *store)
{
    rks_engine *engine = rks_group_engine(store->group);
    rks_buffer list = {0};
    int64_t heir = rks_group_failed(store->group) ? -1 : list_below(store, &list);
    if (heir >= 0) {
        enum rks_service service = rks_store_service(store, RKS_SERVICE_STORE);
        rks_store_u32(list.data, LIFE_GIVEN_UP);
        rks_store_u32(list.data + 4, (uint32_t)heir);
        /* Sends to the heir last: it will hear from the others at once. */
        for (size_t at = LIFE_WORD; at < list.size; at += LIFE_ENTRY)
            if (rks_load_u32(list.data + at) != (uint32_t)heir)
                rks_engine_note(engine, rks_load_u32(list.data + at), service, list.data, LIFE_WORD,
                                NULL);
        rks_engine_note(engine, (uint32_t)heir, service, list.data, list.size, NULL);
    }
    rks_buffer_free(&list);
}
