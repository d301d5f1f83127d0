/* SPDX-License-Identifier: Apache-2.0
 *
 * test_dataset.c: dataset.json, the dataset's id, parts in a directory. */
#include "dataset_fixture.h"

static char *encode_fixture(void)
{
    fixture f;
    char *text = NULL;
    size_t size = 0;
    rks_schema *schema = schema_of("t:str,n:int64");
    good_fixture(&f, schema);
    assert_ok(rks_dataset_encode(&f.dataset, &text, &size, &err), &err);
    char *copy = strndup(text, size);
    rks_free(text);
    rks_schema_free(schema);
    return copy;
}

static void dataset_json_has_these_bytes(void **state)
{
    (void)state;
    static const char golden[] =
        "{\"format\":{\"major\":1,\"minor\":0},\"requires\":[],"
        "\"dataset\":\"50d121802bc82712e379043fe518b476\","
        "\"build\":\"00000000000000040000000000000003\",\"samples\":11,\"derived_keys\":true,"
        "\"schema\":{\"t\":\"str\",\"n\":\"int64\"},\"index\":[\"n\"],"
        "\"options\":{\"where\":\"n > 3\",\"b\":[1]},\"shards\":[\n"
        "{\"name\":\"part-1\",\"id\":\"00000000000000010000000000000001\","
        "\"manifest\":\"000000000000000d000000000000000c\",\"samples\":3,\"bytes\":30,"
        "\"file_bytes\":8000,\"largest\":41},\n"
        "{\"name\":\"part-0\",\"id\":\"00000000000000090000000000000009\","
        "\"manifest\":\"000000000000000b000000000000000a\",\"samples\":8,\"bytes\":80,"
        "\"file_bytes\":9000,\"largest\":40}],\"units\":[\n"
        "{\"unit\":0,\"shard\":1,\"first_row\":3,\"samples\":5,\"seen\":5,\"filtered\":0,"
        "\"bad\":0,\"bytes\":50,\"first_source_row\":0,"
        "\"digest\":\"00000000000000020000000000000001\",\"key_name\":\"a\"},\n"
        "{\"unit\":1,\"shard\":0,\"first_row\":0,\"samples\":3,\"seen\":4,\"filtered\":1,"
        "\"bad\":0,\"bytes\":30,\"first_source_row\":0,"
        "\"digest\":\"00000000000000040000000000000003\",\"key_name\":\"b/\xc3\xa4\"},\n"
        "{\"unit\":5,\"shard\":1,\"first_row\":0,\"samples\":3,\"seen\":3,\"filtered\":0,"
        "\"bad\":0,\"bytes\":30,\"first_source_row\":77,"
        "\"digest\":\"00000000000000060000000000000005\",\"key_name_hex\":\"63ff\"},\n"
        "{\"unit\":6,\"shard\":1,\"first_row\":3,\"samples\":0,\"seen\":2,\"filtered\":0,"
        "\"bad\":2,\"bytes\":0,\"first_source_row\":0,"
        "\"digest\":\"00000000000000080000000000000007\",\"key_name\":\"d\\\"\\\\\\u0001\"}],"
        "\"digest\":\"e06f9924ab9e13ad2dd507b1544f231a\"}\n";
    char *text = encode_fixture();
    assert_string_equal(text, golden);
    free(text);
}

/* Four of the 11 samples do not count. */
static void exclude_some(rks_dataset *dataset)
{
    dataset->excluded = (rks_excluded){.name = "excluded-1.runs",
                                       .samples = 4,
                                       .bytes = 40,
                                       .duplicates = 3,
                                       .run_count = 2,
                                       .digest = {21, 22}};
    dataset->count = 7;
    dataset->id = rks_dataset_id(dataset);
}

