/* SPDX-License-Identifier: Apache-2.0
 *
 * place.c: looks at the directory, and describes it. */
#include "staging/place.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/available_memory.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "dataset/dataset_json.h"
#include "dataset/home_file.h"
#include "home/arrival.h"
#include "home/address.h"

/* ---- the directory --------------------------------------------------------------------------- */

static rks_status refuse_network(const char *directory, bool built_here, rks_error *err)
{
    bool memory = false;
    const char *kind = rks_shared_filesystem(directory, &memory);
    if (kind == NULL || memory)
        return RKS_OK;
    if (built_here)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "copies: %s is on %s, which several nodes see: a lost node takes no shard "
                        "with it; leave `copies` out",
                        directory, kind);
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "local: %s is on %s, which several nodes see; name a directory on a disk of "
                    "this node, or open the dataset without `local`",
                    directory, kind);
}

static rks_status measure(const rks_group *group, const char *directory, uint64_t room,
                          rks_place_told *told, rks_error *err)
{
    struct stat info;
    struct statvfs disk;
    char path[PATH_MAX];
    if (realpath(directory, path) == NULL || stat(path, &info) != 0 || statvfs(path, &disk) != 0)
        return rks_fail_errno(err, errno, "%s: looking at it", directory);
    uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    char *name = rks_format(err, "%s:%s", rks_group_host(group, rks_group_rank(group)), path);
    if (name == NULL)
        return RKS_ERR_MEMORY;
    *told = (rks_place_told){
        .name = rks_checksum64(name, strlen(name)),
        .device = (uint64_t)info.st_dev,
        .inode = (uint64_t)info.st_ino,
        .room = room > 0 ? room : free_bytes / 4 * 3,
    };
    rks_free(name);
    return RKS_OK;
}

rks_status rks_place_make(const rks_group *group, const char *local, const char *folder,
                          uint64_t room, char **directory, rks_place_told *told, rks_error *err)
{
    char *path = folder == NULL ? rks_strdup(local, err) : rks_format(err, "%s/%s", local, folder);
    rks_status status = path == NULL ? RKS_ERR_MEMORY : rks_directory_make(path, err);
    if (status == RKS_OK)
        status = refuse_network(path, folder == NULL, err);
    if (status == RKS_OK)
        status = measure(group, path, room, told, err);
    if (status != RKS_OK) {
        rks_free(path);
        return status;
    }
    *directory = path;
    return RKS_OK;
}

rks_status rks_place_put(const uint64_t *here, size_t shards, rks_buffer *entries, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < shards; i++) {
        uint8_t entry[RKS_PLACE_ENTRY];
        if (here[i] == 0)
            continue;
        rks_store_u64(entry, i);
        rks_store_u64(entry + 8, here[i]);
        status = rks_buffer_add(entries, entry, sizeof(entry), err);
    }
    return status;
}

void rks_place_look(const char *directory, const rks_dataset *dataset, uint64_t *here)
{
    for (size_t i = 0; i < dataset->shard_count; i++) {
        const rks_dataset_shard *shard = &dataset->shards[i];
        here[i] = rks_arrival_look(directory, shard->name, shard->manifest, shard->file_bytes);
    }
}

/* ---- its description ------------------------------------------------------------------------- */

char *rks_place_home_name(const char *home, rks_error *err)
{
    char here[PATH_MAX];
    size_t size = strlen(home);
    if (rks_home_is_url(home))
        return rks_strdup(home, err);
    while (size > 1 && home[size - 1] == '/')
        size--;
    if (home[0] == '/')
        return rks_format(err, "%.*s", (int)size, home);
    if (getcwd(here, sizeof(here)) == NULL) {
        rks_fail_errno(err, errno, "%s: the working directory", home);
        return NULL;
    }
    return rks_format(err, "%s/%.*s", here, (int)size, home);
}

/* The time of home.json is that of the last opening. */
static rks_status note_use(const char *directory, rks_error *err)
{
    char *path = rks_format(err, "%s/%s", directory, RKS_HOME_FILE);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    (void)utimensat(AT_FDCWD, path, NULL, 0); /* another user's may not be changed */
    rks_free(path);
    return RKS_OK;
}

static rks_status write_home(const char *directory, const char *home, rks_error *err)
{
    char *said = NULL;
    rks_status status = rks_home_file_read(directory, &said, err);
    bool same = status == RKS_OK && said != NULL && strcmp(said, home) == 0;
    rks_free(said);
    return same ? note_use(directory, err) : rks_home_file_write(directory, home, err);
}

static rks_status describe_dataset(const char *directory, const rks_dataset *dataset,
                                   rks_error *err)
{
    const uint64_t number = rks_dataset_number(dataset);
    rks_dataset_summary there;
    rks_status status = rks_dataset_summarize(directory, 0, &there, err);
    if (status == RKS_OK && there.generation == number && !rks_digest_equal(there.id, dataset->id))
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "%s: holds another dataset than its home has now; remove that folder",
                        directory);
    if (status == RKS_OK && there.generation >= number)
        return RKS_OK;
    if (status == RKS_OK || status == RKS_ERR_NOT_FOUND || status == RKS_ERR_CORRUPT)
        return rks_dataset_commit(directory, dataset, err);
    return status;
}

rks_status rks_place_describe(const char *directory, const char *home, const rks_dataset *dataset,
                              rks_error *err)
{
    char *name = home == NULL ? NULL : rks_place_home_name(home, err);
    rks_status status = RKS_OK;
    if (home != NULL)
        status = name == NULL ? RKS_ERR_MEMORY : write_home(directory, name, err);
    rks_free(name);
    return status == RKS_OK ? describe_dataset(directory, dataset, err) : status;
}
