/* SPDX-License-Identifier: Apache-2.0
 *
 * test_collate_options.c: which types go into which, exactly; what is refused and by which words.
 */
#include "base/cpu_features.h"
#include "collate/item.h"
#include "samples.h"

#include <math.h>

static const char *const TYPES[] = {"bool",     "int8",          "int16",       "int32",
                                    "int64",    "uint8",         "uint16",      "uint32",
                                    "uint64",   "float16",       "float32",     "float64",
                                    "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64"};
enum { TYPE_COUNT = sizeof(TYPES) / sizeof(TYPES[0]) };

static rks_error err;

/* ---- a reference by definition --------------------------------------------------------------- */

typedef struct type {
    bool is_float, is_signed;
    int bits;               /* integers: of the magnitude */
    int exponent, mantissa; /* floats */
    size_t size;
} type;

static type describe(const char *name)
{
    static const struct {
        const char *name;
        type type;
    } all[] = {
        {"bool", {false, false, 1, 0, 0, 1}},      {"int8", {false, true, 7, 0, 0, 1}},
        {"int16", {false, true, 15, 0, 0, 2}},     {"int32", {false, true, 31, 0, 0, 4}},
        {"int64", {false, true, 63, 0, 0, 8}},     {"uint8", {false, false, 8, 0, 0, 1}},
        {"uint16", {false, false, 16, 0, 0, 2}},   {"uint32", {false, false, 32, 0, 0, 4}},
        {"uint64", {false, false, 64, 0, 0, 8}},   {"float16", {true, true, 0, 5, 10, 2}},
        {"bfloat16", {true, true, 0, 8, 7, 2}},    {"float8_e4m3fn", {true, true, 0, 4, 3, 1}},
        {"float8_e5m2", {true, true, 0, 5, 2, 1}}, {"float32", {true, true, 0, 8, 23, 4}},
        {"float64", {true, true, 0, 11, 52, 8}},   {"complex64", {true, true, 0, 0, 0, 8}},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].type;
    fail();
    return all[0].type;
}

static bool holds(const char *from_name, const char *to_name)
{
    type from = describe(from_name), to = describe(to_name);
    if (strcmp(from_name, to_name) == 0)
        return true;
    if (to.exponent == 0 && to.is_float)
        return false; /* complex64 */
    if (from.is_float)
        return to.exponent >= from.exponent && to.mantissa >= from.mantissa && from.exponent != 0;
    if (!to.is_float)
        return to.bits >= from.bits && (to.is_signed || !from.is_signed) &&
               strcmp(to_name, "bool") != 0;
    return to.mantissa + 1 >= from.bits && to.size > 1;
}

static uint64_t load(const uint8_t *bytes, size_t size)
{
    uint64_t bits = 0;
    memcpy(&bits, bytes, size);
    return bits;
}

