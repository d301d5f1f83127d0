/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_group.c: run by mpirun: ranks that agree and share, and, with an argument DIRECTORY, a rank
 * that stops: the others leave a file each there when they have named it in time. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %u: %s:%d: %s (%s)\n", rank, __FILE__, __LINE__, #condition,     \
                    err.text);                                                                     \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

enum { STOP_SILENCE_MS = 2000, VICTIM = 2 };

static uint32_t rank, size;
static int failures;
static rks_error err;

static void gather(rks_group *group)
{
    uint8_t mine[4096];
    rks_gathered all = {0};
    memset(mine, (int)rank, sizeof(mine));
    EXPECT(rks_group_allgather(group, "uneven", RKS_OK, mine, 1000 * rank, &all, &err) == RKS_OK);
    for (uint32_t other = 0; all.bytes != NULL && other < size; other++)
        EXPECT(all.offsets[other + 1] - all.offsets[other] == 1000 * other &&
               (other == 0 || all.bytes[all.offsets[other]] == other));
    rks_free(all.bytes);
    rks_free(all.offsets);
}

static void disagree(rks_group *group)
{
    rks_status status = RKS_OK;
    if (rank == 1 || rank == 3)
        status = rks_fail(&err, RKS_ERR_DATA, 7, "line %u is odd", rank);
    EXPECT(rks_group_agree(group, "reading", status, &err) == RKS_ERR_DATA);
    EXPECT(err.rank == 1 && err.cause == 7 && strcmp(err.text, "line 1 is odd") == 0);
    EXPECT(rks_group_agree(group, rank == 2 ? "gather" : "plan", RKS_OK, &err) == RKS_ERR_STATE);
    EXPECT(strstr(err.text, "'gather'") != NULL && strstr(err.text, "'plan'") != NULL);
}

static void share(rks_group *group)
{
    int fd = -1, shared = -1;
    char text[16] = "", wanted[16];
    if (rks_group_is_leader(group)) {
        fd = memfd_create("test", MFD_CLOEXEC);
        snprintf(text, sizeof(text), "from %u", rank);
        EXPECT(write(fd, text, sizeof(text)) == sizeof(text));
    }
    EXPECT(rks_group_share_fd(group, fd, &shared, &err) == RKS_OK);
    snprintf(wanted, sizeof(wanted), "from %u", rks_group_leader(group, rks_group_node(group)));
    EXPECT(pread(shared, text, sizeof(text), 0) == sizeof(text) && strcmp(text, wanted) == 0);
    close(shared);
    if (fd >= 0)
        close(fd);
}

/* A forked child that ends in order leaves MPI to its parent. */
static void fork_and_end(rks_group *group)
{
    int status = -1, limit = 600;
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        exit(0);
    }
    while (waitpid(child, &status, WNOHANG) == 0 && limit-- > 0)
        usleep(100000);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(rks_group_agree(group, "after a fork", RKS_OK, &err) == RKS_OK);
}

static void leave_mark(const char *directory, const char *prefix)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s%u", directory, prefix, rank);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

/* Bounded by the alarm. */
static void wait_for_marks(const char *directory, const char *prefix)
{
    char path[4096];
    for (uint32_t other = 0; other < size; other++) {
        snprintf(path, sizeof(path), "%s/%s%u", directory, prefix, other);
        while (other != VICTIM && access(path, F_OK) != 0)
            usleep(1000);
    }
}

static int run_stopped(rks_group *group, const char *directory)
{
    EXPECT(rks_group_agree(group, "before", RKS_OK, &err) == RKS_OK);
    if (rank != VICTIM)
        leave_mark(directory, "before-");
    if (rank == VICTIM) {
        wait_for_marks(directory, "before-"); /* what it owes them has arrived */
        raise(SIGSTOP);
        _exit(4); /* it was continued, only to be ended */
    }
    EXPECT(rks_group_agree(group, "after", RKS_OK, &err) == RKS_ERR_TIMEOUT);
    EXPECT(err.rank == VICTIM && strstr(err.text, "rank 2 (") != NULL);
    EXPECT(strstr(err.text, "): silent for 2000 ms during 'after'") != NULL);
    rks_group_close(group);
    if (failures == 0)
        leave_mark(directory, "");
    /* The first to leave ends the job: wait for the others. */
    wait_for_marks(directory, "");
    return 4; /* not _exit: a failed group must not finalize MPI, and so cannot hang in it */
}

int main(int argc, char **argv)
{
    rks_group *group = NULL;
    rks_group_options options;
    char node[16];
    const char *number = getenv("OMPI_COMM_WORLD_RANK");
    alarm(600); /* nothing here may hang */
    snprintf(node, sizeof(node), "n%d", number == NULL ? 0 : atoi(number) / 2);
    rks_group_options_default(&options);
    options.node = node; /* two nodes of two ranks */
    options.silence_ms = argc > 1 ? STOP_SILENCE_MS : options.silence_ms;
    if (rks_group_open(&options, &group, &err) != RKS_OK) {
        fprintf(stderr, "group: %s\n", err.text);
        return 1;
    }
    rank = rks_group_rank(group);
    size = rks_group_size(group);
    EXPECT(size == 4 && rks_group_nodes(group) == 2 && rks_group_node(group) == rank / 2);
    EXPECT(strcmp(rks_group_bootstrap(group)->name, "mpi") == 0);
    if (argc > 1)
        return run_stopped(group, argv[1]);
    gather(group);
    disagree(group);
    share(group);
    fork_and_end(group);
    EXPECT(rks_group_agree(group, "end", RKS_OK, &err) == RKS_OK);
    rks_group_close(group);
    EXPECT(rks_memory_in_use() == 0);
    return failures == 0 ? 0 : 1;
}
