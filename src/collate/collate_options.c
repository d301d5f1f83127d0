/* SPDX-License-Identifier: Apache-2.0
 *
 * collate_options.c: options against a schema, once; what comes out is read for each sample. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/cpu_features.h"
#include "collate/collate_fields.h"

void(rks_collate_options_default)(rks_collate_options *options)
{
    *options = (rks_collate_options){
        .struct_size = sizeof(*options),
        .layout = "pad",
        .to_multiple = 1,
        .each_multiple = 1,
    };
}

static rks_status check_rows(const rks_collate_options *options, bool rows, bool pack,
                             rks_error *err)
{
    const char *wrong = !rows && options->row_items != 0      ? "row_items needs"
                        : !rows && options->documents != NULL ? "documents needs"
                                                              : NULL;
    if (wrong != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "collate: %s the layout \"rows\"", wrong);
    uint32_t each = options->each_multiple == 0 ? 1 : options->each_multiple;
    if (!pack && each != 1)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: each_multiple needs the layout \"pack\" or \"rows\"");
    if (rows && options->row_items == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "collate: the layout \"rows\" needs row_items");
    if (rows && options->row_items % each != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: row_items %" PRIu32
                        " is not a multiple of each_multiple %" PRIu32,
                        options->row_items, each);
    if (rows && options->to_multiple != 1)
        return rks_fail(
            err, RKS_ERR_ARGUMENT, 0,
            "collate: to_multiple cannot be used with the layout \"rows\": row_items is "
            "their width");
    return RKS_OK;
}

/* *pack is set for rows, too. */
static rks_status parse_layout(const rks_collate_options *options, bool *pack, bool *rows,
                               rks_error *err)
{
    const char *layout = options->layout == NULL ? "pad" : options->layout;
    *rows = strcmp(layout, "rows") == 0;
    *pack = *rows || strcmp(layout, "pack") == 0;
    if (!*pack && strcmp(layout, "pad") != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: layout \"%s\" is not \"pad\", \"pack\" or \"rows\"", layout);
    if (options->to_multiple == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: to_multiple is 0; it must be at least 1");
    const char *wrong = *pack && options->left           ? "left needs"
                        : *pack && options->mask != NULL ? "mask needs"
                                                         : NULL;
    if (wrong != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "collate: %s the layout \"pad\"", wrong);
    if (!*pack && options->positions != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: positions needs the layout \"pack\" or \"rows\"");
    return check_rows(options, *rows, *pack, err);
}

/* Finds a type such as "int64". Returns false if it is not one of an array's items. */
static bool find_item(const char *type, rks_kind *kind)
{
    return rks_kind_find(type, strlen(type), kind) && !rks_kind_is_text(*kind);
}

bool rks_collate_converts(const char *from, const char *to)
{
    rks_kind stored, asked;
    return from != NULL && to != NULL && find_item(from, &stored) && find_item(to, &asked) &&
           rks_item_convert(stored, asked, rks_kinds[stored].size, false) != NULL;
}

/* Chooses an item's type, and how stored items are converted to it. */
static rks_status choose_type(rks_collate_field *field, const rks_column *column, const char *type,
                              rks_kind *kind, rks_error *err)
{
    rks_kind from = rks_item_kind(column);
    *kind = from;
    if (type != NULL && !find_item(type, kind))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: column \"%s\": \"%s\" is not an item type of an array",
                        column->name, type);
    field->from_size = column->item_size;
    field->to_size = rks_kinds[*kind].size;
    snprintf(field->type, sizeof(field->type), "%s", rks_kinds[*kind].name);
    field->convert = rks_item_convert(from, *kind, field->to_size, rks_has_avx2());
    if (field->convert == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: column \"%s\": %s does not hold every value of %s", column->name,
                        field->type, column->type);
    return RKS_OK;
}

static rks_status choose_values(rks_collate_field *field, const rks_collate_column *asked,
                                rks_kind kind, bool pack, rks_error *err)
{
    if (!rks_item_encode(kind, asked->pad, field->pad))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: column \"%s\": pad %g does not fit into %s", asked->column,
                        asked->pad, field->type);
    field->mark_first = asked->mark_first;
    if (!asked->mark_first)
        return RKS_OK;
    if (!pack || field->cut_dim == field->dim_count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: column \"%s\": mark_first needs the layout \"pack\" and a "
                        "variable dimension",
                        asked->column);
    if (!rks_item_encode(kind, asked->first, field->first))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: column \"%s\": first %g does not fit into %s", asked->column,
                        asked->first, field->type);
    return RKS_OK;
}

