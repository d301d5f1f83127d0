/* SPDX-License-Identifier: Apache-2.0
 *
 * arrival.h: a shard that comes from a home into a local directory, piece by piece.
 *
 *   NAME.manifest   the shard's manifest, which is NAME.json at home
 *   NAME.sums       the digests of its pieces
 *   NAME.arriving   NAME.rks, with its full size and room from the beginning
 *   NAME.pieces     which pieces are here (base/pieces.h)
 *
 * When all have come: NAME.arriving is synced and becomes NAME.rks, NAME.manifest becomes
 * NAME.json, which makes it a shard, and NAME.pieces goes.
 *
 * Laws. A thing is believed once what names it has checked it: the dataset names the manifest's
 * digest, the manifest that of the sums, the sums those of the pieces. A piece is checked in
 * memory, then written, then marked; so no unchecked byte lies under a mark. Several jobs may bring
 * one shard into one directory at once: they write the same bytes. A shard counts as arriving until
 * it is sealed, which comes after the sync of all its bytes. */
#ifndef RKS_HOME_ARRIVAL_H
#define RKS_HOME_ARRIVAL_H

#include "base/pieces.h"
#include "home/requests.h"
#include "shard/manifest.h"

/* How many pieces one request brings at most. */
enum { RKS_ARRIVAL_PIECES = 4 };

typedef struct rks_arrival rks_arrival;

typedef struct rks_arrival_wish {
    rks_home *home;   /* must outlive the arrival, as the next one; NULL: only the holder has it */
    rks_home *holder; /* of a further copy: who has the shard, or will, and is asked before home;
                       * NULL: nobody */
    const char *directory;
    const char *name;    /* of the shard */
    rks_digest manifest; /* digest of its manifest */
    bool sparse;         /* takes no room ahead */
    bool optional;       /* a further copy: nobody waits for it, and a failure only ends it */
    const char *dataset; /* what errors call it: "dataset 1a2b3c4d, generation 2"; NULL: nothing */
} rks_arrival_wish;

/* Begins an arrival, or goes on with one: brings manifest and sums, and takes the file's room.
 * Waits for home. *whole: the shard is here, and *arrival stays NULL. RKS_ERR_CORRUPT: what home
 * has is not what the dataset names. The caller owns *arrival. */
rks_status rks_arrival_open(const rks_arrival_wish *wish, rks_arrival **arrival, bool *whole,
                            rks_error *err);
/* Keeps what has come. NULL is accepted. */
void rks_arrival_close(rks_arrival *arrival);

uint64_t rks_arrival_size(const rks_arrival *arrival); /* of NAME.rks */
rks_pieces *rks_arrival_pieces(const rks_arrival *arrival);
/* The head is what a reader needs before it reads any sample: the file's first two pages, the page
 * that names the shard, and all segments. Reads these bytes alone, checks them by the manifest, and
 * writes them to their places, without marks; parts that are larger than a request by pieces.
 * `room` has space for RKS_ARRIVAL_PIECES. Waits. One thread. */
rks_status rks_arrival_bring_head(rks_arrival *arrival, uint8_t *room, uint64_t *brought,
                                  rks_error *err);
/* Returns true once the head is here, in this process or by marks. */
bool rks_arrival_has_head(const rks_arrival *arrival);
/* Returns "DIRECTORY/NAME", for rks_shard_open_arriving. Free it with rks_free. */
char *rks_arrival_path(const rks_arrival *arrival, rks_error *err);

/* Brings pieces [first, first + count) that are not here, count at most RKS_ARRIVAL_PIECES: claimed
 * ones from the local file, if they are right, others from home. `room` has space for all of them.
 * *brought: the bytes that came from home. Waits. Any thread, but not two for one piece.
 * RKS_ERR_CORRUPT: home's bytes are not those of the sums, twice. */
rks_status rks_arrival_bring(rks_arrival *arrival, uint64_t first, uint64_t count, uint8_t *room,
                             uint64_t *brought, rks_error *err);
/* Read bytes of NAME.rks from home, and write checked ones to their place, without a mark. Who
 * believes them later looks at the count of doubts before the first of both calls. */
rks_status rks_arrival_read(rks_arrival *arrival, uint64_t first, uint64_t end, uint8_t *to,
                            rks_error *err);
rks_status rks_arrival_write(rks_arrival *arrival, uint64_t first, const uint8_t *bytes,
                             uint64_t size, rks_error *err);
/* Makes the arrived file a shard: syncs it, and seals it (base/pieces.h). If it cannot be synced,
 * that is a doubt, and the status is RKS_ERR_IO, or as the system says: its pieces are then checked
 * and written again before their next use, and records that came alone are asked for again.
 * RKS_ERR_IO also if another process has doubted meanwhile. */
rks_status rks_arrival_finish(rks_arrival *arrival, rks_error *err);

/* Looks, without home, at how much of a shard of `size` bytes lies in a directory: all of it, or
 * the pieces that have come. Removes marks that a killed process has left beside a whole shard. */
uint64_t rks_arrival_look(const char *directory, const char *name, rks_digest manifest,
                          uint64_t size);

#endif
