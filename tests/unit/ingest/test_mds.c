/* SPDX-License-Identifier: Apache-2.0
 *
 * test_mds.c: directories of MDS shards: plain and compressed, and indexes and places that lie. */
#include "built.h"
#include "packed.h"

/* Samples of {"n": int, "s": str}: fixed sizes stand in no sample. */
static const char *const TEXTS[] = {"one", "", "three"};
enum { SAMPLES = 3 };

static void put(rks_buffer *to, uint64_t value, size_t size)
{
    uint8_t bytes[8];
    rks_store_u64(bytes, value);
    assert_ok(rks_buffer_add(to, bytes, size, &err), &err);
}

static void make_shard(rks_buffer *shard)
{
    uint64_t place = 4 * (SAMPLES + 2) + 2;
    shard->size = 0;
    put(shard, SAMPLES, 4);
    for (int i = 0; i <= SAMPLES; i++) {
        put(shard, place, 4);
        place += i < SAMPLES ? 12 + strlen(TEXTS[i]) : 0;
    }
    put(shard, '{' | '}' << 8, 2);
    for (int i = 0; i < SAMPLES; i++) {
        put(shard, strlen(TEXTS[i]), 4);
        put(shard, (uint64_t)-i, 8);
        assert_ok(rks_buffer_add(shard, TEXTS[i], strlen(TEXTS[i]), &err), &err);
    }
}

static const char SHARD[] =
    "{\"format\": \"mds\", \"samples\": 3, \"column_names\": [\"n\", \"s\"], "
    "\"column_encodings\": [\"int\", \"str\"], \"column_sizes\": [8, null], "
    "\"raw_data\": {\"basename\": \"%s\", \"bytes\": %zu}, \"zip_data\": %s}";

/* The folder, with as many equal shards; `kind` is a place in PACKED_ENDINGS, -1: plain. */
static const char *make_folder(const rks_buffer *shard, size_t bytes, int kind, size_t count)
{
    rks_buffer index = {0};
    char name[64], zip[128] = "null";
    rks_buffer_print(&index, &err, "{\"version\": 2, \"shards\": [");
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "d/shard.%zu.mds%s", i, kind < 0 ? "" : PACKED_ENDINGS[kind]);
        if (kind < 0)
            scratch_bytes(name, shard->data, shard->size);
        else
            packed_file(name, kind, shard->data, shard->size);
        if (kind >= 0)
            snprintf(zip, sizeof(zip), "{\"basename\": \"%s\"}", name + 2);
        snprintf(name, sizeof(name), "shard.%zu.mds", i);
        rks_buffer_print(&index, &err, i == 0 ? "" : ",");
        rks_buffer_print(&index, &err, SHARD, name, bytes, zip);
    }
    rks_buffer_print(&index, &err, "]}");
    scratch_bytes("d/index.json", index.data, index.size);
    rks_buffer_free(&index);
    return scratch_path("d");
}

static int setup(void **state)
{
    scratch_open(state);
    return mkdir(scratch_path("d"), 0700);
}

static void check(const built *out, size_t shards)
{
    assert_int_equal(out->samples, shards * SAMPLES);
    for (uint64_t row = 0; row < out->samples; row++) {
        rks_record_view view;
        rks_value values[2];
        int64_t number = -(int64_t)(row % SAMPLES);
        assert_ok(rks_shard_locate(out->shard, row, &view, &err), &err);
        assert_ok(rks_record_decode(rks_shard_schema(out->shard), view.payload, view.payload_size,
                                    values, &err),
                  &err);
        assert_memory_equal(values[0].data, &number, 8);
        assert_int_equal(values[1].size, strlen(TEXTS[row % SAMPLES]));
        assert_memory_equal(values[1].data, TEXTS[row % SAMPLES], values[1].size);
    }
}

static void shards_are_units_plain_and_compressed(void **state)
{
    (void)state;
    rks_buffer shard = {0};
    make_shard(&shard);
    for (int kind = -1; kind < PACKED_KINDS; kind++) {
        rks_ingest_options options = {0};
        built out;
        assert_ok(build(make_folder(&shard, shard.size, kind, 5), &options, &out), &err);
        assert_string_equal(rks_schema_text(rks_shard_schema(out.shard)),
                            "{\"n\":\"int64\",\"s\":\"str\"}");
        check(&out, 5);
        done(&out);
        scratch_close(NULL);
        setup(NULL);
    }
    rks_buffer_free(&shard);
    assert_int_equal(rks_memory_in_use(), 0);
}

