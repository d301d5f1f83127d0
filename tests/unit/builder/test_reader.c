/* SPDX-License-Identifier: Apache-2.0
 *
 * test_reader.c: an input's samples without a build: the keys and rows of a build, bad rows, and
 * takers that fail. */
#include "unit/store/files.h"

typedef struct job {
    char path[96];
    rks_build_options options;
    uint64_t next;     /* number of the row that comes next */
    uint64_t fail_at;  /* the taker fails with this row, UINT64_MAX: never; or this rank fails */
    bool without_file; /* of that rank: an input that is not there, else no input at all */
} job;

static bool is_bad(uint64_t number)
{
    return number % 50 == 49;
}

static rks_status take(void *user, const rks_sample *sample, uint64_t row, rks_error *err)
{
    job *j = user;
    char key[32];
    int64_t id = -1;
    while (is_bad(j->next))
        j->next++;
    if (j->next == j->fail_at)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "the taker's own");
    snprintf(key, sizeof(key), "a.jsonl:%llu", (unsigned long long)j->next);
    memcpy(&id, sample->values[0].data, sizeof(id));
    bool good = row == j->next && id == (int64_t)row && sample->key_size == strlen(key) &&
                memcmp(sample->key, key, strlen(key)) == 0 &&
                sample->length == file_text_size(row) &&
                sample->values[1].size == file_text_size(row);
    j->next++;
    return good ? RKS_OK
                : rks_fail(err, RKS_ERR_DATA, 0, "row %llu differs", (unsigned long long)row);
}

static rks_status read_all(rks_reader *reader, job *j, uint64_t *bad, rks_error *err)
{
    rks_status status = RKS_OK;
    for (uint64_t unit = 0; status == RKS_OK && unit < rks_reader_units(reader); unit++) {
        rks_read_report report = {.struct_size = sizeof(report)};
        status = rks_reader_read(reader, unit, take, j, &report, err);
        if (status == RKS_OK && report.bad > 0 && strstr(report.bad_first, "a.jsonl:") == NULL)
            status = rks_fail(err, RKS_ERR_DATA, 0, "unit %llu lists no bad row",
                              (unsigned long long)unit);
        *bad += report.bad;
    }
    return status;
}

static void check_units(member *m, rks_reader *reader)
{
    const char *name = NULL;
    uint64_t bytes = 0, all = 0, units = rks_reader_units(reader);
    EXPECT(units > 2);
    for (uint64_t unit = 0; unit < units; unit++, all += bytes)
        EXPECT(rks_reader_unit(reader, unit, &name, &bytes, &m->err) == RKS_OK &&
               strcmp(name, "a.jsonl") == 0);
    EXPECT(all > 0);
    EXPECT(rks_reader_unit(reader, units, &name, &bytes, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_reader_read(reader, units, take, NULL, NULL, &m->err) == RKS_ERR_ARGUMENT);
}

static void read_on_every_rank(member *m)
{
    job j = *(job *)m->user;
    const char *sources[] = {j.path}, *format = NULL;
    rks_reader *reader = NULL;
    uint64_t bad = 0;
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rks_source_format(sources, 1, &j.options, &format, &m->err));
    EXPECT(format != NULL && strcmp(format, "jsonl") == 0);
    EXPECT_OK(rks_reader_open(m->group, sources, 1, &j.options, &reader, &m->err));
    if (reader == NULL)
        return;
    EXPECT(strcmp(rks_schema_name(rks_reader_schema(reader), 1), "text") == 0);
    check_units(m, reader);
    rks_status status = read_all(reader, &j, &bad, &m->err);
    if (j.fail_at == UINT64_MAX) {
        EXPECT_OK(status);
        EXPECT(j.next == FILE_ROWS - 1 && bad == FILE_ROWS / 50); /* the last row is bad */
    } else {
        EXPECT(status == RKS_ERR_ARGUMENT);
        EXPECT_TEXT("a.jsonl:124: the taker's own"); /* counted from 1 */
    }
    rks_reader_close(reader);
}

static void with_ranks(uint32_t ranks, uint64_t fail_at)
{
    char directory[64];
    job j = {.fail_at = fail_at};
    world_directory(directory);
    snprintf(j.path, sizeof(j.path), "%s/a.jsonl", directory);
    file_write(j.path, 0, FILE_ROWS, is_bad);
    file_options(&j.options);
    j.options.skip_bad = true;
    on_threads(ranks, read_on_every_rank, &j);
    world_remove(directory);
}

static void samples_have_the_keys_and_rows_of_a_build(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 3; ranks++)
        with_ranks(ranks, UINT64_MAX);
}

static void a_taker_that_fails_ends_the_unit_with_its_own_error(void **state)
{
    (void)state;
    with_ranks(2, 123);
}

/* Rank `fails_at` of the job brings an error of its own. */
static void fail_alone(member *m)
{
    job *j = m->user;
    bool fails = m->rank == j->fail_at;
    const char *sources[] = {fails && j->without_file ? "/nowhere/a.jsonl" : j->path};
    rks_reader *reader = NULL;
    if (!world_enter(m, false))
        return;
    rks_status status = rks_reader_open(m->group, sources, fails && !j->without_file ? 0 : 1,
                                        &j->options, &reader, &m->err);
    EXPECT(status == (j->without_file ? RKS_ERR_NOT_FOUND : RKS_ERR_ARGUMENT));
    EXPECT(m->err.rank == (int32_t)j->fail_at);
    EXPECT_TEXT(j->without_file ? "/nowhere/a.jsonl" : "no source given");
    EXPECT(reader == NULL);
}

static void what_one_rank_lacks_is_every_ranks_error(void **state)
{
    (void)state;
    char directory[64];
    job j = {0};
    world_directory(directory);
    snprintf(j.path, sizeof(j.path), "%s/a.jsonl", directory);
    file_write(j.path, 0, FILE_ROWS, NULL);
    file_options(&j.options);
    for (j.fail_at = 0; j.fail_at < 3; j.fail_at++) {
        j.without_file = false;
        on_threads(3, fail_alone, &j);
        j.without_file = true;
        on_threads(3, fail_alone, &j);
    }
    world_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_have_the_keys_and_rows_of_a_build),
        cmocka_unit_test(a_taker_that_fails_ends_the_unit_with_its_own_error),
        cmocka_unit_test(what_one_rank_lacks_is_every_ranks_error),
    };
    return cmocka_run_group_tests_name("reader", tests, NULL, NULL);
}
