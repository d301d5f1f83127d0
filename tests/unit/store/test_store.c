/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store.c: open stores: what every rank knows of all samples, and fetching each of them. */
#include "world.h"

#include "index/index.h"
#include "store/store.h"
#include "transport/notes.h"

typedef struct job {
    const char *directory;
    bool own_nodes;
    bool own_directories; /* {rank} */
    rks_store_options options;
    int step;
} job;

static void pattern(const job *j, char text[96])
{
    snprintf(text, 96, "%s%s", j->directory, j->own_directories ? "/r{rank}" : "");
}

/* ---- everything about every sample --------------------------------------------------------- */

static void check_index(member *m, rks_store *store)
{
    const char *type = NULL;
    const uint32_t *lengths = rks_store_lengths(store);
    const uint64_t *hashes = rks_store_key_hashes(store);
    const int64_t *ids = rks_store_column(store, "id", &type);
    EXPECT(rks_store_count(store) == SAMPLES);
    EXPECT(rks_store_column(store, "text", NULL) == NULL);
    EXPECT(ids != NULL && strcmp(type, "int64") == 0);
    for (uint64_t id = 0; id < SAMPLES && m->failures == 0; id++) {
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
}

static void check_keys(member *m, rks_store *store)
{
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    for (uint64_t id = m->rank; id < SAMPLES && m->failures == 0; id += 13) {
        world_sample sample;
        uint64_t found = SAMPLES;
        world_make(id, &sample);
        EXPECT_OK(rks_store_key(store, id, key, &size, &m->err));
        EXPECT(size == strlen(sample.key) && memcmp(key, sample.key, size) == 0);
        EXPECT_OK(rks_store_find(store, key, size, &found, &m->err));
        EXPECT(found == id);
    }
    uint64_t found = 77;
    EXPECT(rks_store_find(store, "no such key", 11, &found, &m->err) == RKS_ERR_NOT_FOUND);
    EXPECT_TEXT("no such key");
    EXPECT(found == 77);
    EXPECT(rks_store_find(store, "", 0, &found, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_store_key(store, SAMPLES, key, &size, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_store_key(store, UINT64_MAX, key, &size, &m->err) == RKS_ERR_ARGUMENT);
}

/* All samples, in an order of this rank's, in two fetches at once and one that waits. */
static void check_fetch(member *m, rks_store *store)
{
    uint64_t ids[SAMPLES];
    rks_fetch *fetch = NULL;
    rks_batch *batch = NULL, *empty = NULL;
    for (uint64_t i = 0; i < SAMPLES; i++)
        ids[i] = (i * 11 + m->rank * 17) % SAMPLES;
    EXPECT_OK(rks_store_fetch_start(store, ids, SAMPLES / 2, &fetch, &m->err));
    EXPECT_OK(rks_store_fetch(store, ids + SAMPLES / 2, SAMPLES / 2, &batch, &m->err));
    for (size_t i = 0; batch != NULL && i < SAMPLES / 2 && m->failures == 0; i++)
        EXPECT(world_is(batch, i, ids[SAMPLES / 2 + i]));
    rks_batch_free(batch);
    batch = NULL;
    if (fetch != NULL)
        EXPECT_OK(rks_fetch_wait(fetch, &batch, &m->err));
    for (size_t i = 0; batch != NULL && i < SAMPLES / 2 && m->failures == 0; i++)
        EXPECT(world_is(batch, i, ids[i]));
    rks_batch_free(batch);
    EXPECT_OK(rks_store_fetch(store, NULL, 0, &empty, &m->err));
    EXPECT(empty != NULL && rks_batch_count(empty) == 0);
    rks_batch_free(empty);
    ids[1] = SAMPLES;
    EXPECT(rks_store_fetch(store, ids, 2, &batch, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_store_fetch(store, NULL, 2, &batch, &m->err) == RKS_ERR_ARGUMENT);
}

static void check_store(member *m)
{
    const job *j = m->user;
    char directory[96];
    rks_store *store = NULL;
    char *json = NULL;
    rks_store_stats stats = {.struct_size = sizeof(stats)};
    if (!world_enter(m, j->own_nodes))
        return;
    pattern(j, directory);
    EXPECT_OK(rks_store_open(m->group, directory, &j->options, &store, &m->err));
    if (store != NULL) {
        check_index(m, store);
        check_keys(m, store);
        check_fetch(m, store);
        EXPECT_OK(rks_store_info_json(store, &json, &m->err));
        EXPECT(json != NULL && strstr(json, "\"samples\": 280") != NULL);
        rks_release(json);
        rks_store_stats_get(store, &stats);
        EXPECT(stats.samples == SAMPLES);
        if (m->size > 1 && j->options.no_share)
            EXPECT(stats.remote_bytes > 0);
    }
    rks_store_close(store, CLOSE_MS);
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
            on_threads(ranks, check_store, &j);
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
        on_threads(4, check_store, &j);
    }
    world_remove(directory);
    world_directory(directory);
    world_dataset(directory, 4, false);
    for (int i = 0; i < 2; i++) {
        job j = {.directory = directory, .own_nodes = i % 2 == 1};
        rks_store_options_default(&j.options);
        on_threads(3, check_store, &j);
    }
    world_remove(directory);
}

/* Two nodes of two ranks, with a shard each: the ranks of a node take one each of the other node's
 * shards, and tell alike what has come. */
static void share_a_node(member *m)
{
    const job *j = m->user;
    char directory[96], node[16];
    rks_store *store = NULL;
    rks_store_stats stats = {.struct_size = sizeof(stats)};
    snprintf(node, sizeof(node), "n%u", m->rank / 2);
    EXPECT_OK(open_group_on(m->bootstrap, node, 5000, &m->group, &m->err));
    if (m->group == NULL)
        return;
    pattern(j, directory);
    EXPECT_OK(rks_store_open(m->group, directory, &j->options, &store, &m->err));
    if (store != NULL) {
        check_index(m, store);
        check_fetch(m, store);
        rks_store_stats_get(store, &stats);
        /* Of each shard: lengths, key hashes and ids, and the head of its piece. */
        uint64_t samples = (m->rank < 2 ? 3 : 4) * UNIT_ROWS;
        bool comes = m->rank >= 2 || j->step == 0; /* the first node has the index file */
        EXPECT(stats.exchange_bytes == (comes ? samples * (4 + 8 + 8) + 2 * 24 : 0));
    }
    rks_store_close(store, CLOSE_MS);
}

static void the_ranks_of_a_node_share_the_exchange(void **state)
{
    (void)state;
    char directory[64];
    world_directory(directory);
    build_in_own_directories(directory, 4);
    char one[96];
    snprintf(one, sizeof(one), "%s/r0", directory);
    for (int i = 1; i >= 0; i--) {
        job j = {.directory = directory, .own_directories = true, .step = i};
        rks_store_options_default(&j.options);
        char path[400];
        world_index_file(one, path);
        if (i == 0)
            assert_int_equal(unlink(path), 0);
        on_threads(4, share_a_node, &j);
    }
    world_remove(directory);
}

/* ---- what is wrong, on all ranks ------------------------------------------------------------- */

static void open_fails(member *m)
{
    static const struct {
        rks_status status;
        const char *text;
    } expected[] = {
        {RKS_ERR_STATE, "has dataset"},    {RKS_ERR_NOT_FOUND, "part-"},
        {RKS_ERR_NOT_FOUND, "no dataset"}, {RKS_ERR_CORRUPT, "dataset.json"},
        {RKS_ERR_CORRUPT, "part-"},        {RKS_ERR_ARGUMENT, "exchange"},
    };
    const job *j = m->user;
    char directory[96];
    rks_store *store = NULL;
    if (!world_enter(m, j->own_nodes))
        return;
    pattern(j, directory);
    rks_store_options options = j->options;
    if (j->step == 5 && m->rank == 1)
        options.exchange = "pigeon";
    EXPECT(rks_store_open(m->group, directory, &options, &store, &m->err) ==
           expected[j->step].status);
    EXPECT_TEXT(expected[j->step].text);
    EXPECT(store == NULL);
    /* The group is as good as before. */
    EXPECT_OK(rks_group_agree(m->group, "after", RKS_OK, &m->err));
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
static void build_less(member *m)
{
    const char *directory = m->user;
    rks_build_options options;
    world_build_options(&options);
    if (!world_enter(m, false))
        return;
    EXPECT_OK(world_build_units(m->group, directory, &options, 3, 1, NULL, &m->err));
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
            on_threads(1, build_less, one);
        } else if (step == 1) {
            hide_part(one);
        } else if (step == 3) {
            snprintf(path, sizeof(path), "%s/dataset.json", one);
            overwrite(path, 40, "#");
        } else if (step == 4) {
            find_part(one, ".json", path);
            overwrite(path, 60, "#");
        }
        on_threads(3, open_fails, &j);
        world_remove(directory);
    }
}

static void open_partial(member *m)
{
    const job *j = m->user;
    char directory[96];
    rks_store *store = NULL;
    rks_plan *plan = NULL;
    rks_plan_report report = {.struct_size = sizeof(report)};
    uint64_t absent = 0, steps = 0, id = 0;
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    if (!world_enter(m, j->own_nodes))
        return;
    pattern(j, directory);
    EXPECT_OK(rks_store_open(m->group, directory, &j->options, &store, &m->err));
    if (store == NULL)
        return;
    const uint32_t *lengths = rks_store_lengths(store);
    EXPECT(rks_store_count(store) == SAMPLES);
    for (id = 0; id < SAMPLES; id++) {
        bool there = id / UNIT_ROWS % 3 != 1; /* unit % 3 is the rank that wrote it */
        rks_batch *batch = NULL;
        absent += !there;
        EXPECT(lengths[id] == (there ? world_text_size(id) : RKS_LENGTH_ABSENT));
        EXPECT((rks_store_owner(store, id) >= 0) == there);
        if (id % 7 == 0) {
            rks_status status = rks_store_fetch(store, &id, 1, &batch, &m->err);
            EXPECT(status == (there ? RKS_OK : RKS_ERR_NOT_FOUND));
            EXPECT(batch == NULL || world_is(batch, 0, id));
            rks_batch_free(batch);
            status = rks_store_key(store, id, key, &size, &m->err);
            EXPECT(status == (there ? RKS_OK : RKS_ERR_NOT_FOUND));
        }
    }
    EXPECT_OK(rks_plan_open(store, NULL, &plan, &m->err));
    EXPECT_OK(rks_plan_report_get(plan, 0, &report, &m->err));
    EXPECT(absent > 0 && report.absent == absent && report.samples == SAMPLES);
    EXPECT(rks_plan_has_absent(plan) && report.dropped == 0 && report.left_out == 0);
    EXPECT_OK(rks_plan_steps(plan, 0, &steps, &m->err));
    for (uint64_t step = 0; step < steps; step++) {
        const uint32_t *ids = NULL;
        size_t count = 0;
        EXPECT_OK(rks_plan_batch(plan, 0, step, m->rank, &ids, &count, &m->err));
        EXPECT(count > 0);
        for (size_t i = 0; i < count; i++)
            EXPECT(lengths[ids[i]] != RKS_LENGTH_ABSENT);
    }
    for (id = 0; id < SAMPLES; id++)
        EXPECT(rks_store_sealed_lengths(store)[id] == world_text_size(id));
    rks_plan_free(plan);
    rks_store_close(store, CLOSE_MS);
}

static void a_partial_store_keeps_its_ids_and_plans_what_is_there(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        char directory[64], one[96];
        job j = {.directory = directory, .own_directories = true, .own_nodes = i % 2 == 1};
        rks_store_options_default(&j.options);
        j.options.missing = "partial";
        j.options.no_share = i / 2 == 1;
        world_directory(directory);
        build_in_own_directories(directory, 3);
        snprintf(one, sizeof(one), "%s/r1", directory);
        hide_part(one);
        on_threads(3, open_partial, &j);
        world_remove(directory);
    }
}

/* ---- stand-ins ------------------------------------------------------------------------------- */

/* Steps: 0 the owner refuses, 1 it lies, 2 all refuse. */
static void tell_another_key(void *user, rks_request *request)
{
    static const uint8_t wrong[] = "key 99999";
    (void)user;
    struct iovec part = {(void *)(uintptr_t)wrong, sizeof(wrong) - 1};
    rks_request_reply(request, &part, 1, NULL, NULL);
}

static void ask_stand_ins(member *m)
{
    const job *j = m->user;
    char directory[96];
    rks_store *store = NULL;
    uint8_t key[RKS_KEY_MAX] = "untouched";
    size_t size = 77;
    if (!world_enter(m, j->own_nodes))
        return;
    pattern(j, directory);
    EXPECT_OK(rks_store_open(m->group, directory, &j->options, &store, &m->err));
    if (store == NULL)
        return;
    EXPECT(store->owners[0][0] == 0 && store->owners[0][1] == 1 && store->owners[0][2] == -1);
    if (m->rank == 0 || (m->rank == 1 && j->step == 2))
        rks_engine_serve(rks_group_engine(m->group), rks_store_service(store, RKS_SERVICE_KEYS),
                         m->rank == 0 && j->step == 1 ? tell_another_key : NULL, NULL, NULL);
    EXPECT_OK(rks_group_agree(m->group, "test: refusing", RKS_OK, &m->err));
    if (m->rank == 2 && j->step < 2) {
        check_keys(m, store);
    } else if (m->rank == 2) {
        EXPECT(rks_store_key(store, 3, key, &size, &m->err) == RKS_ERR_PEER);
        EXPECT(m->err.rank == 1);
        EXPECT(size == 77 && strcmp((char *)key, "untouched") == 0);
    }
    rks_store_close(store, CLOSE_MS);
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
        on_threads(3, ask_stand_ins, &j);
    }
    world_remove(directory);
}

