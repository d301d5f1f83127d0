/* SPDX-License-Identifier: Apache-2.0
 *
 * test_collate.c: arrays against a naive reference, over random samples; and what their corners
 * are: no samples, no items, hostile sizes, failing allocations. */
#include "samples.h"

#include <stdlib.h>

#include "collate/arenas.h"
#include "support/seed.h"

static rks_error err;

/* ---- random samples -------------------------------------------------------------------------- */

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % below;
}

/* Shapes of the column "x", whose items are uint16; 0 is variable. */
static const struct {
    const char *type;
    uint32_t count, dims[4], first; /* the first variable dimension; count: none */
    bool nullable;
} SHAPES[] = {
    {"uint16", 0, {0}, 0, false},
    {"uint16?", 0, {0}, 0, true},
    {"uint16[3]", 1, {3}, 1, false},
    {"uint16[2,3]?", 2, {2, 3}, 2, true},
    {"uint16[*]", 1, {0}, 0, false},
    {"uint16[*]?", 1, {0}, 0, true},
    {"uint16[*,3]", 2, {0, 3}, 0, false},
    {"uint16[3,*]", 2, {3, 0}, 1, false},
    {"uint16[*,*]", 2, {0, 0}, 0, false},
    {"uint16[2,*,3,*]?", 4, {2, 0, 3, 0}, 1, true},
    {"uint16[*,2,*]", 3, {0, 2, 0}, 0, false},
};
enum { SHAPE_COUNT = sizeof(SHAPES) / sizeof(SHAPES[0]), MOST = 9, MOST_SAMPLES = 12 };

static void random_samples(size_t shape, samples *s)
{
    *s = (samples){.count = (size_t)draw(MOST_SAMPLES), .columns = 1};
    s->values = calloc(s->count + 1, sizeof(*s->values));
    for (size_t i = 0; i < s->count; i++) {
        rks_value *value = &s->values[i];
        size_t items = 1;
        if (SHAPES[shape].nullable && draw(4) == 0)
            continue;
        for (uint32_t d = 0; d < SHAPES[shape].count; d++) {
            uint32_t dim = SHAPES[shape].dims[d];
            value->dims[d] = dim != 0 ? dim : (uint32_t)draw(MOST);
            items *= value->dims[d];
        }
        uint16_t *data = malloc(items * sizeof(*data) + 1);
        for (size_t k = 0; k < items; k++)
            data[k] = (uint16_t)draw(65536);
        value->data = data;
        value->size = items * sizeof(*data);
    }
}

static void free_samples(samples *s)
{
    for (size_t i = 0; i < s->count; i++)
        free((void *)(uintptr_t)s->values[i].data);
    free(s->values);
}

/* ---- the reference: item by item, from the definition ---------------------------------------- */

typedef struct expected {
    uint32_t dim_count;
    uint64_t dims[6];
    size_t size;
    int64_t *items, *mask, *positions;
    int64_t offsets[MOST_SAMPLES + 1];
    uint64_t width, total;
} expected;

static uint64_t taken(size_t shape, const rks_collate_options *options, const rks_value *value,
                      uint32_t d)
{
    uint64_t items = value->data == NULL || value->size == 0 ? 0 : value->dims[d];
    return d == SHAPES[shape].first && options->max_length != 0 && items > options->max_length
               ? options->max_length
               : items;
}

static uint64_t up(uint64_t value, uint64_t multiple)
{
    while (value % multiple != 0)
        value++;
    return value;
}

/* The value's item at these places of the array after the first dimension, or `pad`. */
static int64_t item_at(size_t shape, const rks_collate_options *options, const rks_value *value,
                       const uint64_t *place, const uint64_t *widths)
{
    uint64_t at = 0;
    int64_t pad = (int64_t)options->columns[0].pad;
    if (value->data == NULL || value->size == 0)
        return pad;
    for (uint32_t d = 0; d < SHAPES[shape].count; d++) {
        uint64_t items = taken(shape, options, value, d), k = place[d];
        if (options->left && d == SHAPES[shape].first) {
            if (k < widths[d] - items)
                return pad;
            k -= widths[d] - items;
        }
        if (k >= items)
            return pad;
        at = at * value->dims[d] + k;
    }
    return ((const uint16_t *)value->data)[at];
}

