/* SPDX-License-Identifier: Apache-2.0
 *
 * test_generations.c: datasets that are joined, and the older ones that a directory keeps. */
#include "dataset_fixture.h"

static rks_schema *schema;
static long held; /* by the schema */

/* Two datasets that can be one: the second one's shards have other ids and names. */
static fixture a, b;

static void make_two(void)
{
    good_fixture(&a, schema);
    good_fixture(&b, schema);
    b.shards[0].id = (rks_digest){5, 5};
    b.shards[1].id = (rks_digest){6, 6};
    strcpy(b.shards[0].name, "part-2");
    strcpy(b.shards[1].name, "part-3");
    b.dataset.build_id = (rks_digest){7, 7};
}

static void exclude(rks_dataset *dataset, rks_excluded_run *runs, uint64_t count,
                    uint64_t duplicates)
{
    rks_buffer bytes = {0};
    uint64_t stored = rks_dataset_stored(dataset);
    dataset->excluded = (rks_excluded){
        .runs = runs, .run_count = count, .bytes = 10 * count, .duplicates = duplicates};
    assert_ok(rks_excluded_encode(&dataset->excluded, &bytes, &err), &err);
    dataset->count = stored - dataset->excluded.samples;
    dataset->id = rks_dataset_id(dataset);
    rks_buffer_free(&bytes);
}

static rks_dataset *join(const rks_dataset *one, const rks_dataset *other)
{
    rks_dataset *joined = NULL;
    assert_ok(rks_dataset_join(one, other, &joined, &err), &err);
    return joined;
}

static void expect_coded(const rks_dataset *dataset)
{
    char *text = NULL, *again = NULL;
    size_t size = 0, again_size = 0;
    rks_dataset *decoded = NULL;
    assert_ok(rks_dataset_encode(dataset, &text, &size, &err), &err);
    assert_contains(text, "\"builds\"],");
    assert_ok(rks_dataset_decode(text, size, "d", &decoded, &err), &err);
    assert_ok(rks_dataset_encode(decoded, &again, &again_size, &err), &err);
    assert_int_equal(size, again_size);
    assert_memory_equal(text, again, size);
    assert_true(decoded->generation == dataset->generation);
    rks_dataset_free(decoded);
    rks_free(text);
    rks_free(again);
}

/* ---- joining --------------------------------------------------------------------------------- */

static void joined_units_follow_and_shards_say_who_built_them(void **state)
{
    (void)state;
    make_two();
    rks_dataset *joined = join(&a.dataset, &b.dataset);
    assert_int_equal(joined->count, 22);
    assert_int_equal(joined->shard_count, 4);
    assert_int_equal(joined->unit_count, 8);
    assert_int_equal(joined->generation, 2);
    assert_int_equal(joined->units[4].summary.unit, 7); /* after 6 */
    assert_int_equal(joined->units[7].summary.unit, 13);
    assert_int_equal(joined->units[4].shard, 2);
    assert_string_equal(joined->units[6].key_name, "c\xff");
    assert_int_equal(joined->shards[1].first_unit, 0);
    assert_int_equal(joined->shards[2].first_unit, 7);
    assert_true(rks_digest_equal(rks_dataset_build_of(joined, 0), a.dataset.build_id));
    assert_true(rks_digest_equal(rks_dataset_build_of(joined, 3), b.dataset.build_id));
    expect_coded(joined);
    /* And again: a third one, whose shards are others once more. */
    fixture c = b;
    c.dataset.shards = c.shards;
    c.dataset.units = c.units;
    c.dataset.index = c.index;
    c.shards[0].id = (rks_digest){15, 15};
    c.shards[1].id = (rks_digest){16, 16};
    strcpy(c.shards[0].name, "part-4");
    strcpy(c.shards[1].name, "part-5");
    rks_dataset *thrice = join(joined, &c.dataset), *other_way = join(&c.dataset, joined);
    assert_int_equal(thrice->generation, 3);
    assert_int_equal(thrice->shards[2].first_unit, 7);
    assert_int_equal(thrice->shards[4].first_unit, 14);
    assert_int_equal(other_way->shards[2].first_unit, 7);
    assert_int_equal(other_way->shards[4].first_unit, 14);
    assert_true(rks_digest_equal(rks_dataset_build_of(thrice, 0), a.dataset.build_id));
    expect_coded(thrice);
    expect_coded(other_way);
    rks_dataset_free(joined);
    rks_dataset_free(thrice);
    rks_dataset_free(other_way);
    assert_int_equal(rks_memory_in_use(), held);
}