/* ---- several, and again and again ------------------------------------------------------------ */

/* What is read after the store's end must be what was read before it. */
static void read_after_close(member *m)
{
    const job *j = m->user;
    rks_store *store = NULL;
    rks_plan *plan = NULL;
    rks_plan_report before = {.struct_size = sizeof(before)}, after = before;
    if (!world_enter(m, j->own_nodes))
        return;
    EXPECT_OK(rks_store_open(m->group, j->directory, &j->options, &store, &m->err));
    if (store == NULL)
        return;
    rks_index *index = rks_store_index(store), *again = rks_store_index(store);
    const uint32_t *lengths = rks_store_lengths(store);
    const int64_t *numbers = rks_store_column(store, "id", NULL);
    EXPECT_OK(rks_plan_open(store, NULL, &plan, &m->err));
    EXPECT_OK(rks_plan_report_get(plan, 1, &before, &m->err));
    EXPECT_OK(rks_plan_report_get(plan, 0, &after, &m->err)); /* not at that epoch any more */
    rks_store_close(store, CLOSE_MS);
    rks_index_close(again);
    for (uint64_t id = 0; id < SAMPLES; id++)
        EXPECT(lengths[id] == world_text_size(id) && numbers[id] == (int64_t)id);
    EXPECT_OK(rks_plan_report_get(plan, 1, &after, &m->err));
    EXPECT(strcmp(before.digest, after.digest) == 0);
    rks_plan_free(plan);
    rks_index_close(index);
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
        on_threads(3, read_after_close, &j);
    }
    world_remove(directory);
}

