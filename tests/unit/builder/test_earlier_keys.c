/* SPDX-License-Identifier: Apache-2.0
 *
 * test_earlier_keys.c: an append finds equal keys without opening the shards that cannot have them,
 * and where what is kept of those is missing, damaged or of other shards. */
#include "jobs.h"

#include "base/file.h"
#include "base/memory.h"
#include "dataset/list_keys.h"
#include "rankstore/manage.h"
#include "shard/shard.h"

enum { APPENDS = 9, ROWS = 2, EACH = 5 };

static char place[FOLDER_PATH], target[96];

static int make_place(void **state)
{
    (void)state;
    world_directory(place);
    snprintf(target, sizeof(target), "%s/out", place);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    world_remove(place);
    return 0;
}

/* Adds two samples from a file of their own. */
static rks_status append_two(member *m, const char *name, uint64_t one, uint64_t other)
{
    char path[96];
    const char *sources[] = {path};
    rks_build_options options;
    rks_build_options_default(&options);
    options.key = "k";
    options.length = "text";
    snprintf(path, sizeof(path), "%s/%s.jsonl", place, name);
    options.append = access(target, F_OK) == 0;
    if (m->rank == 0) {
        FILE *file = fopen(path, "w");
        EXPECT(file != NULL);
        if (file != NULL) {
            fprintf(file, "{\"k\": \"key-%llu\", \"text\": \"words\"}\n", (unsigned long long)one);
            fprintf(file, "{\"k\": \"key-%llu\", \"text\": \"word\"}\n", (unsigned long long)other);
            fclose(file);
        }
    }
    EXPECT_OK(rks_group_agree(m->group, "the file is there", RKS_OK, &m->err));
    return rks_build(m->group, sources, 1, target, &options, NULL, &m->err);
}

/* Two samples, key-2i and key-2i+1, for each i below APPENDS. */
static bool begin(member *m)
{
    if (!world_enter(m, false))
        return false;
    for (uint64_t i = 0; i < APPENDS && m->failures == 0; i++) {
        char name[24];
        snprintf(name, sizeof(name), "in-%llu", (unsigned long long)i);
        EXPECT_OK(append_two(m, name, 2 * i, 2 * i + 1));
    }
    return m->failures == 0;
}

static rks_dataset *load_target(member *m)
{
    rks_dataset *dataset = NULL;
    EXPECT_OK(rks_dataset_load(target, &dataset, &m->err));
    return dataset;
}

/* What lies beside each list of the dataset, and in its shards: as many hashes, and the same. */
static void expect_kept(member *m)
{
    rks_dataset *dataset = load_target(m);
    EXPECT(dataset != NULL && dataset->list_count > 0);
    for (size_t list = 0; dataset != NULL && list < dataset->list_count; list++) {
        uint64_t *hashes = NULL, count = 0, own[ROWS], at = 0;
        for (size_t i = 0; i < dataset->shard_count; i++)
            if (dataset->shards[i].list == list + 1)
                EXPECT(rks_list_keys_cover(&dataset->shards[i], &count));
        EXPECT(count == ROWS * dataset->lists[list].shards);
        EXPECT_OK(rks_list_keys_load(target, &dataset->lists[list], count, &hashes, &m->err));
        EXPECT(hashes != NULL);
        for (size_t i = 0; hashes != NULL && i < dataset->shard_count; i++) {
            char path[256];
            rks_shard *shard = NULL;
            if (dataset->shards[i].list != list + 1)
                continue;
            snprintf(path, sizeof(path), "%s/%s.json", target, dataset->shards[i].name);
            EXPECT_OK(rks_shard_open(path, &shard, &m->err));
            EXPECT_OK(rks_shard_copy_key_hashes(shard, 0, ROWS, own, &m->err));
            EXPECT(memcmp(own, hashes + at, sizeof(own)) == 0);
            rks_shard_close(shard);
            at += ROWS;
        }
        rks_free(hashes);
    }
    rks_dataset_free(dataset);
}

static void remove_kept(member *m)
{
    rks_dataset *dataset = load_target(m);
    for (size_t i = 0; dataset != NULL && i < dataset->list_count; i++) {
        char name[64], path[256];
        rks_list_keys_name(&dataset->lists[i], name);
        snprintf(path, sizeof(path), "%s/%s", target, name);
        EXPECT(unlink(path) == 0);
    }
    rks_dataset_free(dataset);
}

