/* SPDX-License-Identifier: Apache-2.0
 *
 * test_build.c: building from files: keys over the units of a file, resume, bad lines, what is
 * kept, callbacks that fail, and replacing. Ranks are threads. */
#include "jobs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

static char place[64], one_file[96], two_file[96], target[96];
static const char *sources[] = {one_file, two_file};

/* Two files: rows 0 and on, and as many after them. */
static int make_files(void **state)
{
    (void)state;
    world_directory(place);
    snprintf(one_file, sizeof(one_file), "%s/one.jsonl", place);
    snprintf(two_file, sizeof(two_file), "%s/two.jsonl", place);
    snprintf(target, sizeof(target), "%s/store", place);
    file_write(one_file, 0, FILE_ROWS, NULL);
    file_write(two_file, FILE_ROWS, FILE_ROWS, NULL);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    world_remove(place);
    return 0;
}

static void build_rank(member *m)
{
    build_files(m, sources, 2, target);
}

static void new_job(job *j)
{
    memset(j, 0, sizeof(*j));
    file_options(&j->options);
}

/* All ranks have the same error, with this text. */
static void expect_errors(const job *j, uint32_t ranks, const char *text)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        assert_contains(j->errors[rank].text, text);
        assert_string_equal(j->errors[rank].text, j->errors[0].text);
        assert_int_equal(j->errors[rank].rank, j->errors[0].rank);
    }
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void look_at_keys(member *m, rks_store *store)
{
    rks_batch *batch = NULL;
    EXPECT(rks_store_count(store) == 2 * FILE_ROWS);
    for (uint64_t id = 0; id < 2 * FILE_ROWS && m->failures == 0; id++) {
        char expected[64];
        uint8_t key[RKS_KEY_MAX];
        size_t size = 0;
        uint64_t found = UINT64_MAX;
        int length = snprintf(expected, sizeof(expected), "%s.jsonl:%llu",
                              id < FILE_ROWS ? "one" : "two", (unsigned long long)id % FILE_ROWS);
        EXPECT_OK(rks_store_key(store, id, key, &size, &m->err));
        EXPECT(size == (size_t)length && memcmp(key, expected, size) == 0);
        EXPECT_OK(rks_store_find(store, expected, (size_t)length, &found, &m->err));
        EXPECT(found == id);
        EXPECT_OK(rks_store_fetch(store, &id, 1, &batch, &m->err));
        EXPECT(batch != NULL && file_is(batch, 0, id));
        const void *told = batch == NULL ? NULL : rks_batch_key(batch, 0, &size);
        EXPECT(told != NULL && size == (size_t)length && memcmp(told, expected, size) == 0);
        rks_batch_free(batch);
        batch = NULL;
    }
}

static void derived_keys_count_the_rows_of_a_file_over_its_units(void **state)
{
    (void)state;
    char first[33] = "";
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        job j;
        new_job(&j);
        j.look = look_at_keys;
        on_threads(ranks, build_rank, &j);
        assert_int_equal(j.report.samples, 2 * FILE_ROWS);
        assert_true(j.report.units >= 10); /* several a file */
        if (ranks == 1)
            strcpy(first, j.report.dataset);
        assert_string_equal(j.report.dataset, first);
        world_remove(target);
    }
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static int64_t id_of(const rks_sample *sample)
{
    int64_t id;
    memcpy(&id, sample->values[0].data, sizeof(id));
    return id;
}

/* *user: the row that fails, or -1. */
static int keep_odd(void *user, const rks_sample *sample, rks_error *err)
{
    int64_t id = id_of(sample);
    if (id == *(const int64_t *)user)
        return rks_fail(err, RKS_ERR_DATA, 0, "no voice in row %lld", (long long)id);
    return id % 2 == 1;
}

static rks_status length_is_id(void *user, const rks_sample *sample, uint64_t *length,
                               rks_error *err)
{
    int64_t id = id_of(sample);
    if (id == *(const int64_t *)user)
        return rks_fail(err, RKS_ERR_DATA, 0, "no ear for row %lld", (long long)id);
    *length = (uint64_t)id * 10;
    return RKS_OK;
}

static void look_at_odd(member *m, rks_store *store)
{
    const uint32_t *lengths = rks_store_lengths(store);
    rks_batch *batch = NULL;
    uint64_t ids[FILE_ROWS];
    EXPECT(rks_store_count(store) == 200);
    for (uint64_t id = 0; id < 200; id++) {
        ids[id] = id;
        EXPECT(lengths[id] == ((2 * id + 1) * 10 + 2) / 3); /* rounded up */
    }
    EXPECT_OK(rks_store_fetch(store, ids, 200, &batch, &m->err));
    for (size_t i = 0; batch != NULL && i < 200; i++)
        EXPECT(file_is(batch, i, 2 * i + 1));
    rks_batch_free(batch);
}

