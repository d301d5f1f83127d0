/* SPDX-License-Identifier: Apache-2.0
 *
 * test_collate_rows.c: layout rows, samples that are filled up, and pieces: against a naive
 * reference over random samples, and what their corners are. */
#include "samples.h"

#include <stdlib.h>

#include "plan/order/random.h"
#include "support/seed.h"

static rks_error err;

enum { MOST_SAMPLES = 14, MOST_ITEMS = 20, ROUNDS = 3000, INNER = 3 };

/* Columns x: uint16[*], of as many items as the sample is long; y: uint16[*,3] of as many, or
 * missing; z: uint16[*], of others; t: str. */
static const char SCHEMA[] = "x:uint16[*],y:uint16[*,3]?,z:uint16[*],t:str";
enum { X, Y, Z, T, COLUMNS };

typedef struct made {
    samples s;
    rks_value values[MOST_SAMPLES * COLUMNS];
    uint32_t lengths[MOST_SAMPLES];
    rks_piece pieces[MOST_SAMPLES];
    uint32_t bins[MOST_SAMPLES + 1];
    uint16_t data[MOST_SAMPLES * COLUMNS][MOST_ITEMS * INNER];
} made;

static uint32_t below(rks_random *random, uint32_t range)
{
    return (uint32_t)rks_random_below(random, range);
}

/* Items of a sample that are taken, and before them. */
static uint32_t part_of(const made *m, size_t i, uint32_t *start)
{
    *start = 0;
    for (size_t k = 0; k < m->s.piece_count; k++)
        if (m->pieces[k].place == i) {
            *start = m->pieces[k].start;
            return m->pieces[k].count;
        }
    return m->lengths[i];
}

static void make_samples(rks_random *random, made *m, uint32_t each, uint32_t width)
{
    memset(m, 0, sizeof(*m));
    m->s = (samples){.count = below(random, MOST_SAMPLES),
                     .values = m->values,
                     .lengths = m->lengths,
                     .pieces = m->pieces,
                     .bins = m->bins};
    uint32_t room = 0;
    for (size_t i = 0; i < m->s.count; i++) {
        rks_value *value = &m->values[i * COLUMNS];
        uint32_t length = below(random, MOST_ITEMS), start;
        if (length > 2 && below(random, 3) == 0) {
            start = below(random, length - 1);
            m->pieces[m->s.piece_count++] =
                (rks_piece){(uint32_t)i, start, 1 + below(random, length - start - 1)};
        }
        m->lengths[i] = length;
        for (int c = 0; c < COLUMNS; c++) {
            uint32_t items = c < Z ? length : below(random, MOST_ITEMS);
            for (uint32_t k = 0; k < MOST_ITEMS * INNER; k++)
                m->data[i * COLUMNS + c][k] = (uint16_t)(1 + below(random, 60000));
            if (c == Z && items == length)
                items = (items + 1) % MOST_ITEMS;
            value[c].data = m->data[i * COLUMNS + c];
            value[c].size = items * sizeof(uint16_t) * (c == Y ? INNER : 1);
            value[c].dims[0] = items;
            value[c].dims[1] = c == Y ? INNER : 0;
            if (c == T) {
                value[c].size = length; /* as long as the sample, and yet not cut */
                value[c].dims[0] = length;
            }
        }
        if (below(random, 4) == 0)
            value[Y] = (rks_value){0};
        uint32_t size = (part_of(m, i, &start) + each - 1) / each * each;
        if (i == 0 || size > room || below(random, 4) == 0) {
            m->bins[m->s.bin_count++] = (uint32_t)i;
            room = width;
        }
        room -= size;
    }
    m->bins[m->s.bin_count] = (uint32_t)m->s.count;
    for (size_t k = 0; k <= m->s.bin_count; k++)
        m->bins[k] += 1000; /* they need not begin at 0 */
}

static const rks_array *array_of(const rks_arrays *arrays, const char *name)
{
    for (size_t i = 0; i < rks_arrays_count(arrays); i++)
        if (strcmp(rks_arrays_get(arrays, i)->name, name) == 0)
            return rks_arrays_get(arrays, i);
    fail_msg("no array %s", name);
    return NULL;
}

/* One place of all rows, as the arrays are to have it. */
typedef struct cell {
    int64_t x, y[INNER], position;
    int32_t document;
} cell;

