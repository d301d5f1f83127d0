/* SPDX-License-Identifier: Apache-2.0
 *
 * test_agreement.c: one agreement carries the first failure, facts of all ranks, sums, and the
 * comparison of what must be the same. */
#include "ranks.h"

#include "base/bytes.h"
#include "base/memory.h"
#include "group/agreement.h"

enum { T = 15000 };

static uint32_t per_node;

static bool says(const member *m, const char *text)
{
    if (strcmp(m->err.text, text) == 0)
        return true;
    print_error("rank %u: %s\n", m->rank, m->err.text);
    return false;
}

static void bring_facts(member *m)
{
    char text[40];
    uint64_t numbers[2] = {m->rank, 1}, triangle = m->size * (m->size - 1) / 2;
    rks_agreed agreed;
    if (!open_group(m, T, per_node))
        return;
    memset(text, 'a' + (int)m->rank, sizeof(text));
    const rks_fact facts[] = {
        rks_fact_fixed(&m->rank, sizeof(m->rank)),
        rks_fact_bytes(text, m->rank % 3 == 1 ? 0 : 3 * m->rank, 1 << 20),
        rks_fact_optional(m->rank % 2 == 0 ? text : NULL, 5),
        rks_fact_same("colour", "green"),
        rks_fact_same("shape", NULL),
        rks_fact_sum(numbers, 2),
    };
    uint64_t before = rks_group_collectives(m->group);
    EXPECT(rks_group_agree_on(m->group, "facts", RKS_OK, facts, 6, &agreed, &m->err) == RKS_OK);
    EXPECT(rks_group_collectives(m->group) == before + 1);
    EXPECT(numbers[0] == triangle && numbers[1] == m->size);
    for (uint32_t other = 0; other < m->size; other++) {
        size_t size = 99;
        const char *bytes = rks_agreed_get(&agreed, other, 0, &size);
        EXPECT(size == 4 && rks_load_u32(bytes) == other && (uintptr_t)bytes % 8 == 0);
        bytes = rks_agreed_get(&agreed, other, 1, &size);
        EXPECT(bytes != NULL && size == (other % 3 == 1 ? 0 : 3 * other));
        for (size_t i = 0; bytes != NULL && i < size; i++)
            EXPECT(bytes[i] == (char)('a' + other));
        bytes = rks_agreed_get(&agreed, other, 2, &size);
        EXPECT((bytes != NULL) == (other % 2 == 0) && size == (other % 2 == 0 ? 5 : 0));
        EXPECT((uintptr_t)bytes % 8 == 0);
        EXPECT(rks_agreed_get(&agreed, other, 4, NULL) == NULL);
    }
    EXPECT(rks_group_agree(m->group, "end", RKS_OK, &m->err) == RKS_OK);
}

static void every_rank_learns_the_facts_of_all(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 7, 12};
    for (per_node = 0; per_node <= 3; per_node += 3)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            on_threads(sizes[i], bring_facts, NULL);
    per_node = 0;
}

/* What one agreement got goes into the next one, whose memory takes its place. */
static void bring_what_came(member *m)
{
    rks_agreed agreed;
    char text[16];
    size_t size = 0;
    if (!open_group(m, T, 2))
        return;
    snprintf(text, sizeof(text), "from %u", m->rank);
    rks_fact fact = rks_fact_bytes(text, strlen(text) + 1, 1 << 20);
    for (uint32_t turn = 0; turn < m->size; turn++) {
        EXPECT(rks_group_agree_on(m->group, "round", RKS_OK, &fact, 1, &agreed, &m->err) == RKS_OK);
        const void *next = rks_agreed_get(&agreed, (m->rank + 1) % m->size, 0, &size);
        fact = rks_fact_bytes(next, size, 1 << 20);
    }
    EXPECT(size == strlen(text) + 1 && memcmp(fact.bytes, text, size) == 0);
}

static void facts_may_come_from_the_agreement_before(void **state)
{
    (void)state;
    on_threads(5, bring_what_came, NULL);
}

static void differ_in_one(member *m)
{
    uint32_t number = m->rank == 3 ? 8 : 7;
    if (!open_group(m, T, 2))
        return;
    const rks_fact plain[] = {rks_fact_same("where", "x > 1"),
                              rks_fact_same("columns", m->rank == 2 ? NULL : "a,b")};
    EXPECT(rks_group_agree_on(m->group, "one", RKS_OK, plain, 2, NULL, &m->err) ==
               RKS_ERR_ARGUMENT &&
           says(m, "columns differs between rank 0 and rank 2"));
    const rks_fact shown = rks_fact_same_shown("exchange", m->rank == 1 ? "pull" : "mpi");
    EXPECT(rks_group_agree_on(m->group, "two", RKS_OK, &shown, 1, NULL, &m->err) ==
               RKS_ERR_ARGUMENT &&
           says(m, "exchange differs: rank 0 has mpi, rank 1 has pull"));
    const rks_fact none = rks_fact_same_shown("key", m->rank == 1 ? "" : NULL);
    EXPECT(rks_group_agree_on(m->group, "three", RKS_OK, &none, 1, NULL, &m->err) ==
               RKS_ERR_ARGUMENT &&
           says(m, "key differs: rank 0 has none, rank 1 has "));
    const rks_fact bytes = rks_fact_same_bytes("the input", &number, sizeof(number), NULL);
    EXPECT(rks_group_agree_on(m->group, "four", RKS_OK, &bytes, 1, NULL, &m->err) ==
               RKS_ERR_ARGUMENT &&
           says(m, "the input differs between rank 0 and rank 3") && is_plain(&m->err));
    EXPECT(rks_group_agree(m->group, "end", RKS_OK, &m->err) == RKS_OK);
}

