/* SPDX-License-Identifier: Apache-2.0
 *
 * test_limits.c: what a collective can need bounds what a rank takes in for it, whatever its
 * neighbours announce and send. */
#include "ranks.h"

#include "base/bytes.h"
#include "group/group_state.h"

enum { T = 15000, NOTE_HEAD = 16, HEAD = 600, AT_ENTRIES = 592, MIB = 1 << 20 };

/* ---- contributions of many sizes ------------------------------------------------------------- */

static uint32_t per_node;

/* Some are small, some just fit a note, some do not. */
static size_t size_of(uint32_t rank)
{
    static const size_t sizes[] = {0, MIB - HEAD - 24, MIB - HEAD - 23, 5, 3 * MIB + 1, 2 * MIB};
    return sizes[rank % 6];
}

static void bring_much(member *m)
{
    uint8_t *mine = calloc(size_of(m->rank) + 1, 1);
    uint64_t together = 0;
    rks_agreed agreed;
    if (!open_group(m, T, per_node))
        return;
    for (uint32_t rank = 0; rank < m->size; rank++)
        together += size_of(rank);
    memset(mine, (int)m->rank + 1, size_of(m->rank));
    const rks_fact fact = rks_fact_bytes(mine, size_of(m->rank), together);
    for (int turn = 0; turn < 2; turn++) {
        EXPECT(rks_group_agree_on(m->group, "much", RKS_OK, &fact, 1, &agreed, &m->err) == RKS_OK);
        for (uint32_t rank = 0; rank < m->size; rank++) {
            size_t size = 0;
            const uint8_t *theirs = rks_agreed_get(&agreed, rank, 0, &size);
            EXPECT(size == size_of(rank));
            EXPECT(size == 0 || (theirs[0] == rank + 1 && theirs[size - 1] == rank + 1));
        }
    }
    free(mine);
}

static void contributions_of_all_sizes_arrive(void **state)
{
    (void)state;
    for (per_node = 0; per_node <= 3; per_node++)
        on_threads(7, bring_much, NULL);
    per_node = 0;
}

/* ---- the tree -------------------------------------------------------------------------------- */

/* By rank. Several: messages of one child hold those of all ranks below it. */
static uint32_t in_messages[RANKS_MAX];

static void count_below(member *m)
{
    if (!open_group(m, T, per_node))
        return;
    in_messages[m->rank] = 0;
    for (size_t i = 0; i < m->group->child_count; i++)
        in_messages[m->rank] += m->group->below[i];
}

static void a_leader_hears_of_each_rank_below_it_once(void **state)
{
    (void)state;
    static const uint32_t expected[][7] = {
        {6}, {6}, {6, 0, 1, 0, 1}, {6, 0, 0, 2}}; /* by ranks a node; 0: all on one */
    for (per_node = 0; per_node <= 3; per_node++) {
        on_threads(7, count_below, NULL);
        assert_memory_equal(in_messages, expected[per_node], sizeof(expected[per_node]));
    }
    per_node = 0;
}

/* ---- more than a collective takes ----------------------------------------------------------- */

enum { EACH = 2 * MIB };

/* Rank 2 alone, or all together, bring more than the fact says. */
static void bring_too_much(member *m)
{
    const bool *alone = m->user;
    uint8_t *mine = calloc(EACH, 1);
    rks_agreed agreed;
    if (!open_group(m, T, 2))
        return;
    const rks_fact fact =
        rks_fact_bytes(mine, *alone && m->rank != 2 ? 10 : EACH, *alone ? EACH - 100 : 2 * EACH);
    rks_status status =
        rks_group_agree_on(m->group, "too much", RKS_OK, &fact, 1, &agreed, &m->err);
    EXPECT(status == (*alone ? RKS_ERR_UNSUPPORTED : RKS_ERR_PEER));
    EXPECT(!*alone || m->err.rank == 2);
    EXPECT(strstr(m->err.text, "'too much'") != NULL && m->err.rank > 0);
    EXPECT(rks_group_agree(m->group, "going on", RKS_OK, &m->err) == RKS_OK); /* no rank is lost */
    free(mine);
}

static void more_than_all_can_bring_is_an_error_that_names_a_rank(void **state)
{
    (void)state;
    for (int alone = 0; alone < 2; alone++)
        on_threads(5, bring_too_much, &(bool){alone});
}

