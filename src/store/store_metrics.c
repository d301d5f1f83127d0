/* SPDX-License-Identifier: Apache-2.0
 *
 * store_metrics.c: an open store's figures, live. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "store/store.h"

static uint64_t load(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void read_figures(void *user, rks_metrics *figures)
{
    rks_store *store = user;
    rks_store_stats stats = {.struct_size = sizeof(stats)};
    rks_store_stats_get(store, &stats);
    *figures = (rks_metrics){
        .group = rks_group_id(store->group),
        .rank = rks_group_rank(store->group),
        .ranks = rks_group_size(store->group),
        .node = rks_group_node(store->group),
        .nodes = rks_group_nodes(store->group),
        .samples = stats.samples,
        .bytes = stats.bytes,
        .local_bytes = stats.local_bytes,
        .remote_bytes = stats.remote_bytes,
        .served_bytes = stats.served_bytes,
        .disk_bytes = stats.disk_bytes,
        .disk_reads = stats.disk_reads,
        .home_bytes = stats.home_bytes,
        .wait_ns = stats.wait_ns,
        .batches = load(&store->batches),
        .epoch = load(&store->epoch),
        .step = load(&store->step),
        .steps = load(&store->steps),
        .ahead = load(&store->ahead),
    };
    snprintf(figures->dataset, sizeof(figures->dataset), "%s", store->id_text);
    snprintf(figures->directory, sizeof(figures->directory), "%s",
             rks_text_end(store->directory, sizeof(figures->directory) - 1));
}

/* Reads the port from the environment; 0: none. */
static rks_status port_of_environment(uint32_t *port, rks_error *err)
{
    const char *wish = getenv("RKS_METRICS");
    char *end = NULL;
    *port = 0;
    if (wish == NULL || *wish == '\0')
        return RKS_OK;
    unsigned long number = strtoul(wish, &end, 10);
    if (*wish < '0' || *wish > '9' || *end != '\0' || number == 0 || number > UINT16_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "RKS_METRICS: %s is not a port; give 1 to 65535",
                        wish);
    *port = (uint32_t)number;
    return RKS_OK;
}

/* Ranks of a node have consecutive ports. */
static rks_status own_port(const rks_group *group, uint32_t *port, rks_error *err)
{
    uint32_t first = *port;
    for (uint32_t rank = 0; first != 0 && rank < rks_group_rank(group); rank++)
        *port += rks_group_node_of(group, rank) == rks_group_node(group);
    if (first > UINT16_MAX || *port > UINT16_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "metrics: port %u of this rank is above 65535; choose a lower one", *port);
    return RKS_OK;
}

rks_status rks_store_watch(rks_store *store, rks_error *err)
{
    uint32_t port = store->options.metrics_port;
    rks_error refused = {0}; /* the caller's error stays as it is if the process continues */
    bool wished = false;
    rks_status status = RKS_OK;
    store->metrics_source = (rks_metrics_source){.read = read_figures, .user = store};
    if (port == 0) {
        status = port_of_environment(&port, err);
        wished = port != 0;
    }
    if (status == RKS_OK)
        status = own_port(store->group, &port, err);
    if (status != RKS_OK)
        return status;
    status = rks_metrics_begin(&store->metrics_source, port, &refused);
    if (status != RKS_OK && wished) { /* an environment variable reaches each program of a job */
        rks_log("%s; this process shows no metrics", refused.text);
        return rks_metrics_begin(&store->metrics_source, 0, err);
    }
    if (status != RKS_OK && err != NULL)
        *err = refused;
    return status;
}
