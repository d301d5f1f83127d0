/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bad_pages.c: a page of a sealed part that cannot be read while samples are left out is an
 * error of that page, not one of the zeros that are read in its place. */
#include "unit/store/world.h"

#include <stdio.h>

#include "builder/exclusions.h"

enum { PAGE = 4096, ROWS = 20000 };

rks_status __real_rks_exclusions_weigh(rks_exclusions *at, const void *payload, size_t size,
                                       size_t key_size, uint64_t *bytes, rks_error *err);
rks_status __wrap_rks_exclusions_weigh(rks_exclusions *at, const void *payload, size_t size,
                                       size_t key_size, uint64_t *bytes, rks_error *err);

static bool cut;

/* Cuts the file that is mapped at `address` there. */
static void cut_file(uintptr_t address)
{
    char line[512], path[400];
    unsigned long first, end, offset;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (!cut && fgets(line, sizeof(line), maps) != NULL)
        if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %399s", &first, &end, &offset, path) == 4 &&
            first <= address && address < end)
            cut = truncate(path, (off_t)(offset + (address - first))) == 0;
    fclose(maps);
}

/* A record whose header is the end of a page: after it there are zeros, which are no sample. */
rks_status __wrap_rks_exclusions_weigh(rks_exclusions *at, const void *payload, size_t size,
                                       size_t key_size, uint64_t *bytes, rks_error *err)
{
    if (!cut && (uintptr_t)payload % PAGE == 0)
        cut_file((uintptr_t)payload);
    return __real_rks_exclusions_weigh(at, payload, size, key_size, bytes, err);
}

static rks_status make_rows(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    rks_status status = RKS_OK;
    (void)user, (void)unit;
    for (int64_t row = 0; status == RKS_OK && row < ROWS; row++) {
        const rks_value values[2] = {{.data = &row, .size = 8}, {.data = "words", .size = 5}};
        status = rows_add(sink, values, NULL, 0, err);
    }
    return status;
}

static void build_with(rks_build_options *options)
{
    char directory[FOLDER_PATH], target[FOLDER_PATH + 8];
    rks_group *group = NULL;
    const made_rows rows = {.make = make_rows, .units = 1};
    rks_build_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    world_directory(directory);
    snprintf(target, sizeof(target), "%s/d", directory);
    options->schema = "id:int64,text:str";
    options->key = "id";
    cut = false;
    assert_ok(rks_group_open(NULL, &group, &err), &err);
    assert_fails(RKS_ERR_IO, rows_build(group, target, options, &rows, &report, &err));
    assert_true(cut);
    assert_contains(err.text, "cannot be read");
    rks_group_close(group);
    world_remove(directory);
}

static void a_page_that_is_gone_is_told_where_duplicates_are_left_out(void **state)
{
    (void)state;
    rks_build_options options;
    rks_build_options_default(&options);
    options.dedup = true;
    build_with(&options);
}

static void a_page_that_is_gone_is_told_where_a_sample_is_drawn(void **state)
{
    (void)state;
    rks_build_options options;
    rks_build_options_default(&options);
    options.sample = 10;
    build_with(&options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_that_is_gone_is_told_where_duplicates_are_left_out),
        cmocka_unit_test(a_page_that_is_gone_is_told_where_a_sample_is_drawn),
    };
    return cmocka_run_group_tests_name("bad pages", tests, NULL, NULL);
}
