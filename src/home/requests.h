/* SPDX-License-Identifier: Apache-2.0
 *
 * requests.h: an open home, and reads of it for threads that may wait: asked again when they stall
 * or fail, reported when they take long, and ended when the caller is interrupted. */
#ifndef RKS_HOME_REQUESTS_H
#define RKS_HOME_REQUESTS_H

#include "home/home.h"

typedef struct rks_home_spares rks_home_spares;

typedef struct rks_home {
    const rks_home_ops *ops;
    void *state; /* of the ops */
    char *name;  /* for messages and files */
    rks_home_limits limits;
    rks_home_spares *spares; /* memory that loans have given back; NULL: none is kept */
} rks_home;

/* Opens the home that `url` names, which may be a path (address.h). Does not look whether it is
 * there. `limits` may be NULL. */
rks_status rks_home_open(const char *url, const rks_home_limits *limits, rks_home **home,
                         rks_error *err);
/* Waits at most a second for reads that hang. NULL is accepted. */
void rks_home_close(rks_home *home);

/* The calls below wait. Any thread, several at once. `version` (RKS_HOME_VERSION bytes) is the one
 * wanted, or ""; out: the one read. They fail with
 * RKS_ERR_NOT_FOUND  there is no such file
 * RKS_ERR_STATE      it has another version than the wanted one
 * RKS_ERR_CORRUPT    it is shorter than the range, or larger than `most`, three times
 * RKS_ERR_TIMEOUT    no try within the limit succeeded; names the home, the tries and the last
 * error RKS_ERR_IO         this user may not read it RKS_ERR_CANCELLED, or what `must_stop` says.
 */
rks_status rks_home_size(rks_home *home, const char *name, uint64_t *size, char *version,
                         rks_error *err);
/* A whole file of at most `most` bytes, and a NUL after it. Free *bytes with rks_free. */
rks_status rks_home_read_all(rks_home *home, const char *name, size_t most, char **bytes,
                             size_t *size, char *version, rks_error *err);
/* Files whose names begin with `prefix`; see rks_home_ops. Fails as its `list` does. */
rks_status rks_home_list(rks_home *home, const char *prefix, rks_home_listed_fn each, void *user,
                         rks_error *err);
/* Bytes where they have come, so that nothing copies them. */
typedef struct rks_home_loan {
    uint8_t *bytes; /* NULL: none */
    rks_home *home;
} rks_home_loan;

/* The bytes [first, end) of a file. Give *loan back before the home is closed. */
rks_status rks_home_borrow(rks_home *home, const char *name, uint64_t first, uint64_t end,
                           char *version, rks_home_loan *loan, rks_error *err);
void rks_home_give_back(rks_home_loan *loan); /* {0} is accepted */
/* The same, copied to `to`. */
rks_status rks_home_fetch(rks_home *home, const char *name, uint64_t first, uint64_t end, void *to,
                          char *version, rks_error *err);

#endif