static void positions_of_the_second_ones_excluded_samples_move_behind(void **state)
{
    (void)state;
    rks_excluded_run first[] = {{1, 2}, {9, 2}}, second[] = {{0, 1}, {4, 3}};
    make_two();
    exclude(&a.dataset, first, 2, 3);
    exclude(&b.dataset, second, 2, 1);
    rks_dataset *joined = join(&a.dataset, &b.dataset);
    const rks_excluded_run expected[] = {{1, 2}, {9, 3}, {15, 3}}; /* 9, 10 and 11 are neighbours */
    assert_int_equal(joined->excluded.run_count, 3);
    assert_memory_equal(joined->excluded.runs, expected, sizeof(expected));
    assert_int_equal(joined->excluded.samples, 8);
    assert_int_equal(joined->excluded.duplicates, 4);
    assert_int_equal(joined->excluded.bytes, 40);
    assert_int_equal(joined->count, 14);
    assert_int_equal(rks_dataset_stored(joined), 22);
    assert_true(rks_digest_equal(joined->id, rks_dataset_id(joined)));
    expect_coded(joined);
    rks_dataset_free(joined);
    make_two();
    exclude(&b.dataset, second, 2, 1); /* in one of them alone */
    joined = join(&a.dataset, &b.dataset);
    assert_int_equal(joined->excluded.runs[0].first, 11);
    rks_dataset_free(joined);
}

/* As joining two, and then a third one. */
static void many_are_joined_at_once(void **state)
{
    (void)state;
    rks_excluded_run first[] = {{1, 2}}, second[] = {{4, 3}};
    make_two();
    exclude(&a.dataset, first, 1, 1);
    exclude(&b.dataset, second, 1, 0);
    rks_dataset *copy = NULL, *all = NULL;
    size_t which = 9;
    assert_ok(rks_dataset_copy(&a.dataset, &copy, &err), &err);
    for (size_t i = 0; i < copy->shard_count; i++) {
        copy->shards[i].id.low ^= UINT64_C(1) << 60;
        snprintf(copy->shards[i].name, sizeof(copy->shards[i].name), "third-%zu", i);
    }
    const rks_dataset *parts[] = {&a.dataset, &b.dataset, copy};
    assert_ok(rks_dataset_join_all(parts, 3, &all, &which, &err), &err);
    rks_dataset *two = join(&a.dataset, &b.dataset), *three = join(two, copy);
    assert_true(rks_digest_equal(all->id, three->id));
    assert_int_equal(all->count, three->count);
    assert_int_equal(all->unit_count, three->unit_count);
    for (size_t i = 0; i < all->unit_count; i++) {
        assert_int_equal(all->units[i].shard, three->units[i].shard);
        assert_int_equal(all->units[i].summary.unit, three->units[i].summary.unit);
    }
    for (size_t i = 0; i < all->shard_count; i++) {
        assert_string_equal(all->shards[i].name, three->shards[i].name);
        assert_int_equal(all->shards[i].first_unit, three->shards[i].first_unit);
    }
    assert_int_equal(all->excluded.run_count, three->excluded.run_count);
    assert_memory_equal(all->excluded.runs, three->excluded.runs,
                        all->excluded.run_count * sizeof(rks_excluded_run));
    rks_dataset_free(all);
    rks_dataset_free(three);
    rks_dataset_free(two);
    strcpy(copy->shards[0].name, b.shards[1].name); /* the third has a name of the second */
    assert_fails(RKS_ERR_DATA, rks_dataset_join_all(parts, 3, &all, &which, &err));
    assert_int_equal(which, 2);
    parts[1] = &a.dataset; /* the second has all of the first */
    assert_fails(RKS_ERR_DATA, rks_dataset_join_all(parts, 3, &all, &which, &err));
    assert_int_equal(which, 1);
    rks_dataset_free(copy);
    assert_int_equal(rks_memory_in_use(), held);
}

