/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_share.c: plans that share their epochs give the bits of a plan alone, whoever makes
 * them, and whatever becomes of who does. Each plan here has locks of its own, as a rank has. */

#include "plan/cache/epoch_cache_area.h"

#include "plans.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    RANKS = 3,
    EPOCHS = 4,
    TRIALS = 84 / RACE_STRIDE,
    COUNT = 3000,
    SHORT = 256,
    SILENCE_MS = 60000, /* on a busy machine a rank may well stand still for a second */
};

static uint32_t silence_ms = SILENCE_MS;
static uint32_t *lengths;
static rks_cache_area looks; /* the test's own eyes */
static int memory = -1;

static int setup(void **state)
{
    (void)state;
    rks_random random = {11};
    lengths = calloc(COUNT, sizeof(*lengths));
    for (size_t i = 0; i < COUNT; i++)
        lengths[i] = 1 + below(&random, 300);
    rks_plan_share_set(1, UINT64_MAX);
    rks_plan_stretch_set(SHORT);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rks_plan_share_set(0, 0);
    rks_plan_stretch_set(0);
    rks_set_interrupt(NULL, NULL);
    free(lengths);
    return 0;
}

static void open_memory(void)
{
    assert_ok(rks_plan_share_memory(&memory, &err), &err);
    const rks_plan_share_options options = {.fd = memory};
    assert_ok(rks_cache_area_open(&options, &looks, &err), &err);
}

static void close_memory(void)
{
    rks_cache_area_close(&looks);
    close(memory);
    memory = -1;
}

static rks_status create(const rks_plan_options *options, uint32_t rank, rks_plan **plan)
{
    const rks_plan_share_options share = {.fd = memory, .rank = rank, .silence_ms = silence_ms};
    const rks_plan_samples samples = {.lengths = lengths, .count = COUNT};
    return rks_plan_create_shared(&samples, options, memory < 0 ? NULL : &share, plan, &err);
}

static rks_plan_options simple(const char *strategy)
{
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = strategy;
    options.batch_size = 8;
    options.world = 2;
    options.seed = 3;
    return options;
}

/* Same report, with a digest over all batches, and same pieces and bins. */
static void assert_same(rks_plan *alone, rks_plan *shared, uint64_t epoch)
{
    rks_plan_report a = {.struct_size = sizeof(a)}, b = {.struct_size = sizeof(b)};
    rks_status status = rks_plan_report_get(alone, epoch, &a, &err);
    char text[sizeof(err.text)];
    memcpy(text, err.text, sizeof(text));
    assert_int_equal(rks_plan_report_get(shared, epoch, &b, &err), status);
    if (status != RKS_OK) {
        assert_string_equal(err.text, text);
        return;
    }
    assert_memory_equal(&a, &b, sizeof(a));
    for (uint64_t step = 0; step < a.steps; step += 1 + step / 2) {
        const rks_piece *p, *q;
        const uint32_t *c, *d;
        size_t n = 0, m = 0;
        assert_ok(rks_plan_pieces(alone, epoch, step, 0, &p, &n, &err), &err);
        assert_ok(rks_plan_pieces(shared, epoch, step, 0, &q, &m, &err), &err);
        assert_int_equal(n, m);
        assert_true(n == 0 || memcmp(p, q, n * sizeof(*p)) == 0);
        if (rks_plan_bins(alone, epoch, step, 0, &c, &n, &err) != RKS_OK)
            continue;
        assert_ok(rks_plan_bins(shared, epoch, step, 0, &d, &m, &err), &err);
        assert_int_equal(n, m);
        for (size_t i = 0; i <= n; i++)
            assert_int_equal(c[i], d[i]);
    }
}

static void draw_options(rks_random *random, rks_plan_options *options)
{
    random_options(random, options);
    if (below(random, 3) == 0) {
        rks_plan_options_default(options);
        options->strategy = "pack";
        options->capacity = 400;
        options->batch_size = 1 + below(random, 4);
        options->world = 1 + below(random, 4);
        options->pack_window = below(random, 2) * 16;
        options->mixed = below(random, 2) == 0;
    }
    if (below(random, 3) == 0) {
        options->max_length = 100;
        options->too_long = "split";
    }
}

