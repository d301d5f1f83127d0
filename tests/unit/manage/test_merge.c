/* SPDX-License-Identifier: Apache-2.0
 *
 * test_merge.c: merges, appends and prunes on ranks that are nodes of their own, each with a
 * directory: what all see afterwards, and what is left where one of them fails. */
#include "unit/store/world.h"

#include <dirent.h>

#include "base/file.h"
#include "support/pages.h"

enum { RANKS = 3, MORE = 3 }; /* units of the second dataset */

static char place[64], left[96], right[96], merged[96];

static rks_status build_units(rks_group *group, const char *directory, uint64_t first,
                              uint64_t count, bool append, rks_error *err)
{
    rks_build_options options;
    world_build_options(&options);
    options.append = append;
    options.source = append ? "more" : "first";
    return world_build_units(group, directory, &options, first, count, NULL, err);
}

static void build_both(member *m)
{
    if (!world_enter(m, true))
        return;
    EXPECT_OK(build_units(m->group, left, 0, UNITS, false, &m->err));
    EXPECT_OK(build_units(m->group, right, UNITS, MORE, false, &m->err));
}

static int make_sources(void **state)
{
    (void)state;
    world_directory(place);
    snprintf(left, sizeof(left), "%s/left-{rank}", place);
    snprintf(right, sizeof(right), "%s/right-{rank}", place);
    snprintf(merged, sizeof(merged), "%s/merged-{rank}", place);
    on_threads(RANKS, build_both, NULL);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    world_remove(place);
    return 0;
}

static void here(const member *m, const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s-%u", place, name, m->rank);
}

/* Every sample of `count`, by id and by key. */
static void look(member *m, const char *directory, uint64_t count)
{
    rks_store *store = NULL;
    EXPECT_OK(rks_store_open(m->group, directory, NULL, &store, &m->err));
    EXPECT(store != NULL && rks_store_count(store) == count);
    for (uint64_t id = m->rank; store != NULL && id < count && m->failures == 0; id += RANKS) {
        rks_batch *batch = NULL;
        world_sample sample;
        uint64_t found = UINT64_MAX;
        world_make(id, &sample);
        EXPECT_OK(rks_store_fetch(store, &id, 1, &batch, &m->err));
        EXPECT(batch != NULL && world_is(batch, 0, id));
        EXPECT_OK(rks_store_find(store, sample.key, strlen(sample.key), &found, &m->err));
        EXPECT(found == id);
        rks_batch_free(batch);
    }
    rks_store_close(store, CLOSE_MS);
}

/* ---- merging --------------------------------------------------------------------------------- */

static void merge_both(member *m)
{
    const bool *copy = m->user;
    const char *sources[] = {left, right};
    rks_merge_options options = {.struct_size = sizeof(options), .copy = *copy};
    rks_merge_report report = {.struct_size = sizeof(report)};
    char path[128];
    if (!world_enter(m, true))
        return;
    EXPECT_OK(rks_merge(m->group, sources, 2, merged, &options, &report, &m->err));
    EXPECT(report.samples == SAMPLES + MORE * UNIT_ROWS && strlen(report.dataset) == 32);
    EXPECT((report.linked_bytes > 0) == !*copy && (report.copied_bytes > 0) == *copy);
    look(m, merged, SAMPLES + MORE * UNIT_ROWS);
    here(m, "merged", path);
    EXPECT(world_files(path, ".tmp") == 0 && world_files(path, "build.lock") == 0);
}

static void ranks_bring_what_each_of_them_sees(void **state)
{
    (void)state;
    for (int copy = 0; copy < 2; copy++) {
        bool copied = copy != 0;
        char command[160];
        on_threads(RANKS, merge_both, &copied);
        snprintf(command, sizeof(command), "rm -r %s/merged-*", place);
        assert_int_equal(system(command), 0);
    }
}

/* The data of all ranks' sources: dropped from memory, or how much of it is there. */
static uint64_t source_pages(bool drop)
{
    uint64_t bytes = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (int side = 0; side < 2; side++) {
            char directory[128], path[512];
            snprintf(directory, sizeof(directory), "%s/%s-%u", place, side == 0 ? "left" : "right",
                     rank);
            DIR *listing = opendir(directory);
            for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
                if (strstr(entry->d_name, ".rks") == NULL)
                    continue;
                snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
                if (drop && !pages_drop(path))
                    bytes = UINT64_MAX / 2;
                bytes += drop ? 0 : pages_resident(path);
            }
            if (listing != NULL)
                closedir(listing);
        }
    return bytes;
}

