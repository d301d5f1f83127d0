/* SPDX-License-Identifier: Apache-2.0 */
#include "builder/commit_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

rks_status rks_commit_mark_write(const char *directory, rks_digest build_id, rks_error *err)
{
    char text[RKS_DIGEST_TEXT];
    rks_digest_format(build_id, text);
    char *path = rks_format(err, "%s/" RKS_COMMIT_MARK, directory);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    rks_status status = fd < 0 ? rks_fail_write(err, errno, path, sizeof(text) - 1)
                               : rks_file_write(fd, path, text, sizeof(text) - 1, err);
    if (fd >= 0)
        close(fd);
    rks_free(path);
    return status;
}

bool rks_commit_mark_is_of(const char *directory, rks_digest build_id)
{
    char *text = NULL;
    size_t size = 0;
    rks_digest found;
    char *path = rks_format(NULL, "%s/" RKS_COMMIT_MARK, directory);
    bool is_of = path != NULL &&
                 rks_file_load(path, RKS_DIGEST_TEXT, &text, &size, NULL) == RKS_OK &&
                 rks_digest_parse(text, &found) && rks_digest_equal(found, build_id);
    rks_free(text);
    rks_free(path);
    return is_of;
}

void rks_commit_mark_remove(const char *directory)
{
    char *path = rks_format(NULL, "%s/" RKS_COMMIT_MARK, directory);
    if (path != NULL)
        unlink(path);
    rks_free(path);
}
