/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shard_writer.c: writing, resuming and sealing shards. */
#include "shard_fixture.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "shard/lmdb_env.h"

static int set_up(void **state)
{
    (void)state;
    directory_begin();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    directory_end();
    return 0;
}

/* Bytes that say who they are: sample `i` of any size. */
static void fill(uint8_t *bytes, size_t size, uint64_t i)
{
    for (size_t at = 0; at < size; at++)
        bytes[at] = (uint8_t)(i * 131 + at * 7 + at / 251);
}

static size_t size_of(uint64_t i)
{
    return i % 97 * 13 + 5;
}

static rks_status add_one(rks_shard_writer *writer, uint64_t i, uint32_t row)
{
    static uint8_t bytes[2048];
    char key[32];
    int key_size = snprintf(key, sizeof(key), "key-%010llu", (unsigned long long)i);
    fill(bytes, size_of(i), i);
    rks_value value = value_of(bytes, size_of(i));
    return rks_shard_writer_add(writer, &value, key, (size_t)key_size, (uint32_t)size_of(i), row,
                                &err);
}

static void add_unit(rks_shard_writer *writer, uint64_t unit, uint64_t first, uint64_t count)
{
    assert_ok(rks_shard_writer_begin(writer, unit, NULL, first, &err), &err);
    for (uint64_t i = 0; i < count; i++)
        assert_ok(add_one(writer, first + i, (uint32_t)i), &err);
    assert_ok(rks_shard_writer_end(writer, count + 2, 1, 1, &err), &err);
}

static rks_shard_options options_of(const rks_schema *schema)
{
    return (rks_shard_options){.schema = schema, .build_id = {1, 2}, .block_size = 64 << 10};
}

static void assert_sample(const sealed *shard, uint64_t row, uint64_t i)
{
    uint8_t bytes[2048];
    rks_value value;
    rks_record_view view = sealed_record(shard, row);
    assert_ok(
        rks_record_decode(shard->manifest->schema, view.payload, view.payload_size, &value, &err),
        &err);
    assert_int_equal(value.size, size_of(i));
    fill(bytes, size_of(i), i);
    assert_memory_equal(value.data, bytes, value.size);
    char key[32];
    int key_size = snprintf(key, sizeof(key), "key-%010llu", (unsigned long long)i);
    assert_int_equal(view.key_size, key_size);
    assert_memory_equal(view.key, key, view.key_size);
    assert_int_equal(view.length, size_of(i));
}

static void what_was_added_is_found_by_its_locator(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = NULL;
    assert_ok(rks_shard_writer_open(test_directory, "part", &options, &writer, &err), &err);
    add_unit(writer, 7, 0, 3000);
    add_unit(writer, 3, 3000, 1);
    add_unit(writer, 9, 3001, 2000);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->samples, 5001);
    assert_int_equal(shard.units.count, 3);
    assert_int_equal(shard.units.summaries[1].unit, 3);
    assert_int_equal(shard.units.first_rows[2], 3001);
    assert_int_equal(shard.units.summaries[0].filtered, 1);
    uint64_t bytes = 0;
    for (uint64_t row = 0; row < 5001; row++) {
        assert_sample(&shard, row, row);
        bytes += size_of(row) + 14;
    }
    assert_int_equal(shard.manifest->bytes, bytes);
    assert_int_not_equal(access(path_of("part.lock"), F_OK), 0);
    sealed_free(&shard);
    rks_schema_free(schema);
}

/* ---- resume, refusal, sealing ---- */

static rks_shard_writer *open_writer(const rks_shard_options *options)
{
    rks_shard_writer *writer = NULL;
    assert_ok(rks_shard_writer_open(test_directory, "part", options, &writer, &err), &err);
    return writer;
}

static void finished_units_survive_and_the_tail_of_an_unfinished_one_goes(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = open_writer(&options);
    add_unit(writer, 5, 0, 700);
    assert_ok(rks_shard_writer_begin(writer, 6, NULL, 700, &err), &err);
    for (uint32_t i = 0; i < 900; i++) /* some blocks of it are queued, one is not full */
        assert_ok(add_one(writer, 9999 + i, i), &err);
    rks_shard_writer_close(writer);
    for (int turn = 0; turn < 2; turn++) { /* opening alone changes nothing */
        size_t count = 0;
        writer = open_writer(&options);
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
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->samples, 1500);
    for (uint64_t row = 0; row < 1500; row++)
        assert_sample(&shard, row, row);
    sealed_free(&shard);
    rks_schema_free(schema);
}