static void a_merge_leaves_nothing_of_its_sources_in_memory(void **state)
{
    (void)state;
    bool copied = true;
    char command[160];
    if (source_pages(true) != 0)
        skip();
    on_threads(RANKS, merge_both, &copied);
    assert_int_equal(source_pages(false), 0);
    snprintf(command, sizeof(command), "rm -r %s/merged-*", place);
    assert_int_equal(system(command), 0);
}

/* Rank 1 has a file where its directory should be. */
static void merge_into_a_file(member *m)
{
    const char *sources[] = {left, right};
    char path[128];
    here(m, "merged", path);
    if (m->rank == 1)
        EXPECT_OK(rks_file_replace(path, "x", 1, &m->err));
    if (!world_enter(m, true))
        return;
    EXPECT(rks_merge(m->group, sources, 2, merged, NULL, NULL, &m->err) == RKS_ERR_IO);
    EXPECT_TEXT("merged-1");
    EXPECT(m->err.rank == 1);
    EXPECT(world_files(path, "") == 0);
}

/* A shard of rank 2's that is cut: the others have brought theirs when it is found. */
static void merge_what_is_cut(member *m)
{
    const char *sources[] = {left, right};
    char path[128], shard[256] = "";
    here(m, "left", path);
    DIR *stream = opendir(path);
    for (struct dirent *entry; m->rank == 2 && (entry = readdir(stream)) != NULL;)
        if (strstr(entry->d_name, ".rks") != NULL)
            snprintf(shard, sizeof(shard), "%s/%.100s", path, entry->d_name);
    closedir(stream);
    struct stat info = {0};
    if (m->rank == 2)
        EXPECT(stat(shard, &info) == 0 && truncate(shard, info.st_size - 4096) == 0);
    if (!world_enter(m, true))
        return;
    EXPECT(rks_merge(m->group, sources, 2, merged, NULL, NULL, &m->err) != RKS_OK);
    EXPECT_TEXT(".rks");
    here(m, "merged", path);
    EXPECT(world_files(path, "") == 0);
}

static void a_rank_that_fails_is_the_same_error_on_all_and_nothing_is_left(void **state)
{
    (void)state;
    char path[128];
    on_threads(RANKS, merge_into_a_file, NULL);
    snprintf(path, sizeof(path), "%s/merged-1", place);
    assert_int_equal(unlink(path), 0);
    on_threads(RANKS, merge_what_is_cut, NULL);
    world_remove(place);
    make_sources(NULL);
}

