/* SPDX-License-Identifier: Apache-2.0
 *
 * group_state.h: the inside of a group, for the files of this folder.
 *
 * Control tree: a rank's parent is its node's leader, a leader's parent is rank 0. Edges are kept
 * connections, so silence and death are noticed by both ends. A collective gathers up the tree and
 * is sent down again; messages are cut into notes of at most 1 MiB.
 *
 * What a collective can need follows from its facts (agreement.h). A child may be in one before its
 * parent is, and no rank takes more than 1 MiB of it then: a larger contribution is announced, and
 * the parent lets it come once it is in that collective itself, if that can need as much.
 *
 *     child              parent
 *     UP: all of it ────►                       at most 1 MiB
 *     or UP: its size ──►
 *              ◄──────── GO
 *     REST ─────────────►                       as much as was announced
 *              ◄──────── DOWN: the result       what all ranks can bring */
#ifndef RKS_GROUP_GROUP_STATE_H
#define RKS_GROUP_GROUP_STATE_H

#include <pthread.h>

#include "base/buffer.h"
#include "group/agreement.h"

enum { PHASE_SIZE = 48, PROGRESS_SIZE = 96 };

/* Kinds of messages. UP, GO, REST and DOWN belong to a collective; the others come at any time. */
enum message_kind {
    MESSAGE_UP = 1,     /* a subtree's contribution, or its size */
    MESSAGE_DOWN = 2,   /* the result */
    MESSAGE_FAILED = 3, /* a group_error: the group is lost */
    MESSAGE_STOP = 4,   /* u64: the collective to which some rank brings an error */
    /* 5 was progress as a text only */
    MESSAGE_PROGRESS = 6, /* progress.c draws it */
    MESSAGE_LEAVING = 7,  /* no body: the sender makes no further collective call */
    MESSAGE_GO = 8,       /* u64 number of the collective: the REST may come */
    MESSAGE_REST = 9,     /* what an UP announced */
    MESSAGE_READING = 10, /* reading.c and reading_change.c draw these */
    MESSAGE_DOUBT = 11,
    MESSAGE_CHANGE = 12,
    MESSAGE_APART = 13,
};

typedef struct message {
    struct message *next;
    uint32_t from;
    uint32_t kind;
    rks_buffer body;
} message;

/* A message of which only some parts have arrived. */
typedef struct partial {
    uint32_t kind;
    uint64_t total, limit; /* limit: the most bytes that such a message may have */
    uint64_t skipped;      /* bytes dropped of a message that is too large */
    rks_buffer body;
} partial;

/* An error that is sent through the group. What concerns only the group is kept beside the user's
 * error, whose `reserved` stays zero. On the wire (group_failure.c): the error, then a word of
 * flags. */
typedef struct group_error {
    rks_error error; /* status RKS_OK: none */
    bool echo;       /* it only reports that another rank has failed; that rank's error counts */
    bool cut_off;    /* a connection broke: a launcher may know why */
    bool own_words;  /* the rank itself reported why it ends (rks_group_leave) */
    bool apart;      /* ranks read different batches (reading.c) */
} group_error;
enum { GROUP_ERROR_SIZE = sizeof(rks_error) + 8 };

/* What a rank reports of its work. */
typedef struct rank_progress {
    rks_work work;
    char text[PROGRESS_SIZE];
} rank_progress;

/* Where ranks of one machine can send each other a descriptor, best first. Containers may have only
 * some of them in common, or none. */
typedef enum rks_door {
    DOOR_TMPDIR,  /* a socket in TMPDIR */
    DOOR_TMP,     /* in /tmp */
    DOOR_NETWORK, /* a socket without a name in a directory: ranks of one network namespace */
    DOORS
} rks_door;

struct rks_group {
    rks_bootstrap bootstrap;
    uint32_t rank, size;
    uint64_t id;
    uint32_t silence_ms, patience_ms;
    bool encrypts;      /* this rank wants encryption: RKS_ENCRYPT=1 */
    rks_engine *engine; /* NULL if there is one rank */
    char (*hosts)[32];
    uint32_t *node_of;    /* by rank */
    uint32_t *leaders;    /* by node */
    uint32_t *by_node;    /* ranks in order of node and rank: node_map.c */
    uint32_t *node_begin; /* by node, and the end: where its ranks begin in by_node */
    uint32_t nodes;
    rks_door door;  /* through which this rank's node shares descriptors */
    int64_t parent; /* -1: the root */
    uint32_t *children;
    uint32_t *below; /* by child: ranks whose contributions its message holds, itself included */
    uint32_t child_count;

