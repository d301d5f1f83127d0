/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prefetch.c: batches fetched ahead, in order, within their bounds. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "fetch/fetcher.h"
#include "fetch/prefetch.h"
#include "world.h"

enum { LISTS = 40, MOST = 50 };

/* A plan of LISTS batches, and what the ring did with them. */
typedef struct source {
    rks_fetcher *fetcher;
    uint32_t ids[LISTS][MOST];
    size_t counts[LISTS];
    size_t next, started, delivered, most_ahead;
    size_t bad_list;   /* its first sample is corrupt */
    size_t fail_list;  /* next_list fails once when it is asked for this one */
    size_t fail_start; /* start fails for this one */
    bool unmade;       /* there was no memory for the next list */
    bool remote, near, gathering;
    size_t waves, wave_began; /* gatherings that have started something */
} source;

static source the_source;

/* The calls of the ring to the fetcher come here first. */
bool __wrap_rks_fetcher_is_remote(const rks_fetcher *fetcher);
void __real_rks_fetcher_gather(rks_fetcher *fetcher, bool on);
void __wrap_rks_fetcher_gather(rks_fetcher *fetcher, bool on);
rks_status __real_rks_fetcher_start(rks_fetcher *fetcher, rks_request_list *list, rks_fetch **fetch,
                                    rks_error *problem);
rks_status __wrap_rks_fetcher_start(rks_fetcher *fetcher, rks_request_list *list, rks_fetch **fetch,
                                    rks_error *problem);

bool __wrap_rks_fetcher_is_remote(const rks_fetcher *fetcher)
{
    (void)fetcher;
    return the_source.remote;
}

void __wrap_rks_fetcher_gather(rks_fetcher *fetcher, bool on)
{
    source *s = &the_source;
    assert_int_equal(s->gathering, !on);
    s->gathering = on;
    __real_rks_fetcher_gather(fetcher, on);
    if (on)
        s->wave_began = s->started;
    else
        s->waves += s->started > s->wave_began;
}

rks_status __wrap_rks_fetcher_start(rks_fetcher *fetcher, rks_request_list *list, rks_fetch **fetch,
                                    rks_error *problem)
{
    source *s = &the_source;
    if (s->fail_start != SIZE_MAX && list->wanted[0].id == s->ids[s->fail_start][0])
        return rks_fail(problem, RKS_ERR_STATE, 0, "cannot start");
    assert_true(s->gathering || s->near);
    s->started++;
    if (s->started - s->delivered > s->most_ahead)
        s->most_ahead = s->started - s->delivered;
    return __real_rks_fetcher_start(fetcher, list, fetch, problem);
}

static rks_status next_list(rks_prefetch_list *list, rks_error *problem)
{
    source *s = &the_source;
    if (s->next == s->fail_list) {
        s->fail_list = SIZE_MAX;
        return rks_fail(problem, RKS_ERR_MEMORY, 0, "no list");
    }
    size_t count = s->counts[s->next];
    rks_status status = rks_request_list_create(s->fetcher, count, &list->samples, problem);
    s->unmade = status != RKS_OK;
    if (status != RKS_OK)
        return status;
    rks_wanted *wanted = list->samples->wanted;
    for (size_t i = 0; i < count; i++)
        wanted[i] = world_wanted(s->ids[s->next][i]);
    wanted[0].length += s->next == s->bad_list;
    list->count = count;
    list->weight = count;
    list->tag = s->next++;
    return RKS_OK;
}

static rks_status fill(rks_prefetch *prefetch, rks_error *problem)
{
    bool wants = false;
    rks_status status = rks_prefetch_start(prefetch, &wants, problem);
    while (status == RKS_OK && wants && the_source.next < LISTS) {
        rks_prefetch_list list = {0};
        status = next_list(&list, problem);
        if (status != RKS_OK)
            break;
        rks_prefetch_push(prefetch, &list);
        status = rks_prefetch_start(prefetch, &wants, problem);
    }
    rks_prefetch_send(prefetch);
    return status;
}

