/* SPDX-License-Identifier: Apache-2.0
 *
 * test_owners.c: the shards of a directory are opened, and which ranks serve them, where several
 * of a node see them. */
#include "world.h"

#include <unistd.h>

#include "dataset/dataset.h"
#include "store/store.h"
#include "support/shards.h"

/* Two ranks a node, and one directory: owners turn round all ranks, and each has one rank of its
 * own node and one of each other node after it. */
static void look_at_owners(member *m)
{
    const char *directory = m->user;
    rks_store_options options;
    char node[16];
    rks_store *store = NULL;
    uint32_t owned[6] = {0};
    rks_store_options_default(&options);
    snprintf(node, sizeof(node), "n%u", m->rank / 2);
    EXPECT_OK(open_group_on(m->bootstrap, node, 5000, &m->group, &m->err));
    if (m->group == NULL)
        return;
    EXPECT_OK(rks_store_open(m->group, directory, &options, &store, &m->err));
    if (store == NULL)
        return;
    EXPECT(rks_group_nodes(m->group) == 3 && store->dataset->shard_count == 6);
    for (size_t shard = 0; shard < store->dataset->shard_count; shard++) {
        const int32_t *owners = store->owners[shard];
        EXPECT(owners[0] >= 0 && owners[0] < 6 && owners[1] == (owners[0] ^ 1));
        owned[owners[0]]++;
        uint32_t nodes = 1u << owners[0] / 2;
        for (int i = 2; i < 4; i++) {
            EXPECT(owners[i] >= 0 && (nodes >> owners[i] / 2 & 1) == 0);
            nodes |= 1u << owners[i] / 2;
        }
        EXPECT(nodes == 7 && owners[4] == -1);
    }
    for (int rank = 0; rank < 6; rank++)
        EXPECT(owned[rank] == 1);
    rks_store_close(store, CLOSE_MS);
}

static void one_rank_of_each_node_stands_in_for_an_owner(void **state)
{
    (void)state;
    char directory[64];
    world_directory(directory);
    world_dataset(directory, 6, false);
    on_threads(6, look_at_owners, directory);
    world_remove(directory);
}

/* A shard goes to the rank that has the fewest bytes so far, the lower one if both have as many. */
static void look_at_loads(member *m)
{
    rks_store_options options;
    rks_store *store = NULL;
    uint64_t load[2] = {0};
    rks_store_options_default(&options);
    EXPECT_OK(open_group_on(m->bootstrap, NULL, 5000, &m->group, &m->err));
    if (m->group == NULL)
        return;
    EXPECT_OK(rks_store_open(m->group, shards_here, &options, &store, &m->err));
    if (store == NULL)
        return;
    EXPECT(store->dataset->shard_count == 8);
    for (size_t shard = 0; shard < store->dataset->shard_count; shard++) {
        const int32_t lighter = load[1] < load[0];
        EXPECT(store->owners[shard][0] == lighter && store->owners[shard][1] == 1 - lighter);
        load[lighter] += store->dataset->shards[shard].bytes + 1;
    }
    rks_store_close(store, CLOSE_MS);
}

/* Of shards with many bytes and with few, in any order: shards have ids at random. */
static void owners_have_like_many_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    for (size_t i = 0; i < 8; i++) {
        const shards_recipe recipe = {
            .first = 1000 * i, .first_unit = 3 * i, .samples = i < 3 ? 500 : 50 + 10 * i};
        shards_write(shards_here, names[i], &recipe);
    }
    shards_commit(shards_here, names, 8);
    on_threads(2, look_at_loads, NULL);
}

/* Two ranks a node, a directory each. */
typedef struct apart {
    const char *directories;
    bool no_share;
} apart;

static void fetch_all(member *m, rks_store *store)
{
    uint64_t ids[SAMPLES];
    rks_batch *batch = NULL;
    for (uint64_t i = 0; i < SAMPLES; i++)
        ids[i] = i;
    EXPECT_OK(rks_store_fetch(store, ids, SAMPLES, &batch, &m->err));
    for (size_t i = 0; batch != NULL && i < SAMPLES; i++)
        EXPECT(world_is(batch, i, i));
    rks_batch_free(batch);
}

