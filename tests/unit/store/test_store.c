/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store.c: open stores: what every rank knows of all samples, and fetching each of them. */
#include "world.h"

#include "index/index.h"
#include "store/store.h"

typedef struct job {
    const char *directory;
    bool own_nodes;
    bool own_directories; /* {rank} */
    rks_store_options options;
    int step;
} job;

static rks_group *enter(const rks_bootstrap *bootstrap, const job *j, int *failures)
{
    rks_error err = {0};
    rks_group *group = NULL;
    if (world_group(bootstrap, j->own_nodes, &group, &err) != RKS_OK) {
        fprintf(stderr, "rank %u: %s\n", bootstrap->rank, err.text);
        (*failures)++;
    }
    return group;
}

static void pattern(const job *j, char text[96])
{
    snprintf(text, 96, "%s%s", j->directory, j->own_directories ? "/r{rank}" : "");
}

/* ---- everything about every sample --------------------------------------------------------- */

static int check_index(rks_store *store, uint32_t rank)
{
    int failures = 0;
    const char *type = NULL;
    const uint32_t *lengths = rks_store_lengths(store);
    const uint64_t *hashes = rks_store_key_hashes(store);
    const int64_t *ids = rks_store_column(store, "id", &type);
    EXPECT(rks_store_count(store) == SAMPLES);
    EXPECT(rks_store_column(store, "text", NULL) == NULL);
    EXPECT(ids != NULL && strcmp(type, "int64") == 0);
    for (uint64_t id = 0; id < SAMPLES && failures == 0; id++) {
        world_sample sample;
        world_make(id, &sample);
        EXPECT(lengths[id] == world_text_size(id));
        EXPECT(hashes[id] == rks_key_hash(sample.key, strlen(sample.key)));
        EXPECT(ids[id] == (int64_t)id);
        int64_t shard = rks_store_shard(store, id);
        EXPECT(shard >= 0 && (size_t)shard < store->dataset->shard_count);
        EXPECT(rks_store_owner(store, id) == store->owners[shard][0]);
    }
    EXPECT(rks_store_owner(store, SAMPLES) == -1 && rks_store_shard(store, SAMPLES) == -1);
    return failures;
}

