/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h: the ranks of a job, for the layers above. The public part (open, close, agree) is in
 * rankstore/group.h. Every collective message carries its call's number and phase. So ranks that
 * are in different calls get an error instead of waiting for each other. */
#ifndef RKS_GROUP_GROUP_H
#define RKS_GROUP_GROUP_H

#include "rankstore/group.h"
#include "transport/engine.h"

rks_engine *rks_group_engine(rks_group *group);

/* Finds the interface to other machines: that of the default route, else the only one that is
 * up. */
rks_status rks_interface_find(char name[32], rks_error *err);
/* Returns the number drawn when the group opened. It is the same on all ranks and identifies the
 * group; it is not secret. */
uint64_t rks_group_id(const rks_group *group);
const char *rks_group_host(const rks_group *group, uint32_t rank);
/* node_map.c. A rank's place is its index among the ranks of its node, in order of rank. */
uint32_t rks_group_node_of(const rks_group *group, uint32_t rank);
uint32_t rks_group_node_size(const rks_group *group, uint32_t node);
uint32_t rks_group_place_of(const rks_group *group, uint32_t rank);
uint32_t rks_group_at_place(const rks_group *group, uint32_t node, uint32_t place);
/* Returns the lowest rank of a node; its place is 0. */
uint32_t rks_group_leader(const rks_group *group, uint32_t node);
bool rks_group_is_leader(const rks_group *group);
/* The control tree. The group keeps and watches the connection of each edge. The root's parent is
 * -1. */
int64_t rks_group_parent(const rks_group *group);
const uint32_t *rks_group_children(const rks_group *group, uint32_t *count);
uint32_t rks_group_silence_ms(const rks_group *group);
uint32_t rks_group_patience_ms(const rks_group *group);
/* Returns true if all ranks are threads of this process. */
bool rks_group_is_threads(const rks_group *group);
/* Returns true if this rank encrypts what it sends (RKS_ENCRYPT=1). */
bool rks_group_encrypts(const rks_group *group);
const rks_bootstrap *rks_group_bootstrap(const rks_group *group);

/* Returns true if the group has failed, as when a rank is lost or leaves; every later collective
 * fails. Any thread. */
bool rks_group_failed(rks_group *group);
/* rks_group_must_stop, for those who ask a callback while they wait. `user` is the group. */
rks_status rks_group_hear(void *user, rks_error *err);
/* Writes the error of a failed group, which names the rank, and returns its status. The error also
 * names `phase`, the call that met the failure; the first such call stays named. May wait briefly
 * for the launcher. Any thread. */
rks_status rks_group_failure(rks_group *group, const char *phase, rks_error *err);

/* Sets the function that rks_group_close calls once, before anything else. A group has one; a later
 * call replaces it. */
void rks_group_on_close(rks_group *group, void (*closing)(rks_group *group));

/* COLLECTIVE. Each node's leader brings a descriptor, others -1. Every rank gets its own duplicate
 * of its node's descriptor, and closes it. Makes two agreements; agreement.h has the parts. */
rks_status rks_group_share_fd(rks_group *group, int fd, int *shared, rks_error *err);

/* How far this rank is with its work, and a description for the message of those that wait ("unit 3
 * of 17"). `work` NULL: the work is not counted in bytes. Copied, and sent about once a second. Any
 * thread. */
typedef struct rks_work {
    uint64_t done, total, samples;
} rks_work;
void rks_group_tell_progress(rks_group *group, const rks_work *work, const char *text);

/* Sets a function that the waiting thread calls about every 100 ms while this rank waits in a
 * collective call, and once when all ranks that it waited for have come. NULL ends the calls. */
void rks_group_on_wait(rks_group *group, void (*waiting)(void *user), void *user);

/* The MPI module (librankstore_mpi.so), loaded at run time: a bootstrap, and messages for the
 * exchange. It is beside the library, or where RKS_MPI_MODULE says. */
typedef struct rks_mpi_ops {
    uint32_t version; /* version of this struct */
    rks_status (*open)(rks_bootstrap *bootstrap, rks_error *err);
    /* Sends and receives between two ranks of the job, without blocking. Each starts a message and
     * returns a handle; `test` reports whether it is over. After a timeout a message is left as it
     * is; nothing is freed. */
    rks_status (*send)(uint32_t to, int tag, const void *bytes, size_t size, void **handle,
                       rks_error *err);
    rks_status (*receive)(uint32_t from, int tag, void *bytes, size_t size, void **handle,
                          rks_error *err);
    rks_status (*test)(void *handle, bool *done, rks_error *err); /* frees the handle when done */
    void (*abandon)(void);                    /* after a failure: leave without MPI_Finalize */
    void (*library)(char *text, size_t room); /* "Open MPI v4.1.4", also before `open` */
} rks_mpi_ops;
enum { RKS_MPI_OPS_VERSION = 2 };
/* The type of the module's one symbol, "rks_mpi_module". `interrupted` is the host's
 * rks_check_interrupt, since the module's own copy of base does not know the caller's callback. */
typedef const rks_mpi_ops *(*rks_mpi_module_fn)(rks_status (*interrupted)(rks_error *err));
/* Loads the module once. Returns NULL and fills *err if the module or MPI is missing or the module
 * has another version; later calls return the same. Any thread. */
const rks_mpi_ops *rks_mpi_load(rks_error *err);
/* Returns true if a launcher of Open MPI started this process. */
bool rks_mpi_detected(void);

/* Explains a failed fetch. A rank that ends with an error reports it to the group before it closes
 * its connections, but the report may take longer. Waits a moment for it, and then returns it
 * instead of RKS_ERR_PEER. Other errors are returned as they are. */
rks_status rks_group_explain(rks_group *group, rks_status status, rks_error *err);

/* Leaves the group's memory alone when it is closed: a thread that hangs in the storage may still
 * ask it who the ranks are. */
void rks_group_outlive(rks_group *group);

/* group_reference.c: a counted reference to a group, for objects that may outlive it. Any thread.
 * `user` is a link. */
typedef struct rks_group_link rks_group_link;
rks_group_link *rks_group_link_of(const rks_group *group); /* borrowed; hold it to keep it */
void rks_group_link_hold(void *user);
void rks_group_link_release(void *user);
/* Fails with the group's error, which names the rank, if the group is open and has failed. Returns
 * RKS_OK if it has not failed or is closed. `phase` names the caller's work, as in
 * rks_group_failure(). May wait briefly for the launcher. */
rks_status rks_group_link_ask(rks_group_link *link, const char *phase, rks_error *err);

#endif
