/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_load.c: the MPI module, found and loaded when it is wanted. Nothing else knows of MPI. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/internal.h"

static const char NAME[] = "librankstore_mpi.so";

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const rks_mpi_ops *loaded; /* guarded by mutex */
static rks_error load_error;      /* guarded by mutex */

bool rks_mpi_detected(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL;
}

/* RTLD_GLOBAL: Open MPI's own plugins look for its symbols. */
static void *try_path(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

/* Where the user says; beside this library or program; one folder over, as in a build tree; the
 * system's path. */
static void *find_module(void)
{
    static const char *const places[] = {"%s/%s",
                                         "%s/mpi/%s",
                                         "%s/../src/mpi/%s",
                                         "%s/../../src/mpi/%s",
                                         "%s/../../../src/mpi/%s",
                                         "%s/../lib/%s"};
    const char *named = getenv("RKS_MPI_MODULE");
    if (named != NULL)
        return try_path(named);
    Dl_info self;
    void *module = NULL;
    if (dladdr((void *)(uintptr_t)rks_mpi_load, &self) != 0 && self.dli_fname != NULL) {
        const char *slash = strrchr(self.dli_fname, '/');
        char folder[4096], path[4200];
        snprintf(folder, sizeof(folder), "%.*s", slash == NULL ? 1 : (int)(slash - self.dli_fname),
                 slash == NULL ? "." : self.dli_fname);
        for (size_t i = 0; module == NULL && i < sizeof(places) / sizeof(places[0]); i++) {
            /* The formats are the constants above. */
            size_t used = (size_t)(strchr(places[i] + 2, '%') - places[i] - 2);
            snprintf(path, sizeof(path), "%s%.*s%s", folder, (int)used, places[i] + 2, NAME);
            module = try_path(path);
        }
    }
    return module != NULL ? module : try_path(NAME);
}

static void load(void)
{
    void *module = find_module();
    if (module == NULL) {
        const char *why = dlerror();
        rks_fail(&load_error, RKS_ERR_UNSUPPORTED, 0, "the MPI module cannot be loaded: %s",
                 why == NULL ? NAME : why);
        return;
    }
    rks_mpi_module_fn entry = NULL;
    void *symbol = dlsym(module, "rks_mpi_module");
    memcpy(&entry, &symbol, sizeof(entry)); /* ISO C has no cast from data to function */
    const rks_mpi_ops *ops = entry == NULL ? NULL : entry(rks_check_interrupt);
    if (ops == NULL || ops->version != RKS_MPI_OPS_VERSION) {
        rks_fail(&load_error, RKS_ERR_UNSUPPORTED, 0, "%s: is of another version", NAME);
        dlclose(module);
        return;
    }
    loaded = ops;
}

const rks_mpi_ops *rks_mpi_load(rks_error *err)
{
    pthread_mutex_lock(&mutex);
    if (loaded == NULL && load_error.status == RKS_OK)
        load();
    const rks_mpi_ops *ops = loaded;
    if (ops == NULL && err != NULL)
        *err = load_error;
    pthread_mutex_unlock(&mutex);
    return ops;
}

void rks_mpi_abandon(void)
{
    pthread_mutex_lock(&mutex);
    if (loaded != NULL)
        loaded->abandon();
    pthread_mutex_unlock(&mutex);
}
