/* SPDX-License-Identifier: Apache-2.0
 *
 * test_group_faults.c: ranks that run out of memory, are interrupted, stay away or leave their
 * group behind: the others end with their name, nobody hangs, nothing is left. */
#include "ranks.h"

#include "base/bytes.h"
#include "group/group_state.h"

enum { T = 15000 };

/* ---- memory ---- */

enum { MOST = 2000 };

/* Rank 0 sends the result and is done: where rank 1 cannot take it in, rank 0 hears of it in its
 * next call, for which there is memory. */
static void open_and_gather(member *m)
{
    pthread_barrier_t *gathered = m->user;
    rks_gathered all = {0};
    rks_status status = try_to_open(m, m->bootstrap, 200, 1);
    if (status == RKS_OK)
        status = rks_group_allgather(m->group, "bytes", RKS_OK, "abc", 3, &all, &m->err);
    rks_free(all.bytes);
    rks_free(all.offsets);
    pthread_barrier_wait(gathered);
    if (m->rank == 0) {
        shared->ready = rks_memory_fail_left() > 0;
        rks_memory_fail_at(0);
    }
    pthread_barrier_wait(gathered);
    if (status == RKS_OK)
        status = rks_group_agree(m->group, "next", RKS_OK, &m->err);
    shared->statuses[m->rank] = status;
    shared->errors[m->rank] = m->err;
}

static void each_failing_allocation_is_every_rank_s_error_and_no_hang(void **state)
{
    (void)state;
    pthread_barrier_t gathered;
    member_start start = {open_and_gather, &gathered};
    rks_error err = {0};
    int code, clean = 0, failed = 0;
    for (long n = 1; clean < 3; n++) {
        assert_in_range(n, 1, MOST);
        alarm(LIMIT_S);
        pthread_barrier_init(&gathered, NULL, 2);
        rks_memory_fail_at(n);
        rks_status status = rks_launch_threads(2, run_member, &start, &code, &err);
        rks_memory_fail_at(0);
        pthread_barrier_destroy(&gathered);
        assert_int_equal(rks_memory_in_use(), 0);
        if (status != RKS_OK) { /* the launcher's own */
            assert_fails(RKS_ERR_MEMORY, status);
            continue;
        }
        bool well = shared->statuses[0] == RKS_OK;
        if (well != (shared->statuses[1] == RKS_OK))
            print_error("allocation %ld: rank 0: %d (%s), rank 1: %d (%s)\n", n,
                        shared->statuses[0], shared->errors[0].text, shared->statuses[1],
                        shared->errors[1].text);
        assert_true(well == (shared->statuses[1] == RKS_OK));
        failed += !well;
        clean += well && shared->ready; /* it was not reached */
    }
    alarm(0);
    assert_true(failed > 20);
}

/* Rank 1 brings an error while the n-th allocation fails, of whichever rank's: both hear of one. */
static void error_without_memory(member *m)
{
    if (!open_group(m, T, 0))
        return;
    rks_status status = rks_group_agree(m->group, "ready", RKS_OK, &m->err);
    EXPECT(status == RKS_OK);
    if (m->rank == 1) {
        status = rks_fail(&m->err, RKS_ERR_DATA, 0, "a bad line");
        rks_memory_fail_at(*(const long *)m->user);
    }
    status = rks_group_agree(m->group, "work", status, &m->err);
    rks_memory_fail_at(0);
    EXPECT(status != RKS_OK);
    /* Not that rank 1 has closed its group, which may be long after. */
    EXPECT(m->rank != 0 || strstr(m->err.text, "a bad line") != NULL ||
           strstr(m->err.text, "memory") != NULL);
}

static void an_error_reaches_all_ranks_where_memory_ends_on_the_way(void **state)
{
    (void)state;
    for (long n = 1; n <= 12; n++)
        on_threads(2, error_without_memory, &n);
}

/* ---- I/O threads ---------------------------------------------------------------------------- */

enum { REQUESTS = 12, THREADS = 3 };

typedef struct crowd {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int inside, most, answered; /* guarded by mutex */
} crowd;

/* Stays until as many are inside as there can be threads, and then for a while: one more would come
 * in. */