static void excluded_samples_are_a_feature_that_readers_must_know(void **state)
{
    (void)state;
    fixture f;
    char *text = NULL;
    size_t size = 0;
    rks_dataset *dataset = NULL;
    rks_schema *schema = schema_of("t:str,n:int64");
    good_fixture(&f, schema);
    rks_digest plain = f.dataset.id;
    exclude_some(&f.dataset);
    assert_false(rks_digest_equal(plain, f.dataset.id));
    assert_ok(rks_dataset_encode(&f.dataset, &text, &size, &err), &err);
    assert_contains(text, "\"requires\":[\"excluded\"],");
    assert_contains(text, "\"samples\":7,");
    assert_contains(text, "\"excluded\":{\"name\":\"excluded-1.runs\",\"samples\":4,\"bytes\":40,"
                          "\"duplicates\":3,\"runs\":2,"
                          "\"digest\":\"00000000000000160000000000000015\"}");
    assert_ok(rks_dataset_decode(text, size, "d", &dataset, &err), &err);
    assert_int_equal(dataset->count, 7);
    assert_int_equal(rks_dataset_stored(dataset), 11);
    assert_string_equal(dataset->excluded.name, "excluded-1.runs");
    assert_int_equal(dataset->excluded.duplicates, 3);
    assert_int_equal(dataset->excluded.run_count, 2);
    rks_dataset_free(dataset);
    rks_free(text);
    rks_schema_free(schema);
}

static void excluded_samples_that_cannot_be_are_refused(void **state)
{
    (void)state;
    const struct {
        uint64_t samples, runs, duplicates;
        const char *name;
    } cases[] = {{4, 0, 0, "x"},    {4, 5, 0, "x"},          {4, 9, 0, "x"},
                 {4, 2, 5, "x"},    {0, 1, 0, "x"},          {5, 2, 0, "x"},
                 {4, 2, 0, "../x"}, {UINT64_MAX, 2, 0, "x"}, {4, UINT64_MAX, 0, "x"}};
    rks_schema *schema = schema_of("t:str,n:int64");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        char *text = NULL;
        size_t size = 0;
        good_fixture(&f, schema);
        exclude_some(&f.dataset);
        rks_excluded *excluded = &f.dataset.excluded;
        excluded->samples = cases[i].samples;
        excluded->run_count = cases[i].runs;
        excluded->duplicates = cases[i].duplicates;
        snprintf(excluded->name, sizeof(excluded->name), "%s", cases[i].name);
        f.dataset.id = rks_dataset_id(&f.dataset);
        assert_fails(rks_dataset_encode(&f.dataset, &text, &size, &err), RKS_ERR_ARGUMENT);
    }
    rks_schema_free(schema);
}

