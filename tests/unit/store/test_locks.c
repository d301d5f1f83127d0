/* SPDX-License-Identifier: Apache-2.0
 *
 * test_locks.c: how many mutexes a batch locks on its way, on both sides together: of samples that
 * another rank owns, and of samples in maps. The linker puts our pthread_mutex_lock before the
 * system's, and the processes of both ranks count into one page. */
#include "world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { BATCH = 64, WARM_UP = 40, COUNTED = 200, SAMPLE = 1024, REMOTE_MOST = 10, MAPPED_MOST = 4 };

static atomic_ullong *locks;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (locks != NULL)
        atomic_fetch_add_explicit(locks, 1, memory_order_relaxed);
    return __real_pthread_mutex_lock(mutex);
}

static rks_status make_samples(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    static uint8_t bytes[SAMPLE];
    rks_status status = RKS_OK;
    (void)user, (void)unit;
    for (uint32_t i = 0; status == RKS_OK && i < 2 * BATCH * (WARM_UP + COUNTED + 10); i++) {
        memset(bytes, (int)i, sizeof(bytes));
        rks_value value = {.data = bytes, .size = sizeof(bytes)};
        status = rows_add(sink, &value, NULL, 0, err);
    }
    return status;
}

/* Rank 0 reads the only unit, so it owns all samples. */
static void build(member *m, const char *directory, const char *schema)
{
    const made_rows rows = {.make = make_samples, .units = 1};
    rks_build_options options;
    rks_build_options_default(&options);
    options.schema = schema;
    EXPECT_OK(rows_build(m->group, directory, &options, &rows, NULL, &m->err));
}

static void read_batches(member *m, rks_epoch *epoch, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        rks_batch *batch = NULL;
        EXPECT_OK(rks_epoch_next(epoch, &batch, NULL, &m->err));
        EXPECT(batch != NULL && rks_batch_count(batch) == BATCH);
        rks_batch_free(batch);
    }
}

/* Locks of a batch, once batches come steadily with the default number ahead. */
static double count_locks(member *m, rks_store *store, rks_plan *plan)
{
    rks_epoch *epoch = NULL;
    EXPECT_OK(rks_epoch_open(store, plan, NULL, &epoch, &m->err));
    if (epoch == NULL)
        return 1e9;
    read_batches(m, epoch, WARM_UP);
    unsigned long long before = atomic_load(locks);
    read_batches(m, epoch, COUNTED);
    unsigned long long after = atomic_load(locks);
    rks_epoch_close(epoch);
    return (double)(after - before) / COUNTED;
}

static void rank_body(member *m)
{
    const char *top = m->user;
    char directory[128];
    rks_store *store = NULL;
    rks_plan *plan = NULL;
    rks_store_options options;
    rks_plan_options plan_options;
    rks_store_options_default(&options);
    rks_plan_options_default(&plan_options);
    options.no_share = true;
    plan_options.strategy = "random";
    plan_options.batch_size = BATCH;
    snprintf(directory, sizeof(directory), "%s/rank-%u", top, m->rank);
    if (!world_enter(m, true))
        return;
    build(m, directory, "data:bytes");
    EXPECT_OK(rks_store_open(m->group, directory, &options, &store, &m->err));
    EXPECT_OK(rks_plan_open(store, &plan_options, &plan, &m->err));
    for (uint32_t reader = 0; reader < 2; reader++) { /* the other rank waits */
        double most = reader == 0 ? MAPPED_MOST : REMOTE_MOST;
        if (m->rank == reader && plan != NULL) {
            double each = count_locks(m, store, plan);
            printf("locks of a %s batch of %d samples: %.1f (at most %.0f)\n",
                   reader == 0 ? "mapped" : "remote", BATCH, each, most);
            fflush(stdout);
            EXPECT(each <= most);
        }
        EXPECT_OK(rks_group_agree(m->group, "counted", RKS_OK, &m->err));
    }
    rks_plan_free(plan);
    rks_store_close(store, CLOSE_MS);
}

static void a_batch_locks_few_mutexes(void **state)
{
    (void)state;
    char top[64];
    world_directory(top);
    assert_int_equal(on_processes(2, rank_body, top), 0);
    world_remove(top);
}

int main(void)
{
    locks = mmap(NULL, sizeof(*locks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (locks == MAP_FAILED)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_locks_few_mutexes),
    };
    return cmocka_run_group_tests_name("locks", tests, NULL, NULL);
}
