/* SPDX-License-Identifier: Apache-2.0
 *
 * test_reading.c: ranks that read different batches fail together; ranks that only look, or that
 * are at different places, do not. */
#include "ranks.h"

#include "base/bytes.h"
#include "group/group_state.h"

enum { T = 20000, RANKS = 4, STEPS = 10, PLAN = 77 };

static uint32_t per_node;

static void meet(member *m)
{
    EXPECT(rks_group_agree(m->group, "meet", RKS_OK, &m->err) == RKS_OK);
}

/* As meet, without the group, so that its failure cannot come first. */
static atomic_uint arrived;
static void meet_outside(void)
{
    atomic_fetch_add(&arrived, 1);
    for (uint64_t until_ms = rks_now_ms() + T;
         atomic_load(&arrived) % RANKS != 0 && rks_now_ms() < until_ms;)
        usleep(100);
}

typedef struct where {
    uint64_t reader, epoch, changes;
} where;

/* Gives steps first..end of an epoch that has `steps`. */
static rks_status give(member *m, const where *at, uint64_t first, uint64_t end, uint64_t steps)
{
    rks_status status = RKS_OK;
    for (uint64_t step = first; status == RKS_OK && step < end; step++) {
        const rks_reading given = {.reader = at->reader,
                                   .plan = PLAN,
                                   .changes = at->changes,
                                   .epoch = at->epoch,
                                   .step = step,
                                   .is_last = step + 1 == steps};
        status = rks_group_reading(m->group, &given, &m->err);
    }
    return status;
}

/* Gives batches as a loop does, until there is an error. */
static rks_status give_until_failure(member *m, const where *at)
{
    rks_status status = RKS_OK;
    for (uint64_t until_ms = rks_now_ms() + T; status == RKS_OK && rks_now_ms() < until_ms;
         usleep(1000))
        status = give(m, at, 5, 6, STEPS);
    return status;
}

static void look(member *m, uint64_t reader, uint64_t epoch, uint64_t batches)
{
    const where at = {.reader = reader, .epoch = epoch};
    EXPECT(give(m, &at, 0, batches, STEPS) == RKS_OK);
    rks_group_reading_ends(m->group, reader, 1);
}

static void train(member *m, uint64_t reader, uint64_t first, uint64_t end)
{
    for (uint64_t epoch = first; epoch < end; epoch++) {
        const where at = {.reader = reader, .epoch = epoch};
        EXPECT(give(m, &at, 0, STEPS, STEPS) == RKS_OK);
        rks_group_reading_ends(m->group, reader, 0);
    }
}

/* Opens the group, runs `body` as `member_fn`, and meets: so all messages have come. */
static void expect_no_error(member_fn body, uint32_t ranks)
{
    for (per_node = 0; per_node <= 2; per_node++)
        on_threads(ranks, body, NULL);
    per_node = 0;
}

/* ---- different epochs ------------------------------------------------------------------------ */

static void read_own_epoch(member *m)
{
    if (!open_group(m, T, per_node))
        return;
    const where at = {.reader = 1, .epoch = m->rank == 3 ? 7 : 2};
    EXPECT(give(m, &at, 0, 1, STEPS) == RKS_OK);
    meet(m); /* one batch is only a look */
    EXPECT(give_until_failure(m, &at) == RKS_ERR_ARGUMENT);
    EXPECT(strstr(m->err.text, "reads epoch 7") != NULL || strstr(m->err.text, "epoch 7 of"));
    EXPECT(strstr(m->err.text, "rank 3 (") != NULL && is_plain(&m->err));
    EXPECT(strstr(m->err.text, "set_epoch(epoch)") != NULL);
    rks_error later = {0};
    EXPECT(rks_group_agree(m->group, "later", RKS_OK, &later) == RKS_ERR_ARGUMENT);
    EXPECT(strcmp(later.text, m->err.text) == 0);
}

static void ranks_in_different_epochs_fail_together(void **state)
{
    (void)state;
    for (per_node = 0; per_node <= 2; per_node++)
        on_threads(RANKS, read_own_epoch, NULL);
    per_node = 0;
}

static void read_one_step(member *m)
{
    if (!open_group(m, T, 0))
        return;
    where at = {.reader = 1, .epoch = m->rank};
    rks_status status = RKS_OK;
    for (uint64_t until_ms = rks_now_ms() + T; status == RKS_OK && rks_now_ms() < until_ms;
         usleep(1000), rks_group_reading_ends(m->group, 1, 0))
        status = give(m, &at, 0, 1, 1);
    EXPECT(status == RKS_ERR_ARGUMENT);
}

