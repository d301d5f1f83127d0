/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sources.c: several datasets opened as one: ids, columns, keys, and what does not fit. The
 * first is world.h's; the second has other columns and derived keys. */
#include "world.h"

enum { MORE = 23, TOGETHER = SAMPLES + MORE };

typedef struct job {
    char one[64], other[64];
    bool own_nodes;
    const char *schema; /* of the second dataset */
    rks_store_options options;
} job;

static const char MORE_SCHEMA[] = "label:int32,text:str,id:int64";

static rks_status make_more(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const job *j = user;
    rks_status status = RKS_OK;
    (void)unit;
    for (int64_t i = 0; status == RKS_OK && i < MORE; i++) {
        int32_t label = (int32_t)(100 + i);
        float wide = (float)i;
        const bool same = j->schema == MORE_SCHEMA;
        const rks_value values[] = {same ? (rks_value){.data = &label, .size = 4}
                                         : (rks_value){.data = &wide, .size = 4},
                                    {.data = "more text", .size = (uint64_t)(i % 9)},
                                    {.data = &i, .size = 8}};
        status = rows_add(sink, values, NULL, 0, err);
    }
    return status;
}

static void build_more(member *m)
{
    const job *j = m->user;
    const made_rows rows = {
        .make = make_more, .user = m->user, .units = 1, .name = "more", .one_name = true};
    rks_build_options options;
    if (!world_enter(m, false))
        return;
    world_build_options(&options);
    options.schema = j->schema;
    options.own_keys = false;
    EXPECT_OK(rows_build(m->group, j->other, &options, &rows, NULL, &m->err));
}

static void make(job *j, uint32_t ranks, const char *schema)
{
    *j = (job){.schema = schema};
    rks_store_options_default(&j->options);
    world_directory(j->one);
    world_directory(j->other);
    world_dataset(j->one, ranks, false);
    on_threads(1, build_more, j);
}

static void end(const job *j)
{
    world_remove(j->one);
    world_remove(j->other);
}

static rks_status open_two(member *m, const job *j, const char *const *names, rks_store **store)
{
    const char *const directories[] = {j->one, j->other};
    return rks_store_open_many(m->group, directories, names, 2, &j->options, store, &m->err);
}

/* ---- what comes ------------------------------------------------------------------------------ */

static void check_value(member *m, rks_batch *batch, size_t i, uint32_t column, const void *data,
                        uint64_t size)
{
    rks_value value = {0};
    EXPECT_OK(rks_batch_value(batch, i, column, &value, &m->err));
    EXPECT((value.data == NULL) == (data == NULL));
    EXPECT(value.size == size);
    if (data != NULL && value.data != NULL && size > 0)
        EXPECT(memcmp(value.data, data, size) == 0);
}

/* Samples of both, mixed; columns: id, text, vec?, label?. */
static void check_samples(member *m, rks_store *store)
{
    uint64_t ids[TOGETHER];
    rks_batch *batch = NULL;
    for (uint64_t i = 0; i < TOGETHER; i++)
        ids[i] = (i * 100 + m->rank * 17) % TOGETHER;
    EXPECT_OK(rks_store_fetch(store, ids, TOGETHER, &batch, &m->err));
    for (size_t i = 0; batch != NULL && i < TOGETHER && m->failures == 0; i++) {
        world_sample sample;
        int64_t id = (int64_t)ids[i] - SAMPLES;
        int32_t label = (int32_t)(100 + id);
        EXPECT(rks_store_source_of(store, ids[i]) == (ids[i] >= SAMPLES));
        if (ids[i] < SAMPLES) {
            EXPECT(world_is(batch, i, ids[i]));
            check_value(m, batch, i, 3, NULL, 0);
            continue;
        }
        world_make(0, &sample);
        check_value(m, batch, i, 0, &id, 8);
        check_value(m, batch, i, 1, "more text", (uint64_t)(id % 9));
        check_value(m, batch, i, 2, NULL, 0);
        check_value(m, batch, i, 3, &label, 4);
    }
    rks_batch_free(batch);
}

static void check_views(member *m, rks_store *store)
{
    rks_view *view = NULL;
    rks_value value;
    EXPECT_OK(rks_store_view(store, SAMPLES + 4, &view, &m->err));
    if (view != NULL) {
        EXPECT_OK(rks_view_value(view, 1, &value, &m->err));
        EXPECT(value.size == 4 && memcmp(value.data, "more", 4) == 0);
        EXPECT_OK(rks_view_value(view, 2, &value, &m->err));
        EXPECT(value.data == NULL);
    }
    rks_view_free(view);
}

