/* SPDX-License-Identifier: Apache-2.0
 *
 * store_trial.h: tries an object store as a home or an input uses it: what works, how fast, and
 * where its credentials come from. */
#ifndef RKS_MANAGE_STORE_TRIAL_H
#define RKS_MANAGE_STORE_TRIAL_H

#include <stdbool.h>

/* A finding, as rks_doctor_json lists them. `advice` may be NULL. */
typedef void (*rks_trial_fn)(void *user, const char *name, bool ok, const char *advice,
                             const char *value);

/* Tries the store of a URL; waits up to 15 s for each answer. Writes one small object and removes
 * it, and leaves nothing else. */
void rks_store_try(const char *url, rks_trial_fn found, void *user);

#endif
