/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shard_resume.c: writers that are killed, interrupted, kept out or short of room, and what
 * the next one finds. */
#include "writer_case.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "shard/block.h"
#include "shard/lmdb_env.h"
#include "shard/part_check.h"
#include "shard/shard.h"

static void finished_units_survive_and_the_tail_of_an_unfinished_one_goes(void **state)
{
    (void)state;
    rks_shard_writer *writer = open_writer("part");
    add_unit(writer, 5, 0, 700);
    assert_ok(rks_shard_writer_begin(writer, 6, NULL, 700, &err), &err);
    for (uint32_t i = 0; i < 900; i++) /* some blocks of it are queued, one is not full */
        assert_ok(add_one(writer, 9999 + i, i), &err);
    rks_shard_writer_close(writer);
    for (int turn = 0; turn < 2; turn++) { /* opening alone changes nothing */
        size_t count = 0;
        writer = open_writer("part");
        const rks_unit_summary *units = rks_shard_writer_units(writer, &count);
        assert_int_equal(count, 1);
        assert_int_equal(units[0].unit, 5);
        assert_int_equal(units[0].samples, 700);
        if (turn == 0)
            rks_shard_writer_close(writer);
    }
    assert_fails(RKS_ERR_STATE, rks_shard_writer_begin(writer, 5, NULL, 0, &err));
    assert_contains(err.text, "unit 5");
    add_unit(writer, 6, 700, 800);
    seal_and_check(writer, 1500);
}

/* Turns all blocks of the part into what an earlier version wrote: they do not name the shard. */
static uint64_t make_blocks_old(const char *name)
{
    FILE *file = fopen(path_of(name), "r+b");
    uint64_t changed = 0;
    uint8_t header[RKS_BLOCK_HEADER];
    assert_non_null(file);
    for (long at = RKS_VALUE_IN_PAGE;
         fseek(file, at, SEEK_SET) == 0 && fread(header, sizeof(header), 1, file) == 1;
         at += 4096) {
        if (!rks_block_begins(header) || rks_load_u64(header + 56) != rks_checksum64(header, 56))
            continue;
        assert_int_equal(rks_load_u16(header + 4), 2);
        rks_store_u16(header + 4, 1);
        rks_store_u64(header + 40, 0);
        rks_store_u64(header + 56, rks_checksum64(header, 56));
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_equal(fwrite(header, sizeof(header), 1, file), 1);
        changed++;
    }
    assert_int_equal(fclose(file), 0);
    return changed;
}

/* It is neither resumed nor discarded as damaged. */
static void an_earlier_version_s_part_is_refused_with_both_versions(void **state)
{
    (void)state;
    rks_shard_writer *writer = open_writer("old");
    rks_part_record record = {0};
    add_unit(writer, 5, 0, 700);
    rks_shard_writer_close(writer);
    assert_true(make_blocks_old("old.rks") > 3);
    for (int turn = 0; turn < 2; turn++) {
        assert_fails(RKS_ERR_UNSUPPORTED, try_writer("old", &writer));
        assert_contains(err.text, "old.rks: block at");
        assert_contains(err.text, "block version 1; this version reads 2");
        assert_contains(err.text, "build again; remove this unfinished part");
        assert_fails(RKS_ERR_UNSUPPORTED, rks_part_look(path_of("old.rks"), &record, &err));
        assert_contains(err.text, "block version 1;");
    }
}

/* Its manifest may be of today's format: earlier versions sealed parts that they had begun before
 * blocks named their shard. */
static void an_earlier_version_s_blocks_are_refused_with_both_versions(void **state)
{
    (void)state;
    rks_shard *opened = NULL;
    rks_shard_writer *writer = open_writer("old");
    sealed shard;
    add_unit(writer, 5, 0, 700);
    seal(writer, "old", &shard);
    sealed_free(&shard);
    assert_true(make_blocks_old("old.rks") > 3);
    assert_fails(RKS_ERR_UNSUPPORTED, rks_shard_open(path_of("old.json"), &opened, &err));
    assert_contains(err.text, "block version 1; this version reads 2: build again");
}

enum { KILLED_UNIT = 500, KILLED_SIZE = 64 << 10, SLOW_LIMIT_MS = 40000 };