static void ranks_that_share_get_the_bits_of_a_plan_alone(void **state)
{
    (void)state;
    rks_random random = {test_seed(0)};
    unsigned planned = 0;
    for (unsigned trial = 0; trial < TRIALS; trial++) {
        rks_plan_options options;
        rks_plan *alone = NULL, *ranks[RANKS] = {NULL};
        draw_options(&random, &options);
        rks_plan_share_set(1, below(&random, 2) == 0 ? 1 : UINT64_MAX);
        rks_status expected = rks_plan_create(lengths, COUNT, NULL, &options, &alone, &err);
        open_memory();
        for (uint32_t i = 0; i < RANKS; i++)
            assert_int_equal(create(&options, i, &ranks[i]), expected);
        for (unsigned ask = 0; ask < 3 * EPOCHS && expected == RKS_OK; ask++) {
            uint64_t epoch = below(&random, EPOCHS);
            assert_same(alone, ranks[below(&random, RANKS)], epoch);
            planned++;
        }
        for (size_t i = 0; i < RANKS; i++)
            rks_plan_free(ranks[i]);
        rks_plan_free(alone);
        close_memory();
    }
    assert_true(planned > TRIALS);
    rks_plan_share_set(1, UINT64_MAX);
}

static void a_resumed_epoch_is_made_once_for_all_ranks(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential", "pack"};
    for (size_t s = 0; s < sizeof(strategies) / sizeof(strategies[0]); s++) {
        rks_plan_options options = simple(strategies[s]);
        options.capacity = strcmp(strategies[s], "pack") == 0 ? 400 : 0;
        rks_plan *before = NULL, *alone = NULL, *ranks[RANKS] = {NULL};
        char text[RKS_STATE_MAX];
        uint64_t epoch = 0, step = 0, other_epoch = 0, other_step = 0;
        assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &before, &err), &err);
        assert_ok(rks_plan_state(before, 1, 9, text, sizeof(text), &err), &err);
        options.world = 3;
        assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &alone, &err), &err);
        assert_ok(rks_plan_resume(alone, text, &epoch, &step, &err), &err);
        open_memory();
        for (uint32_t i = 0; i < RANKS; i++) {
            assert_ok(create(&options, i, &ranks[i]), &err);
            assert_ok(rks_plan_resume(ranks[i], text, &other_epoch, &other_step, &err), &err);
            assert_true(epoch == other_epoch && step == other_step);
        }
        uint64_t made = looks.control->places[0].generation + looks.control->places[1].generation;
        assert_int_equal(made, 1);
        for (size_t i = 0; i < RANKS; i++) {
            assert_same(alone, ranks[i], 1);
            assert_same(alone, ranks[i], 2);
            assert_same(alone, ranks[i], 1);
            rks_plan_free(ranks[i]);
        }
        rks_plan_free(alone);
        rks_plan_free(before);
        close_memory();
    }
}

static const uint32_t *first_ids(rks_plan *plan, uint64_t epoch)
{
    const uint32_t *ids = NULL;
    size_t count;
    assert_ok(rks_plan_batch(plan, epoch, 0, 0, &ids, &count, &err), &err);
    return ids;
}

static bool wait_for_epoch(uint64_t epoch)
{
    for (unsigned i = 0; i < 5000; i++) {
        rks_cache_enter(&looks, looks.options.fd, false, NULL);
        bool there = false;
        for (size_t p = 0; p < CACHE_EPOCHS; p++)
            there = there || (looks.control->places[p].state == CACHE_READY &&
                              looks.control->places[p].key.epoch == epoch);
        rks_cache_leave(&looks, looks.options.fd);
        if (there)
            return true;
        usleep(1000);
    }
    return false;
}

