/* SPDX-License-Identifier: Apache-2.0
 *
 * test_epoch.c: epochs over a store: every sample once, whatever the strategy, after a resume, and
 * on another number of ranks. */
#include "world.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "store/store.h"

enum { FIRST_STEPS = 3, NOTICED_MS = 20000 };

typedef struct job {
    const char *directory;
    bool own_nodes, no_share;
    const char *strategy;
    uint32_t prefetch_batches;
    uint64_t prefetch_bytes;
    uint64_t stop_after; /* steps; 0: to the end */
    bool in_file;        /* the sorted order is large */
    const char *index_dir;
    char state[RKS_STATE_MAX];  /* given, and by rank 0 where it stopped */
    uint32_t seen[2 * SAMPLES]; /* by epoch % 2 and id; guarded by mutex */
    pthread_mutex_t mutex;
} job;

static void new_job(job *j, const char *directory)
{
    memset(j, 0, sizeof(*j));
    j->directory = directory;
    j->strategy = "bucket";
    pthread_mutex_init(&j->mutex, NULL);
}

static void expect_each_once(job *j)
{
    for (uint64_t id = 0; id < SAMPLES; id++)
        assert_int_equal(j->seen[id], 1);
    memset(j->seen, 0, sizeof(j->seen));
}

static void take_batch(member *m, job *j, rks_batch *batch, uint64_t epoch)
{
    EXPECT(rks_batch_count(batch) > 0);
    for (size_t i = 0; i < rks_batch_count(batch); i++) {
        uint64_t id = rks_batch_id(batch, i);
        EXPECT(id < SAMPLES && world_is(batch, i, id));
        pthread_mutex_lock(&j->mutex);
        j->seen[epoch % 2 * SAMPLES + id % SAMPLES]++;
        pthread_mutex_unlock(&j->mutex);
    }
}

/* Goes on where the state says, for stop_after steps or to the end. */
static void run_job(member *m, job *j, rks_store *store, rks_plan *plan)
{
    rks_epoch *epoch = NULL;
    rks_epoch_options options;
    rks_epoch_options_default(&options);
    if (j->prefetch_batches != 0)
        options.prefetch_batches = j->prefetch_batches;
    if (j->prefetch_bytes != 0)
        options.prefetch_bytes = j->prefetch_bytes;
    if (j->state[0] != '\0')
        EXPECT_OK(rks_plan_resume(plan, j->state, &options.epoch, &options.first_step, &m->err));
    EXPECT_OK(rks_epoch_open(store, plan, &options, &epoch, &m->err));
    if (epoch == NULL)
        return;
    uint64_t done = 0, steps = 0;
    EXPECT_OK(rks_plan_steps(plan, options.epoch, &steps, &m->err));
    while (j->stop_after == 0 || done < j->stop_after) {
        rks_batch *batch = NULL;
        uint64_t step = 0;
        EXPECT_OK(rks_epoch_next(epoch, &batch, &step, &m->err));
        if (batch == NULL)
            break;
        EXPECT(step == options.first_step + done);
        take_batch(m, j, batch, 0);
        rks_batch_free(batch);
        done++;
    }
    if (j->stop_after == 0)
        EXPECT(options.first_step + done == steps);
    else
        EXPECT(done == j->stop_after);
    rks_epoch_close(epoch); /* early, with batches on their way */
    EXPECT_OK(rks_group_agree(rks_store_group(store), "test: stopped", RKS_OK, &m->err));
    if (m->rank == 0 && j->stop_after != 0)
        EXPECT_OK(rks_plan_state(plan, options.epoch, options.first_step + done, j->state,
                                 sizeof(j->state), &m->err));
}

static void run_epoch(member *m, rks_store *store, rks_plan *plan)
{
    run_job(m, m->user, store, plan);
}

static void with_plan(member *m, void (*body)(member *m, rks_store *store, rks_plan *plan))
{
    job *j = m->user;
    rks_store *store = NULL;
    rks_plan *plan = NULL;
    rks_store_options options;
    rks_plan_options plan_options;
    rks_store_options_default(&options);
    rks_plan_options_default(&plan_options);
    options.no_share = j->no_share;
    plan_options.strategy = j->strategy;
    plan_options.batch_size = 5;
    plan_options.seed = 17;
    if (!world_enter(m, j->own_nodes))
        return;
    EXPECT_OK(rks_store_open(m->group, j->directory, &options, &store, &m->err));
    EXPECT_OK(rks_plan_open(store, &plan_options, &plan, &m->err));
    if (plan != NULL)
        body(m, store, plan);
    rks_plan_free(plan);
    rks_store_close(store, CLOSE_MS);
}

static void epoch_rank(member *m)
{
    with_plan(m, run_epoch);
}

static char directory[64];

static void every_strategy_delivers_each_sample_once(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    for (uint32_t i = 0; i < 16; i++) {
        job j;
        new_job(&j, directory);
        j.strategy = strategies[i % 4];
        j.own_nodes = i / 4 % 2 == 1;
        j.no_share = i / 8 == 1;
        on_threads(1 + i % 3, epoch_rank, &j);
        expect_each_once(&j);
    }
}

