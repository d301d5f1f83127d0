/* SPDX-License-Identifier: Apache-2.0
 *
 * test_adopt.c: shards that lie in another folder of the local directory are linked; what is not
 * theirs, not whole or leads elsewhere is not. */
#include "support/check.h"
#include "support/shards.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "home/arrival.h"
#include "staging/adopt.h"

static rks_error err;
static rks_dataset *dataset;
static char local[256], from[300], to[300], outside[300];
static const char *const names[] = {"a", "b"};
static const char *const endings[] = {"rks", "sums", "json"};

static int read_files; /* opened files whose name is dataset.json */

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    const char *name = strrchr(path, '/');
    read_files += name != NULL && strcmp(name, "/dataset.json") == 0;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static void run(const char *format, const char *one, const char *other)
{
    char command[1024];
    snprintf(command, sizeof(command), format, one, other);
    assert_int_equal(system(command), 0);
}

/* Two shards in LOCAL/speech, and an empty LOCAL/ID. */
static int begin(void **state)
{
    if (shards_begin(state) != 0)
        return -1;
    snprintf(local, sizeof(local), "%s/local", shards_here);
    snprintf(from, sizeof(from), "%s/speech", local);
    snprintf(to, sizeof(to), "%s/id", local);
    snprintf(outside, sizeof(outside), "%s/outside", shards_here);
    run("mkdir -p '%s' '%s'", from, to);
    for (size_t i = 0; i < 2; i++) {
        const shards_recipe recipe = {.first = 100 * i, .first_unit = 3 * i};
        shards_write(from, names[i], &recipe);
    }
    shards_commit(from, names, 2);
    assert_ok(rks_dataset_load(from, &dataset, &err), &err);
    return 0;
}

static int end(void **state)
{
    rks_dataset_free(dataset);
    run("rm -rf '%s' '%s'", local, outside);
    return shards_end(state);
}

static char *file_in(const char *folder, const char *name, const char *ending)
{
    static char paths[4][400];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s.%s", folder, name, ending);
    return path;
}

static bool is_same(const char *name, const char *ending)
{
    struct stat one, other;
    return lstat(file_in(from, name, ending), &one) == 0 &&
           lstat(file_in(to, name, ending), &other) == 0 && one.st_ino == other.st_ino &&
           one.st_dev == other.st_dev;
}

static bool is_linked(const char *name)
{
    bool linked = true;
    for (size_t i = 0; i < 3; i++)
        linked = linked && is_same(name, endings[i]);
    return linked;
}

static size_t adopt(void)
{
    return rks_adopt_shards(local, "id", dataset);
}

static void shards_are_linked_once(void **state)
{
    (void)state;
    assert_int_equal(adopt(), 2);
    assert_true(is_linked("a") && is_linked("b"));
    assert_int_equal(adopt(), 0);
    for (size_t i = 0; i < 2; i++) {
        const rks_dataset_shard *shard = &dataset->shards[i];
        assert_int_equal(rks_arrival_look(to, shard->name, shard->manifest, shard->file_bytes),
                         shard->file_bytes);
    }
}

/* Several folders may each have some. */
static void what_lacks_in_one_folder_is_taken_from_another(void **state)
{
    (void)state;
    char other[300];
    snprintf(other, sizeof(other), "%s/other", local);
    run("cp -r '%s' '%s'", from, other);
    unlink(file_in(from, "a", "rks"));
    unlink(file_in(other, "b", "json"));
    assert_int_equal(adopt(), 2);
    assert_true(is_linked("b"));
    assert_false(is_same("a", "rks"));
    assert_int_equal(access(file_in(to, "a", "rks"), F_OK), 0);
}

/* A shard that is not the dataset's, or not whole, stays where it is; the other one comes. */
static void what_is_not_the_shard_is_not_taken(void **state)
{
    (void)state;
    static const char *const damage[] = {
        "truncate -s +1 '%s/a.rks' #%s",
        "truncate -s 4096 '%s/a.rks' #%s",
        "printf x >> '%s/a.sums' #%s",
        "printf x > '%s/a.json' #%s",
        "rm '%s/a.sums' #%s",
        "cp '%s/b.json' '%s/a.json'",
        "cd '%s'; for e in rks sums json; do cp b.$e a.$e; done #%s",
        "truncate -s 65M '%s/a.json' #%s",
        "rm '%s/a.rks'; mkfifo '%s/a.rks'",
        "truncate -s 65M '%s/a.sums' #%s",
        "rm '%s/a.json'; mkdir '%s/a.json'",
    };
    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        char kept[300];
        snprintf(kept, sizeof(kept), "%s/kept", shards_here);
        run("cp -r '%s' '%s'", from, kept);
        run(damage[i], from, from);
        assert_int_equal(adopt(), 1);
        assert_true(is_linked("b"));
        assert_true(access(file_in(to, "a", "rks"), F_OK) != 0);
        run("rm -rf '%s' '%s'/*", from, to);
        run("mv '%s' '%s'", kept, from);
    }
}