static void serve_slowly(void *user, rks_request *request)
{
    crowd *c = user;
    pthread_mutex_lock(&c->mutex);
    if (++c->inside > c->most)
        c->most = c->inside;
    pthread_cond_broadcast(&c->changed);
    for (int i = 0; i < 100 && c->most < THREADS; i++)
        rks_cond_wait_ms(&c->changed, &c->mutex, 100);
    pthread_mutex_unlock(&c->mutex);
    usleep(30000);
    pthread_mutex_lock(&c->mutex);
    c->inside--;
    pthread_mutex_unlock(&c->mutex);
    rks_request_reply(request, NULL, 0, NULL, NULL);
}

static void *place_none(void *user, size_t size)
{
    (void)user;
    (void)size;
    return NULL;
}

static void count_answer(void *user, const rks_error *err)
{
    crowd *c = user;
    pthread_mutex_lock(&c->mutex);
    c->answered += err == NULL;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

static void crowd_rank(member *m)
{
    crowd *c = m->user;
    rks_group_options options;
    rks_group_options_default(&options);
    EXPECT(options.io_threads == 16);
    options.bootstrap = m->bootstrap;
    options.io_threads = THREADS;
    EXPECT(rks_group_open(&options, &m->group, &m->err) == RKS_OK);
    if (m->group == NULL)
        return;
    rks_engine *engine = rks_group_engine(m->group);
    if (m->rank == 0)
        rks_engine_serve(engine, RKS_SERVICE_FETCH, serve_slowly, NULL, c);
    EXPECT(rks_group_agree(m->group, "serving", RKS_OK, &m->err) == RKS_OK);
    rks_reply_sink sink = {.place = place_none, .done = count_answer, .user = c};
    for (int i = 0; m->rank == 1 && i < REQUESTS; i++)
        EXPECT(rks_engine_request(engine, 0, &(rks_outgoing){RKS_SERVICE_FETCH, "?", 1, "test"},
                                  &sink, &m->err) == RKS_OK);
    pthread_mutex_lock(&c->mutex);
    for (int i = 0; i < 300 && c->answered < REQUESTS; i++)
        rks_cond_wait_ms(&c->changed, &c->mutex, 100);
    EXPECT(c->answered == REQUESTS && c->most == THREADS);
    pthread_mutex_unlock(&c->mutex);
}

static void as_many_threads_serve_as_the_group_s_option_says(void **state)
{
    (void)state;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_group_options options;
    crowd c = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    assert_int_equal(rks_cond_init(&c.changed), 0);
    on_threads(2, crowd_rank, &c);
    pthread_cond_destroy(&c.changed);
    rks_group_options_default(&options);
    options.io_threads = 1025;
    assert_fails(RKS_ERR_ARGUMENT, rks_group_open(&options, &group, &err));
    assert_contains(err.text, "io_threads");
}

/* ---- interrupts ---- */

static pthread_t interrupted_thread;
static atomic_bool interrupt_on;

static int interrupt_one(void *user)
{
    (void)user;
    return atomic_load(&interrupt_on) && pthread_equal(pthread_self(), interrupted_thread);
}

static void wait_and_be_interrupted(member *m)
{
    if (!open_group(m, T, 2))
        return;
    if (m->rank == 3) {
        interrupted_thread = pthread_self();
        interrupt_on = true;
    }
    if (m->rank == 0) /* never comes to the collective by itself */
        while (!rks_group_failed(m->group))
            rks_check_interrupt(NULL);
    EXPECT(rks_group_agree(m->group, "waiting", RKS_OK, &m->err) == RKS_ERR_CANCELLED);
    EXPECT(m->err.rank == 3 && strstr(m->err.text, "interrupted") != NULL);
    EXPECT(rks_group_agree(m->group, "later", RKS_OK, &m->err) == RKS_ERR_CANCELLED);
}

static void an_interrupted_rank_brings_the_others_out(void **state)
{
    (void)state;
    interrupt_on = false;
    rks_set_interrupt(interrupt_one, NULL);
    on_threads(5, wait_and_be_interrupted, NULL);
    rks_set_interrupt(NULL, NULL);
}

/* ---- threads that go ---- */

static rks_group *left_behind;

static void go_without_a_word(member *m)
{
    if (!open_group(m, T, 0))
        return;
    if (m->rank == 1) {
        left_behind = m->group; /* it goes on beating */
        m->group = NULL;
        return;
    }
    EXPECT(rks_group_agree(m->group, "work", RKS_OK, &m->err) == RKS_ERR_PEER);
    EXPECT(m->err.rank == 1 && strstr(m->err.text, "rank 1") != NULL);
    if (m->rank == 0)
        rks_group_close(left_behind); /* so that this test leaks nothing */
}

static void a_thread_that_ends_without_closing_is_named(void **state)
{
    (void)state;
    on_threads(3, go_without_a_word, NULL);
}

static void stay_away(member *m)
{
    if (m->rank == 2)
        return;
    EXPECT(try_to_open(m, m->bootstrap, T, 0) == RKS_ERR_PEER); /* its thread has ended */
    EXPECT(m->err.rank == 2 && strstr(m->err.text, "rank 2") != NULL);
}

static void a_rank_that_never_opens_the_group_is_named(void **state)
{
    (void)state;
    on_threads(4, stay_away, NULL);
}

static void bad_option(member *m)
{
    rks_group_options options;
    rks_group_options_default(&options);
    options.bootstrap = m->bootstrap;
    if (m->rank == 1)
        options.secret_file = "/nonexistent/secret";
    EXPECT(rks_group_open(&options, &m->group, &m->err) == RKS_ERR_IO);
    EXPECT(m->err.rank == 1 && strstr(m->err.text, "/nonexistent/secret") != NULL);
}

static void a_bad_option_of_one_rank_is_every_rank_s_error(void **state)
{
    (void)state;
    on_threads(3, bad_option, NULL);
}

/* ---- messages of those who have none to send ---- */

static void send_forged(member *m, uint32_t to, uint32_t kind, uint64_t total)
{
    uint8_t note[16 + 8] = {0};
    rks_store_u32(note, kind);
    rks_store_u64(note + 8, total);
    EXPECT(rks_engine_note(rks_group_engine(m->group), to, RKS_SERVICE_GROUP, note, sizeof(note),
                           &m->err) == RKS_OK);
}

/* The tree of one node: rank 0 is the parent of 1 and 2, which have nothing to say to each other.
 */
static void speak_to_a_sibling(member *m)
{
    if (!open_group(m, T, 0))
        return;
    for (uint32_t kind = 0; m->rank == 2 && kind < 9; kind++)
        send_forged(m, 1, kind, kind == 4 ? 8 : 1 << 20); /* 4: stop */
    EXPECT(rks_group_agree(m->group, "spoken", RKS_OK, &m->err) == RKS_OK);
    usleep(100000); /* what is forged has come */
    EXPECT(rks_group_agree(m->group, "going on", RKS_OK, &m->err) == RKS_OK);
}

static void messages_of_others_than_parent_and_children_are_ignored(void **state)
{
    (void)state;
    on_threads(3, speak_to_a_sibling, NULL);
}

/* `user`: kind and announced size. Nothing of that size is taken in: the group is over at once. */
static void announce_too_much(member *m)
{
    const uint64_t *forged = m->user;
    if (!open_group(m, T, 0))
        return;
    if (m->rank == 1)
        send_forged(m, 0, (uint32_t)forged[0], forged[1]);
    rks_group_agree(m->group, "announced", RKS_OK, &m->err); /* it may have been on its way */
    EXPECT(rks_group_agree(m->group, "known", RKS_OK, &m->err) == RKS_ERR_PEER);
    EXPECT(strstr(m->err.text, "a malformed message") != NULL && strstr(m->err.text, "rank 1"));
}

static void messages_above_what_their_kind_needs_end_the_group(void **state)
{
    (void)state;
    static uint64_t forged[][2] = {{1, UINT64_C(1) << 40},
                                   {2, 1000},
                                   {3, 8192},
                                   {4, 8192},
                                   {6, 8192},
                                   {5, 20},
                                   {77, 20},
                                   {8, 8},
                                   {9, 24}};
    for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++)
        on_threads(2, announce_too_much, forged[i]);
}

