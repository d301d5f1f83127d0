/* SPDX-License-Identifier: Apache-2.0
 *
 * patience.h: how long a home is waited for, and who is heard meanwhile. A thread that waits in a
 * system call of a file system that hangs cannot be ended. So such calls are made on a thread of
 * their own (base/file_wait.h), which is left behind when the wait is over. */
#ifndef RKS_HOME_PATIENCE_H
#define RKS_HOME_PATIENCE_H

#include "base/file_wait.h"

typedef struct rks_home_limits {
    uint32_t stall_ms; /* without a byte until a request is made again; 0: 15 s */
    uint32_t tell_ms;  /* until a line on stderr names the home, and between such lines; 0: 60 s */
    uint32_t timeout_ms; /* until a request that fails, or a file system that hangs, is an error;
                          * 0: 5 min */
    uint32_t hang_ms;    /* until a local file system that hangs is one; 0: 5 min */
    /* Asked every 100 ms beside the interrupt callback, on the waiting thread; anything but RKS_OK
     * ends the wait with it. NULL: not asked. */
    rks_status (*must_stop)(void *user, rks_error *err);
    void *user;
    bool objects;        /* of a store whose files are inputs: rks_home_objects */
    uint32_t requests;   /* to begin with, if the home is an object store; 0: as many as it can */
    const char *options; /* for the store: a JSON object, with secrets; NULL: none */
} rks_home_limits;

/* Puts the defaults in the place of zeros. */
void rks_home_limits_fill(rks_home_limits *limits);

/* Runs file work (its run, drop and state) with these limits, and returns its status. `what` is
 * named by the line that says what is waited for: "/mnt/home: a.rks". RKS_ERR_TIMEOUT: the file
 * system did not answer for limits->timeout_ms. The interrupt callback and must_stop end the wait,
 * too. *left as in rks_file_wait. */
rks_status rks_home_wait(const rks_home_limits *limits, const char *what, const rks_file_work *work,
                         bool *left, rks_error *err);

#endif