enum { KILLED_UNIT = 500, KILLED_SIZE = 64 << 10, SLOW_LIMIT_MS = 40000 };

static void write_until_killed(const rks_shard_options *options, int pipe_end)
{
    static uint8_t bytes[KILLED_SIZE];
    rks_shard_writer *writer = NULL;
    rks_status status = rks_shard_writer_open(test_directory, "part", options, &writer, &err);
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
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    options.block_size = 1 << 20;
    int pipes[2], how = 0;
    char byte;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0)
        write_until_killed(&options, pipes[1]);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    close(pipes[0]);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(access(path_of("part.lock"), F_OK), 0); /* stale: taken over */
    rks_shard_writer *writer = open_writer(&options);
    size_t count = 0;
    rks_shard_writer_units(writer, &count);
    assert_true(count >= 1);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->samples, count * KILLED_UNIT);
    for (uint64_t row = 0; row < shard.manifest->samples; row++) {
        rks_record_view view = sealed_record(&shard, row);
        assert_int_equal(view.payload[view.payload_size - 1], row % 251);
        assert_memory_equal(view.key, &row, 8);
    }
    sealed_free(&shard);
    rks_schema_free(schema);
}

/* A unit, then a sample each 20 ms: far below the bytes that are committed at once. */
static void write_slowly(const rks_shard_options *options)
{
    rks_shard_writer *writer = NULL;
    rks_status status = rks_shard_writer_open(test_directory, "part", options, &writer, &err);
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
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    int how = 0;
    size_t count = 0;
    pid_t child = fork();
    if (child == 0)
        write_slowly(&options);
    uint64_t begun = rks_now_ms(), seen = 0;
    while (seen == 0 && rks_now_ms() - begun < SLOW_LIMIT_MS &&
           waitpid(child, &how, WNOHANG) == 0) {
        usleep(50000);
        seen = committed_units();
    }
    kill(child, SIGKILL);
    waitpid(child, &how, 0);
    assert_int_equal(seen, 1);
    rks_shard_writer *writer = open_writer(&options);
    const rks_unit_summary *units = rks_shard_writer_units(writer, &count);
    assert_int_equal(count, 1);
    assert_int_equal(units[0].samples, 10);
    add_unit(writer, 1, 10, 5);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->samples, 15);
    for (uint64_t row = 0; row < 15; row++)
        assert_sample(&shard, row, row);
    sealed_free(&shard);
    rks_schema_free(schema);
}

static void a_second_writer_is_refused_naming_the_first(void **state)
{
    (void)state;
    char pid[32];
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = open_writer(&options), *second = NULL;
    snprintf(pid, sizeof(pid), "pid %ld on ", (long)getpid());
    assert_fails(RKS_ERR_STATE,
                 rks_shard_writer_open(test_directory, "part", &options, &second, &err));
    assert_contains(err.text, pid);
    assert_null(second);
    add_unit(writer, 0, 0, 10);
    rks_shard_writer_close(writer);
    assert_int_not_equal(access(path_of("part.lock"), F_OK), 0);
    writer = open_writer(&options);
    rks_shard_writer_close(writer);
    rks_schema_free(schema);
}

static void a_sealed_shard_is_never_opened_for_writing(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = open_writer(&options), *again = NULL;
    add_unit(writer, 0, 0, 10);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    assert_fails(RKS_ERR_STATE, rks_shard_writer_begin(writer, 1, NULL, 0, &err));
    assert_fails(RKS_ERR_STATE, rks_shard_writer_seal(writer, &err));
    rks_shard_writer_close(writer);
    assert_fails(RKS_ERR_STATE,
                 rks_shard_writer_open(test_directory, "part", &options, &again, &err));
    assert_contains(err.text, "sealed");
    assert_null(again);
    rks_schema_free(schema);
}

