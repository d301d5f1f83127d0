/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_merge.c: the two ways to merge the lists of sources give the same order, in which
 * sources are even. */
#include "plans.h"

#include "plan/mix/mix.h"

#include <inttypes.h>
#include <math.h>

enum { SOURCES = 1500 };

typedef struct merged {
    uint64_t counts[SOURCES], all;
    rks_mix_list lists[SOURCES];
    uint32_t *ids, *turns, *blocks;
    size_t sources;
    bool merges;
} merged;

static void list(merged *m)
{
    m->all = 0;
    for (size_t i = 0; i < m->sources; i++)
        m->all += m->counts[i];
    m->ids = malloc((m->all + 1) * sizeof(uint32_t));
    m->turns = malloc((m->all + 1) * sizeof(uint32_t));
    m->blocks = malloc((m->all + 1) * sizeof(uint32_t));
    const uint32_t *next = m->ids;
    for (size_t i = 0; i < m->sources; next += m->counts[i++])
        m->lists[i] = (rks_mix_list){next, m->counts[i]};
    for (uint64_t i = 0; i < m->all; i++)
        m->ids[i] = (uint32_t)i;
}

static void merge(merged *m)
{
    list(m);
    memset(m->blocks, 0xff, m->all * sizeof(uint32_t));
    assert_ok(rks_mix_merge_turns(m->lists, m->sources, m->turns, &err), &err);
    assert_ok(rks_mix_merge_blocks(m->lists, m->sources, m->blocks, &m->merges, &err), &err);
    if (m->merges)
        assert_memory_equal(m->turns, m->blocks, m->all * sizeof(uint32_t));
    else /* begins anew */
        assert_ok(rks_mix_merge_all(m->lists, m->sources, m->blocks, &err), &err);
    assert_memory_equal(m->turns, m->blocks, m->all * sizeof(uint32_t));
}

static void end(merged *m)
{
    free(m->ids);
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
    } list[] = {{4095 * 3, 3, 0, true},      {4096 * 3, 3, 0, true}, {4095 * 3 + 1, 3, 0, false},
                {4095 * 7 + 3, 7, 7, false}, {20000, 1, 0, true},    {50000, 1, 2, false}};
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

/* How far the share of a source is off in any stretch of 200 draws, at most. */
static double farthest_off(const merged *m)
{
    enum { WINDOW = 200 };
    double most = 0;
    uint16_t *source = malloc((m->all + 1) * sizeof(*source));
    int64_t *there = calloc(m->sources, sizeof(*there));
    for (size_t i = 0, at = 0; i < m->sources; at += m->counts[i++])
        for (uint64_t k = 0; k < m->counts[i]; k++)
            source[at + k] = (uint16_t)i;
    for (uint64_t i = 0; i < m->all; i++) {
        size_t changed[] = {source[m->blocks[i]], source[m->blocks[i < WINDOW ? i : i - WINDOW]]};
        there[changed[0]]++;
        there[changed[1]] -= i >= WINDOW;
        for (size_t j = 0; i + 1 >= WINDOW && j < 2; j++) {
            double share = (double)m->counts[changed[j]] / (double)m->all;
            double off = fabs((double)there[changed[j]] / WINDOW - share);
            most = off > most ? off : most;
        }
    }
    free(source);
    free(there);
    return most;
}

/* Each list has all of its entries, in their order. */
static void assert_whole(const merged *m)
{
    uint64_t *next = calloc(m->sources, sizeof(*next));
    uint16_t *source = malloc((m->all + 1) * sizeof(*source));
    uint64_t *first = calloc(m->sources + 1, sizeof(*first));
    for (size_t i = 0; i < m->sources; i++) {
        first[i + 1] = first[i] + m->counts[i];
        for (uint64_t k = first[i]; k < first[i + 1]; k++)
            source[k] = (uint16_t)i;
    }
    for (uint64_t i = 0; i < m->all; i++) {
        size_t of = source[m->blocks[i]];
        assert_int_equal(m->blocks[i], first[of] + next[of]++);
    }
    free(next);
    free(source);
    free(first);
}

/* rare sources are spread: shares hold within a point of 200 draws, however rare, many and unequal
 * sources are; without groups they are far off */
static void test_rare_sources_are_spread(void **state)
{
    (void)state;
    static const struct spread {
        uint64_t large, larges, rare, most; /* `rare` sources of 1 to `most` draws */
    } list_of[] = {{60000, 1, 100, 1}, {30000, 2, 99, 6}, {60000, 1, 1400, 9},
                   {100000, 1, 2, 1},  {100000, 1, 1, 1}, {20000, 30, 1000, 40},
                   {0, 0, 1500, 60},   {50000, 3, 7, 30}};
    for (size_t i = 0; i < sizeof(list_of) / sizeof(*list_of); i++) {
        rks_random random = {i};
        merged m = {.sources = list_of[i].larges + list_of[i].rare};
        for (size_t j = 0; j < m.sources; j++)
            m.counts[j] = j < list_of[i].larges ? list_of[i].large
                                                : 1 + rks_random_below(&random, list_of[i].most);
        list(&m);
        assert_ok(rks_mix_merge_all(m.lists, m.sources, m.blocks, &err), &err);
        double before = farthest_off(&m);
        assert_ok(rks_mix_merge(m.lists, m.sources, m.blocks, &err), &err);
        assert_whole(&m);
        double off = farthest_off(&m);
        if (getenv("RKS_TEST_MERGES") != NULL)
            printf("%" PRIu64 " x %" PRIu64 ", %" PRIu64 " rare ones: %.4f, before %.4f\n",
                   list_of[i].larges, list_of[i].large, list_of[i].rare, off, before);
        assert_true(off <= 0.01);
        assert_true(i > 2 || before > 0.05);
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
    uint32_t ids[] = {0, 1, 2, 3, 4}, order[5];
    rks_mix_list lists[] = {{ids, 3}, {ids + 3, 2}};
    bool merges;
    uint64_t before = rks_memory_in_use();
    rks_memory_fail_at(1);
    assert_fails(RKS_ERR_MEMORY, rks_mix_merge_blocks(lists, 2, order, &merges, &err));
    rks_memory_fail_at(0);
    assert_int_equal(rks_memory_in_use(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_as_turns),
        cmocka_unit_test(test_sources_are_even),
        cmocka_unit_test(test_many_sources_are_even),
        cmocka_unit_test(test_rare_sources),
        cmocka_unit_test(test_rare_sources_are_spread),
        cmocka_unit_test(test_hardly_any_draws),
        cmocka_unit_test(test_memory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
