/* SPDX-License-Identifier: Apache-2.0
 *
 * directory_calls.h: the calls of a home that is a directory for which a thread waits: put, list,
 * remove. The file system's part (directory_files.h) runs on a thread of its own, which is left
 * behind if it hangs (patience.h); `give` and `each` are called on the caller's thread. What was
 * left may still come to its end later: a file that was put by then is whole, as ever.
 *
 * Once a call was left, or a read, those that follow, as to clear up, wait for a second only: until
 * it comes back, the file system is not expected to answer. */
#ifndef RKS_HOME_DIRECTORY_CALLS_H
#define RKS_HOME_DIRECTORY_CALLS_H

#include "home/home.h"

typedef struct rks_directory_calls rks_directory_calls;

/* `path` is copied, as `limits` is, which has no zeros in it. The caller owns *calls. */
rks_status rks_directory_calls_begin(const char *path, const rks_home_limits *limits,
                                     rks_directory_calls **calls, rks_error *err);
/* What was left keeps what it needs. NULL is accepted. */
void rks_directory_calls_end(rks_directory_calls *calls);

/* A read of the home hangs (1), or has come back (-1). */
void rks_directory_calls_note(rks_directory_calls *calls, int reads);

/* As in rks_home_ops. RKS_ERR_TIMEOUT: the file system hangs. */
rks_status rks_directory_call_put(rks_directory_calls *calls, const char *name,
                                  const rks_home_bytes *bytes, enum rks_put_rule rule,
                                  char version[RKS_HOME_VERSION], rks_error *err);
rks_status rks_directory_call_list(rks_directory_calls *calls, const char *prefix,
                                   rks_home_listed_fn each, void *user, rks_error *err);
rks_status rks_directory_call_drop(rks_directory_calls *calls, const char *name,
                                   const char *version, rks_error *err);

#endif