static void an_epoch_of_one_step_counts(void **state)
{
    (void)state;
    on_threads(2, read_one_step, NULL);
}

static void read_with_own_changes(member *m)
{
    if (!open_group(m, T, 0))
        return;
    const where at = {.reader = 1, .epoch = 3, .changes = m->rank == 1};
    EXPECT(give_until_failure(m, &at) == RKS_ERR_ARGUMENT);
    EXPECT(strstr(m->err.text, "with different changes") != NULL);
    EXPECT(strstr(m->err.text, "epoch 3") != NULL && strstr(m->err.text, "rank 1 (") != NULL);
}

static void ranks_with_different_changes_fail_together(void **state)
{
    (void)state;
    on_threads(3, read_with_own_changes, NULL);
}

/* ---- no false errors ------------------------------------------------------------------------- */

static void read_at_own_pace(member *m)
{
    if (!open_group(m, T, per_node))
        return;
    train(m, 1, 0, m->rank == 0 ? 40 : m->rank); /* others are further, or behind, by far */
    meet(m);
    train(m, 1, m->rank == 0 ? 40 : m->rank, 40);
    meet(m);
    train(m, 1, 40, 42);
    meet(m);
}

static void ranks_may_be_in_different_epochs_of_one_order(void **state)
{
    (void)state;
    expect_no_error(read_at_own_pace, RANKS);
}

static void look_on_one_rank(member *m)
{
    bool looks = m->rank == 0;
    if (!open_group(m, T, per_node))
        return;
    if (looks) {
        look(m, 11, 5, 1); /* one batch, of any epoch */
        look(m, 12, 0, 6); /* more, of the epoch that comes */
        look(m, 13, 0, 6);
    }
    train(m, 1, 0, 2);
    meet(m);
    if (looks) {
        look(m, 14, 1, STEPS); /* the epoch that was */
        look(m, 15, 2, 1);
        look(m, 16, 2, 1);
    }
    train(m, 1, 2, 4);
    meet(m);
    for (uint64_t epoch = 4; epoch < 100; epoch++) { /* a loader an epoch */
        train(m, 100 + epoch, epoch, epoch + 1);
        rks_group_reading_ends(m->group, 100 + epoch, 1);
    }
    meet(m);
}

static void a_look_on_one_rank_is_no_error(void **state)
{
    (void)state;
    expect_no_error(look_on_one_rank, RANKS);
}

/* Rank 0 looks at some batches, then all ranks load the state of another epoch. */
static void look_before_resume(member *m)
{
    if (!open_group(m, T, per_node))
        return;
    const where at = {.reader = 1};
    if (m->rank == 0)
        EXPECT(give(m, &at, 0, 3, STEPS) == RKS_OK);
    rks_group_reading_ends(m->group, 1, 0);
    meet(m);
    train(m, 1, 3, 30);
    meet(m);
}

static void a_look_before_another_epoch_is_no_error(void **state)
{
    (void)state;
    expect_no_error(look_before_resume, RANKS);
}

static void read_two_at_once(member *m)
{
    if (!open_group(m, T, 0))
        return;
    for (uint64_t epoch = 0; epoch < 4; epoch++) { /* of the second one nothing is compared */
        const where one = {.reader = 1, .epoch = epoch}, other = {.reader = 2, .epoch = m->rank};
        for (uint64_t step = 0; step < STEPS; step++) {
            EXPECT(give(m, &one, step, step + 1, STEPS) == RKS_OK);
            EXPECT(give(m, &other, step, step + 1, STEPS) == RKS_OK);
        }
        rks_group_reading_ends(m->group, 1, 0);
        rks_group_reading_ends(m->group, 2, 0);
        meet(m);
    }
    if (m->rank == 1) /* back to a state, on all ranks, but rank 1 looks at it first */
        look(m, 3, 3, 1);
    train(m, 1, 1, 3);
    meet(m);
}

static void a_reader_within_another_s_iteration_is_ignored(void **state)
{
    (void)state;
    on_threads(3, read_two_at_once, NULL);
}

