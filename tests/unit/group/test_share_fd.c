/* SPDX-License-Identifier: Apache-2.0
 *
 * test_share_fd.c: a node's descriptor reaches its ranks, and no name of it stays. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "ranks.h"

/* Whoever waited for it would not live to see it. */
enum { T = 2000 * LIMIT_S };

static uint32_t per_node;

static void share(member *m)
{
    int fd = -1, got = -1;
    char text[16] = "", wanted[16];
    if (!open_group(m, T, per_node))
        return;
    if (rks_group_is_leader(m->group)) {
        fd = memfd_create("test", MFD_CLOEXEC);
        snprintf(text, sizeof(text), "from %u", m->rank);
        EXPECT(write(fd, text, sizeof(text)) == sizeof(text));
    }
    EXPECT(rks_group_share_fd(m->group, fd, &got, &m->err) == RKS_OK);
    EXPECT(pread(got, text, sizeof(text), 0) == sizeof(text));
    snprintf(wanted, sizeof(wanted), "from %u",
             rks_group_leader(m->group, rks_group_node(m->group)));
    EXPECT(strcmp(text, wanted) == 0);
    EXPECT(rks_group_agree(m->group, "seen", RKS_OK, &m->err) == RKS_OK);
    close(got);
    if (fd >= 0)
        close(fd);
}

static void a_leader_s_descriptor_reaches_its_node_and_no_other(void **state)
{
    (void)state;
    per_node = 2;
    on_threads(5, share, NULL);
    assert_int_equal(on_processes(5, share, NULL), 0);
    per_node = 0;
}

/* What ranks 2 and 3 do not have in common with the others. */
enum apart { TMP_APART, TMPDIR_APART, USER_APART };

/* `directory`: of this rank alone, for mkdtemp. */
static bool stand_apart(enum apart how, uint32_t rank, char *directory)
{
    switch (how) {
    case TMP_APART:
        return unshare(CLONE_NEWNS) == 0 &&
               mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount("none", "/tmp", "tmpfs", 0, "size=1m") == 0;
    case TMPDIR_APART: /* a mount that the others do not see */
        return mkdtemp(directory) != NULL && unshare(CLONE_NEWNS) == 0 &&
               mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount("none", directory, "tmpfs", 0, "size=1m") == 0 &&
               setenv("TMPDIR", directory, 1) == 0;
    case USER_APART:
        return setgid(65533) == 0 && setuid(65533 + rank % 2) == 0;
    }
    return false;
}

/* Ranks see the machine as containers do. Those that can share nothing are nodes of their own. */
static void share_from_containers(member *m)
{
    enum apart how = *(enum apart *)m->user;
    char directory[] = "/tmp/rankstore-XXXXXX";
    if (m->rank >= 2 && !stand_apart(how, m->rank, directory)) {
        EXPECT(!"a rank that stands apart");
        return;
    }
    share(m);
    if (m->group != NULL && how == USER_APART)
        EXPECT(rks_group_nodes(m->group) == 3 &&
               rks_group_node(m->group) == (m->rank < 2 ? 0 : m->rank - 1));
    else if (m->group != NULL)
        EXPECT(rks_group_nodes(m->group) == 1);
    if (m->rank >= 2 && how == TMPDIR_APART)
        EXPECT(umount(directory) == 0 && rmdir(directory) == 0);
}

static void containers_share_what_they_can_and_else_are_nodes(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* mounts */
    for (enum apart how = TMP_APART; how <= USER_APART; how++)
        assert_int_equal(on_processes(4, share_from_containers, &how), 0);
}

static void share_badly(member *m)
{
    int got = -1;
    if (!open_group(m, T, 2))
        return;
    int fd = m->rank == 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1; /* rank 2 leads, too */
    EXPECT(rks_group_share_fd(m->group, fd, &got, &m->err) == RKS_ERR_IO);
    EXPECT(m->err.rank == 2 && got == -1);
    EXPECT(rks_group_agree(m->group, "on", RKS_OK, &m->err) == RKS_OK);
    fd = rks_group_is_leader(m->group) ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    EXPECT(rks_group_share_fd(m->group, fd, &got, &m->err) == RKS_OK && got >= 0);
}

/* ---- a rank that is gone when its descriptor is sent ----------------------------------------- */

static bool send_late;      /* the leader sends when the rank has gone */
static bool is_interrupted; /* of a process's own: it is connected to the leader */

int __real_connect(int socket, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int socket, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int socket, const struct sockaddr *address, socklen_t size)
{
    int status = __real_connect(socket, address, size);
    is_interrupted = send_late && address->sa_family == AF_UNIX;
    return status;
}

ssize_t __real_sendmsg(int socket, const struct msghdr *note, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *note, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *note, int flags)
{
    struct pollfd peer = {socket, 0, 0}; /* POLLHUP */
    if (send_late && note->msg_controllen > 0)
        poll(&peer, 1, 10000);
    return __real_sendmsg(socket, note, flags);
}

static int interrupt_one(void *user)
{
    (void)user;
    return is_interrupted;
}

static void leave_before_it_comes(member *m)
{
    int got = -1;
    if (!open_group(m, 5000, 0))
        return;
    int fd = m->rank == 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    EXPECT(rks_group_share_fd(m->group, fd, &got, &m->err) == RKS_ERR_CANCELLED);
    EXPECT(m->err.rank == 1 && got == -1);
}

static void a_rank_that_is_interrupted_meanwhile_is_the_cause_on_all(void **state)
{
    (void)state;
    send_late = true;
    rks_set_interrupt(interrupt_one, NULL);
    int code = on_processes(2, leave_before_it_comes, NULL);
    rks_set_interrupt(NULL, NULL);
    send_late = false;
    assert_int_equal(code, 0);
}

static size_t entries_of(const char *path)
{
    size_t entries = 0;
    DIR *directory = opendir(path);
    while (readdir(directory) != NULL)
        entries++;
    closedir(directory);
    return entries - 2;
}

static void a_shared_descriptor_leaves_no_name_behind(void **state)
{
    (void)state;
    char directory[] = "/tmp/rankstore-test-XXXXXX", stale[128], path[160], used[128];
    assert_non_null(mkdtemp(directory));
    /* What a leader left that was killed, and what one is still using. */
    snprintf(stale, sizeof(stale), "%s/rankstore-share-abcdef", directory);
    snprintf(path, sizeof(path), "%s/fd", stale);
    assert_int_equal(mkdir(stale, 0700), 0);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    struct timespec old[2] = {{1000, 0}, {1000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, stale, old, 0), 0);
    snprintf(used, sizeof(used), "%s/rankstore-share-ghijkl", directory);
    assert_int_equal(mkdir(used, 0700), 0);
    assert_int_equal(utimensat(AT_FDCWD, used, old, 0), 0);
    int lock = open(used, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    setenv("TMPDIR", directory, 1);
    int code = on_processes(5, share_badly, NULL);
    unsetenv("TMPDIR");
    assert_int_equal(code, 0);
    assert_int_equal(entries_of(directory), 1);
    assert_int_equal(rmdir(used), 0);
    close(lock);
    rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leader_s_descriptor_reaches_its_node_and_no_other),
        cmocka_unit_test(containers_share_what_they_can_and_else_are_nodes),
        cmocka_unit_test(a_shared_descriptor_leaves_no_name_behind),
        cmocka_unit_test(a_rank_that_is_interrupted_meanwhile_is_the_cause_on_all),
    };
    return cmocka_run_group_tests_name("share_fd", tests, NULL, NULL);
}
