/* SPDX-License-Identifier: Apache-2.0
 *
 * helper_process.h: the process of a helper: how it starts and ends. It is started by exec, in a
 * session of its own, with four descriptors: the socket as its input and output, a pipe for what it
 * says on standard error, and the memory of the slots. No thread of it is in this process, which
 * may fork workers. */
#ifndef RKS_HOME_HELPER_PROCESS_H
#define RKS_HOME_HELPER_PROCESS_H

#include <sys/types.h>

#include "rankstore/base.h"

enum { RKS_HELPER_SAID = 4096 };

typedef struct rks_helper_process {
    pid_t pid;                  /* 0: none */
    int handle;                 /* a pidfd; -1: this kernel has none */
    int socket, errors, memory; /* ours; none blocks */
    const uint8_t *slots; /* `memory`, mapped; NULL: the helper could cut it, so it is only read */
    uint64_t slots_size;
    char said[RKS_HELPER_SAID]; /* the end of what came on standard error */
    size_t said_size;
} rks_helper_process;

/* Sets the program that is used if RKS_HOME_HELPER names none, with its arguments; they are copied.
 * NULL: none, as at first. */
rks_status rks_helper_set_program(const char *const *arguments, rks_error *err);

/* Starts a helper with `memory` bytes for slots. RKS_ERR_UNSUPPORTED: there is no program. */
rks_status rks_helper_start(const char *home, uint64_t memory, rks_helper_process *helper,
                            rks_error *err);
/* Keeps what came on standard error. Returns false at its end. */
bool rks_helper_hear_errors(rks_helper_process *helper);
/* Returns what it said last there, as one line of whole words, in `text`. */
void rks_helper_last_words(const rks_helper_process *helper, char text[RKS_HELPER_SAID + 1]);
/* Ends it: closes its input, waits at most `patience_ms` for it to end by itself, kills it, and
 * reaps it. The memory is gone with it: what a helper that cannot be killed writes into it is read
 * by nobody. `how`: "exit status 1", "signal 9". */
void rks_helper_end(rks_helper_process *helper, uint32_t patience_ms, char *how, size_t room);

#endif