static void write_until_killed(int pipe_end)
{
    static uint8_t bytes[KILLED_SIZE];
    rks_shard_writer *writer = NULL;
    rks_status status = try_writer("part", &writer);
    for (uint64_t unit = 0; status == RKS_OK; unit++) {
        status = rks_shard_writer_begin(writer, unit, NULL, 0, &err);
        for (uint32_t i = 0; status == RKS_OK && i < KILLED_UNIT; i++) {
            uint64_t row = unit * KILLED_UNIT + i;
            memset(bytes, (int)row % 251, sizeof(bytes));
            rks_value value = value_of(bytes, sizeof(bytes));
            status = rks_shard_writer_add(writer, &value, &row, 8, 1, i, &err);
        }
        if (status == RKS_OK)
            status = rks_shard_writer_end(writer, KILLED_UNIT, 0, 0, &err);
        /* 190 MB, of which the queue holds 64: something is committed */
        if (status == RKS_OK && unit == 5 && write(pipe_end, "x", 1) != 1)
            break;
    }
    _exit(1);
}

static void a_killed_writer_loses_no_committed_unit(void **state)
{
    (void)state;
    options.block_size = 1 << 20;
    int pipes[2], how = 0;
    char byte;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0)
        write_until_killed(pipes[1]);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    close(pipes[0]);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(access(path_of("part.lock"), F_OK), 0); /* stale: taken over */
    rks_shard_writer *writer = open_writer("part");
    size_t count = 0;
    rks_shard_writer_units(writer, &count);
    assert_true(count >= 1);
    sealed shard;
    seal(writer, "part", &shard);
    assert_int_equal(shard.manifest->samples, count * KILLED_UNIT);
    for (uint64_t row = 0; row < shard.manifest->samples; row++) {
        rks_record_view view = sealed_record(&shard, row);
        assert_int_equal(view.payload[view.payload_size - 1], row % 251);
        assert_memory_equal(view.key, &row, 8);
    }
    sealed_free(&shard);
}

/* A unit, then a sample each 20 ms: far below the bytes that are committed at once. */
static void write_slowly(void)
{
    rks_shard_writer *writer = NULL;
    rks_status status = try_writer("part", &writer);
    if (status == RKS_OK)
        status = rks_shard_writer_begin(writer, 0, NULL, 0, &err);
    for (uint32_t i = 0; status == RKS_OK && i < 10; i++)
        status = add_one(writer, i, i);
    if (status == RKS_OK)
        status = rks_shard_writer_end(writer, 10, 0, 0, &err);
    if (status == RKS_OK)
        status = rks_shard_writer_begin(writer, 1, NULL, 10, &err);
    for (uint32_t i = 0; status == RKS_OK; i++) {
        status = add_one(writer, 10 + i, i);
        usleep(20000);
    }
    _exit(1);
}

static uint64_t committed_units(void)
{
    rks_lmdb *env = NULL;
    uint64_t count = 0;
    if (rks_lmdb_open(path_of("part.rks"), true, &env, NULL) == RKS_OK)
        count = rks_lmdb_count(env, RKS_LMDB_UNITS);
    rks_lmdb_close(env);
    return count;
}

static void a_slow_writer_commits_what_it_has(void **state)
{
    (void)state;
    int how = 0;
    size_t count = 0;
    pid_t child = fork();
    if (child == 0)
        write_slowly();
    uint64_t begun = rks_now_ms(), seen = 0;
    while (seen == 0 && rks_now_ms() - begun < SLOW_LIMIT_MS &&
           waitpid(child, &how, WNOHANG) == 0) {
        usleep(50000);
        seen = committed_units();
    }
    kill(child, SIGKILL);
    waitpid(child, &how, 0);
    assert_int_equal(seen, 1);
    rks_shard_writer *writer = open_writer("part");
    const rks_unit_summary *units = rks_shard_writer_units(writer, &count);
    assert_int_equal(count, 1);
    assert_int_equal(units[0].samples, 10);
    add_unit(writer, 1, 10, 5);
    seal_and_check(writer, 15);
}

static void a_second_writer_is_refused_naming_the_first(void **state)
{
    (void)state;
    char pid[32];
    rks_shard_writer *writer = open_writer("part"), *second = NULL;
    snprintf(pid, sizeof(pid), "pid %ld on ", (long)getpid());
    assert_fails(RKS_ERR_STATE, try_writer("part", &second));
    assert_contains(err.text, pid);
    assert_null(second);
    add_unit(writer, 0, 0, 10);
    rks_shard_writer_close(writer);
    assert_int_not_equal(access(path_of("part.lock"), F_OK), 0);
    writer = open_writer("part");
    rks_shard_writer_close(writer);
}