static int check_keys(rks_store *store, uint32_t rank)
{
    int failures = 0;
    rks_error err = {0};
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    for (uint64_t id = rank; id < SAMPLES && failures == 0; id += 13) {
        world_sample sample;
        uint64_t found = SAMPLES;
        world_make(id, &sample);
        EXPECT_OK(rks_store_key(store, id, key, &size, &err), &err);
        EXPECT(size == strlen(sample.key) && memcmp(key, sample.key, size) == 0);
        EXPECT_OK(rks_store_find(store, key, size, &found, &err), &err);
        EXPECT(found == id);
    }
    uint64_t found = 77;
    EXPECT(rks_store_find(store, "no such key", 11, &found, &err) == RKS_ERR_NOT_FOUND);
    EXPECT_TEXT(err, "no such key");
    EXPECT(found == 77);
    EXPECT(rks_store_find(store, "", 0, &found, &err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_store_key(store, SAMPLES, key, &size, &err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_store_key(store, UINT64_MAX, key, &size, &err) == RKS_ERR_ARGUMENT);
    return failures;
}

/* All samples, in an order of this rank's, in two fetches at once and one that waits. */
static int check_fetch(rks_store *store, uint32_t rank)
{
    int failures = 0;
    rks_error err = {0};
    uint64_t ids[SAMPLES];
    rks_fetch *fetch = NULL;
    rks_batch *batch = NULL, *empty = NULL;
    for (uint64_t i = 0; i < SAMPLES; i++)
        ids[i] = (i * 11 + rank * 17) % SAMPLES;
    EXPECT_OK(rks_store_fetch_start(store, ids, SAMPLES / 2, &fetch, &err), &err);
    EXPECT_OK(rks_store_fetch(store, ids + SAMPLES / 2, SAMPLES / 2, &batch, &err), &err);
    for (size_t i = 0; batch != NULL && i < SAMPLES / 2 && failures == 0; i++)
        EXPECT(world_is(batch, i, ids[SAMPLES / 2 + i]));
    rks_batch_free(batch);
    batch = NULL;
    if (fetch != NULL)
        EXPECT_OK(rks_fetch_wait(fetch, &batch, &err), &err);
    for (size_t i = 0; batch != NULL && i < SAMPLES / 2 && failures == 0; i++)
        EXPECT(world_is(batch, i, ids[i]));
    rks_batch_free(batch);
    EXPECT_OK(rks_store_fetch(store, NULL, 0, &empty, &err), &err);
    EXPECT(empty != NULL && rks_batch_count(empty) == 0);
    rks_batch_free(empty);
    ids[1] = SAMPLES;
    EXPECT(rks_store_fetch(store, ids, 2, &batch, &err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_store_fetch(store, NULL, 2, &batch, &err) == RKS_ERR_ARGUMENT);
    return failures;
}

static int check_store(const rks_bootstrap *bootstrap, void *user)
{
    const job *j = user;
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    char directory[96];
    rks_error err = {0};
    rks_store *store = NULL;
    char *json = NULL;
    rks_store_stats stats = {.struct_size = sizeof(stats)};
    rks_group *group = enter(bootstrap, j, &failures);
    pattern(j, directory);
    EXPECT_OK(rks_store_open(group, directory, &j->options, &store, &err), &err);
    if (store != NULL) {
        failures += check_index(store, rank) + check_keys(store, rank) + check_fetch(store, rank);
        EXPECT_OK(rks_store_info_json(store, &json, &err), &err);
        EXPECT(json != NULL && strstr(json, "\"samples\": 280") != NULL);
        rks_release(json);
        rks_store_stats_get(store, &stats);
        EXPECT(stats.samples == SAMPLES);
        if (bootstrap->size > 1 && j->options.no_share)
            EXPECT(stats.remote_bytes > 0);
    }
    rks_store_close(store, 0);
    rks_group_close(group);
    return failures;
}

static void every_rank_knows_and_fetches_every_sample(void **state)
{
    (void)state;
    static const char *const exchanges[] = {"auto", "local", "pull"};
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        char directory[64];
        world_directory(directory);
        world_dataset(directory, ranks, false);
        for (int i = 0; i < 12; i++) {
            job j = {.directory = directory, .own_nodes = i % 2 == 1};
            rks_store_options_default(&j.options);
            j.options.no_share = i / 2 % 2 == 1;
            j.options.exchange = exchanges[i / 4];
            world_run(ranks, check_store, &j);
        }
        world_remove(directory);
    }
}

static void build_in_own_directories(const char *directory, uint32_t ranks)
{
    char name[96];
    snprintf(name, sizeof(name), "%s/r{rank}", directory);
    world_dataset(name, ranks, false);
}

static void more_and_fewer_ranks_than_built_it_open_it(void **state)
{
    (void)state;
    char directory[64];
    world_directory(directory);
    build_in_own_directories(directory, 2);
    for (int i = 0; i < 4; i++) {
        job j = {.directory = directory, .own_nodes = i % 2 == 1, .own_directories = true};
        rks_store_options_default(&j.options);
        j.options.no_share = i / 2 == 1;
        world_run(4, check_store, &j);
    }
    world_remove(directory);
    world_directory(directory);
    world_dataset(directory, 4, false);
    for (int i = 0; i < 2; i++) {
        job j = {.directory = directory, .own_nodes = i % 2 == 1};
        rks_store_options_default(&j.options);
        world_run(3, check_store, &j);
    }
    world_remove(directory);
}

/* ---- what is wrong, on all ranks --------------------------------------------------------------
 */

static int open_fails(const rks_bootstrap *bootstrap, void *user)
{
    static const struct {
        rks_status status;
        const char *text;
    } expected[] = {
        {RKS_ERR_STATE, "another dataset"}, {RKS_ERR_NOT_FOUND, "part-"},
        {RKS_ERR_NOT_FOUND, "no dataset"},  {RKS_ERR_CORRUPT, "dataset.json"},
        {RKS_ERR_CORRUPT, "part-"},         {RKS_ERR_ARGUMENT, "exchange"},
    };
    const job *j = user;
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    char directory[96];
    rks_error err = {0};
    rks_store *store = NULL;
    rks_group *group = enter(bootstrap, j, &failures);
    pattern(j, directory);
    rks_store_options options = j->options;
    if (j->step == 5 && rank == 1)
        options.exchange = "pigeon";
    EXPECT(rks_store_open(group, directory, &options, &store, &err) == expected[j->step].status);
    EXPECT_TEXT(err, expected[j->step].text);
    EXPECT(store == NULL);
    /* The group is as good as before. */
    EXPECT_OK(rks_group_agree(group, "after", RKS_OK, &err), &err);
    rks_group_close(group);
    return failures;
}

/* The first part in a directory, with another ending. */
static void find_part(const char *directory, const char *ending, char path[400])
{
    DIR *stream = opendir(directory);
    assert_non_null(stream);
    path[0] = '\0';
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        size_t size = strlen(entry->d_name);
        if (strncmp(entry->d_name, "part-", 5) == 0 && size > 4 &&
            strcmp(entry->d_name + size - 4, ".rks") == 0)
            snprintf(path, 400, "%s/%.*s%s", directory, (int)size - 4, entry->d_name, ending);
    }
    closedir(stream);
    assert_true(path[0] != '\0');
}

static void hide_part(const char *directory)
{
    static const char *const endings[] = {".json", ".sums", ".rks"};
    for (size_t i = 0; i < 3; i++) {
        char path[400];
        find_part(directory, endings[i], path);
        assert_int_equal(unlink(path), 0);
    }
}

static void overwrite(const char *path, long at, const char *text)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    fputs(text, file);
    fclose(file);
}

