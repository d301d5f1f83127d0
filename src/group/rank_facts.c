/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_facts.c: makes the facts of this rank, compares those of all, and finds the nodes in them.
 */
#include "group/rank_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/boot_id.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

/* Names this running of the machine; without /proc, the host. */
static void name_boot(char text[RKS_BOOT_ID])
{
    if (rks_boot_id(text))
        return;
    if (gethostname(text, RKS_BOOT_ID - 1) != 0)
        snprintf(text, RKS_BOOT_ID, "unknown");
    text[RKS_BOOT_ID - 1] = '\0';
}

rks_status rks_rank_facts_own(const rks_group_options *options, uint32_t rank, bool several,
                              rks_rank_facts *mine, job_secret *job, rks_error *err)
{
    char boot[RKS_BOOT_ID];
    struct stat space = {0};
    name_boot(boot);
    stat("/proc/self/ns/net", &space);
    snprintf(mine->version, sizeof(mine->version), "%s", rks_version());
    gethostname(mine->host, sizeof(mine->host) - 1);
    const char *node = options->node != NULL ? options->node : getenv("RKS_NODE");
    snprintf(mine->node, sizeof(mine->node), "%s", node != NULL ? node : boot);
    rks_doors_look(boot, mine->doors);
    mine->network[0] = rks_checksum64(boot, strlen(boot));
    mine->network[1] = space.st_ino;
    mine->silence_ms = options->silence_ms;
    rks_status status = RKS_OK;
    if (rank == 0)
        status = rks_random(mine->session, sizeof(mine->session), err);
    if (status == RKS_OK)
        status = rks_job_secret_begin(job, options->secret_file,
                                      rank == 0 && several ? mine->session : NULL, err);
    mine->secret_source = job->source;
    memcpy(mine->public_key, job->public_key, sizeof(mine->public_key));
    return status;
}

void rks_rank_facts_end_texts(rks_rank_facts *theirs)
{
    theirs->version[sizeof(theirs->version) - 1] = '\0';
    theirs->host[sizeof(theirs->host) - 1] = '\0';
    theirs->node[sizeof(theirs->node) - 1] = '\0';
    rks_text_clean(theirs->version);
}

/* ---- comparing -------------------------------------------------------------------------- */

static rks_status differ(const char *field, uint32_t rank, const char *theirs, const char *mine,
                         rks_error *err)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s differs: rank 0 has %s, rank %u has %s", field,
                    mine, rank, theirs);
}

static rks_status compare_versions(const rks_rank_facts *all, uint32_t size, rks_error *err)
{
    for (uint32_t rank = 1; rank < size; rank++)
        if (strncmp(all[0].version, all[rank].version, sizeof(all->version)) != 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "the library's version differs: rank 0 has %s, rank %u has %s; install "
                            "the same one on all ranks",
                            all[0].version, rank, all[rank].version);
    return RKS_OK;
}

rks_status rks_rank_facts_compare(const rks_rank_facts *all, uint32_t size, rks_error *err)
{
    rks_status status = compare_versions(all, size, err);
    if (status != RKS_OK)
        return status;
    for (uint32_t rank = 0; rank < size; rank++)
        if (all[rank].error.status != RKS_OK) {
            rks_error theirs = all[rank].error;
            rks_error_sanitize(&theirs);
            if (err != NULL)
                *err = theirs;
            return theirs.status;
        }
    for (uint32_t rank = 1; rank < size; rank++) {
        char one[16], other[16];
        snprintf(one, sizeof(one), "%u ms", all[0].silence_ms);
        snprintf(other, sizeof(other), "%u ms", all[rank].silence_ms);
        if (all[0].silence_ms != all[rank].silence_ms)
            return differ("silence_ms", rank, other, one, err);
        if (all[0].secret_source != all[rank].secret_source)
            return differ("the secret's source", rank,
                          rks_job_secret_source(all[rank].secret_source),
                          rks_job_secret_source(all[0].secret_source), err);
    }
    return RKS_OK;
}

/* Returns a bit for each door that two ranks have in common. Threads of a process need none. */
static uint32_t common_doors(const rks_group *group, const rks_rank_facts *a,
                             const rks_rank_facts *b)
{
    uint32_t common = 0;
    for (int door = 0; door < DOORS; door++)
        if (rks_group_is_threads(group) ||
            (a->doors[door] != 0 && a->doors[door] == b->doors[door]))
            common |= 1u << door;
    return common;
}

static bool same_node_name(const rks_rank_facts *a, const rks_rank_facts *b)
{
    return strncmp(a->node, b->node, sizeof(a->node)) == 0;
}

static void say_containers(const rks_group *group, const rks_rank_facts *all)
{
    for (uint32_t rank = 1; group->rank == 0 && rank < group->size; rank++) {
        uint32_t before = 0;
        while (before < rank && (group->node_of[before] == group->node_of[rank] ||
                                 !same_node_name(&all[before], &all[rank])))
            before++;
        if (before == rank)
            continue;
        rks_log(
            "ranks %u and %u are on one machine but cannot share memory: they are containers with "
            "their own /tmp and network, different users, or without /proc. Each keeps its own "
            "copy of the index. "
            "Share /tmp between them for one copy; give each its own RKS_NODE to silence this line",
            before, rank);
        return;
    }
}

rks_status rks_group_number_nodes(rks_group *group, const rks_rank_facts *all, rks_error *err)
{
    group->node_of = rks_alloc(group->size, sizeof(*group->node_of), err);
    group->leaders = rks_alloc(group->size, sizeof(*group->leaders), err);
    group->hosts = rks_alloc(group->size, sizeof(*group->hosts), err);
    uint32_t *doors = rks_alloc(group->size, sizeof(*doors), err); /* doors that the ranks of each
                                                                    * node have in common */
    if (group->node_of == NULL || group->leaders == NULL || group->hosts == NULL || doors == NULL) {
        rks_free(doors);
        return RKS_ERR_MEMORY;
    }
    for (uint32_t rank = 0; rank < group->size; rank++) {
        uint32_t node = 0, common = (1u << DOORS) - 1;
        for (; node < group->nodes; node++) {
            const rks_rank_facts *leader = &all[group->leaders[node]];
            common = doors[node] & common_doors(group, leader, &all[rank]);
            if (same_node_name(leader, &all[rank]) && common != 0)
                break;
        }
        if (node == group->nodes) {
            common = (1u << DOORS) - 1;
            group->leaders[group->nodes++] = rank;
        }
        doors[node] = common;
        group->node_of[rank] = node;
        snprintf(group->hosts[rank], sizeof(group->hosts[rank]), "%.31s", all[rank].host);
        rks_text_clean(group->hosts[rank]);
    }
    group->door = (rks_door)__builtin_ctz(doors[group->node_of[group->rank]]);
    rks_free(doors);
    say_containers(group, all);
    return rks_nodes_sort(group, err);
}