static void read_on_one_rank(member *m)
{
    if (!open_group(m, T, per_node))
        return;
    if (m->rank == 2)
        for (uint64_t i = 0; i < 300; i++) { /* more readers and plans than are compared */
            const rks_reading given = {.reader = 1000 + i, .plan = 1000 + i, .epoch = i};
            for (uint64_t step = 0; step < 3; step++)
                EXPECT(rks_group_reading(m->group, &given, &m->err) == RKS_OK);
            rks_group_reading_ends(m->group, 1000 + i, i % 2 == 0);
        }
    train(m, 1, 0, 3);
    meet(m);
}

static void readers_of_one_rank_are_ignored(void **state)
{
    (void)state;
    expect_no_error(read_on_one_rank, RANKS);
}

static void read_alone(member *m)
{
    if (!open_group(m, T, 0))
        return;
    train(m, 1, 3, 5);
    train(m, 1, 0, 1);
    const rks_reading first = {.reader = 1, .plan = PLAN};
    rks_group_change_begins(m->group, &first, "remix");
    rks_group_change_ends(m->group, PLAN);
}

static void one_rank_alone_is_never_wrong(void **state)
{
    (void)state;
    on_threads(1, read_alone, NULL);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Makes a change from a step on, as all ranks should. */
static rks_status change_plan(member *m, uint64_t epoch, uint64_t step, uint64_t before)
{
    const rks_reading first = {.plan = PLAN, .changes = before, .epoch = epoch, .step = step};
    rks_group_change_begins(m->group, &first, "remix");
    rks_status status = rks_group_agree(m->group, "remix", RKS_OK, &m->err);
    rks_group_change_ends(m->group, PLAN);
    return status;
}

static void change_on_one_rank(member *m)
{
    const bool *far = m->user;
    where at = {.reader = 1};
    if (!open_group(m, T, per_node))
        return;
    EXPECT(give(m, &at, 0, 5, STEPS) == RKS_OK);
    meet_outside();
    if (m->rank == 1)
        EXPECT(change_plan(m, *far ? 9 : 0, 5, 0) == RKS_ERR_ARGUMENT);
    else /* each gives one batch more, and waits for rank 1 outside of the library */
        EXPECT(give(m, &at, 5, 6, STEPS) == RKS_OK || m->err.status == RKS_ERR_ARGUMENT);
    for (uint64_t until_ms = rks_now_ms() + T;
         !rks_group_failed(m->group) && rks_now_ms() < until_ms;)
        usleep(1000);
    EXPECT(give(m, &at, 6, 7, STEPS) == RKS_ERR_ARGUMENT);
    EXPECT(strstr(m->err.text, "rank 1 (") != NULL && strstr(m->err.text, "calls remix") != NULL);
    EXPECT(strstr(m->err.text, "has read step 5 of epoch 0 without it") != NULL);
}

static void a_change_on_one_rank_fails_all(void **state)
{
    (void)state;
    for (per_node = 0; per_node <= 2; per_node++)
        for (int far = 0; far <= 1; far++) {
            bool is_far = far != 0;
            atomic_store(&arrived, 0);
            on_threads(RANKS, change_on_one_rank, &is_far);
        }
    per_node = 0;
}

static void change_between_epochs(member *m)
{
    if (!open_group(m, T, 0))
        return;
    const where at = {.reader = 1, .epoch = 1};
    train(m, 1, 0, 1);
    if (m->rank == 1) /* only a look */
        EXPECT(give(m, &at, 0, 1, STEPS) == RKS_OK);
    rks_group_reading_ends(m->group, 1, 0);
    meet(m);
    EXPECT(change_plan(m, 1, 0, 0) == RKS_OK);
    if (m->rank == 0)
        EXPECT(change_plan(m, 1, 0, 0) == RKS_ERR_ARGUMENT);
    if (m->rank == 1) /* and waits for rank 0 outside of the library */
        (void)give(m, &at, 0, 1, STEPS);
    for (uint64_t until_ms = rks_now_ms() + T;
         !rks_group_failed(m->group) && rks_now_ms() < until_ms;)
        usleep(1000);
    EXPECT(give(m, &at, 1, 2, STEPS) == RKS_ERR_ARGUMENT);
}

static void a_change_on_one_rank_between_epochs_fails_all(void **state)
{
    (void)state;
    on_threads(2, change_between_epochs, NULL);
}

/* Rank 0 waits, and rank 1 looks at a batch before it comes. */
static void look_before_change(member *m)
{
    where at = {.reader = 1};
    if (!open_group(m, T, 0))
        return;
    train(m, 1, 0, 1);
    if (m->rank == 1) {
        for (uint64_t until_ms = rks_now_ms() + 2500; rks_now_ms() < until_ms;) {
            const where ahead = {.reader = 1, .epoch = 1};
            usleep(1000);
            EXPECT(give(m, &ahead, 0, 1, STEPS) == RKS_OK);
            rks_group_reading_ends(m->group, 1, 0);
        }
    }
    EXPECT(change_plan(m, 0, 3, 0) == RKS_OK);
    at.changes = 1;
    EXPECT(give(m, &at, 0, STEPS, STEPS) == RKS_OK);
    meet(m);
}

static void a_look_before_a_change_is_no_error(void **state)
{
    (void)state;
    on_threads(2, look_before_change, NULL);
}

/* Rank 0 looks ahead, and each rank comes to the change in its own time. */
static void change_on_all(member *m)
{
    where at = {.reader = 1};
    if (!open_group(m, T, per_node))
        return;
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        at.epoch = epoch;
        if (m->rank == 0)
            look(m, 20 + epoch, epoch + 1, 1);
        EXPECT(give(m, &at, 0, 4, STEPS) == RKS_OK);
        usleep(m->rank == epoch % RANKS ? 5000 : 0);
        EXPECT(change_plan(m, epoch, 4 + epoch % 2, at.changes++) == RKS_OK);
        EXPECT(give(m, &at, 4, STEPS, STEPS) == RKS_OK);
        rks_group_reading_ends(m->group, 1, 0);
    }
    meet(m);
    at.changes = 0; /* a state from before the changes is loaded */
    at.epoch = 0;
    EXPECT(give(m, &at, 0, STEPS, STEPS) == RKS_OK);
    meet(m);
}