/* Reads a batch as an epoch does. */
static rks_status next_batch(rks_prefetch *prefetch, rks_batch **batch, uint64_t *tag,
                             rks_error *problem)
{
    source *s = &the_source;
    rks_arrays *none = NULL;
    rks_status status = fill(prefetch, problem);
    if (rks_prefetch_ahead(prefetch) == 0 && status != RKS_OK) {
        if (!rks_prefetch_drop(prefetch))
            s->next += s->unmade;
        s->unmade = false;
        return status;
    }
    status = rks_prefetch_next(prefetch, batch, &none, tag, problem);
    if (status == RKS_OK)
        (void)fill(prefetch, NULL);
    assert_null(none);
    return status;
}

static rks_prefetch_options begin(uint32_t max_batches, uint64_t max_bytes)
{
    source *s = &the_source;
    *s = (source){.bad_list = SIZE_MAX, .fail_list = SIZE_MAX, .fail_start = SIZE_MAX};
    s->fetcher = world_fetcher(7, NULL);
    for (uint32_t i = 0; i < LISTS; i++) {
        s->counts[i] = 1 + i * 7 % MOST;
        for (uint32_t k = 0; k < s->counts[i]; k++)
            s->ids[i][k] = (i * 31 + k * 17) % (WORLD_SHARDS * WORLD_ROWS);
    }
    return (rks_prefetch_options){.fetcher = s->fetcher,
                                  .max_batches = max_batches,
                                  .max_bytes = max_bytes,
                                  .known_bytes = 400,
                                  .known_weight = 1};
}

static void check_list(rks_batch *batch, size_t list)
{
    assert_int_equal(rks_batch_count(batch), the_source.counts[list]);
    for (size_t i = 0; i < the_source.counts[list]; i++)
        world_check_sample(batch, i, the_source.ids[list][i]);
}

static void read_rest(rks_prefetch *prefetch, size_t first)
{
    rks_batch *batch = NULL;
    for (size_t list = first; list < LISTS; list++) {
        uint64_t tag = 0;
        assert_ok(next_batch(prefetch, &batch, &tag, &err), &err);
        the_source.delivered++;
        assert_non_null(batch);
        assert_int_equal(tag, list);
        check_list(batch, list);
        rks_batch_free(batch);
    }
    for (int again = 0; again < 2; again++) {
        assert_ok(next_batch(prefetch, &batch, NULL, &err), &err);
        assert_null(batch);
    }
}

static void batches_come_in_order_and_end(void **state)
{
    (void)state;
    static const uint32_t ahead[] = {1, 3, 100};
    for (size_t i = 0; i < 3; i++) {
        rks_prefetch *prefetch = NULL;
        rks_prefetch_options options = begin(ahead[i], 0);
        assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
        assert_int_equal(the_source.started, 0);
        read_rest(prefetch, 0);
        assert_int_equal(the_source.started, LISTS);
        /* in next(), the one that is about to be returned counts too */
        assert_in_range(the_source.most_ahead, ahead[i] < LISTS ? ahead[i] : LISTS, ahead[i] + 1);
        rks_prefetch_close(prefetch);
        rks_fetcher_close(the_source.fetcher);
    }
}

static void without_a_number_bytes_alone_bound_it(void **state)
{
    (void)state;
    static const uint64_t bytes[] = {0, 1 << 20, 1};
    for (size_t i = 0; i < 3; i++) {
        rks_prefetch *prefetch = NULL;
        rks_prefetch_options options = begin(0, bytes[i]);
        assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
        read_rest(prefetch, 0);
        if (bytes[i] == 1)
            assert_in_range(the_source.most_ahead, 1, 2); /* and the one that is returned */
        else
            assert_true(the_source.most_ahead > 30); /* small batches: many of them */
        rks_prefetch_close(prefetch);
        rks_fetcher_close(the_source.fetcher);
    }
}

