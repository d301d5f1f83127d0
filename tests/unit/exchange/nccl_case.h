/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_case.h: an exchange over the stand-in of CUDA and NCCL, each rank a process with the node
 * and the GPU that the case gives it. The case lies in shared memory; what is wrong becomes text in
 * it, and the parent looks at what the ranks of each node have together. */
#ifndef RKS_TESTS_NCCL_CASE_H
#define RKS_TESTS_NCCL_CASE_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "exchange/communicator.h"
#include "exchange/exchange.h"
#include "support/gpu/double.h"
#include "support/ranks.h"

enum { NCCL_RANKS = 6, NO_GPU = -1 };

typedef struct nccl_result {
    rks_status status;
    rks_error err;
    rks_exchange_stats stats;
    double_figures figures; /* before the group is closed */
    double_figures at_end;  /* after it */
    uint64_t calls;         /* that the fault may meet, in the last exchange */
    rks_memory_use memory;
    char used[16];
    char wrong[128];
    uint64_t begin[NCCL_RANKS], end[NCCL_RANKS]; /* of each sender's stream, what came */
    uint32_t restarts;
    char printed[1024]; /* on stderr, if the case hears it */
} nccl_result;

typedef struct nccl_case {
    const char *backend;
    uint32_t ranks;
    int node[NCCL_RANKS];
    int gpu[NCCL_RANKS];
    int version[NCCL_RANKS]; /* 0: 2.28.9 */
    uint64_t sizes[NCCL_RANKS];
    uint32_t chunk;
    uint64_t piece; /* streams may be cut at its multiples; 0: anywhere */
    bool always;    /* also the streams of the own node travel */
    bool no_restart;
    int source_fails; /* this rank's read fails at half of its stream; -1: none */
    int sink_fails;   /* this rank's write fails at its first call but one; -1: none */
    int capturing;    /* this rank is; -1: none */
    int no_cumem;     /* this rank's device has no virtual memory; -1: none */
    int setting;      /* this rank has `settings` in its nccl.conf; -1: none */
    const char *settings;
    int fault_rank; /* -1: none */
    char call[48];  /* empty: any */
    uint64_t nth;
    double_fault fault;
    uint32_t abort_ms; /* how long fault_rank waits for an abort; 0: as usual */
    uint32_t silence_ms;
    uint32_t repeats; /* 0: 1. The fault is in the last one */
    const char *then; /* the backend from the second one on; NULL: the same */
    bool hears;
    const char *once_more; /* one after them, whatever became of them; NULL: none */
    nccl_result results[NCCL_RANKS];
} nccl_case;

typedef struct nccl_rank {
    nccl_case *all;
    nccl_result *result;
    uint32_t rank;
    uint32_t writes;
} nccl_rank;

typedef struct nccl_double {
    double_fault_fn set_fault;
    double_happened_fn happened;
    double_figures_fn figures;
    double_machine_fn machine;
} nccl_double;

static inline nccl_double nccl_double_load(void)
{
    nccl_double made;
    void *library = dlopen(GPU_DOUBLE, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) { /* a rank that went on would run the other tests, and start more ranks */
        fprintf(stderr, "%s\n", dlerror());
        _exit(1);
    }
    *(void **)&made.set_fault = dlsym(library, "double_set_fault");
    *(void **)&made.happened = dlsym(library, "double_fault_happened");
    *(void **)&made.figures = dlsym(library, "double_get_figures");
    *(void **)&made.machine = dlsym(library, "double_set_machine");
    setenv("RKS_CUDA_LIBRARY", GPU_DOUBLE, 1);
    setenv("RKS_NCCL_LIBRARY", GPU_DOUBLE, 1);
    return made;
}

static inline uint8_t nccl_byte(uint32_t sender, uint64_t offset)
{
    return (uint8_t)((offset * 2654435761u >> 13) + offset + sender * 37);
}

static inline rks_status nccl_read(void *user, uint32_t sender, uint64_t offset, void *bytes,
                                   size_t size, rks_error *err)
{
    nccl_rank *me = user;
    const nccl_case *all = me->all;
    if (all->node[sender] != all->node[me->rank] || offset > all->sizes[sender] ||
        size > all->sizes[sender] - offset || size == 0)
        return rks_fail(err, RKS_ERR_STATE, 0, "a read outside the node's streams");
    if (all->source_fails == (int)me->rank && offset + size > all->sizes[sender] / 2)
        return rks_fail(err, RKS_ERR_DATA, 7, "the source is broken");
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = nccl_byte(sender, offset + i);
    return RKS_OK;
}

