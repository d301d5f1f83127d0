/* SPDX-License-Identifier: Apache-2.0
 *
 * two_hosts.c: four ranks on two hosts that are network namespaces of this machine: even ranks
 * enter the first one, odd ranks the second. They build, exchange the index, and read epochs; the
 * script that runs this kills, stops or disconnects a side meanwhile.
 *
 * Usage: two_hosts NETNS-A NETNS-B INPUT DIRECTORY EPOCHS SILENCE-MS [containers]
 * With "containers" each rank has a /tmp of its own, and none is told which node it is on.
 * Prints "rank R pid P" at the start, "reading" once the first epoch has begun, "rank R has read an
 * epoch" at its end, and at the end of each rank "rank R: STATUS: TEXT" or "rank R: done: SAMPLES
 * samples, REMOTE remote bytes, LOCAL local bytes, exchange NAME, NODES nodes". */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "rankstore.h"

typedef struct args {
    const char *namespaces[2];
    const char *input, *directory;
    uint64_t epochs;
    uint32_t silence_ms;
    bool containers;
} args;

static int enter(const char *name, uint32_t rank)
{
    char path[256];
    snprintf(path, sizeof(path), "/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
        fprintf(stderr, "rank %u: %s: %s\n", rank, path, strerror(errno));
        return -1;
    }
    close(fd);
    return 0;
}

static int hide_tmp(uint32_t rank)
{
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("none", "/tmp", "tmpfs", 0, "size=16m") == 0)
        return 0;
    fprintf(stderr, "rank %u: a /tmp of its own: %s\n", rank, strerror(errno));
    return -1;
}

static rks_status count_item(void *user, const rks_gather_item *item, rks_error *err)
{
    (void)item, (void)err;
    ++*(uint32_t *)user;
    return RKS_OK;
}

/* A result of each rank comes to rank 1. */
static rks_status gather_all(rks_group *group, rks_error *err)
{
    rks_gather *gather = NULL;
    uint32_t come = 0, rank = rks_group_rank(group);
    const rks_value value = {.data = &rank, .size = sizeof(rank)};
    rks_status status = rks_gather_open(group, "rank:uint32", NULL, &gather, err);
    if (status != RKS_OK)
        return status;
    status = rks_gather_add(gather, "rank", rank, &value, err);
    status = rks_gather_run(gather, status, 1, count_item, &come, NULL, err);
    rks_gather_close(gather);
    if (status == RKS_OK && rank == 1 && come != rks_group_size(group)) {
        snprintf(err->text, sizeof(err->text), "gather: %u results", come);
        err->status = RKS_ERR_DATA;
        return RKS_ERR_DATA;
    }
    return status;
}

static rks_status read_epochs(rks_store *store, const args *a, rks_error *err)
{
    rks_plan_options options;
    rks_plan *plan = NULL;
    rks_plan_options_default(&options);
    options.batch_size = 8;
    rks_status status = rks_plan_open(store, &options, &plan, err);
    for (uint64_t e = 0; status == RKS_OK && e < a->epochs; e++) {
        rks_epoch_options how;
        rks_epoch *epoch = NULL;
        rks_batch *batch = NULL;
        rks_epoch_options_default(&how);
        how.epoch = e;
        status = rks_epoch_open(store, plan, &how, &epoch, err);
        if (e == 0 && rks_group_rank(rks_store_group(store)) == 0) {
            printf("reading\n");
            fflush(stdout);
        }
        while (status == RKS_OK) {
            status = rks_epoch_next(epoch, &batch, NULL, err);
            if (status != RKS_OK || batch == NULL)
                break;
            rks_batch_free(batch);
        }
        rks_epoch_close(epoch);
        if (e == 0 && status == RKS_OK) {
            printf("rank %u has read an epoch\n", rks_group_rank(rks_store_group(store)));
            fflush(stdout);
        }
    }
    rks_plan_free(plan);
    return rks_group_agree(rks_store_group(store), "epochs read", status, err);
}

static rks_status work(rks_group *group, const args *a, rks_error *err)
{
    rks_build_options options;
    rks_store *store = NULL;
    rks_store_stats stats = {.struct_size = sizeof(stats)};
    rks_build_options_default(&options);
    options.unit_size = 64 << 10;
    options.replace = true;
    rks_status status = rks_build(group, &a->input, 1, a->directory, &options, NULL, err);
    if (status == RKS_OK)
        status = rks_store_open(group, a->directory, NULL, &store, err);
    if (status == RKS_OK)
        status = read_epochs(store, a, err);
    if (status == RKS_OK)
        status = gather_all(group, err);
    if (status == RKS_OK) {
        rks_store_stats_get(store, &stats);
        printf("rank %u: done: %" PRIu64 " samples, %" PRIu64 " remote bytes, %" PRIu64
               " local bytes, exchange %s, %u nodes\n",
               rks_group_rank(group), stats.samples, stats.remote_bytes, stats.local_bytes,
               stats.exchange, rks_group_nodes(group));
        fflush(stdout);
    }
    rks_store_close(store, 0);
    return status;
}

static int run(const rks_bootstrap *bootstrap, void *user)
{
    const args *a = user;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_group_options options;
    char node[16];
    uint32_t rank = bootstrap->rank;
    alarm(120);
    if (enter(a->namespaces[rank % 2], rank) != 0 || (a->containers && hide_tmp(rank) != 0))
        return 3;
    printf("rank %u pid %ld\n", rank, (long)getpid());
    fflush(stdout);
    rks_group_options_default(&options);
    snprintf(node, sizeof(node), "host%u", rank % 2);
    options.bootstrap = bootstrap;
    options.node = a->containers ? NULL : node;
    options.silence_ms = a->silence_ms;
    rks_status status = rks_group_open(&options, &group, &err);
    if (status == RKS_OK)
        status = work(group, a, &err);
    if (status != RKS_OK) {
        printf("rank %u: %s: %s\n", rank, rks_status_name(status), err.text);
        fflush(stdout);
    }
    rks_group_close(group);
    return status == RKS_OK ? 0 : 4;
}

int main(int argc, char **argv)
{
    rks_error err = {0};
    int code = 0;
    if (argc != 7 && argc != 8)
        return 2;
    args a = {{argv[1], argv[2]},
              argv[3],
              argv[4],
              strtoull(argv[5], NULL, 10),
              (uint32_t)strtoul(argv[6], NULL, 10),
              argc == 8};
    if (rks_launch(4, run, &a, &code, &err) != RKS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 3;
    }
    return code;
}
