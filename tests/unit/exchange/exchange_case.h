/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_case.h: one exchange whose every byte is known, and its checks. Runs in threads and in
 * forked processes (then the case lies in shared memory): nothing here asserts, what is wrong
 * becomes text in the result. */
#ifndef RKS_TESTS_EXCHANGE_CASE_H
#define RKS_TESTS_EXCHANGE_CASE_H

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "exchange/exchange.h"
#include "support/ranks.h"

enum { CASE_RANKS = 8 };

typedef enum case_fault {
    FAULT_NONE,
    FAULT_SOURCE, /* at half of its stream */
    FAULT_SINK,   /* at half of what it receives */
    FAULT_KILL,   /* its source kills its process */
    FAULT_STOP,   /* its source stops its process */
    FAULT_LEAVE,  /* its thread ends instead of taking part */
} case_fault;

typedef struct case_result {
    rks_status status;
    rks_error err;
    rks_exchange_stats stats;
    char used[16];
    char wrong[128]; /* empty: all as it should be */
    uint64_t received;
    uint64_t begins[CASE_RANKS]; /* what has come of each sender */
    uint64_t ends[CASE_RANKS];
} case_result;

typedef struct exchange_case {
    const char *backend;
    const char *other_backend; /* of rank 1, if not NULL */
    uint32_t chunk;            /* the largest that may come */
    uint32_t other_chunk;      /* what rank 1 asks for, if not 0; all others ask for 1 MiB more */
    uint64_t sizes[CASE_RANKS];
    uint32_t receivers;         /* bits */
    uint32_t skips[CASE_RANKS]; /* bits of the senders that a rank skips */
    uint32_t of_a_node;         /* not 0: ranks of a node, which share what its first one wants: the
                                   other nodes' streams */
    uint32_t grain;             /* of boundaries; 0: there are none */
    case_fault fault;
    uint32_t fault_rank;
    uint32_t silence_ms;
    case_result results[CASE_RANKS];
} exchange_case;

/* The user of a job. */
typedef struct case_rank {
    exchange_case *all;
    case_result *result;
    uint32_t rank;
    uint64_t next[CASE_RANKS]; /* offset that comes next of each sender */
    uint64_t due;              /* bytes that this rank receives */
} case_rank;

static inline uint8_t case_byte(uint32_t sender, uint64_t offset)
{
    return (uint8_t)((offset * 2654435761u >> 13) + offset + sender * 37);
}

static inline rks_status case_read(void *user, uint32_t sender, uint64_t offset, void *bytes,
                                   size_t size, rks_error *err)
{
    case_rank *me = user;
    if (sender != me->rank)
        return rks_fail(err, RKS_ERR_STATE, 0, "a read of the stream of rank %u", sender);
    uint64_t have = me->all->sizes[me->rank];
    if (offset > have || size > have - offset || size == 0)
        return rks_fail(err, RKS_ERR_STATE, 0, "a read outside the stream");
    if (me->all->fault_rank == me->rank && offset + size > have / 2) {
        if (me->all->fault == FAULT_SOURCE)
            return rks_fail(err, RKS_ERR_DATA, 7, "the source is broken");
        if (me->all->fault == FAULT_KILL)
            kill(getpid(), SIGKILL);
        if (me->all->fault == FAULT_STOP)
            kill(getpid(), SIGSTOP);
    }
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = case_byte(me->rank, offset + i);
    return RKS_OK;
}

static inline bool case_has(const case_rank *me, uint32_t sender)
{
    uint32_t of = me->all->of_a_node;
    return (me->all->skips[me->rank] >> sender & 1) != 0 ||
           (of != 0 && sender / of == me->rank / of);
}

/* A place where chunks and parts may end. */
static inline bool case_may_cut(const exchange_case *all, uint32_t sender, uint64_t offset)
{
    return all->grain == 0 || all->grain > all->chunk || offset == all->sizes[sender] ||
           offset % all->grain == 0;
}

static inline rks_status case_write(void *user, uint32_t sender, uint64_t offset, const void *bytes,
                                    size_t size, rks_error *err)
{
    case_rank *me = user;
    char *wrong = me->result->wrong;
    size_t room = sizeof(me->result->wrong);
    if (me->all->fault == FAULT_SINK && me->all->fault_rank == me->rank &&
        me->result->received + size > me->due / 2)
        return rks_fail(err, RKS_ERR_IO, 5, "the sink is full");
    if (me->all->of_a_node != 0 && sender < CASE_RANKS && me->result->ends[sender] == 0)
        me->result->begins[sender] = me->next[sender] = offset;
    if (sender >= CASE_RANKS || sender == me->rank || case_has(me, sender))
        snprintf(wrong, room, "a chunk of sender %u", sender);
    else if (me->next[sender] != offset)
        snprintf(wrong, room, "offset %llu of sender %u", (unsigned long long)offset, sender);
    else if (size == 0 || size > me->all->chunk)
        snprintf(wrong, room, "a chunk of %zu bytes", size);
    else if (!case_may_cut(me->all, sender, offset) ||
             !case_may_cut(me->all, sender, offset + size))
        snprintf(wrong, room, "a chunk from %llu of %zu bytes", (unsigned long long)offset, size);
    for (size_t i = 0; i < size && wrong[0] == '\0'; i++)
        if (((const uint8_t *)bytes)[i] != case_byte(sender, offset + i))
            snprintf(wrong, room, "byte %llu of sender %u", (unsigned long long)(offset + i),
                     sender);
    me->result->ends[sender] = me->next[sender] = offset + size;
    me->result->received += size;
    return RKS_OK;
}

