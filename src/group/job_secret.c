/* SPDX-License-Identifier: Apache-2.0
 *
 * job_secret.c: what a rank knows that strangers do not, and where it comes from.
 *
 *   key pairs   each rank draws one and publishes its public half through the bootstrap. What is
 *               published helps nobody who reads it; who can also replace it can pose as a rank.
 *   a secret    a file of the user (secret_file, RKS_SECRET_FILE), or one that rank 0 makes in the
 *               job's directory (RKS_JOB_DIR): then the bootstrap need not be trusted at all.
 *
 * The key of two ranks is made of both (transport/peer.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "group/group_state.h"

static const char *const SOURCES[] = {"none", "a file (RKS_SECRET_FILE)",
                                      "the job's directory (RKS_JOB_DIR)"};

const char *rks_job_secret_source(uint32_t source)
{
    return source < sizeof(SOURCES) / sizeof(SOURCES[0]) ? SOURCES[source] : "an unknown one";
}

/* Returns NULL if the variable is not set or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

/* The name contains the session, so no two jobs share a file. */
static rks_status put_path(job_secret *job, const uint8_t session[16], rks_error *err)
{
    const char *directory = variable("RKS_JOB_DIR");
    int used = snprintf(job->path, sizeof(job->path), "%s/rankstore-", directory);
    if (used < 0 || (size_t)used + 2 * 16 + sizeof(".secret") > sizeof(job->path))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "RKS_JOB_DIR: the path is too long");
    for (size_t i = 0; i < 16; i++)
        used += snprintf(job->path + used, 3, "%02x", session[i]);
    snprintf(job->path + used, sizeof(job->path) - (size_t)used, ".secret");
    return RKS_OK;
}

static rks_status make_file(job_secret *job, const uint8_t session[16], rks_error *err)
{
    rks_status status = put_path(job, session, err);
    if (status == RKS_OK)
        status = rks_random(job->secret, sizeof(job->secret), err);
    if (status != RKS_OK)
        return status;
    int fd = open(job->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return rks_fail_errno(err, errno, "secret of the job, %s", job->path);
    job->made = true;
    bool written = write(fd, job->secret, sizeof(job->secret)) == (ssize_t)sizeof(job->secret);
    if (!written || fsync(fd) != 0)
        status = rks_fail_errno(err, written || errno != 0 ? errno : ENOSPC,
                                "secret of the job, %s", job->path);
    close(fd);
    return status;
}

rks_status rks_job_secret_begin(job_secret *job, const char *file, const uint8_t *session,
                                rks_error *err)
{
    rks_status status = rks_key_pair(job->private_key, job->public_key, err);
    if (file == NULL)
        file = variable("RKS_SECRET_FILE");
    if (status == RKS_OK && file != NULL) {
        job->source = RKS_SECRET_OF_FILE;
        return rks_secret_read(file, job->secret, err);
    }
    if (status != RKS_OK || variable("RKS_JOB_DIR") == NULL)
        return status;
    job->source = RKS_SECRET_OF_DIRECTORY;
    return session == NULL ? RKS_OK : make_file(job, session, err);
}

rks_status rks_job_secret_find(job_secret *job, const uint8_t session[16], rks_error *err)
{
    if (job->source != RKS_SECRET_OF_DIRECTORY || job->made)
        return RKS_OK;
    rks_status status = put_path(job, session, err);
    return status == RKS_OK ? rks_secret_read(job->path, job->secret, err) : status;
}

void rks_job_secret_end(job_secret *job)
{
    if (job->made)
        unlink(job->path);
    rks_wipe(job, sizeof(*job));
}
