/* SPDX-License-Identifier: Apache-2.0
 *
 * call_table.c: ids of requests that wait for a reply. An id is {turn, entry}. A entry gets a new
 * turn with each use, so a late reply finds no request instead of a wrong one. */
#include "transport/call_table.h"

#include "base/memory.h"
#include "transport/peer.h"

static bool grow_entries(rks_engine *engine)
{
    uint32_t room = engine->call_entries_room == 0 ? 64 : engine->call_entries_room * 2;
    if (room < engine->call_entries_room)
        return false;
    rks_call_entry *call_entries =
        rks_realloc(engine->call_entries, room, sizeof(*call_entries), NULL);
    if (call_entries == NULL)
        return false;
    for (uint32_t i = engine->call_entries_room; i < room; i++)
        call_entries[i] = (rks_call_entry){.turn = 1, .next = i + 1 < room ? i + 2 : 0};
    engine->call_entries = call_entries;
    engine->call_entries_free = engine->call_entries_room + 1;
    engine->call_entries_room = room;
    return true;
}

bool rks_call_table_add(rks_engine *engine, rks_call *call)
{
    if (engine->call_entries_free == 0 && !grow_entries(engine))
        return false;
    uint32_t number = engine->call_entries_free - 1;
    rks_call_entry *entry = &engine->call_entries[number];
    engine->call_entries_free = entry->next;
    entry->call = call;
    call->id = (uint64_t)entry->turn << 32 | number;
    rks_peer *peer = &engine->peers[call->peer];
    call->next = peer->calls;
    call->link = &peer->calls;
    if (call->next != NULL)
        call->next->link = &call->next;
    peer->calls = call;
    return true;
}

void rks_call_table_remove(rks_engine *engine, rks_call *call)
{
    uint32_t number = (uint32_t)call->id;
    rks_call_entry *entry = &engine->call_entries[number];
    entry->call = NULL;
    entry->turn = entry->turn == UINT32_MAX ? 1 : entry->turn + 1;
    entry->next = engine->call_entries_free;
    engine->call_entries_free = number + 1;
    *call->link = call->next;
    if (call->next != NULL)
        call->next->link = call->link;
}

rks_call *rks_call_find(rks_engine *engine, uint32_t rank, uint64_t id)
{
    uint32_t number = (uint32_t)id;
    if (number >= engine->call_entries_room || engine->call_entries[number].turn != id >> 32)
        return NULL;
    rks_call *call = engine->call_entries[number].call;
    return call != NULL && call->peer == rank && call->asked ? call : NULL;
}