/* Arrays of samples of both. */
static void check_arrays(member *m, rks_store *store)
{
    static const char *const names[] = {"label"};
    const uint64_t ids[] = {SAMPLES + 1, 0, SAMPLES};
    rks_collate_column column = {.column = names[0], .pad = -1};
    rks_collate_options options;
    rks_arrays *arrays = NULL;
    rks_collate_options_default(&options);
    options.columns = &column;
    options.column_count = 1;
    EXPECT_OK(rks_store_collate(store, ids, 3, &options, &arrays, &m->err));
    if (arrays != NULL) {
        const rks_array *array = rks_arrays_get(arrays, 0);
        const int32_t expected[] = {101, -1, 100};
        EXPECT(array != NULL && memcmp(array->data, expected, sizeof(expected)) == 0);
    }
    rks_arrays_free(arrays);
}

static void check_keys(member *m, rks_store *store)
{
    uint64_t id = 0;
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    rks_source source = {.struct_size = sizeof(source)};
    EXPECT_OK(rks_store_find(store, "key 00007", 9, &id, &m->err));
    EXPECT(id == 7);
    EXPECT_OK(rks_store_find(store, "more:22", 7, &id, &m->err));
    EXPECT(id == SAMPLES + 22);
    EXPECT_OK(rks_store_key(store, SAMPLES + 22, key, &size, &m->err));
    EXPECT(size == 7 && memcmp(key, "more:22", 7) == 0);
    EXPECT_OK(rks_store_find_in(store, 1, "more:3", 6, &id, &m->err));
    EXPECT(id == SAMPLES + 3);
    EXPECT(rks_store_find_in(store, 0, "more:3", 6, &id, &m->err) == RKS_ERR_NOT_FOUND);
    EXPECT(rks_store_find_in(store, 2, "more:3", 6, &id, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_store_sources(store) == 2);
    EXPECT_OK(rks_store_source(store, 1, &source, &m->err));
    EXPECT(strcmp(source.name, "more") == 0 && source.first == SAMPLES && source.count == MORE);
    EXPECT(rks_store_source_of(store, TOGETHER) == -1);
}

static void check_lengths(member *m, const rks_store *store)
{
    rks_source_length length = {.struct_size = sizeof(length)};
    EXPECT_OK(rks_store_source_length(store, 0, &length, &m->err));
    EXPECT(length.unit == 1 && !length.by_function && strcmp(length.name, "text") == 0);
    EXPECT_OK(rks_store_source_length(store, 1, &length, &m->err));
    EXPECT(length.unit == 1 && !length.by_function && strcmp(length.name, "text") == 0);
    EXPECT(rks_store_source_length(store, 2, &length, &m->err) == RKS_ERR_ARGUMENT);
}

static void open_both(member *m)
{
    static const char *const names[] = {"world", "more"};
    const job *j = m->user;
    rks_store *store = NULL;
    if (!world_enter(m, j->own_nodes))
        return;
    EXPECT_OK(open_two(m, j, names, &store));
    if (store != NULL) {
        const rks_schema *schema = rks_store_schema(store);
        const int64_t *ids = rks_store_column(store, "id", NULL);
        EXPECT(rks_store_count(store) == TOGETHER);
        EXPECT(strcmp(rks_schema_text(schema),
                      "{\"id\":\"int64\",\"text\":\"str\",\"vec\":\"float32[*]?\","
                      "\"label\":\"int32?\"}") == 0);
        EXPECT(ids != NULL && ids[SAMPLES - 1] == SAMPLES - 1 && ids[SAMPLES + 5] == 5);
        check_lengths(m, store);
        check_samples(m, store);
        check_views(m, store);
        check_arrays(m, store);
        check_keys(m, store);
    }
    rks_store_close(store, CLOSE_MS);
}

static void two_datasets_are_one(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        job j;
        make(&j, ranks, MORE_SCHEMA);
        for (int i = 0; i < 4; i++) {
            j.own_nodes = i % 2 == 1;
            j.options.no_share = i / 2 == 1;
            on_threads(ranks, open_both, &j);
        }
        end(&j);
    }
}

