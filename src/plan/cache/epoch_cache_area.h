/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_cache_area.h: the parts of epoch_cache.h: the memory with its locks (epoch_cache_area.c),
 * the contents of a place (epoch_cache_image.c), and which rank makes and shows which epoch
 * (epoch_cache.c). */
#ifndef RKS_PLAN_CACHE_EPOCH_CACHE_AREA_H
#define RKS_PLAN_CACHE_EPOCH_CACHE_AREA_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "plan/pack/packing.h"
#include "plan/cache/epoch_cache.h"

/* ---- memory and locks: epoch_cache_area.c
 * ---------------------------------------------------------- */

/* Two places for epochs, one for what is known of all epochs (`facts`, and the groups of the
 * layout), and one for the digest of all lengths. */
enum { CACHE_EPOCHS = 2, CACHE_FACTS = 2, CACHE_DIGEST = 3, CACHE_PLACES = 4 };

enum rks_cache_state {
    CACHE_EMPTY,
    CACHE_MAKING, /* its maker holds the write lock */
    CACHE_READY,  /* sealed; each rank that uses it holds a read lock */
    CACHE_FAILED  /* there is no such plan; `status` and `error` say why */
};

/* Identifies an epoch: its number, and a digest of what was done of it before a resume (0:
 * nothing). */
typedef struct rks_cache_key {
    uint64_t epoch, rest;
} rks_cache_key;

enum rks_cache_part {
    CACHE_IDS,
    CACHE_SLOTS,
    CACHE_STARTS,
    CACHE_GROUPS,
    CACHE_PIECES,
    CACHE_PIECE_PLACES,
    CACHE_PARTS
};

/* The contents of a place, from its first byte on. The pointers in layout and pack are not
 * valid. */
typedef struct rks_cache_image {
    uint64_t bytes;
    uint64_t at[CACHE_PARTS], count[CACHE_PARTS];
    rks_plan_layout layout;
    rks_pack pack;
    bool whole; /* its groups and bins are those of in->whole */
    bool packed;
    bool slotted;
} rks_cache_image;

typedef struct rks_cache_facts {
    uint64_t fill_most, fill_least, window_most, window_least, window_all;
    uint64_t digest; /* only in place CACHE_DIGEST */
} rks_cache_facts;

/* A place, in shared memory. `state` and what belongs to it change only under the control lock. */
typedef struct rks_cache_place {
    atomic_uint turn; /* counts changes of state; a futex */
    enum rks_cache_state state;
    rks_cache_key key;
    uint64_t generation; /* counts the epochs that were made here */
    uint32_t maker;
    uint32_t spare; /* 1: if its maker dies, another rank takes over and the job goes on */
    _Atomic(uint64_t) progress; /* grows while its maker makes progress */
    rks_status status;
    rks_error error;
    bool rest_over; /* with CACHE_FAILED: the maker's image->rest_over */
    rks_cache_image image;
    rks_cache_facts facts;
} rks_cache_place;

typedef struct rks_cache_control {
    uint64_t size; /* size of this struct, which differs in another build; 0 until the first rank
                    * comes */
    atomic_uint order;    /* counts holders of the control lock, so that each holder sees what the
                           * one before it wrote */
    atomic_bool off;      /* memory was short for an epoch: each rank makes its own */
    atomic_bool no_ahead; /* memory was short for the next epoch */
    bool has_dead;        /* a maker died: `dead`, in `dead_epoch` */
    uint32_t dead;
    uint64_t dead_epoch;
    rks_cache_place places[CACHE_PLACES];
} rks_cache_control;

typedef struct rks_cache_area {
    rks_plan_share_options options; /* fd: this rank's own open file description, which owns its
                                     * locks */
    rks_cache_control *control;
    bool deaf;  /* leaves interrupts to the next call */
    bool child; /* child of a rank: the job goes on if it ends */
    struct {
        void *map;
        uint64_t bytes;
    } maps[CACHE_EPOCHS]; /* for reading */
} rks_cache_area;

/* Sets from how many samples on rks_plan_shares returns true; 0 restores the default. */
void rks_cache_shared_from(uint64_t samples);
rks_status rks_cache_area_open(const rks_plan_share_options *options, rks_cache_area *area,
                               rks_error *err);
void rks_cache_area_close(rks_cache_area *area); /* accepts a zeroed area */
/* Opens another description of the same memory, with its own locks. The caller closes *own. */
rks_status rks_cache_reopen(int fd, int *own, rks_error *err);

/* Takes and releases the control lock for the description `fd`. With `interrupted` false, no
 * interrupt ends the wait. RKS_ERR_TIMEOUT after the silence limit. */
