/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lost.c: what is said of a rank that is lost: its name, its host, what became of it and the
 * collective that could not be ended, in the same words on all ranks. */
#include "ranks.h"

/* Only a stopped rank is found by its silence: where another one were, nobody would live to see
 * it. */
enum { T = 1000, T_LONG = 2000 * LIMIT_S, RANKS = 4, LOST_CODE = 4, ENDED_CODE = 3 };
enum fate { KILLED, STOPPED, ENDED, LEFT, INTERRUPTED, LEAVES, RAISED };

typedef struct misfortune {
    uint32_t victim;
    enum fate fate;
} misfortune;

static const char *this_host(void)
{
    static char host[32];
    gethostname(host, sizeof(host) - 1);
    return host;
}

static int always(void *user)
{
    (void)user;
    return 1;
}

static void end_badly(enum fate fate, rks_group *group)
{
    if (fate == KILLED)
        raise(SIGKILL);
    if (fate == STOPPED)
        raise(SIGSTOP);
    if (fate == ENDED)
        _exit(rks_group_rank(group) == 0 ? 0 : ENDED_CODE);
    if (fate == INTERRUPTED) { /* in work of its own, as a program that then cleans up */
        rks_set_interrupt(always, NULL);
        rks_check_interrupt(NULL);
        rks_set_interrupt(NULL, NULL);
    }
    rks_error err;
    rks_fail(&err, RKS_ERR_PEER, 0, "ended by ValueError: row 7");
    if (fate == LEAVES || fate == RAISED) {
        rks_group_leave(group, fate == LEAVES ? RKS_OK : RKS_ERR_PEER, &err);
        while (shared->ready < 2 * (RANKS - 1)) /* alive, as one that serves a store */
            rks_check_interrupt(NULL);
    }
}

static void suffer(member *m)
{
    const misfortune *plan = m->user;
    rks_error again = {0};
    alarm(LIMIT_S);
    if (!open_group(m, plan->fate == STOPPED ? T : T_LONG, 2))
        return;
    EXPECT(rks_group_agree(m->group, "before", RKS_OK, &m->err) == RKS_OK);
    if (m->rank == plan->victim) {
        while (shared->ready < RANKS - 1)
            rks_check_interrupt(NULL);
        end_badly(plan->fate, m->group);
        return;
    }
    shared->ready++;
    rks_status status = rks_group_agree(m->group, "after", RKS_OK, &m->err);
    EXPECT(rks_group_agree(m->group, "again", RKS_OK, &again) == status);
    EXPECT(memcmp(&again, &m->err, sizeof(m->err)) == 0 && is_plain(&m->err));
    shared->errors[m->rank] = m->err;
    shared->failures += m->failures;
    /* Whoever ended now would be one more lost rank. */
    for (shared->ready++; shared->ready < 2 * (RANKS - 1);)
        rks_check_interrupt(NULL);
    m->code = LOST_CODE; /* so that a stopped one is ended */
}

static void all_say(uint32_t victim, enum fate fate, rks_status status, const char *what)
{
    misfortune plan = {victim, fate};
    char wanted[sizeof(shared->errors[0].text)];
    memset(shared, 0, sizeof(*shared));
    int code = on_processes(RANKS, suffer, &plan);
    assert_int_equal(shared->failures, 0);
    /* The supervisor may reap others first that were as quick. */
    assert_true(code == (fate == KILLED ? 128 + SIGKILL : LOST_CODE) ||
                (fate == ENDED && code == ENDED_CODE));
    snprintf(wanted, sizeof(wanted), "rank %u (%s): %s during 'after'", victim, this_host(), what);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const rks_error *said = &shared->errors[rank];
        if (rank == victim)
            continue;
        assert_string_equal(said->text, wanted);
        assert_int_equal(said->status, status);
        assert_int_equal(said->rank, victim);
        assert_string_equal(said->host, this_host());
    }
}

static void a_killed_rank_was_killed(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < RANKS; victim++)
        all_say(victim, KILLED, RKS_ERR_PEER, "was killed by signal 9 (Killed)");
}