static void expect_stacked(size_t shape, const rks_collate_options *options, const samples *s,
                           expected *e)
{
    uint32_t count = SHAPES[shape].count;
    e->dim_count = count + 1;
    e->dims[0] = s->count;
    for (uint32_t d = 0; d < count; d++) {
        e->dims[d + 1] = SHAPES[shape].dims[d];
        for (size_t i = 0; SHAPES[shape].dims[d] == 0 && i < s->count; i++)
            if (taken(shape, options, &s->values[i], d) > e->dims[d + 1])
                e->dims[d + 1] = taken(shape, options, &s->values[i], d);
        if (d == SHAPES[shape].first)
            e->width = e->dims[d + 1] = up(e->dims[d + 1], options->to_multiple);
    }
    size_t each = 1;
    for (uint32_t d = 0; d < count; d++)
        each *= e->dims[d + 1];
    e->size = each * s->count;
    e->items = calloc(e->size + 1, sizeof(*e->items));
    e->mask = calloc(s->count * e->width + 1, sizeof(*e->mask));
    for (size_t at = 0; at < e->size; at++) {
        uint64_t place[4] = {0}, rest = at % each;
        for (uint32_t d = count; d-- > 0; rest /= e->dims[d + 1])
            place[d] = rest % e->dims[d + 1];
        e->items[at] = item_at(shape, options, &s->values[at / each], place, e->dims + 1);
    }
    for (size_t i = 0; SHAPES[shape].first < count && i < s->count; i++)
        for (uint64_t k = 0; k < e->width; k++) {
            uint64_t items = taken(shape, options, &s->values[i], SHAPES[shape].first);
            e->mask[i * e->width + k] = options->left ? k >= e->width - items : k < items;
        }
}

static void expect_packed(size_t shape, const rks_collate_options *options, const samples *s,
                          expected *e)
{
    uint64_t each = 1, at = 0;
    e->dim_count = SHAPES[shape].count;
    for (uint32_t d = 1; d < e->dim_count; d++)
        each *= e->dims[d] = SHAPES[shape].dims[d];
    for (size_t i = 0; i < s->count; i++) {
        e->total += taken(shape, options, &s->values[i], 0);
        e->offsets[i + 1] = (int64_t)e->total;
    }
    e->dims[0] = up(e->total, options->to_multiple);
    e->size = e->dims[0] * each;
    e->items = calloc(e->size + 1, sizeof(*e->items));
    e->positions = calloc(e->dims[0] + 1, sizeof(*e->positions));
    for (size_t i = 0; i < s->count; i++)
        for (uint64_t k = 0; k < taken(shape, options, &s->values[i], 0); k++, at++) {
            e->positions[at] = (int64_t)k;
            for (uint64_t n = 0; n < each; n++)
                e->items[at * each + n] = k == 0 && options->columns[0].mark_first
                                              ? (int64_t)options->columns[0].first
                                              : ((const uint16_t *)s->values[i].data)[k * each + n];
        }
    for (size_t n = at * each; n < e->size; n++)
        e->items[n] = (int64_t)options->columns[0].pad;
}

static int64_t get(const rks_array *array, size_t i)
{
    if (strcmp(array->type, "int64") == 0)
        return ((const int64_t *)array->data)[i];
    return strcmp(array->type, "int32") == 0 ? ((const int32_t *)array->data)[i]
                                             : ((const uint16_t *)array->data)[i];
}

static void compare(const rks_array *array, const int64_t *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (get(array, i) != items[i]) {
            print_error("array %s, item %zu: %lld, not %lld\n", array->name, i,
                        (long long)get(array, i), (long long)items[i]);
            fail();
        }
}