    rks_group_link *link;
    void (*closing)(rks_group *group); /* NULL: no function */
    void (*waiting)(void *user);       /* NULL: no function; called by the thread that makes
                                        * collective calls */
    void *waiting_user;

    pthread_mutex_t sending; /* held while the parts of one message are posted */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    message *inbox, **inbox_end; /* guarded by mutex */
    partial *partials;           /* by rank; engine thread only */
    uint64_t *granted;           /* by rank: bytes of the REST that it may send; guarded by mutex */
    uint64_t result_max;         /* bytes of the collective's DOWN; 0: none; guarded by mutex */
    bool asks;                   /* this rank has announced its size, and waits for GO; guarded by
                                  * mutex */
    bool *left;                  /* by rank; guarded by mutex */
    rank_progress *progress;     /* by rank; guarded by mutex */
    uint64_t told_progress_ms;   /* guarded by mutex */
    struct readings *readings;   /* reading.c; guarded by mutex */
    uint64_t explaining_ms;      /* since when errors wait for an explanation; guarded by mutex */
    bool outlives;               /* rks_group_outlive */
    rks_group *next;             /* of those that outlive their end */
    bool opened;                 /* rks_group_open has succeeded */
    bool failing;                /* the error is being sent to the neighbours; `failed` follows */
    bool failed;                 /* guarded by mutex */
    bool worded;                 /* `failure` has its whole text; guarded by mutex */
    group_error failure;         /* guarded by mutex */
    _Atomic uint64_t sequence;   /* of the next collective; raised under mutex */
    uint64_t
        stop; /* 1 + the highest collective to which some rank brings an error; guarded by mutex */

    /* The result of the last collective, for the thread that makes collective calls. */
    rks_buffer agreed;
    uint64_t agreed_in; /* its number */
    size_t *places;     /* by rank: where its facts begin in `agreed` */
};

/* collective.c: runs the collective of an agreement, without comparing values. */
rks_status rks_group_collect(rks_group *group, const char *phase, rks_status mine,
                             const rks_fact *facts, size_t count, rks_error *err);

/* agreement.c: returns the bytes of a rank's facts, a multiple of 8. */
size_t rks_facts_size(const rks_fact *facts, size_t count);
/* Returns the most bytes that the facts of so many ranks take together. */
uint64_t rks_facts_limit(const rks_fact *facts, size_t count, uint32_t ranks);
void rks_facts_encode(const rks_fact *facts, size_t count, uint8_t *bytes);
bool rks_facts_valid(const rks_fact *facts, size_t count, const uint8_t *bytes, uint64_t size);

/* descriptor_offer.c: finds this process's doors. Two ranks share a door if its entries are equal
 * and not 0. */
void rks_doors_look(const char *boot_id, uint64_t doors[DOORS]);

/* tree.c: finds this rank's parent and children. The nodes of all ranks must be known. */
rks_status rks_tree_plant(rks_group *group, rks_error *err);
/* node_map.c: fills by_node from node_of and leaders. */
rks_status rks_nodes_sort(rks_group *group, rks_error *err);

/* inbox.c */
void rks_inbox_on_note(void *group, uint32_t from, const uint8_t *body, size_t size);
rks_status rks_inbox_send(rks_group *group, uint32_t to, enum message_kind kind, const void *body,
                          size_t size, rks_error *err);
/* Most bytes of an UP message: a note. */
enum { RKS_UP_MAX = 1 << 20 };
/* Waits for the next message from `from` of one of `kinds`, a sum of bits 1 << MESSAGE_UP. The
 * caller frees it with rks_inbox_free. */
rks_status rks_inbox_wait(rks_group *group, uint32_t from, uint32_t kinds, const char *phase,
                          message **got, rks_error *err);
void rks_inbox_free(message *m);

/* progress.c: takes a neighbour's MESSAGE_PROGRESS. Malformed ones are ignored. */
void rks_group_take_progress(rks_group *group, const message *m);
/* Returns true if `from` may report for `rank`: itself, or a rank of the node that it leads. */
bool rks_group_may_tell(const rks_group *group, uint32_t from, uint32_t rank);