static rks_status check_array_name(const rks_collate *collate, const char *name, rks_error *err)
{
    if (name[0] == '\0')
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "collate: an array's name is empty");
    for (uint32_t i = 0; i < collate->count; i++)
        if (strcmp(collate->fields[i].name, name) == 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "collate: two arrays are named \"%s\"", name);
    return RKS_OK;
}

/* Adds the next field, with its name and zeros. */
static rks_status add_field(rks_collate *collate, const char *name, rks_collate_field **field,
                            rks_error *err)
{
    rks_status status = check_array_name(collate, name, err);
    if (status != RKS_OK)
        return status;
    rks_collate_field *next = &collate->fields[collate->count];
    next->name = rks_strdup(name, err);
    if (next->name == NULL)
        return RKS_ERR_MEMORY;
    collate->count++;
    next->to_multiple = collate->to_multiple;
    next->max_length = collate->max_length;
    next->each = collate->each;
    *field = next;
    return RKS_OK;
}

static void set_shape(rks_collate_field *field, const rks_column *column)
{
    field->dim_count = field->cut_dim = column->dim_count;
    for (uint32_t d = column->dim_count; d-- > 0;) {
        field->dims[d] = column->dims[d];
        if (column->dims[d] == 0)
            field->cut_dim = d;
    }
    field->text = rks_kind_is_text(column->kind);
}

/* Decides whether the field is packed, in rows or stacked. *pack: the layout packs; also set if the
 * column alone is packed. */
static void set_placing(const rks_collate *collate, rks_collate_field *field,
                        const rks_column *column, const rks_collate_column *asked, bool *pack)
{
    if (field->text) {
        field->to_multiple = 1;
        field->max_length = UINT32_MAX;
        field->each = 1;
    }
    field->apart = asked->packed;
    if (asked->exact && !*pack)
        field->to_multiple = 1;
    if (asked->packed && (!*pack || collate->rows)) {
        field->to_multiple = field->each = 1;
        *pack = true;
    }
    field->pack = (*pack || field->text) && column->variable_dims != 0;
    field->rows = field->pack && collate->rows && !field->text && !asked->packed;
    field->is_row = !field->pack && !field->text && field->dim_count == 1 && field->cut_dim == 0 &&
                    !collate->left;
}

static rks_status add_array_column(rks_collate *collate, const rks_schema *schema, bool pack,
                                   const rks_collate_column *asked, rks_error *err)
{
    int number = asked->column == NULL ? -1 : rks_schema_find(schema, asked->column);
    if (number < 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "collate: there is no column \"%s\"",
                        asked->column == NULL ? "" : asked->column);
    const rks_column *column = rks_schema_column(schema, (uint32_t)number);
    rks_collate_field *field = NULL;
    rks_kind kind;
    rks_status status =
        add_field(collate, asked->name == NULL ? column->name : asked->name, &field, err);
    if (status != RKS_OK)
        return status;
    field->column = (uint32_t)number;
    set_shape(field, column);
    set_placing(collate, field, column, asked, &pack);
    if (field->pack && (field->cut_dim != 0 || column->variable_dims != 1))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: column \"%s\" (%s) cannot be packed: only its first dimension "
                        "may vary",
                        column->name, column->type);
    status = choose_type(field, column, asked->type, &kind, err);
    return status == RKS_OK ? choose_values(field, asked, kind, pack, err) : status;
}

static rks_status add_columns(rks_collate *collate, const rks_schema *schema, bool pack,
                              const rks_collate_options *options, rks_error *err)
{
    rks_status status = RKS_OK;
    if (options->columns == NULL) {
        for (uint32_t i = 0; status == RKS_OK && i < collate->columns; i++) {
            rks_collate_column all = {.column = rks_schema_name(schema, i)};
            status = add_array_column(collate, schema, pack, &all, err);
        }
        return status;
    }
    if (options->column_count == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "collate: no columns");
    for (size_t i = 0; status == RKS_OK && i < options->column_count; i++)
        status = add_array_column(collate, schema, pack, &options->columns[i], err);
    return status;
}

