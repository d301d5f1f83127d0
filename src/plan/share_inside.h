/* SPDX-License-Identifier: Apache-2.0
 *
 * share_inside.h: the parts of share.h: the memory with its locks (share_area.c), what lies in a
 * place (share_image.c), and who makes and shows what (share.c). */
#ifndef RKS_PLAN_SHARE_INSIDE_H
#define RKS_PLAN_SHARE_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "plan/packing.h"
#include "plan/share.h"

/* ---- memory and locks: share_area.c ---------------------------------------------------------- */

/* Two places for epochs, one for what is known of all epochs (`facts`, and the groups of the layout),
 * and one for the digest of all lengths. */
enum { SHARE_EPOCHS = 2, SHARE_FACTS = 2, SHARE_DIGEST = 3, SHARE_PLACES = 4 };

enum rks_share_state {
    SHARE_EMPTY,
    SHARE_MAKING, /* its maker holds the write lock */
    SHARE_READY,  /* sealed; who has it at hand holds a read lock */
    SHARE_FAILED  /* there is no such plan: `status` and `error` */
};

/* Which epoch: by number, and by what was done of it before a resume (0: nothing). */
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

/* What lies in a place, from the place's first byte on. Pointers in layout and pack mean nothing. */
typedef struct rks_share_image {
    uint64_t bytes;
    uint64_t at[SHARE_PARTS], count[SHARE_PARTS];
    rks_plan_layout layout;
    rks_pack pack;
    bool whole; /* its groups and bins are those of plan->whole */
    bool packed;
    bool slotted;
} rks_share_image;

typedef struct rks_share_facts {
    uint64_t fill_most, fill_least, window_most, window_least, window_all;
    uint64_t digest; /* of SHARE_DIGEST */
} rks_share_facts;

/* In shared memory. `state` and what belongs to it change under the control lock. */
typedef struct rks_share_place {
    atomic_uint turn; /* counts changes of state; a futex */
    enum rks_share_state state;
    rks_share_key key;
    uint64_t generation; /* counts epochs that were made here */
    uint32_t maker;
    uint32_t spare; /* 1: the job goes on without its maker, and another rank takes its place */
    _Atomic(uint64_t) progress; /* its maker goes on */
    rks_status status;
    rks_error error;
    bool rest_over; /* with SHARE_FAILED: plan->rest_over */
    rks_share_image image;
    rks_share_facts facts;
} rks_share_place;

typedef struct rks_share_control {
    uint64_t size; /* of this struct: another build's is left alone. 0: nobody was here yet */
    atomic_uint order;     /* counts holders of the control lock: what one has written, the next
                            * one sees */
    atomic_bool off;       /* memory lacked for an epoch: each rank has its own */
    atomic_bool no_ahead;  /* memory lacked for the next one */
    bool has_dead;  /* a maker died: */
    uint32_t dead;
    uint64_t dead_epoch;
    rks_share_place places[SHARE_PLACES];
} rks_share_control;

typedef struct rks_share_area {
    rks_plan_share_options options; /* fd: this rank's own description, which its locks belong to */
    rks_share_control *control;
    bool deaf;  /* interrupts are for the next call */
    bool child; /* of a rank: it may end and the job goes on */
    struct {
        void *map;
        uint64_t bytes;
    } maps[SHARE_EPOCHS]; /* for reading */
} rks_share_area;

/* rks_plan_shares from so many samples on; 0: the default. */
void rks_share_shared_from(uint64_t samples);
rks_status rks_share_area_open(const rks_plan_share_options *options, rks_share_area *area,
                               rks_error *err);
void rks_share_area_close(rks_share_area *area); /* also one that is zero */
/* Another description of the same memory: locks of its own. */
rks_status rks_share_reopen(int fd, int *own, rks_error *err);

/* The control lock, by the description `fd`. With `patient` false it is not interrupted. */
rks_status rks_share_enter(const rks_share_area *area, int fd, bool interrupted, rks_error *err);
void rks_share_leave(const rks_share_area *area, int fd);
/* A place's lock: F_RDLCK, F_WRLCK, F_UNLCK. Never waits. */
bool rks_share_lock(int fd, int place, short type);

enum rks_share_claim {
    SHARE_THERE, /* read-locked */
    SHARE_MAKE,  /* write-locked, SHARE_MAKING: the caller makes it, and settles it */
    SHARE_NONE   /* make it alone */
};
/* Places [first, first + count). `waits` false: nobody needs it yet, so SHARE_NONE if another one
 * makes it. Returns the maker's status if there is no such plan; *rest_over then, too. */
rks_status rks_share_claim(const rks_share_area *area, int fd, rks_share_key key, int first,
                           int count, bool waits, enum rks_share_claim *claim, int *place,
                           bool *rest_over, rks_error *err);
/* The maker's last word; then its lock is `lock` (F_RDLCK or F_UNLCK). */
void rks_share_settle(const rks_share_area *area, int fd, int place, enum rks_share_state state,
                      short lock);

/* ---- what lies in a place: share_image.c ------------------------------------------------------ */

uint64_t rks_share_place_at(int place);

/* Where a maker's ids lie: at the beginning of a place, mapped for writing. */
typedef struct rks_share_room {
    int fd;
    uint64_t at;
    uint64_t bytes; /* that are mapped */
    bool lacks;     /* memory for more */
} rks_share_room;
rks_status rks_share_grow_ids(rks_plan *plan, uint64_t count, rks_error *err);
/* The maker goes on with ids in memory of its own: it has none now. */
void rks_share_leave_room(rks_plan *plan);

/* Makes the epoch in a place that the caller has claimed, by the description `fd`; fills the place's
 * image. `maker`: a copy of the plan, whose epoch is gone afterwards. *lacks: memory for it. */
rks_status rks_share_write(rks_plan *maker, int fd, rks_share_place *place, int number,
                           uint64_t epoch, bool *lacks, rks_error *err);
/* plan->whole of a copy that has laid it out, into SHARE_FACTS; and from there, as the plan's own. */
rks_status rks_share_write_layout(const rks_plan *maker, int fd, rks_share_image *image,
                                  rks_error *err);
rks_status rks_share_read_layout(rks_plan *plan, int fd, const rks_share_image *image,
                                 rks_error *err);
/* A copy of the plan that makes an epoch apart from it: without epoch, and without share. */
void rks_share_copy(const rks_plan *plan, rks_plan *maker);
void rks_share_unmap(rks_share_area *area, int number);
/* Makes what lies there the plan's epoch at hand; the plan has none. */
rks_status rks_share_take(rks_plan *plan, rks_share_area *area, int number, rks_plan_layout *layout,
                          rks_pack *pack, rks_error *err);

/* ---- a plan's share: share.c ------------------------------------------------------------------ */

/* Opens plan->share; stays NULL, with a line on stderr, where that cannot be. */
rks_status rks_share_open(rks_plan *plan, const rks_plan_share_options *options, rks_error *err);
void rks_share_close(rks_plan *plan);
/* In a child after fork: locks of its own, and is what was at hand still there? */
rks_status rks_share_check(rks_plan *plan, rks_error *err);
/* Makes the epoch the one at hand; *shown false: this rank has to make it alone. */
rks_status rks_share_show(rks_plan *plan, uint64_t epoch, bool *shown, rks_error *err);
bool rks_share_is_shown(const rks_plan *plan);
/* rks_plan_lay_out, by one rank for all; of pack with windows alone: bins are each rank's own. */
rks_status rks_share_lay_out(rks_plan *plan, rks_error *err);
/* rks_checksum64 of the lengths, by one rank for all. */
uint64_t rks_share_digest(rks_plan *plan);

#endif
