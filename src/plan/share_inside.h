/* SPDX-License-Identifier: Apache-2.0
 *
 * share_inside.h: the parts of share.h: the memory with its locks (share_area.c), the contents of a
 * place (share_image.c), and which rank makes and shows which epoch (share.c). */
#ifndef RKS_PLAN_SHARE_INSIDE_H
#define RKS_PLAN_SHARE_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "plan/packing.h"
#include "plan/share.h"
#include "plan/strategy.h"

/* ---- memory and locks: share_area.c ---------------------------------------------------------- */

/* Two places for epochs, one for what is known of all epochs (`facts`, and the groups of the
 * layout), and one for the digest of all lengths. */
enum { SHARE_EPOCHS = 2, SHARE_FACTS = 2, SHARE_DIGEST = 3, SHARE_PLACES = 4 };

enum rks_share_state {
    SHARE_EMPTY,
    SHARE_MAKING, /* its maker holds the write lock */
    SHARE_READY,  /* sealed; each rank that uses it holds a read lock */
    SHARE_FAILED  /* there is no such plan; `status` and `error` say why */
};

/* Identifies an epoch: its number, and a digest of what was done of it before a resume (0:
 * nothing). */
typedef struct rks_share_key {
    uint64_t epoch, rest;
} rks_share_key;

enum rks_share_part {
    SHARE_IDS,
    SHARE_SLOTS,
    SHARE_STARTS,
    SHARE_GROUPS,
    SHARE_PIECES,
    SHARE_PIECE_PLACES,
    SHARE_PARTS
};

/* The contents of a place, from its first byte on. The pointers in layout and pack are not
 * valid. */
typedef struct rks_share_image {
    uint64_t bytes;
    uint64_t at[SHARE_PARTS], count[SHARE_PARTS];
    rks_plan_layout layout;
    rks_pack pack;
    bool whole; /* its groups and bins are those of plan->in.whole */
    bool packed;
    bool slotted;
} rks_share_image;

typedef struct rks_share_facts {
    uint64_t fill_most, fill_least, window_most, window_least, window_all;
    uint64_t digest; /* only in place SHARE_DIGEST */
} rks_share_facts;

/* A place, in shared memory. `state` and what belongs to it change only under the control lock. */
typedef struct rks_share_place {
    atomic_uint turn; /* counts changes of state; a futex */
    enum rks_share_state state;
    rks_share_key key;
    uint64_t generation; /* counts the epochs that were made here */
    uint32_t maker;
    uint32_t spare; /* 1: if its maker dies, another rank takes over and the job goes on */
    _Atomic(uint64_t) progress; /* grows while its maker makes progress */
    rks_status status;
    rks_error error;
    bool rest_over; /* with SHARE_FAILED: the maker's plan->image.rest_over */
    rks_share_image image;
    rks_share_facts facts;
} rks_share_place;

typedef struct rks_share_control {
    uint64_t size; /* size of this struct, which differs in another build; 0 until the first rank
                    * comes */
    atomic_uint order;    /* counts holders of the control lock, so that each holder sees what the
                           * one before it wrote */
    atomic_bool off;      /* memory was short for an epoch: each rank makes its own */
    atomic_bool no_ahead; /* memory was short for the next epoch */
    bool has_dead;        /* a maker died: `dead`, in `dead_epoch` */
    uint32_t dead;
    uint64_t dead_epoch;
    rks_share_place places[SHARE_PLACES];
} rks_share_control;

typedef struct rks_share_area {
    rks_plan_share_options options; /* fd: this rank's own open file description, which owns its
                                     * locks */
    rks_share_control *control;
    bool deaf;  /* leaves interrupts to the next call */
    bool child; /* child of a rank: the job goes on if it ends */
    struct {
        void *map;
        uint64_t bytes;
    } maps[SHARE_EPOCHS]; /* for reading */
} rks_share_area;

/* Sets from how many samples on rks_plan_shares returns true; 0 restores the default. */
void rks_share_shared_from(uint64_t samples);
rks_status rks_share_area_open(const rks_plan_share_options *options, rks_share_area *area,
                               rks_error *err);
void rks_share_area_close(rks_share_area *area); /* accepts a zeroed area */
/* Opens another description of the same memory, with its own locks. The caller closes *own. */
rks_status rks_share_reopen(int fd, int *own, rks_error *err);

/* Takes and releases the control lock for the description `fd`. With `interrupted` false, no
 * interrupt ends the wait. RKS_ERR_TIMEOUT after the silence limit. */
