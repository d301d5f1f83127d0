/* SPDX-License-Identifier: Apache-2.0
 *
 * known_version.c: ranges of one version of a file. */
#include "home/known_version.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all texts */

static void set_version(rks_known_version *known, const char *text)
{
    pthread_mutex_lock(&mutex);
    strcpy(known->text, text);
    pthread_mutex_unlock(&mutex);
}

rks_status rks_known_version_borrow(rks_known_version *known, rks_home *home, const char *name,
                                    uint64_t first, uint64_t end, rks_home_loan *loan,
                                    rks_error *err)
{
    char version[RKS_HOME_VERSION];
    pthread_mutex_lock(&mutex);
    strcpy(version, known->text);
    pthread_mutex_unlock(&mutex);
    bool was_known = version[0] != '\0';
    rks_status status = rks_home_borrow(home, name, first, end, version, loan, err);
    if (status == RKS_ERR_STATE && was_known) {
        version[0] = '\0';
        status = rks_home_borrow(home, name, first, end, version, loan, err);
        was_known = false;
    }
    if (status == RKS_OK && !was_known)
        set_version(known, version);
    return status;
}