static void a_sealed_shard_is_never_opened_for_writing(void **state)
{
    (void)state;
    rks_shard_writer *writer = open_writer("part"), *again = NULL;
    add_unit(writer, 0, 0, 10);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    assert_fails(RKS_ERR_STATE, rks_shard_writer_begin(writer, 1, NULL, 0, &err));
    assert_fails(RKS_ERR_STATE, rks_shard_writer_seal(writer, &err));
    rks_shard_writer_close(writer);
    assert_fails(RKS_ERR_STATE, try_writer("part", &again));
    assert_contains(err.text, "sealed");
    assert_null(again);
}

static void a_part_of_another_build_is_refused(void **state)
{
    (void)state;
    rks_schema *other = schema_of("data:str");
    rks_shard_writer *writer = open_writer("part");
    rks_shard_writer_close(writer);
    writer = NULL;
    options.build_id.low++;
    assert_fails(RKS_ERR_STATE, try_writer("part", &writer));
    assert_contains(err.text, "another build");
    options.build_id.low--;
    options.schema = other;
    assert_fails(RKS_ERR_STATE, try_writer("part", &writer));
    options.schema = schema;
    options.derived_keys = true;
    assert_fails(RKS_ERR_STATE, try_writer("part", &writer));
    options.derived_keys = false;
    writer = open_writer("part");
    rks_shard_writer_close(writer);
    rks_schema_free(other);
}

static void an_interrupted_seal_is_done_again(void **state)
{
    (void)state;
    rks_shard_writer *writer = open_writer("part");
    add_unit(writer, 0, 0, 3000);
    assert_int_equal(mkdir(path_of("part.sums"), 0700), 0); /* in the way of the sums */
    assert_fails(RKS_ERR_IO, rks_shard_writer_seal(writer, &err));
    assert_fails(RKS_ERR_STATE, rks_shard_writer_begin(writer, 1, NULL, 0, &err));
    rks_shard_writer_close(writer);
    assert_int_equal(rmdir(path_of("part.sums")), 0);
    writer = open_writer("part");
    add_unit(writer, 1, 3000, 500);
    seal_and_check(writer, 3500);
}

/* Changes a byte of a sample's key where it lies in the file. */
static void hurt_sample(const char *name, const char *sample_key)
{
    char *bytes = NULL;
    size_t size = 0;
    assert_ok(rks_file_load(path_of(name), 1 << 30, &bytes, &size, &err), &err);
    char *key = memmem(bytes, size, sample_key, strlen(sample_key));
    assert_non_null(key);
    char changed = (char)(key[3] ^ 4);
    int fd = open(path_of(name), O_WRONLY);
    assert_int_equal(pwrite(fd, &changed, 1, key + 3 - bytes), 1);
    close(fd);
    rks_free(bytes);
}

static void a_part_that_was_damaged_since_its_writer_ended_begins_anew(void **state)
{
    (void)state;
    size_t count = 1;
    rks_shard_writer *writer = open_writer("part");
    add_unit(writer, 0, 0, 3000);
    rks_shard_writer_close(writer);
    hurt_sample("part.rks", "key-0000001234");
    writer = open_writer("part");
    rks_shard_writer_units(writer, &count);
    assert_int_equal(count, 0);
    add_unit(writer, 0, 0, 3000);
    seal_and_check(writer, 3000);
}

static void damage_that_comes_while_a_writer_goes_on_is_found_by_the_seal(void **state)
{
    (void)state;
    rks_shard_writer *writer = open_writer("part");
    add_unit(writer, 0, 0, 3000);
    rks_shard_writer_close(writer);
    writer = open_writer("part");
    hurt_sample("part.rks", "key-0000001234");
    assert_fails(RKS_ERR_CORRUPT, rks_shard_writer_seal(writer, &err));
    assert_contains(err.text, "part.rks");
    rks_shard_writer_close(writer);
    assert_int_not_equal(access(path_of("part.json"), F_OK), 0);
}