static void links_lead_nowhere(void **state)
{
    (void)state;
    run("mv '%s' '%s'", from, outside);
    run("ln -s '%s' '%s'", outside, from); /* the folder */
    assert_int_equal(adopt(), 0);
    unlink(from);
    assert_int_equal(mkdir(from, 0755), 0);
    run("ln -sf '%s'/* '%s'", outside, from); /* each file */
    assert_int_equal(adopt(), 0);
    run("cp --remove-destination '%s/dataset.json' '%s'", outside, from); /* all but this one */
    assert_int_equal(adopt(), 0);
    run("cp --remove-destination '%s'/*.json '%s'", outside, from);
    run("cp --remove-destination '%s'/*.sums '%s'", outside, from);
    assert_int_equal(adopt(), 0);
    run("cp --remove-destination '%s'/a.rks '%s'", outside, from);
    assert_int_equal(adopt(), 1);
    assert_true(is_linked("a"));
}

static void other_datasets_are_passed_by(void **state)
{
    (void)state;
    static const char *const damage[] = {
        "rm '%s/dataset.json' #%s",
        "printf '{' > '%s/dataset.json' #%s",
        "rm '%s/dataset.json'; truncate -s 65M '%s/dataset.json'",
        "rm '%s/dataset.json'; mkdir '%s/dataset.json'",
        "rm -r '%s/dataset.json'; mkfifo '%s/dataset.json'",
    };
    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        run(damage[i], from, from);
        assert_int_equal(adopt(), 0);
    }
    unlink(file_in(from, "dataset", "json"));
    shards_commit(from, names, 1); /* another dataset that has shard a */
    assert_int_equal(adopt(), 0);
}

static void files_of_other_datasets_are_not_read(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        char folder[300], file[400];
        snprintf(folder, sizeof(folder), "%s/other%d", local, i);
        run("cp -r '%s' '%s'", from, folder);
        snprintf(file, sizeof(file), "%s/c.json", folder);
        assert_int_equal(rename(file_in(folder, "a", "json"), file), 0);
        unlink(file_in(folder, "b", "json"));
    }
    read_files = 0;
    assert_int_equal(adopt(), 2);
    assert_int_equal(read_files, 1);
    read_files = 0;
    assert_int_equal(adopt(), 0);
    assert_int_equal(read_files, 0);
}

static void what_has_begun_goes_on(void **state)
{
    (void)state;
    static const char *const begun[] = {"arriving", "pieces", "manifest", "rks"};
    for (size_t i = 0; i < sizeof(begun) / sizeof(begun[0]); i++) {
        char file[16];
        snprintf(file, sizeof(file), "a.%s", begun[i]);
        shards_store(to, file, "x", 1);
        assert_int_equal(adopt(), 1);
        assert_true(is_linked("b"));
        run("rm '%s'/* #%s", to, "");
    }
}

/* What a kill leaves before the file itself has its link. */
static void a_kill_in_between_does_no_harm(void **state)
{
    (void)state;
    shards_store(to, "a.sums", "half", 4);
    assert_int_equal(link(file_in(from, "a", "json"), file_in(to, "a", "json")), 0);
    assert_int_equal(adopt(), 2);
    assert_true(is_linked("a") && is_linked("b"));
}

/* An arrival writes into no file that another directory has, too. */
static void an_arrival_leaves_the_other_name_alone(void **state)
{
    (void)state;
    static const rks_home_limits limits = {.stall_ms = 60000, .timeout_ms = 60000};
    struct stat before, now;
    rks_home *home = NULL;
    rks_arrival *arrival = NULL;
    bool whole = true;
    assert_int_equal(adopt(), 2);
    assert_int_equal(stat(file_in(from, "a", "rks"), &before), 0);
    unlink(file_in(to, "a", "json"));
    assert_ok(rks_home_open(from, &limits, &home, &err), &err);
    for (size_t i = 0; i < 2; i++) {
        const rks_arrival_wish wish = {
            .home = home, .directory = to, .name = "a", .manifest = dataset->shards[i].manifest};
        if (strcmp(dataset->shards[i].name, "a") == 0)
            assert_ok(rks_arrival_open(&wish, &arrival, &whole, &err), &err);
    }
    assert_false(whole);
    assert_int_equal(rks_pieces_bytes(rks_arrival_pieces(arrival)), 0);
    assert_int_equal(stat(file_in(to, "a", "arriving"), &now), 0);
    assert_int_not_equal(now.st_ino, before.st_ino);
    assert_int_equal(now.st_size, before.st_size);
    assert_int_equal(stat(file_in(from, "a", "rks"), &now), 0);
    assert_int_equal(now.st_nlink, 1);
    assert_int_equal(now.st_mtime, before.st_mtime);
    rks_arrival_close(arrival);
    rks_home_close(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shards_are_linked_once, begin, end),
        cmocka_unit_test_setup_teardown(what_lacks_in_one_folder_is_taken_from_another, begin, end),
        cmocka_unit_test_setup_teardown(what_is_not_the_shard_is_not_taken, begin, end),
        cmocka_unit_test_setup_teardown(links_lead_nowhere, begin, end),
        cmocka_unit_test_setup_teardown(other_datasets_are_passed_by, begin, end),
        cmocka_unit_test_setup_teardown(files_of_other_datasets_are_not_read, begin, end),
        cmocka_unit_test_setup_teardown(what_has_begun_goes_on, begin, end),
        cmocka_unit_test_setup_teardown(a_kill_in_between_does_no_harm, begin, end),
        cmocka_unit_test_setup_teardown(an_arrival_leaves_the_other_name_alone, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
