/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_module.c: what Rankstore needs of MPI, as a module of its own: the start of a job and the
 * exchange's messages. The only file that includes mpi.h. Calls are serialised by a mutex; MPI is
 * initialised with at least MPI_THREAD_SERIALIZED, by us only if nobody has, and finalised only if
 * we initialised it and nothing failed: a finalise waits for ranks that may be gone. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"

enum { BOOTSTRAP_TAG = 1000, MESSAGE_TAG = 2000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static MPI_Comm comm = MPI_COMM_NULL; /* guarded by mutex */
static int rank, size;
static rks_status (*interrupted)(rks_error *err); /* the host's function; set when the module is
                                                   * loaded */
static pid_t ours;                                /* set if this process initialised MPI; else 0 */
static bool abandoned;                            /* a call failed: never finalise */
static int users;                                 /* open bootstraps; guarded by mutex */

static rks_status mpi_fail(rks_error *err, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    return rks_fail(err, RKS_ERR_PEER, code, "%s: %.*s", what, length, text);
}

static rks_status start_mpi(rks_error *err)
{
    int begun = 0, provided = MPI_THREAD_SINGLE;
    MPI_Initialized(&begun);
    if (!begun) {
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
        if (code != MPI_SUCCESS)
            return mpi_fail(err, code, "MPI_Init_thread");
        ours = getpid();
    } else {
        MPI_Query_thread(&provided);
    }
    if (provided < MPI_THREAD_SERIALIZED)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "MPI was initialised without threads; use MPI_THREAD_SERIALIZED or more");
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (code != MPI_SUCCESS)
        return mpi_fail(err, code, "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    return RKS_OK;
}

/* ---- the start's all-gather ------------------------------------------------------------------ */

typedef struct gathering {
    MPI_Request *sends, *receives;
    uint8_t *record; /* a copy, since MPI may still read it after a timeout */
} gathering;

static bool all_arrived(gathering *g, int *missing)
{
    bool all = true;
    for (int other = size - 1; other >= 0; other--) {
        int done = 1, sent = 1;
        if (other == rank)
            continue;
        MPI_Test(&g->receives[other], &done, MPI_STATUS_IGNORE);
        MPI_Test(&g->sends[other], &sent, MPI_STATUS_IGNORE);
        if (!done || !sent) {
            all = false;
            *missing = other;
        }
    }
    return all;
}

static rks_status wait_all(gathering *g, uint32_t timeout_ms, rks_error *err)
{
    uint64_t until = rks_now_ms() + timeout_ms;
    struct timespec nap = {0, 50000};
    for (;;) {
        int missing = -1;
        pthread_mutex_lock(&mutex);
        bool done = all_arrived(g, &missing);
        pthread_mutex_unlock(&mutex);
        if (done)
            return RKS_OK;
        rks_status status = interrupted(err);
        if (status != RKS_OK)
            return status;
        if (rks_now_ms() >= until) {
            rks_fail(err, RKS_ERR_TIMEOUT, 0, "did not come within %u ms", timeout_ms);
            if (err != NULL)
                err->rank = missing;
            return RKS_ERR_TIMEOUT;
        }
        nanosleep(&nap, NULL);
    }
}

static rks_status gather_records(void *user, const void *record, size_t bytes, void *all,
                                 uint32_t timeout_ms, rks_error *err)
{
    (void)user;
    if (bytes > RKS_RECORD_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "a record of %zu bytes", bytes);
    gathering g = {
        .sends = rks_alloc((size_t)size, sizeof(*g.sends), err),
        .receives = rks_alloc((size_t)size, sizeof(*g.receives), err),
        .record = rks_alloc((size_t)size + 1, bytes, err), /* our record, then what is received */
    };
    rks_status status =
        g.sends == NULL || g.receives == NULL || g.record == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK) {
        memcpy(g.record, record, bytes);
        pthread_mutex_lock(&mutex);
        for (int other = 0; other < size; other++) {
            if (other == rank)
                continue;
            MPI_Irecv(g.record + ((size_t)other + 1) * bytes, (int)bytes, MPI_BYTE, other,
                      BOOTSTRAP_TAG, comm, &g.receives[other]);
            MPI_Isend(g.record, (int)bytes, MPI_BYTE, other, BOOTSTRAP_TAG, comm, &g.sends[other]);
        }
        pthread_mutex_unlock(&mutex);
        status = wait_all(&g, timeout_ms, err);
        if (status != RKS_OK) {
            abandoned = true;
            return status; /* MPI still owns the buffers */
        }
        memcpy(g.record + ((size_t)rank + 1) * bytes, record, bytes);
        memcpy(all, g.record + bytes, (size_t)size * bytes);
    }
    rks_free(g.sends);
    rks_free(g.receives);
    rks_free(g.record);
    return status;
}