static void a_stopped_rank_is_silent(void **state)
{
    (void)state;
    setenv("RKS_LAUNCH_GRACE_MS", "1500", 1);
    for (uint32_t victim = 0; victim < RANKS; victim += 2)
        all_say(victim, STOPPED, RKS_ERR_TIMEOUT, "silent for 1000 ms");
    unsetenv("RKS_LAUNCH_GRACE_MS");
}

static void a_rank_that_ends_without_a_word_has_ended(void **state)
{
    (void)state;
    all_say(0, ENDED, RKS_ERR_PEER, "ended with exit code 0");
    all_say(1, ENDED, RKS_ERR_PEER, "ended with exit code 3");
}

static void a_rank_that_leaves_serves_on_and_is_not_waited_for(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < RANKS; victim++) {
        all_say(victim, LEAVES, RKS_ERR_PEER, "has left the group");
        all_say(victim, RAISED, RKS_ERR_PEER, "ended by ValueError: row 7");
    }
}

static void a_rank_that_closes_early_has_left(void **state)
{
    (void)state;
    all_say(1, LEFT, RKS_ERR_PEER, "has left the group");
    all_say(2, LEFT, RKS_ERR_PEER, "has left the group");
}

static void a_rank_that_closes_because_of_an_interrupt_was_interrupted(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < RANKS; victim++)
        all_say(victim, INTERRUPTED, RKS_ERR_CANCELLED, "interrupted");
}

/* ---- before the group is open ---------------------------------------------------------------- */

static void never_open(member *m)
{
    const misfortune *plan = m->user;
    alarm(LIMIT_S);
    if (m->rank == plan->victim && plan->fate == KILLED)
        raise(SIGKILL);
    if (m->rank == plan->victim)
        _exit(7);
    shared->statuses[m->rank] = try_to_open(m, m->bootstrap, T_LONG, 0);
    shared->errors[m->rank] = m->err;
}

static void a_process_that_ends_before_the_group_opens_is_noticed_at_once(void **state)
{
    (void)state;
    static const char *const wanted[] = {
        "rank 2: was killed by signal 9 (Killed) during 'opening the group'",
        "rank 2: ended with exit code 7 during 'opening the group'",
    };
    for (int i = 0; i < 2; i++) {
        misfortune plan = {2, i == 0 ? KILLED : ENDED};
        memset(shared, 0, sizeof(*shared));
        on_processes(RANKS, never_open, &plan);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            if (rank == 2)
                continue;
            assert_fails(RKS_ERR_PEER, (rks_status)shared->statuses[rank]);
            assert_int_equal(shared->errors[rank].rank, 2);
            assert_string_equal(shared->errors[rank].text, wanted[i]);
        }
    }
}

/* A bootstrap before the real one. A group that opened closes it after the body of the test has
 * returned, so that a thread keeps its own. */
typedef struct between {
    rks_bootstrap real;
    int calls;
} between;

static void close_real(void *user)
{
    between *b = user;
    b->real.close(b->real.user);
}

static rks_bootstrap before_the_real_one(const member *m)
{
    static _Thread_local between b;
    b = (between){.real = *m->bootstrap};
    rks_bootstrap mine = *m->bootstrap;
    mine.user = &b;
    mine.check = NULL;
    mine.close = close_real;
    return mine;
}

static rks_status gather_once(void *user, const void *record, size_t size, void *all,
                              uint32_t timeout_ms, rks_error *err)
{
    between *b = user;
    if (++b->calls == 2)
        return rks_fail(err, RKS_ERR_IO, 0, "a cable is out");
    return b->real.allgather(b->real.user, record, size, all, timeout_ms, err);
}

static void miss_the_second_round(member *m)
{
    uint32_t silence_ms = 3000;
    rks_bootstrap mine = *m->bootstrap;
    if (m->rank == 1) {
        mine = before_the_real_one(m);
        mine.allgather = gather_once;
    }
    uint64_t begun_ms = rks_now_ms();
    rks_status status = try_to_open(m, &mine, silence_ms, 0);
    if (m->rank == 1) {
        EXPECT(status == RKS_ERR_IO && strcmp(m->err.text, "a cable is out") == 0);
        while (rks_now_ms() <
               begun_ms + 2 * silence_ms) /* one that ended would be noticed by that */
            usleep(1000);
        return;
    }
    EXPECT(status == RKS_ERR_TIMEOUT && m->err.rank == 1);
    EXPECT(strstr(m->err.text, "): did not come within 3000 ms during 'opening the group'") !=
           NULL);
}