static void expect_refused(rks_status status, const char *text)
{
    rks_dataset *joined = NULL;
    assert_fails(status, rks_dataset_join(&a.dataset, &b.dataset, &joined, &err));
    assert_null(joined);
    assert_contains(err.text, text);
    assert_int_equal(rks_memory_in_use(), held);
}

static void what_cannot_be_joined_is_named(void **state)
{
    (void)state;
    make_two();
    b.dataset.index_count = 0;
    expect_refused(RKS_ERR_ARGUMENT, "index columns differ: 1, the first n, and 0, the first none");
    make_two();
    b.dataset.derived_keys = false;
    expect_refused(RKS_ERR_ARGUMENT, "keys of the first are derived, those of the second stored");
    make_two();
    b.shards[1].id = a.shards[0].id;
    expect_refused(RKS_ERR_DATA, "shard part-0 is in both");
    make_two();
    strcpy(b.shards[1].name, "part-1");
    expect_refused(RKS_ERR_DATA, "shard part-1 is in both");
    make_two();
    b.units[3].summary.unit = INT64_MAX - 3;
    expect_refused(RKS_ERR_DATA, "unit numbers end at 2^63");
    make_two();
    a.units[a.dataset.unit_count - 1].summary.unit = INT64_MAX; /* none is left */
    expect_refused(RKS_ERR_DATA, "unit numbers end at 2^63");
    make_two();
    b.dataset.count = UINT32_MAX - 10;
    expect_refused(RKS_ERR_UNSUPPORTED, "4294967296 stored samples together");
    make_two();
    rks_schema *other = schema;
    b.dataset.schema = NULL;
    assert_ok(rks_schema_parse("t:str,n:int64?", &other, &err), &err);
    b.dataset.schema = other;
    rks_dataset *joined = NULL;
    assert_fails(RKS_ERR_ARGUMENT, rks_dataset_join(&a.dataset, &b.dataset, &joined, &err));
    assert_contains(err.text, "the schemas differ: {\"t\":\"str\",\"n\":\"int64\"} and ");
    rks_schema_free(other);
}

/* ---- older generations --------------------------------------------------------------------- */

static void load(const char *name, char **text, size_t *size)
{
    assert_ok(rks_file_load(path_of(name), 1 << 20, text, size, &err), &err);
}

/* As a later version would have written it: with a field that is not known here. */
static void add_field(const char *name)
{
    size_t size = 0;
    char *text = NULL, digits[RKS_DIGEST_TEXT];
    load(name, &text, &size);
    char *changed = calloc(1, size + 64);
    int before = (int)(strstr(text, "\"options\"") - text);
    sprintf(changed, "%.*s\"later\":[1,{}],%s", before, text, text + before);
    size = strlen(changed);
    memset(changed + size - 35, '0', 32);
    rks_digest_format(rks_checksum128(changed, size), digits);
    memcpy(changed + size - 35, digits, 32);
    assert_ok(rks_file_replace(path_of(name), changed, size, &err), &err);
    free(changed);
    rks_free(text);
}

static void expect_generation(uint64_t asked, uint64_t number, uint64_t samples)
{
    rks_dataset *dataset = NULL;
    assert_ok(rks_dataset_load_generation(test_directory, asked, &dataset, &err), &err);
    assert_int_equal(dataset->generation == 0 ? 1 : dataset->generation, number);
    assert_int_equal(dataset->count, samples);
    rks_dataset_free(dataset);
}