static void close_bootstrap(void *user)
{
    (void)user;
    pthread_mutex_lock(&mutex);
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (--users == 0 && !abandoned && !finalized) {
        MPI_Comm_free(&comm);
        comm = MPI_COMM_NULL;
    }
    pthread_mutex_unlock(&mutex);
}

/* Finalises MPI once, however many groups there were, in a process that ends in order. */
static void at_exit(void)
{
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (ours == getpid() && !abandoned && !finalized) /* not in a forked child */
        MPI_Finalize();
}

static rks_status open_bootstrap(rks_bootstrap *bootstrap, rks_error *err)
{
    static bool registered;
    rks_status status = RKS_OK;
    pthread_mutex_lock(&mutex);
    if (comm == MPI_COMM_NULL)
        status = start_mpi(err);
    if (status == RKS_OK && !registered)
        registered = atexit(at_exit) == 0;
    if (status == RKS_OK)
        users++;
    pthread_mutex_unlock(&mutex);
    if (status != RKS_OK)
        return status;
    *bootstrap = (rks_bootstrap){
        .struct_size = sizeof(*bootstrap),
        .name = "mpi",
        .rank = (uint32_t)rank,
        .size = (uint32_t)size,
        .allgather = gather_records,
        .close = close_bootstrap,
    };
    return RKS_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

static rks_status post(bool sending, uint32_t other, int tag, void *bytes, size_t count,
                       void **handle, rks_error *err)
{
    if (count > INT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "an MPI message of %zu bytes", count);
    MPI_Request *request = rks_alloc(1, sizeof(*request), err);
    if (request == NULL)
        return RKS_ERR_MEMORY;
    pthread_mutex_lock(&mutex);
    int code =
        sending
            ? MPI_Isend(bytes, (int)count, MPI_BYTE, (int)other, MESSAGE_TAG + tag, comm, request)
            : MPI_Irecv(bytes, (int)count, MPI_BYTE, (int)other, MESSAGE_TAG + tag, comm, request);
    pthread_mutex_unlock(&mutex);
    if (code != MPI_SUCCESS) {
        rks_free(request);
        return mpi_fail(err, code, sending ? "MPI_Isend" : "MPI_Irecv");
    }
    *handle = request;
    return RKS_OK;
}

static rks_status post_send(uint32_t to, int tag, const void *bytes, size_t count, void **handle,
                            rks_error *err)
{
    return post(true, to, tag, (void *)(uintptr_t)bytes, count, handle, err);
}

static rks_status post_receive(uint32_t from, int tag, void *bytes, size_t count, void **handle,
                               rks_error *err)
{
    return post(false, from, tag, bytes, count, handle, err);
}

static rks_status test_message(void *handle, bool *done, rks_error *err)
{
    int finished = 0;
    pthread_mutex_lock(&mutex);
    int code = MPI_Test(handle, &finished, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&mutex);
    if (code != MPI_SUCCESS)
        return mpi_fail(err, code, "MPI_Test");
    if (finished)
        rks_free(handle);
    *done = finished != 0;
    return RKS_OK;
}

static void abandon(void)
{
    abandoned = true;
}

/* Copies the text up to the first comma; after it come the packager and the date. */
static void name_library(char *text, size_t room)
{
    char whole[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(whole, &length) != MPI_SUCCESS)
        whole[0] = '\0';
    whole[strcspn(whole, ",\n")] = '\0';
    snprintf(text, room, "%s", whole[0] == '\0' ? "of unknown version" : whole);
}

RKS_API const rks_mpi_ops *rks_mpi_module(rks_status (*check_interrupt)(rks_error *err));

const rks_mpi_ops *rks_mpi_module(rks_status (*check_interrupt)(rks_error *err))
{
    static const rks_mpi_ops ops = {
        .version = RKS_MPI_OPS_VERSION,
        .open = open_bootstrap,
        .send = post_send,
        .receive = post_receive,
        .test = test_message,
        .abandon = abandon,
        .library = name_library,
    };
    interrupted = check_interrupt;
    return &ops;
}