static void expect(const made *m, uint32_t each, uint32_t width, cell *cells, int64_t *offsets)
{
    size_t rows = m->s.bin_count, at = 0;
    for (size_t row = 0; row < rows; row++) {
        at = row * width;
        for (uint32_t i = m->bins[row] - 1000; i < m->bins[row + 1] - 1000; i++) {
            uint32_t start, count = part_of(m, i, &start), size = (count + each - 1) / each * each;
            const rks_value *y = &m->values[i * COLUMNS + Y];
            offsets[i] = (int64_t)at;
            for (uint32_t k = 0; k < size; k++, at++) {
                bool is_item = k < count;
                const uint16_t *from = m->data[i * COLUMNS + Y] + (start + k) * INNER;
                cells[at] = (cell){.x = is_item ? m->data[i * COLUMNS + X][start + k] : -7,
                                   .position = k,
                                   .document = is_item ? (int32_t)(i + 1000 - m->bins[row]) : -1};
                if (is_item && k == 0)
                    cells[at].x = -5;
                for (int e = 0; e < INNER; e++)
                    cells[at].y[e] = is_item && y->data != NULL ? from[e] : -9;
            }
        }
        for (int64_t k = 0; at < (row + 1) * width; at++, k++)
            cells[at] = (cell){.x = -7, .y = {-9, -9, -9}, .position = k, .document = -1};
    }
    offsets[m->s.count] = (int64_t)(rows * width);
}

static void check_rows(const made *m, const rks_arrays *arrays, uint32_t each, uint32_t width)
{
    static cell cells[MOST_SAMPLES * 64];
    int64_t offsets[MOST_SAMPLES + 1];
    size_t rows = m->s.bin_count;
    const rks_array *x = array_of(arrays, "x"), *y = array_of(arrays, "y");
    const rks_array *positions = array_of(arrays, "at"), *documents = array_of(arrays, "of");
    expect(m, each, width, cells, offsets);
    assert_true(x->dim_count == 2 && x->dims[0] == rows && x->dims[1] == width);
    assert_true(y->dim_count == 3 && y->dims[0] == rows && y->dims[1] == width &&
                y->dims[2] == INNER);
    assert_string_equal(documents->type, "int32");
    assert_true(documents->size == rows * width * 4 && positions->size == rows * width * 8);
    assert_memory_equal(x->offsets, offsets, (m->s.count + 1) * sizeof(*offsets));
    assert_memory_equal(positions->offsets, offsets, (m->s.count + 1) * sizeof(*offsets));
    for (size_t i = 0; i < rows * width; i++) {
        assert_int_equal(((const int64_t *)x->data)[i], cells[i].x);
        assert_memory_equal((const int64_t *)y->data + i * INNER, cells[i].y, sizeof(cells[i].y));
        assert_int_equal(((const int64_t *)positions->data)[i], cells[i].position);
        assert_int_equal(((const int32_t *)documents->data)[i], cells[i].document);
    }
}

/* z and t lie apart, and are whole. */
static void check_apart(const made *m, const rks_arrays *arrays)
{
    static const int columns[] = {Z, T};
    for (int c = 0; c < 2; c++) {
        const rks_array *array = array_of(arrays, c == 0 ? "z" : "t");
        size_t at = 0, size = c == 0 ? sizeof(uint16_t) : 1;
        for (size_t i = 0; i < m->s.count; i++) {
            const rks_value *value = &m->values[i * COLUMNS + columns[c]];
            assert_int_equal(array->offsets[i], at);
            assert_memory_equal((const uint8_t *)array->data + at * size, value->data, value->size);
            at += value->size / size;
        }
        assert_int_equal(array->size, at * size);
    }
}

static const rks_collate_column COLUMN_LIST[] = {
    {.column = "y", .type = "int64", .pad = -9},
    {.column = "x", .type = "int64", .pad = -7, .first = -5, .mark_first = true},
    {.column = "z", .packed = true},
    {.column = "t"},
};

static rks_collate_options rows_options(uint32_t width, uint32_t each)
{
    rks_collate_options options;
    rks_collate_options_default(&options);
    options.layout = "rows";
    options.row_items = width;
    options.each_multiple = each;
    options.columns = COLUMN_LIST;
    options.column_count = 4;
    options.follows = "x";
    options.positions = "at";
    options.documents = "of";
    return options;
}