static void check_against_reference(size_t shape, bool pack, const rks_collate_options *options)
{
    samples s;
    expected e = {0};
    rks_arrays *arrays = NULL;
    char schema[64];
    random_samples(shape, &s);
    snprintf(schema, sizeof(schema), "x:%s", SHAPES[shape].type);
    if (pack)
        expect_packed(shape, options, &s, &e);
    else
        expect_stacked(shape, options, &s, &e);
    assert_ok(samples_collate(schema, &s, options, &arrays, &err), &err);
    const rks_array *array = rks_arrays_get(arrays, 0), *helper = rks_arrays_get(arrays, 1);
    assert_int_equal(rks_arrays_samples(arrays), s.count);
    assert_string_equal(array->name, "out");
    assert_int_equal(array->dim_count, e.dim_count);
    for (uint32_t d = 0; d < e.dim_count; d++)
        assert_int_equal(array->dims[d], e.dims[d]);
    assert_int_equal((uintptr_t)array->data % 64, 0);
    compare(array, e.items, e.size);
    if (pack)
        assert_memory_equal(array->offsets, e.offsets, (s.count + 1) * sizeof(int64_t));
    else
        assert_null(array->offsets);
    assert_int_equal(helper != NULL, (options->mask != NULL || options->positions != NULL));
    if (helper != NULL) {
        assert_int_equal(helper->dim_count, pack ? 1 : 2);
        assert_int_equal(helper->dims[0], pack ? e.dims[0] : s.count);
        assert_int_equal(helper->dims[1], pack ? 0 : e.width);
        compare(helper, pack ? e.positions : e.mask, pack ? e.dims[0] : s.count * e.width);
    }
    rks_arrays_free(arrays);
    free(e.items), free(e.mask), free(e.positions);
    free_samples(&s);
}

static void arrays_are_what_a_naive_reference_makes(void **state)
{
    (void)state;
    static const char *const types[] = {NULL, "int32", "int64"};
    uint64_t start = test_seed(20260101);
    for (uint64_t round = 0; round < 4000; round++) {
        seed = start + round;
        size_t shape = (size_t)draw(SHAPE_COUNT);
        bool varies = SHAPES[shape].first < SHAPES[shape].count;
        bool pack = varies && SHAPES[shape].first == 0 &&
                    strstr(SHAPES[shape].type, "*,*") == NULL && SHAPES[shape].count < 3 &&
                    draw(2) == 0;
        rks_collate_column column = {.column = "x", .name = "out", .type = types[draw(3)]};
        rks_collate_options options;
        rks_collate_options_default(&options);
        options.layout = pack ? "pack" : "pad";
        options.columns = &column;
        options.column_count = 1;
        options.to_multiple = (uint32_t)(1 + draw(2) * draw(12));
        options.max_length = (uint32_t)(draw(2) * draw(MOST));
        options.left = !pack && draw(2) == 0;
        options.mask = varies && !pack && draw(2) == 0 ? "helper" : NULL;
        options.positions = pack && draw(2) == 0 ? "helper" : NULL;
        column.pad = column.type == NULL ? 7 : -100;
        column.mark_first = pack && draw(2) == 0;
        column.first = column.type == NULL ? 9 : -9;
        check_against_reference(shape, pack, &options);
    }
    assert_int_equal(rks_memory_in_use(), 0);
}

/* ---- corners --------------------------------------------------------------------------------- */

static void missing_values_are_marked_beside_their_columns(void **state)
{
    (void)state;
    int64_t seven = 7;
    uint32_t zero = 0;
    rks_value values[] = {
        {.data = NULL},
        {.data = &zero, .size = 0, .dims = {0}}, /* sample 0 */
        {.data = &seven, .size = 8},
        {.data = NULL}, /* sample 1 */
    };
    samples s = {.count = 2, .values = values};
    const rks_collate_column columns[] = {{.column = "y", .mark_missing = true, .pad = -1},
                                          {.column = "x", .name = "z", .mark_missing = true}};
    rks_collate_options options;
    rks_collate_options_default(&options);
    options.columns = columns;
    options.column_count = 2;
    rks_arrays *arrays = NULL;
    assert_ok(samples_collate("y:int64?,x:uint32[*]?", &s, &options, &arrays, &err), &err);
    assert_int_equal(rks_arrays_count(arrays), 4);
    const rks_array *y = rks_arrays_get(arrays, 2), *x = rks_arrays_get(arrays, 3);
    assert_string_equal(y->name, "y.missing");
    assert_string_equal(x->name, "z.missing");
    assert_string_equal(y->type, "bool");
    assert_int_equal(y->dim_count, 1);
    assert_int_equal(y->dims[0], 2);
    assert_int_equal(y->size, 2);
    assert_memory_equal(y->data, "\1\0", 2);
    assert_memory_equal(x->data, "\0\1", 2); /* an empty value is not missing */
    assert_int_equal(((const int64_t *)rks_arrays_get(arrays, 0)->data)[0], -1);
    rks_arrays_free(arrays);
}

