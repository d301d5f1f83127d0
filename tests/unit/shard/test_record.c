/* SPDX-License-Identifier: Apache-2.0
 *
 * test_record.c: the payload of a sample. */
#include "support/check.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "shard/record.h"

static rks_error err;

static rks_schema *schema_of(const char *text)
{
    rks_schema *schema = NULL;
    assert_ok(rks_schema_parse(text, &schema, &err), &err);
    return schema;
}

/* Encodes, decodes, compares; returns the payload. */
static rks_buffer round_trip(const char *text, const rks_value *values, uint32_t expected_align)
{
    rks_schema *schema = schema_of(text);
    rks_buffer payload = {0};
    uint32_t align = 0;
    uint64_t plain = 0, sum = 0;
    assert_ok(rks_record_encode(schema, values, &payload, &align, &plain, &err), &err);
    assert_int_equal(align, expected_align);
    rks_value decoded[16];
    /* exactly its bytes, so that a sanitizer sees a read after them */
    uint8_t *exact = malloc(payload.size);
    memcpy(exact, payload.data, payload.size);
    assert_ok(rks_record_decode(schema, exact, payload.size, decoded, &err), &err);
    for (uint32_t i = 0; i < rks_schema_columns(schema); i++) {
        const rks_column *column = rks_schema_column(schema, i);
        if (values[i].data == NULL) {
            assert_null(decoded[i].data);
            continue;
        }
        assert_int_equal(decoded[i].size, values[i].size);
        assert_non_null(decoded[i].data);
        assert_memory_equal(decoded[i].data, values[i].data, values[i].size);
        size_t offset = (size_t)((const uint8_t *)decoded[i].data - exact);
        assert_int_equal(offset % (values[i].size >= 4096 ? 64 : column->item_size), 0);
        sum += values[i].size;
    }
    assert_int_equal(plain, sum);
    free(exact);
    rks_schema_free(schema);
    return payload;
}

static void a_payload_has_these_bytes(void **state)
{
    (void)state;
    const int32_t ids[] = {1, -1, 7};
    const double score = 0.5;
    const rks_value values[] = {
        {"hey", 3, {0}}, {ids, sizeof(ids), {0}}, {NULL, 0, {0}}, {&score, 8, {0}}};
    rks_buffer payload = round_trip("t:str,ids:int32[*],n:int64?,s:float64?", values, 8);
    static const uint8_t golden[] = {
        3,    0,    0,    0,                      /* bytes of t */
        3,    0,    0,    0,                      /* dimension of ids */
        1,                                        /* n is missing, s is not */
        'h',  'e',  'y',                          /* t */
        1,    0,    0,    0,                      /* ids, at 12 */
        0xff, 0xff, 0xff, 0xff, 7, 0, 0,    0,    /* */
        0,    0,    0,    0,    0, 0, 0xe0, 0x3f, /* s, at 24 */
    };
    assert_int_equal(payload.size, sizeof(golden));
    assert_memory_equal(payload.data, golden, sizeof(golden));
    rks_buffer_free(&payload);
}

static void every_type_comes_back(void **state)
{
    (void)state;
    static const char *const items[] = {"bool",     "int8",          "int16",       "int32",
                                        "int64",    "uint8",         "uint16",      "uint32",
                                        "uint64",   "float16",       "float32",     "float64",
                                        "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64"};
    static const uint8_t bytes[2 * 3 * 5 * 8] = {1, 2, 3};
    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        char text[96];
        snprintf(text, sizeof(text), "s:%s,a:%s[*],b:%s[2,*,5],n:%s?", items[i], items[i], items[i],
                 items[i]);
        rks_schema *schema = schema_of(text);
        size_t item = rks_schema_column(schema, 0)->item_size;
        rks_schema_free(schema);
        const rks_value values[] = {{bytes, item, {0}},
                                    {bytes, 7 * item, {7}},
                                    {bytes, 30 * item, {2, 3, 5}},
                                    {NULL, 0, {0}}};
        rks_buffer payload = round_trip(text, values, 8);
        rks_buffer_free(&payload);
    }
    const rks_value blobs[] = {{"\0\xff", 2, {0}}, {"[1,2]", 5, {5}}, {"", 0, {0}}};
    rks_buffer payload = round_trip("b:bytes,j:json,s:str", blobs, 8);
    rks_buffer_free(&payload);
}