static void a_stopped_epoch_goes_on_with_any_number_of_ranks(void **state)
{
    (void)state;
    static const uint32_t ranks[][3] = {{2, 2, 2}, {2, 3, 1}, {4, 1, 3}, {3, 4, 4}};
    for (size_t i = 0; i < 4; i++) {
        job j;
        new_job(&j, directory);
        j.no_share = i % 2 == 1;
        for (size_t part = 0; part < 3; part++) {
            j.stop_after = part < 2 ? FIRST_STEPS : 0;
            on_threads(ranks[i][part], epoch_rank, &j);
        }
        expect_each_once(&j);
    }
}

static void a_tight_prefetch_delivers_the_same(void **state)
{
    (void)state;
    static const struct {
        uint32_t batches;
        uint64_t bytes;
    } bounds[] = {{1, 0}, {1, 1}, {64, 1}, {64, 4000}, {UINT32_MAX, UINT64_MAX}};
    for (size_t i = 0; i < 5; i++) {
        job j;
        new_job(&j, directory);
        j.no_share = true;
        j.prefetch_batches = bounds[i].batches;
        j.prefetch_bytes = bounds[i].bytes;
        on_threads(2, epoch_rank, &j);
        expect_each_once(&j);
    }
}

/* Two epochs over one plan, batch by batch in turn: the plan goes back and forth. */
static void run_two(member *m, rks_store *store, rks_plan *plan)
{
    job *j = m->user;
    rks_epoch *epochs[2] = {NULL, NULL};
    int open = 2;
    for (uint64_t i = 0; i < 2; i++) {
        rks_epoch_options options;
        rks_epoch_options_default(&options);
        options.epoch = i;
        options.prefetch_batches = 2;
        EXPECT_OK(rks_epoch_open(store, plan, &options, &epochs[i], &m->err));
    }
    while (open > 0 && m->failures == 0) {
        open = 2;
        for (uint64_t i = 0; i < 2; i++) {
            rks_batch *batch = NULL;
            EXPECT_OK(rks_epoch_next(epochs[i], &batch, NULL, &m->err));
            open -= batch == NULL;
            if (batch != NULL)
                take_batch(m, j, batch, i);
            rks_batch_free(batch);
        }
    }
    rks_epoch_close(epochs[0]);
    rks_epoch_close(epochs[1]);
}

static void two_epochs_rank(member *m)
{
    with_plan(m, run_two);
}

static void two_epochs_share_a_plan(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "random"};
    for (size_t i = 0; i < 2; i++) {
        job j;
        new_job(&j, directory);
        j.strategy = strategies[i];
        on_threads(2, two_epochs_rank, &j);
        for (uint64_t id = 0; id < 2 * SAMPLES; id++)
            assert_int_equal(j.seen[id], 1);
    }
}