rks_status rks_cache_enter(const rks_cache_area *area, int fd, bool interrupted, rks_error *err);
void rks_cache_leave(const rks_cache_area *area, int fd);
/* Sets a place's lock: F_RDLCK, F_WRLCK or F_UNLCK. Never waits; returns false if another holds
 * it. */
bool rks_cache_lock(int fd, int place, short type);

enum rks_cache_claim {
    CACHE_THERE, /* read-locked */
    CACHE_MAKE,  /* write-locked, CACHE_MAKING: the caller makes it, then calls settle */
    CACHE_NONE   /* the caller makes it alone */
};
/* One of the places [first, first + count) for `key`. */
typedef struct rks_cache_want {
    rks_cache_key key;
    int first, count;
    bool waits; /* false: nobody needs it yet, so CACHE_NONE if another rank is making it */
} rks_cache_want;

typedef struct rks_cache_claimed {
    enum rks_cache_claim how;
    int place;      /* not with CACHE_NONE */
    bool rest_over; /* the maker's image->rest_over, if it failed */
} rks_cache_claimed;

/* Claims a place. If there is no such plan, returns the maker's status and sets
 * claimed->rest_over. RKS_ERR_PEER if a maker died. RKS_ERR_TIMEOUT if a maker makes no progress
 * for the silence limit. */
rks_status rks_cache_claim(const rks_cache_area *area, int fd, const rks_cache_want *want,
                           rks_cache_claimed *claimed, rks_error *err);
/* Sets the state of a place that the maker is done with, and its lock to `lock` (F_RDLCK or
 * F_UNLCK). */
void rks_cache_settle(const rks_cache_area *area, int fd, int place, enum rks_cache_state state,
                      short lock);

/* ---- what lies in a place: epoch_cache_image.c
 * ----------------------------------------------------- */

uint64_t rks_cache_place_at(int place);

/* Where a maker's ids are: at the beginning of a place, mapped for writing. */
typedef struct rks_cache_room {
    rks_epoch_room room;
    int fd;
    uint64_t at;
    uint64_t bytes; /* bytes that are mapped */
    bool lacks;     /* memory is short for more */
} rks_cache_room;

/* What an epoch is made from, apart from the plan: a thread makes the next one meanwhile. */
typedef struct rks_cache_maker {
    const rks_plan_input *in; /* the plan's */
    rks_epoch_progress progress;
} rks_cache_maker;
/* Makes the epoch in a place that the caller has claimed through the description `fd`, and fills
 * the place's image. *lacks is true if memory is short. *rest_over: as in rks_epoch_image. */
rks_status rks_cache_write(const rks_cache_maker *maker, int fd, rks_cache_place *place, int number,
                           uint64_t epoch, bool *lacks, bool *rest_over, rks_error *err);
/* Writes the layout of whole epochs into CACHE_FACTS, and reads it from there into the input, which
 * owns the result. */
rks_status rks_cache_write_layout(const rks_plan_layout *whole, int fd, rks_cache_image *image,
                                  rks_error *err);
rks_status rks_cache_read_layout(rks_plan_input *in, int fd, const rks_cache_image *image,
                                 rks_error *err);
void rks_cache_unmap(rks_cache_area *area, int number);
/* Makes the epoch in the place the plan's current epoch. The plan must have none. */
rks_status rks_cache_map(const rks_plan_input *in, rks_epoch_image *image, rks_cache_area *area,
                         int number, rks_plan_layout *layout, rks_pack *pack, rks_error *err);

/* ---- a plan's share: epoch_cache.c
 * ----------------------------------------------------------------- */

/* Opens plan->cache. If sharing is not possible, it stays NULL, with a line on stderr. Fails only
 * with RKS_ERR_CANCELLED, RKS_ERR_TIMEOUT, RKS_ERR_PEER or RKS_ERR_MEMORY. */
rks_status rks_cache_open(rks_plan *plan, const rks_plan_share_options *options, rks_error *err);
void rks_cache_close(rks_plan *plan);
/* In a child after fork: opens its own locks, and drops the current epoch if its place has
 * changed. */
rks_status rks_cache_check(rks_plan *plan, rks_error *err);
/* Makes the epoch current. *shown is false if this rank must make it alone. */
rks_status rks_cache_show(rks_plan *plan, uint64_t epoch, bool *shown, rks_error *err);
bool rks_epoch_cache_is_mapped(const rks_plan *plan);
/* Does what rks_plan_lay_out does, by one rank for all. */
rks_status rks_cache_lay_out(rks_plan *plan, rks_error *err);
/* Returns rks_checksum64 of the lengths, computed by one rank for all. */
uint64_t rks_cache_digest(rks_plan *plan);

#endif