/* Requests are sent together: batches start when half of those ahead are used up, and then many. */
static void what_comes_from_other_ranks_is_asked_for_in_waves(void **state)
{
    (void)state;
    static const uint32_t ahead[] = {20, 8};
    for (size_t i = 0; i < 2; i++) {
        rks_prefetch *prefetch = NULL;
        rks_prefetch_options options = begin(ahead[i], 1 << 30);
        the_source.remote = true;
        assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
        read_rest(prefetch, 0);
        if (ahead[i] == 20)
            assert_int_equal(the_source.waves, 3); /* of 20, 10 and 10 */
        else
            assert_int_equal(the_source.waves, LISTS - 8 + 1); /* few: one for each that is used */
        rks_prefetch_close(prefetch);
        rks_fetcher_close(the_source.fetcher);
    }
}

/* Reads `count` batches; before each, samples had to come from home. Returns the most that were
 * ahead meanwhile, with the one that is returned. */
static size_t read_some(rks_prefetch *prefetch, size_t count, bool waits)
{
    source *s = &the_source;
    s->most_ahead = s->started - s->delivered;
    for (size_t i = 0; i < count; i++) {
        rks_batch *batch = NULL;
        uint64_t tag = 0;
        if (waits)
            rks_fetcher_note_home_wait(s->fetcher);
        assert_ok(next_batch(prefetch, &batch, &tag, &err), &err);
        assert_int_equal(tag, s->delivered++);
        check_list(batch, (size_t)tag);
        rks_batch_free(batch);
    }
    return s->most_ahead;
}

static void small_batches_of_this_rank_start_in_groups(void **state)
{
    (void)state;
    static const uint32_t ahead[] = {8, 4, 3};
    static const size_t groups[] = {1 + (LISTS - 8) / 4, 1 + (LISTS - 4) / 2, 1 + LISTS - 3};
    for (size_t i = 0; i < 3; i++) {
        rks_prefetch *prefetch = NULL;
        rks_prefetch_options options = begin(ahead[i], 1 << 30);
        options.known_bytes = options.known_weight =
            1000; /* else the first group is of one batch */
        assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
        read_rest(prefetch, 0);
        assert_int_equal(the_source.waves, groups[i]);
        rks_prefetch_close(prefetch);
        rks_fetcher_close(the_source.fetcher);
    }
}

static void large_batches_of_this_rank_start_one_by_one(void **state)
{
    (void)state;
    rks_prefetch *prefetch = NULL;
    rks_prefetch_options options = begin(8, 1ull << 40);
    options.known_weight = 1000;
    options.known_bytes = options.known_weight << 30;
    assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
    read_rest(prefetch, 0);
    assert_int_equal(the_source.waves, 1 + LISTS - 8);
    rks_prefetch_close(prefetch);
    rks_fetcher_close(the_source.fetcher);
}

static void *gather_often(void *user)
{
    rks_fetcher *fetcher = user;
    rks_error problem;
    for (int i = 0; i < 30000; i++) {
        rks_request_list *list = NULL;
        rks_fetch *fetch = NULL;
        rks_batch *batch = NULL;
        assert_ok(rks_request_list_create(fetcher, 1, &list, &problem), &problem);
        list->wanted[0] = world_wanted(5);
        __real_rks_fetcher_gather(fetcher, true);
        assert_ok(__real_rks_fetcher_start(fetcher, list, &fetch, &problem), &problem);
        __real_rks_fetcher_gather(fetcher, false);
        assert_ok(rks_fetch_wait(fetch, &batch, &problem), &problem);
        rks_batch_free(batch);
    }
    return NULL;
}

static void rings_of_several_threads_share_a_fetcher(void **state)
{
    (void)state;
    pthread_t threads[3];
    (void)begin(1, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, gather_often, the_source.fetcher), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    rks_fetcher_close(the_source.fetcher);
}