/* Returns true if a mask or positions may follow the field. */
static bool leads(const rks_collate_field *field, bool pack)
{
    return !field->text && field->cut_dim != field->dim_count && field->pack == pack;
}

/* Layout rows: chooses the column that rows follow. */
static rks_status choose_rows(rks_collate *collate, const rks_schema *schema, const char *column,
                              rks_error *err)
{
    int wanted = column == NULL ? -1 : rks_schema_find(schema, column);
    uint32_t i = 0;
    while (i < collate->count && (!collate->fields[i].rows ||
                                  (column != NULL && (int)collate->fields[i].column != wanted)))
        i++;
    if (i == collate->count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: rows: %s%s%s has a variable first dimension",
                        column == NULL ? "no array column" : "no array of column \"",
                        column == NULL ? "" : column, column == NULL ? "" : "\"");
    collate->follows = i;
    return RKS_OK;
}

/* Adds an array of rows that describes the column which they follow. */
static rks_status add_row_helper(rks_collate *collate, const char *name, int what, const char *type,
                                 size_t size, rks_error *err)
{
    rks_collate_field *field = NULL;
    rks_status status = name == NULL ? RKS_OK : add_field(collate, name, &field, err);
    if (status != RKS_OK || name == NULL)
        return status;
    field->what = what;
    field->pack = field->rows = true;
    field->follows = collate->follows;
    field->dim_count = 1;
    field->to_size = size;
    snprintf(field->type, sizeof(field->type), "%s", type);
    return RKS_OK;
}

static rks_status add_row_helpers(rks_collate *collate, const rks_schema *schema,
                                  const rks_collate_options *options, rks_error *err)
{
    rks_status status = choose_rows(collate, schema, options->follows, err);
    if (status == RKS_OK)
        status = add_row_helper(collate, options->positions, RKS_FIELD_POSITIONS, "int64",
                                sizeof(int64_t), err);
    if (status == RKS_OK)
        status = add_row_helper(collate, options->documents, RKS_FIELD_DOCUMENTS, "int32",
                                sizeof(int32_t), err);
    return status;
}

/* Adds the array that shows where a column has items. */
static rks_status add_helper(rks_collate *collate, const rks_schema *schema, bool pack,
                             const char *name, const char *column, rks_error *err)
{
    const char *what = pack ? "positions" : "mask";
    uint32_t follows = 0;
    rks_collate_field *field = NULL;
    if (name == NULL)
        return RKS_OK;
    int wanted = column == NULL ? -1 : rks_schema_find(schema, column);
    while (follows < collate->count &&
           (!leads(&collate->fields[follows], pack) ||
            (column != NULL && (int)collate->fields[follows].column != wanted)))
        follows++;
    if (follows == collate->count && column != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: %s \"%s\": the column \"%s\" that it follows is not a %s array "
                        "with a variable dimension",
                        what, name, column, pack ? "packed" : "padded");
    if (follows == collate->count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: %s \"%s\": no array column has a variable dimension", what, name);
    rks_status status = add_field(collate, name, &field, err);
    if (status != RKS_OK)
        return status;
    field->what = pack ? RKS_FIELD_POSITIONS : RKS_FIELD_MASK;
    field->pack = pack;
    field->follows = follows;
    if (pack) {
        collate->has_positions = true;
        collate->follows = follows;
    }
    field->dim_count = 1;
    field->to_size = sizeof(int64_t);
    snprintf(field->type, sizeof(field->type), "int64");
    return RKS_OK;
}

static rks_status add_mark(rks_collate *collate, uint32_t follows, const char *ending, int what,
                           rks_error *err)
{
    char name[512];
    rks_collate_field *field = NULL;
    const rks_collate_field *followed = &collate->fields[follows];
    if ((size_t)snprintf(name, sizeof(name), "%s.%s", followed->name, ending) >= sizeof(name))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "collate: the name \"%s\" is too long",
                        followed->name);
    if (what == RKS_FIELD_ITEMS && followed->cut_dim == followed->dim_count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "collate: column \"%s\": mark_items needs a variable dimension",
                        followed->name);
    rks_status status = add_field(collate, name, &field, err);
    if (status != RKS_OK)
        return status;
    field->what = what;
    field->follows = follows;
    field->to_size = what == RKS_FIELD_ITEMS ? sizeof(int64_t) : 1;
    snprintf(field->type, sizeof(field->type), what == RKS_FIELD_ITEMS ? "int64" : "bool");
    return RKS_OK;
}

