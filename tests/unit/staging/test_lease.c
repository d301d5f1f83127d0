/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lease.c: who has a local directory open. */
#include "support/check.h"
#include "support/shards.h"

#include <sys/wait.h>
#include <unistd.h>

#include "staging/lease.h"

static rks_error err;

static void one_that_is_shared_cannot_be_taken_alone(void **state)
{
    (void)state;
    rks_lease *shared = NULL, *again = NULL, *alone = NULL;
    assert_ok(rks_lease_share(shards_here, &shared, &err), &err);
    assert_ok(rks_lease_share(shards_here, &again, &err), &err);
    rks_leases_end(shared);
    assert_fails(RKS_ERR_STATE, rks_lease_take_alone(shards_here, &alone, &err));
    assert_contains(err.text, "a process has it open");
    rks_leases_end(again);
    assert_ok(rks_lease_take_alone(shards_here, &alone, &err), &err);
    rks_leases_end(alone);
}

static void a_forked_child_leaves_its_parent_s(void **state)
{
    (void)state;
    rks_lease *shared = NULL, *alone = NULL;
    int status = -1;
    assert_ok(rks_lease_share(shards_here, &shared, &err), &err);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rks_leases_end(shared);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_fails(RKS_ERR_STATE, rks_lease_take_alone(shards_here, &alone, &err));
    rks_leases_end(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_is_shared_cannot_be_taken_alone, shards_begin,
                                        shards_end),
        cmocka_unit_test_setup_teardown(a_forked_child_leaves_its_parent_s, shards_begin,
                                        shards_end),
    };
    return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