static inline uint64_t nccl_boundary(const nccl_case *all, uint32_t sender, uint64_t offset)
{
    uint64_t piece = all->piece != 0 ? all->piece : 1;
    uint64_t at = (offset + piece - 1) / piece * piece;
    return at < all->sizes[sender] ? at : all->sizes[sender];
}

static inline bool nccl_has(const nccl_rank *me, uint32_t sender)
{
    return !me->all->always && me->all->node[sender] == me->all->node[me->rank];
}

static inline void nccl_restart(void *user)
{
    nccl_result *result = ((nccl_rank *)user)->result;
    memset(result->begin, 0, sizeof(result->begin));
    memset(result->end, 0, sizeof(result->end));
    result->restarts++;
}

static inline rks_status nccl_write(void *user, uint32_t sender, uint64_t offset, const void *bytes,
                                    size_t size, rks_error *err)
{
    nccl_rank *me = user;
    nccl_result *result = me->result;
    if (me->all->sink_fails == (int)me->rank && ++me->writes > 1)
        return rks_fail(err, RKS_ERR_IO, 5, "the sink is full");
    if (sender >= me->all->ranks || nccl_has(me, sender))
        snprintf(result->wrong, sizeof(result->wrong), "a chunk of sender %u", sender);
    else if (result->end[sender] == 0 && nccl_boundary(me->all, sender, offset) != offset)
        snprintf(result->wrong, sizeof(result->wrong), "sender %u begins at %llu", sender,
                 (unsigned long long)offset);
    else if (result->end[sender] != 0 && result->end[sender] != offset)
        snprintf(result->wrong, sizeof(result->wrong), "offset %llu of sender %u",
                 (unsigned long long)offset, sender);
    if (result->end[sender] == 0)
        result->begin[sender] = offset;
    result->end[sender] = offset + size;
    for (size_t i = 0; i < size && result->wrong[0] == '\0'; i++)
        if (((const uint8_t *)bytes)[i] != nccl_byte(sender, offset + i))
            snprintf(result->wrong, sizeof(result->wrong), "byte %llu of sender %u",
                     (unsigned long long)(offset + i), sender);
    return RKS_OK;
}

/* One exchange of this rank. */
static inline rks_status nccl_exchange(rks_group *group, nccl_case *all, const char *backend)
{
    nccl_rank me = {.all = all, .rank = rks_group_rank(group)};
    me.result = &all->results[me.rank];
    *me.result = (nccl_result){0};
    bool has[NCCL_RANKS] = {false};
    rks_exchange_segment all_segments[NCCL_RANKS];
    size_t first[NCCL_RANKS + 1] = {0};
    const rks_exchange_segments segments = {all_segments, first};
    for (uint32_t sender = 0; sender < all->ranks; sender++) {
        has[sender] = nccl_has(&me, sender);
        first[sender + 1] = first[sender] + (all->sizes[sender] > 0);
        if (all->sizes[sender] > 0)
            all_segments[first[sender]] =
                (rks_exchange_segment){0, all->sizes[sender], all->piece != 0 ? all->piece : 1};
    }
    rks_exchange_job job = {.size = all->sizes[me.rank],
                            .receives = true,
                            .segments = &segments,
                            .has = has,
                            .reads_node = true,
                            .read = nccl_read,
                            .write = nccl_write,
                            .restart = all->no_restart ? NULL : nccl_restart,
                            .user = &me,
                            .chunk = all->chunk};
    for (uint32_t rank = 0; rank < me.rank; rank++)
        if (all->node[rank] == all->node[me.rank])
            job.receives = false;
    const char *used = "";
    me.result->status =
        rks_exchange_run(group, backend, &job, &me.result->stats, &used, &me.result->err);
    snprintf(me.result->used, sizeof(me.result->used), "%s", used);
    return me.result->status;
}

