/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_load.c: finds and loads the MPI module on first use. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/library_path.h"
#include "group/group_state.h"

static const char NAME[] = "librankstore_mpi.so";
static const char LIBRARY[] = "libmpi.so.40"; /* of Open MPI 3 to 5 */

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

/* Loads the file that RKS_MPI_MODULE names. If it is not set, tries the places relative to this
 * library: beside it, then where an installation and a build put the module. Folder and file must
 * belong to root, to this user or to the library's owner. Never uses the working directory or a
 * search path. */
static void *find_module(void)
{
    static const char *const places[] = {"/",
                                         "/../lib/",
                                         "/../share/rankstore/",
                                         "/mpi/",
                                         "/../src/mpi/",
                                         "/../../src/mpi/",
                                         "/../../../src/mpi/"};
    const char *named = getenv("RKS_MPI_MODULE");
    char folder[PATH_MAX], path[PATH_MAX + 64];
    uid_t owner;
    void *module = NULL;
    if (named != NULL)
        return try_path(named);
    if (!rks_own_folder(folder, &owner))
        return NULL;
    for (size_t i = 0; module == NULL && i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", folder, places[i]);
        if (!rks_belongs_to(owner, path))
            continue;
        strcat(path, NAME);
        module = rks_belongs_to(owner, path) ? try_path(path) : NULL;
    }
    return module;
}

static void load(void)
{
    (void)dlerror(); /* clear the error of an earlier load by this thread */
    void *module = find_module();
    char first[sizeof(load_error.text)];
    const char *why = module == NULL ? dlerror() : NULL; /* NULL: there is no such file */
    snprintf(first, sizeof(first), "%s",
             why == NULL ? "there is no librankstore_mpi.so beside the library" : why);
    bool said = why == NULL || getenv("RKS_MPI_MODULE") != NULL; /* the file exists, so it lacks a
                                                                  * library */
    /* A wheel's module links to no MPI library. Load the one that the launcher's environment finds.
     */
    if (module == NULL && dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL) != NULL)
        module = find_module();
    if (module == NULL) {
        why = dlerror();
        rks_fail(&load_error, RKS_ERR_UNSUPPORTED, 0, "the MPI module cannot be loaded: %s",
                 said || why == NULL ? first : why);
        return;
    }
    rks_mpi_module_fn entry = NULL;
    void *symbol = dlsym(module, "rks_mpi_module");
    memcpy(&entry, &symbol, sizeof(entry)); /* ISO C has no cast from data to function */
    const rks_mpi_ops *ops = entry == NULL ? NULL : entry(rks_check_interrupt);
    if (ops == NULL || ops->version != RKS_MPI_OPS_VERSION) {
        rks_fail(&load_error, RKS_ERR_UNSUPPORTED, 0,
                 "%s belongs to another version of Rankstore; install both from one build", NAME);
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