static void random_samples_lie_in_rows(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    static made m;
    for (unsigned round = 0; round < ROUNDS; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint32_t each = 1 + below(&random, 3) * below(&random, 4);
        uint32_t width = (MOST_ITEMS + each) / each * each + each * below(&random, 4);
        rks_collate_options options = rows_options(width, each);
        rks_arrays *arrays = NULL;
        size_t pieces;
        make_samples(&random, &m, each, width);
        assert_ok(samples_collate(SCHEMA, &m.s, &options, &arrays, &err), &err);
        check_rows(&m, arrays, each, width);
        check_apart(&m, arrays);
        const rks_piece *list = rks_arrays_pieces(arrays, &pieces);
        assert_int_equal(pieces, m.s.piece_count);
        if (pieces > 0)
            assert_memory_equal(list, m.pieces, pieces * sizeof(*list));
        rks_arrays_free(arrays);
    }
    assert_int_equal(rks_memory_in_use(), 0);
}

/* Pieces in the other layouts: what is cut are values as long as the sample. */
static void random_pieces_are_cut_in_every_layout(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    static made m;
    for (unsigned round = 0; round < ROUNDS; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint32_t each = 1 + below(&random, 3) * below(&random, 4);
        bool pads = below(&random, 2) == 0;
        rks_collate_options options = rows_options(0, pads ? 1 : each);
        options.layout = pads ? "pad" : "pack";
        options.documents = options.positions = NULL;
        options.row_items = 0;
        rks_collate_column columns[4];
        memcpy(columns, COLUMN_LIST, sizeof(columns));
        columns[0].mark_first = columns[1].mark_first = columns[2].packed = false;
        columns[2].type = "int64";
        options.columns = columns;
        options.left = pads && below(&random, 2) == 0;
        rks_arrays *arrays = NULL;
        make_samples(&random, &m, each, 10000);
        assert_ok(samples_collate(SCHEMA, &m.s, &options, &arrays, &err), &err);
        for (int c = X; c <= Z; c++) {
            const rks_array *array = array_of(arrays, c == X ? "x" : c == Y ? "y" : "z");
            size_t inner = c == Y ? INNER : 1;
            const int64_t *data = array->data;
            for (size_t i = 0; i < m.s.count; i++) {
                const rks_value *value = &m.values[i * COLUMNS + c];
                uint32_t start, count = part_of(&m, i, &start);
                if (c == Z || value->data == NULL) {
                    start = 0;
                    count = value->data == NULL ? 0 : value->dims[0];
                }
                size_t place =
                    pads ? i * array->dims[1] + (options.left ? array->dims[1] - count : 0)
                         : (size_t)array->offsets[i];
                for (uint32_t k = 0; k < count * inner; k++)
                    assert_int_equal(data[place * inner + k],
                                     ((const uint16_t *)value->data)[start * inner + k]);
                if (pads)
                    continue;
                uint32_t size = (count + each - 1) / each * each;
                assert_int_equal(array->offsets[i + 1] - array->offsets[i], size);
                for (size_t k = count * inner; k < size * inner; k++)
                    assert_int_equal(data[place * inner + k], c == X ? -7 : c == Y ? -9 : 0);
            }
        }
        const rks_array *text = array_of(arrays, "t");
        for (size_t i = 0; i < m.s.count; i++)
            assert_int_equal(text->offsets[i + 1] - text->offsets[i], m.lengths[i]);
        rks_arrays_free(arrays);
    }
    assert_int_equal(rks_memory_in_use(), 0);
}

/* ---- corners --------------------------------------------------------------------------------- */

static uint16_t numbers[] = {1, 2, 3, 4, 5, 6, 7, 8};

static rks_status collate_lengths(const uint32_t *lengths, size_t count, const uint32_t *bins,
                                  size_t bin_count, rks_collate_options *options,
                                  rks_arrays **arrays)
{
    rks_value values[8] = {{0}};
    for (size_t i = 0; i < count; i++) {
        values[i].data = numbers;
        values[i].size = lengths[i] * sizeof(uint16_t);
        values[i].dims[0] = lengths[i];
    }
    samples s = {
        .count = count, .values = values, .lengths = lengths, .bins = bins, .bin_count = bin_count};
    static const rks_collate_column column = {.column = "x", .pad = 9};
    options->columns = &column;
    options->column_count = 1;
    return samples_collate("x:uint16[*]", &s, options, arrays, &err);
}