/* The first shard that the dataset's first list names. */
static void find_listed(member *m, const char *ending, char path[256])
{
    rks_dataset *dataset = load_target(m);
    size_t i = 0;
    while (dataset != NULL && dataset->shards[i].list != 1)
        i++;
    snprintf(path, 256, "%s/%s%s", target, dataset == NULL ? "" : dataset->shards[i].name, ending);
    rks_dataset_free(dataset);
}

/* ---- what is opened -------------------------------------------------------------------------- */

static void append_beside_a_damaged_shard(member *m)
{
    char path[256];
    if (!begin(m))
        return;
    expect_kept(m);
    find_listed(m, ".rks", path);
    EXPECT(truncate(path, 8192) == 0);
    EXPECT_OK(append_two(m, "new", 1000, 1001));
    remove_kept(m);
    EXPECT(append_two(m, "newer", 2000, 2001) == RKS_ERR_CORRUPT);
    EXPECT_TEXT("bytes, it was sealed with");
}

static void shards_without_a_hash_of_the_append_are_not_opened(void **state)
{
    (void)state;
    on_threads(1, append_beside_a_damaged_shard, NULL);
}

static void append_beside_a_missing_shard(member *m)
{
    const char *ending = m->user;
    char path[256];
    if (!begin(m))
        return;
    find_listed(m, ending, path);
    EXPECT(unlink(path) == 0);
    EXPECT(append_two(m, "new", 1000, 1001) == RKS_ERR_NOT_FOUND);
    EXPECT_TEXT("shards are on no rank's disk");
}

static void a_shard_that_was_taken_away_is_missed(void **state)
{
    char *endings[] = {".json", ".rks"};
    for (int i = 0; i < 2; i++) {
        on_threads(1, append_beside_a_missing_shard, endings[i]);
        remove_place(state);
        make_place(state);
    }
}

/* ---- equal keys ------------------------------------------------------------------------------ */

/* A key that is there beside a new one, of old and of new shards; first with what is kept, then
 * without. */
static void append_equal_keys(member *m)
{
    rks_error told[APPENDS * ROWS];
    if (!begin(m))
        return;
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < APPENDS * ROWS; i += EACH) {
            char name[24], twice[64];
            snprintf(name, sizeof(name), "equal-%llu", (unsigned long long)i);
            snprintf(twice, sizeof(twice),
                     "key 'key-%llu' appears twice: row %llu of unit %llu, there before",
                     (unsigned long long)i, (unsigned long long)(i % ROWS),
                     (unsigned long long)(i / ROWS));
            EXPECT(append_two(m, name, 5000 + i, i) == RKS_ERR_DATA);
            EXPECT_TEXT(twice);
            if (round == 0)
                told[i] = m->err;
            EXPECT(strcmp(told[i].text, m->err.text) == 0);
        }
        if (round == 0)
            remove_kept(m);
    }
    rks_dataset *dataset = load_target(m);
    EXPECT(dataset != NULL && dataset->generation == APPENDS);
    rks_dataset_free(dataset);
}

static void a_key_of_any_earlier_shard_is_refused(void **state)
{
    (void)state;
    on_threads(1, append_equal_keys, NULL);
}

/* ---- what is kept ---------------------------------------------------------------------------- */

/* As earlier versions, and appends of several ranks, leave a dataset. */
static void append_without(member *m)
{
    if (!begin(m))
        return;
    remove_kept(m);
    EXPECT_OK(append_two(m, "new", 1000, 1001));
    expect_kept(m);
}

static void what_is_missing_is_made_anew(void **state)
{
    (void)state;
    on_threads(1, append_without, NULL);
}

/* Of all hashes one that comes with the append: the keys themselves are compared. */
static void append_beside_forged(member *m)
{
    if (!begin(m))
        return;
    rks_dataset *dataset = load_target(m);
    for (size_t i = 0; dataset != NULL && i < dataset->list_count; i++) {
        uint64_t forged[APPENDS * ROWS], count = ROWS * dataset->lists[i].shards;
        for (uint64_t k = 0; k < count; k++)
            forged[k] = rks_key_hash("key-1000", 8);
        EXPECT_OK(rks_list_keys_save(target, &dataset->lists[i], forged, count, &m->err));
    }
    rks_dataset_free(dataset);
    EXPECT_OK(append_two(m, "new", 1000, 1001));
    EXPECT(append_two(m, "newer", 1001, 1002) == RKS_ERR_DATA);
}

