/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_exchange.c: one exchange of made streams by processes that share one GPU, each of them a node
 * of its own; run by tests/gpu/run. Prints one JSON object: what each rank found.
 *
 * Usage: gpu_exchange RANKS BYTES CHUNK BACKEND REPEATS [fail|kill|stop RANK]
 * BYTES of each rank's stream, uneven by rank; `fail`: that rank's source fails at half of its
 * stream, `kill`: its process is killed there, `stop`: it stops there, as by SIGSTOP, and is killed
 * when the others have ended. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "exchange/exchange.h"

enum { RANKS_MAX = 64, REPEATS_MAX = 32, STOPPED_MS = 120 * 1000 };

typedef struct rank_result {
    rks_status status;
    rks_error err;
    double seconds[REPEATS_MAX];
    double known_seconds; /* from the fault to all ranks' agreement on it, as this rank saw it */
    double ended_seconds; /* and until everything was freed */
    uint32_t files[REPEATS_MAX], threads[REPEATS_MAX]; /* of the process, after each exchange */
    double nccl_mib[REPEATS_MAX], code_mib[REPEATS_MAX];
    bool ended;
    rks_exchange_stats stats;
    uint64_t bytes;
    char used[16];
    bool wrong; /* a byte, or an order */
} rank_result;

typedef struct job {
    uint32_t ranks, chunk;
    uint64_t bytes;
    const char *backend;
    uint32_t repeats;
    bool fails, kills, stops;
    uint32_t fault_rank;
    pid_t fault_pid;   /* of the rank that stops; 0: it has not */
    uint64_t fault_ns; /* shared: when it happened */
    rank_result results[RANKS_MAX];
} job;

typedef struct rank_job {
    job *all;
    uint32_t rank;
    uint64_t next[RANKS_MAX];
    uint8_t *expected; /* a chunk */
} rank_job;

static uint64_t size_of(const job *all, uint32_t rank)
{
    return all->bytes / 2 + all->bytes * rank / all->ranks;
}

/* Eight bytes at a time: making and checking must not be what is measured. */
static void fill(uint32_t rank, uint64_t offset, uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size;) {
        uint64_t at = offset + i,
                 word = (at / 8 + rank * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
        size_t skip = at % 8, part = 8 - skip < size - i ? 8 - skip : size - i;
        memcpy(bytes + i, (const uint8_t *)&word + skip, part);
        i += part;
    }
}

/* No two of these processes share a node. */
static rks_status read_stream(void *user, uint32_t sender, uint64_t offset, void *bytes,
                              size_t size, rks_error *err)
{
    rank_job *me = user;
    job *all = me->all;
    if (sender != me->rank)
        return rks_fail(err, RKS_ERR_STATE, 0, "the stream of rank %u was asked for", sender);
    if (me->rank == all->fault_rank && offset + size > size_of(all, me->rank) / 2 &&
        (all->fails || all->kills || all->stops)) {
        all->fault_ns = rks_now_ns();
        all->fault_pid = getpid();
        if (all->kills || all->stops)
            kill(getpid(), all->kills ? SIGKILL : SIGSTOP);
        return rks_fail(err, RKS_ERR_DATA, 7, "the source is broken");
    }
    fill(me->rank, offset, bytes, size);
    return RKS_OK;
}

static rks_status write_stream(void *user, uint32_t sender, uint64_t offset, const void *bytes,
                               size_t size, rks_error *err)
{
    rank_job *me = user;
    (void)err;
    if (me->next[sender] != offset)
        me->all->results[me->rank].wrong = true;
    me->next[sender] = offset + size;
    fill(sender, offset, me->expected, size);
    if (memcmp(me->expected, bytes, size) != 0)
        me->all->results[me->rank].wrong = true;
    me->all->results[me->rank].bytes += size;
    return RKS_OK;
}

static uint32_t count_entries(const char *path)
{
    uint32_t count = 0;
    DIR *folder = opendir(path);
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count - 2; /* . and .. */
}

static void exchange_once(rks_group *group, rank_job *me, uint32_t turn)
{
    job *all = me->all;
    rank_result *result = &all->results[me->rank];
    memset(me->next, 0, sizeof(me->next));
    result->bytes = 0;
    rks_exchange_job work = {.size = size_of(all, me->rank),
                             .receives = true,
                             .read = read_stream,
                             .write = write_stream,
                             .reads_node = true,
                             .user = me,
                             .chunk = all->chunk};
    const char *used = "";
    uint64_t begin = rks_now_ns();
    result->status =
        rks_exchange_run(group, all->backend, &work, &result->stats, &used, &result->err);
    uint64_t end = rks_now_ns();
    result->seconds[turn] = (double)(end - begin) / 1e9;
    result->nccl_mib[turn] = (double)result->stats.gpu_nccl_bytes / (1 << 20);
    result->code_mib[turn] = (double)result->stats.gpu_code_bytes / (1 << 20);
    result->files[turn] = count_entries("/proc/self/fd") - 1; /* the folder's own */
    result->threads[turn] = count_entries("/proc/self/task");
    if (all->fault_ns != 0) {
        result->known_seconds =
            (double)((int64_t)result->stats.agreed_ns - (int64_t)all->fault_ns) / 1e9;
        result->ended_seconds = (double)(end - all->fault_ns) / 1e9;
    }
    snprintf(result->used, sizeof(result->used), "%s", used);
    for (uint32_t sender = 0; sender < all->ranks; sender++)
        if (result->status == RKS_OK && sender != me->rank &&
            me->next[sender] != size_of(all, sender))
            result->wrong = true;
}

