/* SPDX-License-Identifier: Apache-2.0
 *
 * test_selection.c: duplicates and samples of N from memory: the same dataset on any number of
 * ranks and nodes, what is left is what a plain walk over the samples says, and ranks that have no
 * directory open it too. */
#include "unit/store/world.h"

#include "base/checksum.h"
#include "base/scratch.h"
#include "ingest/row_sampling.h"
#include "builder/exclusions.h"
#include "support/seed.h"

enum { ROWS = 300, WORDS = 90, ALL = ROWS * UNITS };

static char place[64], target[128];
static uint64_t seed;

/* The word of a sample: of few, so that most are there again. */
static uint64_t word_of(uint64_t number)
{
    uint64_t mixed[2] = {seed, number};
    return rks_checksum64(mixed, sizeof(mixed)) % WORDS;
}

typedef struct job {
    rks_build_options options;
    bool own_nodes;
    const uint64_t *expected; /* numbers of the samples that count */
    uint64_t count;
    rks_build_report report; /* rank 0's */
    uint32_t builders;       /* ranks that build; the others only open */
} job;

static rks_status make_unit(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    rks_status status = RKS_OK;
    (void)user;
    for (uint64_t row = 0; status == RKS_OK && row < ROWS; row++) {
        char text[32];
        int64_t id = (int64_t)(unit * ROWS + row);
        uint64_t word = word_of((uint64_t)id);
        int size = snprintf(text, sizeof(text), "%llu%.*s", (unsigned long long)word,
                            (int)(word % 9), "abcdefghi");
        const rks_value values[2] = {{.data = &id, .size = 8},
                                     {.data = text, .size = (uint64_t)size}};
        status = rows_add(sink, values, NULL, 0, err);
    }
    return status;
}

static void look(member *m, rks_store *store, const job *j)
{
    EXPECT(rks_store_count(store) == j->count);
    for (uint64_t id = m->rank; id < j->count && m->failures == 0;
         id += rks_group_size(rks_store_group(store))) {
        rks_batch *batch = NULL;
        rks_value value = {0};
        uint8_t key[RKS_KEY_MAX];
        size_t size = 0;
        uint64_t found = UINT64_MAX;
        char expected[32];
        int64_t number = -1;
        EXPECT_OK(rks_store_fetch(store, &id, 1, &batch, &m->err));
        EXPECT(batch != NULL && rks_batch_value(batch, 0, 0, &value, &m->err) == RKS_OK);
        if (value.size == sizeof(number))
            memcpy(&number, value.data, sizeof(number));
        EXPECT((uint64_t)number == j->expected[id]);
        snprintf(expected, sizeof(expected), "%llu", (unsigned long long)j->expected[id]);
        EXPECT_OK(rks_store_key(store, id, key, &size, &m->err));
        EXPECT(size == strlen(expected) && memcmp(key, expected, size) == 0);
        EXPECT_OK(rks_store_find(store, expected, size, &found, &m->err));
        EXPECT(found == id);
        rks_batch_free(batch);
    }
}

static void run_rank(member *m)
{
    job *j = m->user;
    const made_rows rows = {.make = make_unit, .units = UNITS, .name = "part"};
    rks_store *store = NULL;
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, j->own_nodes))
        return;
    if (j->builders > 0) {
        EXPECT_OK(rows_build(m->group, target, &j->options, &rows, &report, &m->err));
        if (m->rank == 0)
            j->report = report;
    }
    EXPECT_OK(rks_store_open(m->group, target, NULL, &store, &m->err));
    if (store != NULL)
        look(m, store, j);
    rks_store_close(store, LIMIT_S * 1000); /* the others may still look */
}

static void options_of(rks_build_options *options)
{
    rks_build_options_default(options);
    options->schema = "id:int64,text:str";
    options->key = "id";
    options->block_size = 64 << 10;
}

/* What a plain walk keeps. */
static uint64_t keep_first_of_each_word(uint64_t *kept)
{
    bool seen[WORDS] = {false};
    uint64_t count = 0;
    for (uint64_t number = 0; number < ALL; number++) {
        uint64_t word = word_of(number);
        if (!seen[word])
            kept[count++] = number;
        seen[word] = true;
    }
    return count;
}

static int by_draw(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    uint64_t left = rks_draw(5, one / ROWS, one % ROWS),
             right = rks_draw(5, other / ROWS, other % ROWS);
    return left < right ? -1 : left > right;
}

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static void sample_of(uint64_t *numbers, uint64_t count, uint64_t take)
{
    qsort(numbers, count, sizeof(*numbers), by_draw);
    qsort(numbers, take, sizeof(*numbers), by_value);
}

/* On 1 to 4 ranks, of one node and of nodes of their own: one dataset. At last on one node whose
 * ranks do not see each other's shards. */
