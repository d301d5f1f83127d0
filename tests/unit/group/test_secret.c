/* SPDX-License-Identifier: Apache-2.0
 *
 * test_secret.c: what the bootstrap shows to those who read it, and where ranks take their secret
 * from. Ranks are processes, and speak over TCP. */
#include "../transport/stranger.h"
#include "ranks.h"

#include <dirent.h>
#include <sys/stat.h>

enum { T = 15000, RECORDS_MAX = 64 << 10 };

/* A bootstrap that somebody reads, and may change. */
typedef struct listener {
    rks_bootstrap real;
    uint8_t seen[RECORDS_MAX];
    size_t size;
    size_t rounds[2];         /* bytes of each record */
    bool end_of_text_is_lost; /* rank 1's record holds a version without an end */
} listener;

static rks_status gather_and_listen(void *user, const void *record, size_t size, void *all,
                                    uint32_t timeout_ms, rks_error *err)
{
    listener *l = user;
    size_t round = l->size == 0 ? 0 : 1;
    rks_status status = l->real.allgather(l->real.user, record, size, all, timeout_ms, err);
    if (status != RKS_OK || l->size + size * l->real.size > sizeof(l->seen))
        return status;
    if (l->end_of_text_is_lost && round == 0)
        memset((uint8_t *)all + size, 'v', 16);
    memcpy(l->seen + l->size, all, size * l->real.size);
    l->size += size * l->real.size;
    l->rounds[round] = size;
    return status;
}

static rks_status open_heard(member *m, listener *l, const char *secret_file)
{
    rks_group_options options;
    l->real = *m->bootstrap;
    rks_bootstrap between = l->real;
    between.user = l;
    between.allgather = gather_and_listen;
    between.check = NULL;
    between.close = NULL;
    rks_group_options_default(&options);
    options.bootstrap = &between;
    options.secret_file = secret_file;
    options.silence_ms = T;
    rks_status status = rks_group_open(&options, &m->group, &m->err);
    return status;
}

/* ---- one who reads the store ----------------------------------------------------------------- */

/* The session lies in rank 0's record alone: the first 16 bytes that other ranks leave empty. */
static const uint8_t *find_session(const listener *l)
{
    static const uint8_t zero[16];
    for (size_t at = 0; at + 16 <= l->rounds[0]; at += 8)
        if (memcmp(l->seen + at, zero, 16) != 0 &&
            memcmp(l->seen + l->rounds[0] + at, zero, 16) == 0 &&
            memcmp(l->seen + 2 * l->rounds[0] + at, zero, 16) == 0)
            return l->seen + at;
    return NULL;
}

/* Says hello to rank 1 as rank 2, by a key; true: rank 1 takes it for rank 2. */
static bool pose(const listener *l, const mesh *known, const uint8_t *key)
{
    stranger_mesh = known;
    rks_hello hello = stranger_hello(2, 1, 3, true);
    hello.session = find_session(l);
    memcpy(hello.key, key, sizeof(hello.key));
    int fd = stranger_connect(&known->addresses[1]);
    bool in = stranger_enter(fd, &hello);
    close(fd);
    return in;
}

static void read_the_store(member *m)
{
    static listener l;
    EXPECT(open_heard(m, &l, NULL) == RKS_OK);
    if (m->group == NULL)
        return;
    if (m->rank == 0) {
        mesh known = {.size = 3};
        EXPECT(find_session(&l) != NULL);
        const uint8_t *addresses = l.seen + 3 * l.rounds[0];
        for (size_t i = 0; i < 3; i++)
            memcpy(&known.addresses[i], addresses + i * l.rounds[1], sizeof(known.addresses[i]));
        for (size_t at = 0; at + RKS_SECRET_SIZE <= 3 * l.rounds[0]; at++)
            EXPECT(!pose(&l, &known, l.seen + at));
    }
    EXPECT(rks_group_agree(m->group, "read", RKS_OK, &m->err) == RKS_OK);
}

static void who_reads_all_that_ranks_publish_cannot_pose_as_a_rank(void **state)
{
    (void)state;
    assert_int_equal(on_processes(3, read_the_store, NULL), 0);
}

/* ---- one who writes -------------------------------------------------------------------------- */

/* The version of rank 1 has no end: it must not be read on into what follows. */
static void bring_endless_version(member *m)
{
    static listener l = {.end_of_text_is_lost = true};
    EXPECT(open_heard(m, &l, NULL) == RKS_ERR_ARGUMENT);
    EXPECT(strstr(m->err.text, "rank 1 has vvvvvvvvvvvvvvv") != NULL);
    EXPECT(strstr(m->err.text, "vvvvvvvvvvvvvvvv") == NULL);
}

