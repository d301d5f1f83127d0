/* SPDX-License-Identifier: Apache-2.0
 *
 * test_manifest.c: manifests, unit lists and sums. */
#include "shard_fixture.h"

static rks_segment segments[] = {
    {RKS_SEGMENT_LENGTHS, 0, 0, 3, 8208, 12, 0x0123456789abcdef},
    {RKS_SEGMENT_KEY_HASHES, 0, 0, 3, 16400, 24, 2},
    {RKS_SEGMENT_LOCATORS, 0, 0, 3, 24592, 20, 3},
    {RKS_SEGMENT_COLUMN, 1, 0, 3, 32784, 24, 4},
    {RKS_SEGMENT_UNITS, 0, 0, 1, 40976, 96, 5},
};
static uint32_t index_columns[] = {1};

static rks_manifest good_manifest(rks_schema *schema)
{
    return (rks_manifest){.shard_id = {1, 2},
                          .build_id = {3, 4},
                          .file_size = 49152,
                          .page_size = 4096,
                          .head = {5, 6},
                          .main_page = 45056,
                          .main = {10, 9},
                          .sums = {7, 8},
                          .samples = 3,
                          .bytes = 99,
                          .largest = 64,
                          .schema = schema,
                          .index = index_columns,
                          .index_count = 1,
                          .unit_count = 1,
                          .segments = segments,
                          .segment_count = 5};
}

static void encode_good(char **text, size_t *size)
{
    rks_schema *schema = schema_of("t:str,n:int64");
    rks_manifest manifest = good_manifest(schema);
    assert_ok(rks_manifest_encode(&manifest, text, size, NULL, &err), &err);
    rks_schema_free(schema);
}

#define GOLDEN_DIGEST "8c4b2e9b31a9ade0fe234cada26178ad"
static const char GOLDEN[] =
    "{\"format\":{\"major\":1,\"minor\":0},\"requires\":[\"shard_in_blocks\",\"shard_in_main\"],"
    "\"shard\":\"00000000000000020000000000000001\","
    "\"build\":\"00000000000000040000000000000003\",\"file_size\":49152,\"page_size\":4096,"
    "\"head\":\"00000000000000060000000000000005\","
    "\"sums\":\"00000000000000080000000000000007\",\"samples\":3,\"bytes\":99,\"largest\":64,"
    "\"units\":1,\"derived_keys\":false,\"schema\":{\"t\":\"str\",\"n\":\"int64\"},"
    "\"index\":[\"n\"],\"main\":[45056,\"0000000000000009000000000000000a\"],\"segments\":[\n"
    "[\"lengths\",0,3,8208,12,\"0123456789abcdef\"],\n"
    "[\"key_hashes\",0,3,16400,24,\"0000000000000002\"],\n"
    "[\"locators\",0,3,24592,20,\"0000000000000003\"],\n"
    "[\"column\",0,3,32784,24,\"0000000000000004\",\"n\"],\n"
    "[\"units\",0,1,40976,96,\"0000000000000005\"]],"
    "\"digest\":\"" GOLDEN_DIGEST "\"}\n";

static void a_manifest_has_these_bytes(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    encode_good(&text, &size);
    char *copy = strndup(text, size);
    assert_string_equal(copy, GOLDEN);
    free(copy);
    rks_free(text);
}

static void a_manifest_comes_back(void **state)
{
    (void)state;
    rks_manifest *manifest = NULL;
    assert_ok(rks_manifest_decode(GOLDEN, strlen(GOLDEN), "x.json", &manifest, &err), &err);
    assert_int_equal(manifest->shard_id.high, 2);
    assert_int_equal(manifest->build_id.low, 3);
    assert_int_equal(manifest->sums.low, 7);
    assert_int_equal(manifest->head.high, 6);
    assert_int_equal(manifest->file_size, 49152);
    assert_int_equal(manifest->page_size, 4096);
    assert_int_equal(manifest->samples, 3);
    assert_int_equal(manifest->bytes, 99);
    assert_int_equal(manifest->largest, 64);
    assert_int_equal(manifest->index_count, 1);
    assert_int_equal(manifest->index[0], 1);
    assert_int_equal(manifest->main_page, 45056);
    assert_int_equal(manifest->main.high, 9);
    assert_int_equal(manifest->segment_count, 5);
    assert_memory_equal(manifest->segments, segments, sizeof(segments));
    char digits[RKS_DIGEST_TEXT];
    rks_digest_format(manifest->digest, digits);
    assert_string_equal(digits, GOLDEN_DIGEST);
    rks_manifest_free(manifest);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    for (size_t size = 0; size < strlen(GOLDEN); size++) {
        rks_manifest *manifest = NULL;
        char *exact = malloc(size + 1);
        memcpy(exact, GOLDEN, size);
        assert_fails(RKS_ERR_CORRUPT, rks_manifest_decode(exact, size, "x.json", &manifest, &err));
        assert_contains(err.text, "x.json");
        assert_null(manifest);
        free(exact);
    }
}