static void while_samples_come_from_home_few_are_ahead(void **state)
{
    (void)state;
    rks_prefetch *prefetch = NULL;
    rks_prefetch_options options = begin(20, 1 << 30);
    options.near = the_source.near = true;
    assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
    assert_in_range(read_some(prefetch, 8, true), 4, 5);
    assert_in_range(read_some(prefetch, 8, false), 8, 9); /* twice as many, after the last */
    assert_in_range(read_some(prefetch, 2, true), 8, 9);  /* they are used up */
    (void)read_some(prefetch, 6, true);
    assert_in_range(read_some(prefetch, 1, true), 4, 5);
    rks_prefetch_close(prefetch);
    rks_fetcher_close(the_source.fetcher);
}

static void without_waits_for_home_it_reads_as_far_ahead_as_ever(void **state)
{
    (void)state;
    for (int remote = 0; remote < 2; remote++) {
        rks_prefetch *prefetch = NULL;
        rks_prefetch_options options = begin(12, 1 << 30);
        options.near = the_source.near = true;
        the_source.remote = remote == 1;
        assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
        assert_in_range(read_some(prefetch, 7, false), 4, 5);
        assert_int_equal(the_source.waves, 0); /* each batch is asked for at once */
        assert_in_range(read_some(prefetch, 17, false), 12, 13);
        assert_true(the_source.waves != 0);
        rks_prefetch_close(prefetch);
        rks_fetcher_close(the_source.fetcher);
    }
}

static void bytes_bound_how_far_ahead(void **state)
{
    (void)state;
    rks_fetch_stats stats = {0};
    rks_prefetch *prefetch = NULL;
    rks_prefetch_options options = begin(100, 60000);
    assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
    read_rest(prefetch, 0);
    assert_true(the_source.most_ahead > 1);
    assert_true(the_source.most_ahead < 20);
    rks_fetcher_stats(the_source.fetcher, &stats);
    assert_true(stats.peak_batch_bytes < 3 * 60000); /* the estimate is a mean */
    rks_prefetch_close(prefetch);
    rks_fetcher_close(the_source.fetcher);
}

static void one_batch_is_always_allowed(void **state)
{
    (void)state;
    rks_prefetch *prefetch = NULL;
    rks_prefetch_options options = begin(100, 1);
    options.known_bytes = options.known_weight = 0;
    assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
    read_rest(prefetch, 0);
    assert_in_range(the_source.most_ahead, 1, 2);
    rks_prefetch_close(prefetch);
    rks_fetcher_close(the_source.fetcher);
}

static void a_corrupt_batch_is_reported_and_the_next_one_comes(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    uint64_t tag = 99;
    rks_prefetch *prefetch = NULL;
    rks_prefetch_options options = begin(4, 0);
    the_source.bad_list = 1;
    assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
    assert_ok(next_batch(prefetch, &batch, &tag, &err), &err);
    assert_int_equal(tag, 0);
    rks_batch_free(batch);
    assert_fails(RKS_ERR_CORRUPT, next_batch(prefetch, &batch, &tag, &err));
    assert_contains(err.text, "sample 31 (key key/31)");
    assert_int_equal(tag, 0);
    read_rest(prefetch, 2);
    rks_prefetch_close(prefetch);
    rks_fetcher_close(the_source.fetcher);
}

static void a_batch_that_cannot_be_started_is_reported_and_the_next_one_comes(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_prefetch *prefetch = NULL;
    rks_prefetch_options options = begin(4, 0);
    the_source.fail_start = 0;
    assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
    assert_fails(RKS_ERR_STATE, next_batch(prefetch, &batch, NULL, &err));
    read_rest(prefetch, 1);
    rks_prefetch_close(prefetch);
    rks_fetcher_close(the_source.fetcher);
}

static void a_list_that_fails_is_asked_for_again(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_prefetch *prefetch = NULL;
    rks_prefetch_options options = begin(4, 0);
    the_source.fail_list = 0;
    assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
    assert_fails(RKS_ERR_MEMORY, next_batch(prefetch, &batch, NULL, &err));
    the_source.fail_list = 7; /* found while others are ahead: nothing is lost */
    read_rest(prefetch, 0);
    rks_prefetch_close(prefetch);
    rks_fetcher_close(the_source.fetcher);
}