static void run_wrong(member *m, rks_store *store, rks_plan *plan)
{
    rks_epoch *epoch = NULL;
    rks_plan *other = NULL;
    rks_epoch_options options;
    rks_plan_options plan_options;
    uint64_t steps = 0;
    rks_epoch_options_default(&options);
    rks_plan_options_default(&plan_options);
    EXPECT_OK(rks_plan_steps(plan, 0, &steps, &m->err));
    options.first_step = steps + 1;
    EXPECT(rks_epoch_open(store, plan, &options, &epoch, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("first_step");
    options.first_step = steps; /* the end: nothing is left, and that is no error */
    EXPECT_OK(rks_epoch_open(store, plan, &options, &epoch, &m->err));
    rks_batch *batch = NULL;
    EXPECT_OK(rks_epoch_next(epoch, &batch, NULL, &m->err));
    EXPECT_OK(rks_epoch_next(epoch, &batch, NULL, &m->err));
    EXPECT(batch == NULL);
    rks_epoch_close(epoch);
    epoch = NULL;
    plan_options.world = 7;
    EXPECT_OK(rks_plan_open(store, &plan_options, &other, &m->err));
    EXPECT(rks_epoch_open(store, other, NULL, &epoch, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("7 ranks");
    rks_plan_free(other);
    other = NULL;
    /* Ranks that would plan differently find out. */
    plan_options.world = 0;
    plan_options.seed = m->rank;
    EXPECT(rks_plan_open(store, &plan_options, &other, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("seed 1");
    plan_options.seed = 0;
    plan_options.strategy = m->rank == 1 ? "sequential" : NULL;
    EXPECT(rks_plan_open(store, &plan_options, &other, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("rank 0 has strategy bucket, rank 1 has strategy sequential");
    plan_options.strategy = m->rank == 1 ? "bucket" : NULL; /* the same */
    EXPECT_OK(rks_plan_open(store, &plan_options, &other, &m->err));
    rks_plan_free(other);
    rks_epoch_close(NULL);
}

static void wrong_rank(member *m)
{
    with_plan(m, run_wrong);
}

static void wrong_steps_worlds_and_plans_are_refused(void **state)
{
    (void)state;
    job j;
    new_job(&j, directory);
    on_threads(2, wrong_rank, &j);
}

/* Rank 1 ends with an error. Rank 0 has all samples at hand and asks it for nothing. */
static void run_beside_lost(member *m, rks_store *store, rks_plan *plan)
{
    rks_status status = RKS_OK;
    rks_error own = {0};
    if (m->rank == 1) {
        rks_fail(&own, RKS_ERR_DATA, 0, "a planted end");
        rks_group_leave(m->group, RKS_ERR_DATA, &own);
        return;
    }
    uint64_t until = rks_now_ms() + NOTICED_MS;
    for (uint64_t number = 0; status == RKS_OK && rks_now_ms() < until; number++) {
        rks_epoch_options options;
        rks_epoch *epoch = NULL;
        rks_batch *batch = NULL;
        rks_epoch_options_default(&options);
        options.epoch = number;
        EXPECT_OK(rks_epoch_open(store, plan, &options, &epoch, &m->err));
        do {
            rks_batch_free(batch);
            batch = NULL;
            status = rks_epoch_next(epoch, &batch, NULL, &m->err);
        } while (status == RKS_OK && batch != NULL);
        rks_epoch_close(epoch);
    }
    EXPECT(status == RKS_ERR_DATA && m->err.rank == 1);
    EXPECT_TEXT("a planted end");
}

static void beside_lost_rank(member *m)
{
    with_plan(m, run_beside_lost);
}

static void a_rank_that_needs_nothing_of_a_lost_one_hears_of_it(void **state)
{
    (void)state;
    job j;
    new_job(&j, directory);
    on_threads(2, beside_lost_rank, &j);
}

static int prepare(void **state)
{
    (void)state;
    world_directory(directory);
    world_dataset(directory, 4, false);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    world_remove(directory);
    return 0;
}

/* ---- the sorted order, shared by a node ------------------------------------------------------ */

/* What /proc says of the mapping at `at`: a memfd, or a deleted file beside the shards. */
static void find_mapping(const void *at, char line[512])
{
    char start[32];
    snprintf(start, sizeof(start), "%lx-", (unsigned long)(uintptr_t)at);
    FILE *maps = fopen("/proc/self/maps", "r");
    line[0] = '\0';
    while (maps != NULL && fgets(line, 512, maps) != NULL)
        if (strncmp(line, start, strlen(start)) == 0)
            break;
    if (maps != NULL)
        fclose(maps);
}

static void look_at_order(member *m)
{
    job *j = m->user;
    char line[512];
    rks_store *store = NULL;
    rks_plan *plan = NULL;
    bool memfd = !j->in_file;
    if (!world_enter(m, j->own_nodes))
        return;
    rks_store_options options;
    rks_store_options_default(&options);
    options.index_dir = j->index_dir;
    EXPECT_OK(rks_store_open(m->group, j->directory, &options, &store, &m->err));
    EXPECT_OK(rks_group_agree(m->group, "test: open", RKS_OK, &m->err));
    rks_shared_memory_memfd_max(memfd ? 0 : SAMPLES * 4 - 1);
    EXPECT_OK(rks_plan_open(store, NULL, &plan, &m->err));
    if (plan == NULL)
        return;
    find_mapping(rks_index_order(store->index), line);
    EXPECT((strstr(line, "/memfd:rankstore") != NULL) == memfd);
    EXPECT((strstr(line, j->index_dir) != NULL) != memfd);
    EXPECT(strstr(line, "(deleted)") != NULL && strstr(line, " r--s ") != NULL);
    EXPECT(world_files(j->index_dir, "") == 0);
    run_job(m, &(job){.mutex = PTHREAD_MUTEX_INITIALIZER}, store, plan);
    rks_plan_free(plan);
    rks_store_close(store, CLOSE_MS);
}

static void a_large_order_lies_in_an_unnamed_file_in_index_dir(void **state)
{
    (void)state;
    job j;
    new_job(&j, directory);
    char index_dir[64];
    world_directory(index_dir);
    j.index_dir = index_dir;
    for (int i = 0; i < 4; i++) {
        j.in_file = i % 2 == 1;
        j.own_nodes = i / 2 == 1;
        on_threads(2, look_at_order, &j);
        rks_shared_memory_memfd_max(0);
        assert_int_equal(world_files(index_dir, ""), 0);
    }
    world_remove(index_dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_strategy_delivers_each_sample_once),
        cmocka_unit_test(a_stopped_epoch_goes_on_with_any_number_of_ranks),
        cmocka_unit_test(a_tight_prefetch_delivers_the_same),
        cmocka_unit_test(two_epochs_share_a_plan),
        cmocka_unit_test(wrong_steps_worlds_and_plans_are_refused),
        cmocka_unit_test(a_rank_that_needs_nothing_of_a_lost_one_hears_of_it),
        cmocka_unit_test(a_large_order_lies_in_an_unnamed_file_in_index_dir),
    };
    return cmocka_run_group_tests_name("epoch", tests, prepare, finish);
}
