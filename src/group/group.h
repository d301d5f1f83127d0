/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h: the ranks of a job, for the layers above. The public part (open, close, agree) is
 * in rankstore.h. A collective carries its number and phase, so that ranks in different calls find
 * out instead of waiting for each other. */
#ifndef RKS_GROUP_GROUP_H
#define RKS_GROUP_GROUP_H

#include "rankstore/group.h"
#include "transport/engine.h"

rks_engine *rks_group_engine(rks_group *group);
/* Drawn when the group was opened: the same on all ranks, and no other group's. No secret. */
uint64_t rks_group_id(const rks_group *group);
const char *rks_group_host(const rks_group *group, uint32_t rank);
/* nodes.c. A rank's place is its number among the ranks of its node, in order of rank. */
uint32_t rks_group_node_of(const rks_group *group, uint32_t rank);
uint32_t rks_group_node_size(const rks_group *group, uint32_t node);
uint32_t rks_group_place_of(const rks_group *group, uint32_t rank);
uint32_t rks_group_at_place(const rks_group *group, uint32_t node, uint32_t place);
/* The lowest rank of a node: it has place 0. */
uint32_t rks_group_leader(const rks_group *group, uint32_t node);
bool rks_group_is_leader(const rks_group *group);
/* The control tree, whose edges are connections that are kept and watched. The root's parent is -1. */
int64_t rks_group_parent(const rks_group *group);
const uint32_t *rks_group_children(const rks_group *group, uint32_t *count);
uint32_t rks_group_silence_ms(const rks_group *group);
/* All ranks are threads of this process. */
bool rks_group_is_threads(const rks_group *group);
/* This rank encrypts what it sends: RKS_ENCRYPT=1. */
bool rks_group_encrypts(const rks_group *group);
const rks_bootstrap *rks_group_bootstrap(const rks_group *group);

/* A rank was lost or left: every collective from now on fails. Any thread. */
bool rks_group_failed(rks_group *group);
/* Of a failed group: its error in full words, which names the rank. `phase`: the call that meets it; the
 * first one that does stays named. May wait a moment for the launcher. Any thread. */
rks_status rks_group_failure(rks_group *group, const char *phase, rks_error *err);

/* Called once by rks_group_close, first; one function a group, the last one counts. */
void rks_group_on_close(rks_group *group, void (*closing)(rks_group *group));

/* COLLECTIVE. The same `size` bytes from `root` on all ranks, in place. RKS_ERR_ARGUMENT: no such rank. */
rks_status rks_group_broadcast(rks_group *group, const char *phase, uint32_t root, void *bytes,
                               size_t size, rks_error *err);

/* COLLECTIVE. Each node's leader brings a descriptor (others -1); every rank gets its own duplicate
 * of its node's, to be closed by the caller. Two agreements of its own: agreement.h has the parts. */
rks_status rks_group_share_fd(rks_group *group, int fd, int *shared, rks_error *err);

/* How far this rank is with its work, and in words, for the waiters' message ("unit 3 of 17").
 * `work` NULL: nothing that is counted in bytes. Copied; sent about once a second; any thread. */
typedef struct rks_work {
    uint64_t done, total, samples;
} rks_work;
void rks_group_tell_progress(rks_group *group, const rks_work *work, const char *text);

/* `waiting` is called about each 100 ms while this rank waits in a collective call, and once when
 * all that it waited for have come, by its thread; NULL: no more. */
void rks_group_on_wait(rks_group *group, void (*waiting)(void *user), void *user);

/* The MPI module (librankstore_mpi.so), loaded at run time: a bootstrap, and the exchange's
 * messages. Lies beside the library, or where RKS_MPI_MODULE says. */
typedef struct rks_mpi_ops {
    uint32_t version; /* of this struct */
    rks_status (*open)(rks_bootstrap *bootstrap, rks_error *err);
    /* Point to point among ranks of the job, never blocking. Each starts a message and gives a
     * handle; test says whether it is over. A message after a timeout is left alone (nothing is
     * freed). */
    rks_status (*send)(uint32_t to, int tag, const void *bytes, size_t size, void **handle,
                       rks_error *err);
    rks_status (*receive)(uint32_t from, int tag, void *bytes, size_t size, void **handle,
                          rks_error *err);
    rks_status (*test)(void *handle, bool *done, rks_error *err); /* frees the handle when done */
    void (*abandon)(void);                    /* after a failure: leave without MPI_Finalize */
    void (*library)(char *text, size_t room); /* "Open MPI v4.1.4", also before `open` */
} rks_mpi_ops;
enum { RKS_MPI_OPS_VERSION = 2 };
/* The module's one symbol, "rks_mpi_module". `interrupted` is the host's rks_check_interrupt: the
 * module's own copy of base knows nothing of the caller's callback. */
typedef const rks_mpi_ops *(*rks_mpi_module_fn)(rks_status (*interrupted)(rks_error *err));
/* NULL with *err filled where the module or MPI is missing. The same for all calls. */
const rks_mpi_ops *rks_mpi_load(rks_error *err);
/* A launcher of Open MPI has started this process. */
bool rks_mpi_detected(void);

/* Of a failed fetch: a rank that ends of an error tells the group so before it closes its connections,
 * and another way may be longer. Waits a moment for its word, which takes the error's place. Only of
 * RKS_ERR_PEER; returns the error's status. */
rks_status rks_group_explain(rks_group *group, rks_status status, rks_error *err);

/* link.c: the way to a group for what may outlive it. Any thread. `user` is a link. */
typedef struct rks_group_link rks_group_link;
rks_group_link *rks_group_link_of(const rks_group *group); /* the group's; hold it to keep it */
void rks_group_link_hold(void *user);
void rks_group_link_release(void *user);
/* The group's error if it has failed, which names the rank; RKS_OK also where it is closed. `phase`: what
 * the caller is in, as in a collective call. May wait a moment for the launcher. */
rks_status rks_group_link_ask(rks_group_link *link, const char *phase, rks_error *err);

#endif