static void build_on_any_ranks(job *j, uint64_t duplicates, uint64_t sampled_out)
{
    char first[33] = "";
    for (uint32_t turn = 0; turn < 7; turn++) {
        uint32_t ranks = turn % 4 + 1;
        j->builders = ranks;
        j->own_nodes = turn % 2 != 0;
        /* A directory a rank where each is a node. */
        bool apart = j->own_nodes || turn == 6;
        snprintf(target, sizeof(target), "%s/%s", place, apart ? "store-{rank}" : "store");
        on_threads(ranks, run_rank, j);
        assert_int_equal(j->report.samples, j->count);
        assert_int_equal(j->report.duplicates, duplicates);
        assert_int_equal(j->report.sampled_out, sampled_out);
        if (turn == 0)
            strcpy(first, j->report.dataset);
        assert_string_equal(j->report.dataset, first);
        if (ranks == 2) {
            j->builders = 0;
            on_threads(4, run_rank, j); /* two of them have no directory */
        }
        world_remove(place);
        mkdir(place, 0777);
    }
}

static void of_equal_contents_the_first_counts_on_any_ranks(void **state)
{
    (void)state;
    static uint64_t kept[ALL];
    job j = {.expected = kept, .count = keep_first_of_each_word(kept)};
    options_of(&j.options);
    j.options.dedup = true;
    build_on_any_ranks(&j, ALL - j.count, 0);
}

/* Hashes of so few bits that most are shared by words that differ: bytes decide. */
static void contents_that_differ_under_one_hash_are_no_duplicates(void **state)
{
    (void)state;
    static uint64_t kept[ALL];
    job j = {.expected = kept, .count = keep_first_of_each_word(kept)};
    options_of(&j.options);
    j.options.dedup = true;
    rks_exclusions_hash_bits(3);
    build_on_any_ranks(&j, ALL - j.count, 0);
    rks_exclusions_hash_bits(UINT64_MAX);
}

/* With one hash for all, words after the first 16 are compared with none, and all of them stay. */
static void nothing_is_lost_where_more_contents_share_a_hash_than_are_compared(void **state)
{
    (void)state;
    static uint64_t kept[ALL];
    bool seen[WORDS] = {false};
    uint64_t words = 0;
    job j = {.expected = kept};
    for (uint64_t number = 0; number < ALL; number++) {
        uint64_t word = word_of(number);
        if (seen[word])
            continue;
        kept[j.count++] = number;
        seen[word] = words++ < 16;
    }
    options_of(&j.options);
    j.options.dedup = true;
    rks_exclusions_hash_bits(0);
    build_on_any_ranks(&j, ALL - j.count, 0);
    rks_exclusions_hash_bits(UINT64_MAX);
}

static void a_sample_of_n_has_the_lowest_draws_on_any_ranks(void **state)
{
    (void)state;
    static uint64_t numbers[ALL];
    for (uint64_t i = 0; i < ALL; i++)
        numbers[i] = i;
    job j = {.expected = numbers, .count = 501};
    sample_of(numbers, ALL, 501);
    options_of(&j.options);
    j.options.sample = 501;
    j.options.seed = 5;
    build_on_any_ranks(&j, 0, ALL - 501);
}

/* The first windows are too narrow: as they grow, the sample stays the same. */
static void a_sample_of_n_is_the_same_however_many_draws_are_looked_at(void **state)
{
    (void)state;
    static uint64_t numbers[ALL];
    static const uint64_t windows[] = {0, 3, ALL};
    static const uint64_t sizes[] = {1, 77, ALL - 1};
    for (size_t i = 0; i < 3; i++) {
        for (uint64_t k = 0; k < ALL; k++)
            numbers[k] = k;
        job j = {.expected = numbers, .count = sizes[i], .builders = 3};
        sample_of(numbers, ALL, j.count);
        options_of(&j.options);
        j.options.sample = j.count;
        j.options.seed = 5;
        rks_exclusions_window(windows[i]);
        snprintf(target, sizeof(target), "%s/store", place);
        on_threads(3, run_rank, &j);
        rks_exclusions_window(UINT64_MAX);
        world_remove(place);
        mkdir(place, 0777);
    }
}

static void the_sample_is_of_what_is_left_without_duplicates(void **state)
{
    (void)state;
    static uint64_t kept[ALL];
    uint64_t left = keep_first_of_each_word(kept);
    job j = {.expected = kept, .count = 33};
    sample_of(kept, left, 33);
    options_of(&j.options);
    j.options.dedup = true;
    j.options.sample = 33;
    j.options.seed = 5;
    build_on_any_ranks(&j, ALL - left, left - 33);
}

static int prepare(void **state)
{
    (void)state;
    seed = test_seed(0);
    world_directory(place);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    world_remove(place);
    return 0;
}

static void entries_may_lie_in_a_file(void **state)
{
    rks_scratch_memory_max(1);
    of_equal_contents_the_first_counts_on_any_ranks(state);
    rks_scratch_memory_max(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_equal_contents_the_first_counts_on_any_ranks),
        cmocka_unit_test(entries_may_lie_in_a_file),
        cmocka_unit_test(contents_that_differ_under_one_hash_are_no_duplicates),
        cmocka_unit_test(nothing_is_lost_where_more_contents_share_a_hash_than_are_compared),
        cmocka_unit_test(a_sample_of_n_has_the_lowest_draws_on_any_ranks),
        cmocka_unit_test(a_sample_of_n_is_the_same_however_many_draws_are_looked_at),
        cmocka_unit_test(the_sample_is_of_what_is_left_without_duplicates),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