/* A dataset like the others, less the last unit. */
static int build_less(const rks_bootstrap *bootstrap, void *user)
{
    const char *directory = user;
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_builder *builder = NULL;
    rks_build_options options;
    world_build_options(&options);
    EXPECT_OK(world_group(bootstrap, false, &group, &err), &err);
    EXPECT_OK(rks_builder_open(group, directory, &options, &builder, &err), &err);
    EXPECT_OK(world_add_unit(builder, true, 3, &err), &err);
    EXPECT_OK(rks_builder_commit(builder, RKS_OK, NULL, &err), &err);
    rks_builder_close(builder);
    rks_group_close(group);
    return failures;
}

static void what_is_wrong_on_one_rank_ends_the_open_on_all(void **state)
{
    (void)state;
    for (int step = 0; step < 6; step++) {
        char directory[64], one[96], path[400];
        job j = {.directory = directory, .own_directories = true, .step = step};
        rks_store_options_default(&j.options);
        world_directory(directory);
        snprintf(one, sizeof(one), "%s/r1", directory);
        if (step != 2)
            build_in_own_directories(directory, 3);
        if (step == 0) {
            world_remove(one);
            world_run(1, build_less, one);
        } else if (step == 1) {
            hide_part(one);
        } else if (step == 3) {
            snprintf(path, sizeof(path), "%s/dataset.json", one);
            overwrite(path, 40, "#");
        } else if (step == 4) {
            find_part(one, ".json", path);
            overwrite(path, 60, "#");
        }
        world_run(3, open_fails, &j);
        world_remove(directory);
    }
}

static int open_partial(const rks_bootstrap *bootstrap, void *user)
{
    const job *j = user;
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    char directory[96];
    rks_error err = {0};
    rks_store *store = NULL;
    rks_plan *plan = NULL;
    rks_plan_report report = {.struct_size = sizeof(report)};
    uint64_t absent = 0, steps = 0, id = 0;
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    rks_group *group = enter(bootstrap, j, &failures);
    pattern(j, directory);
    EXPECT_OK(rks_store_open(group, directory, &j->options, &store, &err), &err);
    if (store == NULL)
        return 1;
    const uint32_t *lengths = rks_store_lengths(store);
    EXPECT(rks_store_count(store) == SAMPLES);
    for (id = 0; id < SAMPLES; id++) {
        bool there = id / UNIT_ROWS % 3 != 1; /* unit % 3 is the rank that wrote it */
        rks_batch *batch = NULL;
        absent += !there;
        EXPECT(lengths[id] == (there ? world_text_size(id) : RKS_LENGTH_ABSENT));
        EXPECT((rks_store_owner(store, id) >= 0) == there);
        if (id % 7 == 0) {
            rks_status status = rks_store_fetch(store, &id, 1, &batch, &err);
            EXPECT(status == (there ? RKS_OK : RKS_ERR_NOT_FOUND));
            EXPECT(batch == NULL || world_is(batch, 0, id));
            rks_batch_free(batch);
            status = rks_store_key(store, id, key, &size, &err);
            EXPECT(status == (there ? RKS_OK : RKS_ERR_NOT_FOUND));
        }
    }
    EXPECT_OK(rks_plan_open(store, NULL, &plan, &err), &err);
    EXPECT_OK(rks_plan_report_get(plan, 0, &report, &err), &err);
    EXPECT(absent > 0 && report.dropped == absent && report.samples == SAMPLES - absent);
    EXPECT_OK(rks_plan_steps(plan, 0, &steps, &err), &err);
    for (uint64_t step = 0; step < steps; step++) {
        const uint32_t *ids = NULL;
        size_t count = 0;
        EXPECT_OK(rks_plan_batch(plan, 0, step, rank, &ids, &count, &err), &err);
        for (size_t i = 0; i < count; i++)
            EXPECT(lengths[ids[i]] != RKS_LENGTH_ABSENT);
    }
    rks_plan_free(plan);
    rks_store_close(store, 0);
    rks_group_close(group);
    return failures;
}