/* What an index says is kept from the first look at it: it may change, or go. */
static void the_index_is_read_once(void **state)
{
    (void)state;
    rks_buffer shard = {0};
    rks_input *input = NULL;
    rks_ingest_options options = {0};
    uint64_t rows = 0;
    make_shard(&shard);
    const char *folder = make_folder(&shard, shard.size, -1, 4);
    assert_ok(rks_input_open(&folder, 1, &options, &input, &err), &err);
    assert_int_equal(unlink(scratch_path("d/index.json")), 0);
    for (size_t unit = 0; unit < input->unit_count; unit++) {
        assert_ok(rks_unit_count_rows(input, unit, &rows, &err), &err);
        assert_int_equal(rows, SAMPLES);
    }
    assert_int_equal(input->unit_count, 4);
    rks_input_free(input);
    rks_buffer_free(&shard);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void places_and_sizes_that_lie_are_refused(void **state)
{
    (void)state;
    const struct {
        size_t at;
        uint32_t value;
        const char *says;
        bool row; /* is to blame */
    } lies[] = {
        {0, UINT32_MAX, "4294967295 samples, index.json says 3", false},
        {0, 2, "2 samples, index.json says 3", false},
        {4, 0, "not in order", false},
        {8, UINT32_MAX, "not in order", false},
        {16, UINT32_MAX, "not in order", false},
        {16, 21, "not in order", false},
        {22, UINT32_MAX, "row 0: column \"s\" ends after the sample", true},
        {22, 4, "row 0: column \"s\" ends after the sample", true},
        {22, 2, "row 0: 1 bytes after the last column", true},
    };
    rks_buffer shard = {0};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        rks_ingest_options options = {0};
        built out;
        make_shard(&shard);
        rks_store_u32(shard.data + lies[i].at, lies[i].value);
        const char *folder = make_folder(&shard, shard.size, -1, 1);
        assert_fails(RKS_ERR_DATA, build(folder, &options, &out));
        assert_contains(err.text, lies[i].says);
        done(&out);
        options.skip_bad = true;
        assert_int_equal(build(folder, &options, &out), lies[i].row ? RKS_OK : RKS_ERR_DATA);
        assert_int_equal(out.bad, lies[i].row);
        done(&out);
    }
    rks_buffer_free(&shard);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void cut_shards_are_refused_wherever_they_are_cut(void **state)
{
    (void)state;
    rks_buffer shard = {0};
    rks_ingest_options options = {.skip_bad = true};
    built out;
    make_shard(&shard);
    size_t whole = shard.size;
    for (size_t cut = 1; cut < whole; cut++) {
        shard.size = cut;
        rks_status status = build(make_folder(&shard, whole, -1, 1), &options, &out);
        if (status != RKS_ERR_DATA)
            fail_msg("cut at %zu: %d", cut, (int)status);
        done(&out);
    }
    shard.size = whole;
    assert_fails(RKS_ERR_DATA, build(make_folder(&shard, whole - 1, -1, 1), &options, &out));
    done(&out);
    rks_buffer_free(&shard);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void indexes_that_lie_are_refused(void **state)
{
    (void)state;
    static const char *const lies[][2] = {
        {"\"version\": 2", "\"version\": 1"},
        {"\"format\": \"mds\"", "\"format\": \"csv\""},
        {"\"samples\": 3", "\"samples\": -1"},
        {"\"samples\": 3", "\"samples\": \"3\""},
        {"\"basename\": \"", "\"basename\": \"../"},
        {"\"basename\": \"", "\"basename\": \"/"},
        {"\"basename\": \"shard.0.mds\"", "\"basename\": 3"},
        {"\"bytes\": ", "\"bytes\": -"},
        {"\"bytes\": ", "\"bytes\": 9"},
        {"[8, null]", "[8]"},
        {"[8, null]", "[-8, null]"},
        {"[8, null]", "[9223372036854775807, null]"},
        {"[8, null]", "[8, 1e3]"},
        {"\"int\"", "\"pkl\""},
        {"\"int\"", "7"},
        {"[\"n\", \"s\"]", "[\"n\", \"n\"]"},
        {"[\"n\", \"s\"]", "[\"n\", 1]"},
        {"\"shards\": [", "\"shards\": [7,"},
        {"\"shards\": [", "\"shards\": [{},"},
        {"]}", "]"},
    };
    rks_buffer shard = {0};
    char text[2048], changed[2048];
    make_shard(&shard);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        rks_ingest_options options = {.format = "mds"};
        built out;
        const char *folder = make_folder(&shard, shard.size, -1, 1);
        FILE *file = fopen(scratch_path("d/index.json"), "rb");
        size_t size = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
        text[size] = '\0';
        const char *at = strstr(text, lies[i][0]);
        assert_non_null(at);
        snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, lies[i][1],
                 at + strlen(lies[i][0]));
        scratch_file("d/index.json", changed);
        rks_status status = build(folder, &options, &out);
        if (status != RKS_ERR_DATA)
            fail_msg("%s: %d %s", lies[i][1], (int)status, err.text);
        done(&out);
    }
    rks_buffer_free(&shard);
    assert_int_equal(rks_memory_in_use(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_units_plain_and_compressed),
        cmocka_unit_test(the_index_is_read_once),
        cmocka_unit_test(places_and_sizes_that_lie_are_refused),
        cmocka_unit_test(cut_shards_are_refused_wherever_they_are_cut),
        cmocka_unit_test(indexes_that_lie_are_refused),
    };
    return cmocka_run_group_tests_name("mds", tests, setup, scratch_close);
}