/* Inputs are padded, targets lie one after another, and the mask follows the column that is
 * named. */
static void a_column_is_packed_in_the_layout_pad(void **state)
{
    (void)state;
    uint32_t a[] = {1, 2, 3}, b[] = {4, 5};
    rks_value values[] = {
        {.data = a, .size = 12, .dims = {3}},
        {.data = b, .size = 4, .dims = {1}},
        {.data = a, .size = 4, .dims = {1}},
        {.data = b, .size = 8, .dims = {2}},
    };
    samples s = {.count = 2, .values = values};
    rks_collate_column columns[] = {{.column = "target", .packed = true, .mark_items = true},
                                    {.column = "in", .mark_items = true}};
    rks_collate_options options;
    rks_collate_options_default(&options);
    options.columns = columns;
    options.column_count = 2;
    options.to_multiple = 4;
    options.mask = "mask";
    options.follows = "in";
    rks_arrays *arrays = NULL;
    assert_ok(samples_collate("target:uint32[*],in:uint32[*]", &s, &options, &arrays, &err), &err);
    const rks_array *target = rks_arrays_get(arrays, 0), *mask = rks_arrays_get(arrays, 2);
    assert_int_equal(target->dim_count, 1);
    assert_int_equal(target->dims[0], 4); /* not rounded up: 3 and 1 items */
    assert_int_equal(target->offsets[1], 3);
    assert_int_equal(target->offsets[2], 4);
    assert_memory_equal(target->data, ((uint32_t[]){1, 2, 3, 1}), 16);
    assert_int_equal(mask->dims[1], 4);
    assert_string_equal(rks_arrays_get(arrays, 3)->name, "target.items");
    assert_memory_equal(rks_arrays_get(arrays, 3)->data, ((int64_t[]){3, 1}), 16);
    assert_memory_equal(rks_arrays_get(arrays, 4)->data, ((int64_t[]){1, 2}), 16);
    assert_memory_equal(mask->data, ((int64_t[]){1, 0, 0, 0, 1, 1, 0, 0}), 64);
    rks_arrays_free(arrays);
    options.follows = "target";
    assert_fails(RKS_ERR_ARGUMENT,
                 samples_collate("target:uint32[*],in:uint32[*]", &s, &options, &arrays, &err));
    assert_string_equal(err.text,
                        "collate: mask \"mask\": the column \"target\" that it follows is not a "
                        "padded array with a variable dimension");
}

static void all_columns_come_as_stored(void **state)
{
    (void)state;
    int64_t number = 5;
    rks_value values[4] = {
        {.data = &number, .size = 8},
        {.data = "abc", .size = 3, .dims = {3}},
        {.data = &number, .size = 8},
        {.data = "", .size = 0},
    };
    samples s = {.count = 2, .values = values};
    rks_arrays *arrays = NULL;
    assert_ok(samples_collate("n:int64,s:str", &s, NULL, &arrays, &err), &err);
    assert_int_equal(rks_arrays_count(arrays), 2);
    assert_null(rks_arrays_get(arrays, 2));
    const rks_array *text = rks_arrays_get(arrays, 1);
    assert_string_equal(rks_arrays_get(arrays, 0)->type, "int64");
    assert_int_equal(rks_arrays_get(arrays, 0)->dim_count, 1);
    assert_string_equal(text->type, "uint8");
    assert_int_equal(text->dim_count, 1); /* packed, also in the layout "pad" */
    assert_int_equal(text->dims[0], 3);
    assert_memory_equal(text->data, "abc", 3);
    assert_int_equal(text->offsets[1], 3);
    assert_int_equal(text->offsets[2], 3);
    rks_arrays_free(arrays);
    rks_arrays_free(NULL);
}

