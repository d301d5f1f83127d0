/* SPDX-License-Identifier: Apache-2.0
 *
 * communicator.c: the few calls of NCCL that the exchange needs.
 *
 * GPU memory  What NCCL takes for itself grows with its channels, so there are two at most, and no
 *             NVLS or CollNet buffers. */
#include "exchange/communicator.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/library_path.h"
#include "exchange/dynamic_symbol.h"
#include "exchange/nccl_calls.h"
#include "exchange/nccl_setting.h"
#include "rankstore/group.h"

#define FIELD(result, name, parameters) result(*name) parameters;
static struct {
    RKS_NCCL_CALLS(FIELD)
} nccl;
#undef FIELD

_Static_assert(sizeof(rks_nccl_id) == RKS_COMMUNICATOR_ID, "an id is 128 bytes");

enum { OLDEST = 21800, POLL_NS = 50 * 1000 };

static const char NAME[] = "libnccl.so.2";

uint32_t rks_communicator_abort_ms = 20000;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *loaded;       /* guarded by mutex */
static char *library_path; /* guarded by mutex */

struct rks_communicator {
    rks_nccl_comm comm;
    rks_gpu *gpu;
    uint32_t ranks;
};

/* ---- loading ------------------------------------------------------------------------------ */

rks_status rks_nccl_library(const char *path, rks_error *err)
{
    char *copy = NULL;
    if (path != NULL && (copy = rks_strdup(path, err)) == NULL)
        return RKS_ERR_MEMORY;
    pthread_mutex_lock(&mutex);
    rks_free(library_path);
    library_path = copy;
    pthread_mutex_unlock(&mutex);
    return RKS_OK;
}