/* `user`: UP messages that rank 1 sends ahead: (number of the collective, how many). */
static void send_ahead(member *m)
{
    const uint64_t *ahead = m->user;
    uint8_t note[16 + 400] = {0};
    if (!open_group(m, T, 0))
        return;
    EXPECT(rks_group_agree(m->group, "first", RKS_OK, &m->err) == RKS_OK);
    if (m->rank == 1) {
        rks_store_u32(note, 1);
        rks_store_u64(note + 8, sizeof(note) - 16);
        rks_store_u64(note + 16, rks_group_collectives(m->group) + ahead[0]);
        for (uint64_t i = 0; i < ahead[1]; i++)
            EXPECT(rks_engine_note(rks_group_engine(m->group), 0, RKS_SERVICE_GROUP, note,
                                   sizeof(note), &m->err) == RKS_OK);
    }
    rks_status status = RKS_OK;
    for (int i = 0; i < 1000 && status == RKS_OK;
         i++) { /* they hear of it outside collectives, too */
        usleep(10000);
        status = rks_group_must_stop(m->group, &m->err);
    }
    EXPECT(status != RKS_OK);
    EXPECT(rks_group_agree(m->group, "known", RKS_OK, &m->err) == RKS_ERR_PEER);
    EXPECT(strstr(m->err.text, "a malformed message") != NULL && strstr(m->err.text, "rank 1"));
}