static void two_at_once(member *m)
{
    const job *j = m->user;
    rks_store *first = NULL, *second = NULL, *third = NULL;
    if (!world_enter(m, j->own_nodes))
        return;
    EXPECT_OK(rks_store_open(m->group, j->directory, &j->options, &first, &m->err));
    EXPECT_OK(rks_store_open(m->group, j->directory, &j->options, &second, &m->err));
    EXPECT(first != NULL && second != NULL && first->number != second->number);
    if (first == NULL || second == NULL)
        return;
    check_fetch(m, first);
    check_fetch(m, second);
    rks_store_close(first, CLOSE_MS);
    check_fetch(m, second);
    EXPECT_OK(rks_store_open(m->group, j->directory, &j->options, &third, &m->err));
    EXPECT(third != NULL && third->number != second->number);
    check_keys(m, third);
    rks_store_close(second, CLOSE_MS);
    check_fetch(m, third);
    rks_store_close(third, CLOSE_MS);
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
    on_threads(3, two_at_once, &j);
    world_remove(directory);
}

/* Notes on their way, and those that have not been acknowledged on the four ways of two edges. An
 * allocation that each round left behind would be more. */
enum { ROUNDS = 200, NOTES_KEPT = 20 + 4 * RKS_NOTES_COUNT };