static void without_bins_rows_are_filled_in_order(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {3, 2, 1, 5, 0, 4};
    static const uint16_t expected[] = {1, 2, 3, 1, 2, 1, 9, 9, 9, 9, 1, 2, 3, 4, 5, 1, 2, 3, 4, 9};
    rks_collate_options options = rows_options(5, 1);
    rks_arrays *arrays = NULL;
    assert_ok(collate_lengths(lengths, 6, NULL, 0, &options, &arrays), &err);
    const rks_array *x = array_of(arrays, "x");
    assert_int_equal(x->dims[0], 4);
    assert_memory_equal(x->data, expected, sizeof(expected));
    rks_arrays_free(arrays);
}

static void no_samples_are_no_rows(void **state)
{
    (void)state;
    rks_collate_options options = rows_options(5, 1);
    rks_arrays *arrays = NULL;
    assert_ok(collate_lengths(NULL, 0, NULL, 0, &options, &arrays), &err);
    assert_true(array_of(arrays, "x")->dims[0] == 0 && array_of(arrays, "x")->dims[1] == 5);
    rks_arrays_free(arrays);
}

static void what_has_no_room_is_an_error(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {3, 2, 1}, bins[] = {0, 3};
    rks_collate_options options = rows_options(5, 1);
    rks_arrays *arrays = NULL;
    assert_fails(RKS_ERR_DATA, collate_lengths(lengths, 3, bins, 1, &options, &arrays));
    assert_string_equal(err.text,
                        "collate: sample 2 of the batch has 1 items, and 0 are left of row 0, "
                        "of 5");
    options = rows_options(2, 1);
    assert_fails(RKS_ERR_DATA, collate_lengths(lengths, 3, NULL, 0, &options, &arrays));
    assert_null(arrays);
}

static void columns_of_rows_have_as_many_items(void **state)
{
    (void)state;
    rks_value values[] = {{.data = numbers, .size = 6, .dims = {3}},
                          {.data = numbers, .size = 4, .dims = {2}}};
    samples s = {.count = 1, .values = values};
    rks_collate_options options = rows_options(5, 1);
    rks_arrays *arrays = NULL;
    options.columns = NULL;
    options.follows = NULL;
    assert_fails(RKS_ERR_DATA,
                 samples_collate("x:uint16[*],w:uint16[*]", &s, &options, &arrays, &err));
    assert_string_equal(
        err.text, "collate: sample 0 of the batch has 2 items in \"w\" and 3 in \"x\", and rows "
                  "hold as many of both; leave one out, or let it be packed apart");
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1};
    rks_arrays *arrays = NULL;
    rks_collate_options options = rows_options(0, 1);
    assert_fails(RKS_ERR_ARGUMENT, collate_lengths(lengths, 1, NULL, 0, &options, &arrays));
    assert_non_null(strstr(err.text, "the layout \"rows\" needs row_items"));
    options = rows_options(10, 4);
    assert_fails(RKS_ERR_ARGUMENT, collate_lengths(lengths, 1, NULL, 0, &options, &arrays));
    assert_non_null(strstr(err.text, "row_items 10 is not a multiple of each_multiple 4"));
    options = rows_options(8, 4);
    options.to_multiple = 2;
    assert_fails(RKS_ERR_ARGUMENT, collate_lengths(lengths, 1, NULL, 0, &options, &arrays));
    assert_non_null(strstr(err.text, "to_multiple cannot be used with the layout \"rows\""));
    options = rows_options(8, 4);
    options.follows = "w";
    assert_fails(RKS_ERR_ARGUMENT, collate_lengths(lengths, 1, NULL, 0, &options, &arrays));
    assert_non_null(strstr(err.text, "no array of column \"w\" has a variable first dimension"));
    rks_collate_options_default(&options);
    options.each_multiple = 2;
    assert_fails(RKS_ERR_ARGUMENT, collate_lengths(lengths, 1, NULL, 0, &options, &arrays));
    assert_non_null(strstr(err.text, "each_multiple needs the layout \"pack\" or \"rows\""));
    rks_collate_options_default(&options);
    options.row_items = 2;
    assert_fails(RKS_ERR_ARGUMENT, collate_lengths(lengths, 1, NULL, 0, &options, &arrays));
    assert_non_null(strstr(err.text, "row_items needs the layout \"rows\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_samples_lie_in_rows),
        cmocka_unit_test(random_pieces_are_cut_in_every_layout),
        cmocka_unit_test(without_bins_rows_are_filled_in_order),
        cmocka_unit_test(no_samples_are_no_rows),
        cmocka_unit_test(what_has_no_room_is_an_error),
        cmocka_unit_test(columns_of_rows_have_as_many_items),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