/* Else one rank could fill another's memory with messages of one size each. */
static void messages_to_collectives_that_nobody_is_near_end_the_group(void **state)
{
    (void)state;
    static uint64_t ahead[][2] = {{1, 1}, {1000, 1}, {UINT64_MAX - 1, 1}, {0, 2}};
    for (size_t i = 0; i < sizeof(ahead) / sizeof(ahead[0]); i++)
        on_threads(2, send_ahead, ahead[i]);
}

/* ---- words ---- */

/* Who waits outside of collectives, as for another rank's epoch of a plan, hears who is lost. */
static void ask_while_it_waits(member *m)
{
    if (!open_group(m, T, 0))
        return;
    const group_error lost = {
        .error = {.status = RKS_ERR_PEER, .rank = 1, .text = "rank 1 (here): is gone"},
        .cut_off = true};
    EXPECT(rks_group_agree(m->group, "open", RKS_OK, &m->err) == RKS_OK);
    EXPECT(rks_group_link_ask(rks_group_link_of(m->group), "plan: epoch", &m->err) == RKS_OK ||
           m->rank != 0);
    if (m->rank == 0)
        rks_group_fail_with(m->group, &lost, -1);
    rks_status status = RKS_OK;
    for (int i = 0; i < 1000 && status == RKS_OK; i++) {
        status = rks_group_link_ask(rks_group_link_of(m->group), "plan: epoch", &m->err);
        usleep(10000);
    }
    EXPECT(status == RKS_ERR_PEER && m->err.rank == 1);
    EXPECT(strcmp(m->err.text, "rank 1 (here): is gone during 'plan: epoch'") == 0);
}

static void who_waits_outside_of_collectives_hears_which_rank_is_lost(void **state)
{
    (void)state;
    on_threads(3, ask_while_it_waits, NULL);
}

static void meet_many_errors(member *m)
{
    if (!open_group(m, T, 0))
        return;
    uint64_t begun = rks_now_ms();
    for (int i = 0; m->rank == 0 && i < 5; i++) {
        rks_fail(&m->err, RKS_ERR_PEER, 0, "sample %d: its owner is gone", i);
        EXPECT(rks_group_explain(m->group, RKS_ERR_PEER, &m->err) == RKS_ERR_PEER);
    }
    EXPECT(rks_now_ms() - begun < 4 * rks_group_words_ms(m->group)); /* each of its own: 5 */
    EXPECT(rks_group_agree(m->group, "over", RKS_OK, &m->err) == RKS_OK);
}

static void errors_wait_for_words_once_together(void **state)
{
    (void)state;
    on_threads(2, meet_many_errors, NULL);
}

/* Returns false, after counting a failure, if there is no group. */
static bool open_impatient(member *m)
{
    rks_group_options options;
    rks_group_options_default(&options);
    options.bootstrap = m->bootstrap;
    options.patience_ms = 500;
    EXPECT(rks_group_open(&options, &m->group, &m->err) == RKS_OK);
    return m->group != NULL;
}