static int rank_main(const rks_bootstrap *bootstrap, void *user)
{
    rank_job me = {.all = user, .rank = bootstrap->rank};
    char node[32];
    snprintf(node, sizeof(node), "node-%u", bootstrap->rank);
    setenv("NCCL_HOSTID", node, 1); /* else NCCL sees one GPU twice, and refuses */
    rks_group_options options;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    options.node = node;
    rks_group *group = NULL;
    me.expected = malloc(64 << 20);
    rank_result *result = &me.all->results[me.rank];
    result->status = rks_group_open(&options, &group, &result->err);
    for (uint32_t i = 0; result->status == RKS_OK && i < me.all->repeats; i++)
        exchange_once(group, &me, i);
    rks_group_close(group);
    free(me.expected);
    result->ended = true;
    return result->status == RKS_OK ? 0 : 1;
}

/* A process of its own: ends the rank that has stopped, when the others need it no more. */
static void kill_stopped(const job *all)
{
    uint64_t until = rks_now_ms() + STOPPED_MS;
    bool waiting = true;
    while (waiting && rks_now_ms() < until) {
        waiting = all->fault_pid == 0;
        for (uint32_t rank = 0; rank < all->ranks; rank++)
            waiting |= rank != all->fault_rank && !all->results[rank].ended;
        usleep(10000);
    }
    if (all->fault_pid != 0)
        kill(all->fault_pid, SIGKILL);
}

static void print_figures(const char *name, int digits, const double *values, uint32_t count)
{
    printf(", \"%s\": [", name);
    for (uint32_t i = 0; i < count; i++)
        printf("%s%.*f", i > 0 ? ", " : "", digits, values[i]);
    printf("]");
}

static void print_counts(const char *name, const uint32_t *values, uint32_t count)
{
    printf(", \"%s\": [", name);
    for (uint32_t i = 0; i < count; i++)
        printf("%s%u", i > 0 ? ", " : "", values[i]);
    printf("]");
}

static void print_rank(const job *all, uint32_t rank)
{
    const rank_result *r = &all->results[rank];
    printf("%s{\"rank\": %u, \"status\": \"%s\", \"text\": \"", rank > 0 ? ", " : "", rank,
           rks_status_name(r->status));
    for (const char *c = r->status == RKS_OK ? "" : r->err.text; *c != '\0'; c++)
        printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    printf("\", \"error_rank\": %d, \"used\": \"%s\", \"wrong\": %s, \"bytes\": %llu, "
           "\"known_seconds\": %.6f, \"ended_seconds\": %.6f, \"gpu_buffer_bytes\": %llu, "
           "\"gpu_nccl_bytes\": %llu, \"pinned_bytes\": %llu, \"bytes_received\": %llu",
           r->status == RKS_OK ? -1 : r->err.rank, r->used, r->wrong ? "true" : "false",
           (unsigned long long)r->bytes, r->known_seconds, r->ended_seconds,
           (unsigned long long)r->stats.gpu_buffer_bytes,
           (unsigned long long)r->stats.gpu_nccl_bytes, (unsigned long long)r->stats.pinned_bytes,
           (unsigned long long)r->stats.bytes_received);
    print_figures("seconds", 6, r->seconds, all->repeats);
    print_figures("nccl_mib", 1, r->nccl_mib, all->repeats);
    print_figures("code_mib", 1, r->code_mib, all->repeats);
    print_counts("files", r->files, all->repeats);
    print_counts("threads", r->threads, all->repeats);
    printf("}");
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr,
                "usage: gpu_exchange RANKS BYTES CHUNK BACKEND REPEATS [fail|kill|stop RANK]\n");
        return 2;
    }
    job *all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 3;
    all->ranks = (uint32_t)strtoul(argv[1], NULL, 10);
    all->bytes = strtoull(argv[2], NULL, 10);
    all->chunk = (uint32_t)strtoul(argv[3], NULL, 10);
    all->backend = argv[4];
    all->repeats = (uint32_t)strtoul(argv[5], NULL, 10);
    all->fails = argc > 7 && strcmp(argv[6], "fail") == 0;
    all->kills = argc > 7 && strcmp(argv[6], "kill") == 0;
    all->stops = argc > 7 && strcmp(argv[6], "stop") == 0;
    all->fault_rank = argc > 7 ? (uint32_t)strtoul(argv[7], NULL, 10) : 0;
    if (all->ranks == 0 || all->ranks > RANKS_MAX || all->repeats > REPEATS_MAX)
        return 2;
    rks_error err;
    int code = 0;
    pid_t killer = all->stops ? fork() : 0;
    if (all->stops && killer == 0) {
        kill_stopped(all);
        return 0;
    }
    rks_launch(all->ranks, rank_main, all, &code, &err);
    if (all->stops)
        kill(killer, SIGKILL);
    printf("[");
    for (uint32_t rank = 0; rank < all->ranks; rank++)
        print_rank(all, rank);
    printf("]\n");
    return 0;
}
