/* SPDX-License-Identifier: Apache-2.0
 *
 * test_missing.c: shards that are on no rank's disk: the error says whose they are, and a file that
 * another node shows late is found. */
#include "world.h"

#include "store/store.h"

enum { RANKS = 3, LATE_MS = 300 };

typedef struct lost {
    char directory[FOLDER_PATH], there[FOLDER_PATH + 8], away[FOLDER_PATH + 8];
    char pattern[FOLDER_PATH + 16];
    const char *missing; /* option */
    rks_status status;
    bool returns; /* after LATE_MS */
} lost;

static void build_apart(member *m)
{
    const lost *l = m->user;
    rks_build_options options;
    world_build_options(&options);
    if (world_enter(m, true))
        EXPECT_OK(world_build(m->group, l->pattern, &options, NULL, &m->err));
}

static void open_it(member *m)
{
    lost *l = m->user;
    rks_store *store = NULL;
    rks_store_options options;
    rks_store_options_default(&options);
    options.missing = l->missing;
    if (!world_enter(m, true))
        return;
    EXPECT(rks_store_open(m->group, l->pattern, &options, &store, &m->err) == l->status);
    if (store != NULL) {
        rks_store_stats stats = {.struct_size = sizeof(stats)};
        rks_store_stats_get(store, &stats);
        EXPECT(stats.shards == RANKS && stats.missing_shards == !l->returns);
        EXPECT(stats.missing_samples == (l->returns ? 0 : 2 * UNIT_ROWS));
    } else if (l->status == RKS_ERR_NOT_FOUND) {
        char host[64] = "";
        gethostname(host, sizeof(host) - 1);
        EXPECT_TEXT("1 of 3 shards are on no rank's disk, with 80 of 280 samples: part-");
        EXPECT_TEXT("; built by ");
        EXPECT_TEXT(host);
        EXPECT_TEXT("missing=\"partial\"");
    } else {
        EXPECT_TEXT("missing: \"some\"");
    }
    rks_store_close(store, CLOSE_MS);
}

static void *bring_late(void *user)
{
    const lost *l = user;
    usleep(LATE_MS * 1000);
    world_move_parts(l->away, l->there);
    return NULL;
}

/* Builds on three nodes, and takes the second one's shard away. */
static void lose(lost *l)
{
    world_directory(l->directory);
    snprintf(l->pattern, sizeof(l->pattern), "%s/r{rank}", l->directory);
    snprintf(l->there, sizeof(l->there), "%s/r1", l->directory);
    snprintf(l->away, sizeof(l->away), "%s/away", l->directory);
    on_threads(RANKS, build_apart, l);
    assert_int_equal(mkdir(l->away, 0755), 0);
    world_move_parts(l->there, l->away);
}

static void a_missing_shard_is_told_with_its_samples_and_its_host(void **state)
{
    (void)state;
    static const struct {
        const char *missing;
        rks_status status;
    } tries[] = {{NULL, RKS_ERR_NOT_FOUND},
                 {"error", RKS_ERR_NOT_FOUND},
                 {"partial", RKS_OK},
                 {"some", RKS_ERR_ARGUMENT}};
    lost l = {.returns = false};
    lose(&l);
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        l.missing = tries[i].missing;
        l.status = tries[i].status;
        on_threads(RANKS, open_it, &l);
    }
    world_remove(l.directory);
}

static void a_shard_that_comes_late_is_looked_for_again(void **state)
{
    (void)state;
    pthread_t thread;
    lost l = {.returns = true, .status = RKS_OK};
    lose(&l);
    rks_store_look_again_everywhere(200);
    assert_int_equal(pthread_create(&thread, NULL, bring_late, &l), 0);
    on_threads(RANKS, open_it, &l);
    pthread_join(thread, NULL);
    rks_store_look_again_everywhere(0);
    world_remove(l.directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_shard_is_told_with_its_samples_and_its_host),
        cmocka_unit_test(a_shard_that_comes_late_is_looked_for_again),
    };
    return cmocka_run_group_tests_name("missing", tests, NULL, NULL);
}