static void an_equal_hash_is_no_equal_key(void **state)
{
    (void)state;
    on_threads(1, append_beside_forged, NULL);
}

/* Each bit of a small file, each shorter one, and another list's. */
static void only_a_whole_file_of_its_list_is_taken(void **state)
{
    (void)state;
    const uint64_t hashes[] = {1, UINT64_MAX, 77};
    rks_dataset_list list = {.digest = {5, 6}}, other = {.digest = {7, 6}};
    uint64_t *loaded = NULL;
    rks_error err = {0};
    char name[64], path[256], *bytes = NULL;
    size_t size = 0;
    assert_ok(rks_list_keys_save(place, &list, hashes, 3, &err), &err);
    assert_ok(rks_list_keys_load(place, &list, 3, &loaded, &err), &err);
    assert_memory_equal(loaded, hashes, sizeof(hashes));
    rks_free(loaded);
    rks_list_keys_name(&list, name);
    snprintf(path, sizeof(path), "%s/%s", place, name);
    assert_ok(rks_file_load(path, 4096, &bytes, &size, &err), &err);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        assert_ok(rks_file_replace(path, bytes, size, &err), &err);
        assert_ok(rks_list_keys_load(place, &list, 3, &loaded, &err), &err);
        assert_null(loaded);
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t cut = 0; cut <= size; cut++) {
        assert_ok(rks_file_replace(path, bytes, cut, &err), &err);
        assert_ok(rks_list_keys_load(place, &list, 3, &loaded, &err), &err);
        assert_int_equal(loaded != NULL, cut == size);
        rks_free(loaded);
    }
    rks_free(bytes);
    for (uint64_t count = 0; count < 5; count++) {
        assert_ok(rks_list_keys_load(place, &list, count, &loaded, &err), &err);
        assert_int_equal(loaded != NULL, count == 3);
        rks_free(loaded);
    }
    assert_ok(rks_list_keys_load(place, &other, 3, &loaded, &err), &err); /* of the same name */
    assert_null(loaded);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void large_shards_are_left_to_themselves(void **state)
{
    (void)state;
    rks_dataset_shard shard = {.samples = RKS_LIST_KEYS_SHARD + 1};
    uint64_t count = 0;
    assert_false(rks_list_keys_cover(&shard, &count));
    shard.samples = RKS_LIST_KEYS_SHARD;
    for (int i = 0; i < RKS_LIST_KEYS_MAX / RKS_LIST_KEYS_SHARD; i++)
        assert_true(rks_list_keys_cover(&shard, &count));
    shard.samples = 1;
    assert_false(rks_list_keys_cover(&shard, &count));
    assert_int_equal(count, RKS_LIST_KEYS_MAX);
    shard.samples = 0;
    assert_true(rks_list_keys_cover(&shard, &count));
}

/* ---- the end of it --------------------------------------------------------------------------- */

static void prune_all_but_one(member *m)
{
    rks_prune_options options = {.struct_size = sizeof(options), .keep = APPENDS - 1};
    if (!begin(m))
        return;
    EXPECT(world_files(target, ".keys") == world_files(target, ".units"));
    EXPECT_OK(rks_prune(m->group, target, &options, NULL, &m->err));
    EXPECT(world_files(target, ".keys") == world_files(target, ".units"));
    options.keep = 1;
    EXPECT_OK(rks_prune(m->group, target, &options, NULL, &m->err));
    rks_dataset *dataset = load_target(m);
    EXPECT(dataset != NULL && world_files(target, ".keys") == dataset->list_count);
    rks_dataset_free(dataset);
    expect_kept(m);
}

static void prune_removes_it_with_its_list(void **state)
{
    (void)state;
    on_threads(1, prune_all_but_one, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define AT_PLACE(name) cmocka_unit_test_setup_teardown(name, make_place, remove_place)
        AT_PLACE(shards_without_a_hash_of_the_append_are_not_opened),
        AT_PLACE(a_shard_that_was_taken_away_is_missed),
        AT_PLACE(a_key_of_any_earlier_shard_is_refused),
        AT_PLACE(what_is_missing_is_made_anew),
        AT_PLACE(an_equal_hash_is_no_equal_key),
        AT_PLACE(only_a_whole_file_of_its_list_is_taken),
        AT_PLACE(large_shards_are_left_to_themselves),
        AT_PLACE(prune_removes_it_with_its_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