static void the_next_epoch_is_made_when_the_last_rank_has_left_the_one_before(void **state)
{
    (void)state;
    const rks_plan_options options = simple("bucket");
    rks_plan *one = NULL, *two = NULL;
    rks_plan_share_set(1, 1);
    open_memory();
    assert_ok(create(&options, 0, &one), &err);
    assert_ok(create(&options, 1, &two), &err);
    first_ids(one, 0);
    const uint32_t *kept = first_ids(two, 0);
    uint32_t first = kept[0];
    assert_true(wait_for_epoch(1));
    first_ids(one, 1);
    usleep(20000);
    /* The other rank still reads epoch 0, so there is no place for epoch 2. */
    assert_int_equal(looks.control->places[0].generation, 1);
    assert_int_equal(looks.control->places[1].generation, 1);
    first_ids(one, 2); /* its own */
    assert_int_equal(kept[0], first);
    first_ids(two, 1);
    assert_true(wait_for_epoch(2));
    rks_plan_free(two);
    rks_plan_free(one);
    close_memory();
    rks_plan_share_set(1, UINT64_MAX);
}

/* ---- interrupts, and makers that end ----------------------------------------------------------
 */

static int says_stop(void *user)
{
    (void)user;
    return 1;
}

static int ends_here(void *user)
{
    (void)user;
    return kill(getpid(), SIGKILL);
}

static int stands_still(void *user)
{
    while (user == NULL)
        pause();
    return 0;
}

static void an_interrupted_maker_leaves_the_epoch_to_others(void **state)
{
    (void)state;
    const rks_plan_options options = simple("bucket");
    rks_plan *one = NULL, *two = NULL, *alone = NULL;
    open_memory();
    assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &alone, &err), &err);
    assert_ok(create(&options, 0, &one), &err);
    assert_ok(create(&options, 1, &two), &err);
    rks_set_interrupt(says_stop, NULL);
    const uint32_t *ids;
    size_t count;
    assert_fails(RKS_ERR_CANCELLED, rks_plan_batch(one, 0, 0, 0, &ids, &count, &err));
    rks_set_interrupt(NULL, NULL);
    assert_same(alone, two, 0);
    assert_same(alone, one, 0);
    rks_plan_free(two);
    rks_plan_free(one);
    rks_plan_free(alone);
    close_memory();
}

/* A child that makes epoch 0, and ends or stands still meanwhile. Over once it is at that. */
static pid_t start_maker(const rks_plan_options *options, rks_interrupt_fn then)
{
    pid_t child = fork();
    if (child == 0) {
        rks_plan *plan = NULL;
        const uint32_t *ids;
        size_t count;
        if (create(options, 7, &plan) != RKS_OK)
            _exit(2);
        rks_set_interrupt(then, NULL);
        rks_plan_batch(plan, 0, 0, 0, &ids, &count, &err);
        _exit(3);
    }
    assert_true(child > 0);
    for (bool making = false; !making; usleep(500)) {
        rks_cache_enter(&looks, looks.options.fd, false, NULL);
        making = looks.control->places[0].state == CACHE_MAKING;
        rks_cache_leave(&looks, looks.options.fd);
    }
    return child;
}

static void end_maker(pid_t child)
{
    int status = 0;
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void all_ranks_get_the_same_error_of_a_maker_that_is_killed(void **state)
{
    (void)state;
    const rks_plan_options options = simple("random");
    rks_plan *ranks[RANKS] = {NULL};
    open_memory();
    for (uint32_t i = 0; i < RANKS; i++)
        assert_ok(create(&options, i, &ranks[i]), &err);
    pid_t child = start_maker(&options, ends_here);
    uint64_t since = rks_now_ms();
    for (size_t i = 0; i < RANKS; i++) {
        const uint32_t *ids;
        size_t count;
        assert_fails(RKS_ERR_PEER, rks_plan_batch(ranks[i], i, 0, 0, &ids, &count, &err));
        assert_int_equal(err.rank, 7);
        assert_string_equal(err.text,
                            "rank 7 ended while it made epoch 0 of the plan for the ranks "
                            "of its node");
    }
    assert_true(rks_now_ms() - since < SILENCE_MS);
    end_maker(child);
    for (size_t i = 0; i < RANKS; i++)
        rks_plan_free(ranks[i]);
    close_memory();
}

/* A worker process of a rank that is ended as it reads: no rank has failed. */
static void another_rank_takes_the_place_of_a_child_that_is_killed(void **state)
{
    (void)state;
    const rks_plan_options options = simple("random");
    rks_plan *one = NULL, *two = NULL, *alone = NULL;
    open_memory();
    assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &alone, &err), &err);
    assert_ok(create(&options, 0, &one), &err);
    assert_ok(create(&options, 1, &two), &err);
    pid_t child = fork();
    if (child == 0) {
        const uint32_t *ids;
        size_t count;
        rks_set_interrupt(ends_here, NULL);
        rks_plan_batch(one, 0, 0, 0, &ids, &count, &err);
        _exit(3);
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended));
    assert_int_equal(looks.control->places[0].state, CACHE_MAKING);
    assert_same(alone, two, 0);
    assert_same(alone, one, 0);
    assert_int_equal(looks.control->places[0].state, CACHE_READY);
    rks_plan_free(two);
    rks_plan_free(one);
    rks_plan_free(alone);
    close_memory();
}