static void a_part_of_another_build_is_refused(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes"), *other = schema_of("data:str");
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = open_writer(&options);
    rks_shard_writer_close(writer);
    writer = NULL;
    options.build_id.low++;
    assert_fails(RKS_ERR_STATE,
                 rks_shard_writer_open(test_directory, "part", &options, &writer, &err));
    assert_contains(err.text, "another build");
    options.build_id.low--;
    options.schema = other;
    assert_fails(RKS_ERR_STATE,
                 rks_shard_writer_open(test_directory, "part", &options, &writer, &err));
    options.schema = schema;
    options.derived_keys = true;
    assert_fails(RKS_ERR_STATE,
                 rks_shard_writer_open(test_directory, "part", &options, &writer, &err));
    options.derived_keys = false;
    writer = open_writer(&options);
    rks_shard_writer_close(writer);
    rks_schema_free(schema);
    rks_schema_free(other);
}

static void an_interrupted_seal_is_done_again(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = open_writer(&options);
    add_unit(writer, 0, 0, 3000);
    assert_int_equal(mkdir(path_of("part.sums"), 0700), 0); /* in the way of the sums */
    assert_fails(RKS_ERR_IO, rks_shard_writer_seal(writer, &err));
    assert_fails(RKS_ERR_STATE, rks_shard_writer_begin(writer, 1, NULL, 0, &err));
    rks_shard_writer_close(writer);
    assert_int_equal(rmdir(path_of("part.sums")), 0);
    writer = open_writer(&options);
    add_unit(writer, 1, 3000, 500);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->samples, 3500);
    for (uint64_t row = 0; row < 3500; row++)
        assert_sample(&shard, row, row);
    sealed_free(&shard);
    rks_schema_free(schema);
}

static void damage_in_what_an_earlier_writer_left_is_found_by_the_seal(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = open_writer(&options);
    add_unit(writer, 0, 0, 3000);
    rks_shard_writer_close(writer);
    char *bytes = NULL;
    size_t size = 0;
    assert_ok(rks_file_load(path_of("part.rks"), 1 << 30, &bytes, &size, &err), &err);
    char *key = memmem(bytes, size, "key-0000001234", 14);
    assert_non_null(key);
    key[3] ^= 4;
    assert_ok(rks_file_replace(path_of("part.rks"), bytes, size, &err), &err);
    rks_free(bytes);
    writer = open_writer(&options);
    assert_fails(RKS_ERR_CORRUPT, rks_shard_writer_seal(writer, &err));
    assert_contains(err.text, "part.rks");
    rks_shard_writer_close(writer);
    assert_int_not_equal(access(path_of("part.json"), F_OK), 0);
    rks_schema_free(schema);
}

static void a_cut_part_is_an_error_and_no_signal(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = open_writer(&options);
    add_unit(writer, 0, 0, 3000);
    rks_shard_writer_close(writer);
    struct stat info;
    assert_int_equal(stat(path_of("part.rks"), &info), 0);
    for (off_t size = 0; size < info.st_size; size += 4096 * 7 + 1111) {
        char cut[32];
        char *bytes = NULL;
        size_t whole = 0;
        snprintf(cut, sizeof(cut), "cut%jd.rks", (intmax_t)size);
        assert_ok(rks_file_load(path_of("part.rks"), 1 << 30, &bytes, &whole, &err), &err);
        assert_ok(rks_file_replace(path_of(cut), bytes, (size_t)size, &err), &err);
        rks_free(bytes);
        cut[strlen(cut) - 4] = '\0';
        rks_shard_writer *opened = NULL;
        rks_status status = rks_shard_writer_open(test_directory, cut, &options, &opened, &err);
        if (status == RKS_OK && size > 0)
            assert_fails(RKS_ERR_CORRUPT, rks_shard_writer_seal(opened, &err));
        rks_shard_writer_close(opened);
        strcat(cut, ".rks");
        unlink(path_of(cut));
    }
    rks_schema_free(schema);
}

/* ---- what can be stored ---- */

static void a_shard_without_samples_is_one(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes,n:int32");
    const char *index[] = {"n"};
    rks_shard_options options = options_of(schema);
    options.index = index;
    options.index_count = 1;
    for (int units = 0; units < 2; units++) {
        rks_shard_writer *writer = NULL;
        const char *name = units == 0 ? "none" : "empty";
        assert_ok(rks_shard_writer_open(test_directory, name, &options, &writer, &err), &err);
        if (units == 1) {
            assert_ok(rks_shard_writer_begin(writer, 3, NULL, 0, &err), &err);
            assert_ok(rks_shard_writer_end(writer, 10, 10, 0, &err), &err);
        }
        assert_ok(rks_shard_writer_seal(writer, &err), &err);
        rks_shard_writer_close(writer);
        sealed shard;
        sealed_load(name, &shard);
        assert_int_equal(shard.manifest->samples, 0);
        assert_int_equal(shard.units.count, units);
        sealed_free(&shard);
    }
    rks_schema_free(schema);
}

