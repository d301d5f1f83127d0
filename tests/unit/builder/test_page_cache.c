/* SPDX-License-Identifier: Apache-2.0
 *
 * test_page_cache.c: what a build leaves of its input in memory. Ranks are threads. */
#include "unit/store/files.h"

#include "support/pages.h"

enum { ROWS = 90000 }; /* some 8 MB */

static char place[64], file[96], target[96];

static int make_file(void **state)
{
    (void)state;
    world_directory(place);
    snprintf(file, sizeof(file), "%s/in.jsonl", place);
    snprintf(target, sizeof(target), "%s/store", place);
    file_write(file, 0, ROWS, NULL);
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    world_remove(place);
    return 0;
}

static void build_rank(member *m)
{
    rks_build_options options;
    const char *sources[] = {file};
    if (!world_enter(m, false))
        return;
    file_options(&options);
    options.unit_size = 2 << 20;
    options.block_size = 1 << 20;
    options.replace = true;
    EXPECT_OK(rks_build(m->group, sources, 1, target, &options, NULL, &m->err));
}

/* The system itself may take pages back at any time, and keeps those that it is just reading: what
 * holds in one of several tries is the build's work. A build that does the opposite fails in all.
 */
enum { TRIES = 6 };

static void what_was_not_in_memory_leaves_it(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 2; ranks++) {
        uint64_t left = UINT64_MAX;
        for (int i = 0; i < TRIES && left > 2 << 20; i++) {
            if (!pages_drop(file))
                skip();
            on_threads(ranks, build_rank, NULL);
            left = pages_resident(file);
        }
        assert_true(left <= 2 << 20); /* of 8 MB: the first piece, edges of units */
    }
}

static void read_file(void)
{
    char piece[4096];
    FILE *input = fopen(file, "r");
    assert_non_null(input);
    while (fread(piece, 1, sizeof(piece), input) > 0)
        ;
    assert_int_equal(fclose(input), 0);
}

static void what_was_in_memory_stays(void **state)
{
    (void)state;
    uint64_t before = 1, after = 0;
    for (int i = 0; i < TRIES && after < before; i++) {
        read_file();
        before = pages_resident(file);
        if (before == UINT64_MAX)
            skip();
        on_threads(1, build_rank, NULL);
        after = pages_resident(file);
    }
    assert_true(after >= before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_not_in_memory_leaves_it),
        cmocka_unit_test(what_was_in_memory_stays),
    };
    return cmocka_run_group_tests_name("page_cache", tests, make_file, remove_file);
}
