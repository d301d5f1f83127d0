/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl.c: NCCL's half of the stand-in. The ranks of a communicator share a file, "/tmp/" and its
 * id:
 *
 *   page 0     u64 arrived[rank]: how many all-gathers the rank has brought its part to
 *   then       two halves, used in turn: ROOM bytes of each rank
 *
 * A half is written again only when all have brought their part to the all-gather behind it, for
 * which they had to be done with it. */
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

enum { PAGE = 4096, ROOM = 16 << 20, NCCL_BYTES = 20 << 20 };

#define FAIL_IF_ASKED(name)                                                                        \
    if (double_enter(name) >= DOUBLE_FAILS)                                                        \
    return ncclSystemError

struct ncclComm {
    int ranks, rank;
    uint8_t *map;
    size_t size;
    uint64_t gathers;       /* put on streams */
    atomic_int outstanding; /* of them not done */
    atomic_bool aborted;
    pthread_t opener;
    bool suspended;
    bool opening; /* the thread has not been joined */
    atomic_int opened;
    char path[64];
};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, NULL);
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
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "gpu-double-%d-%ld", (int)getpid(),
             now.tv_sec * 1000000000 + now.tv_nsec);
    return ncclSuccess;
}

/* Everybody is there when all have brought their part to gather 0, which is nothing. */
static void *open_main(void *user)
{
    struct ncclComm *comm = user;
    atomic_store(arrived(comm, comm->rank), 1);
    for (int rank = 0; rank < comm->ranks && !comm->aborted; rank++)
        while (atomic_load(arrived(comm, rank)) == 0 && !comm->aborted)
            nap();
    unlink(comm->path);
    double_count(&double_world.figures.nccl_bytes, NULL, NCCL_BYTES);
    atomic_store(&comm->opened, 1);
    return NULL;
}

DOUBLE_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id,
                                               int rank, ncclConfig_t *config)
{
    FAIL_IF_ASKED("ncclCommInitRankConfig");
    if (config->blocking != 0 || config->maxCTAs > 2 || double_thread.pushed == 0)
        return ncclInvalidUsage;
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    comm->ranks = ranks;
    comm->rank = rank;
    comm->size = PAGE + 2 * (size_t)ranks * ROOM;
    snprintf(comm->path, sizeof(comm->path), "/tmp/%.40s", id.internal);
    int file = open(comm->path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)comm->size) != 0)
        abort();
    comm->map = mmap(NULL, comm->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (comm->map == MAP_FAILED)
        abort();
    comm->gathers = 1;
    comm->opening = true;
    pthread_create(&comm->opener, NULL, open_main, comm);
    double_count(&double_world.figures.communicators, NULL, 1);
    *out = comm;
    return ncclInProgress;
}

DOUBLE_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    FAIL_IF_ASKED("ncclCommGetAsyncError");
    *result = atomic_load(&comm->opened) ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}

/* ---- all-gather ------------------------------------------------------------------------------ */

typedef struct gather {
    struct ncclComm *comm;
    const uint8_t *send;
    uint8_t *receive;
    size_t bytes;
    uint64_t number;
    int fault;
} gather;

static void run_gather(void *work)
{
    gather *g = work;
    struct ncclComm *comm = g->comm;
    uint8_t *half = comm->map + PAGE + (g->number % 2) * (size_t)comm->ranks * ROOM;
    memcpy(half + (size_t)comm->rank * ROOM, g->send, g->bytes);
    if (g->fault != DOUBLE_NEVER_DONE)
        atomic_store(arrived(comm, comm->rank), g->number + 1);
    for (int rank = 0; rank < comm->ranks && !comm->aborted; rank++) {
        while (atomic_load(arrived(comm, rank)) <= g->number && !comm->aborted)
            nap();
        if (!comm->aborted)
            memcpy(g->receive + (size_t)rank * g->bytes, half + (size_t)rank * ROOM, g->bytes);
    }
    if (g->fault == DOUBLE_DAMAGES)
        g->receive[g->bytes * (size_t)comm->ranks / 2] ^= 1;
    atomic_fetch_sub(&comm->outstanding, 1);
}

DOUBLE_API ncclResult_t ncclAllGather(const void *send, void *receive, size_t count,
                                      ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    int fault = double_enter("ncclAllGather");
    if (fault == DOUBLE_FAILS)
        return ncclSystemError;
    if (type != ncclInt8 || comm->suspended || count > ROOM ||
        (const uint8_t *)send != (uint8_t *)receive + (size_t)comm->rank * count)
        return ncclInvalidArgument;
    gather *g = malloc(sizeof(*g));
    *g = (gather){comm, send, receive, count, comm->gathers++, fault};
    atomic_fetch_add(&comm->outstanding, 1);
    double_stream_put((double_stream *)stream, run_gather, g);
    return ncclSuccess;
}

DOUBLE_API ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
    FAIL_IF_ASKED("ncclCommSuspend");
    if (flags != 1 || comm->suspended || atomic_load(&comm->outstanding) > 0)
        return ncclInvalidUsage;
    comm->suspended = true;
    double_count(&double_world.figures.nccl_bytes, NULL, -NCCL_BYTES);
    return ncclSuccess;
}

DOUBLE_API ncclResult_t ncclCommResume(ncclComm_t comm)
{
    FAIL_IF_ASKED("ncclCommResume");
    if (!comm->suspended)
        return ncclInvalidUsage;
    comm->suspended = false;
    double_count(&double_world.figures.nccl_bytes, NULL, NCCL_BYTES);
    return ncclSuccess;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void free_comm(struct ncclComm *comm)
{
    if (comm->opening)
        pthread_join(comm->opener, NULL);
    while (atomic_load(&comm->outstanding) > 0)
        nap();
    munmap(comm->map, comm->size);
    double_count(&double_world.figures.communicators, NULL, -1);
    if (atomic_load(&comm->opened) && !comm->suspended)
        double_count(&double_world.figures.nccl_bytes, NULL, -NCCL_BYTES);
    free(comm);
}

DOUBLE_API ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    FAIL_IF_ASKED("ncclCommFinalize");
    return atomic_load(&comm->outstanding) > 0 ? ncclInvalidUsage : ncclSuccess;
}

DOUBLE_API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    int fault = double_enter("ncclCommDestroy");
    free_comm(comm);
    return fault >= DOUBLE_FAILS ? ncclSystemError : ncclSuccess;
}

DOUBLE_API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    double_enter("ncclCommAbort");
    atomic_store(&comm->aborted, true);
    unlink(comm->path);
    free_comm(comm);
    return ncclSuccess;
}
