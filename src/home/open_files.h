/* SPDX-License-Identifier: Apache-2.0
 *
 * open_files.h: files of a home that stay open between reads: on a network file system opening and
 * closing cost as much as two reads. An open file is of one version, also if its name leads to
 * another one by now. */
#ifndef RKS_HOME_OPEN_FILES_H
#define RKS_HOME_OPEN_FILES_H

#include <pthread.h>

#include "home/home.h"

enum { RKS_OPEN_FILES_MOST = 32 };

typedef struct rks_open_file {
    char *name; /* NULL: the place is free */
    char version[RKS_HOME_VERSION];
    int fd;
    uint32_t users;
    uint64_t used; /* when it was last taken, in takes */
    bool failed;   /* nobody takes it any more */
} rks_open_file;

typedef struct rks_open_files {
    pthread_mutex_t mutex;
    rks_open_file all[RKS_OPEN_FILES_MOST];
    uint64_t takes;
} rks_open_files;

/* Returns 0 or an errno value. */
int rks_open_files_begin(rks_open_files *files);
/* Nobody uses any. */
void rks_open_files_end(rks_open_files *files);
/* Returns the open file of that name and version, or NULL. Give it back with _leave. */
rks_open_file *rks_open_files_take(rks_open_files *files, const char *name, const char *version);
/* `failed`: a read of it did, so that the next one opens it anew. */
void rks_open_files_leave(rks_open_files *files, rks_open_file *file, bool failed);
/* Keeps `fd`, or closes it; the file used longest ago makes room. */
void rks_open_files_keep(rks_open_files *files, const char *name, const char *version, int fd);

#endif