/* Picked columns are where decoding all of them finds them, in every cut of the schema. */
static void picked_columns_are_those_of_the_whole(void **state)
{
    (void)state;
    static const uint8_t bytes[5000] = {1, 2, 3};
    const rks_value values[] = {{bytes, 1, {0}}, {bytes, 24, {0}},   {bytes, 8, {0}},
                                {bytes, 5, {0}}, {NULL, 0, {0}},     {bytes, 24, {2, 3}},
                                {NULL, 0, {0}},  {bytes, 5000, {0}}, {bytes, 4, {0}}};
    rks_schema *schema = schema_of("a:bool,b:float64[3],c:int64?,d:str,e:str?,f:int32[*,*],"
                                   "g:int64?,h:bytes,i:int32");
    rks_buffer payload = {0};
    rks_value all[9], some[9];
    uint32_t align;
    uint64_t plain;
    assert_ok(rks_record_encode(schema, values, &payload, &align, &plain, &err), &err);
    assert_ok(rks_record_decode(schema, payload.data, payload.size, all, &err), &err);
    for (uint32_t first = 0; first < 9; first++) {
        for (uint32_t last = first; last < 9; last++) {
            const rks_record_pick pick = rks_record_pick_columns(schema, first, last);
            memset(some, 0xee, sizeof(some));
            assert_ok(rks_record_decode_picked(&pick, payload.data, payload.size, some, &err),
                      &err);
            assert_memory_equal(&some[first], &all[first], (last - first + 1) * sizeof(some[0]));
            assert_fails(RKS_ERR_CORRUPT, rks_record_decode_picked(&pick, payload.data,
                                                                   pick.prefix - 1, some, &err));
        }
    }
    rks_buffer_free(&payload);
    rks_schema_free(schema);
}

/* Columns are found by name, whatever their order; those that the records lack are missing. */
static void records_are_read_as_those_of_another_schema(void **state)
{
    (void)state;
    static const int32_t ids[] = {4, 5, 6};
    const int64_t number = 7;
    const rks_value values[] = {{"hey", 3, {0}}, {ids, 12, {0}}, {&number, 8, {0}}};
    rks_schema *own = schema_of("text:str,ids:int32[*],number:int64");
    rks_schema *as = schema_of("gone:float64?,number:int64?,text:str,label:str?");
    rks_buffer payload = {0};
    rks_record_fit fit;
    rks_value read[4];
    uint32_t align;
    uint64_t plain;
    assert_ok(rks_record_encode(own, values, &payload, &align, &plain, &err), &err);
    assert_ok(rks_record_fit_create(own, as, &fit, &err), &err);
    memset(read, 0xee, sizeof(read));
    assert_ok(rks_record_decode_fit(&fit, payload.data, payload.size, read, &err), &err);
    assert_null(read[0].data);
    assert_int_equal(read[1].size, 8);
    assert_memory_equal(read[1].data, &number, 8);
    assert_int_equal(read[2].size, 3);
    assert_memory_equal(read[2].data, "hey", 3);
    assert_null(read[3].data);
    for (size_t size = 0; size < payload.size; size++)
        assert_fails(RKS_ERR_CORRUPT, rks_record_decode_fit(&fit, payload.data, size, read, &err));
    rks_record_fit_free(&fit);
    rks_buffer_free(&payload);
    rks_schema_free(as);
    rks_schema_free(own);
}