/* The same dataset twice: every key appears twice. */
static void open_twice(member *m)
{
    static const char *const names[] = {"a", "b"};
    const job *j = m->user;
    const char *const directories[] = {j->one, j->one};
    rks_store *store = NULL;
    uint64_t id = 0;
    if (!world_enter(m, false))
        return;
    EXPECT(rks_store_open_many(m->group, directories, NULL, 2, NULL, &store, &m->err) ==
           RKS_ERR_ARGUMENT);
    EXPECT_TEXT("two datasets are named");
    EXPECT_OK(rks_store_open_many(m->group, directories, names, 2, NULL, &store, &m->err));
    if (store != NULL) {
        EXPECT(rks_store_find(store, "key 00007", 9, &id, &m->err) == RKS_ERR_ARGUMENT);
        EXPECT_TEXT("several sources, a and b");
        EXPECT_OK(rks_store_find_in(store, 1, "key 00007", 9, &id, &m->err));
        EXPECT(id == SAMPLES + 7);
    }
    rks_store_close(store, CLOSE_MS);
}

static void a_key_of_two_sources_asks_for_the_source(void **state)
{
    (void)state;
    job j;
    make(&j, 1, MORE_SCHEMA);
    on_threads(2, open_twice, &j);
    end(&j);
}

/* ---- what does not fit ----------------------------------------------------------------------- */