/* A rank that waits with much for its parent's word hears of another one's error instead. */
static void fail_beside_much(member *m)
{
    uint8_t *mine = calloc(EACH, 1);
    rks_agreed agreed;
    if (!open_group(m, T, 2))
        return;
    rks_status status = m->rank == 1 ? rks_fail(&m->err, RKS_ERR_DATA, 0, "a bad line") : RKS_OK;
    const rks_fact fact = rks_fact_bytes(mine, EACH, 8 * (uint64_t)EACH);
    EXPECT(rks_group_agree_on(m->group, "much", status, &fact, 1, &agreed, &m->err) ==
           RKS_ERR_DATA);
    EXPECT(m->err.rank == 1 && strstr(m->err.text, "a bad line") != NULL);
    EXPECT(rks_group_agree_on(m->group, "again", RKS_OK, &fact, 1, &agreed, &m->err) == RKS_OK);
    free(mine);
}

static void an_error_comes_in_place_of_what_was_announced(void **state)
{
    (void)state;
    on_threads(6, fail_beside_much, NULL);
}

/* ---- a rank that breaks the rules ------------------------------------------------------------ */

/* One note of a message that says to have `total` bytes. */
static void send_note(member *m, uint32_t to, uint32_t kind, uint64_t total, const void *body,
                      size_t size)
{
    uint8_t *note = calloc(NOTE_HEAD + size, 1);
    rks_store_u32(note, kind);
    rks_store_u64(note + 8, total);
    memcpy(note + NOTE_HEAD, body, size);
    EXPECT(rks_engine_note(rks_group_engine(m->group), to, RKS_SERVICE_GROUP, note,
                           NOTE_HEAD + size, &m->err) == RKS_OK);
    free(note);
}

/* The head of an agreement on one fact, as collective.c draws it; this rank is in it then. */
static void enter_by_hand(member *m, uint64_t entries, uint8_t head[HEAD])
{
    memset(head, 0, HEAD);
    pthread_mutex_lock(&m->group->mutex);
    rks_store_u64(head, m->group->sequence++);
    m->group->asks = true;
    pthread_mutex_unlock(&m->group->mutex);
    memcpy(head + 8, "work", 4);
    rks_store_u64(head + 64, 1); /* facts */
    rks_store_u64(head + AT_ENTRIES, entries);
}

/* The group has failed for what rank `breaks` has sent; it is not told why. */
static void expect_lost(member *m, uint32_t breaks)
{
    rks_status status = RKS_OK;
    for (int i = 0; i < 1000 && status == RKS_OK; i++) {
        usleep(10000);
        status = rks_group_must_stop(m->group, &m->err);
    }
    EXPECT(status == RKS_ERR_PEER);
    EXPECT(rks_group_agree(m->group, "known", RKS_OK, &m->err) == RKS_ERR_PEER);
    EXPECT(m->rank == breaks || strstr(m->err.text, "a malformed message") != NULL);
    EXPECT(m->rank == breaks || m->err.rank == (int32_t)breaks);
}

static rks_status agree_on_a_number(member *m)
{
    const rks_fact fact = rks_fact_fixed(&m->size, sizeof(m->size));
    return rks_group_agree_on(m->group, "work", RKS_OK, &fact, 1, NULL, &m->err);
}

/* 64 MiB to an agreement on a number: nothing of it is kept, and its end is not waited for. */
static void send_without_announcing(member *m)
{
    uint8_t *body = calloc(MIB, 1);
    if (!open_group(m, T, 0))
        return;
    if (m->rank == 1) {
        enter_by_hand(m, 64 * MIB, body);
        send_note(m, 0, MESSAGE_UP, 64 * MIB, body, MIB);
    } else {
        EXPECT(agree_on_a_number(m) == RKS_ERR_PEER);
    }
    expect_lost(m, 1);
    free(body);
}

static void a_large_contribution_that_was_not_announced_ends_the_group(void **state)
{
    (void)state;
    on_threads(2, send_without_announcing, NULL);
}