static void a_cut_part_begins_anew(void **state)
{
    (void)state;
    rks_shard_writer *writer = open_writer("part");
    add_unit(writer, 0, 0, 3000);
    rks_shard_writer_close(writer);
    struct stat info;
    assert_int_equal(stat(path_of("part.rks"), &info), 0);
    for (off_t size = 0; size < info.st_size; size += 4096 * 7 + 1111) {
        char *bytes = NULL;
        size_t whole = 0, count = 1;
        assert_ok(rks_file_load(path_of("part.rks"), 1 << 30, &bytes, &whole, &err), &err);
        assert_ok(rks_file_replace(path_of("cut.rks"), bytes, (size_t)size, &err), &err);
        rks_free(bytes);
        writer = open_writer("cut");
        rks_shard_writer_units(writer, &count);
        assert_int_equal(count, 0);
        rks_shard_writer_close(writer);
        unlink(path_of("cut.rks"));
    }
}

static int stop_at_once(void *user)
{
    (void)user;
    return 1;
}

static void an_interrupt_ends_the_seal_and_the_part_stays(void **state)
{
    (void)state;
    rks_shard_writer *writer = open_writer("part");
    add_unit(writer, 0, 0, 100);
    rks_set_interrupt(stop_at_once, NULL);
    assert_fails(RKS_ERR_CANCELLED, rks_shard_writer_seal(writer, &err));
    rks_set_interrupt(NULL, NULL);
    rks_shard_writer_close(writer);
    writer = open_writer("part");
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
}

static void a_full_disk_is_named_and_the_part_can_be_resumed(void **state)
{
    (void)state;
    if (geteuid() != 0 || mount("none", test_directory, "tmpfs", 0, "size=8m") != 0)
        skip(); /* mounting takes root */
    static uint8_t bytes[100000];
    options.block_size = 1 << 20;
    rks_shard_writer *writer = open_writer("part");
    add_unit(writer, 0, 0, 2000);
    rks_shard_writer_close(writer);
    writer = open_writer("part");
    rks_status status = rks_shard_writer_begin(writer, 1, NULL, 0, &err);
    for (uint32_t i = 0; status == RKS_OK && i < 2000; i++) {
        rks_value value = value_of(bytes, sizeof(bytes));
        status = rks_shard_writer_add(writer, &value, &i, 4, 1, i, &err);
    }
    if (status == RKS_OK)
        status = rks_shard_writer_end(writer, 2000, 0, 0, &err);
    if (status == RKS_OK)
        status = rks_shard_writer_seal(writer, &err);
    print_message("%s\n", err.text);
    rks_error found = err;
    rks_status again = rks_shard_writer_begin(writer, 2, NULL, 0, &err);
    rks_shard_writer_close(writer);
    /* the room that the failed transaction took is the file's: more of it, and all goes on */
    int remounted = mount("none", test_directory, "tmpfs", MS_REMOUNT, "size=64m");
    rks_shard_writer *resumed = NULL;
    rks_status opened = try_writer("part", &resumed);
    size_t count = 0;
    if (opened == RKS_OK) {
        rks_shard_writer_units(resumed, &count);
        opened = rks_shard_writer_seal(resumed, &err);
    }
    rks_shard_writer_close(resumed);
    umount(test_directory);
    assert_fails(RKS_ERR_IO, status);
    assert_contains(found.text, "disk full");
    assert_contains(found.text, "part.rks");
    assert_fails(RKS_ERR_STATE, again);
    assert_int_equal(remounted, 0);
    assert_ok(opened, &err);
    assert_int_equal(count, 1);
}

int main(void)
{
    alarm(600);
    const struct CMUnitTest tests[] = {
        CASE(finished_units_survive_and_the_tail_of_an_unfinished_one_goes),
        CASE(an_earlier_version_s_part_is_refused_with_both_versions),
        CASE(an_earlier_version_s_blocks_are_refused_with_both_versions),
        CASE(a_killed_writer_loses_no_committed_unit),
        CASE(a_slow_writer_commits_what_it_has),
        CASE(a_second_writer_is_refused_naming_the_first),
        CASE(a_sealed_shard_is_never_opened_for_writing),
        CASE(a_part_of_another_build_is_refused),
        CASE(an_interrupted_seal_is_done_again),
        CASE(a_part_that_was_damaged_since_its_writer_ended_begins_anew),
        CASE(damage_that_comes_while_a_writer_goes_on_is_found_by_the_seal),
        CASE(a_cut_part_begins_anew),
        CASE(an_interrupt_ends_the_seal_and_the_part_stays),
        CASE(a_full_disk_is_named_and_the_part_can_be_resumed),
    };
    return cmocka_run_group_tests_name("shard_resume", tests, NULL, NULL);
}