/* Every value of every stored type here is one of a long double. */
static long double decode(const char *name, const uint8_t *bytes)
{
    type t = describe(name);
    uint64_t bits = load(bytes, t.size);
    if (!t.is_float && t.is_signed)
        return (long double)((int64_t)(bits << (63 - t.bits)) >> (63 - t.bits));
    if (!t.is_float)
        return (long double)bits;
    uint64_t ones = (UINT64_C(1) << t.exponent) - 1, mantissas = UINT64_C(1) << t.mantissa;
    uint64_t exponent = bits >> t.mantissa & ones, mantissa = bits & (mantissas - 1);
    bool negative = (bits >> (t.exponent + t.mantissa) & 1) != 0;
    bool fn = strcmp(name, "float8_e4m3fn") == 0;
    int bias = (int)(ones / 2);
    long double value;
    if (exponent == ones && (!fn || mantissa == mantissas - 1))
        value = mantissa != 0 ? NAN : (long double)INFINITY;
    else if (exponent == 0)
        value = ldexpl((long double)mantissa, 1 - bias - t.mantissa);
    else
        value = ldexpl((long double)(mantissa + mantissas), (int)exponent - bias - t.mantissa);
    return negative ? -value : value;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

enum { ITEMS = 65536 };
static uint8_t stored[ITEMS * 8];

/* All values of types up to two bytes, else odd ones. */
static void make_items(const char *name)
{
    size_t size = describe(name).size;
    for (uint64_t i = 0; i < ITEMS; i++) {
        uint64_t bits = strcmp(name, "bool") == 0 ? i % 2 : i;
        if (size > 2)
            bits = i * UINT64_C(0x9e3779b97f4a7c15) >> (i % 40);
        memcpy(stored + i * size, &bits, size);
    }
}

static void check_pair(const char *from, const char *to)
{
    char schema[64];
    size_t from_size = describe(from).size, to_size = describe(to).size;
    rks_value value = {.data = stored, .size = ITEMS * from_size, .dims = {ITEMS}};
    samples s = {.count = 1, .values = &value};
    rks_collate_column column = {.column = "x", .type = to};
    rks_collate_options options;
    rks_arrays *arrays = NULL;
    rks_collate_options_default(&options);
    options.columns = &column;
    options.column_count = 1;
    snprintf(schema, sizeof(schema), "x:%s[*]", from);
    rks_status status = samples_collate(schema, &s, &options, &arrays, &err);
    assert_int_equal(rks_collate_converts(from, to), holds(from, to));
    if (!holds(from, to)) {
        assert_int_equal(status, RKS_ERR_ARGUMENT);
        assert_contains(err.text, "column \"x\"");
        assert_contains(err.text, "does not hold every value of");
        return;
    }
    assert_ok(status, &err);
    const rks_array *array = rks_arrays_get(arrays, 0);
    assert_string_equal(array->type, to);
    assert_int_equal(array->size, ITEMS * to_size);
    for (size_t i = 0; i < ITEMS; i++) {
        const uint8_t *item = (const uint8_t *)array->data + i * to_size;
        if (strcmp(from, to) == 0) {
            assert_memory_equal(item, stored + i * to_size, to_size);
            continue;
        }
        long double was = decode(from, stored + i * from_size), is = decode(to, item);
        if (!(was == is && signbit(was) == signbit(is)) && !(isnan(was) && isnan(is))) {
            print_error("%s to %s: item %zu: %Lg became %Lg\n", from, to, i, was, is);
            fail();
        }
    }
    rks_arrays_free(arrays);
}

static void each_pair_of_types_is_exact_or_refused(void **state)
{
    (void)state;
    for (size_t from = 0; from < TYPE_COUNT; from++) {
        make_items(TYPES[from]);
        for (size_t to = 0; to < TYPE_COUNT; to++)
            check_pair(TYPES[from], TYPES[to]);
    }
    static const char *const others[] = {"str", "bytes", "json", "int32[*]", "int32?", "", NULL};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(rks_collate_converts(others[i], "int32"));
        assert_false(rks_collate_converts("bool", others[i]));
    }
    assert_int_equal(rks_memory_in_use(), 0);
}

/* Of any count and from any address; nothing behind the last item is written. */
static void wide_kernels_give_the_same_bytes(void **state)
{
    (void)state;
    enum { MOST = 150, GUARD = 0xa5 };
    static uint8_t plain[MOST * 8 + 8], wide[MOST * 8 + 8];
    if (!rks_has_avx2())
        skip();
    for (int from = RKS_KIND_BOOL; from <= RKS_KIND_COMPLEX64; from++)
        for (int to = RKS_KIND_BOOL; to <= RKS_KIND_COMPLEX64; to++) {
            rks_convert_fn one = rks_item_convert((rks_kind)from, (rks_kind)to, 8, false);
            rks_convert_fn other = rks_item_convert((rks_kind)from, (rks_kind)to, 8, true);
            assert_int_equal(one == NULL, other == NULL);
            for (size_t count = 0; one != NULL && count <= MOST; count++) {
                const uint8_t *at = stored + count * 389 + count % 8;
                memset(plain, GUARD, sizeof(plain));
                memset(wide, GUARD, sizeof(wide));
                one(plain, at, count);
                other(wide, at, count);
                assert_memory_equal(plain, wide, sizeof(plain));
                assert_int_equal(wide[MOST * 8], GUARD);
            }
        }
}

/* ---- what fills up --------------------------------------------------------------------------- */

