/* SPDX-License-Identifier: Apache-2.0
 *
 * claim.h: a small file at home by which one publisher knows of another. Who changes a home,
 * publish or prune, first puts the claim, if it is not there, and removes it at the end:
 *
 *   digest 0123...        of the contents that dataset.json gets
 *   pid 123 on HOST
 *   space BOOT-NUMBER     where that pid means something: the kernel's boot, and the pid namespace
 *
 * A claim for other contents ends whoever finds it, unless its holder was a process of the same
 * space that has ended. For the same contents it does the same work: who finds it waits for a
 * holder of its own space, and takes the claim over from another one, which may have ended. */
#ifndef RKS_HOME_CLAIM_H
#define RKS_HOME_CLAIM_H

#include "base/checksum.h"
#include "home/requests.h"

enum { RKS_CLAIM_MOST = 512, RKS_CLAIM_WHO = 128 };
#define RKS_HOME_CLAIM "dataset.claim"
#define RKS_HOME_MARK "rankstore.home" /* a file that every home has */

typedef struct rks_claim {
    char text[RKS_CLAIM_MOST];
    size_t size;
} rks_claim;

enum rks_claim_holder {
    RKS_CLAIM_OURS,  /* this process, for these contents */
    RKS_CLAIM_TWIN,  /* another one of this space, for these contents */
    RKS_CLAIM_FREE,  /* one that has ended, or of another space for these contents */
    RKS_CLAIM_OTHER, /* for other contents */
};

/* Writes the claim of this process. */
void rks_claim_write(rks_digest contents, rks_claim *claim);
/* Says whose claim a text is, which may be anything; `who`: "pid 123 on HOST", or empty. */
enum rks_claim_holder rks_claim_look(const rks_claim *own, const char *text, size_t size,
                                     char who[RKS_CLAIM_WHO]);
/* Returns true if a text is a claim for the same contents as `own`. */
bool rks_claim_is_same(const rks_claim *own, const char *text, size_t size);
/* Fails with RKS_ERR_STATE: names the holder, and the file to remove if it has ended. */
rks_status rks_claim_refuse(const char *home, const char *name, const char *who, rks_error *err);

/* The claim at home, while it is this process's. */
typedef struct rks_held_claim {
    bool held;
    char version[RKS_HOME_VERSION];
} rks_held_claim;

/* Takes the claim RKS_HOME_CLAIM; may wait for a twin. RKS_ERR_STATE as above. */
rks_status rks_claim_take(rks_home *home, rks_digest contents, rks_held_claim *claim,
                          rks_error *err);
/* Looks whether the claim is still this process's. RKS_ERR_STATE: another one has taken it over. */
rks_status rks_claim_check(rks_home *home, const rks_held_claim *claim, rks_error *err);
/* Removes the claim if it is held. A failure leaves it for the next publisher to find. Asks for no
 * interrupt. */
void rks_claim_end(rks_home *home, rks_held_claim *claim);

#endif
