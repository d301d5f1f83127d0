/* SPDX-License-Identifier: Apache-2.0
 *
 * test_claim.c: who may change a home, and what becomes of the claims of those that have ended. */
#include "home/claim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "support/check.h"
#include "support/folder.h"

static char place[FOLDER_PATH], path[FOLDER_PATH + 32];
static rks_home *home;
static rks_error err;
static const rks_digest one = {1, 2}, other = {3, 4};

static int make_place(void **state)
{
    (void)state;
    assert_true(folder_make(place));
    snprintf(path, sizeof(path), "%s/" RKS_HOME_CLAIM, place);
    assert_ok(rks_home_open(place, NULL, &home, &err), &err);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    rks_home_close(home);
    folder_remove(place);
    assert_int_equal(rks_memory_in_use(), 0);
    return 0;
}

static bool is_there(void)
{
    return access(path, F_OK) == 0;
}

/* The claim of process `pid`; `here`: of this space. */
static void write_claim(rks_digest contents, long pid, bool here)
{
    rks_claim claim;
    rks_claim_write(contents, &claim);
    const char *space = strstr(claim.text, "space ");
    FILE *file = fopen(path, "w");
    assert_true(space != NULL && file != NULL);
    fprintf(file, "%.*s\npid %ld on somewhere\n%s", (int)strcspn(claim.text, "\n"), claim.text, pid,
            here ? space : "space another-1\n");
    assert_int_equal(fclose(file), 0);
}

static void expect_taken(rks_digest contents)
{
    rks_held_claim claim = {0};
    assert_ok(rks_claim_take(home, contents, &claim, &err), &err);
    assert_true(claim.held && is_there());
    rks_claim_end(home, &claim);
    assert_false(claim.held || is_there());
}

static void a_claim_is_taken_and_ended(void **state)
{
    (void)state;
    rks_held_claim claim = {0}, second = {0};
    expect_taken(one);
    assert_ok(rks_claim_take(home, one, &claim, &err), &err);
    assert_fails(RKS_ERR_STATE, rks_claim_take(home, other, &second, &err));
    assert_false(second.held);
    rks_claim_end(home, &second); /* not its own */
    assert_true(is_there());
    rks_claim_end(home, &claim);
    rks_claim_end(home, &claim);
    expect_taken(other);
}

/* Who stood still may find that it holds nothing any more. */
static void a_claim_that_was_taken_over_is_noticed(void **state)
{
    (void)state;
    rks_held_claim claim = {0};
    assert_ok(rks_claim_take(home, one, &claim, &err), &err);
    assert_ok(rks_claim_check(home, &claim, &err), &err);
    write_claim(one, 1, false);
    assert_fails(RKS_ERR_STATE, rks_claim_check(home, &claim, &err));
    assert_int_equal(unlink(path), 0);
    assert_fails(RKS_ERR_STATE, rks_claim_check(home, &claim, &err));
    rks_claim_end(home, &claim);
}

static void another_one_that_lives_is_named(void **state)
{
    (void)state;
    char who[64];
    rks_held_claim claim = {0};
    for (int here = 0; here < 2; here++) {
        write_claim(other, (long)getppid(), here != 0);
        assert_fails(RKS_ERR_STATE, rks_claim_take(home, one, &claim, &err));
        snprintf(who, sizeof(who), "(pid %ld on somewhere)", (long)getppid());
        assert_contains(err.text, who);
        assert_contains(err.text, "remove " RKS_HOME_CLAIM " there");
        assert_true(is_there());
    }
}

static void what_has_ended_is_not_in_the_way(void **state)
{
    (void)state;
    rks_held_claim claim = {0};
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    siginfo_t end;
    assert_int_equal(waitid(P_PID, (id_t)child, &end, WEXITED | WNOWAIT), 0); /* not reaped yet */
    for (int reaped = 0; reaped < 2; reaped++) {
        write_claim(other, (long)child, true);
        expect_taken(one);
        write_claim(one, (long)child, true);
        expect_taken(one);
        waitpid(child, NULL, 0);
    }
    write_claim(other, (long)child, false); /* elsewhere it may live */
    assert_fails(RKS_ERR_STATE, rks_claim_take(home, one, &claim, &err));
    write_claim(one, (long)child, false); /* but it does the same */
    expect_taken(one);
}

