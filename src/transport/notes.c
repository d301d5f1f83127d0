/* SPDX-License-Identifier: Apache-2.0
 *
 * notes.c: see notes.h. */
#include "transport/notes.h"

#include <inttypes.h>
#include <stddef.h>

#include "base/error.h"
#include "base/memory.h"
#include "transport/peer.h"

/* ---- sending --------------------------------------------------------------------------------- */

/* A connection has sent the note's frame, or dropped it. */
static void note_sent(rks_frame *frame)
{
    rks_note *note = (rks_note *)(void *)((uint8_t *)frame - offsetof(rks_note, frame));
    note->queued = false;
    if (note->over)
        rks_free(note);
    else if (note == note->engine->peers[note->peer].notes.next)
        rks_notes_send(note->engine, note->peer); /* it was to be sent again */
}

/* Takes the first note out of the list. */
static void forget_first(rks_engine *engine, rks_notes *notes)
{
    rks_note *note = notes->first;
    notes->first = note->after;
    if (notes->next == note)
        notes->next = note->after;
    if (note->number <= notes->given)
        notes->window -= note->size;
    engine->unacked -= notes->first == NULL;
    note->over = true;
    if (!note->queued)
        rks_free(note);
}

void rks_notes_add(rks_engine *engine, rks_note *note)
{
    rks_notes *notes = &engine->peers[note->peer].notes;
    note->number = ++notes->numbered;
    note->after = NULL;
    note->frame.sent = note_sent;
    rks_frame_set(&note->frame, RKS_FRAME_NOTE, note->number, note->service, note->body,
                  note->size);
    engine->unacked += notes->first == NULL;
    if (notes->first == NULL)
        notes->first = note;
    else
        notes->last->after = note;
    notes->last = note;
    if (notes->next == NULL)
        notes->next = note;
    rks_notes_send(engine, note->peer);
}

void rks_notes_send(rks_engine *engine, uint32_t rank)
{
    rks_notes *notes = &engine->peers[rank].notes;
    rks_connection *connection = engine->peers[rank].connection;
    if (connection == NULL || connection->state != RKS_CONNECTION_OPEN || connection->ending)
        return;
    for (rks_note *note; (note = notes->next) != NULL; notes->next = note->after) {
        bool again = note->number <= notes->given;
        if (note->queued || (again && !connection->resumed))
            return;
        if (!again && notes->window > 0 && notes->window + note->size > RKS_NOTES_WINDOW)
            return;
        if (!again) {
            notes->given = note->number;
            notes->window += note->size;
        }
        note->queued = true;
        rks_connection_send(connection, &note->frame);
    }
}

void rks_notes_return(rks_notes *notes)
{
    notes->next = notes->first;
}

void rks_notes_drop(rks_engine *engine, uint32_t rank)
{
    rks_notes *notes = &engine->peers[rank].notes;
    while (notes->first != NULL)
        forget_first(engine, notes);
    rks_engine_drained(engine);
}

/* Drops the notes up to `taken`. Returns false if the peer cannot have taken that one. */
static bool drop_taken(rks_connection *connection, uint64_t taken)
{
    rks_engine *engine = connection->engine;
    rks_peer *peer = &engine->peers[connection->rank];
    rks_notes *notes = &peer->notes;
    if (taken < notes->acked || taken > notes->given) {
        rks_error why;
        rks_fail(&why, RKS_ERR_PEER, 0,
                 "took note %" PRIu64 ", of %" PRIu64 " sent and %" PRIu64 " taken before", taken,
                 notes->given, notes->acked);
        rks_connection_distrust(connection, &why);
        return false;
    }
    if (taken > notes->acked)
        peer->breaks = 0;
    notes->acked = taken;
    while (notes->first != NULL && notes->first->number <= taken)
        forget_first(engine, notes);
    return true;
}

void rks_notes_acked(rks_connection *connection, uint64_t taken)
{
    if (!drop_taken(connection, taken))
        return;
    rks_notes_send(connection->engine, connection->rank);
    rks_engine_drained(connection->engine);
}

bool rks_notes_resume(rks_connection *connection, uint64_t taken)
{
    return drop_taken(connection, taken);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void tell(rks_connection *connection);

static void ack_sent(rks_frame *frame)
{
    rks_connection *connection =
        (rks_connection *)(void *)((uint8_t *)frame - offsetof(rks_connection, says_ack.frame));
    connection->says_ack.busy = false;
    if (connection->engine->peers[connection->rank].notes.untold >= RKS_NOTES_BYTES)
        tell(connection);
}

/* Acknowledges the peer's notes, unless that is on its way. */
static void tell(rks_connection *connection)
{
    rks_notes *notes = &connection->engine->peers[connection->rank].notes;
    if (connection->says_ack.busy || connection->ending || connection->state != RKS_CONNECTION_OPEN)
        return;
    notes->told = notes->taken;
    notes->untold = 0;
    rks_connection_say_later(connection, &connection->says_ack, RKS_FRAME_ACK, notes->taken, 0);
    connection->says_ack.frame.sent = ack_sent;
}

void rks_notes_noted(rks_connection *connection, size_t size)
{
    rks_notes *notes = &connection->engine->peers[connection->rank].notes;
    bool note = connection->frame.type == RKS_FRAME_NOTE;
    notes->taken += note;
    notes->untold += size;
    bool asked = !note && notes->taken > notes->told;
    if (asked || notes->untold >= RKS_NOTES_BYTES || notes->taken - notes->told >= RKS_NOTES_COUNT)
        tell(connection);
}