static void a_version_without_an_end_is_cut(void **state)
{
    (void)state;
    assert_int_equal(on_processes(2, bring_endless_version, NULL), 0);
}

/* ---- the job's directory --------------------------------------------------------------------- */

static size_t files_in(const char *directory)
{
    size_t count = 0;
    DIR *folder = opendir(directory);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += strncmp(entry->d_name, "rankstore-", 10) == 0;
    closedir(folder);
    return count;
}

/* `user`: the directory; rank 1 is given another one if it is NULL. */
static void open_with_directory(member *m)
{
    static listener l;
    const char *directory = m->user;
    rks_status expected = directory == NULL ? RKS_ERR_IO : RKS_OK;
    if (directory == NULL && m->rank == 1)
        setenv("RKS_JOB_DIR", "/proc", 1);
    EXPECT(open_heard(m, &l, NULL) == expected);
    if (expected != RKS_OK)
        EXPECT(m->err.rank == 1 && strstr(m->err.text, "/proc/rankstore-") != NULL);
    else
        EXPECT(rks_group_agree(m->group, "opened", RKS_OK, &m->err) == RKS_OK);
}

static void a_directory_of_the_job_gives_the_secret_and_keeps_nothing(void **state)
{
    (void)state;
    char directory[] = "/tmp/rankstore-test-XXXXXX";
    assert_non_null(mkdtemp(directory));
    setenv("RKS_JOB_DIR", directory, 1);
    assert_int_equal(on_processes(3, open_with_directory, directory), 0);
    assert_int_equal(files_in(directory), 0);
    assert_int_equal(on_processes(3, open_with_directory, NULL), 0);
    assert_int_equal(files_in(directory), 0);
    assert_int_equal(rmdir(directory), 0);
    unsetenv("RKS_JOB_DIR");
}

/* `user`: whether all have the variable. */
static void open_with_one_source(member *m)
{
    static listener l;
    if (m->rank == 1)
        unsetenv("RKS_JOB_DIR");
    EXPECT(open_heard(m, &l, NULL) == RKS_ERR_ARGUMENT);
    EXPECT(strstr(m->err.text, "the secret's source differs: rank 0 has the job's directory "
                               "(RKS_JOB_DIR), rank 1 has none") != NULL);
}

static void ranks_with_different_sources_are_named(void **state)
{
    (void)state;
    setenv("RKS_JOB_DIR", "/tmp", 1);
    assert_int_equal(on_processes(2, open_with_one_source, NULL), 0);
    unsetenv("RKS_JOB_DIR");
}

/* Files that differ: who finds out first says so, and the others name it, not after T. */
static void open_with_other_secrets(member *m)
{
    static listener l;
    char path[] = "/tmp/rankstore-secret-XXXXXX";
    int fd = mkstemp(path);
    uint8_t secret[RKS_SECRET_SIZE];
    memset(secret, (int)m->rank + 1, sizeof(secret));
    EXPECT(write(fd, secret, sizeof(secret)) == sizeof(secret));
    close(fd);
    uint64_t begin = rks_now_ms();
    EXPECT(open_heard(m, &l, path) == RKS_ERR_PEER);
    EXPECT(strstr(m->err.text, "rank ") != NULL);
    if (strstr(m->err.text, "without the job's secret") != NULL)
        atomic_fetch_add(&shared->ready, 1);
    EXPECT(rks_now_ms() - begin < T / 2);
    unlink(path);
}

static void ranks_with_different_secrets_find_out_at_once(void **state)
{
    (void)state;
    atomic_store(&shared->ready, 0);
    assert_int_equal(on_processes(2, open_with_other_secrets, NULL), 0);
    assert_true(atomic_load(&shared->ready) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_reads_all_that_ranks_publish_cannot_pose_as_a_rank),
        cmocka_unit_test(a_version_without_an_end_is_cut),
        cmocka_unit_test(a_directory_of_the_job_gives_the_secret_and_keeps_nothing),
        cmocka_unit_test(ranks_with_different_sources_are_named),
        cmocka_unit_test(ranks_with_different_secrets_find_out_at_once),
    };
    share_memory();
    unsetenv("RKS_SECRET_FILE");
    unsetenv("RKS_JOB_DIR");
    return cmocka_run_group_tests_name("secret", tests, NULL, NULL);
}