static void dimensions_come_back(void **state)
{
    (void)state;
    static const uint8_t pixels[2 * 3 * 4];
    rks_schema *schema = schema_of("image:uint8[*,*,4],mel:float16[3,*],empty:int64[*,2]");
    const rks_value values[] = {{pixels, 24, {2, 3, 4}}, {pixels, 24, {0}}, {pixels, 0, {0, 2}}};
    rks_buffer payload = {0};
    rks_value decoded[3];
    uint32_t align;
    uint64_t plain;
    assert_ok(rks_record_encode(schema, values, &payload, &align, &plain, &err), &err);
    assert_ok(rks_record_decode(schema, payload.data, payload.size, decoded, &err), &err);
    assert_int_equal(decoded[0].dims[0], 2);
    assert_int_equal(decoded[0].dims[1], 3);
    assert_int_equal(decoded[0].dims[2], 4);
    assert_int_equal(decoded[0].dims[3], 0);
    assert_int_equal(decoded[1].dims[0], 3);
    assert_int_equal(decoded[1].dims[1], 4);
    assert_int_equal(decoded[2].dims[0], 0);
    assert_int_equal(decoded[2].dims[1], 2);
    assert_int_equal(decoded[2].size, 0);
    rks_buffer_free(&payload);
    rks_schema_free(schema);
}

static void a_column_of_4_kib_is_aligned_to_64(void **state)
{
    (void)state;
    static const uint8_t wide[4096] = {1};
    const rks_value values[] = {{"abc", 3, {0}}, {wide, 4096, {0}}, {wide, 4095, {0}}};
    rks_buffer payload = round_trip("t:str,w:uint8[*],n:bytes", values, 64);
    assert_int_equal(payload.size, 64 + 4096 + 4095);
    rks_buffer_free(&payload);
}

static void nine_nullable_columns_take_two_bytes(void **state)
{
    (void)state;
    rks_value values[9] = {{0}};
    const uint8_t one = 1;
    values[8] = (rks_value){&one, 1, {0}};
    rks_buffer payload = round_trip("a:int8?,b:int8?,c:int8?,d:int8?,e:int8?,f:int8?,g:int8?,"
                                    "h:int8?,i:int8?",
                                    values, 8);
    assert_int_equal(payload.size, 3);
    assert_int_equal(payload.data[0], 0xff);
    assert_int_equal(payload.data[1], 0);
    payload.data[1] = 2; /* a bit of no column */
    rks_schema *schema = schema_of("a:int8?,b:int8?,c:int8?,d:int8?,e:int8?,f:int8?,g:int8?,"
                                   "h:int8?,i:int8?");
    rks_value decoded[9];
    assert_fails(RKS_ERR_CORRUPT,
                 rks_record_decode(schema, payload.data, payload.size, decoded, &err));
    rks_schema_free(schema);
    rks_buffer_free(&payload);
}

static void a_value_that_does_not_fit_its_type_is_refused_naming_the_column(void **state)
{
    (void)state;
    static const uint8_t bytes[64];
    static const struct {
        const char *schema;
        rks_value value;
    } wrong[] = {
        {"col:int32", {NULL, 0, {0}}},
        {"col:int32", {bytes, 3, {0}}},
        {"col:int32", {bytes, 8, {0}}},
        {"col:int32[*]", {bytes, 6, {0}}},
        {"col:int32[*]", {bytes, 8, {3}}},
        {"col:int32[2]", {bytes, 8, {3}}},
        {"col:int32[2]", {bytes, 4, {0}}},
        {"col:int8[*,*]", {bytes, 6, {0}}},
        {"col:int8[*,*]", {bytes, 6, {2, 2}}},
        {"col:int8[2,*]", {bytes, 6, {3, 2}}},
        {"col:str", {"\xff", 1, {0}}},
        {"col:json", {"\xc0\x80", 2, {0}}},
        {"col:str", {"abc", 3, {2}}},
        {"col:str", {NULL, 0, {0}}},
        {"col:bytes", {bytes, UINT64_MAX, {0}}},
        {"col:int8[*,*]", {bytes, 0, {UINT32_MAX, UINT32_MAX}}},
        {"col:int64[*,*,*]", {bytes, 0, {UINT32_MAX, UINT32_MAX, 3}}},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        rks_schema *schema = schema_of(wrong[i].schema);
        rks_buffer payload = {0};
        uint32_t align = 77;
        uint64_t plain = 77;
        assert_fails(RKS_ERR_DATA,
                     rks_record_encode(schema, &wrong[i].value, &payload, &align, &plain, &err));
        assert_contains(err.text, "\"col\"");
        assert_int_equal(payload.size, 0);
        assert_int_equal(align, 77);
        rks_schema_free(schema);
    }
}