static void a_sample_above_the_block_size_has_its_own_block(void **state)
{
    (void)state;
    enum { LARGE = 5 << 20 };
    uint8_t *bytes = malloc(LARGE);
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    options.block_size = 0;
    rks_shard_writer *writer = open_writer(&options);
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    for (uint32_t i = 0; i < 5; i++) {
        size_t size = i % 2 == 1 ? LARGE : 100;
        char key[2] = {'k', (char)('0' + i)};
        rks_value value = value_of(bytes, size);
        fill(bytes, size, i);
        assert_ok(rks_shard_writer_add(writer, &value, key, 2, i, i, &err), &err);
    }
    assert_ok(rks_shard_writer_end(writer, 5, 0, 0, &err), &err);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed shard;
    sealed_load("part", &shard);
    for (uint32_t i = 0; i < 5; i++) {
        rks_value value;
        rks_record_view view = sealed_record(&shard, i);
        assert_ok(rks_record_decode(shard.manifest->schema, view.payload, view.payload_size, &value,
                                    &err),
                  &err);
        assert_int_equal(value.size, i % 2 == 1 ? LARGE : 100);
        fill(bytes, value.size, i);
        assert_memory_equal(value.data, bytes, value.size);
        if (i % 2 == 1) /* on its own: a block header is in front of it, and it is aligned */
            assert_int_equal(((const char *)value.data - shard.bytes) % 64, 0);
    }
    assert_int_equal(shard.manifest->largest, 24 + 64 + LARGE + 2);
    sealed_free(&shard);
    rks_schema_free(schema);
    free(bytes);
}

static void payloads_and_wide_columns_are_aligned_in_the_file(void **state)
{
    (void)state;
    static const uint8_t bytes[9000];
    rks_schema *schema = schema_of("t:str,w:float32[*],d:float64[*]");
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = open_writer(&options);
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    for (uint32_t i = 0; i < 400; i++) {
        char key[16];
        int key_size = snprintf(key, sizeof(key), "%u", i * i * i);
        rks_value values[] = {value_of(bytes, i % 13),
                              value_of(bytes, i % 3 == 0 ? 4096 + 4 * i : 40),
                              value_of(bytes, 8 * (i % 5))};
        assert_ok(rks_shard_writer_add(writer, values, key, (size_t)key_size, i, i, &err), &err);
    }
    assert_ok(rks_shard_writer_end(writer, 400, 0, 0, &err), &err);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed shard;
    sealed_load("part", &shard);
    for (uint32_t i = 0; i < 400; i++) {
        rks_value values[3];
        rks_record_view view = sealed_record(&shard, i);
        size_t offset = (size_t)(view.payload - (const uint8_t *)shard.bytes);
        assert_int_equal(view.align, i % 3 == 0 ? 64 : 8);
        assert_int_equal(offset % view.align, 0);
        assert_ok(rks_record_decode(shard.manifest->schema, view.payload, view.payload_size, values,
                                    &err),
                  &err);
        assert_int_equal(((const char *)values[1].data - shard.bytes) % (i % 3 == 0 ? 64 : 4), 0);
        assert_int_equal(((const char *)values[2].data - shard.bytes) % 8, 0);
    }
    for (size_t i = 0; i < shard.manifest->segment_count; i++)
        assert_int_equal(shard.manifest->segments[i].offset % 8, 0);
    sealed_free(&shard);
    rks_schema_free(schema);
}