static void generations_stay_as_they_were_written(void **state)
{
    (void)state;
    rks_excluded_run runs[] = {{2, 3}};
    uint64_t *numbers = NULL;
    size_t count = 0, size = 0, kept_size = 0;
    make_two();
    exclude(&a.dataset, runs, 1, 3);
    directory_begin();
    assert_ok(rks_dataset_commit(test_directory, &a.dataset, &err), &err);
    add_field("dataset.json");
    char *first = NULL, *kept = NULL;
    load("dataset.json", &first, &size);
    rks_dataset *joined = join(&a.dataset, &b.dataset);
    assert_ok(rks_dataset_commit(test_directory, joined, &err), &err);
    load("dataset.1.json", &kept, &kept_size);
    assert_int_equal(size, kept_size);
    assert_memory_equal(first, kept, size);
    static const char *const others[] = {
        "dataset.0.json",  "dataset.02.json", "dataset.2.json.tmp",
        "dataset.x.json",  "dataset..json",   "dataset.-1.json",
        "dataset.+3.json", "dataset. 3.json", "dataset.99999999999999999999.json"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_ok(rks_file_replace(path_of(others[i]), first, size, &err), &err);
    assert_ok(rks_dataset_generations(test_directory, &numbers, &count, &err), &err);
    assert_int_equal(count, 1);
    assert_int_equal(numbers[0], 1);
    rks_free(numbers);
    expect_generation(0, 2, 19);
    expect_generation(2, 2, 19);
    expect_generation(1, 1, 8);
    rks_dataset *dataset = NULL;
    assert_fails(RKS_ERR_NOT_FOUND, rks_dataset_load_generation(test_directory, 3, &dataset, &err));
    assert_contains(err.text, "there is no generation 3");
    /* One that says that it is another one. */
    assert_ok(rks_file_replace(path_of("dataset.7.json"), first, size, &err), &err);
    assert_fails(RKS_ERR_CORRUPT, rks_dataset_load_generation(test_directory, 7, &dataset, &err));
    assert_contains(err.text, "dataset.7.json: holds generation 1");
    assert_ok(rks_file_replace(path_of("dataset.9.json"), first, size - 9, &err), &err);
    assert_fails(RKS_ERR_CORRUPT, rks_dataset_load_generation(test_directory, 9, &dataset, &err));
    /* Its list of excluded samples is away. */
    assert_int_equal(unlink(path_of(a.dataset.excluded.name)), 0);
    assert_true(rks_dataset_load_generation(test_directory, 1, &dataset, &err) != RKS_OK);
    assert_contains(err.text, a.dataset.excluded.name);
    /* What cannot be read is not written over. */
    assert_ok(rks_file_replace(path_of("dataset.json"), first, size - 1, &err), &err);
    joined->generation = 2;
    assert_fails(RKS_ERR_CORRUPT, rks_dataset_commit(test_directory, joined, &err));
    rks_dataset_free(joined);
    rks_free(first);
    rks_free(kept);
    directory_end();
    assert_int_equal(rks_memory_in_use(), held);
}

static void hostile_builds_and_generations_are_refused(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {"\"generation\":2", "\"generation\":-2"},
        {"\"generation\":2", "\"generation\":\"2\""},
        {"\"generation\":2", "\"generation\":9223372036854775808"},
        {"\"generation\":2", "\"generation\":2.0"},
        {"\"first_unit\":7", "\"first_unit\":-7"},
        {"\"first_unit\":7", "\"first_unit\":8"},
        {"\"first_unit\":7", "\"first_unit\":9223372036854775807"},
        {"\"first_unit\":7", "\"first_unit\":null"},
        {"\"build\":\"00000000000000070000000000000007\",\"first",
         "\"build\":\"0000000000000007000000000000000\",\"first"},
        {"\"build\":\"00000000000000070000000000000007\",\"first", "\"build\":7,\"first"},
        {"\"duplicates\":3", "\"duplicates\":4"},
        {"\"duplicates\":3", "\"duplicates\":-1"},
        {"\"runs\":1", "\"runs\":4"},
        {"\"runs\":1", "\"runs\":9223372036854775807"},
        {"\"excluded\":{\"name\":\"excluded-", "\"excluded\":{\"name\":\"../excluded-"},
        {"\"excluded\":{\"name\":\"", "\"excluded\":{\"nam\":\""},
        {"\"excluded\":{", "\"exclude\":{"},
    };
    rks_excluded_run runs[] = {{2, 3}};
    char *text = NULL;
    size_t size = 0;
    make_two();
    exclude(&a.dataset, runs, 1, 3);
    rks_dataset *joined = join(&a.dataset, &b.dataset);
    assert_ok(rks_dataset_encode(joined, &text, &size, &err), &err);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        char changed[8192], digits[RKS_DIGEST_TEXT];
        rks_dataset *dataset = NULL;
        const char *at = strstr(text, changes[i][0]);
        if (at == NULL)
            fail_msg("%s is not there", changes[i][0]);
        int length = snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text,
                              changes[i][1], at + strlen(changes[i][0]));
        memset(changed + length - 35, '0', 32);
        rks_digest_format(rks_checksum128(changed, (size_t)length), digits);
        memcpy(changed + length - 35, digits, 32);
        if (rks_dataset_decode(changed, (size_t)length, "d.json", &dataset, &err) !=
            RKS_ERR_CORRUPT)
            fail_msg("%s -> %s was taken", changes[i][0], changes[i][1]);
        assert_contains(err.text, "d.json");
    }
    rks_dataset_free(joined);
    rks_free(text);
}