/* Nobody waits for the epoch that a rank was at as it ended, and the rank may have been through. */
static void another_rank_takes_the_place_of_one_that_ended_at_the_next_epoch(void **state)
{
    (void)state;
    const rks_plan_options options = simple("random");
    rks_plan *plan = NULL, *alone = NULL;
    open_memory();
    assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &alone, &err), &err);
    assert_ok(create(&options, 0, &plan), &err);
    assert_same(alone, plan, 0);
    pid_t child = fork();
    if (child == 0) {
        const rks_plan_share_options share = {.fd = memory, .rank = 7};
        const rks_cache_want next = {.key = {.epoch = 1}, .count = CACHE_EPOCHS};
        rks_cache_claimed claimed;
        rks_cache_area area;
        bool makes = rks_cache_area_open(&share, &area, &err) == RKS_OK &&
                     rks_cache_claim(&area, area.options.fd, &next, &claimed, &err) == RKS_OK &&
                     claimed.how == CACHE_MAKE;
        _exit(makes ? 0 : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(looks.control->places[1].state, CACHE_MAKING);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        assert_same(alone, plan, epoch);
    assert_int_equal(looks.control->places[1].state, CACHE_READY);
    rks_plan_free(plan);
    rks_plan_free(alone);
    close_memory();
}

static void a_maker_that_stands_still_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    const rks_plan_options options = simple("sorted");
    rks_plan *plan = NULL;
    const uint32_t *ids;
    size_t count;
    open_memory();
    silence_ms = 400;
    assert_ok(create(&options, 0, &plan), &err);
    silence_ms = SILENCE_MS;
    pid_t child = start_maker(&options, stands_still);
    assert_fails(RKS_ERR_TIMEOUT, rks_plan_batch(plan, 0, 0, 0, &ids, &count, &err));
    assert_int_equal(err.rank, 7);
    assert_string_equal(err.text, "rank 7 has not gone on with epoch 0 of the plan for 400 ms");
    rks_set_interrupt(says_stop, NULL);
    assert_fails(RKS_ERR_CANCELLED, rks_plan_batch(plan, 0, 0, 0, &ids, &count, &err));
    rks_set_interrupt(NULL, NULL);
    end_maker(child);
    assert_fails(RKS_ERR_PEER, rks_plan_batch(plan, 0, 0, 0, &ids, &count, &err));
    rks_plan_free(plan);
    close_memory();
}

/* ---- memory, forks, leftovers ------------------------------------------------------------------
 */