/* Adds the arrays that show which values are missing, and how many items there are. */
static rks_status add_marks(rks_collate *collate, const rks_collate_options *options,
                            rks_error *err)
{
    rks_status status = RKS_OK;
    uint32_t count = options->columns == NULL ? 0 : (uint32_t)options->column_count;
    for (uint32_t i = 0; status == RKS_OK && i < count; i++) {
        if (options->columns[i].mark_missing)
            status = add_mark(collate, i, "missing", RKS_FIELD_MISSING, err);
        if (status == RKS_OK && options->columns[i].mark_items)
            status = add_mark(collate, i, "items", RKS_FIELD_ITEMS, err);
    }
    return status;
}

static rks_record_pick pick_columns(const rks_collate *collate, const rks_schema *schema)
{
    uint32_t first = UINT32_MAX, last = 0;
    for (uint32_t i = 0; i < collate->count; i++) {
        const rks_collate_field *field = &collate->fields[i];
        if (field->what != RKS_FIELD_COLUMN)
            continue;
        first = field->column < first ? field->column : first;
        last = field->column > last ? field->column : last;
    }
    return rks_record_pick_columns(schema, first, last);
}

static rks_status make(rks_collate *made, const rks_schema *schema,
                       const rks_collate_options *options, rks_error *err)
{
    bool pack = false;
    rks_status status = parse_layout(options, &pack, &made->rows, err);
    if (status != RKS_OK)
        return status;
    made->columns = rks_schema_columns(schema);
    size_t most = options->columns == NULL ? made->columns : options->column_count;
    if (most > RKS_COLUMNS_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "collate: %zu columns, at most %d", most,
                        RKS_COLUMNS_MAX);
    made->fields = rks_alloc(3 * most + 2, sizeof(*made->fields), err);
    if (made->fields == NULL)
        return RKS_ERR_MEMORY;
    made->to_multiple = options->to_multiple;
    made->max_length = options->max_length == 0 ? UINT32_MAX : options->max_length;
    made->cut_by_length = options->cut_by_length;
    made->left = options->left;
    made->row_items = options->row_items;
    made->each = options->each_multiple == 0 ? 1 : options->each_multiple;
    status = add_columns(made, schema, pack, options, err);
    if (status == RKS_OK && made->rows)
        status = add_row_helpers(made, schema, options, err);
    else if (status == RKS_OK)
        status = add_helper(made, schema, pack, pack ? options->positions : options->mask,
                            options->follows, err);
    if (status == RKS_OK)
        status = add_marks(made, options, err);
    if (status == RKS_OK)
        made->pick = pick_columns(made, schema);
    return status;
}

rks_status rks_collate_create(const rks_schema *schema, const rks_collate_options *options,
                              rks_collate **collate, rks_error *err)
{
    rks_collate_options chosen;
    rks_collate_options_default(&chosen);
    if (options != NULL)
        memcpy(&chosen, options,
               options->struct_size < sizeof(chosen) ? options->struct_size : sizeof(chosen));
    rks_collate *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    atomic_init(&made->references, 1);
    rks_status status = make(made, schema, &chosen, err);
    if (status != RKS_OK) {
        rks_collate_release(made);
        return status;
    }
    *collate = made;
    return RKS_OK;
}

const rks_record_pick *rks_collate_pick(const rks_collate *collate)
{
    return &collate->pick;
}

void rks_collate_use(rks_collate *collate, rks_arenas *arenas)
{
    rks_arenas_hold(arenas);
    collate->arenas = arenas;
}

rks_arenas *rks_collate_arenas(const rks_collate *collate)
{
    return collate->arenas;
}

bool rks_collate_has_rows(const rks_collate *collate)
{
    return collate->rows;
}

void rks_collate_hold(rks_collate *collate)
{
    atomic_fetch_add(&collate->references, 1);
}

void rks_collate_release(rks_collate *collate)
{
    if (collate == NULL || atomic_fetch_sub(&collate->references, 1) != 1)
        return;
    for (uint32_t i = 0; i < collate->count; i++)
        rks_free(collate->fields[i].name);
    rks_free(collate->fields);
    rks_arenas_release(collate->arenas);
    rks_free(collate);
}
