/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_merge.c: the two ways to merge the lists of sources give the same order, in which
 * sources are even. */
#include "plans.h"

#include "plan/mix.h"

enum { SOURCES = 1500 };

typedef struct merged {
    uint64_t counts[SOURCES], all;
    uint32_t *lists, *turns, *blocks;
    size_t sources;
    bool merges;
} merged;

static void merge(merged *m)
{
    m->all = 0;
    for (size_t i = 0; i < m->sources; i++)
        m->all += m->counts[i];
    m->lists = malloc((m->all + 1) * sizeof(uint32_t));
    m->turns = malloc((m->all + 1) * sizeof(uint32_t));
    m->blocks = malloc((m->all + 1) * sizeof(uint32_t));
    for (uint64_t i = 0; i < m->all; i++)
        m->lists[i] = (uint32_t)i;
    memset(m->blocks, 0xff, m->all * sizeof(uint32_t));
    assert_ok(rks_mix_merge_turns(m->lists, m->counts, m->sources, m->turns, &err), &err);
    assert_ok(rks_mix_merge_blocks(m->lists, m->counts, m->sources, m->blocks, &m->merges, &err),
              &err);
    if (m->merges)
        assert_memory_equal(m->turns, m->blocks, m->all * sizeof(uint32_t));
    else /* begins anew */
        assert_ok(rks_mix_merge(m->lists, m->counts, m->sources, m->blocks, &err), &err);
    assert_memory_equal(m->turns, m->blocks, m->all * sizeof(uint32_t));
}

static void end(merged *m)
{
    free(m->lists);
    free(m->turns);
    free(m->blocks);
}

/* Draw k of n comes from N k / n on, and before N (k + 1) / n. */
static void assert_even(const merged *m)
{
    uint64_t begin = 0, *place = calloc(m->all + 1, sizeof(*place));
    for (uint64_t i = 0; i < m->all; i++)
        place[m->blocks[i]] = i;
    for (size_t i = 0; i < m->sources; begin += m->counts[i++])
        for (uint64_t k = 0; k < m->counts[i]; k++) {
            uint64_t at = place[begin + k] * m->counts[i];
            assert_true(at + m->counts[i] > m->all * k);
            assert_true(at < m->all * (k + 1));
        }
    free(place);
}

static uint64_t count_of(int kind, size_t source, uint64_t number)
{
    switch (kind) {
    case 0:
        return number % 100;
    case 1: /* all alike */
        return 50;
    case 2:
        return number % 8 == 0 ? 1 + number / 8 % 3 : number / 8 % 3000;
    case 3: /* one large source */
        return source == 0 ? 60000 + number % 10000 : 1 + number % 40;
    case 4: /* many equal ends */
        return UINT64_C(1) << number % 12;
    default:
        return source % 3 == 0 ? number % 10000 : number % 20;
    }
}

/* blocks and turns give one order, over many kinds of counts */
static void test_blocks_are_as_turns(void **state)
{
    static const size_t most[] = {2, 3, 7, 30, 100, 300, 900, SOURCES};
    enum { KINDS = 6 };
    size_t by_blocks = 0, by_turns = 0;
    (void)state;
    const char *more = getenv("RKS_TEST_MERGES"); /* a long run by hand */
    uint64_t rounds = more != NULL ? strtoull(more, NULL, 10) : 60;
    for (uint64_t round = 0; round < rounds; round++) {
        rks_random random = {rks_random_key(3, round)};
        merged m = {.sources = 1 + rks_random_next(&random) % most[round % 8]};
        for (size_t i = 0; i < m.sources; i++)
            m.counts[i] = count_of((int)(round / 8 % KINDS), i, rks_random_next(&random));
        merge(&m);
        if (m.merges)
            assert_even(&m);
        by_blocks += m.merges;
        by_turns += !m.merges;
        end(&m);
    }
    assert_true(by_blocks > rounds / 3);
    assert_true(by_turns > 0);
}

/* each source has its share of any number of draws, give or take one */
static void test_sources_are_even(void **state)
{
    (void)state;
    merged m = {.sources = 100};
    rks_random random = {4};
    for (size_t i = 0; i < m.sources; i++)
        m.counts[i] = 1 + rks_random_next(&random) % 1000;
    merge(&m);
    assert_true(m.merges);
    assert_even(&m);
    end(&m);
}

/* the same of more sources than blocks take, each of which has one of 4,096 draws at least */
static void test_many_sources_are_even(void **state)
{
    (void)state;
    merged m = {.sources = SOURCES};
    rks_random random = {5};
    for (size_t i = 0; i < m.sources; i++)
        m.counts[i] = 15 + (i == 7 ? 10000 : rks_random_next(&random) % 30);
    merge(&m);
    assert_false(m.merges);
    assert_true(m.all < 15 * 4096);
    assert_even(&m);
    end(&m);
}

/* ends that count as the ring's, those that may or may not, and those that come too early */
static void test_rare_sources(void **state)
{
    (void)state;
    static const struct rare {
        uint64_t all, second, last;
        bool merges;
    } list[] = {{4095 * 3, 3, 0, true},         {4096 * 3, 3, 0, true}, {4095 * 3 + 1, 3, 0, false},
                {4095 * 7 + 3, 7, 7, false}, {20000, 1, 0, true},   {50000, 1, 2, false}};
    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
        uint64_t rest = list[i].all - list[i].second - list[i].last;
        merged m = {.sources = 4,
                    .counts = {rest - rest / 3, list[i].second, rest / 3, list[i].last}};
        merge(&m);
        assert_int_equal(m.merges, list[i].merges);
        if (m.merges)
            assert_even(&m);
        end(&m);
    }
}

/* no draws, and one */
static void test_hardly_any_draws(void **state)
{
    (void)state;
    merged m = {.sources = 3};
    merge(&m);
    assert_true(m.merges);
    end(&m);
    m.counts[1] = 1;
    merge(&m);
    assert_true(m.merges);
    assert_int_equal(m.blocks[0], 0);
    end(&m);
}

/* without memory: an error, and nothing is kept */
static void test_memory_fails(void **state)
{
    (void)state;
    uint64_t counts[] = {3, 2};
    uint32_t lists[] = {0, 1, 2, 3, 4}, order[5];
    bool merges;
    uint64_t before = rks_memory_in_use();
    rks_memory_fail_at(1);
    assert_fails(RKS_ERR_MEMORY,
                 rks_mix_merge_blocks(lists, counts, 2, order, &merges, &err));
    rks_memory_fail_at(0);
    assert_int_equal(rks_memory_in_use(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_as_turns), cmocka_unit_test(test_sources_are_even),
        cmocka_unit_test(test_many_sources_are_even),
        cmocka_unit_test(test_rare_sources),        cmocka_unit_test(test_hardly_any_draws),
        cmocka_unit_test(test_memory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
