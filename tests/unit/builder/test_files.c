/* SPDX-License-Identifier: Apache-2.0
 *
 * test_files.c: files as an input: the keys and rows of a build, bad rows, and sinks that fail. */
#include "unit/store/files.h"

typedef struct job {
    char path[96];
    rks_build_options options;
    uint64_t next;     /* number of the row that comes next */
    uint64_t fail_at;  /* the sink fails with this row, UINT64_MAX: never; or this rank fails */
    bool without_file; /* of that rank: an input that is not there, else no input at all */
} job;

static bool is_bad(uint64_t number)
{
    return number % 50 == 49;
}

/* A sink that checks rows, and what it was told of bad ones. */
typedef struct checker {
    rks_sink sink;
    job *j;
    uint64_t bad;
    bool lists_bad; /* each time that there are some */
} checker;

static rks_status check_row(rks_sink *sink, const rks_input_row *given, rks_error *err)
{
    job *j = ((checker *)sink)->j;
    uint64_t row = given->number;
    char key[32];
    int64_t id = -1;
    while (is_bad(j->next))
        j->next++;
    if (j->next == j->fail_at)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "the sink's own");
    snprintf(key, sizeof(key), "a.jsonl:%llu", (unsigned long long)j->next);
    memcpy(&id, given->values[0].data, sizeof(id));
    bool good = row == j->next && id == (int64_t)row && given->key_size == strlen(key) &&
                memcmp(given->key, key, strlen(key)) == 0 && given->length == file_text_size(row) &&
                given->values[1].size == file_text_size(row);
    j->next++;
    return good ? RKS_OK
                : rks_fail(err, RKS_ERR_DATA, 0, "row %llu differs", (unsigned long long)row);
}

static rks_status check_left_out(rks_sink *sink, uint64_t filtered, uint64_t bad, const char *lines,
                                 rks_error *err)
{
    checker *c = (checker *)sink;
    (void)err;
    c->bad += bad;
    c->lists_bad = c->lists_bad && filtered == 0 &&
                   (bad == 0 || (lines != NULL && strstr(lines, "a.jsonl:") != NULL));
    return RKS_OK;
}

/* An rks_scan that counts. */
typedef struct counter {
    rks_scan scan;
    uint64_t units, bytes;
    bool named;
} counter;

static rks_status count_unit(rks_scan *scan, const char *name, uint64_t weight, rks_error *err)
{
    counter *c = (counter *)scan;
    (void)err;
    c->units++;
    c->bytes += weight;
    c->named = c->named && strcmp(name, "a.jsonl") == 0;
    return RKS_OK;
}

static uint64_t check_units(member *m, rks_files *files, rks_sink *sink)
{
    counter c = {.scan = {.struct_size = sizeof(c.scan), .unit = count_unit}, .named = true};
    EXPECT_OK(rks_files_input()->scan(files, &c.scan, &m->err));
    EXPECT(c.units > 2 && c.bytes > 0 && c.named && c.scan.stream == RKS_STREAM_NONE);
    EXPECT(rks_files_input()->read(files, c.units, sink, &m->err) == RKS_ERR_ARGUMENT);
    return c.units;
}

static void read_on_every_rank(member *m)
{
    job j = *(job *)m->user;
    const char *sources[] = {j.path}, *format = NULL;
    rks_files *files = NULL;
    checker c = {
        .sink = {.struct_size = sizeof(c.sink), .row = check_row, .left_out = check_left_out},
        .j = &j,
        .lists_bad = true};
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rks_source_format(sources, 1, &j.options, &format, &m->err));
    EXPECT(format != NULL && strcmp(format, "jsonl") == 0);
    EXPECT_OK(rks_files_open(m->group, sources, 1, &j.options, &files, &m->err));
    if (files == NULL)
        return;
    EXPECT(strcmp(rks_schema_name(rks_files_schema(files), 1), "text") == 0);
    uint64_t units = check_units(m, files, &c.sink);
    rks_status status = RKS_OK;
    for (uint64_t unit = 0; status == RKS_OK && unit < units; unit++)
        status = rks_files_input()->read(files, unit, &c.sink, &m->err);
    if (j.fail_at == UINT64_MAX) {
        EXPECT_OK(status);
        EXPECT(j.next == FILE_ROWS - 1 && c.bad == FILE_ROWS / 50 &&
               c.lists_bad); /* the last row is bad */
    } else {
        EXPECT(status == RKS_ERR_ARGUMENT);
        EXPECT_TEXT("a.jsonl:124: the sink's own"); /* counted from 1 */
    }
    rks_files_close(files);
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

static void a_sink_that_fails_ends_the_unit_with_its_own_error(void **state)
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
    rks_files *files = NULL;
    if (!world_enter(m, false))
        return;
    rks_status status = rks_files_open(m->group, sources, fails && !j->without_file ? 0 : 1,
                                       &j->options, &files, &m->err);
    EXPECT(status == (j->without_file ? RKS_ERR_NOT_FOUND : RKS_ERR_ARGUMENT));
    EXPECT(m->err.rank == (int32_t)j->fail_at);
    EXPECT_TEXT(j->without_file ? "/nowhere/a.jsonl" : "no source given");
    EXPECT(files == NULL);
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
        cmocka_unit_test(a_sink_that_fails_ends_the_unit_with_its_own_error),
        cmocka_unit_test(what_one_rank_lacks_is_every_ranks_error),
    };
    return cmocka_run_group_tests_name("files", tests, NULL, NULL);
}