static void a_partial_store_keeps_its_ids_and_plans_what_is_there(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        char directory[64], one[96];
        job j = {.directory = directory, .own_directories = true, .own_nodes = i % 2 == 1};
        rks_store_options_default(&j.options);
        j.options.partial = true;
        j.options.no_share = i / 2 == 1;
        world_directory(directory);
        build_in_own_directories(directory, 3);
        snprintf(one, sizeof(one), "%s/r1", directory);
        hide_part(one);
        world_run(3, open_partial, &j);
        world_remove(directory);
    }
}

/* ---- stand-ins ---------------------------------------------------------------------------------
 */

/* Steps: 0 the owner refuses, 1 it lies, 2 all refuse. */
static void tell_another_key(void *user, rks_request *request)
{
    static const uint8_t wrong[] = "key 99999";
    (void)user;
    struct iovec part = {(void *)(uintptr_t)wrong, sizeof(wrong) - 1};
    rks_request_reply(request, &part, 1, NULL, NULL);
}

static int ask_stand_ins(const rks_bootstrap *bootstrap, void *user)
{
    const job *j = user;
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    char directory[96];
    rks_error err = {0};
    rks_store *store = NULL;
    uint8_t key[RKS_KEY_MAX] = "untouched";
    size_t size = 77;
    rks_group *group = enter(bootstrap, j, &failures);
    pattern(j, directory);
    EXPECT_OK(rks_store_open(group, directory, &j->options, &store, &err), &err);
    if (store == NULL)
        return 1;
    EXPECT(store->owners[0][0] == 0 && store->owners[0][1] == 1 && store->owners[0][2] == -1);
    if (rank == 0 || (rank == 1 && j->step == 2))
        rks_engine_serve(rks_group_engine(group), rks_store_service(store, RKS_SERVICE_KEYS),
                         rank == 0 && j->step == 1 ? tell_another_key : NULL, NULL, NULL);
    EXPECT_OK(rks_group_agree(group, "test: refusing", RKS_OK, &err), &err);
    if (rank == 2 && j->step < 2) {
        failures += check_keys(store, rank);
    } else if (rank == 2) {
        EXPECT(rks_store_key(store, 3, key, &size, &err) == RKS_ERR_PEER);
        EXPECT(err.rank == 1);
        EXPECT(size == 77 && strcmp((char *)key, "untouched") == 0);
    }
    rks_store_close(store, 0);
    rks_group_close(group);
    return failures;
}

static void copy_directory(const char *from, const char *to)
{
    char command[256];
    snprintf(command, sizeof(command), "cp -r %s %s", from, to);
    assert_int_equal(system(command), 0);
}

static void keys_are_asked_of_a_stand_in_where_the_owner_fails(void **state)
{
    (void)state;
    char directory[64], first[96], second[96];
    world_directory(directory);
    snprintf(first, sizeof(first), "%s/r0", directory);
    snprintf(second, sizeof(second), "%s/r1", directory);
    world_dataset(first, 1, false);
    copy_directory(first, second);
    for (int step = 0; step < 3; step++) {
        job j = {.directory = directory, .own_nodes = true, .own_directories = true, .step = step};
        rks_store_options_default(&j.options);
        world_run(3, ask_stand_ins, &j);
    }
    world_remove(directory);
}

/* ---- several, and again and again --------------------------------------------------------------
 */

/* What is read after the store's end must be what was read before it. */
static int read_after_close(const rks_bootstrap *bootstrap, void *user)
{
    const job *j = user;
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_store *store = NULL;
    rks_plan *plan = NULL;
    rks_plan_report before = {.struct_size = sizeof(before)}, after = before;
    rks_group *group = enter(bootstrap, j, &failures);
    EXPECT_OK(rks_store_open(group, j->directory, &j->options, &store, &err), &err);
    if (store == NULL)
        return 1;
    rks_index *index = rks_store_index(store), *again = rks_store_index(store);
    const uint32_t *lengths = rks_store_lengths(store);
    const int64_t *numbers = rks_store_column(store, "id", NULL);
    EXPECT_OK(rks_plan_open(store, NULL, &plan, &err), &err);
    EXPECT_OK(rks_plan_report_get(plan, 1, &before, &err), &err);
    EXPECT_OK(rks_plan_report_get(plan, 0, &after, &err), &err); /* not at that epoch any more */
    rks_store_close(store, 0);
    rks_index_close(again);
    for (uint64_t id = 0; id < SAMPLES; id++)
        EXPECT(lengths[id] == world_text_size(id) && numbers[id] == (int64_t)id);
    EXPECT_OK(rks_plan_report_get(plan, 1, &after, &err), &err);
    EXPECT(strcmp(before.digest, after.digest) == 0);
    rks_plan_free(plan);
    rks_index_close(index);
    rks_group_close(group);
    return failures;
}

