/* SPDX-License-Identifier: Apache-2.0
 *
 * group_reference.c: a counted reference to a group, for objects that may outlive it, such as a
 * plan. */
#include <stdatomic.h>

#include "base/error.h"
#include "base/memory.h"
#include "group/group_state.h"

struct rks_group_link {
    atomic_uint references; /* one of them is the group's */
    pthread_mutex_t mutex;
    rks_group *group; /* NULL once the group is closed; guarded by mutex */
};

rks_status rks_group_link_open(rks_group *group, rks_error *err)
{
    rks_group_link *link = rks_alloc(1, sizeof(*link), err);
    if (link == NULL)
        return RKS_ERR_MEMORY;
    atomic_init(&link->references, 1);
    pthread_mutex_init(&link->mutex, NULL);
    link->group = group;
    group->link = link;
    return RKS_OK;
}

void rks_group_link_end(rks_group *group)
{
    rks_group_link *link = group->link;
    if (link == NULL)
        return;
    pthread_mutex_lock(&link->mutex);
    link->group = NULL;
    pthread_mutex_unlock(&link->mutex);
    group->link = NULL;
    rks_group_link_release(link);
}

rks_group_link *rks_group_link_of(const rks_group *group)
{
    return group->link;
}

void rks_group_link_hold(void *user)
{
    rks_group_link *link = user;
    atomic_fetch_add(&link->references, 1);
}

void rks_group_link_release(void *user)
{
    rks_group_link *link = user;
    if (atomic_fetch_sub(&link->references, 1) != 1)
        return;
    pthread_mutex_destroy(&link->mutex);
    rks_free(link);
}

rks_status rks_group_link_ask(rks_group_link *link, const char *phase, rks_error *err)
{
    rks_status status = RKS_OK;
    pthread_mutex_lock(&link->mutex);
    if (link->group != NULL && rks_group_failed(link->group))
        status = rks_group_failure(link->group, phase, err);
    pthread_mutex_unlock(&link->mutex);
    return status;
}