static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    char damaged[sizeof(GOLDEN)];
    for (size_t bit = 0; bit < 8 * strlen(GOLDEN); bit++) {
        rks_manifest *manifest = NULL;
        memcpy(damaged, GOLDEN, sizeof(GOLDEN));
        damaged[bit / 8] = (char)(damaged[bit / 8] ^ 1 << bit % 8);
        assert_true(rks_manifest_decode(damaged, strlen(GOLDEN), "x.json", &manifest, &err) !=
                    RKS_OK);
        assert_true(err.status == RKS_ERR_CORRUPT || err.status == RKS_ERR_UNSUPPORTED);
        assert_null(manifest);
    }
}

/* Replaces a part and makes the digest right again: what a hostile writer would do. */
static rks_status decode_changed(const char *from, const char *to)
{
    rks_manifest *manifest = NULL;
    char text[2 * sizeof(GOLDEN)], digits[RKS_DIGEST_TEXT];
    const char *at = strstr(GOLDEN, from);
    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - GOLDEN), GOLDEN, to, at + strlen(from));
    size_t size = strlen(text);
    memset(text + size - 35, '0', 32);
    rks_digest_format(rks_checksum128(text, size), digits);
    memcpy(text + size - 35, digits, 32);
    rks_status status = rks_manifest_decode(text, size, "x.json", &manifest, &err);
    rks_manifest_free(manifest);
    return status;
}

static void hostile_numbers_are_refused(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        {"\"page_size\":4096", "\"page_size\":0"},
        {"\"page_size\":4096", "\"page_size\":4097"},
        {"\"page_size\":4096", "\"page_size\":131072"},
        {"\"page_size\":4096", "\"page_size\":-4096"},
        {"\"file_size\":49152", "\"file_size\":8191"},
        {"\"file_size\":49152", "\"file_size\":41000"},
        {"\"samples\":3", "\"samples\":4"},
        {"\"samples\":3", "\"samples\":9223372036854775807"},
        {"\"samples\":3", "\"samples\":3.0"},
        {"\"samples\":3", "\"samples\":\"3\""},
        {"\"units\":1", "\"units\":2"},
        {"\"units\":1", "\"units\":0"},
        {"\"largest\":64", "\"largest\":64000"},
        {"[\"lengths\",0,3,8208,12", "[\"lengths\",0,3,8208,13"},
        {"[\"lengths\",0,3,8208,12", "[\"lengths\",1,3,8208,12"},
        {"[\"lengths\",0,3,8208,12", "[\"lengths\",0,2,8208,8"},
        {"[\"lengths\",0,3,8208,12", "[\"lengths\",0,3,8209,12"},
        {"[\"lengths\",0,3,8208,12", "[\"lengths\",0,3,49144,12"},
        {"[\"lengths\",0,3,8208,12", "[\"lengths\",0,3,9223372036854775800,12"},
        {"[\"lengths\",0,3,8208,12", "[\"lengths\",0,3,8208,9223372036854775807"},
        {"[\"lengths\",0,3,8208,12", "[\"depths\",0,3,8208,12"},
        {"\"0123456789abcdef\"", "\"0123456789abcdeg\""},
        {"\"0123456789abcdef\"", "1"},
        {"96,\"0000000000000005\"]", "88,\"0000000000000005\"]"},
        {",\"n\"],", ",\"m\"],"},
        {",\"n\"],", "],"},
        {"\"index\":[\"n\"]", "\"index\":[]"},
        {"\"index\":[\"n\"]", "\"index\":[\"t\"]"},
        {"\"index\":[\"n\"]", "\"index\":[3]"},
        {"\"index\":[\"n\"]", "\"index\":[\"n\",\"n\"]"},
        {"\"t\":\"str\"", "\"t\":\"string\""},
        {"\"derived_keys\":false", "\"derived_keys\":0"},
        {"\"shard\":\"0", "\"shard\":\"x"},
        {"\"segments\":[\n", "\"segments\":[[],\n"},
        {"\"samples\":3,", ""},
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        if (decode_changed(changes[i][0], changes[i][1]) != RKS_ERR_CORRUPT)
            fail_msg("%s -> %s was taken", changes[i][0], changes[i][1]);
        assert_contains(err.text, "x.json");
    }
}