static void derived_keys_are_not_stored_and_count_on_in_their_file(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("t:str");
    rks_shard_options options = options_of(schema);
    options.derived_keys = true;
    rks_shard_writer *writer = open_writer(&options);
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_writer_begin(writer, 4, NULL, 0, &err));
    assert_ok(rks_shard_writer_begin(writer, 4, "dir/a.txt", 1000, &err), &err);
    rks_value value = value_of("abc", 3);
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_writer_add(writer, &value, "k", 1, 3, 0, &err));
    for (uint32_t row = 0; row < 300; row += 3) /* the others are filtered */
        assert_ok(rks_shard_writer_add(writer, &value, NULL, 0, 3, row, &err), &err);
    assert_ok(rks_shard_writer_end(writer, 300, 200, 0, &err), &err);
    assert_ok(rks_shard_writer_begin(writer, 5, "b", 0, &err), &err);
    assert_ok(rks_shard_writer_add(writer, &value, NULL, 0, 3, 7, &err), &err);
    assert_ok(rks_shard_writer_end(writer, 8, 7, 0, &err), &err);
    rks_shard_writer_close(writer); /* names survive a resume */
    writer = open_writer(&options);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed shard;
    sealed_load("part", &shard);
    assert_true(shard.manifest->derived_keys);
    assert_string_equal(shard.units.key_names[0], "dir/a.txt");
    assert_int_equal(shard.units.summaries[0].first_source_row, 1000);
    assert_int_equal(shard.manifest->bytes, 101 * 3);
    const uint8_t *hashes = segment_bytes(&shard, RKS_SEGMENT_KEY_HASHES, 0);
    assert_int_equal(rks_load_u64(hashes + 8 * 2), rks_key_hash("dir/a.txt:1006", 14));
    assert_int_equal(rks_load_u64(hashes + 8 * 100), rks_key_hash("b:7", 3));
    for (uint64_t row = 0; row < 101; row++) {
        rks_record_view view = sealed_record(&shard, row);
        assert_int_equal(view.key_size, 0);
        assert_int_equal(view.source_row, row == 100 ? 7 : 3 * row);
    }
    sealed_free(&shard);
    rks_schema_free(schema);
}

static void index_columns_travel_as_plain_numbers(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("t:str,a:float32,b:int64,c:bool,n:int8?,v:int8[*]");
    const char *index[] = {"c", "a"};
    const char *const wrong[] = {"t", "n", "v", "x"};
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = NULL;
    options.index = index;
    for (size_t i = 0; i < 4; i++) {
        options.index = &wrong[i];
        options.index_count = 1;
        assert_fails(RKS_ERR_ARGUMENT,
                     rks_shard_writer_open(test_directory, "part", &options, &writer, &err));
        assert_contains(err.text, wrong[i]);
    }
    options.index = index;
    options.index_count = 2;
    writer = open_writer(&options);
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    for (uint32_t i = 0; i < 1000; i++) {
        float a = (float)i / 2;
        int64_t b = i;
        bool c = i % 3 == 0;
        rks_value values[] = {
            value_of("text", i % 5), value_of(&a, 4), value_of(&b, 8), value_of(&c, 1), {0},
            value_of("", 0)};
        assert_ok(rks_shard_writer_add(writer, values, &i, 4, 1, i, &err), &err);
    }
    assert_ok(rks_shard_writer_end(writer, 1000, 0, 0, &err), &err);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->index_count, 2);
    const uint8_t *columns[2] = {NULL, NULL};
    for (size_t i = 0; i < shard.manifest->segment_count; i++)
        if (shard.manifest->segments[i].kind == RKS_SEGMENT_COLUMN)
            columns[shard.manifest->segments[i].column == 1] =
                (const uint8_t *)shard.bytes + shard.manifest->segments[i].offset;
    for (uint32_t i = 0; i < 1000; i++) {
        float a;
        memcpy(&a, columns[1] + 4 * i, 4);
        assert_true(a == (float)i / 2);
        assert_int_equal(columns[0][i], i % 3 == 0);
    }
    sealed_free(&shard);
    rks_schema_free(schema);
}