/* Memory that lacks: of the limit on file sizes, which a memfd has, too. */
static void where_memory_lacks_ranks_make_their_own(void **state)
{
    (void)state;
    const rks_plan_options options = simple("bucket");
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    open_memory();
    pid_t child = fork();
    if (child == 0) {
        rks_plan *plan = NULL, *alone = NULL;
        const struct rlimit small = {1 << 20, 1 << 20};
        dup2(pipes[1], STDERR_FILENO);
        if (setrlimit(RLIMIT_FSIZE, &small) != 0 || create(&options, 0, &plan) != RKS_OK ||
            rks_plan_create(lengths, COUNT, NULL, &options, &alone, &err) != RKS_OK)
            _exit(2);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            const uint32_t *a, *b;
            size_t n, m;
            if (rks_plan_batch(plan, epoch, 1, 0, &a, &n, &err) != RKS_OK ||
                rks_plan_batch(alone, epoch, 1, 0, &b, &m, &err) != RKS_OK || n != m ||
                memcmp(a, b, n * sizeof(*a)) != 0)
                _exit(3);
        }
        _exit(0);
    }
    close(pipes[1]);
    char text[512] = "";
    for (ssize_t got = 1, at = 0; got > 0 && at < (ssize_t)sizeof(text) - 1; at += got)
        got = read(pipes[0], text + at, sizeof(text) - 1 - (size_t)at);
    close(pipes[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_contains(text, "rankstore: plan: the plan's epochs in memory: ");
    assert_contains(text, "(ulimit -f), 1048576; each rank of this node makes its own copy\n");
    assert_null(strchr(strchr(text, '\n') + 1, '\n')); /* one line */
    close_memory();
}

static void a_child_after_fork_keeps_what_it_reads(void **state)
{
    (void)state;
    const rks_plan_options options = simple("random");
    rks_plan *plan = NULL, *alone = NULL;
    int go[2];
    char byte = 0;
    open_memory();
    assert_int_equal(pipe(go), 0);
    assert_ok(create(&options, 0, &plan), &err);
    assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &alone, &err), &err);
    const uint32_t *ids = first_ids(plan, 0);
    uint32_t first = ids[0];
    pid_t child = fork();
    if (child == 0) {
        bool good = first_ids(plan, 0)[0] == first;
        good = write(go[1], "x", 1) == 1 && good;
        usleep(100000); /* the parent goes on meanwhile */
        good = good && ids[0] == first && first_ids(plan, 0)[0] == first;
        good = good && first_ids(plan, 2)[0] == first_ids(alone, 2)[0];
        rks_plan_free(plan);
        _exit(good ? 0 : 4);
    }
    assert_int_equal(read(go[0], &byte, 1), 1);
    for (uint64_t epoch = 1; epoch < EPOCHS; epoch++)
        assert_same(alone, plan, epoch);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_same(alone, plan, 1); /* the child has taken nothing from it */
    close(go[0]);
    close(go[1]);
    rks_plan_free(plan);
    rks_plan_free(alone);
    close_memory();
}

static void a_child_that_comes_late_makes_its_own(void **state)
{
    (void)state;
    const rks_plan_options options = simple("random");
    rks_plan *plan = NULL;
    int go[2];
    open_memory();
    assert_int_equal(pipe(go), 0);
    assert_ok(create(&options, 0, &plan), &err);
    uint32_t first = first_ids(plan, 0)[0];
    pid_t child = fork();
    if (child == 0) {
        char byte;
        bool good = read(go[0], &byte, 1) == 1 && first_ids(plan, 0)[0] == first;
        _exit(good ? 0 : 4);
    }
    for (uint64_t epoch = 1; epoch < EPOCHS; epoch++)
        first_ids(plan, epoch); /* both places have other epochs now */
    assert_int_equal(write(go[1], "x", 1), 1);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(go[0]);
    close(go[1]);
    rks_plan_free(plan);
    close_memory();
}

