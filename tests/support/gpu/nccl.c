/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl.c: NCCL's half of the stand-in. The ranks of a communicator share a file, "/tmp/" and its
 * id:
 *
 *   page 0     u64 arrived[rank]: how many rounds the rank has brought its part to
 *   then       two halves, used in turn: ROOM bytes of each rank
 *
 * A half is written again only when all have brought their part to the round after it, for which
 * they had to be done with it. A round is one group of broadcasts, one from each rank. */
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"

enum { PAGE = 4096, ROOM = 16 << 20, CODE_BYTES = 100 << 20 };

/* Two channels; NCCL_MIN_NCHANNELS asks for more. */
static int64_t nccl_bytes(void)
{
    const char *channels = getenv("NCCL_MIN_NCHANNELS");
    return (int64_t)(channels == NULL ? 2 : strtoll(channels, NULL, 0)) * (10 << 20);
}

#define FAIL_IF_ASKED(name)                                                                        \
    if (double_enter(name) >= DOUBLE_FAILS)                                                        \
    return ncclSystemError

struct ncclComm {
    int ranks, rank;
    uint8_t *map;
    size_t size;
    uint64_t rounds;        /* put on streams */
    atomic_int outstanding; /* of them not done */
    atomic_bool aborted;
    bool never_comes;
    atomic_int opening; /* its thread has not ended */
    atomic_int opened;
    atomic_int busy;   /* a call is in progress */
    atomic_int failed; /* an ncclResult_t that stays */
    char path[64];
};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, NULL);
}

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static _Atomic uint64_t *arrived(struct ncclComm *comm, int rank)
{
    return (_Atomic uint64_t *)comm->map + rank;
}

DOUBLE_API ncclResult_t ncclGetVersion(int *version)
{
    FAIL_IF_ASKED("ncclGetVersion");
    *version = double_world.nccl_version;
    return ncclSuccess;
}

DOUBLE_API const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "unhandled system error";
}

DOUBLE_API const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "the stand-in was told to fail";
}

DOUBLE_API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    FAIL_IF_ASKED("ncclGetUniqueId");
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "gpu-double-%d-%lld", (int)getpid(),
             (long long)monotonic_ns());
    return ncclSuccess;
}

/* Everybody is there when all have brought their part to round 0, which is nothing. */
static void *open_main(void *user)
{
    struct ncclComm *comm = user;
    atomic_store(arrived(comm, comm->rank), !comm->never_comes);
    for (int rank = 0; rank < comm->ranks && !comm->aborted; rank++)
        while (atomic_load(arrived(comm, rank)) == 0 && !comm->aborted)
            nap();
    unlink(comm->path);
    double_count(&double_world.figures.nccl_bytes, NULL, nccl_bytes());
    atomic_store(&comm->opened, 1);
    atomic_store(&comm->opening, 0);
    return NULL;
}

DOUBLE_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id,
                                               int rank, ncclConfig_t *config)
{
    double_needs_context("ncclCommInitRankConfig");
    int fault = double_enter("ncclCommInitRankConfig");
    if (fault >= DOUBLE_FAILS && fault != DOUBLE_NEVER_DONE)
        return ncclSystemError;
    if (config->blocking != 0 || config->maxCTAs > 2 || double_thread.pushed == 0)
        return ncclInvalidUsage;
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    comm->ranks = ranks;
    if ((uint64_t)ranks > double_world.figures.most_ranks)
        double_count(&double_world.figures.most_ranks, NULL,
                     ranks - (int64_t)double_world.figures.most_ranks);
    comm->rank = rank;
    comm->never_comes = fault == DOUBLE_NEVER_DONE;
    comm->size = PAGE + 2 * (size_t)ranks * ROOM;
    snprintf(comm->path, sizeof(comm->path), "/tmp/%.40s", id.internal);
    int file = open(comm->path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)comm->size) != 0)
        abort();
    comm->map = mmap(NULL, comm->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (comm->map == MAP_FAILED)
        abort();
    comm->rounds = 1;
    pthread_t opener;
    atomic_store(&comm->opening, 1);
    pthread_create(&opener, NULL, open_main, comm);
    pthread_detach(opener);
    double_count(&double_world.figures.communicators, NULL, 1);
    if (double_world.figures.code_bytes == 0)
        double_count(&double_world.figures.code_bytes, NULL, CODE_BYTES);
    *out = comm;
    return ncclInProgress;
}

DOUBLE_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    FAIL_IF_ASKED("ncclCommGetAsyncError");
    *result = (ncclResult_t)atomic_load(&comm->failed);
    if (*result == ncclSuccess && (!atomic_load(&comm->opened) || atomic_load(&comm->busy)))
        *result = ncclInProgress;
    return ncclSuccess;
}

/* ---- calls that are in progress first ---------------------------------------------------- */

typedef struct later {
    struct ncclComm *comm;
    void (*run)(void *work); /* to be put on the stream; NULL: nothing */
    void *work;
    double_stream *stream;
    bool fails;
} later;

static void *later_main(void *user)
{
    later *l = user;
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
    if (l->fails) {
        atomic_store(&l->comm->failed, ncclRemoteError);
        atomic_fetch_sub(&l->comm->outstanding, 1);
        free(l->work);
    } else if (l->run != NULL) {
        double_stream_put(l->stream, l->run, l->work);
    }
    atomic_store(&l->comm->busy, 0);
    free(l);
    return NULL;
}

