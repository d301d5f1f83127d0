/* SPDX-License-Identifier: Apache-2.0
 *
 * secret.c: libsodium behind six calls. */
#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

rks_status rks_random(void *bytes, size_t size, rks_error *err)
{
    if (sodium_init() < 0)
        return rks_fail(err, RKS_ERR_IO, 0, "libsodium found no source of random bytes");
    randombytes_buf(bytes, size);
    return RKS_OK;
}

void rks_keyed_hash(const uint8_t secret[RKS_SECRET_SIZE], const void *bytes, size_t size,
                    uint8_t proof[RKS_PROOF_SIZE])
{
    crypto_generichash(proof, RKS_PROOF_SIZE, bytes, size, secret, RKS_SECRET_SIZE);
}

bool rks_proof_equal(const uint8_t a[RKS_PROOF_SIZE], const uint8_t b[RKS_PROOF_SIZE])
{
    return sodium_memcmp(a, b, RKS_PROOF_SIZE) == 0;
}

void rks_wipe(void *bytes, size_t size)
{
    sodium_memzero(bytes, size);
}

rks_status rks_secret_read(const char *path, uint8_t secret[RKS_SECRET_SIZE], rks_error *err)
{
    /* O_NONBLOCK: a FIFO in its place must not block the open. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return rks_fail_errno(err, errno, "secret file %s", path);
    struct stat info;
    rks_status status = RKS_OK;
    if (fstat(fd, &info) != 0)
        status = rks_fail_errno(err, errno, "secret file %s", path);
    else if (!S_ISREG(info.st_mode))
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "secret file %s: not a regular file", path);
    else if ((info.st_mode & 077) != 0)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "secret file %s: others may read it (mode %o); chmod 600 it", path,
                          (unsigned)info.st_mode & 0777);
    else if (info.st_uid != geteuid())
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "secret file %s: belongs to user %u", path,
                          (unsigned)info.st_uid);
    else if (read(fd, secret, RKS_SECRET_SIZE) != RKS_SECRET_SIZE)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "secret file %s: needs at least %d bytes", path,
                          RKS_SECRET_SIZE);
    close(fd);
    return status;
}

const char *rks_secret_library(void)
{
    return sodium_version_string();
}