/* Nobody closes a plan in a worker process that has read what it wanted. */
static void a_child_that_ends_leaves_no_epoch_half_made(void **state)
{
    (void)state;
    const rks_plan_options options = simple("random");
    rks_plan *plan = NULL;
    open_memory();
    assert_ok(create(&options, 0, &plan), &err);
    rks_plan_share_set(1, 1);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        pid_t child = fork();
        if (child == 0) {
            first_ids(plan, epoch);
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    rks_plan_share_set(1, UINT64_MAX);
    assert_non_null(first_ids(plan, 1));
    rks_plan_free(plan);
    close_memory();
}

static size_t descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void nothing_is_left_of_plans_that_end_while_an_epoch_is_made(void **state)
{
    (void)state;
    const rks_plan_options options = simple("bucket");
    size_t before = descriptors();
    long live = rks_memory_in_use();
    uint64_t counted = counted_memory();
    rks_plan_share_set(1, 1);
    for (unsigned i = 0; i < 28 / RACE_STRIDE; i++) {
        rks_plan *one = NULL, *two = NULL;
        open_memory();
        assert_ok(create(&options, 0, &one), &err);
        assert_ok(create(&options, 1, &two), &err);
        first_ids(one, i);
        if (i % 2 == 0)
            rks_plan_free(one); /* its thread is at the next epoch */
        first_ids(two, i + 1);
        rks_plan_free(two);
        if (i % 2 != 0)
            rks_plan_free(one);
        close_memory();
    }
    assert_int_equal(descriptors(), before);
    assert_int_equal(rks_memory_in_use(), live);
    assert_int_equal(counted_memory(), counted);
    rks_plan_share_set(1, UINT64_MAX);
}

typedef struct asker {
    pthread_t thread;
    rks_plan *plan;
    uint32_t firsts[8 * EPOCHS];
    bool good;
} asker;

static void *ask_all(void *user)
{
    asker *a = user;
    rks_error mine;
    a->good = true;
    for (uint64_t epoch = 0; epoch < 8 * EPOCHS && a->good; epoch++) {
        const uint32_t *ids = NULL;
        size_t count;
        a->good = rks_plan_batch(a->plan, epoch, 0, 0, &ids, &count, &mine) == RKS_OK;
        a->firsts[epoch] = a->good ? ids[0] : 0;
    }
    return NULL;
}

static void ranks_ask_at_once_a_thread_each(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "random", "pack"};
    asker askers[RANKS];
    rks_plan_share_set(1, 1);
    for (size_t s = 0; s < 3; s++) {
        rks_plan_options options = simple(strategies[s]);
        options.capacity = s == 2 ? 400 : 0;
        rks_plan *alone = NULL;
        open_memory();
        assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &alone, &err), &err);
        for (uint32_t i = 0; i < RANKS; i++) {
            askers[i] = (asker){0};
            assert_ok(create(&options, i, &askers[i].plan), &err);
        }
        for (uint32_t i = 0; i < RANKS; i++)
            assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_all, &askers[i]), 0);
        for (uint32_t i = 0; i < RANKS; i++)
            pthread_join(askers[i].thread, NULL);
        for (uint32_t i = 0; i < RANKS; i++) {
            assert_true(askers[i].good);
            for (uint64_t epoch = 0; epoch < 8 * EPOCHS; epoch++)
                assert_int_equal(askers[i].firsts[epoch], first_ids(alone, epoch)[0]);
            rks_plan_free(askers[i].plan);
        }
        rks_plan_free(alone);
        close_memory();
    }
    rks_plan_share_set(1, UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_share_get_the_bits_of_a_plan_alone),
        cmocka_unit_test(a_resumed_epoch_is_made_once_for_all_ranks),
        cmocka_unit_test(the_next_epoch_is_made_when_the_last_rank_has_left_the_one_before),
        cmocka_unit_test(an_interrupted_maker_leaves_the_epoch_to_others),
        cmocka_unit_test(all_ranks_get_the_same_error_of_a_maker_that_is_killed),
        cmocka_unit_test(another_rank_takes_the_place_of_a_child_that_is_killed),
        cmocka_unit_test(another_rank_takes_the_place_of_one_that_ended_at_the_next_epoch),
        cmocka_unit_test(a_maker_that_stands_still_is_not_waited_for_for_ever),
        cmocka_unit_test(where_memory_lacks_ranks_make_their_own),
        cmocka_unit_test(a_child_after_fork_keeps_what_it_reads),
        cmocka_unit_test(a_child_that_comes_late_makes_its_own),
        cmocka_unit_test(a_child_that_ends_leaves_no_epoch_half_made),
        cmocka_unit_test(nothing_is_left_of_plans_that_end_while_an_epoch_is_made),
        cmocka_unit_test(ranks_ask_at_once_a_thread_each),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