static rks_status join_and_keep(void)
{
    rks_dataset *joined = NULL, *older = NULL;
    uint64_t *numbers = NULL;
    size_t count = 0;
    rks_status status = rks_dataset_join(&a.dataset, &b.dataset, &joined, &err);
    if (status == RKS_OK)
        status = rks_dataset_commit(test_directory, &a.dataset, &err);
    if (status == RKS_OK)
        status = rks_dataset_commit(test_directory, joined, &err);
    if (status == RKS_OK)
        status = rks_dataset_load_generation(test_directory, 1, &older, &err);
    if (status == RKS_OK)
        status = rks_dataset_generations(test_directory, &numbers, &count, &err);
    rks_free(numbers);
    rks_dataset_free(older);
    rks_dataset_free(joined);
    return status;
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    rks_excluded_run first[] = {{1, 2}, {9, 2}}, second[] = {{0, 1}, {4, 3}};
    make_two();
    exclude(&a.dataset, first, 2, 3);
    exclude(&b.dataset, second, 2, 1);
    directory_begin();
    rks_status status = RKS_ERR_MEMORY;
    long nth = 1;
    for (; status != RKS_OK; nth++) {
        assert_true(nth < 1000);
        rks_memory_fail_at(nth);
        status = join_and_keep();
        rks_memory_fail_at(0);
        assert_true(status == RKS_OK || status == RKS_ERR_MEMORY);
        assert_int_equal(rks_memory_in_use(), held);
    }
    print_message("%ld allocations\n", nth);
    assert_true(nth > 60);
    directory_end();
}

static int begin(void **state)
{
    (void)state;
    schema = schema_of("t:str,n:int64");
    held = rks_memory_in_use();
    return 0;
}

/* The schema is there all the time, and is no leak. */
static int no_schema(void **state)
{
    (void)state;
    rks_schema_free(schema);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_units_follow_and_shards_say_who_built_them),
        cmocka_unit_test(positions_of_the_second_ones_excluded_samples_move_behind),
        cmocka_unit_test(many_are_joined_at_once),
        cmocka_unit_test(what_cannot_be_joined_is_named),
        cmocka_unit_test(generations_stay_as_they_were_written),
        cmocka_unit_test(hostile_builds_and_generations_are_refused),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("generations", tests, begin, no_schema);
}
