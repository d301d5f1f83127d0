/* SPDX-License-Identifier: Apache-2.0
 *
 * test_life.c: a rank that waits for others no longer keeps nobody else waiting, wherever in the
 * tree it is, and the others are served until all of them have closed. */
#include "world.h"

#include <pthread.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "store/store.h"

/* Two ranks a node: 0 is the root, 2 and 4 are leaders below it. */
enum { RANKS = 6, PER_NODE = 2, LONG_MS = 60000 };

static char target[FOLDER_PATH + 16];

typedef struct job {
    uint32_t early[2]; /* ranks that close at once, and wait for nobody; RANKS: none */
    bool leave;        /* and leave the group */
    uint32_t late;     /* reads the others' samples for a while */
    pthread_barrier_t given_up;
} job;

static bool is_early(const job *j, uint32_t rank)
{
    return rank == j->early[0] || rank == j->early[1];
}

static void read_all(member *m, rks_store *store)
{
    for (uint64_t id = 0; id < rks_store_count(store); id++) {
        rks_batch *batch = NULL;
        int64_t owner = rks_store_owner(store, id);
        if (owner < 0 || is_early(m->user, (uint32_t)owner))
            continue;
        EXPECT_OK(rks_store_fetch(store, &id, 1, &batch, &m->err));
        rks_batch_free(batch);
    }
}

/* NULL: a failure is counted. */
static rks_store *open_one(member *m)
{
    char node[16];
    rks_store *store = NULL;
    rks_store_options options;
    snprintf(node, sizeof(node), "n%u", m->rank / PER_NODE);
    EXPECT_OK(open_group_on(m->bootstrap, node, 20000, &m->group, &m->err));
    if (m->group == NULL)
        return NULL;
    rks_store_options_default(&options);
    options.no_share = true;
    EXPECT_OK(rks_store_open(m->group, target, &options, &store, &m->err));
    return store;
}

static void close_in_turn(member *m)
{
    job *j = m->user;
    rks_store *store = open_one(m);
    bool early = is_early(j, m->rank);
    if (early && store != NULL) {
        rks_store_close(store, 1);
        if (j->leave) {
            rks_group_close(m->group);
            m->group = NULL;
        }
    }
    pthread_barrier_wait(&j->given_up);
    if (early || store == NULL)
        return;
    for (int i = 0; m->rank == j->late && i < 5; i++, usleep(100000))
        read_all(m, store);
    uint64_t begun = rks_now_ms();
    EXPECT(rks_store_leave(store, LONG_MS) == 1);
    EXPECT(rks_now_ms() - begun < LONG_MS / 2);
    rks_store_close(store, LONG_MS);
}

static void close_with(uint32_t one, uint32_t other, uint32_t late, bool leave)
{
    job j = {.early = {one, other}, .late = late, .leave = leave};
    pthread_barrier_init(&j.given_up, NULL, RANKS);
    on_threads(RANKS, close_in_turn, &j);
    pthread_barrier_destroy(&j.given_up);
}

static void a_leaf_that_waits_for_nobody_keeps_nobody_waiting(void **state)
{
    (void)state;
    close_with(3, RANKS, 1, false);
}

static void ranks_below_a_leader_that_is_gone_go_on(void **state)
{
    (void)state;
    close_with(2, RANKS, 3, false);
    close_with(2, RANKS, 5, false);
    close_with(2, RANKS, 3, true);
}

static void ranks_below_a_root_that_is_gone_go_on(void **state)
{
    (void)state;
    close_with(0, RANKS, 5, false);
    close_with(0, RANKS, 1, true);
}

/* Rank 4 and its child close first, or last. */
static void ranks_below_two_that_are_gone_go_on(void **state)
{
    (void)state;
    close_with(2, 4, 5, false);
    close_with(2, 3, 1, false);
}

/* A word as the store's own: rank 2, which is said to be rank 1's next one, has said before that
 * all have closed, and hears nothing any more. */
static void say(member *m, rks_store *store, uint32_t to, uint32_t word, uint32_t heir)
{
    uint8_t note[8];
    rks_store_u32(note, word);
    rks_store_u32(note + 4, heir);
    EXPECT_OK(rks_engine_note(rks_group_engine(m->group), to,
                              rks_store_service(store, RKS_SERVICE_STORE), note, sizeof(note),
                              &m->err));
}

static void hear_of_the_end_too_early(member *m)
{
    enum { ALL_CLOSED = 2, GIVEN_UP = 3 };
    pthread_barrier_t *barrier = m->user;
    rks_store *store = open_one(m);
    if (m->rank == 2 && store != NULL)
        say(m, store, 1, ALL_CLOSED, 0);
    usleep(100000); /* should it come later, this test passes all the same */
    pthread_barrier_wait(barrier);
    if (m->rank == 0 && store != NULL)
        say(m, store, 1, GIVEN_UP, 2);
    if (m->rank == 1 && store != NULL)
        EXPECT(rks_store_leave(store, 5000) == 1);
    pthread_barrier_wait(barrier);
    rks_store_close(store, 1);
}

static void an_end_that_overtakes_the_word_of_who_says_it_is_heard(void **state)
{
    (void)state;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, RANKS);
    on_threads(RANKS, hear_of_the_end_too_early, &barrier);
    pthread_barrier_destroy(&barrier);
}

static int build_dataset(void **state)
{
    (void)state;
    static char directory[FOLDER_PATH];
    world_directory(directory);
    *state = directory;
    snprintf(target, sizeof(target), "%s/d-{rank}", directory); /* each has a shard of its own */
    world_dataset(target, RANKS, false);
    return 0;
}

static int remove_dataset(void **state)
{
    world_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leaf_that_waits_for_nobody_keeps_nobody_waiting),
        cmocka_unit_test(ranks_below_a_leader_that_is_gone_go_on),
        cmocka_unit_test(ranks_below_a_root_that_is_gone_go_on),
        cmocka_unit_test(ranks_below_two_that_are_gone_go_on),
        cmocka_unit_test(an_end_that_overtakes_the_word_of_who_says_it_is_heard),
    };
    return cmocka_run_group_tests_name("life", tests, build_dataset, remove_dataset);
}