/* reading.c: takes messages of neighbours. Malformed ones are ignored. */
void rks_group_take_reading(rks_group *group, const message *m);
void rks_group_take_doubt(rks_group *group, const message *m);
void rks_group_take_apart(rks_group *group, const message *m);
/* Allocates and frees group->readings. */
rks_status rks_readings_create(rks_group *group, rks_error *err);
void rks_readings_free(rks_group *group);
/* reading_change.c: the same. */
void rks_group_take_change(rks_group *group, const message *m);
/* Call it now and then while this rank waits in a collective call. */
void rks_group_repeat_change(rks_group *group);

/* group_reference.c: opens and closes the group's own reference. */
rks_status rks_group_link_open(rks_group *group, rks_error *err);
void rks_group_link_end(rks_group *group);

/* group_failure.c */
void rks_group_on_lost(void *group, uint32_t peer, const rks_error *err);
/* Fails the group. The first error counts, and is sent to all. `except`: the rank that it came
 * from, or -1. */
void rks_group_fail(rks_group *group, const rks_error *err, int64_t except);
void rks_group_fail_with(rks_group *group, const group_error *err, int64_t except);
/* Sends a message to this rank's parent and children. */
void rks_group_tell_neighbours(rks_group *group, enum message_kind kind, const void *body,
                               size_t size, int64_t except);
/* Notes that a neighbour makes no further collective call. Messages that it sent before still
 * count. */
void rks_group_take_leaving(rks_group *group, uint32_t from);
/* Fails the group because a rank is waited for that has closed or left it. */
void rks_group_fail_left(rks_group *group, uint32_t rank);
/* Fails the group if this process is interrupted, or if the launcher has seen a rank end. */
void rks_group_look_around(rks_group *group);
/* Called before closing: reports to the others that this rank was interrupted. */
void rks_group_fail_interrupted(rks_group *group);
/* Reports through the tree that an error is coming in collective `sequence`. */
void rks_group_tell_stop(rks_group *group, uint64_t sequence, int64_t except);
/* Returns how long the report of a rank's end is waited for: a fifth of T, 1 to 5 s. */
uint32_t rks_group_words_ms(const rks_group *group);
/* Puts "rank R (host): " before the text. R is err->rank, or this rank if it has none. */
void rks_group_name_rank(const rks_group *group, rks_error *err);
/* Puts " during 'PHASE'" after the text of a lost or interrupted rank. */
void rks_group_name_phase(const char *phase, rks_error *err);
/* Writes and reads GROUP_ERROR_SIZE bytes. An error of another rank is not trusted: its text is
 * cleaned, an unknown status becomes RKS_ERR_PEER, and `reserved` becomes zero. */
void rks_group_error_encode(const group_error *err, uint8_t *bytes);
void rks_group_error_decode(const uint8_t *bytes, group_error *err);
/* Returns true if the error is the one from rks_group_must_stop, unchanged. */
bool rks_group_is_echo(const rks_error *err);

/* After a failure: MPI will not be finalized, if the module is loaded. */
void rks_mpi_abandon(void);

/* job_secret.c */
enum { RKS_SECRET_NONE = 0, RKS_SECRET_OF_FILE = 1, RKS_SECRET_OF_DIRECTORY = 2 };
typedef struct job_secret {
    uint32_t source;
    bool made; /* this rank made the file and removes it */
    char path[1024];
    uint8_t secret[RKS_SECRET_SIZE]; /* zero: none */
    uint8_t private_key[RKS_KEY_SIZE], public_key[RKS_KEY_SIZE];
} job_secret;
/* Call it before the ranks meet. `file`: from the options, or NULL. `session`: rank 0's; NULL on
 * other ranks. */
rks_status rks_job_secret_begin(job_secret *job, const char *file, const uint8_t *session,
                                rks_error *err);
/* Call it once rank 0's session is known. */
rks_status rks_job_secret_find(job_secret *job, const uint8_t session[16], rks_error *err);
/* Call it when all ranks have joined or failed, also after a begin that failed. */
void rks_job_secret_end(job_secret *job);
/* Returns the source as a text. */
const char *rks_job_secret_source(uint32_t source);

/* launchers */
rks_status rks_bootstrap_solo(rks_bootstrap *bootstrap);

#endif