static void other_formats_and_features_are_named_and_other_fields_ignored(void **state)
{
    (void)state;
    assert_fails(RKS_ERR_UNSUPPORTED, decode_changed("\"major\":1", "\"major\":2"));
    assert_contains(err.text, "2.0");
    assert_fails(RKS_ERR_UNSUPPORTED, decode_changed("\"requires\":[", "\"requires\":[\"zstd\","));
    assert_contains(err.text, "zstd");
    assert_ok(decode_changed("\"minor\":0", "\"minor\":7"), &err);
    assert_ok(decode_changed("\"shard\":", "\"colour\":{\"a\":[1]},\"shard\":"), &err);
}

#define NAMES "\"requires\":[\"shard_in_blocks\",\"shard_in_main\"]"

/* Earlier versions wrote shards whose blocks or main database do not name them. */
static void an_earlier_version_s_shard_is_refused_with_both_versions(void **state)
{
    (void)state;
    assert_fails(RKS_ERR_UNSUPPORTED, decode_changed(NAMES, "\"requires\":[]"));
    assert_string_equal(err.text,
                        "x.json: an earlier version's shard, 1.0 without \"shard_in_blocks\"; this "
                        "version reads 1.0 with it: build again");
    assert_fails(RKS_ERR_UNSUPPORTED, decode_changed(NAMES, "\"requires\":[\"shard_in_main\"]"));
    assert_contains(err.text, "1.0 without \"shard_in_blocks\"");
    assert_fails(RKS_ERR_UNSUPPORTED, decode_changed(NAMES, "\"requires\":[\"shard_in_blocks\"]"));
    assert_contains(err.text, "1.0 without \"shard_in_main\"");
}

static void what_names_the_shard_is_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"[0,\"0000000000000009000000000000000a\"]",
                                      "[4096,\"0000000000000009000000000000000a\"]",
                                      "[8200,\"0000000000000009000000000000000a\"]",
                                      "[49152,\"0000000000000009000000000000000a\"]",
                                      "[-8192,\"0000000000000009000000000000000a\"]",
                                      "[8192,\"9\"]",
                                      "[8192]",
                                      "8192",
                                      "[9223372036854771712,\"0000000000000009000000000000000a\"]"};
    static const char good[] = "\"main\":[45056,\"0000000000000009000000000000000a\"]";
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char to[200];
        snprintf(to, sizeof(to), "\"main\":%s", bad[i]);
        if (decode_changed(good, to) != RKS_ERR_CORRUPT)
            fail_msg("%s was taken", bad[i]);
        assert_contains(err.text, "x.json");
    }
    assert_fails(RKS_ERR_CORRUPT, decode_changed(good, "\"other\":1"));
}