static void a_rank_that_fails_between_the_rounds_is_noticed_after_one_silence_limit(void **state)
{
    (void)state;
    on_threads(3, miss_the_second_round, NULL);
}

/* ---- hostile words --------------------------------------------------------------------------- */

static const char ESCAPE[] = "\033]0;x\007\302\233";

/* Rank 1 brings a record in which its host and its error hold control characters. */
static rks_status gather_forged(void *user, const void *record, size_t size, void *all,
                                uint32_t timeout_ms, rks_error *err)
{
    between *b = user;
    uint8_t forged[RKS_RECORD_MAX];
    memcpy(forged, record, size);
    if (b->calls++ == 0) {
        uint8_t *host = memmem(forged, size, this_host(), strlen(this_host()));
        memcpy(host, ESCAPE, sizeof(ESCAPE));
        uint8_t *text = memmem(forged, size, "/nonexistent", 12);
        if (text != NULL)
            memcpy(text, ESCAPE, sizeof(ESCAPE) - 1);
    }
    return b->real.allgather(b->real.user, forged, size, all, timeout_ms, err);
}

static bool is_clean(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f || strncmp(text, "\302\233", 2) == 0)
            return false;
    return true;
}

static void be_hostile(member *m)
{
    rks_bootstrap forged = before_the_real_one(m);
    rks_group_options options;
    forged.allgather = gather_forged;
    rks_group_options_default(&options);
    options.bootstrap = m->rank == 1 ? &forged : m->bootstrap;
    options.patience_ms = 200;
    if (m->rank == 1)
        options.secret_file = m->user; /* NULL: there is none, and the group opens */
    rks_status status = rks_group_open(&options, &m->group, &m->err);
    if (m->user != NULL) {
        EXPECT(status == RKS_ERR_IO && m->err.rank == 1);
        EXPECT(is_clean(m->err.text) && is_clean(m->err.host) &&
               strstr(m->err.text, "?]0;x?") != NULL);
        return;
    }
    EXPECT(status == RKS_OK && strcmp(rks_group_host(m->group, 1), "?]0;x???") == 0);
    if (m->rank == 1) {
        rks_group_tell_progress(m->group, NULL, "unit 3\033[2J of 17");
        wait_until_heard("of 17");
        status = rks_fail(&m->err, RKS_ERR_DATA, 0, "a bad line");
    }
    EXPECT(rks_group_agree(m->group, "build", status, &m->err) == RKS_ERR_DATA);
    EXPECT(is_clean(m->err.host) && m->err.host[0] != '\0');
}

static void control_characters_of_another_rank_reach_no_terminal(void **state)
{
    (void)state;
    char words[SAID_MAX], missing[] = "/nonexistent/secret";
    hear_threads(3, be_hostile, NULL, words);
    assert_contains(words, " s for rank 1 (?]0;x??"
                           "?) in 'build'");
    assert_contains(words, "unit 3?[2J of 17");
    assert_null(strchr(words, '\033'));
    on_threads(3, be_hostile, missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_was_killed),
        cmocka_unit_test(a_stopped_rank_is_silent),
        cmocka_unit_test(a_rank_that_ends_without_a_word_has_ended),
        cmocka_unit_test(a_rank_that_leaves_serves_on_and_is_not_waited_for),
        cmocka_unit_test(a_rank_that_closes_early_has_left),
        cmocka_unit_test(a_rank_that_closes_because_of_an_interrupt_was_interrupted),
        cmocka_unit_test(a_process_that_ends_before_the_group_opens_is_noticed_at_once),
        cmocka_unit_test(a_rank_that_fails_between_the_rounds_is_noticed_after_one_silence_limit),
        cmocka_unit_test(control_characters_of_another_rank_reach_no_terminal),
    };
    share_memory();
    return cmocka_run_group_tests_name("lost", tests, NULL, NULL);
}