static void a_refused_sample_leaves_the_writer_usable(void **state)
{
    (void)state;
    uint8_t bytes[600] = {0};
    char long_key[RKS_KEY_MAX + 1];
    memset(long_key, 'k', sizeof(long_key));
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    options.max_sample = 500;
    rks_shard_writer *writer = open_writer(&options);
    rks_value good = value_of(bytes, 5), large = value_of(bytes, 600), missing = {0};
    assert_fails(RKS_ERR_STATE, rks_shard_writer_add(writer, &good, "k", 1, 1, 0, &err));
    assert_fails(RKS_ERR_STATE, rks_shard_writer_end(writer, 0, 0, 0, &err));
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    assert_fails(RKS_ERR_STATE, rks_shard_writer_begin(writer, 1, NULL, 0, &err));
    assert_fails(RKS_ERR_STATE, rks_shard_writer_seal(writer, &err));
    assert_fails(RKS_ERR_DATA, rks_shard_writer_add(writer, &large, "big", 3, 1, 0, &err));
    assert_contains(err.text, "\"big\"");
    assert_contains(err.text, "500");
    assert_fails(RKS_ERR_DATA, rks_shard_writer_add(writer, &missing, "k", 1, 1, 0, &err));
    assert_fails(RKS_ERR_DATA, rks_shard_writer_add(writer, &good, "", 0, 1, 0, &err));
    assert_fails(RKS_ERR_DATA, rks_shard_writer_add(writer, &good, long_key, 512, 1, 0, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_writer_add(writer, &good, NULL, 0, 1, 0, &err));
    assert_ok(rks_shard_writer_add(writer, &good, long_key, 511, 1, 0, &err), &err);
    assert_ok(rks_shard_writer_add(writer, &good, "\0\n", 2, 1, 1, &err), &err);
    assert_ok(rks_shard_writer_end(writer, 2, 0, 0, &err), &err);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->samples, 2);
    rks_record_view view = sealed_record(&shard, 1);
    assert_int_equal(view.key_size, 2);
    assert_memory_equal(view.key, "\0\n", 2);
    sealed_free(&shard);
    rks_schema_free(schema);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_writer *writer = NULL;
    rks_shard_options options = options_of(schema);
    options.block_size = 1000;
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_shard_writer_open(test_directory, "part", &options, &writer, &err));
    options.block_size = UINT64_C(1) << 40;
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_shard_writer_open(test_directory, "part", &options, &writer, &err));
    options.block_size = 0;
    options.max_sample = UINT64_C(1) << 32;
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_shard_writer_open(test_directory, "part", &options, &writer, &err));
    options.max_sample = 0;
    assert_fails(RKS_ERR_IO,
                 rks_shard_writer_open(path_of("none"), "part", &options, &writer, &err));
    rks_schema_free(schema);
}

/* ---- digests and sizes ---- */

static void digests_do_not_depend_on_shard_or_block_size(void **state)
{
    (void)state;
    rks_digest first = {0}, second = {0};
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    size_t count = 0;
    rks_shard_writer *writer = open_writer(&options);
    add_unit(writer, 1, 0, 1000);
    add_unit(writer, 2, 1000, 1000);
    first = rks_shard_writer_units(writer, &count)[0].digest;
    second = rks_shard_writer_units(writer, &count)[1].digest;
    rks_shard_writer_close(writer);
    assert_int_equal(first.low, UINT64_C(0x65d51ffcae5f7b46));
    assert_int_equal(first.high, UINT64_C(0x177b56e1d2e25d90));
    options.block_size = 1 << 20;
    assert_ok(rks_shard_writer_open(test_directory, "other", &options, &writer, &err), &err);
    add_unit(writer, 2, 1000, 1000);
    add_unit(writer, 1, 0, 1000);
    assert_true(rks_digest_equal(second, rks_shard_writer_units(writer, &count)[0].digest));
    assert_true(rks_digest_equal(first, rks_shard_writer_units(writer, &count)[1].digest));
    rks_shard_writer_close(writer);
    rks_schema_free(schema);
}

static void small_samples_cost_48_bytes_and_a_percent(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    options.block_size = 0;
    enum { COUNT = 40000 };
    rks_shard_writer *writer = open_writer(&options);
    uint64_t plain = 0, random = 1;
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    for (uint32_t i = 0; i < COUNT; i++) {
        static uint8_t bytes[1024];
        char key[32];
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t size = 100 + (random >> 33) % 400; /* about 300 */
        rks_value value = value_of(bytes, size);
        snprintf(key, sizeof(key), "key-%010u", i);
        assert_ok(rks_shard_writer_add(writer, &value, key, 14, 1, i, &err), &err);
        plain += size + 14;
    }
    assert_ok(rks_shard_writer_end(writer, COUNT, 0, 0, &err), &err);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    struct stat file, sums, manifest;
    assert_int_equal(stat(path_of("part.rks"), &file), 0);
    assert_int_equal(stat(path_of("part.sums"), &sums), 0);
    assert_int_equal(stat(path_of("part.json"), &manifest), 0);
    uint64_t whole = (uint64_t)(file.st_size + sums.st_size + manifest.st_size);
    print_message("overhead: %.2f bytes a sample\n", (double)(whole - plain) / COUNT);
    assert_true(whole <= plain + COUNT * 48 + plain / 100);
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->bytes, plain);
    sealed_free(&shard);
    rks_schema_free(schema);
}