static void refuse_arguments(member *m)
{
    const char *sources[] = {left, left};
    const char *none[] = {"/nowhere", left};
    if (!world_enter(m, true))
        return;
    EXPECT(rks_merge(m->group, sources, 1, merged, NULL, NULL, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_merge(m->group, sources, 0, merged, NULL, NULL, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_merge(m->group, sources, 2, merged, NULL, NULL, &m->err) == RKS_ERR_DATA);
    EXPECT_TEXT("hold shards of one dataset, not two");
    EXPECT(rks_merge(m->group, none, 2, merged, NULL, NULL, &m->err) == RKS_ERR_NOT_FOUND);
    EXPECT(rks_merge(m->group, (const char *[]){left, right}, 2, left, NULL, NULL, &m->err) ==
           RKS_ERR_ARGUMENT);
    EXPECT_TEXT("finished dataset");
    EXPECT(rks_prune(m->group, "/nowhere", NULL, NULL, &m->err) == RKS_ERR_NOT_FOUND);
    look(m, left, SAMPLES);
}

static void what_cannot_be_merged_is_refused_and_the_sources_stay(void **state)
{
    (void)state;
    on_threads(RANKS, refuse_arguments, NULL);
}

/* ---- generations ----------------------------------------------------------------------------- */

static void put_strays(member *m, const char *path)
{
    static const char *const names[] = {"part-0-0.rks",    "part-0-0.json",    "part-0-0.sums",
                                        "part-0-0.lock",   "dataset.json.tmp", "excluded-0.runs",
                                        "part-0-0.rks.tmp"};
    char file[256];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(file, sizeof(file), "%s/%s", path, names[i]);
        EXPECT_OK(rks_file_replace(file, "xyz", 3, &m->err));
    }
    snprintf(file, sizeof(file), "%s/mine.txt", path);
    EXPECT_OK(rks_file_replace(file, "xyz", 3, &m->err));
}

static void append_and_prune(member *m)
{
    rks_prune_options options = {.struct_size = sizeof(options), .keep = 1, .dry_run = true};
    rks_prune_report report = {.struct_size = sizeof(report)}, dry = report;
    char path[128], older[192];
    here(m, "left", path);
    snprintf(older, sizeof(older), "%s@1", left);
    if (!world_enter(m, true))
        return;
    EXPECT_OK(build_units(m->group, left, UNITS, MORE, true, &m->err));
    look(m, left, SAMPLES + MORE * UNIT_ROWS);
    look(m, older, SAMPLES);
    put_strays(m, path);
    EXPECT_OK(rks_group_agree(m->group, "test: strays", RKS_OK, &m->err));
    EXPECT_OK(rks_prune(m->group, left, &options, &dry, &m->err));
    look(m, older, SAMPLES);
    options.dry_run = false;
    EXPECT_OK(rks_prune(m->group, left, &options, &report, &m->err));
    /* One generation and seven strays of each rank's; all ranks are told the sum. */
    EXPECT(report.generations == RANKS && report.files == 8 * RANKS);
    EXPECT(dry.generations == RANKS && dry.files == report.files && dry.bytes == report.bytes);
    /* dataset.json, its list, two shards, an index file for each build */
    EXPECT(world_files(path, "mine.txt") == 1 && world_files(path, ".units") == 1);
    EXPECT(world_files(path, ".columns") == 2 && world_files(path, "") == 3 + 6 + 2);
    look(m, left, SAMPLES + MORE * UNIT_ROWS);
    rks_store *store = NULL;
    EXPECT(rks_store_open(m->group, older, NULL, &store, &m->err) == RKS_ERR_NOT_FOUND);
    EXPECT_TEXT("there is no generation 1");
    EXPECT_OK(rks_prune(m->group, left, NULL, &report, &m->err));
    EXPECT(report.generations == 0 && report.files == 0 && report.bytes == 0);
}

static void a_prune_counts_and_removes_what_all_ranks_have(void **state)
{
    (void)state;
    on_threads(RANKS, append_and_prune, NULL);
}

/* An older generation that cannot be read: what it names is not known, so nothing goes. */
static void prune_beside_damage(member *m)
{
    char path[128], file[192];
    here(m, "right", path);
    if (!world_enter(m, true))
        return;
    EXPECT_OK(build_units(m->group, right, 0, 1, true, &m->err));
    size_t files = world_files(path, "");
    snprintf(file, sizeof(file), "%s/dataset.1.json", path);
    if (m->rank == 2)
        EXPECT(truncate(file, 100) == 0);
    snprintf(file, sizeof(file), "%s/part-0-0.rks", path);
    EXPECT_OK(rks_file_replace(file, "x", 1, &m->err));
    EXPECT_OK(rks_group_agree(m->group, "test: damaged", RKS_OK, &m->err));
    EXPECT(rks_prune(m->group, right, NULL, NULL, &m->err) == RKS_ERR_CORRUPT);
    EXPECT_TEXT("dataset.1.json");
    if (m->rank == 2)
        EXPECT(world_files(path, "") == files + 1);
    rks_prune_options options = {.struct_size = sizeof(options), .keep = 1};
    EXPECT_OK(rks_prune(m->group, right, &options, NULL, &m->err)); /* it goes unread */
    rks_store *store = NULL;
    EXPECT_OK(rks_store_open(m->group, right, NULL, &store, &m->err));
    EXPECT(store != NULL && rks_store_count(store) == (MORE + 1) * UNIT_ROWS);
    rks_store_close(store, CLOSE_MS);
}

static void a_generation_that_cannot_be_read_stops_the_prune(void **state)
{
    (void)state;
    on_threads(RANKS, prune_beside_damage, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_bring_what_each_of_them_sees),
        cmocka_unit_test(a_merge_leaves_nothing_of_its_sources_in_memory),
        cmocka_unit_test(a_rank_that_fails_is_the_same_error_on_all_and_nothing_is_left),
        cmocka_unit_test(what_cannot_be_merged_is_refused_and_the_sources_stay),
        cmocka_unit_test(a_prune_counts_and_removes_what_all_ranks_have),
        cmocka_unit_test(a_generation_that_cannot_be_read_stops_the_prune),
    };
    return cmocka_run_group_tests_name("merge", tests, make_sources, remove_place);
}
