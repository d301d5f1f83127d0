/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_node.c: the ranks of a node, threads or processes, share the epochs of their plans; of
 * several plans at once, and when one of them is killed while it makes an epoch. */
#include "world.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "plan/plan.h"
#include "plan/cache/epoch_cache.h"

enum {
    RANKS = 4,
    EPOCHS = 5,
    LEFT_EPOCHS = 200,
    PLANS = 2,
    KILLED = 2,
    EXIT_KILLED = 128 + SIGKILL,
    SHORT = 16
};

static char directory[FOLDER_PATH];
static struct killing {
    atomic_uint told; /* ranks that got the error */
    atomic_int maker; /* the process that is killed, once it makes the epoch */
} *killing;           /* of all processes */

typedef struct job {
    bool own_nodes;
    bool no_share; /* rank 1 */
} job;

static rks_plan_options plan_options(unsigned number)
{
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = number == 0 ? "bucket" : "random";
    options.world = RANKS;
    options.seed = number;
    if (number == 0)
        options.batch_size = 6;
    else
        options.max_tokens = 3000;
    return options;
}

static rks_store *open_store(member *m, const job *j)
{
    rks_store *store = NULL;
    rks_store_options options;
    rks_store_options_default(&options);
    options.no_share = j->no_share && m->rank == 1;
    if (world_enter(m, j->own_nodes))
        EXPECT_OK(rks_store_open(m->group, directory, &options, &store, &m->err));
    return store;
}

/* Train and validation, one epoch of each after the other; some ranks are ahead of others. */
static void plan_rank(member *m)
{
    const job *j = m->user;
    rks_plan *plans[PLANS] = {NULL}, *alone[PLANS] = {NULL};
    rks_store *store = open_store(m, j);
    for (unsigned i = 0; i < PLANS && store != NULL; i++) {
        const rks_plan_options options = plan_options(i);
        EXPECT_OK(rks_plan_open(store, &options, &plans[i], &m->err));
        EXPECT_OK(rks_plan_create(rks_store_lengths(store), rks_store_count(store),
                                  rks_store_dataset(store), &options, &alone[i], &m->err));
    }
    for (uint64_t epoch = 0; epoch < EPOCHS && m->failures == 0 && store != NULL; epoch++)
        for (unsigned i = 0; i < PLANS; i++) {
            rks_plan_report a = {.struct_size = sizeof(a)}, b = {.struct_size = sizeof(b)};
            EXPECT_OK(rks_plan_report_get(plans[i], epoch, &a, &m->err));
            EXPECT_OK(rks_plan_report_get(alone[i], epoch, &b, &m->err));
            EXPECT(memcmp(&a, &b, sizeof(a)) == 0);
        }
    for (unsigned i = 0; i < PLANS; i++) {
        rks_plan_free(plans[i]);
        rks_plan_free(alone[i]);
    }
    rks_store_close(store, CLOSE_MS);
}

/* A plan lives on with its index; ranks wait for each other's epochs as before. */
static void left_rank(member *m)
{
    const job *j = m->user;
    const rks_plan_options options = plan_options(0);
    rks_plan *plan = NULL;
    rks_store *store = open_store(m, j);
    EXPECT_OK(rks_plan_open(store, &options, &plan, &m->err));
    rks_index *index = store == NULL ? NULL : rks_store_index(store);
    rks_store_close(store, CLOSE_MS);
    rks_group_close(m->group);
    m->group = NULL;
    for (uint64_t epoch = 0; epoch < LEFT_EPOCHS && m->failures == 0; epoch++) {
        const uint32_t *ids;
        size_t count;
        EXPECT_OK(rks_plan_batch(plan, epoch, 0, m->rank, &ids, &count, &m->err));
    }
    rks_plan_free(plan);
    rks_index_close(index);
}

static int ends_here(void *user)
{
    (void)user;
    atomic_store(&killing->maker, getpid());
    return kill(getpid(), SIGKILL);
}

static void come_when_it_is_gone(void)
{
    pid_t maker = 0;
    for (unsigned i = 0; i < 100000 && (maker == 0 || kill(maker, 0) == 0); i++) {
        usleep(1000);
        maker = atomic_load(&killing->maker);
    }
}

/* Rank KILLED makes epoch 0 alone, and dies of it; the others come then. */
static void killed_rank(member *m)
{
    const job *j = m->user;
    const rks_plan_options options = plan_options(0);
    rks_plan *plan = NULL;
    const uint32_t *ids;
    size_t count;
    rks_store *store = open_store(m, j);
    EXPECT_OK(rks_plan_open(store, &options, &plan, &m->err));
    if (plan == NULL)
        return;
    if (m->rank == KILLED)
        rks_set_interrupt(ends_here, NULL);
    else
        come_when_it_is_gone();
    rks_status status = rks_plan_batch(plan, 0, 0, m->rank, &ids, &count, &m->err);
    EXPECT(status == RKS_ERR_PEER);
    EXPECT(m->err.rank == KILLED);
    atomic_fetch_add(&killing->told, m->failures == 0);
    rks_plan_free(plan);
    _exit(m->failures); /* the job has failed: nobody closes together */
}

static void ranks_that_are_threads_share_epochs(void **state)
{
    (void)state;
    job j = {0};
    on_threads(RANKS, plan_rank, &j);
}

static void ranks_that_are_processes_share_epochs(void **state)
{
    (void)state;
    job j = {0};
    assert_int_equal(on_processes(RANKS, plan_rank, &j), 0);
}

static void plans_outlive_their_store_and_group(void **state)
{
    (void)state;
    job j = {0};
    assert_int_equal(on_processes(RANKS, left_rank, &j), 0);
}

static void a_rank_without_sharing_and_nodes_of_one_rank_plan_the_same(void **state)
{
    (void)state;
    job one_without = {.no_share = true}, own = {.own_nodes = true};
    assert_int_equal(on_processes(RANKS, plan_rank, &one_without), 0);
    on_threads(RANKS, plan_rank, &own);
}

static void a_rank_that_is_killed_while_it_makes_an_epoch_ends_the_others(void **state)
{
    (void)state;
    job j = {0};
    void *page =
        mmap(NULL, sizeof(*killing), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    killing = page;
    assert_int_equal(on_processes(RANKS, killed_rank, &j), EXIT_KILLED);
    assert_int_equal(atomic_load(&killing->told), RANKS - 1);
    munmap(page, sizeof(*killing));
}

static int setup(void **state)
{
    (void)state;
    world_directory(directory);
    world_dataset(directory, RANKS, false);
    rks_plan_share_set(1, 1);
    rks_plan_stretch_set(SHORT);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rks_plan_share_set(0, 0);
    rks_plan_stretch_set(0);
    world_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_are_threads_share_epochs),
        cmocka_unit_test(ranks_that_are_processes_share_epochs),
        cmocka_unit_test(plans_outlive_their_store_and_group),
        cmocka_unit_test(a_rank_without_sharing_and_nodes_of_one_rank_plan_the_same),
        cmocka_unit_test(a_rank_that_is_killed_while_it_makes_an_epoch_ends_the_others),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