/* As NCCL does with blocking = 0. */
static ncclResult_t do_later(struct ncclComm *comm, void (*run)(void *), void *work,
                             double_stream *stream, bool fails)
{
    later *l = malloc(sizeof(*l));
    pthread_t thread;
    *l = (later){comm, run, work, stream, fails};
    atomic_store(&comm->busy, 1);
    pthread_create(&thread, NULL, later_main, l);
    pthread_detach(thread);
    return ncclInProgress;
}

static bool ready(struct ncclComm *comm, const char *call)
{
    double_needs_context(call);
    if (atomic_load(&comm->opened) && !atomic_load(&comm->busy))
        return true;
    double_complain(call, "the call before it is not done");
    return false;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

enum { RANKS = 16 };

typedef struct part {
    uint8_t *memory;
    size_t bytes;
} part;

typedef struct gather {
    struct ncclComm *comm;
    part parts[RANKS];
    uint64_t number;
    int fault;
} gather;

/* The group that this thread has begun. */
static _Thread_local DOUBLE_STATIC_TLS struct {
    bool begun, wrong;
    int count;
    struct ncclComm *comm;
    cudaStream_t stream;
    part parts[RANKS];
} group;

static void run_gather(void *work)
{
    gather *g = work;
    struct ncclComm *comm = g->comm;
    uint8_t *half = comm->map + PAGE + (g->number % 2) * (size_t)comm->ranks * ROOM;
    memcpy(half + (size_t)comm->rank * ROOM, g->parts[comm->rank].memory,
           g->parts[comm->rank].bytes);
    if (g->fault != DOUBLE_NEVER_DONE)
        atomic_store(arrived(comm, comm->rank), g->number + 1);
    for (int rank = 0; rank < comm->ranks && !comm->aborted; rank++) {
        while (atomic_load(arrived(comm, rank)) <= g->number && !comm->aborted)
            nap();
        if (!comm->aborted)
            memcpy(g->parts[rank].memory, half + (size_t)rank * ROOM, g->parts[rank].bytes);
    }
    part *middle = &g->parts[comm->ranks / 2];
    if (g->fault == DOUBLE_DAMAGES)
        middle->memory[middle->bytes / 2] ^= 1;
    atomic_fetch_sub(&comm->outstanding, 1);
}

ncclResult_t ncclGroupStart(void); /* nccl.h leaves their parameters open */
ncclResult_t ncclGroupEnd(void);

DOUBLE_API ncclResult_t ncclGroupStart(void)
{
    FAIL_IF_ASKED("ncclGroupStart");
    memset(&group, 0, sizeof(group));
    group.begun = true;
    return ncclSuccess;
}

/* One from each rank, in place, in the order of ranks. */
DOUBLE_API ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count,
                                      ncclDataType_t type, int root, ncclComm_t comm,
                                      cudaStream_t stream)
{
    bool fails = double_enter("ncclBroadcast") >= DOUBLE_FAILS || !ready(comm, "ncclBroadcast");
    fails |= type != ncclInt8 || count == 0 || count > ROOM || send != receive || !group.begun ||
             root != group.count || root >= comm->ranks || comm->ranks > RANKS;
    if (fails) {
        group.wrong = true;
        return ncclInvalidArgument;
    }
    group.comm = comm;
    group.stream = stream;
    group.parts[group.count++] = (part){double_inside(receive), count};
    return ncclSuccess;
}

DOUBLE_API ncclResult_t ncclGroupEnd(void)
{
    int fault = double_enter("ncclGroupEnd");
    bool begun = group.begun;
    group.begun = false;
    if (!begun || group.wrong || group.comm == NULL || group.count != group.comm->ranks)
        return ncclInvalidUsage;
    if (fault == DOUBLE_FAILS || fault == DOUBLE_STICKS)
        return ncclSystemError;
    struct ncclComm *comm = group.comm;
    gather *g = malloc(sizeof(*g));
    *g = (gather){.comm = comm, .number = comm->rounds++, .fault = fault};
    memcpy(g->parts, group.parts, sizeof(g->parts));
    atomic_fetch_add(&comm->outstanding, 1);
    return do_later(comm, run_gather, g, (double_stream *)group.stream,
                    fault == DOUBLE_FAILS_LATER);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void free_comm(struct ncclComm *comm)
{
    while (atomic_load(&comm->opening) || atomic_load(&comm->outstanding) > 0 ||
           atomic_load(&comm->busy))
        nap();
    munmap(comm->map, comm->size);
    double_count(&double_world.figures.communicators, NULL, -1);
    if (atomic_load(&comm->opened))
        double_count(&double_world.figures.nccl_bytes, NULL, -nccl_bytes());
    free(comm);
}

DOUBLE_API ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    FAIL_IF_ASKED("ncclCommFinalize");
    if (!ready(comm, "ncclCommFinalize") || atomic_load(&comm->outstanding) > 0)
        return ncclInvalidUsage;
    return do_later(comm, NULL, NULL, NULL, false);
}

DOUBLE_API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    int fault = double_enter("ncclCommDestroy");
    ready(comm, "ncclCommDestroy");
    free_comm(comm);
    return fault >= DOUBLE_FAILS ? ncclSystemError : ncclSuccess;
}

DOUBLE_API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    double_needs_context("ncclCommAbort");
    double_count(&double_world.figures.aborts, NULL, 1);
    if (double_world.figures.first_abort_ns == 0)
        double_count(&double_world.figures.first_abort_ns, NULL, monotonic_ns());
    if (double_enter("ncclCommAbort") >= DOUBLE_FAILS)
        return ncclSystemError;
    atomic_store(&comm->aborted, true);
    unlink(comm->path);
    free_comm(comm);
    return ncclSuccess;
}