rks_status rks_share_enter(const rks_share_area *area, int fd, bool interrupted, rks_error *err);
void rks_share_leave(const rks_share_area *area, int fd);
/* Sets a place's lock: F_RDLCK, F_WRLCK or F_UNLCK. Never waits; returns false if another holds
 * it. */
bool rks_share_lock(int fd, int place, short type);

enum rks_share_claim {
    SHARE_THERE, /* read-locked */
    SHARE_MAKE,  /* write-locked, SHARE_MAKING: the caller makes it, then calls settle */
    SHARE_NONE   /* the caller makes it alone */
};
/* Claims one of the places [first, first + count) for `key`. `waits` false: nobody needs it yet, so
 * *claim is SHARE_NONE if another rank is making it. If there is no such plan, returns the maker's
 * status and sets *rest_over. RKS_ERR_PEER if a maker died. RKS_ERR_TIMEOUT if a maker makes no
 * progress for the silence limit. */
rks_status rks_share_claim(const rks_share_area *area, int fd, rks_share_key key, int first,
                           int count, bool waits, enum rks_share_claim *claim, int *place,
                           bool *rest_over, rks_error *err);
/* Sets the state of a place that the maker is done with, and its lock to `lock` (F_RDLCK or
 * F_UNLCK). */
void rks_share_settle(const rks_share_area *area, int fd, int place, enum rks_share_state state,
                      short lock);

/* ---- what lies in a place: share_image.c ----------------------------------------------------- */

uint64_t rks_share_place_at(int place);

/* Where a maker's ids are: at the beginning of a place, mapped for writing. */
typedef struct rks_share_room {
    rks_epoch_room room;
    int fd;
    uint64_t at;
    uint64_t bytes; /* bytes that are mapped */
    bool lacks;     /* memory is short for more */
} rks_share_room;

/* What an epoch is made from, apart from the plan: a thread makes the next one meanwhile. */
typedef struct rks_share_maker {
    const rks_plan_input *in; /* the plan's */
    rks_epoch_progress progress;
} rks_share_maker;
/* Makes the epoch in a place that the caller has claimed through the description `fd`, and fills
 * the place's image. *lacks is true if memory is short. *rest_over: as in rks_epoch_image. */
rks_status rks_share_write(const rks_share_maker *maker, int fd, rks_share_place *place, int number,
                           uint64_t epoch, bool *lacks, bool *rest_over, rks_error *err);
/* Writes the layout of whole epochs into SHARE_FACTS, and reads it from there into the input, which
 * owns the result. */
rks_status rks_share_write_layout(const rks_plan_layout *whole, int fd, rks_share_image *image,
                                  rks_error *err);
rks_status rks_share_read_layout(rks_plan_input *in, int fd, const rks_share_image *image,
                                 rks_error *err);
void rks_share_unmap(rks_share_area *area, int number);
/* Makes the epoch in the place the plan's current epoch. The plan must have none. */
rks_status rks_share_take(const rks_plan_input *in, rks_epoch_image *image, rks_share_area *area,
                          int number, rks_plan_layout *layout, rks_pack *pack, rks_error *err);

/* ---- a plan's share: share.c ----------------------------------------------------------------- */

/* Opens plan->share. If sharing is not possible, it stays NULL, with a line on stderr. Fails only
 * with RKS_ERR_CANCELLED, RKS_ERR_TIMEOUT, RKS_ERR_PEER or RKS_ERR_MEMORY. */
rks_status rks_share_open(rks_plan *plan, const rks_plan_share_options *options, rks_error *err);
void rks_share_close(rks_plan *plan);
/* In a child after fork: opens its own locks, and drops the current epoch if its place has
 * changed. */
rks_status rks_share_check(rks_plan *plan, rks_error *err);
/* Makes the epoch current. *shown is false if this rank must make it alone. */
rks_status rks_share_show(rks_plan *plan, uint64_t epoch, bool *shown, rks_error *err);
bool rks_share_is_shown(const rks_plan *plan);
/* Returns true if one rank lays out epochs for all. Pack only with windows; otherwise each rank
 * lays out its own bins. */
static inline bool rks_share_lays_out(const rks_plan_config *config)
{
    return !config->strategy->packs || rks_plan_windows(config);
}
/* Does what rks_plan_lay_out does, by one rank for all. */
rks_status rks_share_lay_out(rks_plan *plan, rks_error *err);
/* Returns rks_checksum64 of the lengths, computed by one rank for all. */
uint64_t rks_share_digest(rks_plan *plan);

#endif
