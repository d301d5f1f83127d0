/* SPDX-License-Identifier: Apache-2.0
 *
 * claim.c: who is about to change a home. */
#include "home/claim.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

enum { HOST_ROOM = 65, TRIES = 4 };

static void name_this_host(char host[HOST_ROOM])
{
    if (gethostname(host, HOST_ROOM) != 0)
        strcpy(host, "unknown");
    host[HOST_ROOM - 1] = '\0';
}

/* Returns true if no process of this host has the number, or only one that waits to be reaped. */
static bool has_ended(long pid)
{
    char path[64], text[512];
    if (kill((pid_t)pid, 0) != 0)
        return errno == ESRCH;
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t size = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[size] = '\0';
    const char *name_end = strrchr(text, ')'); /* the name may hold anything */
    return name_end != NULL &&
           (strncmp(name_end, ") Z", 3) == 0 || strncmp(name_end, ") X", 3) == 0);
}

void rks_claim_write(rks_digest contents, rks_claim *claim)
{
    char digest[RKS_DIGEST_TEXT], host[HOST_ROOM];
    name_this_host(host);
    rks_digest_format(contents, digest);
    claim->size = (size_t)snprintf(claim->text, sizeof(claim->text), "digest %s\npid %ld on %s\n",
                                   digest, (long)getpid(), host);
}

enum rks_claim_holder rks_claim_look(const rks_claim *own, const char *text, size_t size,
                                     char who[RKS_CLAIM_WHO])
{
    char host[HOST_ROOM], named[HOST_ROOM] = "";
    long pid = 0;
    size_t line = strcspn(own->text, "\n") + 1;
    const char *second = size == 0 ? NULL : memchr(text, '\n', size);
    size_t left = second == NULL ? 0 : size - (size_t)(second + 1 - text);
    const char *end = left == 0 ? NULL : memchr(second + 1, '\n', left);
    snprintf(who, RKS_CLAIM_WHO, "%.*s", end == NULL ? 0 : (int)(end - second - 1),
             end == NULL ? "" : second + 1);
    if (size == own->size && memcmp(text, own->text, size) == 0)
        return RKS_CLAIM_OURS;
    if (size >= line && memcmp(text, own->text, line) == 0)
        return RKS_CLAIM_SAME;
    name_this_host(host);
    bool here = sscanf(who, "pid %ld on %64s", &pid, named) == 2 && strcmp(named, host) == 0;
    return here && pid > 0 && has_ended(pid) ? RKS_CLAIM_ENDED : RKS_CLAIM_OTHER;
}

rks_status rks_claim_refuse(const char *home, const char *name, const char *who, rks_error *err)
{
    return rks_fail(err, RKS_ERR_STATE, EEXIST,
                    "%s: another process changes this home (%s); wait for it, or if it no longer "
                    "runs remove %s there",
                    home, who[0] == '\0' ? "its pid is not known" : who, name);
}

static rks_status give_claim(void *user, uint64_t first, uint8_t *to, size_t size, rks_error *err)
{
    (void)err;
    memcpy(to, ((const rks_claim *)user)->text + first, size);
    return RKS_OK;
}

/* Looks at the claim that is there. *again: it has gone. */
static rks_status meet(rks_home *home, const rks_claim *own, rks_held_claim *claim, bool *again,
                       rks_error *err)
{
    char *text = NULL, who[RKS_CLAIM_WHO];
    size_t size = 0;
    claim->version[0] = '\0';
    rks_status status =
        rks_home_read_all(home, RKS_HOME_CLAIM, RKS_CLAIM_MOST, &text, &size, claim->version, err);
    *again = status == RKS_ERR_NOT_FOUND;
    if (status != RKS_OK)
        return *again ? RKS_OK : status;
    enum rks_claim_holder holder = rks_claim_look(own, text, size, who);
    rks_free(text);
    claim->held = holder == RKS_CLAIM_OURS || holder == RKS_CLAIM_SAME;
    claim->ours = holder == RKS_CLAIM_OURS;
    if (holder == RKS_CLAIM_OTHER)
        return rks_claim_refuse(home->name, RKS_HOME_CLAIM, who, err);
    *again = holder == RKS_CLAIM_ENDED;
    if (*again)
        status = home->ops->remove(home->state, RKS_HOME_CLAIM, claim->version, err);
    return status == RKS_ERR_STATE ? RKS_OK : status; /* somebody else was faster */
}

void rks_claim_end(rks_home *home, const rks_held_claim *claim, bool done)
{
    rks_error ignored;
    if (claim->held && (claim->ours || done))
        home->ops->remove(home->state, RKS_HOME_CLAIM, claim->version, &ignored);
}

/* A put that failed may have left the claim there, for example not durably. */
static void take_back(rks_home *home, const rks_claim *own)
{
    rks_held_claim claim;
    rks_error ignored;
    bool again = false;
    if (meet(home, own, &claim, &again, &ignored) == RKS_OK && !again)
        rks_claim_end(home, &claim, false);
}

rks_status rks_claim_take(rks_home *home, rks_digest contents, rks_held_claim *claim,
                          rks_error *err)
{
    rks_claim own;
    rks_claim_write(contents, &own);
    const rks_home_bytes bytes = {.size = own.size, .give = give_claim, .user = &own};
    rks_status status = RKS_OK;
    bool again = true;
    for (int tries = 0; status == RKS_OK && again && tries < TRIES; tries++) {
        again = false;
        *claim = (rks_held_claim){.held = true, .ours = true};
        status = home->ops->put(home->state, RKS_HOME_CLAIM, &bytes, RKS_PUT_ABSENT, claim->version,
                                err);
        if (status == RKS_ERR_STATE)
            status = meet(home, &own, claim, &again, err);
    }
    if (status == RKS_OK && again)
        status = rks_claim_refuse(home->name, RKS_HOME_CLAIM, "", err);
    if (status != RKS_OK && status != RKS_ERR_STATE)
        take_back(home, &own);
    if (status != RKS_OK)
        claim->held = false;
    return status;
}