static void changes_on_all_ranks_are_no_error(void **state)
{
    (void)state;
    expect_no_error(change_on_all, RANKS);
}

/* ---- hostile messages ------------------------------------------------------------------------ */

static void send_lie(member *m, uint32_t kind, uint32_t rank, size_t size)
{
    uint8_t body[4096] = {0};
    rks_store_u32(body, rank);
    memset(body + 4, 0xff, sizeof(body) - 4);
    EXPECT(rks_inbox_send(m->group, 0, kind, body, size, &m->err) == RKS_OK);
}

static void lie_about_reading(member *m)
{
    static const uint32_t ranks[] = {0, 2, 3, UINT32_MAX};
    static const size_t sizes[] = {0, 8, 47, 49, 63, 65, 4096};
    if (!open_group(m, T, 0))
        return;
    for (uint32_t kind = MESSAGE_READING; m->rank == 1 && kind <= MESSAGE_CHANGE; kind++) {
        for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++)
            send_lie(m, kind, ranks[i], kind == MESSAGE_CHANGE ? 64 : 48);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            send_lie(m, kind, 1, sizes[i]);
    }
    for (uint64_t i = 0; m->rank == 1 && i < 5000; i++) { /* tracks without end */
        uint8_t body[48] = {0};
        rks_store_u32(body, 1);
        rks_store_u32(body + 4, (uint32_t)i);
        rks_store_u64(body + 8, i);
        EXPECT(rks_inbox_send(m->group, 0, MESSAGE_READING, body, sizeof(body), &m->err) == RKS_OK);
    }
    train(m, 1, 0, 3);
    meet(m);
}

static void malformed_messages_are_ignored(void **state)
{
    (void)state;
    on_threads(3, lie_about_reading, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_in_different_epochs_fail_together),
        cmocka_unit_test(an_epoch_of_one_step_counts),
        cmocka_unit_test(ranks_with_different_changes_fail_together),
        cmocka_unit_test(ranks_may_be_in_different_epochs_of_one_order),
        cmocka_unit_test(a_look_on_one_rank_is_no_error),
        cmocka_unit_test(a_look_before_another_epoch_is_no_error),
        cmocka_unit_test(a_reader_within_another_s_iteration_is_ignored),
        cmocka_unit_test(readers_of_one_rank_are_ignored),
        cmocka_unit_test(one_rank_alone_is_never_wrong),
        cmocka_unit_test(a_change_on_one_rank_fails_all),
        cmocka_unit_test(a_change_on_one_rank_between_epochs_fails_all),
        cmocka_unit_test(a_look_before_a_change_is_no_error),
        cmocka_unit_test(changes_on_all_ranks_are_no_error),
        cmocka_unit_test(malformed_messages_are_ignored),
    };
    return cmocka_run_group_tests_name("reading", tests, NULL, NULL);
}
