/* SPDX-License-Identifier: Apache-2.0
 *
 * place_calls.c: a call has copies of all that its thread uses, and shares the dataset. */
#include "staging/place_calls.h"

#include "base/error.h"
#include "base/file_wait.h"
#include "base/memory.h"
#include "staging/adopt.h"

typedef struct place_call {
    const rks_group *group;
    char *local, *folder; /* as in the wish */
    char *home;           /* NULL: none, or not given */
    uint64_t room;
    bool shares;
    rks_dataset *dataset;
    rks_place_made made; /* out, as the next one */
    uint64_t *here;
} place_call;

static void free_call(void *state)
{
    place_call *call = state;
    rks_leases_end(call->made.lease);
    rks_free(call->made.directory);
    rks_free(call->here);
    rks_dataset_free(call->dataset);
    rks_free(call->local);
    rks_free(call->folder);
    rks_free(call->home);
    rks_free(call);
}

static rks_status copy_text(const char *text, char **copy, rks_error *err)
{
    *copy = text == NULL ? NULL : rks_strdup(text, err);
    return text != NULL && *copy == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

/* `dataset` may be NULL. */
static rks_status make_call(const rks_group *group, const rks_place_wish *wish,
                            const rks_dataset *dataset, place_call **made, rks_error *err)
{
    place_call *call = rks_alloc(1, sizeof(*call), err);
    if (call == NULL)
        return RKS_ERR_MEMORY;
    *call = (place_call){.group = group, .room = wish->room, .shares = wish->shares};
    if (dataset != NULL)
        call->dataset = rks_dataset_share(dataset);
    rks_status status = copy_text(wish->local, &call->local, err);
    if (status == RKS_OK)
        status = copy_text(wish->folder, &call->folder, err);
    if (status == RKS_OK)
        *made = call;
    else
        free_call(call);
    return status;
}

/* Ends a call that has come back. One that was left behind may still ask the group who it is. */
static void end_call(rks_group *group, place_call *call, bool left)
{
    if (left)
        rks_group_outlive(group);
    else
        free_call(call);
}

/* ---- looks ----------------------------------------------------------------------------------- */

static rks_status make_place(void *state, rks_error *err)
{
    place_call *call = state;
    rks_place_made *made = &call->made;
    rks_file_wait_at(call->local);
    rks_status status = rks_place_make(call->group, call->local, call->folder, call->room,
                                       &made->directory, &made->told, err);
    return status == RKS_OK && call->shares ? rks_lease_share(made->directory, &made->lease, err)
                                            : status;
}

rks_status rks_place_call_make(rks_group *group, const rks_place_wish *wish, rks_place_made *made,
                               rks_error *err)
{
    bool left = false;
    place_call *call = NULL;
    rks_status status = make_call(group, wish, NULL, &call, err);
    if (status != RKS_OK)
        return status;
    const rks_file_work work = {.run = make_place, .drop = free_call, .state = call};
    status = rks_file_wait(&work, rks_group_silence_ms(group), &left, err);
    if (status == RKS_OK) {
        *made = call->made;
        call->made = (rks_place_made){0};
    }
    end_call(group, call, left);
    return status;
}

static rks_status look_at_place(void *state, rks_error *err)
{
    place_call *call = state;
    char *directory = call->folder == NULL ? rks_strdup(call->local, err)
                                           : rks_format(err, "%s/%s", call->local, call->folder);
    if (directory == NULL)
        return RKS_ERR_MEMORY;
    rks_file_wait_at(call->local);
    if (call->folder != NULL)
        (void)rks_adopt_shards(call->local, call->folder, call->dataset);
    rks_place_look(directory, call->dataset, call->here);
    rks_free(directory);
    return RKS_OK;
}

rks_status rks_place_call_look(rks_group *group, const rks_place_wish *wish,
                               const rks_dataset *dataset, uint64_t **here, rks_error *err)
{
    bool left = false;
    place_call *call = NULL;
    rks_status status = make_call(group, wish, dataset, &call, err);
    if (status != RKS_OK)
        return status;
    call->here = rks_alloc(dataset->shard_count, sizeof(*call->here), err);
    status = call->here == NULL ? RKS_ERR_MEMORY : RKS_OK;
    const rks_file_work work = {.run = look_at_place, .drop = free_call, .state = call};
    if (status == RKS_OK)
        status = rks_file_wait(&work, rks_group_silence_ms(group), &left, err);
    if (status == RKS_OK) {
        *here = call->here;
        call->here = NULL;
    }
    end_call(group, call, left);
    return status;
}

/* ---- the description ------------------------------------------------------------------------- */

static rks_status describe_place(void *state, rks_error *err)
{
    place_call *call = state;
    rks_file_wait_at(call->local);
    return rks_place_describe(call->local, call->home, call->dataset, err);
}

rks_status rks_place_call_describe(rks_group *group, const rks_home_limits *limits,
                                   const char *directory, const char *home,
                                   const rks_dataset *dataset, rks_error *err)
{
    bool left = false;
    place_call *call = NULL;
    const rks_place_wish wish = {.local = directory};
    rks_home_limits heard = *limits;
    rks_status status = make_call(group, &wish, dataset, &call, err);
    if (status != RKS_OK)
        return status;
    status = copy_text(home, &call->home, err);
    const rks_file_work work = {.run = describe_place, .drop = free_call, .state = call};
    heard.must_stop = rks_group_hear;
    heard.user = group;
    rks_home_limits_fill(&heard);
    heard.timeout_ms = heard.hang_ms;
    if (status == RKS_OK)
        status = rks_home_wait(&heard, directory, &work, &left, err);
    end_call(group, call, left);
    return status;
}