static void a_manifest_above_1_mib_is_refused(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("t:str,n:int64");
    rks_manifest manifest = good_manifest(schema);
    char *text = NULL;
    size_t size = 0;
    manifest.segment_count = 40000;
    manifest.segments = calloc(manifest.segment_count, sizeof(rks_segment));
    assert_fails(RKS_ERR_DATA, rks_manifest_encode(&manifest, &text, &size, NULL, &err));
    assert_null(text);
    free(manifest.segments);
    rks_schema_free(schema);
    text = calloc(1, RKS_MANIFEST_MAX + 2);
    memset(text, ' ', RKS_MANIFEST_MAX + 1);
    rks_manifest *decoded = NULL;
    assert_fails(RKS_ERR_CORRUPT,
                 rks_manifest_decode(text, RKS_MANIFEST_MAX + 1, "x.json", &decoded, &err));
    free(text);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    rks_status status = RKS_ERR_MEMORY;
    for (long nth = 1; status != RKS_OK; nth++) {
        rks_manifest *manifest = NULL;
        char *text = NULL;
        size_t size = 0;
        rks_memory_fail_at(nth);
        status = rks_manifest_decode(GOLDEN, strlen(GOLDEN), "x.json", &manifest, &err);
        if (status == RKS_OK)
            status = rks_manifest_encode(manifest, &text, &size, NULL, &err);
        rks_memory_fail_at(0);
        if (status != RKS_OK)
            assert_int_equal(status, RKS_ERR_MEMORY);
        rks_free(text);
        rks_manifest_free(manifest);
        assert_int_equal(rks_memory_in_use(), 0);
        assert_true(nth < 200);
    }
}

static rks_buffer good_units(void)
{
    rks_buffer bytes = {0};
    rks_unit_summary first = {.unit = 4,
                              .seen = 9,
                              .samples = 5,
                              .filtered = 3,
                              .bad = 1,
                              .bytes = 70,
                              .first_source_row = 12,
                              .digest = {21, 22}};
    rks_unit_summary second = {.unit = 2, .samples = 6, .bytes = 29};
    assert_ok(rks_unit_encode(&first, 0, 8, "a/b", &bytes, &err), &err);
    assert_ok(rks_unit_encode(&second, 5, 9, NULL, &bytes, &err), &err);
    return bytes;
}

static void a_unit_has_these_bytes(void **state)
{
    (void)state;
    rks_buffer bytes = good_units();
    static const uint64_t numbers[] = {4, 0, 5, 9, 3, 1, 70, 12, 21, 22, 8, 3, 0x622f61};
    assert_int_equal(bytes.size, sizeof(numbers) + 96);
    assert_memory_equal(bytes.data, numbers, sizeof(numbers));
    rks_buffer_free(&bytes);
}

