/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c: ids of requests that wait for a reply. An id is {turn, slot}. A slot gets a new turn
 * with each use, so a late reply finds no request instead of a wrong one. */
#include "transport/internal.h"

#include "base/memory.h"

static bool slots_grow(rks_engine *engine)
{
    uint32_t room = engine->slots_room == 0 ? 64 : engine->slots_room * 2;
    if (room < engine->slots_room)
        return false;
    rks_slot *slots = rks_realloc(engine->slots, room, sizeof(*slots), NULL);
    if (slots == NULL)
        return false;
    for (uint32_t i = engine->slots_room; i < room; i++)
        slots[i] = (rks_slot){.turn = 1, .next = i + 1 < room ? i + 2 : 0};
    engine->slots = slots;
    engine->slots_free = engine->slots_room + 1;
    engine->slots_room = room;
    return true;
}

bool rks_slot_take(rks_engine *engine, rks_call *call)
{
    if (engine->slots_free == 0 && !slots_grow(engine))
        return false;
    uint32_t number = engine->slots_free - 1;
    rks_slot *slot = &engine->slots[number];
    engine->slots_free = slot->next;
    slot->call = call;
    call->id = (uint64_t)slot->turn << 32 | number;
    rks_peer *peer = &engine->peers[call->peer];
    call->next = peer->calls;
    call->link = &peer->calls;
    if (call->next != NULL)
        call->next->link = &call->next;
    peer->calls = call;
    return true;
}

void rks_slot_give(rks_engine *engine, rks_call *call)
{
    uint32_t number = (uint32_t)call->id;
    rks_slot *slot = &engine->slots[number];
    slot->call = NULL;
    slot->turn = slot->turn == UINT32_MAX ? 1 : slot->turn + 1;
    slot->next = engine->slots_free;
    engine->slots_free = number + 1;
    *call->link = call->next;
    if (call->next != NULL)
        call->next->link = call->link;
}

rks_call *rks_call_find(rks_engine *engine, uint32_t rank, uint64_t id)
{
    uint32_t number = (uint32_t)id;
    if (number >= engine->slots_room || engine->slots[number].turn != id >> 32)
        return NULL;
    rks_call *call = engine->slots[number].call;
    return call != NULL && call->peer == rank && call->asked ? call : NULL;
}
