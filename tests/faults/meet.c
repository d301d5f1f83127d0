/* SPDX-License-Identifier: Apache-2.0
 *
 * meet.c: a rank whose launcher is a folder that others can read and write, as torch's TCPStore is:
 * record N of rank R is the file N.R. It reads all samples that others own, again and again.
 *
 * Usage: meet FOLDER RANK RANKS DIRECTORY MILLISECONDS
 * Prints "reading" when it has read all once, and at the end "done: SAMPLES samples" or "STATUS:
 * TEXT". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rankstore.h"

typedef struct folder {
    const char *path;
    uint32_t rank, ranks, round;
} folder;

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void path_of(const folder *f, uint32_t rank, const char *ending, char path[256])
{
    snprintf(path, 256, "%s/%" PRIu32 ".%" PRIu32 "%s", f->path, f->round, rank, ending);
}

static bool put(const folder *f, const void *record, size_t size)
{
    char draft[256], path[256];
    path_of(f, f->rank, ".new", draft);
    path_of(f, f->rank, "", path);
    FILE *file = fopen(draft, "we");
    bool written = file != NULL && fwrite(record, size, 1, file) == 1;
    return file != NULL && fclose(file) == 0 && written && rename(draft, path) == 0;
}

static bool get(const folder *f, uint32_t rank, void *record, size_t size, uint64_t until_ms)
{
    char path[256];
    FILE *file = NULL;
    path_of(f, rank, "", path);
    while ((file = fopen(path, "re")) == NULL && now_ms() < until_ms)
        usleep(2000);
    bool read = file != NULL && fread(record, size, 1, file) == 1;
    if (file != NULL)
        fclose(file);
    return read;
}

static rks_status allgather(void *user, const void *record, size_t size, void *all,
                            uint32_t timeout_ms, rks_error *err)
{
    folder *f = user;
    uint64_t until = now_ms() + timeout_ms;
    bool met = put(f, record, size);
    for (uint32_t rank = 0; met && rank < f->ranks; rank++)
        met = get(f, rank, (uint8_t *)all + rank * size, size, until);
    f->round++;
    if (met)
        return RKS_OK;
    *err = (rks_error){.status = RKS_ERR_TIMEOUT, .rank = -1};
    snprintf(err->text, sizeof(err->text), "a rank did not come to the folder");
    return RKS_ERR_TIMEOUT;
}

static rks_status read_all(rks_store *store, uint32_t rank, uint64_t *samples, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t count = rks_store_count(store);
    for (uint64_t id = 0; status == RKS_OK && id < count; id++) {
        rks_batch *batch = NULL;
        if (rks_store_owner(store, id) == (int64_t)rank)
            continue;
        status = rks_store_fetch(store, &id, 1, &batch, err);
        rks_batch_free(batch);
        *samples += status == RKS_OK;
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    folder f = {.path = argv[1], .rank = (uint32_t)atoi(argv[2]), .ranks = (uint32_t)atoi(argv[3])};
    const rks_bootstrap bootstrap = {.struct_size = sizeof(bootstrap),
                                     .name = "folder",
                                     .rank = f.rank,
                                     .size = f.ranks,
                                     .user = &f,
                                     .allgather = allgather};
    rks_group *group = NULL;
    rks_store *store = NULL;
    rks_error err = {0};
    rks_group_options options;
    rks_store_options opening;
    uint64_t until = now_ms() + (uint64_t)atoll(argv[5]), samples = 0;
    rks_group_options_default(&options);
    options.bootstrap = &bootstrap;
    options.silence_ms = 3000;
    rks_store_options_default(&opening);
    opening.no_share = true; /* all that another rank owns comes over TCP */
    rks_status status = rks_group_open(&options, &group, &err);
    if (status == RKS_OK)
        status = rks_store_open(group, argv[4], &opening, &store, &err);
    for (uint64_t turn = 0; status == RKS_OK && (turn == 0 || now_ms() < until); turn++) {
        status = read_all(store, f.rank, &samples, &err);
        if (status == RKS_OK && turn == 0)
            printf("reading\n");
        fflush(stdout);
    }
    if (status == RKS_OK)
        printf("done: %" PRIu64 " samples\n", samples);
    else
        printf("%s: %s\n", rks_status_name(status), err.text);
    rks_store_close(store, 0);
    rks_group_close(group);
    return status == RKS_OK ? 0 : 1;
}