static void what_differs_is_named_with_two_ranks(void **state)
{
    (void)state;
    on_threads(4, differ_in_one, NULL);
}

/* Longer than what of it travels: the last byte counts all the same, and the error shows no digest.
 */
static void differ_far_behind(member *m)
{
    enum { SIZE = 100000 };
    char *text = calloc(SIZE + 1, 1);
    if (!open_group(m, T, 2))
        return;
    memset(text, 'x', SIZE);
    const rks_fact fact = rks_fact_same_shown("where", text);
    EXPECT(rks_group_agree_on(m->group, "one", RKS_OK, &fact, 1, NULL, &m->err) == RKS_OK);
    text[SIZE - 1] = m->rank == 2 ? 'y' : 'x';
    EXPECT(rks_group_agree_on(m->group, "two", RKS_OK, &fact, 1, NULL, &m->err) ==
           RKS_ERR_ARGUMENT);
    EXPECT(strstr(m->err.text, "where differs: rank 0 has xxx") != NULL && is_plain(&m->err));
    for (const char *at = m->err.text; *at != '\0'; at++)
        EXPECT(*at >= ' ' && *at <= '~');
    EXPECT(rks_group_agree(m->group, "end", RKS_OK, &m->err) == RKS_OK);
    free(text);
}

static void long_values_that_differ_in_their_last_byte_differ(void **state)
{
    (void)state;
    on_threads(4, differ_far_behind, NULL);
}

/* A failure comes before a difference, and no sum is touched. */
static void fail_and_differ(member *m)
{
    uint64_t sum = 40 + m->rank;
    if (!open_group(m, T, 2))
        return;
    const rks_fact facts[] = {rks_fact_same("where", m->rank == 1 ? "this" : "that"),
                              rks_fact_sum(&sum, 1)};
    rks_status status = m->rank < 2 ? RKS_OK : rks_fail(&m->err, RKS_ERR_IO, 5, "disk %u", m->rank);
    EXPECT(rks_group_agree_on(m->group, "work", status, facts, 2, NULL, &m->err) == RKS_ERR_IO);
    EXPECT(says(m, "disk 2") && m->err.rank == 2 && sum == 40 + m->rank);
}

static void a_failure_comes_before_what_differs(void **state)
{
    (void)state;
    on_threads(4, fail_and_differ, NULL);
}

static void bring_other_facts(member *m)
{
    uint32_t number = 1;
    if (!open_group(m, T, 2))
        return;
    const rks_fact facts[] = {rks_fact_fixed(&number, m->rank == 3 ? 3 : 4),
                              rks_fact_bytes(NULL, 0, 0)};
    size_t count = *(const size_t *)m->user;
    rks_status status = rks_group_agree_on(m->group, "step", RKS_OK, facts,
                                           m->rank == 3 ? count : 1, NULL, &m->err);
    EXPECT(status == (count == 2 ? RKS_ERR_STATE : RKS_ERR_PEER));
    EXPECT(strstr(m->err.text, "'step'") != NULL && strstr(m->err.text, "rank 3") != NULL);
}

static void ranks_that_bring_other_facts_find_out(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 2; count++)
        on_threads(4, bring_other_facts, &count);
}

static void bring_an_optional_fact_of_another_size(member *m)
{
    uint32_t number = 1;
    if (!open_group(m, T, 2))
        return;
    const rks_fact fact = rks_fact_optional(&number, m->rank == 3 ? 3 : 4);
    EXPECT(rks_group_agree_on(m->group, "step", RKS_OK, &fact, 1, NULL, &m->err) == RKS_ERR_PEER);
    EXPECT(strstr(m->err.text, "rank 3 brought malformed facts to 'step'") != NULL);
}

static void an_optional_fact_has_its_size_or_none(void **state)
{
    (void)state;
    on_threads(4, bring_an_optional_fact_of_another_size, NULL);
}

/* A group of one: nobody waits for who failed. */
static void each_failing_allocation_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    rks_error err = {0};
    rks_group *group = NULL;
    long before = rks_memory_in_use(), left = 0;
    assert_ok(rks_group_open(NULL, &group, &err), &err);
    for (long n = 1; left == 0; n++) {
        uint64_t sum = 3;
        const rks_fact facts[] = {rks_fact_optional("abc", 3), rks_fact_sum(&sum, 1)};
        rks_agreed agreed;
        assert_in_range(n, 1, 10);
        rks_memory_fail_at(n);
        rks_status status = rks_group_agree_on(group, "step", RKS_OK, facts, 2, &agreed, &err);
        left = rks_memory_fail_left();
        rks_memory_fail_at(0);
        assert_int_equal(status, left > 0 ? RKS_OK : RKS_ERR_MEMORY);
        if (left > 0)
            assert_memory_equal(rks_agreed_get(&agreed, 0, 0, NULL), "abc", 3);
    }
    rks_group_close(group);
    assert_int_equal(rks_memory_in_use(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_learns_the_facts_of_all),
        cmocka_unit_test(facts_may_come_from_the_agreement_before),
        cmocka_unit_test(what_differs_is_named_with_two_ranks),
        cmocka_unit_test(long_values_that_differ_in_their_last_byte_differ),
        cmocka_unit_test(a_failure_comes_before_what_differs),
        cmocka_unit_test(ranks_that_bring_other_facts_find_out),
        cmocka_unit_test(an_optional_fact_has_its_size_or_none),
        cmocka_unit_test(each_failing_allocation_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests_name("agreement", tests, NULL, NULL);
}