/* Rank 0 counts at the barriers: descriptors belong to the process. */
static void open_and_close(member *m)
{
    const job *j = m->user;
    size_t descriptors = 0;
    long memory = 0;
    if (!world_enter(m, j->own_nodes))
        return;
    for (int round = 0; round < ROUNDS; round++) {
        rks_store *store = NULL;
        EXPECT_OK(rks_store_open(m->group, j->directory, &j->options, &store, &m->err));
        if (store != NULL)
            check_keys(m, store);
        rks_store_close(store, CLOSE_MS);
        EXPECT_OK(rks_group_agree(m->group, "closed", RKS_OK, &m->err));
        if (m->rank == 0 && round == 1) { /* connections are made by now */
            descriptors = world_descriptors();
            memory = rks_memory_in_use();
        } else if (m->rank == 0 && round > 1) {
            EXPECT(world_descriptors() <= descriptors);
            EXPECT(rks_memory_in_use() <= memory + NOTES_KEPT);
        }
        EXPECT_OK(rks_group_agree(m->group, "counted", RKS_OK, &m->err));
    }
}

static void opening_many_times_leaves_nothing_behind(void **state)
{
    (void)state;
    char directory[64];
    world_directory(directory);
    world_dataset(directory, 3, false);
    for (int i = 0; i < 2; i++) {
        job j = {.directory = directory, .own_nodes = i == 1};
        rks_store_options_default(&j.options);
        j.options.no_share = true;
        on_threads(3, open_and_close, &j);
    }
    world_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_knows_and_fetches_every_sample),
        cmocka_unit_test(the_index_and_plans_outlive_the_store),
        cmocka_unit_test(more_and_fewer_ranks_than_built_it_open_it),
        cmocka_unit_test(the_ranks_of_a_node_share_the_exchange),
        cmocka_unit_test(what_is_wrong_on_one_rank_ends_the_open_on_all),
        cmocka_unit_test(a_partial_store_keeps_its_ids_and_plans_what_is_there),
        cmocka_unit_test(keys_are_asked_of_a_stand_in_where_the_owner_fails),
        cmocka_unit_test(two_stores_are_open_on_one_group),
        cmocka_unit_test(opening_many_times_leaves_nothing_behind),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