static void a_unit_list_comes_back_and_damage_is_refused(void **state)
{
    (void)state;
    rks_buffer bytes = good_units();
    rks_unit_list list = {0};
    assert_ok(rks_unit_list_decode(bytes.data, bytes.size, &(rks_unit_totals){2, 11, 99}, "f",
                                   &list, &err),
              &err);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.first_rows[1], 5);
    assert_string_equal(list.key_names[0], "a/b");
    assert_null(list.key_names[1]);
    assert_int_equal(list.summaries[0].bad, 1);
    assert_int_equal(list.summaries[0].digest.high, 22);
    rks_unit_list_free(&list);
    assert_fails(RKS_ERR_CORRUPT,
                 rks_unit_list_decode(bytes.data, bytes.size, &(rks_unit_totals){2, 12, 99}, "f",
                                      &list, &err));
    assert_fails(RKS_ERR_CORRUPT,
                 rks_unit_list_decode(bytes.data, bytes.size, &(rks_unit_totals){2, 11, 98}, "f",
                                      &list, &err));
    assert_fails(RKS_ERR_CORRUPT,
                 rks_unit_list_decode(bytes.data, bytes.size, &(rks_unit_totals){1, 11, 99}, "f",
                                      &list, &err));
    assert_fails(RKS_ERR_CORRUPT,
                 rks_unit_list_decode(bytes.data, bytes.size, &(rks_unit_totals){3, 11, 99}, "f",
                                      &list, &err));
    for (size_t size = 0; size < bytes.size; size++) {
        uint8_t *exact = malloc(size + 1);
        memcpy(exact, bytes.data, size);
        assert_fails(
            RKS_ERR_CORRUPT,
            rks_unit_list_decode(exact, size, &(rks_unit_totals){2, 11, 99}, "f", &list, &err));
        free(exact);
    }
    /* flips may go unseen here (the segment has a check), but never make harm */
    for (size_t bit = 0; bit < 8 * bytes.size; bit++) {
        bytes.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        rks_unit_list_decode(bytes.data, bytes.size, &(rks_unit_totals){2, 11, 99}, "f", &list,
                             &err);
        rks_unit_list_free(&list);
        bytes.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    rks_buffer_free(&bytes);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void sums_are_those_of_each_mib(void **state)
{
    (void)state;
    directory_begin();
    size_t size = RKS_SUMS_CHUNK + 5;
    char *bytes = malloc(size);
    memset(bytes, 'x', size);
    assert_ok(rks_file_replace(path_of("a.rks"), bytes, size, &err), &err);
    rks_digest digest, *sums = NULL;
    assert_ok(rks_sums_write(path_of("a.rks"), size, path_of("a.sums"), 1, &digest, &err), &err);
    assert_ok(rks_sums_load(path_of("a.sums"), size, digest, &sums, &err), &err);
    assert_true(rks_digest_equal(sums[0], rks_checksum128(bytes, RKS_SUMS_CHUNK)));
    assert_true(rks_digest_equal(sums[1], rks_checksum128(bytes, 5)));
    rks_free(sums);
    assert_fails(RKS_ERR_CORRUPT,
                 rks_sums_load(path_of("a.sums"), size + RKS_SUMS_CHUNK, digest, &sums, &err));
    digest.low++;
    assert_fails(RKS_ERR_CORRUPT, rks_sums_load(path_of("a.sums"), size, digest, &sums, &err));
    assert_fails(RKS_ERR_IO,
                 rks_sums_write(path_of("a.rks"), size + 1, path_of("a.sums"), 1, &digest, &err));
    assert_ok(rks_file_replace(path_of("a.rks"), "", 0, &err), &err);
    assert_ok(rks_sums_write(path_of("a.rks"), 0, path_of("a.sums"), 1, &digest, &err), &err);
    assert_ok(rks_sums_load(path_of("a.sums"), 0, digest, &sums, &err), &err);
    rks_free(sums);
    free(bytes);
    directory_end();
}

static void any_number_of_threads_makes_the_same_sums(void **state)
{
    (void)state;
    directory_begin();
    size_t size = 70 * (size_t)RKS_SUMS_CHUNK + 5;
    uint8_t *bytes = malloc(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 4099);
    assert_ok(rks_file_replace(path_of("a.rks"), bytes, size, &err), &err);
    free(bytes);
    rks_digest first = {0}, digest;
    for (uint32_t threads = 0; threads <= 9; threads++) {
        assert_ok(rks_sums_write(path_of("a.rks"), size, path_of("a.sums"), threads, &digest, &err),
                  &err);
        first = threads == 0 ? digest : first;
        assert_true(rks_digest_equal(digest, first));
    }
    for (long nth = 1; nth <= 5; nth++) { /* a chunk each, and the sums */
        rks_memory_fail_at(nth);
        rks_status status =
            rks_sums_write(path_of("a.rks"), size, path_of("a.sums"), 4, &digest, &err);
        rks_memory_fail_at(0);
        assert_true(status == RKS_ERR_MEMORY || status == RKS_OK); /* more than are asked for */
        assert_true(nth > 2 || status == RKS_ERR_MEMORY);
    }
    assert_int_equal(rks_memory_in_use(), 0);
    directory_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_has_these_bytes),
        cmocka_unit_test(a_manifest_comes_back),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(hostile_numbers_are_refused),
        cmocka_unit_test(other_formats_and_features_are_named_and_other_fields_ignored),
        cmocka_unit_test(an_earlier_version_s_shard_is_refused_with_both_versions),
        cmocka_unit_test(what_names_the_shard_is_checked),
        cmocka_unit_test(a_manifest_above_1_mib_is_refused),
        cmocka_unit_test(survives_each_failing_allocation),
        cmocka_unit_test(a_unit_has_these_bytes),
        cmocka_unit_test(a_unit_list_comes_back_and_damage_is_refused),
        cmocka_unit_test(sums_are_those_of_each_mib),
        cmocka_unit_test(any_number_of_threads_makes_the_same_sums),
    };
    return cmocka_run_group_tests_name("manifest", tests, NULL, NULL);
}