static void open_unlike(member *m)
{
    static const char *const names[] = {"world", "more"};
    static const char *const asked[] = {"id", "text"}, *const unknown[] = {"id", "txt"};
    job j = *(const job *)m->user;
    rks_store *store = NULL;
    if (!world_enter(m, false))
        return;
    EXPECT(open_two(m, &j, names, &store) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("dataset more: column \"vec\" is float32, but float32[*] in dataset world");
    j.options.columns = unknown;
    j.options.column_count = 2;
    EXPECT(open_two(m, &j, names, &store) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("no dataset has a column \"txt\"");
    j.options.columns = m->rank == 0 ? asked : unknown;
    if (m->size > 1) {
        EXPECT(open_two(m, &j, names, &store) == RKS_ERR_ARGUMENT);
        EXPECT_TEXT("directories");
    }
    j.options.columns = asked;
    EXPECT_OK(open_two(m, &j, names, &store));
    if (store != NULL) {
        const uint64_t ids[] = {5, SAMPLES + 5};
        const int64_t five = 5;
        rks_batch *batch = NULL;
        EXPECT(rks_schema_columns(rks_store_schema(store)) == 2);
        EXPECT_OK(rks_store_fetch(store, ids, 2, &batch, &m->err));
        for (size_t i = 0; batch != NULL && i < 2; i++)
            check_value(m, batch, i, 0, &five, 8);
        rks_batch_free(batch);
    }
    rks_store_close(store, CLOSE_MS);
    store = NULL;
    EXPECT(rks_store_open_many(m->group, NULL, NULL, 0, NULL, &store, &m->err) == RKS_ERR_ARGUMENT);
    const char *const gone[] = {j.one, "/no/such/place"};
    EXPECT(rks_store_open_many(m->group, gone, NULL, 2, NULL, &store, &m->err) ==
           RKS_ERR_NOT_FOUND);
    EXPECT_TEXT("/no/such/place");
    EXPECT(store == NULL);
    EXPECT_OK(rks_group_agree(m->group, "after", RKS_OK, &m->err));
}

static void types_that_differ_name_dataset_and_column(void **state)
{
    (void)state;
    job j;
    make(&j, 1, "vec:float32,text:str,id:int64");
    on_threads(1, open_unlike, &j);
    on_threads(2, open_unlike, &j);
    end(&j);
}

/* ---- splits ------------------------------------------------------------------------------- */

static void count_parts(const uint16_t *part_of, size_t count, size_t sizes[3])
{
    memset(sizes, 0, 3 * sizeof(*sizes));
    for (size_t i = 0; i < count; i++)
        sizes[part_of[i]]++;
}

static void split_both(member *m)
{
    static const char *const names[] = {"world", "more"};
    const rks_split_part parts[] = {{"train", 0.7}, {"test", 0.2}, {"val", 0.1}};
    const rks_split_part turned[] = {{"val", 10}, {"train", 70}, {"test", 20}};
    const job *j = m->user;
    rks_store *store = NULL, *alone = NULL;
    uint16_t one[TOGETHER], other[TOGETHER], own[SAMPLES];
    size_t sizes[3];
    if (!world_enter(m, false))
        return;
    EXPECT_OK(open_two(m, j, names, &store));
    EXPECT_OK(rks_store_open(m->group, j->one, NULL, &alone, &m->err));
    if (store != NULL && alone != NULL) {
        EXPECT_OK(rks_store_split(store, parts, 3, 0, NULL, one, &m->err));
        EXPECT_OK(rks_store_split(alone, parts, 3, 0, NULL, own, &m->err));
        EXPECT(memcmp(one, own, sizeof(own)) == 0); /* whatever else is there */
        EXPECT_OK(rks_store_split(store, turned, 3, 0, NULL, other, &m->err));
        for (size_t i = 0; i < TOGETHER && m->failures == 0; i++)
            EXPECT(strcmp(parts[one[i]].name, turned[other[i]].name) == 0);
        count_parts(one, TOGETHER, sizes); /* 212, 61 and 30 are expected of 303 */
        EXPECT(sizes[0] > 170 && sizes[0] < 255 && sizes[1] > 25 && sizes[2] > 8);
        EXPECT_OK(rks_store_split(store, parts, 3, 1, NULL, other, &m->err));
        EXPECT(memcmp(one, other, sizeof(one)) != 0);
        EXPECT_OK(rks_store_split(store, parts, 3, 0, "id", one, &m->err));
        for (size_t i = 0; i < MORE; i++) /* ids 0..22 are in both */
            EXPECT(one[i] == one[SAMPLES + i]);
        EXPECT_OK(rks_store_split(store, parts, 3, 0, "label", one, &m->err));
        for (size_t i = 1; i < SAMPLES; i++) /* missing in all of the first */
            EXPECT(one[i] == one[0]);
        count_parts(one + SAMPLES, MORE, sizes);
        EXPECT(sizes[0] < MORE);
        const rks_split_part whole[] = {{"a", 0}, {"b", 1e300}, {"c", 1e-300}};
        EXPECT_OK(rks_store_split(store, whole, 3, 0, NULL, one, &m->err));
        count_parts(one, TOGETHER, sizes);
        EXPECT(sizes[1] == TOGETHER);
    }
    rks_store_close(alone, CLOSE_MS);
    rks_store_close(store, CLOSE_MS);
}

static void wrong_parts(member *m)
{
    static const double weights[] = {-1, 0.0 / 0.0, 1.0 / 0.0, 0};
    const job *j = m->user;
    rks_store *store = NULL;
    uint16_t part_of[SAMPLES];
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rks_store_open(m->group, j->one, NULL, &store, &m->err));
    for (size_t i = 0; store != NULL && i < 4; i++) {
        const rks_split_part part = {"a", weights[i]};
        EXPECT(rks_store_split(store, &part, 1, 0, NULL, part_of, &m->err) == RKS_ERR_ARGUMENT);
        EXPECT_TEXT("weight");
    }
    const rks_split_part twice[] = {{"a", 1}, {"a", 1}}, nameless = {NULL, 1};
    EXPECT(rks_store_split(store, twice, 2, 0, NULL, part_of, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("two parts are named a");
    EXPECT(rks_store_split(store, &nameless, 1, 0, NULL, part_of, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_store_split(store, twice, 0, 0, NULL, part_of, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_store_split(store, twice, 1, 0, "nope", part_of, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("no column \"nope\"");
    rks_store_close(store, CLOSE_MS);
}

static void a_sample_stays_in_its_part(void **state)
{
    (void)state;
    job j;
    make(&j, 2, MORE_SCHEMA);
    on_threads(1, split_both, &j);
    on_threads(2, split_both, &j);
    on_threads(1, wrong_parts, &j);
    end(&j);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void open_short_of_memory(member *m)
{
    const job *j = m->user;
    rks_status status = RKS_ERR_MEMORY;
    long nth = 1;
    if (!world_enter(m, false))
        return;
    for (; status != RKS_OK && nth < 2000 && m->failures == 0; nth++) {
        rks_store *store = NULL;
        rks_memory_fail_at(nth);
        status = open_two(m, j, NULL, &store);
        rks_memory_fail_at(0);
        EXPECT(status == RKS_OK || status == RKS_ERR_MEMORY);
        rks_store_close(store, CLOSE_MS);
    }
    EXPECT(status == RKS_OK && nth > 50);
}

static void opening_survives_each_failing_allocation(void **state)
{
    (void)state;
    job j;
    make(&j, 1, MORE_SCHEMA);
    on_threads(1, open_short_of_memory, &j);
    end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_datasets_are_one),
        cmocka_unit_test(a_key_of_two_sources_asks_for_the_source),
        cmocka_unit_test(types_that_differ_name_dataset_and_column),
        cmocka_unit_test(a_sample_stays_in_its_part),
        cmocka_unit_test(opening_survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("sources", tests, NULL, NULL);
}