static void where_and_filter_keep_and_the_length_function_measures(void **state)
{
    (void)state;
    int64_t none = -1;
    for (uint32_t ranks = 1; ranks <= 3; ranks += 2) {
        job j;
        new_job(&j);
        j.options.where = "id < 400";
        j.options.filter = keep_odd;
        j.options.length_fn = length_is_id;
        j.options.length_unit = 3;
        j.look = look_at_odd;
        j.options.callback_user = &none;
        on_threads(ranks, build_rank, &j);
        assert_int_equal(j.report.samples, 200);
        assert_int_equal(j.report.filtered, 400);
        assert_int_equal(j.report.bad, 0);
        world_remove(target);
    }
}

static void a_callback_s_error_on_one_rank_is_the_same_on_all(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        job j;
        int64_t failing = 351;
        new_job(&j);
        j.expected = RKS_ERR_DATA;
        j.options.callback_user = &failing;
        if (kind == 0)
            j.options.filter = keep_odd;
        else
            j.options.length_fn = length_is_id;
        on_threads(3, build_rank, &j);
        expect_errors(&j, 3, kind == 0 ? "no voice in row 351" : "no ear for row 351");
        assert_true(j.errors[0].rank >= 0 && j.errors[0].rank < 3);
        assert_int_equal(world_files(target, "dataset.json"), 0);
        world_remove(target);
    }
}

/* ---- resume ---------------------------------------------------------------------------------- */

static void a_failed_build_goes_on_with_another_number_of_ranks(void **state)
{
    (void)state;
    static const uint32_t next[] = {1, 2, 4};
    int64_t failing = -1;
    job whole;
    new_job(&whole);
    whole.options.filter = keep_odd;
    whole.options.callback_user = &failing;
    on_threads(2, build_rank, &whole);
    assert_int_equal(whole.report.units_resumed, 0);
    world_remove(target);
    for (size_t i = 0; i < 3; i++) {
        job j;
        new_job(&j);
        j.options.filter = keep_odd;
        j.options.callback_user = &failing;
        failing = 2 * FILE_ROWS - 1; /* the last unit: others are finished by then */
        j.expected = RKS_ERR_DATA;
        on_threads(3, build_rank, &j);
        expect_errors(&j, 3, "no voice");
        assert_int_equal(world_files(target, "dataset.json"), 0);
        failing = -1;
        j.expected = RKS_OK;
        on_threads(next[i], build_rank, &j);
        assert_string_equal(j.report.dataset, whole.report.dataset);
        assert_int_equal(j.report.samples, FILE_ROWS);
        assert_int_equal(j.report.filtered, FILE_ROWS);
        assert_true(j.report.units_resumed > 0 && j.report.units_resumed < j.report.units);
        assert_int_equal(j.report.units, whole.report.units);
        world_remove(target);
    }
}

/* Overwrites the middle of each part: pages of the unit list or of a block. */
static void hurt_parts(void)
{
    static const uint8_t nonsense[20000] = {0x5a, 0x01, 0xff};
    DIR *stream = opendir(target);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        char path[512];
        struct stat info;
        if (strstr(entry->d_name, ".rks") == NULL)
            continue;
        snprintf(path, sizeof(path), "%s/%s", target, entry->d_name);
        int fd = open(path, O_WRONLY);
        assert_int_equal(fstat(fd, &info), 0);
        assert_int_equal(pwrite(fd, nonsense, sizeof(nonsense), 8192), sizeof(nonsense));
        close(fd);
    }
    closedir(stream);
}

/* A build that fails in its last unit; the others are finished by then. */
static void fail_late(job *j, int64_t *failing)
{
    new_job(j);
    j->options.filter = keep_odd;
    j->options.callback_user = failing;
    *failing = 2 * FILE_ROWS - 1;
    j->expected = RKS_ERR_DATA;
    on_threads(3, build_rank, j);
    *failing = -1;
    j->expected = RKS_OK;
}

static void damaged_parts_are_built_again(void **state)
{
    (void)state;
    int64_t failing = -1;
    job whole, j;
    new_job(&whole);
    whole.options.filter = keep_odd;
    whole.options.callback_user = &failing;
    on_threads(2, build_rank, &whole);
    world_remove(target);
    fail_late(&j, &failing);
    assert_true(world_files(target, ".rks") > 0);
    hurt_parts();
    on_threads(2, build_rank, &j);
    assert_int_equal(j.report.units_resumed, 0);
    assert_string_equal(j.report.dataset, whole.report.dataset);
    assert_int_equal(j.report.samples, FILE_ROWS);
    world_remove(target);
}