static void ask_rails(member *m)
{
    static const uint32_t asked[5][5] = {
        {0, 1, 2, 2, 4}, {0, 1, 3, 3, 4}, {0, 0, 2, 3, 4}, {1, 1, 2, 3, 4}, {0, 0, 2, 2, 4}};
    const apart *a = m->user;
    char node[16];
    rks_store_options options;
    rks_store *store = NULL;
    rks_store_options_default(&options);
    options.no_share = a->no_share;
    snprintf(node, sizeof(node), "n%u", m->rank / 2);
    EXPECT_OK(open_group_on(m->bootstrap, node, 5000, &m->group, &m->err));
    if (m->group == NULL)
        return;
    EXPECT_OK(rks_store_open(m->group, a->directories, &options, &store, &m->err));
    if (store == NULL)
        return;
    for (uint32_t rank = 0; rank < 5; rank++)
        EXPECT(store->asks[rank] == (a->no_share ? rank : asked[m->rank][rank]));
    fetch_all(m, store);
    rks_store_close(store, 0);
}

/* Rank 0 to 3 are a node, the others one each: they do not all ask rank 0. */
static void ask_a_large_node(member *m)
{
    static const uint32_t asked[] = {1, 2, 3};
    char node[16];
    rks_store_options options;
    rks_store *store = NULL;
    rks_store_options_default(&options);
    snprintf(node, sizeof(node), "n%u", m->rank < 4 ? 0 : m->rank);
    EXPECT_OK(open_group_on(m->bootstrap, node, 5000, &m->group, &m->err));
    if (m->group == NULL)
        return;
    EXPECT_OK(rks_store_open(m->group, m->user, &options, &store, &m->err));
    for (uint32_t rank = 0; store != NULL && m->rank >= 4 && rank < 4; rank++)
        EXPECT(store->asks[rank] == asked[m->rank - 4]);
    rks_store_close(store, 0);
}

static void single_ranks_are_spread_over_a_large_node(void **state)
{
    (void)state;
    char directory[64];
    world_directory(directory);
    world_dataset(directory, 6, false);
    on_threads(7, ask_a_large_node, directory);
    world_remove(directory);
}

static void a_rank_asks_the_one_at_its_place_on_each_other_node(void **state)
{
    (void)state;
    char directory[64], each[96];
    world_directory(directory);
    snprintf(each, sizeof(each), "%s/r{rank}", directory);
    world_dataset(each, 5, false);
    apart a = {.directories = each};
    on_threads(5, ask_rails, &a);
    a.no_share = true; /* nobody has another one's shards: the owners are asked */
    on_threads(5, ask_rails, &a);
    world_remove(directory);
}

/* A thread each for the shards but the first; two of them are cut short. */
static void open_damaged(member *m)
{
    const char *directory = m->user;
    rks_store_options options;
    rks_store *store = NULL;
    char first[160];
    rks_dataset *dataset = NULL;
    rks_store_options_default(&options);
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rks_store_open(m->group, directory, &options, &store, &m->err));
    for (size_t i = 0; store != NULL && i < 6; i++)
        EXPECT(store->shards[i] != NULL &&
               rks_digest_equal(rks_shard_id(store->shards[i]), store->dataset->shards[i].id));
    rks_store_close(store, CLOSE_MS);
    EXPECT_OK(rks_dataset_load(directory, &dataset, &m->err));
    if (dataset == NULL)
        return;
    for (size_t i = 2; i < 6; i += 3) {
        snprintf(first, sizeof(first), "%s/%s.rks", directory, dataset->shards[i].name);
        EXPECT(truncate(first, 8192) == 0);
    }
    for (int round = 0; round < 20; round++) {
        store = NULL;
        EXPECT(rks_store_open(m->group, directory, &options, &store, &m->err) == RKS_ERR_CORRUPT);
        EXPECT(store == NULL && strstr(m->err.text, dataset->shards[2].name) != NULL);
    }
    rks_dataset_free(dataset);
}

static void shards_are_opened_by_threads_and_the_first_damaged_one_is_named(void **state)
{
    (void)state;
    char directory[64];
    world_directory(directory);
    world_dataset(directory, 6, false);
    rks_store_shards_a_thread(1);
    on_threads(1, open_damaged, directory);
    rks_store_shards_a_thread(0);
    world_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_of_each_node_stands_in_for_an_owner),
        cmocka_unit_test_setup_teardown(owners_have_like_many_bytes, shards_begin, shards_end),
        cmocka_unit_test(a_rank_asks_the_one_at_its_place_on_each_other_node),
        cmocka_unit_test(single_ranks_are_spread_over_a_large_node),
        cmocka_unit_test(shards_are_opened_by_threads_and_the_first_damaged_one_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
