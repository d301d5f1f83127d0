/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/base.h: status, errors, version, and what a long call tells. Part of rankstore.h. */
#ifndef RANKSTORE_BASE_H
#define RANKSTORE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RKS_API __attribute__((visibility("default")))

/* Values are part of the interface: append, never renumber. */
typedef enum rks_status {
    RKS_OK = 0,
    RKS_ERR_ARGUMENT = -1,     /* the caller broke a rule of this header */
    RKS_ERR_MEMORY = -2,       /* an allocation or a mapping failed */
    RKS_ERR_IO = -3,           /* disk, file system, network or another system resource */
    RKS_ERR_CORRUPT = -4,      /* bytes that do not match their checksum or format */
    RKS_ERR_PEER = -5,         /* another rank failed or went away */
    RKS_ERR_TIMEOUT = -6,      /* a rank was silent, or a limit that the user set is over */
    RKS_ERR_STATE = -7,        /* the call does not fit what was called before */
    RKS_ERR_NOT_FOUND = -8,    /* no such key, file or dataset */
    RKS_ERR_DATA = -9,         /* input that cannot be taken: malformed, duplicate, too large */
    RKS_ERR_UNSUPPORTED = -10, /* a feature this build, machine or format version lacks */
    RKS_ERR_CANCELLED = -11,   /* the interrupt callback asked for an end */
} rks_status;

/* What went wrong and where; 256 bytes. It holds no pointers, so it is copied between
 * threads and sent between ranks as it is. */
typedef struct rks_error {
    int32_t status;       /* rks_status */
    int32_t rank;         /* where it happened; -1 if not known */
    int64_t cause;        /* errno, LMDB, MPI or NCCL code; 0 if there is none */
    char host[32];        /* the rank's host, shortened; empty if not known */
    char text[192];       /* one line, always terminated, UTF-8 */
    uint8_t reserved[16]; /* zero */
} rks_error;

/* "0.1.0". Static. */
RKS_API const char *rks_version(void);

/* "corrupt", "peer failed", ... one or two words. Static; "unknown" for other numbers. */
RKS_API const char *rks_status_name(rks_status status);

/* Frees memory that a call of this header handed out as "free with rks_release".
 * NULL is accepted. */
RKS_API void rks_release(void *memory);

/* Asked by every waiting call and by long computations (plans), in the calling thread, at least
 * each 100 ms; non-zero ends the call with RKS_ERR_CANCELLED. Process-wide. NULL removes it. */
typedef int (*rks_interrupt_fn)(void *user);
RKS_API void rks_set_interrupt(rks_interrupt_fn interrupt, void *user);

#ifdef __cplusplus
}
#endif

#endif