/* This rank's part; its result is written, and returned as an exit code. */
static inline int case_run(rks_group *group, exchange_case *all)
{
    uint32_t ranks = rks_group_size(group), rank = rks_group_rank(group);
    case_rank me = {.all = all, .rank = rank, .result = &all->results[rank]};
    *me.result = (case_result){0};
    bool has[CASE_RANKS] = {false};
    rks_exchange_segment all_segments[CASE_RANKS];
    size_t first[CASE_RANKS + 1] = {0};
    const rks_exchange_segments segments = {all_segments, first};
    for (uint32_t sender = 0; sender < ranks; sender++) {
        has[sender] = case_has(&me, sender);
        first[sender + 1] = first[sender] + (all->sizes[sender] > 0);
        if (all->sizes[sender] > 0)
            all_segments[first[sender]] = (rks_exchange_segment){0, all->sizes[sender], all->grain};
    }
    rks_exchange_job job = {.size = all->sizes[me.rank],
                            .receives = (all->receivers >> me.rank & 1) != 0,
                            .read = case_read,
                            .write = case_write,
                            .has = has,
                            .shares = all->of_a_node != 0,
                            .segments = all->grain != 0 ? &segments : NULL,
                            .user = &me,
                            .chunk = all->chunk};
    if (all->of_a_node != 0)
        job.receives = rank % all->of_a_node == 0;
    for (uint32_t sender = 0; sender < ranks && job.receives && all->of_a_node == 0; sender++)
        if (sender != me.rank && !case_has(&me, sender))
            me.due += all->sizes[sender];
    if (all->other_chunk != 0)
        job.chunk = rank == 1 ? all->other_chunk : all->other_chunk + (1 << 20);
    const char *used = "";
    const char *backend = all->backend;
    if (me.rank == 1 && all->other_backend != NULL)
        backend = all->other_backend;
    me.result->status =
        rks_exchange_run(group, backend, &job, &me.result->stats, &used, &me.result->err);
    snprintf(me.result->used, sizeof(me.result->used), "%s", used);
    if (me.result->status == RKS_OK && me.result->received != me.due &&
        me.result->wrong[0] == '\0' && all->of_a_node == 0)
        snprintf(me.result->wrong, sizeof(me.result->wrong), "%llu of %llu bytes",
                 (unsigned long long)me.result->received, (unsigned long long)me.due);
    return me.result->status == RKS_OK && me.result->wrong[0] == '\0' ? 0 : 1;
}

/* For rks_launch and rks_launch_threads: a group, the case, the group's end. */
static inline int case_main(const rks_bootstrap *bootstrap, void *user)
{
    exchange_case *all = user;
    case_result *result = &all->results[bootstrap->rank];
    rks_group *group = NULL;
    char node[16];
    snprintf(node, sizeof(node), "n%u", bootstrap->rank / (all->of_a_node + (all->of_a_node == 0)));
    result->status = open_group_on(bootstrap, all->of_a_node != 0 ? node : NULL, all->silence_ms,
                                   &group, &result->err);
    if (result->status != RKS_OK)
        return 1;
    int code = 0;
    if (all->fault != FAULT_LEAVE || all->fault_rank != bootstrap->rank)
        code = case_run(group, all);
    rks_group_close(group);
    return code;
}

static inline void case_check_good(const exchange_case *all, uint32_t ranks, const char *used)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const case_result *result = &all->results[rank];
        if (result->status != RKS_OK || result->wrong[0] != '\0')
            print_error("rank %u: %s: %s%s\n", rank, rks_status_name(result->status),
                        result->status != RKS_OK ? result->err.text : "", result->wrong);
        assert_int_equal(result->status, RKS_OK);
        assert_string_equal(result->wrong, "");
        assert_string_equal(result->used, used);
    }
}

/* The ranks of each node have, together and each byte once, the streams of all other nodes. */
static inline void case_check_shared(const exchange_case *all, uint32_t ranks)
{
    uint32_t of = all->of_a_node;
    for (uint32_t first = 0; first < ranks; first += of) {
        for (uint32_t sender = 0; sender < ranks; sender++) {
            uint64_t have = 0;
            if (sender / of == first / of)
                continue;
            for (uint32_t rank = first; rank < first + of && rank < ranks; rank++) {
                const case_result *result = &all->results[rank];
                if (result->ends[sender] > 0)
                    assert_int_equal(result->begins[sender], have);
                if (result->ends[sender] > 0)
                    have = result->ends[sender];
            }
            assert_int_equal(have, all->sizes[sender]);
        }
    }
}

/* All ranks have ended with the same error. */
static inline void case_check_failed(const exchange_case *all, uint32_t ranks, rks_status status,
                                     int32_t rank, const char *text)
{
    for (uint32_t i = 0; i < ranks; i++) {
        const case_result *result = &all->results[i];
        if (result->status != status || strstr(result->err.text, text) == NULL)
            print_error("rank %u: %s: %s\n", i, rks_status_name(result->status), result->err.text);
        assert_int_equal(result->status, status);
        assert_contains(result->err.text, text);
        assert_int_equal(result->err.rank, rank);
        assert_string_equal(result->wrong, "");
    }
}

#endif
