/* SPDX-License-Identifier: Apache-2.0
 *
 * home.h: a home keeps a dataset whole: the files of its directory, by name. Below this seam are
 * the kinds of homes, which carry bytes; above it are retries, limits, stalls and order
 * (requests.h).
 *
 * Laws, for every kind of home:
 * - No call waits for the home but `put`, `list` and `remove`, which hear interrupts and end with
 *   RKS_ERR_TIMEOUT after limits->timeout_ms without an answer. Any thread may call.
 * - `done` is called once for each read that was started: on a thread of the home, or within
 *   `give_up` or `close`. Until then the home may write into `to` and into the read; so both lie in
 *   memory that outlives a read that hangs. `done` may free them. It must not wait, and nobody may
 *   hold a lock that `done` takes while he gives up or closes.
 * - Success means: all bytes that were asked for, of one version of the file. A read that wants a
 *   version may get it also if another one is there by now; reads of one file are faster if they
 *   name its version.
 * - A home raises no signal and changes no working directory. */
#ifndef RKS_HOME_HOME_H
#define RKS_HOME_HOME_H

#include <stdatomic.h>

#include "home/patience.h"
#include "rankstore/base.h"

/* Room for the text of a version: something that another content of the file does not have. */
enum { RKS_HOME_VERSION = 64 };
enum { RKS_OBJECT_NAME = 1024 };
enum { RKS_HOME_PIECE = 1 << 20 }; /* of what is put */

enum rks_home_kind {
    RKS_HOME_OK,
    RKS_HOME_MISSING, /* there is no file of this name */
    RKS_HOME_CHANGED, /* the file is of another version than the wanted one, or changed meanwhile */
    RKS_HOME_DENIED,  /* this user may not read it, or it is no file */
    RKS_HOME_BUSY,    /* the home asks for fewer requests; only this one ... */
    RKS_HOME_BROKEN,  /* ... and this one are worth another try. The error's status is
                       * RKS_ERR_CORRUPT if the file is shorter than the range, or larger than `end`
                       * of a whole one */
};

/* A range of a file. Set all but what is marked "out" and the last two. */
typedef struct rks_home_read rks_home_read;
struct rks_home_read {
    const char *name;
    uint64_t first, end; /* first == end: only version and size are asked for */
    bool whole;          /* `first` is 0: the file as it is, of at most `end` bytes */
    uint8_t *to;
    char version[RKS_HOME_VERSION]; /* the one wanted, or ""; out: the one read */
    uint64_t size;                  /* out: of the whole file */
    /* `bytes` of the range have come so far; 0: the home has begun with it, for reads wait for each
     * other. On a thread of the home; NULL: not wanted. */
    void (*come)(rks_home_read *read, uint64_t bytes);
    void (*done)(rks_home_read *read, enum rks_home_kind kind, const rks_error *err);
    void *user;
    rks_home_read *next; /* the home's own */
    atomic_bool left;    /* likewise: given up */
};

enum rks_put_rule {
    RKS_PUT_ABSENT, /* only if no file of this name is there */
    RKS_PUT_SAME,   /* only if the file is of the given version */
};

/* What is put. `give` writes the bytes [first, first + size) to `to`: RKS_HOME_PIECE bytes at a
 * time, of which the last may be fewer, in order, from 0 again if the home has to send again, on
 * the caller's thread. Its failure ends the put. */
typedef struct rks_home_bytes {
    uint64_t size;
    rks_status (*give)(void *user, uint64_t first, uint8_t *to, size_t size, rks_error *err);
    void *user;
    /* With RKS_PUT_SAME: the name of a claim (claim.h), the same for all who would make this
     * change. A home that cannot replace a file on a condition makes one there, or finds the
     * caller's. */
    const char *claim;
} rks_home_bytes;

typedef struct rks_home_listed {
    const char *name;
    uint64_t size;
    uint64_t age_s; /* since it was written, by the home's clock */
    char version[RKS_HOME_VERSION];
} rks_home_listed;

/* Anything but RKS_OK ends the listing with that status. */
typedef rks_status (*rks_home_listed_fn)(void *user, const rks_home_listed *file, rks_error *err);

typedef struct rks_home_ops {
    bool far; /* each request takes long before its first byte, and many at once are no burden */
    /* Does not look whether a home is there. `limits` has no zeros (rks_home_limits_fill), and is
     * copied; its user must outlive the home. */
    rks_status (*open)(const char *url, const rks_home_limits *limits, void **home, rks_error *err);
    /* Starts a read. After an error `done` is not called. */
    rks_status (*read)(void *home, rks_home_read *read, rks_error *err);
    /* Ends a read, if it has not ended: its kind becomes RKS_HOME_BROKEN, perhaps long after. */
    void (*give_up)(void *home, rks_home_read *read);
    /* RKS_ERR_STATE if the rule does not hold; the text names who was before, if that is known. A
     * file appears whole and durable, or not at all. `version` is the one that SAME wants; out: the
     * one put. */
    rks_status (*put)(void *home, const char *name, const rks_home_bytes *bytes,
                      enum rks_put_rule rule, char version[RKS_HOME_VERSION], rks_error *err);
    /* Files whose names begin with `prefix`, in any order. It may lag behind what was put: it is
     * for cleaning up and for inputs, and never says what does not exist. */
    rks_status (*list)(void *home, const char *prefix, rks_home_listed_fn each, void *user,
                       rks_error *err);
    /* Removes a file of that version ("": of any). A missing one is fine; RKS_ERR_STATE: it is of
     * another version. */
    rks_status (*remove)(void *home, const char *name, const char *version, rks_error *err);
    /* Gives up all reads and ends. Waits at most `patience_ms` for those that hang. */
    void (*close)(void *home, uint32_t patience_ms);
} rks_home_ops;

/* A directory: a shared file system, or another disk. Its url is the path. Threads of its own read;
 * one that hangs keeps its read, and another one takes its place. */
extern const rks_home_ops rks_home_directory;

/* An object store, which a process of its own reaches for this one (helper.h). Its url is that of
 * the store and of a prefix there. */
extern const rks_home_ops rks_home_helper;

/* The same for a store whose files are inputs: their names have slashes, and at most
 * RKS_OBJECT_NAME bytes, and `list` goes below its prefix. A name from a manifest never gets
 * here. */
extern const rks_home_ops rks_home_objects;

#endif