static void be_late(member *m)
{
    if (!open_impatient(m))
        return;
    if (m->rank == *(const uint32_t *)m->user) {
        rks_group_tell_progress(m->group, NULL, "unit 3 of 17");
        wait_until_heard("unit 3 of 17");
    }
    EXPECT(rks_group_agree(m->group, "build", RKS_OK, &m->err) == RKS_OK);
}

static void who_is_waited_for_is_said_with_what_it_does(void **state)
{
    (void)state;
    for (uint32_t late = 1; late < 3; late++) {
        char words[SAID_MAX], wanted[64];
        hear_threads(3, be_late, &late, words);
        snprintf(wanted, sizeof(wanted), " s for rank %u (", late);
        assert_contains(words, wanted);
        assert_contains(words, "in 'build'");
        assert_contains(words, "unit 3 of 17");
    }
}

static void be_late_and_silent(member *m)
{
    if (!open_impatient(m))
        return;
    if (m->rank == 1)
        wait_until_heard("build is collective: call it on every rank");
    EXPECT(rks_group_agree(m->group, "build: input", RKS_OK, &m->err) == RKS_OK);
}

static void who_waits_in_a_build_for_a_rank_that_does_not_build_hears_two_ways_out(void **state)
{
    (void)state;
    char words[SAID_MAX];
    hear_threads(2, be_late_and_silent, NULL, words);
    assert_contains(words, "or on one alone with a group of its own (in Python init(\"solo\"))");
}

/* Rank 1 is long in its build before its first collective call. */
static void announce_and_be_late(member *m)
{
    const uint32_t *late = m->user;
    if (!open_impatient(m))
        return;
    if (m->rank == *late) {
        rks_group_announce(m->group, "looks at its source");
        wait_until_heard("looks at its source");
    }
    EXPECT(rks_group_agree(m->group, "build: input", RKS_OK, &m->err) == RKS_OK);
    if (m->rank == *late) /* and that is over then */
        wait_until_heard("build is collective");
    EXPECT(rks_group_agree(m->group, "build: parts", RKS_OK, &m->err) == RKS_OK);
}

static void a_rank_that_is_busy_in_a_build_is_not_taken_for_one_elsewhere(void **state)
{
    (void)state;
    for (uint32_t late = 0; late < 2; late++) {
        char words[SAID_MAX];
        hear_threads(2, announce_and_be_late, &late, words);
        char *busy = strstr(words, "in 'build: input'"),
             *after = strstr(words, "in 'build: parts'");
        assert_true(busy != NULL && after > busy);
        assert_contains(busy, "looks at its source");
        *after = '\0';
        assert_null(strstr(words, "build is collective"));
        assert_null(strstr(after + 1, "looks at its source"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failing_allocation_is_every_rank_s_error_and_no_hang),
        cmocka_unit_test(an_error_reaches_all_ranks_where_memory_ends_on_the_way),
        cmocka_unit_test(as_many_threads_serve_as_the_group_s_option_says),
        cmocka_unit_test(an_interrupted_rank_brings_the_others_out),
        cmocka_unit_test(a_thread_that_ends_without_closing_is_named),
        cmocka_unit_test(a_rank_that_never_opens_the_group_is_named),
        cmocka_unit_test(a_bad_option_of_one_rank_is_every_rank_s_error),
        cmocka_unit_test(messages_of_others_than_parent_and_children_are_ignored),
        cmocka_unit_test(messages_above_what_their_kind_needs_end_the_group),
        cmocka_unit_test(messages_to_collectives_that_nobody_is_near_end_the_group),
        cmocka_unit_test(who_waits_outside_of_collectives_hears_which_rank_is_lost),
        cmocka_unit_test(errors_wait_for_words_once_together),
        cmocka_unit_test(who_is_waited_for_is_said_with_what_it_does),
        cmocka_unit_test(a_rank_that_is_busy_in_a_build_is_not_taken_for_one_elsewhere),
        cmocka_unit_test(who_waits_in_a_build_for_a_rank_that_does_not_build_hears_two_ways_out),
    };
    share_memory();
    return cmocka_run_group_tests_name("group_faults", tests, NULL, NULL);
}