static void a_replacing_build_takes_no_part_of_an_interrupted_one(void **state)
{
    (void)state;
    int64_t failing = -1;
    job j;
    fail_late(&j, &failing);
    j.options.replace = true;
    on_threads(2, build_rank, &j);
    assert_int_equal(j.report.units_resumed, 0);
    assert_int_equal(j.report.samples, FILE_ROWS);
    assert_int_equal(world_files(target, ".rks"), 2); /* the parts of before are gone */
    world_remove(target);
}

/* ---- bad lines ------------------------------------------------------------------------------- */

static bool is_bad(uint64_t number)
{
    return number == 17 || number == 290 || number == FILE_ROWS + 123;
}

static void look_at_good(member *m, rks_store *store)
{
    uint64_t found = 0;
    EXPECT(rks_store_count(store) == 2 * FILE_ROWS - 3);
    /* Keys go by the line, whatever was skipped before it. */
    EXPECT_OK(rks_store_find(store, "one.jsonl:291", 13, &found, &m->err));
    EXPECT(found == 289);
    EXPECT(rks_store_find(store, "one.jsonl:290", 13, &found, &m->err) == RKS_ERR_NOT_FOUND);
    EXPECT_OK(rks_store_find(store, "two.jsonl:299", 13, &found, &m->err));
    EXPECT(found == 2 * FILE_ROWS - 4);
}

static void bad_lines_are_named_and_skipped_where_that_is_asked_for(void **state)
{
    (void)state;
    file_write(one_file, 0, FILE_ROWS, is_bad);
    file_write(two_file, FILE_ROWS, FILE_ROWS, is_bad);
    for (uint32_t ranks = 1; ranks <= 3; ranks += 2) {
        job j;
        new_job(&j);
        j.options.schema = "id:int64,text:str";
        j.expected = RKS_ERR_DATA;
        on_threads(ranks, build_rank, &j);
        expect_errors(&j, ranks, ".jsonl");
        world_remove(target);
        j.options.skip_bad = true;
        j.expected = RKS_OK;
        j.look = look_at_good;
        on_threads(ranks, build_rank, &j);
        assert_int_equal(j.report.bad, 3);
        assert_int_equal(j.report.samples, 2 * FILE_ROWS - 3);
        assert_contains(j.report.bad_first, "one.jsonl:18:"); /* lines count from 1 */
        assert_contains(j.report.bad_first, "one.jsonl:291:");
        assert_contains(j.report.bad_first, "two.jsonl:124:");
        world_remove(target);
    }
    file_write(one_file, 0, FILE_ROWS, NULL);
    file_write(two_file, FILE_ROWS, FILE_ROWS, NULL);
}

/* ---- replacing ------------------------------------------------------------------------------- */

static void a_finished_dataset_is_replaced_only_where_that_is_asked_for(void **state)
{
    (void)state;
    int64_t none = -1;
    job first, j;
    new_job(&first);
    on_threads(2, build_rank, &first);
    new_job(&j);
    j.options.filter = keep_odd;
    j.options.callback_user = &none;
    j.expected = RKS_ERR_ARGUMENT;
    on_threads(2, build_rank, &j);
    expect_errors(&j, 2, "finished dataset");
    new_job(&j); /* the old one is as it was */
    j.options.replace = true;
    j.look = look_at_keys;
    on_threads(2, build_rank, &j);
    assert_string_equal(j.report.dataset, first.report.dataset);
    j.options.filter = keep_odd;
    j.options.callback_user = &none;
    j.look = NULL;
    on_threads(3, build_rank, &j);
    assert_int_equal(j.report.samples, FILE_ROWS);
    assert_string_not_equal(j.report.dataset, first.report.dataset);
    assert_int_equal(world_files(target, ".rks"), 3); /* the old parts are gone */
    assert_int_equal(world_files(target, ".lock"), 0);
    world_remove(target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derived_keys_count_the_rows_of_a_file_over_its_units),
        cmocka_unit_test(where_and_filter_keep_and_the_length_function_measures),
        cmocka_unit_test(a_callback_s_error_on_one_rank_is_the_same_on_all),
        cmocka_unit_test(a_failed_build_goes_on_with_another_number_of_ranks),
        cmocka_unit_test(damaged_parts_are_built_again),
        cmocka_unit_test(a_replacing_build_takes_no_part_of_an_interrupted_one),
        cmocka_unit_test(bad_lines_are_named_and_skipped_where_that_is_asked_for),
        cmocka_unit_test(a_finished_dataset_is_replaced_only_where_that_is_asked_for),
    };
    return cmocka_run_group_tests_name("build", tests, make_files, remove_files);
}
