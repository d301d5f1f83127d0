/* SPDX-License-Identifier: Apache-2.0
 *
 * claim.c: who is about to change a home. */
#include "home/claim.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/boot_id.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/task_state.h"

enum { HOST_ROOM = 65, SPACE_ROOM = 72, TRIES = 16 };

/* Returns true if no process of this host has the number, or only one that waits to be reaped. */
static bool has_ended(long pid)
{
    if (kill((pid_t)pid, 0) != 0)
        return errno == ESRCH;
    const char state = rks_task_state(pid, 0);
    return state == 'Z' || state == 'X';
}

/* "BOOT-NUMBER" */
static void name_this_space(char space[SPACE_ROOM])
{
    char boot[RKS_BOOT_ID];
    struct stat info = {0};
    const bool known = rks_boot_id(boot);
    stat("/proc/self/ns/pid", &info);
    snprintf(space, SPACE_ROOM, "%s-%llu", known ? boot : "unknown",
             (unsigned long long)info.st_ino);
}

void rks_claim_write(rks_digest contents, rks_claim *claim)
{
    char digest[RKS_DIGEST_TEXT], host[HOST_ROOM], space[SPACE_ROOM];
    if (gethostname(host, sizeof(host)) != 0)
        strcpy(host, "unknown");
    host[HOST_ROOM - 1] = '\0';
    name_this_space(space);
    rks_digest_format(contents, digest);
    claim->size =
        (size_t)snprintf(claim->text, sizeof(claim->text), "digest %s\npid %ld on %s\nspace %s\n",
                         digest, (long)getpid(), host, space);
}

/* Copies the line at *at, and moves *at to the next one. */
static void copy_line(const char **at, const char *end, char *line, size_t room)
{
    const char *newline = *at == end ? NULL : memchr(*at, '\n', (size_t)(end - *at));
    size_t size = newline == NULL ? 0 : (size_t)(newline - *at);
    snprintf(line, room, "%.*s", (int)size, size == 0 ? "" : *at);
    *at = newline == NULL ? end : newline + 1;
}

bool rks_claim_is_same(const rks_claim *own, const char *text, size_t size)
{
    size_t line = strcspn(own->text, "\n") + 1;
    return size >= line && memcmp(text, own->text, line) == 0;
}