static int stop_now(void *user)
{
    (void)user;
    return 1;
}

static void a_cancelled_batch_comes_again(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_prefetch *prefetch = NULL;
    rks_prefetch_options options = begin(4, 0);
    assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
    rks_set_interrupt(stop_now, NULL);
    /* what has arrived already is handed out; sooner or later one has not */
    rks_status status = RKS_OK;
    size_t first = 0;
    while (status == RKS_OK && first < LISTS) {
        status = next_batch(prefetch, &batch, NULL, &err);
        if (status == RKS_OK) {
            check_list(batch, first++);
            rks_batch_free(batch);
        }
    }
    rks_set_interrupt(NULL, NULL);
    assert_true(status == RKS_OK || status == RKS_ERR_CANCELLED);
    the_source.delivered = 0;
    read_rest(prefetch, first);
    rks_prefetch_close(prefetch);
    rks_fetcher_close(the_source.fetcher);
}

static void close_cancels_what_is_ahead(void **state)
{
    (void)state;
    for (size_t read = 0; read < 3; read++) {
        rks_prefetch *prefetch = NULL;
        rks_prefetch_options options = begin(30, 0);
        assert_ok(rks_prefetch_open(&options, &prefetch, &err), &err);
        for (size_t i = 0; i < read; i++) {
            rks_batch *batch = NULL;
            assert_ok(next_batch(prefetch, &batch, NULL, &err), &err);
            rks_batch_free(batch);
        }
        rks_prefetch_close(prefetch);
        rks_fetcher_close(the_source.fetcher);
    }
    rks_prefetch_close(NULL);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    for (long n = 1; n < 4 * LISTS + 20; n++) { /* four a batch */
        size_t failures = 0, batches = 0;
        rks_prefetch *prefetch = NULL;
        rks_prefetch_options options = begin(3, 0);
        rks_memory_fail_at(n);
        rks_status status = rks_prefetch_open(&options, &prefetch, &err);
        bool more = status == RKS_OK;
        while (more) {
            rks_batch *batch = NULL;
            status = next_batch(prefetch, &batch, NULL, &err);
            failures += status != RKS_OK;
            batches += batch != NULL;
            more = status != RKS_OK || batch != NULL;
            if (status != RKS_OK)
                assert_int_equal(status, RKS_ERR_MEMORY);
            rks_batch_free(batch);
        }
        rks_memory_fail_at(0);
        if (prefetch != NULL)
            assert_int_equal(batches + failures, LISTS);
        assert_true(failures <= 1);
        rks_prefetch_close(prefetch);
        rks_fetcher_close(the_source.fetcher);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_come_in_order_and_end),
        cmocka_unit_test(without_a_number_bytes_alone_bound_it),
        cmocka_unit_test(what_comes_from_other_ranks_is_asked_for_in_waves),
        cmocka_unit_test(small_batches_of_this_rank_start_in_groups),
        cmocka_unit_test(large_batches_of_this_rank_start_one_by_one),
        cmocka_unit_test(rings_of_several_threads_share_a_fetcher),
        cmocka_unit_test(while_samples_come_from_home_few_are_ahead),
        cmocka_unit_test(without_waits_for_home_it_reads_as_far_ahead_as_ever),
        cmocka_unit_test(bytes_bound_how_far_ahead),
        cmocka_unit_test(one_batch_is_always_allowed),
        cmocka_unit_test(a_corrupt_batch_is_reported_and_the_next_one_comes),
        cmocka_unit_test(a_batch_that_cannot_be_started_is_reported_and_the_next_one_comes),
        cmocka_unit_test(a_list_that_fails_is_asked_for_again),
        cmocka_unit_test(a_cancelled_batch_comes_again),
        cmocka_unit_test(close_cancels_what_is_ahead),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("prefetch", tests, world_begin, world_end);
}