static void *remove_later(void *user)
{
    (void)user;
    usleep(300000);
    unlink(path);
    return NULL;
}

static void a_twin_is_waited_for(void **state)
{
    (void)state;
    pthread_t thread;
    write_claim(one, (long)getppid(), true);
    assert_int_equal(pthread_create(&thread, NULL, remove_later, NULL), 0);
    uint64_t begun = rks_now_ms();
    expect_taken(one);
    assert_true(rks_now_ms() - begun >= 200);
    pthread_join(thread, NULL);
}

static atomic_int asked;

static int say_stop(void *user)
{
    (void)user;
    return atomic_fetch_add(&asked, 1) >= 5;
}

static void the_wait_for_a_twin_can_be_ended(void **state)
{
    (void)state;
    rks_held_claim claim = {0};
    write_claim(one, (long)getppid(), true);
    rks_set_interrupt(say_stop, NULL);
    rks_status status = rks_claim_take(home, one, &claim, &err);
    rks_set_interrupt(NULL, NULL);
    assert_int_equal(status, RKS_ERR_CANCELLED);
    assert_true(!claim.held && is_there());
}

static void a_claim_may_be_anything(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "\n",
                                        "\n\n\n\n",
                                        "digest",
                                        "digest 1\npid x on y\nspace z\n",
                                        "pid 99999999999999999999 on",
                                        "digest 00000000000000020000000000000001\n\xff\n\n"};
    rks_held_claim claim = {0};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(texts[i], file);
        assert_int_equal(fclose(file), 0);
        rks_status status = rks_claim_take(home, other, &claim, &err);
        assert_int_equal(status, RKS_ERR_STATE);
        assert_contains(err.text, "remove ");
    }
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        fputs("x", file);
    assert_int_equal(fclose(file), 0);
    assert_fails(RKS_ERR_CORRUPT, rks_claim_take(home, other, &claim, &err));
}

enum { TAKERS = 6, ROUNDS = 200, WANTED = 50, LIMIT_MS = 60000 };

static atomic_int inside, most, taken;

static void *take_often(void *user)
{
    const rks_digest mine = {(uint64_t)(uintptr_t)user, 7};
    rks_error why;
    const uint64_t until = rks_now_ms() + LIMIT_MS;
    /* On a busy machine most rounds find the claim taken. */
    for (int i = 0; (i < ROUNDS || atomic_load(&taken) <= WANTED) && rks_now_ms() < until; i++) {
        rks_held_claim claim = {0};
        if (rks_claim_take(home, mine, &claim, &why) != RKS_OK)
            continue;
        int now = atomic_fetch_add(&inside, 1) + 1;
        if (now > atomic_load(&most))
            atomic_store(&most, now);
        atomic_fetch_add(&taken, 1);
        usleep(100);
        atomic_fetch_sub(&inside, 1);
        rks_claim_end(home, &claim);
    }
    return NULL;
}

static void only_one_holds_it(void **state)
{
    (void)state;
    pthread_t threads[TAKERS];
    for (size_t i = 0; i < TAKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_often, (void *)(i + 1)), 0);
    for (int i = 0; i < TAKERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&most), 1);
    assert_true(atomic_load(&taken) > WANTED);
    assert_false(is_there());
}

int main(void)
{
#define WITH_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)
    const struct CMUnitTest tests[] = {
        WITH_PLACE(a_claim_is_taken_and_ended),
        WITH_PLACE(a_claim_that_was_taken_over_is_noticed),
        WITH_PLACE(another_one_that_lives_is_named),
        WITH_PLACE(what_has_ended_is_not_in_the_way),
        WITH_PLACE(a_twin_is_waited_for),
        WITH_PLACE(the_wait_for_a_twin_can_be_ended),
        WITH_PLACE(a_claim_may_be_anything),
        WITH_PLACE(only_one_holds_it),
    };
    return cmocka_run_group_tests_name("claim", tests, NULL, NULL);
}