/* In a file of memory, which goes with the process. */
static inline void nccl_write_settings(const char *settings)
{
    char path[32];
    int file = memfd_create("nccl.conf", 0);
    if (file < 0 || write(file, settings, strlen(settings)) != (ssize_t)strlen(settings))
        _exit(1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    setenv("NCCL_CONF_FILE", path, 1);
}

static inline rks_status nccl_group(const rks_bootstrap *bootstrap, nccl_case *all,
                                    const nccl_double *gpu, rks_group **group, rks_error *err)
{
    char node[32];
    uint32_t rank = bootstrap->rank;
    snprintf(node, sizeof(node), "node-%d", all->node[rank]);
    if (all->setting == (int)rank)
        nccl_write_settings(all->settings);
    gpu->machine(all->gpu[rank], all->version[rank] != 0 ? all->version[rank] : 22809,
                 all->capturing == (int)rank, all->no_cumem != (int)rank);
    return open_group_on(bootstrap, node, all->silence_ms, group, err);
}

/* NCCL reads variables late, so those of the process are the training's, too. */
static inline uint64_t nccl_environment(void)
{
    uint64_t all = 0;
    for (char **at = environ; *at != NULL; at++)
        all = all * 31 + rks_checksum64(*at, strlen(*at));
    return all;
}

/* From now on stderr goes into a file of memory; -1: it stays. */
static inline int nccl_hear(const nccl_case *all)
{
    int file = all->hears ? memfd_create("stderr", 0) : -1;
    if (file >= 0 && dup2(file, STDERR_FILENO) < 0)
        _exit(1);
    return file;
}

static inline void nccl_heard(int file, nccl_result *result)
{
    if (file < 0)
        return;
    if (pread(file, result->printed, sizeof(result->printed) - 1, 0) < 0)
        _exit(1);
    close(file);
}

static inline int nccl_main(const rks_bootstrap *bootstrap, void *user)
{
    nccl_case *all = user;
    nccl_result *result = &all->results[bootstrap->rank];
    nccl_double gpu = nccl_double_load();
    int heard = nccl_hear(all);
    rks_group *group = NULL;
    long before = rks_memory_in_use(); /* the launcher's */
    if (all->fault_rank == (int)bootstrap->rank && all->abort_ms != 0)
        rks_communicator_abort_ms = all->abort_ms;
    result->status = nccl_group(bootstrap, all, &gpu, &group, &result->err);
    if (result->status != RKS_OK)
        return 1;
    uint64_t environment = nccl_environment();
    rks_status status = RKS_OK;
    for (uint32_t i = 0; status == RKS_OK && i < (all->repeats == 0 ? 1 : all->repeats); i++) {
        bool last = i + 1 >= all->repeats;
        gpu.set_fault(all->call[0] != '\0' ? all->call : NULL,
                      last && all->fault_rank == (int)bootstrap->rank ? all->nth : UINT64_MAX,
                      all->fault);
        status = nccl_exchange(group, all, i > 0 && all->then != NULL ? all->then : all->backend);
    }
    if (all->once_more != NULL)
        status = nccl_exchange(group, all, all->once_more);
    gpu.happened(&result->calls);
    gpu.figures(&result->figures);
    result->memory.struct_size = sizeof(result->memory);
    rks_memory_use_get(&result->memory);
    rks_group_close(group);
    gpu.figures(&result->at_end);
    nccl_heard(heard, result);
    if (nccl_environment() != environment)
        snprintf(result->wrong, sizeof(result->wrong), "the environment has changed");
    if (rks_memory_in_use() != before)
        snprintf(result->wrong, sizeof(result->wrong), "%ld allocations left",
                 rks_memory_in_use() - before);
    return status == RKS_OK ? 0 : 1;
}

static inline nccl_case *nccl_case_new(const char *backend, uint32_t ranks)
{
    nccl_case *all =
        mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    *all = (nccl_case){.backend = backend,
                       .ranks = ranks,
                       .chunk = 4096,
                       .source_fails = -1,
                       .sink_fails = -1,
                       .capturing = -1,
                       .no_cumem = -1,
                       .setting = -1,
                       .fault_rank = -1};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        all->node[rank] = (int)rank;
        all->gpu[rank] = (int)rank;
        all->sizes[rank] = 50000 + 1000 * rank;
    }
    return all;
}

/* `call`: "" for any. */
static inline void nccl_set_fault(nccl_case *all, int rank, const char *call, uint64_t nth,
                                  double_fault fault)
{
    all->fault_rank = rank;
    all->nth = nth;
    all->fault = fault;
    snprintf(all->call, sizeof(all->call), "%s", call);
}

static inline void nccl_case_free(nccl_case *all)
{
    munmap(all, sizeof(*all));
}

/* Runs it by `rank_main`; nothing may take longer than `limit` seconds. What the stand-in complains
 * of is a failure. */
static inline int nccl_run_by(nccl_case *all, int (*rank_main)(const rks_bootstrap *, void *),
                              unsigned limit)
{
    rks_error err;
    int code = -1;
    alarm(limit);
    assert_ok(rks_launch(all->ranks, rank_main, all, &code, &err), &err);
    alarm(0);
    for (uint32_t rank = 0; rank < all->ranks; rank++)
        assert_int_equal(all->results[rank].at_end.complaints, 0);
    return code;
}