static void sizes_that_overflow_are_refused_before_memory(void **state)
{
    (void)state;
    /* Not looked at: the sizes are wrong before any item is read. */
    static uint8_t nothing[8];
    rks_value values[2] = {
        {.data = nothing, .size = 8, .dims = {UINT32_MAX, 1, 1}},
        {.data = nothing, .size = 8, .dims = {1, UINT32_MAX, UINT32_MAX}},
    };
    samples s = {.count = 2, .values = values};
    rks_arrays *arrays = NULL;
    assert_fails(RKS_ERR_MEMORY, samples_collate("x:uint8[*,*,*]", &s, NULL, &arrays, &err));
    assert_contains(err.text, "\"x\"");
    values[1].dims[2] = 1; /* 2^65 bytes */
    assert_fails(RKS_ERR_MEMORY, samples_collate("x:int64[*,*,*]", &s, NULL, &arrays, &err));
    values[0].dims[1] = 0; /* and one without items claims nothing */
    values[0].size = 0;
    values[1] = (rks_value){.data = nothing, .size = 8, .dims = {1, 1, 1}};
    assert_ok(samples_collate("x:int64[*,*,*]", &s, NULL, &arrays, &err), &err);
    assert_int_equal(rks_arrays_get(arrays, 0)->size, 16);
    rks_arrays_free(arrays);
    assert_int_equal(rks_memory_in_use(), 0);
}

/* Larger when its items are asked for than when its sizes were. */
static rks_status growing(void *user, size_t i, rks_value *values, rks_error *error)
{
    static const uint8_t bytes[64];
    (void)user;
    (void)i;
    (void)error;
    values[0] = (rks_value){.data = bytes, .size = 64, .dims = {64}};
    return RKS_OK;
}