static void a_dataset_comes_back_and_encodes_alike(void **state)
{
    (void)state;
    char *text = encode_fixture(), *again = NULL;
    size_t size = 0;
    rks_dataset *dataset = NULL;
    assert_ok(rks_dataset_decode(text, strlen(text), "d", &dataset, &err), &err);
    assert_int_equal(dataset->count, 11);
    assert_int_equal(dataset->shard_count, 2);
    assert_string_equal(dataset->shards[0].name, "part-1");
    assert_int_equal(dataset->shards[1].largest, 40);
    assert_int_equal(dataset->units[2].shard, 1);
    assert_int_equal(dataset->units[2].summary.first_source_row, 77);
    assert_string_equal(dataset->units[2].key_name, "c\xff");
    assert_string_equal(dataset->units[3].key_name, "d\"\\\x01");
    assert_int_equal(dataset->units[3].summary.bad, 2);
    assert_string_equal(dataset->index[0], "n");
    assert_true(dataset->derived_keys);
    assert_ok(rks_dataset_encode(dataset, &again, &size, &err), &err);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(again, text, size);
    rks_free(again);
    rks_dataset_free(dataset);
    free(text);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void the_order_of_shards_does_not_matter(void **state)
{
    (void)state;
    fixture f;
    char *text = encode_fixture(), *other = NULL;
    size_t size = 0;
    rks_schema *schema = schema_of("t:str,n:int64");
    good_fixture(&f, schema);
    rks_dataset_shard first = f.shards[0];
    f.shards[0] = f.shards[1];
    f.shards[1] = first;
    for (size_t i = 0; i < 4; i++)
        f.units[i].shard ^= 1;
    assert_ok(rks_dataset_encode(&f.dataset, &other, &size, &err), &err);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(other, text, size);
    rks_free(other);
    rks_schema_free(schema);
    free(text);
}

static void a_copy_is_the_same_dataset_with_shards_by_id(void **state)
{
    (void)state;
    fixture f;
    rks_excluded_run run = {1, 2};
    rks_status status = RKS_ERR_MEMORY;
    rks_schema *schema = schema_of("t:str,n:int64");
    good_fixture(&f, schema);
    f.shards[0].build = (rks_digest){5, 6};
    f.shards[0].list = 1;
    f.dataset.excluded =
        (rks_excluded){.samples = 2, .runs = &run, .run_count = 1, .duplicates = 1};
    strcpy(f.dataset.excluded.name, "excluded-1");
    f.dataset.count -= 2;
    f.dataset.generation = 3;
    f.dataset.unit_size = 4096;
    strcpy(f.dataset.made_from, "files");
    f.dataset.id = rks_dataset_id(&f.dataset);
    long before = rks_memory_in_use();
    for (long nth = 1; status != RKS_OK; nth++) {
        rks_dataset *copy = NULL;
        char *one = NULL, *other = NULL;
        size_t size = 0, other_size = 0;
        rks_memory_fail_at(nth);
        status = rks_dataset_copy(&f.dataset, &copy, &err);
        rks_memory_fail_at(0);
        assert_true(status == RKS_OK || status == RKS_ERR_MEMORY);
        if (status == RKS_OK) {
            assert_ok(rks_dataset_encode(&f.dataset, &one, &size, &err), &err);
            assert_ok(rks_dataset_encode(copy, &other, &other_size, &err), &err);
            assert_string_equal(other, one);
            assert_int_equal(copy->shards[0].id.low, 1);
            assert_int_equal(copy->shards[1].list, 0);
            assert_memory_equal(copy->excluded.runs, &run, sizeof(run));
        }
        rks_free(one);
        rks_free(other);
        rks_dataset_free(copy);
        assert_int_equal(rks_memory_in_use(), before);
        assert_true(nth < 200);
    }
    rks_dataset *none = NULL;
    f.dataset.id.low++;
    assert_fails(RKS_ERR_ARGUMENT, rks_dataset_copy(&f.dataset, &none, &err));
    assert_null(none);
    rks_schema_free(schema);
}

static void the_id_is_of_contents_alone(void **state)
{
    (void)state;
    fixture f;
    rks_schema *schema = schema_of("t:str,n:int64"), *renamed = schema_of("t:str,m:int64");
    good_fixture(&f, schema);
    rks_digest id = f.dataset.id;
    for (size_t i = 0; i < 4; i++)
        f.units[i].shard = 7;
    f.units[0].first_row = 99;
    f.units[0].summary.seen = 99;
    assert_true(rks_digest_equal(id, rks_dataset_fold(f.units, 4, schema)));
    assert_false(rks_digest_equal(id, rks_dataset_fold(f.units, 4, renamed)));
    assert_false(rks_digest_equal(id, rks_dataset_fold(f.units, 3, schema)));
    f.units[3].summary.samples++;
    assert_false(rks_digest_equal(id, rks_dataset_fold(f.units, 4, schema)));
    f.units[3].summary.samples--;
    f.units[3].summary.digest.high++;
    assert_false(rks_digest_equal(id, rks_dataset_fold(f.units, 4, schema)));
    rks_schema_free(schema);
    rks_schema_free(renamed);
}

static void parts_that_do_not_fit_together_are_not_encoded(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("t:str,n:int64");
    for (int breach = 0; breach < 13; breach++) {
        fixture f;
        char *text = NULL;
        size_t size = 0;
        good_fixture(&f, schema);
        switch (breach) {
        case 0:
            f.dataset.count++;
            break;
        case 1:
            f.units[1].summary.unit = 0;
            break;
        case 2:
            f.units[1].shard = 2;
            break;
        case 3:
            f.units[0].first_row = 2;
            break;
        case 4:
            f.shards[0].bytes++;
            break;
        case 5:
            f.shards[1].id = f.shards[0].id;
            break;
        case 6:
            f.units[0].key_name = NULL;
            break;
        case 7:
            f.index[0] = (char *)"t";
            break;
        case 8:
            f.dataset.build_options = (char *)"[1]";
            break;
        case 9:
            strcpy(f.shards[0].name, "../x");
            break;
        case 10:
            f.shards[0].samples = f.dataset.count = UINT64_C(1) << 32;
            break;
        case 11:
            strcpy(f.shards[0].name, f.shards[1].name);
            break;
        default:
            f.dataset.id.low++;
        }
        if (rks_dataset_encode(&f.dataset, &text, &size, &err) != RKS_ERR_ARGUMENT)
            fail_msg("breach %d was taken", breach);
        assert_null(text);
    }
    rks_schema_free(schema);
}

static rks_status decode_changed(const char *good, const char *from, const char *to)
{
    rks_dataset *dataset = NULL;
    char text[8192], digits[RKS_DIGEST_TEXT];
    const char *at = strstr(good, from);
    if (at == NULL)
        fail_msg("%s is not there", from);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    size_t size = strlen(text);
    memset(text + size - 35, '0', 32);
    rks_digest_format(rks_checksum128(text, size), digits);
    memcpy(text + size - 35, digits, 32);
    rks_status status = rks_dataset_decode(text, size, "d.json", &dataset, &err);
    rks_dataset_free(dataset);
    return status;
}

static void hostile_fields_are_refused(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {"\"samples\":11", "\"samples\":12"},
        {"\"samples\":11", "\"samples\":-11"},
        {"\"name\":\"part-1\"", "\"name\":\"../part-1\""},
        {"\"name\":\"part-1\"", "\"name\":\".part-1\""},
        {"\"name\":\"part-1\"", "\"name\":\"\""},
        {"\"name\":\"part-1\"", "\"name\":\"a\\nb\""},
        {"\"name\":\"part-1\"", "\"name\":7"},
        {"\"name\":\"part-1\"", "\"name\":\"part-0\""},
        {"\"id\":\"00000000000000010", "\"id\":\"000000000000000a0"},
        {"\"samples\":3,\"bytes\":30,\"file", "\"samples\":4294967296,\"bytes\":30,\"file"},
        {"\"samples\":3,\"bytes\":30,\"file",
         "\"samples\":9223372036854775807,\"bytes\":30,\"file"},
        {"\"unit\":5", "\"unit\":1"},
        {"\"unit\":5,\"shard\":1", "\"unit\":5,\"shard\":2"},
        {"\"unit\":5,\"shard\":1", "\"unit\":5,\"shard\":4294967297"},
        {"\"unit\":5,\"shard\":1,\"first_row\":0", "\"unit\":5,\"shard\":1,\"first_row\":1"},
        {"\"samples\":5,\"seen\"", "\"samples\":6,\"seen\""},
        {"\"samples\":5,\"seen\"", "\"samples\":9223372036854775807,\"seen\""},
        {"\"bytes\":50", "\"bytes\":9223372036854775807"},
        {"\"digest\":\"00000000000000020", "\"digest\":\"00000000000000030"},
        {"\"key_name\":\"a\"", "\"key_nam\":\"a\""},
        {"\"key_name_hex\":\"63ff\"", "\"key_name_hex\":\"63f\""},
        {"\"key_name_hex\":\"63ff\"", "\"key_name_hex\":\"63fg\""},
        {"\"key_name_hex\":\"63ff\"", "\"key_name_hex\":\"\""},
        {"\"index\":[\"n\"]", "\"index\":[\"t\"]"},
        {"\"index\":[\"n\"]", "\"index\":[1]"},
        {"\"options\":{", "\"option\":{"},
        {"\"n\":\"int64\"", "\"n\":\"int32\""}, /* another schema: another id */
        {"\"units\":[", "\"units\":[3,"},
        {"\"shards\":[", "\"shards\":[3,"},
    };
    char *good = encode_fixture();
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        if (decode_changed(good, changes[i][0], changes[i][1]) != RKS_ERR_CORRUPT)
            fail_msg("%s -> %s was taken", changes[i][0], changes[i][1]);
        assert_contains(err.text, "d.json");
    }
    assert_ok(decode_changed(good, "\"options\":{", "\"new\":3,\"options\":{"), &err);
    assert_fails(RKS_ERR_UNSUPPORTED, decode_changed(good, "\"major\":1", "\"major\":3"));
    assert_fails(RKS_ERR_UNSUPPORTED, decode_changed(good, "requires\":[", "requires\":[\"x\""));
    free(good);
}