static inline int nccl_run_case(nccl_case *all, unsigned limit)
{
    return nccl_run_by(all, nccl_main, limit);
}

/* Nothing of the GPU is held any more, and the thread is as it was. */
static inline void nccl_check_freed(const nccl_case *all)
{
    for (uint32_t rank = 0; rank < all->ranks; rank++) {
        const double_figures *left = &all->results[rank].figures;
        assert_int_equal(left->device_bytes, 0);
        assert_int_equal(left->pinned_bytes, 0);
        assert_int_equal(left->streams + left->events + left->communicators, 0);
        assert_int_equal(left->contexts, 0);
        assert_int_equal(left->nccl_bytes, 0);
        assert_int_equal(left->pushed, 0);
        assert_int_equal(left->capture_mode, 0);
        const rks_memory_figure *kinds = all->results[rank].memory.kinds;
        assert_int_equal(kinds[RKS_MEMORY_PINNED].current, 0);
        assert_int_equal(kinds[RKS_MEMORY_GPU_SLOTS].current, 0);
        assert_int_equal(kinds[RKS_MEMORY_GPU_NCCL].current, 0);
    }
}

/* The ranks of each node together have each stream that the node wanted, once. */
static inline void nccl_check_node(const nccl_case *all, int node, uint32_t sender)
{
    uint64_t at = 0;
    bool found = true;
    while (at < all->sizes[sender] && found) {
        found = false;
        for (uint32_t rank = 0; rank < all->ranks && !found; rank++) {
            const nccl_result *result = &all->results[rank];
            if (all->node[rank] == node && result->end[sender] > at &&
                result->begin[sender] == at) {
                at = result->end[sender];
                found = true;
            }
        }
    }
    if (at != all->sizes[sender])
        print_error("node %d lacks sender %u from %llu on\n", node, sender, (unsigned long long)at);
    assert_int_equal(at, all->sizes[sender]);
}

static inline void nccl_check_good(const nccl_case *all, const char *used)
{
    for (uint32_t rank = 0; rank < all->ranks; rank++) {
        const nccl_result *result = &all->results[rank];
        if (result->status != RKS_OK || result->wrong[0] != '\0')
            print_error("rank %u: %s: %s%s\n", rank, rks_status_name(result->status),
                        result->status != RKS_OK ? result->err.text : "", result->wrong);
        assert_int_equal(result->status, RKS_OK);
        assert_string_equal(result->wrong, "");
        assert_string_equal(result->used, used);
        if (strcmp(used, "nccl") == 0) /* its end is an orderly one */
            assert_int_equal(result->at_end.aborts, 0);
    }
    for (uint32_t receiver = 0; receiver < all->ranks; receiver++)
        for (uint32_t sender = 0; sender < all->ranks; sender++)
            if (all->node[sender] != all->node[receiver])
                nccl_check_node(all, all->node[receiver], sender);
    nccl_check_freed(all);
}

static inline void nccl_check_failed(const nccl_case *all, rks_status status, int rank,
                                     const char *text)
{
    for (uint32_t i = 0; i < all->ranks; i++) {
        const nccl_result *result = &all->results[i];
        if (result->status != status || strstr(result->err.text, text) == NULL ||
            result->wrong[0] != '\0' || (rank >= 0 && result->err.rank != rank))
            print_error("rank %u: %s of rank %d: %s %s\n", i, rks_status_name(result->status),
                        result->err.rank, result->err.text, result->wrong);
        assert_int_equal(result->status, status);
        assert_contains(result->err.text, text);
        if (rank >= 0)
            assert_int_equal(result->err.rank, rank);
        assert_string_equal(result->wrong, "");
    }
    nccl_check_freed(all);
}

static inline bool nccl_holds(const double_figures *f)
{
    return f->device_bytes + f->pinned_bytes + f->streams + f->events + f->communicators +
               f->contexts + f->pushed !=
           0;
}

/* The others know within their limit, and end. */
static inline void nccl_check_lost(const nccl_case *all, int lost)
{
    for (uint32_t rank = 0; rank < all->ranks; rank++) {
        if ((int)rank == lost)
            continue;
        const nccl_result *result = &all->results[rank];
        if (result->err.rank != lost)
            print_error("rank %u: rank %d: %s\n", rank, result->err.rank, result->err.text);
        assert_true(result->status == RKS_ERR_PEER || result->status == RKS_ERR_TIMEOUT);
        assert_int_equal(result->err.rank, lost);
        assert_int_equal(nccl_holds(&result->figures), 0);
    }
}

#endif