static void a_cut_by_length_leaves_other_columns_whole(void **state)
{
    (void)state;
    static const uint8_t bytes[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    static const uint32_t lengths[] = {5, 3};
    rks_value values[] = {
        {.data = bytes, .size = 5, .dims = {5}},
        {.data = bytes, .size = 10, .dims = {10}}, /* sample 0 */
        {.data = bytes, .size = 3, .dims = {3}},
        {.data = bytes, .size = 7, .dims = {7}}, /* sample 1 */
    };
    const rks_collate_column columns[] = {{.column = "ids", .mark_items = true},
                                          {.column = "image"}};
    for (int way = 0; way < 4; way++) {
        bool pack = way & 1, by_length = way & 2;
        samples s = {.count = 2, .values = values, .lengths = lengths};
        rks_arrays *arrays = NULL;
        rks_collate_options options;
        rks_collate_options_default(&options);
        options.layout = pack ? "pack" : "pad";
        options.columns = columns;
        options.column_count = 2;
        options.max_length = 4;
        options.cut_by_length = by_length;
        assert_ok(samples_collate("ids:uint8[*],image:uint8[*]", &s, &options, &arrays, &err),
                  &err);
        const rks_array *ids = rks_arrays_get(arrays, 0), *image = rks_arrays_get(arrays, 1);
        assert_int_equal(ids->size, pack ? 4 + 3 : 2 * 4);
        assert_int_equal(image->size, pack ? (by_length ? 17 : 8) : (by_length ? 20 : 8));
        if (by_length)
            assert_memory_equal(image->data, bytes, 10);
        const int64_t *items = rks_arrays_get(arrays, 2)->data;
        assert_int_equal(items[0], 4);
        assert_int_equal(items[1], 3);
        rks_arrays_free(arrays);
    }
    assert_int_equal(rks_memory_in_use(), 0);
}

static void a_sample_that_grows_meanwhile_is_corrupt(void **state)
{
    (void)state;
    static const char *const layouts[] = {"pad", "pack"};
    for (size_t i = 0; i < 2; i++) {
        rks_value value = {.data = "abc", .size = 3, .dims = {3}};
        samples s = {.count = 1, .columns = 1, .values = &value};
        rks_schema *schema = NULL;
        rks_collate *collate = NULL;
        rks_blocks *pool = NULL;
        rks_arrays *arrays = NULL;
        rks_collate_options options;
        rks_collate_options_default(&options);
        options.layout = layouts[i];
        assert_ok(rks_schema_parse("x:uint8[*]", &schema, &err), &err);
        assert_ok(rks_blocks_create(&pool, &err), &err);
        assert_ok(rks_collate_create(schema, &options, &collate, &err), &err);
        const rks_collate_source honest = {
            .count = 1, .sizes = samples_get, .items = samples_get, .user = &s};
        assert_ok(rks_collate_run(collate, &honest, pool, &arrays, &err), &err);
        rks_arrays_free(arrays);
        const rks_collate_source hostile = {
            .count = 1, .sizes = samples_get, .items = growing, .user = &s};
        assert_fails(RKS_ERR_CORRUPT, rks_collate_run(collate, &hostile, pool, &arrays, &err));
        rks_collate_release(collate);
        rks_blocks_release(pool);
        rks_schema_free(schema);
    }
    assert_int_equal(rks_memory_in_use(), 0);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    int64_t number = 5;
    rks_value values[2] = {{.data = &number, .size = 8}, {.data = "abc", .size = 3, .dims = {3}}};
    const rks_collate_column columns[] = {{.column = "n", .type = "int64"},
                                          {.column = "s", .type = "float64"}};
    rks_collate_options options;
    rks_collate_options_default(&options);
    options.columns = columns;
    options.column_count = 2;
    options.mask = "mask";
    rks_status status = RKS_ERR_MEMORY;
    long failed = 0;
    for (long n = 1; status != RKS_OK; n++) {
        samples s = {.count = 1, .values = values};
        rks_arrays *arrays = NULL;
        rks_memory_fail_at(n);
        status = samples_collate("n:int64,s:uint8[*]", &s, &options, &arrays, &err);
        rks_memory_fail_at(0);
        assert_true(status == RKS_OK || status == RKS_ERR_MEMORY);
        failed += status != RKS_OK;
        rks_arrays_free(arrays);
        assert_int_equal(rks_memory_in_use(), 0);
    }
    assert_true(failed > 8);
}

static void count_done(void *user)
{
    ++*(int *)user;
}

/* What it would have taken of arenas does not count as needed any more: two batches that follow
 * need two arenas. */
static void a_collation_without_memory_needs_no_arena(void **state)
{
    (void)state;
    static uint8_t memory[3][64 << 10];
    int64_t number = 5;
    rks_value value = {.data = &number, .size = 8};
    rks_collate_options options;
    rks_collate_options_default(&options);
    rks_status status = RKS_ERR_MEMORY;
    long failed = 0;
    for (long n = 1; status != RKS_OK; n++) {
        int done = 0;
        rks_arrays *arrays = NULL;
        rks_arenas *arenas = NULL;
        assert_ok(rks_arenas_create(&arenas, &err), &err);
        samples s = {.count = 1, .values = &value, .arenas = arenas};
        rks_memory_fail_at(n);
        status = samples_collate("n:int64", &s, &options, &arrays, &err);
        rks_memory_fail_at(0);
        failed += status != RKS_OK;
        rks_arrays_free(arrays);
        rks_lent one = rks_arenas_take(arenas, 100), other = rks_arenas_take(arenas, 100);
        for (int i = 0; i < 3; i++)
            assert_ok(rks_arenas_add(arenas, memory[i], sizeof(memory[i]), count_done, &done, &err),
                      &err);
        assert_int_equal(done, 1);
        rks_arenas_give(arenas, &one);
        rks_arenas_give(arenas, &other);
        rks_arenas_free(arenas);
        assert_int_equal(done, 3);
        assert_int_equal(rks_memory_in_use(), 0);
    }
    assert_true(failed > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_what_a_naive_reference_makes),
        cmocka_unit_test(missing_values_are_marked_beside_their_columns),
        cmocka_unit_test(a_column_is_packed_in_the_layout_pad),
        cmocka_unit_test(all_columns_come_as_stored),
        cmocka_unit_test(sizes_that_overflow_are_refused_before_memory),
        cmocka_unit_test(a_cut_by_length_leaves_other_columns_whole),
        cmocka_unit_test(a_sample_that_grows_meanwhile_is_corrupt),
        cmocka_unit_test(survives_each_failing_allocation),
        cmocka_unit_test(a_collation_without_memory_needs_no_arena),
    };
    return cmocka_run_group_tests_name("collate", tests, NULL, NULL);
}