/* What is announced above the collective's limit is refused before any of it comes. */
static void announce(member *m)
{
    const uint64_t *entries = m->user;
    uint8_t head[HEAD];
    if (!open_group(m, T, 0))
        return;
    if (m->rank == 1) {
        enter_by_hand(m, *entries, head);
        pthread_mutex_lock(&m->group->mutex);
        m->group->result_max = 4096;
        pthread_mutex_unlock(&m->group->mutex);
        send_note(m, 0, MESSAGE_UP, HEAD, head, HEAD);
        message *result = NULL; /* of the kind that ends it: GO was not said */
        EXPECT(rks_inbox_wait(m->group, 0, 1u << MESSAGE_GO | 1u << MESSAGE_DOWN, "work", &result,
                              &m->err) == RKS_OK);
        EXPECT(result != NULL && result->kind == MESSAGE_DOWN);
        rks_inbox_free(result);
    } else {
        EXPECT(agree_on_a_number(m) == RKS_ERR_PEER && m->err.rank == 1);
        EXPECT(strstr(m->err.text, "'work', which takes 32 at most") != NULL);
    }
    EXPECT(rks_group_agree(m->group, "going on", RKS_OK, &m->err) == RKS_OK);
}

static void no_more_may_come_than_a_collective_can_need(void **state)
{
    (void)state;
    static uint64_t entries[] = {33, 2 * MIB, UINT64_C(1) << 40, UINT64_MAX};
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        on_threads(2, announce, &entries[i]);
}

/* `user`: announced, and sent. */
static void send_another_size(member *m)
{
    const uint64_t *sizes = m->user;
    uint8_t head[HEAD], *rest = calloc(MIB, 1);
    rks_agreed agreed;
    if (!open_group(m, T, 0))
        return;
    if (m->rank == 1) {
        enter_by_hand(m, sizes[0], head);
        send_note(m, 0, MESSAGE_UP, HEAD, head, HEAD);
        message *go = NULL;
        EXPECT(rks_inbox_wait(m->group, 0, 1u << MESSAGE_GO, "work", &go, &m->err) == RKS_OK);
        rks_inbox_free(go);
        for (uint64_t at = 0; at < sizes[1] && at < 8 * MIB;
             at += MIB) /* the first tell the size */
            send_note(m, 0, MESSAGE_REST, sizes[1], rest,
                      sizes[1] - at < MIB ? sizes[1] - at : MIB);
    } else {
        const rks_fact fact = rks_fact_bytes(NULL, 0, 64 * MIB);
        EXPECT(rks_group_agree_on(m->group, "work", RKS_OK, &fact, 1, &agreed, &m->err) ==
               RKS_ERR_PEER);
        EXPECT(strstr(m->err.text, "malformed") != NULL && m->err.rank == 1);
        rks_group_fail(m->group, &m->err, -1); /* so that rank 1 hears of it in each case */
    }
    EXPECT(rks_group_agree(m->group, "known", RKS_OK, &m->err) != RKS_OK);
    free(rest);
}

static void what_comes_must_be_what_was_announced(void **state)
{
    (void)state;
    static uint64_t sizes[][2] = {
        {2 * MIB, 3 * MIB}, {2 * MIB, MIB}, {2 * MIB, 2 * MIB + 1}, {MIB, UINT64_C(1) << 30}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        on_threads(2, send_another_size, sizes[i]);
}

/* The parent breaks them: rank 1 awaits an agreement's result, or makes no call at all. */
static void send_a_large_result(member *m)
{
    const bool *awaited = m->user;
    uint8_t *body = calloc(MIB, 1);
    if (!open_group(m, T, 0))
        return;
    if (m->rank == 0) {
        message *up = NULL;
        enter_by_hand(m, 0, body);
        if (*awaited)
            EXPECT(rks_inbox_wait(m->group, 1, 1u << MESSAGE_UP, "work", &up, &m->err) == RKS_OK);
        rks_inbox_free(up);
        send_note(m, 1, MESSAGE_DOWN, 8 * MIB, body, MIB);
    }
    if (m->rank == 1 && *awaited)
        EXPECT(agree_on_a_number(m) == RKS_ERR_PEER);
    expect_lost(m, 0);
    free(body);
}

static void a_result_above_what_the_collective_can_need_ends_the_group(void **state)
{
    (void)state;
    for (int awaited = 0; awaited < 2; awaited++)
        on_threads(2, send_a_large_result, &(bool){awaited});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contributions_of_all_sizes_arrive),
        cmocka_unit_test(a_leader_hears_of_each_rank_below_it_once),
        cmocka_unit_test(more_than_all_can_bring_is_an_error_that_names_a_rank),
        cmocka_unit_test(an_error_comes_in_place_of_what_was_announced),
        cmocka_unit_test(a_large_contribution_that_was_not_announced_ends_the_group),
        cmocka_unit_test(no_more_may_come_than_a_collective_can_need),
        cmocka_unit_test(what_comes_must_be_what_was_announced),
        cmocka_unit_test(a_result_above_what_the_collective_can_need_ends_the_group),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