enum rks_claim_holder rks_claim_look(const rks_claim *own, const char *text, size_t size,
                                     char who[RKS_CLAIM_WHO])
{
    char line[RKS_CLAIM_WHO], space[SPACE_ROOM], ours[SPACE_ROOM + 8];
    const char *at = text, *end = text + size;
    long pid = 0;
    bool same = rks_claim_is_same(own, text, size);
    copy_line(&at, end, line, sizeof(line));
    copy_line(&at, end, who, RKS_CLAIM_WHO);
    copy_line(&at, end, line, sizeof(line));
    name_this_space(space);
    snprintf(ours, sizeof(ours), "space %s", space);
    if (size == own->size && memcmp(text, own->text, size) == 0)
        return RKS_CLAIM_OURS;
    if (strcmp(line, ours) != 0)
        return same ? RKS_CLAIM_FREE : RKS_CLAIM_OTHER;
    if (sscanf(who, "pid %ld on ", &pid) == 1 && pid > 0 && has_ended(pid))
        return RKS_CLAIM_FREE;
    return same ? RKS_CLAIM_TWIN : RKS_CLAIM_OTHER;
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

/* Looks at the claim that is there, and removes it if it is free. *holder is RKS_CLAIM_FREE if it
 * has gone. */
static rks_status meet(rks_home *home, const rks_claim *own, rks_held_claim *claim,
                       enum rks_claim_holder *holder, char who[RKS_CLAIM_WHO], rks_error *err)
{
    char *text = NULL;
    size_t size = 0;
    claim->version[0] = '\0';
    *holder = RKS_CLAIM_FREE;
    rks_status status =
        rks_home_read_all(home, RKS_HOME_CLAIM, RKS_CLAIM_MOST, &text, &size, claim->version, err);
    if (status == RKS_ERR_NOT_FOUND)
        return RKS_OK;
    if (status != RKS_OK)
        return status;
    *holder = rks_claim_look(own, text, size, who);
    rks_free(text);
    if (*holder == RKS_CLAIM_FREE)
        status = home->ops->remove(home->state, RKS_HOME_CLAIM, claim->version, err);
    return status == RKS_ERR_STATE ? RKS_OK : status; /* somebody else was faster */
}

rks_status rks_claim_check(rks_home *home, const rks_held_claim *claim, rks_error *err)
{
    char version[RKS_HOME_VERSION] = "";
    uint64_t size;
    rks_status status = rks_home_size(home, RKS_HOME_CLAIM, &size, version, err);
    if (status == RKS_ERR_NOT_FOUND || (status == RKS_OK && strcmp(version, claim->version) != 0))
        return rks_fail(err, RKS_ERR_STATE, EEXIST,
                        "%s: another process has taken over what this one began; call it again",
                        home->name);
    return status;
}

void rks_claim_end(rks_home *home, rks_held_claim *claim)
{
    rks_error why = {0};
    if (claim->held)
        (void)home->ops->remove(home->state, RKS_HOME_CLAIM, claim->version, &why);
    if (why.status != RKS_OK && why.status != RKS_ERR_NOT_FOUND && why.status != RKS_ERR_STATE)
        rks_log("%s: remove %s there, which shuts out others who publish; this process cannot (S3: "
                "s3:DeleteObject): %s",
                home->name, RKS_HOME_CLAIM, why.text);
    claim->held = false;
}

/* A put that failed may have left the claim there, for example not durably. */
static void remove_own_claim(rks_home *home, const rks_claim *own)
{
    rks_held_claim claim = {.held = true};
    enum rks_claim_holder holder = RKS_CLAIM_FREE;
    char who[RKS_CLAIM_WHO];
    rks_error ignored;
    if (meet(home, own, &claim, &holder, who, &ignored) == RKS_OK && holder == RKS_CLAIM_OURS)
        rks_claim_end(home, &claim);
}

static rks_status wait_for_twin(const rks_home *home, const char *who, uint64_t *named_ms,
                                rks_error *err)
{
    const rks_home_limits *limits = &home->limits;
    nanosleep(&(struct timespec){.tv_nsec = RKS_WAIT_SLICE_MS * 1000000L}, NULL);
    if (rks_now_ms() - *named_ms >= limits->tell_ms) {
        rks_log("%s: waits for another process that publishes the same (%s)", home->name, who);
        *named_ms = rks_now_ms();
    }
    rks_status status = rks_check_interrupt(err);
    return status == RKS_OK && limits->must_stop != NULL ? limits->must_stop(limits->user, err)
                                                         : status;
}

static rks_status claim_or_wait(rks_home *home, const rks_claim *own, rks_held_claim *claim,
                                rks_error *err)
{
    const rks_home_bytes bytes = {.size = own->size, .give = give_claim, .user = (void *)own};
    uint64_t named_ms = rks_now_ms();
    for (int tries = 0; tries < TRIES;) {
        enum rks_claim_holder holder = RKS_CLAIM_OURS;
        char who[RKS_CLAIM_WHO] = "";
        claim->version[0] = '\0';
        rks_status status = home->ops->put(home->state, RKS_HOME_CLAIM, &bytes, RKS_PUT_ABSENT,
                                           claim->version, err);
        if (status == RKS_ERR_STATE)
            status = meet(home, own, claim, &holder, who, err);
        if (status != RKS_OK || holder == RKS_CLAIM_OURS)
            return status;
        if (holder == RKS_CLAIM_OTHER)
            return rks_claim_refuse(home->name, RKS_HOME_CLAIM, who, err);
        tries += holder == RKS_CLAIM_FREE;
        if (holder == RKS_CLAIM_TWIN &&
            (status = wait_for_twin(home, who, &named_ms, err)) != RKS_OK)
            return status;
    }
    return rks_claim_refuse(home->name, RKS_HOME_CLAIM, "", err);
}

rks_status rks_claim_take(rks_home *home, rks_digest contents, rks_held_claim *claim,
                          rks_error *err)
{
    rks_claim own;
    rks_claim_write(contents, &own);
    rks_status status = claim_or_wait(home, &own, claim, err);
    claim->held = status == RKS_OK;
    if (status != RKS_OK && status != RKS_ERR_STATE)
        remove_own_claim(home, &own);
    return status;
}