/* ---- failures ---- */

static rks_status write_all(const rks_schema *schema)
{
    const char *index[] = {"n"};
    rks_shard_options options = options_of(schema);
    options.index = index;
    options.index_count = 1;
    rks_shard_writer *writer = NULL;
    rks_status status = rks_shard_writer_open(test_directory, "part", &options, &writer, &err);
    if (status == RKS_OK)
        status = rks_shard_writer_begin(writer, 0, NULL, 0, &err);
    for (uint32_t i = 0; status == RKS_OK && i < 400; i++) {
        static uint8_t bytes[1000];
        rks_value values[] = {value_of(bytes, sizeof(bytes)), value_of(&i, 4)};
        status = rks_shard_writer_add(writer, values, &i, 4, i, i, &err);
    }
    if (status == RKS_OK)
        status = rks_shard_writer_end(writer, 400, 0, 0, &err);
    if (status == RKS_OK)
        status = rks_shard_writer_seal(writer, &err);
    rks_shard_writer_close(writer);
    return status;
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes,n:int32");
    long before = rks_memory_in_use();
    rks_status status = RKS_ERR_MEMORY;
    for (long nth = 1; status != RKS_OK; nth++) {
        rks_memory_fail_at(nth);
        status = write_all(schema);
        rks_memory_fail_at(0);
        if (status != RKS_OK)
            assert_int_equal(status, RKS_ERR_MEMORY);
        assert_int_equal(rks_memory_in_use(), before);
        assert_int_not_equal(access(path_of("part.lock"), F_OK), 0);
        if (status != RKS_OK) {
            unlink(path_of("part.rks"));
            unlink(path_of("part.json")); /* there, if only making its name durable failed */
        }
        assert_true(nth < 400);
    }
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->samples, 400);
    sealed_free(&shard);
    rks_schema_free(schema);
}

static int stop_at_once(void *user)
{
    (void)user;
    return 1;
}

static void an_interrupt_ends_the_seal_and_the_part_stays(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = open_writer(&options);
    add_unit(writer, 0, 0, 100);
    rks_set_interrupt(stop_at_once, NULL);
    assert_fails(RKS_ERR_CANCELLED, rks_shard_writer_seal(writer, &err));
    rks_set_interrupt(NULL, NULL);
    rks_shard_writer_close(writer);
    writer = open_writer(&options);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    rks_schema_free(schema);
}

static void a_full_disk_is_named_and_the_part_can_be_resumed(void **state)
{
    (void)state;
    if (geteuid() != 0 || mount("none", test_directory, "tmpfs", 0, "size=8m") != 0)
        skip(); /* mounting takes root */
    static uint8_t bytes[100000];
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    options.block_size = 1 << 20;
    rks_shard_writer *writer = open_writer(&options);
    add_unit(writer, 0, 0, 2000);
    rks_shard_writer_close(writer);
    writer = open_writer(&options);
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
    rks_status opened = rks_shard_writer_open(test_directory, "part", &options, &resumed, &err);
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
    rks_schema_free(schema);
}

int main(void)
{
    alarm(110);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_added_is_found_by_its_locator, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            finished_units_survive_and_the_tail_of_an_unfinished_one_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_killed_writer_loses_no_committed_unit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_slow_writer_commits_what_it_has, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_second_writer_is_refused_naming_the_first, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_sealed_shard_is_never_opened_for_writing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_part_of_another_build_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_interrupted_seal_is_done_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damage_in_what_an_earlier_writer_left_is_found_by_the_seal,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cut_part_is_an_error_and_no_signal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_shard_without_samples_is_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sample_above_the_block_size_has_its_own_block, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(payloads_and_wide_columns_are_aligned_in_the_file, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(derived_keys_are_not_stored_and_count_on_in_their_file,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(index_columns_travel_as_plain_numbers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refused_sample_leaves_the_writer_usable, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(wrong_options_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(digests_do_not_depend_on_shard_or_block_size, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(small_samples_cost_48_bytes_and_a_percent, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(survives_each_failing_allocation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_interrupt_ends_the_seal_and_the_part_stays, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_is_named_and_the_part_can_be_resumed, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests_name("shard_writer", tests, NULL, NULL);
}