static void every_truncation_and_flipped_bit_is_refused(void **state)
{
    (void)state;
    char *text = encode_fixture();
    size_t size = strlen(text);
    for (size_t cut = 0; cut < size; cut++) {
        rks_dataset *dataset = NULL;
        assert_fails(RKS_ERR_CORRUPT, rks_dataset_decode(text, cut, "d", &dataset, &err));
    }
    for (size_t bit = 0; bit < 8 * size; bit++) {
        rks_dataset *dataset = NULL;
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        assert_true(rks_dataset_decode(text, size, "d", &dataset, &err) != RKS_OK);
        assert_null(dataset);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
    free(text);
}

static void a_committed_dataset_is_loaded_and_an_unfinished_one_named(void **state)
{
    (void)state;
    fixture f;
    rks_dataset *dataset = NULL;
    rks_schema *schema = schema_of("t:str,n:int64");
    good_fixture(&f, schema);
    directory_begin();
    assert_fails(RKS_ERR_NOT_FOUND, rks_dataset_load(path_of("none"), &dataset, &err));
    assert_fails(RKS_ERR_NOT_FOUND, rks_dataset_load(test_directory, &dataset, &err));
    assert_contains(err.text, "no dataset here");
    assert_ok(rks_file_replace(path_of("part-0.rks"), "x", 1, &err), &err);
    assert_fails(RKS_ERR_NOT_FOUND, rks_dataset_load(test_directory, &dataset, &err));
    assert_contains(err.text, "build not finished (1 part, no ");
    assert_ok(rks_dataset_commit(test_directory, &f.dataset, &err), &err);
    assert_ok(rks_dataset_load(test_directory, &dataset, &err), &err);
    assert_true(rks_digest_equal(dataset->id, f.dataset.id));
    rks_dataset_free(dataset);
    directory_end();
    rks_schema_free(schema);
}

static void parts_are_listed_sorted(void **state)
{
    (void)state;
    static const char *const files[] = {"b.rks",  "a.rks",   "a.json", "c.sums", ".rks",
                                        ".h.rks", "a.rks.1", "c.rks",  "d.rks"};
    char **names = NULL;
    size_t count = 0;
    directory_begin();
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        assert_ok(rks_file_replace(path_of(files[i]), "", 0, &err), &err);
    assert_ok(rks_dataset_parts(test_directory, &names, &count, &err), &err);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(names[i][0], 'a' + (int)i);
    rks_dataset_parts_free(names, count);
    assert_fails(RKS_ERR_NOT_FOUND, rks_dataset_parts(path_of("none"), &names, &count, &err));
    unlink(path_of(".rks"));
    unlink(path_of(".h.rks"));
    directory_end();
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    char *text = encode_fixture();
    rks_status status = RKS_ERR_MEMORY;
    for (long nth = 1; status != RKS_OK; nth++) {
        rks_dataset *dataset = NULL;
        char *again = NULL;
        size_t size = 0;
        rks_memory_fail_at(nth);
        status = rks_dataset_decode(text, strlen(text), "d", &dataset, &err);
        if (status == RKS_OK)
            status = rks_dataset_encode(dataset, &again, &size, &err);
        rks_memory_fail_at(0);
        if (status != RKS_OK)
            assert_int_equal(status, RKS_ERR_MEMORY);
        rks_free(again);
        rks_dataset_free(dataset);
        assert_int_equal(rks_memory_in_use(), 0);
        assert_true(nth < 200);
    }
    free(text);
}

static rks_digest digest_of(const rks_dataset *dataset)
{
    rks_digest digest;
    assert_ok(rks_dataset_digest(dataset, &digest, &err), &err);
    return digest;
}

/* Each number of a part is another one, bit by bit; then what it was. */
static void check_numbers(const rks_dataset *whole, void *part, size_t size)
{
    rks_digest before = digest_of(whole);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        ((uint8_t *)part)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(rks_digest_equal(digest_of(whole), before));
        ((uint8_t *)part)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(rks_digest_equal(digest_of(whole), before));
}

static void check_pointer(const rks_dataset *whole, char **text)
{
    char other[300], *was = *text;
    rks_digest before = digest_of(whole);
    snprintf(other, sizeof(other), "%s ", was);
    *text = other;
    assert_false(rks_digest_equal(digest_of(whole), before));
    *text = was;
}

static void check_every_field(rks_dataset *dataset)
{
    check_numbers(dataset, &dataset->id, sizeof(dataset->id));
    check_numbers(dataset, &dataset->build_id, sizeof(dataset->build_id));
    check_numbers(dataset, &dataset->count, sizeof(dataset->count));
    check_numbers(dataset, &dataset->unit_size, sizeof(dataset->unit_size));
    check_numbers(dataset, &dataset->made_from[1], 1);
    dataset->generation = 8;
    check_numbers(dataset, &dataset->generation, sizeof(dataset->generation));
    check_numbers(dataset, &dataset->revision, sizeof(dataset->revision));
    check_pointer(dataset, &dataset->index[0]);
    check_pointer(dataset, &dataset->build_options);
    check_numbers(dataset, &dataset->excluded.name[1], 1);
    check_numbers(dataset, &dataset->excluded.bytes, sizeof(uint64_t));
    check_numbers(dataset, &dataset->excluded.duplicates, sizeof(uint64_t));
    check_numbers(dataset, &dataset->excluded.run_count, sizeof(uint64_t));
    check_numbers(dataset, &dataset->excluded.digest, sizeof(rks_digest));
    for (size_t i = 0; i < dataset->shard_count; i++) {
        rks_dataset_shard *shard = &dataset->shards[i];
        check_numbers(dataset, &shard->id, sizeof(shard->id));
        check_numbers(dataset, &shard->manifest, sizeof(shard->manifest));
        check_numbers(dataset, &shard->name[1], 1);
        check_numbers(dataset, &shard->samples, sizeof(shard->samples));
        check_numbers(dataset, &shard->bytes, sizeof(shard->bytes));
        check_numbers(dataset, &shard->file_bytes, sizeof(shard->file_bytes));
        check_numbers(dataset, &shard->largest, sizeof(shard->largest));
        check_numbers(dataset, &shard->build, sizeof(shard->build));
        check_numbers(dataset, &shard->first_unit, sizeof(shard->first_unit));
    }
    for (size_t i = 0; i < dataset->unit_count; i++) {
        rks_dataset_unit *unit = &dataset->units[i];
        check_numbers(dataset, &unit->summary, sizeof(unit->summary));
        check_numbers(dataset, &unit->shard, sizeof(unit->shard));
        check_numbers(dataset, &unit->first_row, sizeof(unit->first_row));
        check_pointer(dataset, (char **)(uintptr_t)&unit->key_name);
    }
}

static void the_digest_is_of_every_field_and_of_nothing_else(void **state)
{
    (void)state;
    fixture f;
    char *text = NULL;
    size_t size = 0;
    rks_dataset *one = NULL, *other = NULL;
    rks_schema *schema = schema_of("t:str,n:int64");
    good_fixture(&f, schema);
    exclude_some(&f.dataset);
    strcpy(f.dataset.made_from, "words");
    assert_ok(rks_dataset_encode(&f.dataset, &text, &size, &err), &err);
    assert_ok(rks_dataset_decode(text, size, "d", &one, &err), &err);
    assert_ok(rks_dataset_decode(text, size, "e", &other, &err), &err);
    other->generation = 1; /* as 0 */
    other->shards[0].list = 2;
    assert_true(rks_digest_equal(digest_of(one), digest_of(other)));
    rks_digest digest = digest_of(one);
    other->derived_keys = false;
    assert_false(rks_digest_equal(digest_of(other), digest));
    other->derived_keys = true;
    other->excluded.samples = 0;
    assert_false(rks_digest_equal(digest_of(other), digest));
    rks_dataset_free(other);
    check_every_field(one);
    rks_schema *wider = schema_of("t:str,n:int64,m:int64"), *own = one->schema;
    one->schema = wider;
    digest = digest_of(one);
    one->schema = own;
    assert_false(rks_digest_equal(digest_of(one), digest));
    rks_memory_fail_at(1);
    assert_int_equal(rks_dataset_digest(one, &digest, &err), RKS_ERR_MEMORY);
    rks_memory_fail_at(0);
    rks_dataset_free(one);
    rks_schema_free(wider);
    rks_free(text);
    rks_schema_free(schema);
}

static void an_empty_dataset_is_one(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("t:str");
    rks_dataset empty = {.schema = schema, .id = rks_dataset_fold(NULL, 0, schema)};
    rks_dataset *dataset = NULL;
    char *text = NULL;
    size_t size = 0;
    assert_ok(rks_dataset_encode(&empty, &text, &size, &err), &err);
    assert_ok(rks_dataset_decode(text, size, "d", &dataset, &err), &err);
    assert_int_equal(dataset->count, 0);
    rks_dataset_free(dataset);
    rks_free(text);
    rks_schema_free(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dataset_json_has_these_bytes),
        cmocka_unit_test(excluded_samples_are_a_feature_that_readers_must_know),
        cmocka_unit_test(excluded_samples_that_cannot_be_are_refused),
        cmocka_unit_test(a_dataset_comes_back_and_encodes_alike),
        cmocka_unit_test(the_order_of_shards_does_not_matter),
        cmocka_unit_test(a_copy_is_the_same_dataset_with_shards_by_id),
        cmocka_unit_test(the_id_is_of_contents_alone),
        cmocka_unit_test(parts_that_do_not_fit_together_are_not_encoded),
        cmocka_unit_test(hostile_fields_are_refused),
        cmocka_unit_test(every_truncation_and_flipped_bit_is_refused),
        cmocka_unit_test(a_committed_dataset_is_loaded_and_an_unfinished_one_named),
        cmocka_unit_test(parts_are_listed_sorted),
        cmocka_unit_test(survives_each_failing_allocation),
        cmocka_unit_test(the_digest_is_of_every_field_and_of_nothing_else),
        cmocka_unit_test(an_empty_dataset_is_one),
    };
    return cmocka_run_group_tests_name("dataset", tests, NULL, NULL);
}
