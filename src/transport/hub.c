/* SPDX-License-Identifier: Apache-2.0
 *
 * hub.c: a list of engines behind one mutex. */
#include "transport/hub.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

typedef struct member {
    struct member *next;
    uint64_t id;
    rks_hub_incoming_fn incoming;
    void *user;
} member;

struct rks_hub {
    pthread_mutex_t mutex;
    member *members;  /* guarded by mutex */
    uint64_t last_id; /* guarded by mutex */
};

rks_status rks_hub_create(rks_hub **hub, rks_error *err)
{
    rks_hub *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    int error = pthread_mutex_init(&made->mutex, NULL);
    if (error != 0) {
        rks_free(made);
        return rks_fail_errno(err, error, "hub");
    }
    *hub = made;
    return RKS_OK;
}

void rks_hub_free(rks_hub *hub)
{
    if (hub == NULL)
        return;
    while (hub->members != NULL) {
        member *first = hub->members;
        hub->members = first->next;
        rks_free(first);
    }
    pthread_mutex_destroy(&hub->mutex);
    rks_free(hub);
}

rks_status rks_hub_register(rks_hub *hub, rks_hub_incoming_fn incoming, void *user, uint64_t *id,
                            rks_error *err)
{
    member *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->incoming = incoming;
    made->user = user;
    pthread_mutex_lock(&hub->mutex);
    made->id = ++hub->last_id;
    made->next = hub->members;
    hub->members = made;
    *id = made->id;
    pthread_mutex_unlock(&hub->mutex);
    return RKS_OK;
}

void rks_hub_unregister(rks_hub *hub, uint64_t id)
{
    pthread_mutex_lock(&hub->mutex);
    member **link = &hub->members;
    while (*link != NULL && (*link)->id != id)
        link = &(*link)->next;
    member *found = *link;
    if (found != NULL)
        *link = found->next;
    pthread_mutex_unlock(&hub->mutex);
    rks_free(found);
}

int rks_hub_connect(rks_hub *hub, uint64_t id, int *fd)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return errno;
    bool taken = false;
    pthread_mutex_lock(&hub->mutex);
    for (member *m = hub->members; m != NULL && !taken; m = m->next)
        if (m->id == id)
            taken = m->incoming(m->user, pair[1]);
    pthread_mutex_unlock(&hub->mutex);
    if (!taken) {
        close(pair[0]);
        close(pair[1]);
        return ECONNREFUSED;
    }
    *fd = pair[0];
    return 0;
}