static rks_status find_calls(void *library, rks_error *err)
{
    rks_status status = RKS_OK;
#define FIND(result, name, parameters)                                                             \
    if (status == RKS_OK)                                                                          \
        status = rks_find_call(library, "NCCL", #name, &nccl.name, err);
    RKS_NCCL_CALLS(FIND)
#undef FIND
    return status;
}

/* Finds NVIDIA's Python package in the environment in which this library or its program is
 * installed. */
static void *find_in_own_environment(void)
{
    static const char *const places[] = {"site-packages", "dist-packages"};
    char folder[PATH_MAX], pattern[PATH_MAX + 80];
    uid_t owner;
    void *library = NULL;
    if (!rks_own_folder(folder, &owner))
        return NULL;
    for (size_t i = 0; library == NULL && i < sizeof(places) / sizeof(places[0]); i++) {
        glob_t found;
        snprintf(pattern, sizeof(pattern), "%s/../lib/python3*/%s/nvidia/nccl/lib/%s", folder,
                 places[i], NAME);
        if (glob(pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t at = 0; library == NULL && at < found.gl_pathc; at++)
            if (rks_belongs_to(owner, found.gl_pathv[at]))
                library = dlopen(found.gl_pathv[at], RTLD_NOW | RTLD_LOCAL);
        globfree(&found);
    }
    return library;
}

/* Finds the library. A second copy in a process loads its kernels twice, and a framework imported
 * later may find the wrong one, so a copy that is loaded already is used unless the user names
 * another. */
static void *find_library(void)
{
    const char *named = getenv("RKS_NCCL_LIBRARY");
    if (named != NULL)
        return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    void *library = dlopen(NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL && library_path != NULL)
        library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        library = find_in_own_environment();
    return library != NULL ? library : dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
}

static rks_status load_nccl(rks_error *err)
{
    void *library = find_library();
    if (library == NULL) {
        const char *why = dlerror();
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "no NCCL: %s", why != NULL ? why : NAME);
    }
    rks_status status = find_calls(library, err);
    if (status != RKS_OK) {
        dlclose(library);
        return status;
    }
    loaded = library;
    return RKS_OK;
}

static rks_status check(rks_nccl_result result, rks_nccl_comm comm, const char *what,
                        rks_error *err)
{
    if (result == RKS_NCCL_SUCCESS)
        return RKS_OK;
    const char *last = nccl.ncclGetLastError(comm);
    return rks_fail(err, RKS_ERR_IO, (int64_t)result, "NCCL: %s: %s%s%s", what,
                    nccl.ncclGetErrorString(result), last != NULL && last[0] != '\0' ? ": " : "",
                    last != NULL ? last : "");
}

rks_status rks_nccl_load(int *version, rks_error *err)
{
    pthread_mutex_lock(&mutex);
    rks_status status = loaded != NULL ? RKS_OK : load_nccl(err);
    pthread_mutex_unlock(&mutex);
    if (status == RKS_OK)
        status = check(nccl.ncclGetVersion(version), NULL, "its version", err);
    if (status == RKS_OK && *version < OLDEST)
        status = rks_fail(err, RKS_ERR_UNSUPPORTED, *version,
                          "NCCL %d.%d is too old; 2.18 is the oldest that serves", *version / 10000,
                          *version / 100 % 100);
    return status;
}

/* ---- waiting ------------------------------------------------------------------------------ */

/* Returns the result of the last call, or an error that came later. */
static rks_nccl_result state_of(rks_communicator *communicator)
{
    rks_nccl_result result = RKS_NCCL_SUCCESS;
    rks_nccl_result asked = nccl.ncclCommGetAsyncError(communicator->comm, &result);
    return asked != RKS_NCCL_SUCCESS ? asked : result;
}

/* Waits for a call. While NCCL works in the background no other call may be made on the
 * communicator. */
static rks_status wait_for(rks_communicator *communicator, rks_nccl_result result, const char *what,
                           const rks_nccl_patience *patience, rks_error *err)
{
    uint64_t until = rks_now_ms() + patience->limit_ms;
    while (result == RKS_NCCL_IN_PROGRESS) {
        result = state_of(communicator);
        if (result != RKS_NCCL_IN_PROGRESS)
            break;
        rks_status status = patience->look(patience->user, err);
        if (status != RKS_OK)
            return status;
        if (rks_now_ms() >= until)
            return rks_fail(err, RKS_ERR_TIMEOUT, 0, "NCCL: %s: not done within %u ms", what,
                            patience->limit_ms);
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    return check(result, communicator->comm, what, err);
}

/* ---- a communicator's life ------------------------------------------------------------------ */

rks_status rks_communicator_draw_id(uint8_t id[RKS_COMMUNICATOR_ID], rks_error *err)
{
    rks_nccl_id drawn;
    rks_status status = check(nccl.ncclGetUniqueId(&drawn), NULL, "drawing an id", err);
    if (status == RKS_OK)
        memcpy(id, &drawn, sizeof(drawn));
    return status;
}

static rks_nccl_config small_config(void)
{
    return (rks_nccl_config){
        .size = sizeof(rks_nccl_config),
        .magic = (unsigned)RKS_NCCL_MAGIC,
        .version = RKS_NCCL_CONFIG_VERSION,
        .blocking = 0,
        .cga_cluster_size = 1,
        .min_ctas = 1,
        .max_ctas = 2,
        .split_share = RKS_NCCL_UNDEFINED,
        .traffic_class = RKS_NCCL_UNDEFINED,
        .comm_name = "rankstore",
        .collnet_enable = 0,
        .cta_policy = RKS_NCCL_UNDEFINED,
        .shrink_share = RKS_NCCL_UNDEFINED,
        .nvls_ctas = 1,
    };
}

/* Refuses the setting that makes calls block; NCCL prefers its settings to the configuration. */
static rks_status refuse_blocking(rks_error *err)
{
    int64_t wish = 0;
    if (!rks_nccl_setting("NCCL_COMM_BLOCKING", &wish) || wish != 1)
        return RKS_OK;
    return rks_fail(
        err, RKS_ERR_UNSUPPORTED, 0,
        "NCCL_COMM_BLOCKING=1 (%s): a wait for a lost rank could not be ended; set it to "
        "0 in the environment, or use another exchange",
        getenv("NCCL_COMM_BLOCKING") != NULL ? "environment" : "nccl.conf");
}

rks_status rks_communicator_open(rks_gpu *gpu, const uint8_t id[RKS_COMMUNICATOR_ID],
                                 uint32_t ranks, uint32_t rank, const rks_nccl_patience *patience,
                                 rks_communicator **communicator, rks_error *err)
{
    rks_status status = refuse_blocking(err);
    if (status != RKS_OK)
        return status;
    rks_communicator *opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    opened->gpu = gpu;
    opened->ranks = ranks;
    *communicator = opened;
    rks_nccl_id unique;
    memcpy(&unique, id, sizeof(unique));
    rks_nccl_config config = small_config();
    rks_nccl_result result =
        nccl.ncclCommInitRankConfig(&opened->comm, (int)ranks, unique, (int)rank, &config);
    status = wait_for(opened, result, "making the communicator", patience, err);
    if (status == RKS_ERR_TIMEOUT)
        rks_fail(err, status, 0,
                 "NCCL: the communicator was not made within %u s; NCCL_SOCKET_IFNAME names the "
                 "interface by which the nodes reach each other, NCCL_DEBUG=INFO tells more",
                 patience->limit_ms / 1000);
    return status;
}

rks_status rks_communicator_gather(rks_communicator *communicator, uint64_t buffer, uint64_t stride,
                                   const uint64_t *sizes, rks_gpu_stream stream,
                                   const rks_nccl_patience *patience, rks_error *err)
{
    rks_nccl_result result = nccl.ncclGroupStart();
    for (uint32_t i = 0; i < communicator->ranks && result == RKS_NCCL_SUCCESS; i++) {
        void *chunk = (void *)(uintptr_t)(buffer + i * stride);
        result = nccl.ncclBroadcast(chunk, chunk, sizes[i], RKS_NCCL_INT8, (int)i,
                                    communicator->comm, stream);
        if (result == RKS_NCCL_IN_PROGRESS) /* the end of the group shows how it went */
            result = RKS_NCCL_SUCCESS;
    }
    rks_nccl_result ended = nccl.ncclGroupEnd();
    return wait_for(communicator, result != RKS_NCCL_SUCCESS ? result : ended, "a round", patience,
                    err);
}

rks_status rks_communicator_look(rks_communicator *communicator, rks_error *err)
{
    rks_nccl_result result = state_of(communicator);
    return result == RKS_NCCL_IN_PROGRESS ? RKS_OK
                                          : check(result, communicator->comm, "on its way", err);
}

rks_status rks_communicator_close(rks_communicator *communicator, const rks_nccl_patience *patience,
                                  rks_error *err)
{
    rks_nccl_result result = nccl.ncclCommFinalize(communicator->comm);
    rks_status status = wait_for(communicator, result, "finishing", patience, err);
    if (status != RKS_OK)
        return status;
    result = nccl.ncclCommDestroy(communicator->comm);
    rks_free(communicator);
    if (result != RKS_NCCL_SUCCESS && result != RKS_NCCL_IN_PROGRESS) /* no call is in progress */
        rks_log("NCCL: freeing a communicator: %s", nccl.ncclGetErrorString(result));
    return RKS_OK;
}

/* ---- abort ----------------------------------------------------------------------------------- */

/* An abort in a thread of its own, since NCCL's abort can wait for ranks that do not abort. If it
 * does not return, the thread is left running. Whoever lets go last frees this struct. The thread
 * enters the GPU's context; otherwise NCCL would make a context of its own, on GPU 0. */
typedef struct aborting {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    rks_nccl_comm comm;
    rks_gpu *gpu;
    bool done, good;
    bool left; /* the caller no longer waits */
} aborting;

static void aborting_free(aborting *a)
{
    pthread_cond_destroy(&a->cond);
    pthread_mutex_destroy(&a->mutex);
    rks_free(a);
}

static void *abort_main(void *user)
{
    aborting *a = user;
    bool good = rks_gpu_enter(a->gpu, NULL) == RKS_OK;
    if (good) {
        rks_nccl_result result = nccl.ncclCommAbort(a->comm);
        good = result == RKS_NCCL_SUCCESS || result == RKS_NCCL_IN_PROGRESS;
        rks_gpu_leave(a->gpu);
    }
    pthread_mutex_lock(&a->mutex);
    a->done = true;
    a->good = good;
    bool left = a->left;
    pthread_cond_signal(&a->cond);
    pthread_mutex_unlock(&a->mutex);
    if (left)
        aborting_free(a);
    return NULL;
}

static bool wait_aborted(aborting *a)
{
    uint64_t until = rks_now_ms() + rks_communicator_abort_ms;
    pthread_mutex_lock(&a->mutex);
    while (!a->done && rks_now_ms() < until)
        rks_cond_wait_ms(&a->cond, &a->mutex, RKS_WAIT_SLICE_MS);
    bool done = a->done, good = done && a->good;
    a->left = !done;
    pthread_mutex_unlock(&a->mutex);
    if (done)
        aborting_free(a);
    return good;
}

bool rks_communicator_abort(rks_communicator *communicator)
{
    if (communicator == NULL)
        return true;
    rks_nccl_comm comm = communicator->comm;
    rks_gpu *gpu = communicator->gpu;
    rks_free(communicator);
    if (comm == NULL)
        return true;
    aborting *a = rks_alloc(1, sizeof(*a), NULL);
    pthread_t thread;
    if (a == NULL)
        return nccl.ncclCommAbort(comm) == RKS_NCCL_SUCCESS; /* the caller has entered the
                                                              * context */
    a->comm = comm;
    a->gpu = gpu;
    pthread_mutex_init(&a->mutex, NULL);
    rks_cond_init(&a->cond);
    if (pthread_create(&thread, NULL, abort_main, a) != 0) {
        aborting_free(a);
        return nccl.ncclCommAbort(comm) == RKS_NCCL_SUCCESS;
    }
    pthread_detach(thread);
    return wait_aborted(a);
}
