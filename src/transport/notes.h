/* SPDX-License-Identifier: Apache-2.0
 *
 * notes.h: the notes of two ranks to each other, which outlive a connection.
 *
 * Laws, for one direction:
 *   - Notes are numbered from 1, in the order in which they are sent. The receiver takes note n + 1
 *     only after note n, so it takes each once and in order; another number ends the connection.
 *   - The sender keeps a note until the receiver has acknowledged it. Of the notes that it has
 *     given to a connection it keeps at most RKS_NOTES_WINDOW bytes, or one; later ones wait.
 *   - The receiver acknowledges after RKS_NOTES_BYTES bytes or RKS_NOTES_COUNT notes, and whenever
 *     the sender pings.
 *   - On a new connection each side first says which note it has taken last (resume). Only then are
 *     notes sent again that an earlier connection was given: those after that one. */
#ifndef RKS_TRANSPORT_NOTES_H
#define RKS_TRANSPORT_NOTES_H

#include "transport/connection.h"

enum { RKS_NOTES_WINDOW = 16 << 20, RKS_NOTES_BYTES = 256 << 10, RKS_NOTES_COUNT = 32 };

/* A note on its way from its caller to the wire; also carries the wish to keep a connection. */
typedef struct rks_note {
    rks_command command;
    rks_frame frame;
    rks_engine *engine;
    struct rks_note *after;
    uint64_t number;
    size_t size;
    uint32_t peer;
    uint16_t service;
    bool queued; /* a connection has its frame */
    bool over;   /* in no list any more: freed when the connection lets go of it */
    uint8_t body[];
} rks_note;

typedef struct rks_notes {
    rks_note *first, *last; /* not acknowledged */
    rks_note *next;    /* of these, the first for the next connection or the window; NULL: none */
    uint64_t numbered; /* notes that this rank has sent */
    uint64_t given;    /* the last one that a connection was given */
    uint64_t acked;    /* the last one that the peer has taken */
    uint64_t window;   /* bytes of those between */
    uint64_t taken;    /* the last one of the peer */
    uint64_t told;     /* the last one of the peer that this rank has acknowledged */
    size_t untold;     /* bytes since then */
} rks_notes;

/* Takes over the note and sends it, once there is a connection. */
void rks_notes_add(rks_engine *engine, rks_note *note);
/* Sends what may be sent over the peer's connection. */
void rks_notes_send(rks_engine *engine, uint32_t rank);
/* The peer's connection has broken: its notes are sent again over the next one. */
void rks_notes_return(rks_notes *notes);
/* Drops the notes to a peer that is gone. */
void rks_notes_drop(rks_engine *engine, uint32_t rank);

/* Of rks_connection_events. */
void rks_notes_acked(rks_connection *connection, uint64_t taken);
void rks_notes_noted(rks_connection *connection, size_t size);
/* Handles the peer's last note in a resume. Ends the connection and returns false if it cannot be
 * true. */
bool rks_notes_resume(rks_connection *connection, uint64_t taken);

#endif