/* The item that a missing value of this type becomes; false where the pad is refused. */
static bool pad_item(const char *name, double pad, uint8_t item[8])
{
    char schema[64];
    rks_value value = {0};
    samples s = {.count = 1, .values = &value};
    rks_collate_column column = {.column = "x", .pad = pad};
    rks_collate_options options;
    rks_arrays *arrays = NULL;
    rks_collate_options_default(&options);
    options.columns = &column;
    options.column_count = 1;
    snprintf(schema, sizeof(schema), "x:%s?", name);
    rks_status status = samples_collate(schema, &s, &options, &arrays, &err);
    if (status != RKS_OK) {
        assert_int_equal(status, RKS_ERR_ARGUMENT);
        assert_contains(err.text, "pad");
        return false;
    }
    memset(item, 0, 8);
    memcpy(item, rks_arrays_get(arrays, 0)->data, describe(name).size);
    rks_arrays_free(arrays);
    return true;
}

static void pads_are_values_of_the_type_or_refused(void **state)
{
    (void)state;
    static const double pads[] = {0,         -0.0,   1,     -1,     -100,    127,     128,
                                  255,       256,    0.5,   448,    449,     479,     65504,
                                  65519,     65520,  1e5,   -65536, 1e39,    0x1p53,  0x1p63,
                                  -0x1p63,   0x1p64, 1e300, 0x1p-9, 0x1p-10, 0x1p-24, 0x1p-133,
                                  0x1.8p-10, 57344,  61439, 61440,  3.3e38,  3.4e38};
    static const char *const floats[] = {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"};
    static const long double largest[] = {65504, 0x1.fep127L, 448, 57344};
    uint8_t item[8];
    for (size_t p = 0; p < sizeof(pads) / sizeof(pads[0]); p++) {
        for (size_t t = 0; t < TYPE_COUNT; t++) {
            type is = describe(TYPES[t]);
            if (is.is_float)
                continue;
            long double most = ldexpl(1, is.bits) - 1, least = is.is_signed ? -most - 1 : 0;
            bool good = pads[p] == truncl(pads[p]) && pads[p] >= least && pads[p] <= most;
            assert_int_equal(pad_item(TYPES[t], pads[p], item), good);
            if (good)
                assert_true(decode(TYPES[t], item) == pads[p]);
        }
        for (size_t t = 0; t < 4; t++) {
            type is = describe(floats[t]);
            if (!pad_item(floats[t], pads[p], item)) {
                assert_true(fabsl(pads[p]) > largest[t]);
                continue;
            }
            /* The nearest: no neighbour is nearer, nor as near and even. */
            long double got = decode(floats[t], item), off = fabsl(got - pads[p]);
            uint64_t bits = load(item, is.size);
            for (int step = -1; step <= 1; step += 2) {
                uint64_t other = bits + (uint64_t)step;
                long double near = decode(floats[t], (const uint8_t *)&other);
                if (isfinite(near))
                    assert_true(off < fabsl(near - pads[p]) ||
                                (off == fabsl(near - pads[p]) && bits % 2 == 0) || near == got);
            }
            assert_true(signbit(got) == signbit((long double)pads[p]));
        }
    }
    assert_true(pad_item("float16", NAN, item) && isnan(decode("float16", item)));
    assert_true(pad_item("float8_e4m3fn", NAN, item) && isnan(decode("float8_e4m3fn", item)));
    assert_true(pad_item("float8_e5m2", -INFINITY, item) &&
                decode("float8_e5m2", item) == (long double)-INFINITY);
    assert_false(pad_item("float8_e4m3fn", INFINITY, item));
    assert_false(pad_item("int32", NAN, item));
    assert_false(pad_item("float32", 1e300, item));
    assert_true(pad_item("complex64", 2, item) && memcmp(item, "\0\0\0\x40\0\0\0\0", 8) == 0);
    assert_int_equal(rks_memory_in_use(), 0);
}

/* ---- rules ----------------------------------------------------------------------------------- */

typedef struct rule {
    rks_collate_options options;
    rks_collate_column columns[2];
    size_t count;
    const char *says;
} rule;

static void rules_that_are_broken_are_named(void **state)
{
    (void)state;
    static const char schema[] = "n:int64,t:uint16[*],wide:float16[80,*],two:uint8[*,*],s:str";
    const rule rules[] = {
        {{.layout = "sideways"}, {{0}}, 0, "layout \"sideways\""},
        {{.layout = "pack", .left = true}, {{0}}, 0, "left needs"},
        {{.layout = "pack", .mask = "m"}, {{0}}, 0, "mask needs"},
        {{.positions = "p"}, {{0}}, 0, "positions needs"},
        {{.layout = "pack"}, {{.column = "wide"}}, 1, "\"wide\" (float16[80,*]) cannot be packed"},
        {{.layout = "pack"}, {{.column = "two"}}, 1, "\"two\" (uint8[*,*]) cannot be packed"},
        {{0}, {{.column = "none"}}, 1, "no column \"none\""},
        {{0}, {{.column = NULL}}, 1, "no column"},
        {{0}, {{.column = "t"}, {.column = "t"}}, 2, "two arrays are named \"t\""},
        {{.mask = "t"}, {{.column = "t"}}, 1, "two arrays are named \"t\""},
        {{.mask = ""}, {{.column = "t"}}, 1, "name is empty"},
        {{.mask = "m"}, {{.column = "n"}}, 1, "no array column has a variable dimension"},
        {{0}, {{.column = "t", .type = "int33"}}, 1, "\"int33\" is not an item type"},
        {{0}, {{.column = "t", .type = "int32[*]"}}, 1, "is not an item type"},
        {{0}, {{.column = "t", .type = "int32?"}}, 1, "is not an item type"},
        {{0}, {{.column = "t", .type = "str"}}, 1, "is not an item type"},
        {{0}, {{.column = "t", .type = "int32,y:int32"}}, 1, "is not an item type"},
        {{0},
         {{.column = "t", .type = "int16"}},
         1,
         "int16 does not hold every value of uint16[*]"},
        {{0}, {{.column = "s", .type = "int8"}}, 1, "int8 does not hold every value of str"},
        {{0}, {{.column = "t", .mark_first = true}}, 1, "mark_first needs"},
        {{.layout = "pack"}, {{.column = "n", .mark_first = true}}, 1, "mark_first needs"},
        {{.layout = "pack"},
         {{.column = "t", .mark_first = true, .first = -1}},
         1,
         "first -1 does not fit into uint16"},
        {{0}, {{.column = "t", .pad = -1}}, 1, "pad -1 does not fit into uint16"},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        rks_collate_options options = rules[i].options;
        rks_arrays *arrays = NULL;
        samples s = {0};
        options.struct_size = sizeof(options);
        options.to_multiple = 1;
        options.columns = rules[i].count == 0 ? NULL : rules[i].columns;
        options.column_count = rules[i].count;
        if (rules[i].count == 0) { /* all columns cannot be packed here */
            options.columns = (const rks_collate_column[]){{.column = "t"}};
            options.column_count = 1;
        }
        assert_fails(RKS_ERR_ARGUMENT, samples_collate(schema, &s, &options, &arrays, &err));
        assert_contains(err.text, rules[i].says);
    }
    rks_collate_options options;
    rks_arrays *arrays = NULL;
    samples s = {0};
    rks_collate_options_default(&options);
    options.to_multiple = 0;
    assert_fails(RKS_ERR_ARGUMENT, samples_collate(schema, &s, &options, &arrays, &err));
    assert_contains(err.text, "to_multiple");
    rks_collate_options_default(&options);
    options.columns = (const rks_collate_column[]){{.column = "t"}};
    assert_fails(RKS_ERR_ARGUMENT, samples_collate(schema, &s, &options, &arrays, &err));
    assert_contains(err.text, "no columns");
    assert_int_equal(rks_memory_in_use(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_of_types_is_exact_or_refused),
        cmocka_unit_test(wide_kernels_give_the_same_bytes),
        cmocka_unit_test(pads_are_values_of_the_type_or_refused),
        cmocka_unit_test(rules_that_are_broken_are_named),
    };
    return cmocka_run_group_tests_name("collate_options", tests, NULL, NULL);
}
