/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.h: which pieces of a file that still arrives are here. NAME.pieces has a byte for each
 * MiB; all processes that read or write the file map it. pieces.c draws it.
 *
 * Laws. A piece becomes HERE only after its bytes were checked in memory and written. HERE becomes
 * CLAIMED by another boot of the machine, or by a doubt; nothing else goes back. Two writers of a
 * piece write the same bytes, so no lock is needed. Marks are not synced: they are true as long as
 * the page cache lives, and another boot checks them again.
 *
 * A doubt: the file could not be synced, so that what the page cache shows may never reach the disk
 * and may go at any time. It is counted before the marks change. Who writes without a mark, or is
 * about to mark, looks at the count before it reads or writes the bytes, and believes them only as
 * long as the count is the same. Once the file has been synced and has its name, it is sealed:
 * then no doubt comes any more. */
#ifndef RKS_BASE_PIECES_H
#define RKS_BASE_PIECES_H

#include "base/checksum.h"

enum { RKS_PIECE = 1 << 20 };

enum rks_piece_state {
    RKS_PIECE_MISSING,
    RKS_PIECE_CLAIMED, /* may be here: to be read and checked before its first use */
    RKS_PIECE_HERE,
};

typedef struct rks_pieces rks_pieces;

/* Prepares the file whose pieces are marked, while nobody else does: opens or makes it, with its
 * full size, which it writes to *file_size. *fresh: none of its bytes are there yet. */
typedef rks_status (*rks_pieces_prepare_fn)(void *user, uint64_t *file_size, bool *fresh,
                                            rks_error *err);

typedef struct rks_pieces_wish {
    const char *path;
    rks_digest what; /* names the bytes that arrive; marks of other bytes are dropped */
    rks_pieces_prepare_fn prepare;
    void *user;
} rks_pieces_wish;

/* Calls `prepare` under a lock of the file of marks, which it makes if there is none. Marks of
 * another boot, and marks that are damaged, become CLAIMED; those of a fresh file MISSING. Nothing
 * is sealed then. The caller owns *pieces.
 *
 * Who waits for the lock says a line after 15 s, and fails after 15 min with RKS_ERR_TIMEOUT; both
 * name the file, and the process that has the lock. The same holds for rks_pieces_end. */
rks_status rks_pieces_open(const rks_pieces_wish *wish, rks_pieces **pieces, rks_error *err);
/* Maps the marks that another process has opened, to read them. RKS_ERR_NOT_FOUND: there are
 * none, or they are of other bytes or of another boot. The caller owns *pieces. */
rks_status rks_pieces_follow(const char *path, rks_digest what, rks_pieces **pieces,
                             rks_error *err);
/* Ends the marks, which the caller has open from `path`: calls `end` under the lock of the file. If
 * that succeeds, the pieces are sealed, and the file is removed. Without such a file another
 * process has done it, and nothing is called. */
typedef rks_status (*rks_pieces_end_fn)(void *user, rks_error *err);
rks_status rks_pieces_end(rks_pieces *pieces, const char *path, rks_pieces_end_fn end, void *user,
                          rks_error *err);
/* One more owner, who closes it, too. Returns `pieces`. */
rks_pieces *rks_pieces_hold(rks_pieces *pieces);
void rks_pieces_close(rks_pieces *pieces); /* NULL is accepted */

uint64_t rks_pieces_count(const rks_pieces *pieces);
enum rks_piece_state rks_pieces_get(const rks_pieces *pieces, uint64_t piece);
void rks_pieces_set(rks_pieces *pieces, uint64_t piece, enum rks_piece_state state);
/* Marks a piece as HERE whose bytes were read and written since the count of doubts was `doubts`.
 * If there is a new one, it is CLAIMED. */
void rks_pieces_mark(rks_pieces *pieces, uint64_t piece, uint32_t doubts);
/* The file could not be synced: counts a doubt, and what is HERE becomes CLAIMED. */
void rks_pieces_doubt(rks_pieces *pieces);
/* Returns how many doubts there were since the file of marks was made, by all processes. */
uint32_t rks_pieces_doubts(const rks_pieces *pieces);
/* Returns true once the file has been sealed: all pieces are HERE, and stay it. */
bool rks_pieces_sealed(const rks_pieces *pieces);
/* Returns true if all pieces with bytes [first, end) are HERE. Then these bytes are right in every
 * map of the file. */
bool rks_pieces_have(const rks_pieces *pieces, uint64_t first, uint64_t end);
/* Returns the bytes in pieces that are HERE or CLAIMED. */
uint64_t rks_pieces_bytes(const rks_pieces *pieces);

/* Looks at a file of marks without a lock: how many bytes it says are there; 0 if it is of other
 * bytes, or there is none. */
uint64_t rks_pieces_look(const char *path, rks_digest what, uint64_t file_size);

/* For tests: another boot of the machine; NULL: the real one. */
void rks_pieces_pretend_boot(const char *boot);
/* For tests: after how long a wait for the lock says a line, and fails. Zeros: as ever. */
void rks_pieces_limit_wait(uint32_t tell_ms, uint32_t limit_ms);

#endif