static void the_index_and_plans_outlive_the_store(void **state)
{
    (void)state;
    char directory[64];
    world_directory(directory);
    world_dataset(directory, 3, false);
    for (int i = 0; i < 2; i++) {
        job j = {.directory = directory, .own_nodes = i == 1};
        rks_store_options_default(&j.options);
        world_run(3, read_after_close, &j);
    }
    world_remove(directory);
}

static int two_at_once(const rks_bootstrap *bootstrap, void *user)
{
    const job *j = user;
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_store *first = NULL, *second = NULL, *third = NULL;
    rks_group *group = enter(bootstrap, j, &failures);
    EXPECT_OK(rks_store_open(group, j->directory, &j->options, &first, &err), &err);
    EXPECT_OK(rks_store_open(group, j->directory, &j->options, &second, &err), &err);
    EXPECT(first != NULL && second != NULL && first->slot != second->slot);
    if (first == NULL || second == NULL)
        return 1;
    failures += check_fetch(first, rank) + check_fetch(second, rank);
    rks_store_close(first, 0);
    failures += check_fetch(second, rank);
    EXPECT_OK(rks_store_open(group, j->directory, &j->options, &third, &err), &err);
    EXPECT(third != NULL && third->slot != second->slot);
    failures += check_keys(third, rank);
    rks_store_close(second, 0);
    failures += check_fetch(third, rank);
    rks_store_close(third, 0);
    rks_group_close(group);
    return failures;
}

static void two_stores_are_open_on_one_group(void **state)
{
    (void)state;
    char directory[64];
    job j = {.directory = directory};
    world_directory(directory);
    world_dataset(directory, 3, false);
    rks_store_options_default(&j.options);
    j.options.no_share = true;
    world_run(3, two_at_once, &j);
    world_remove(directory);
}

/* Rank 0 counts at the barriers: descriptors belong to the process. */
static int open_and_close(const rks_bootstrap *bootstrap, void *user)
{
    const job *j = user;
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    size_t descriptors = 0;
    long memory = 0;
    rks_error err = {0};
    rks_group *group = enter(bootstrap, j, &failures);
    for (int round = 0; round < 20; round++) {
        rks_store *store = NULL;
        EXPECT_OK(rks_store_open(group, j->directory, &j->options, &store, &err), &err);
        if (store != NULL)
            failures += check_keys(store, rank);
        rks_store_close(store, 0);
        EXPECT_OK(rks_group_agree(group, "closed", RKS_OK, &err), &err);
        if (rank == 0 && round == 1) { /* connections are made by now */
            descriptors = world_descriptors();
            memory = rks_memory_in_use();
        } else if (rank == 0 && round > 1) {
            EXPECT(world_descriptors() <= descriptors);
            EXPECT(rks_memory_in_use() <= memory + 20); /* notes on their way */
        }
        EXPECT_OK(rks_group_agree(group, "counted", RKS_OK, &err), &err);
    }
    rks_group_close(group);
    return failures;
}

static void opening_twenty_times_leaves_nothing_behind(void **state)
{
    (void)state;
    char directory[64];
    world_directory(directory);
    world_dataset(directory, 3, false);
    for (int i = 0; i < 2; i++) {
        job j = {.directory = directory, .own_nodes = i == 1};
        rks_store_options_default(&j.options);
        j.options.no_share = true;
        world_run(3, open_and_close, &j);
    }
    world_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_knows_and_fetches_every_sample),
        cmocka_unit_test(the_index_and_plans_outlive_the_store),
        cmocka_unit_test(more_and_fewer_ranks_than_built_it_open_it),
        cmocka_unit_test(what_is_wrong_on_one_rank_ends_the_open_on_all),
        cmocka_unit_test(a_partial_store_keeps_its_ids_and_plans_what_is_there),
        cmocka_unit_test(keys_are_asked_of_a_stand_in_where_the_owner_fails),
        cmocka_unit_test(two_stores_are_open_on_one_group),
        cmocka_unit_test(opening_twenty_times_leaves_nothing_behind),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