static void every_truncation_and_extension_of_a_payload_is_refused(void **state)
{
    (void)state;
    const int32_t ids[] = {1, -1, 7};
    const rks_value values[] = {{"hey", 3, {0}}, {ids, sizeof(ids), {0}}, {NULL, 0, {0}}};
    const char *text = "t:str,ids:int32[*],n:int64?";
    rks_buffer payload = round_trip(text, values, 8);
    rks_schema *schema = schema_of(text);
    for (size_t size = 0; size <= payload.size + 8; size++) {
        rks_value decoded[3];
        uint8_t *exact = calloc(1, size + 1);
        memcpy(exact, payload.data, size < payload.size ? size : payload.size);
        if (size != payload.size)
            assert_fails(RKS_ERR_CORRUPT, rks_record_decode(schema, exact, size, decoded, &err));
        free(exact);
    }
    rks_schema_free(schema);
    rks_buffer_free(&payload);
}

static void flipped_bits_never_point_out_of_the_payload(void **state)
{
    (void)state;
    const int32_t ids[] = {1, -1, 7};
    const rks_value values[] = {
        {"hey", 3, {0}}, {ids, sizeof(ids), {0}}, {"abc", 3, {0}}, {ids, 12, {1, 3}}};
    const char *text = "t:str,ids:int32[*],n:bytes?,m:int32[*,*]";
    rks_buffer payload = round_trip(text, values, 8);
    rks_schema *schema = schema_of(text);
    for (size_t bit = 0; bit < 8 * payload.size; bit++) {
        rks_value decoded[4];
        uint8_t *damaged = malloc(payload.size);
        memcpy(damaged, payload.data, payload.size);
        damaged[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (rks_record_decode(schema, damaged, payload.size, decoded, &err) == RKS_OK)
            for (size_t i = 0; i < 4; i++)
                if (decoded[i].data != NULL) {
                    const uint8_t *begin = decoded[i].data;
                    assert_true(begin >= damaged && begin <= damaged + payload.size);
                    assert_true(decoded[i].size <= (size_t)(damaged + payload.size - begin));
                }
        free(damaged);
    }
    rks_schema_free(schema);
    rks_buffer_free(&payload);
}

static void survives_a_failing_allocation(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("t:str");
    const rks_value value = {"hey", 3, {0}};
    rks_buffer payload = {0};
    uint32_t align;
    uint64_t plain;
    rks_memory_fail_at(1);
    assert_fails(RKS_ERR_MEMORY, rks_record_encode(schema, &value, &payload, &align, &plain, &err));
    rks_memory_fail_at(0);
    rks_buffer_free(&payload);
    rks_schema_free(schema);
    assert_int_equal(rks_memory_in_use(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_payload_has_these_bytes),
        cmocka_unit_test(every_type_comes_back),
        cmocka_unit_test(picked_columns_are_those_of_the_whole),
        cmocka_unit_test(records_are_read_as_those_of_another_schema),
        cmocka_unit_test(dimensions_come_back),
        cmocka_unit_test(a_column_of_4_kib_is_aligned_to_64),
        cmocka_unit_test(nine_nullable_columns_take_two_bytes),
        cmocka_unit_test(a_value_that_does_not_fit_its_type_is_refused_naming_the_column),
        cmocka_unit_test(every_truncation_and_extension_of_a_payload_is_refused),
        cmocka_unit_test(flipped_bits_never_point_out_of_the_payload),
        cmocka_unit_test(survives_a_failing_allocation),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
