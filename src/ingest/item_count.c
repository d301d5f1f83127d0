/* SPDX-License-Identifier: Apache-2.0
 *
 * item_count.c: reads rules, and counts the items of each row. */
#include "ingest/item_count.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "codec/condition.h"
#include "codec/filter.h"

/* A rule as it is written. */
typedef struct rule {
    char *name;
    char *column;
    rks_operation op;
    rks_number number;
} rule;

/* A rule against a schema. */
typedef struct counted {
    uint32_t column;
    rks_kind kind;
    uint32_t item_size;
    rks_operation op;
    rks_number number;
    int64_t found; /* of the current row */
} counted;

struct rks_item_counts {
    rks_schema *rows;
    uint32_t row_columns;
    counted *each;
    size_t count;
    rks_value *values; /* of the dataset's schema */
};

/* ---- reading ----------------------------------------------------------------------------------
 */

static rks_status read_name(rks_condition_parser *parse, const char *what, char **name,
                            rks_error *err)
{
    rks_status status = rks_condition_token(parse, " \t\r\n=!<>\"'", what, err);
    if (status != RKS_OK)
        return status;
    *name = rks_strdup((const char *)parse->token.data, err);
    return *name == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

static rks_status read_bound(rks_condition_parser *parse, rks_number *number, rks_error *err)
{
    bool good = false;
    rks_status status = rks_condition_token(parse, " \t\r\n", "a number", err);
    const char *text = (const char *)parse->token.data;
    if (status == RKS_OK && !parse->quoted)
        status = rks_condition_number(text, number, &good, err);
    if (status == RKS_OK && !good)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "count: a number expected at %zu, not \"%.40s\"; a rule is NAME = COLUMN "
                        "OP NUMBER, as learned = labels != -100",
                        parse->place, text);
    rks_condition_skip_spaces(parse);
    if (status == RKS_OK && *parse->at != '\0')
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "count: nothing expected at %zu, not \"%.20s\"",
                        rks_condition_place(parse), parse->at);
    return status;
}

static rks_status read_equals(rks_condition_parser *parse, rks_error *err)
{
    rks_condition_skip_spaces(parse);
    if (strspn(parse->at, "=!<>") != 1 || *parse->at != '=')
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "count: = expected at %zu, not \"%.20s\"; a rule is NAME = COLUMN OP "
                        "NUMBER, as learned = labels != -100",
                        rks_condition_place(parse), parse->at);
    parse->at++;
    return RKS_OK;
}

static rks_status read_rule(const char *text, rule *into, rks_error *err)
{
    rks_condition_parser parse = {.option = "count", .text = text, .at = text};
    rks_status status = text == NULL ? rks_fail(err, RKS_ERR_ARGUMENT, 0, "count: a rule is NULL")
                                     : read_name(&parse, "a name", &into->name, err);
    if (status == RKS_OK)
        status = read_equals(&parse, err);
    if (status == RKS_OK)
        status = read_name(&parse, "a column", &into->column, err);
    if (status == RKS_OK)
        status = rks_condition_operation(&parse, &into->op, err);
    if (status == RKS_OK)
        status = read_bound(&parse, &into->number, err);
    rks_buffer_free(&parse.token);
    return status;
}

static void free_rules(rule *rules, size_t count)
{
    for (size_t i = 0; rules != NULL && i < count; i++) {
        rks_free(rules[i].name);
        rks_free(rules[i].column);
    }
    rks_free(rules);
}

/* Free *rules with free_rules, also after a failure. */
static rks_status read_rules(const char *const *texts, size_t count, rule **rules, rks_error *err)
{
    rks_status status = RKS_OK;
    *rules = rks_alloc(count, sizeof(**rules), err);
    if (*rules == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = read_rule(texts[i], &(*rules)[i], err);
    return status;
}

/* ---- schemas ----------------------------------------------------------------------------------
 */

static rks_status check_column(const rks_schema *schema, const char *name, bool inferred,
                               rks_error *err)
{
    int found = rks_schema_find(schema, name);
    if (found < 0)
        return RKS_OK;
    if (inferred)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "count: the samples have a column \"%s\" already; choose another name",
                        name);
    const char *type = rks_schema_type(schema, (uint32_t)found);
    return strcmp(type, "int64") == 0
               ? RKS_OK
               : rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "count: \"%s\" is %s in the schema; a count is int64", name, type);
}

/* Free *names with rks_free; the names are the rules'. */
static rks_status names_of(const rule *rules, size_t count, const char ***names, rks_error *err)
{
    *names = rks_alloc(count, sizeof(**names), err);
    if (*names == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        (*names)[i] = rules[i].name;
    return RKS_OK;
}

rks_status rks_item_counts_source(const rks_schema *schema, const char *const *rules, size_t count,
                                  bool inferred, rks_schema **source, rks_error *err)
{
    rule *read = NULL;
    const char **names = NULL;
    rks_status status = read_rules(rules, count, &read, err);
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = check_column(schema, read[i].name, inferred, err);
    if (status == RKS_OK)
        status = names_of(read, count, &names, err);
    if (status == RKS_OK)
        status = rks_schema_without(schema, names, count, source, err);
    rks_free(names);
    free_rules(read, count);
    return status;
}

rks_status rks_item_counts_schema(const rks_schema *source, const char *const *rules, size_t count,
                                  rks_schema **schema, rks_error *err)
{
    rule *read = NULL;
    const char **names = NULL;
    rks_status status = read_rules(rules, count, &read, err);
    if (status == RKS_OK)
        status = names_of(read, count, &names, err);
    if (status == RKS_OK)
        status = rks_schema_with(source, names, count, "int64", schema, err);
    rks_free(names);
    free_rules(read, count);
    return status;
}

static bool is_same(const rule *a, const rule *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->column, b->column) == 0 && a->op == b->op &&
           rks_number_compare(a->number, b->number) == 0;
}

rks_status rks_item_counts_equal(const char *const *a, size_t a_count, const char *const *b,
                                 size_t b_count, bool *equal, rks_error *err)
{
    rule *ours = NULL, *theirs = NULL;
    rks_status status = read_rules(a, a_count, &ours, err);
    if (status == RKS_OK)
        status = read_rules(b, b_count, &theirs, err);
    *equal = status == RKS_OK && a_count == b_count;
    for (size_t i = 0; *equal && i < a_count; i++)
        *equal = is_same(&ours[i], &theirs[i]);
    free_rules(ours, a_count);
    free_rules(theirs, b_count);
    return status;
}

/* ---- counting ---------------------------------------------------------------------------------
 */

static rks_status compile(rks_item_counts *counts, const rks_schema *schema, size_t i,
                          const rule *from, rks_error *err)
{
    counted *into = &counts->each[i];
    const int place = rks_schema_find(schema, from->name);
    if (place < 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "count: the dataset has no column \"%s\", and an append adds none; leave "
                        "the option out, or build the dataset again with it",
                        from->name);
    if (place != (int)(counts->row_columns + i))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "count: \"%s\" is not at its place in the schema, after the columns that "
                        "rows bring",
                        from->name);
    rks_status status = rks_column_named(counts->rows, "count", from->column, &into->column, err);
    if (status != RKS_OK)
        return status;
    const rks_column *column = rks_schema_column(counts->rows, into->column);
    if (column->kind >= RKS_KIND_COMPLEX64)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "count: \"%s\" counts numbers of \"%s\", which is %s; give its numbers a "
                        "type in the schema, or a function of a sample (in Python)",
                        from->name, column->name, column->type);
    into->kind = column->kind == RKS_KIND_BOOL ? RKS_KIND_UINT8 : column->kind;
    into->item_size = column->item_size;
    into->op = from->op;
    into->number = from->number;
    counts->values[counts->row_columns + i] =
        (rks_value){.data = &into->found, .size = sizeof(into->found)};
    return RKS_OK;
}

static rks_status compile_all(rks_item_counts *counts, const rks_schema *schema,
                              const char *const *rules, rks_error *err)
{
    rule *read = NULL;
    rks_status status =
        rks_item_counts_source(schema, rules, counts->count, false, &counts->rows, err);
    if (status == RKS_OK)
        status = read_rules(rules, counts->count, &read, err);
    if (status == RKS_OK) {
        counts->row_columns = rks_schema_columns(counts->rows);
        counts->each = rks_alloc(counts->count, sizeof(*counts->each), err);
        counts->values =
            rks_alloc(counts->row_columns + counts->count, sizeof(*counts->values), err);
        if (counts->each == NULL || counts->values == NULL)
            status = RKS_ERR_MEMORY;
    }
    for (size_t i = 0; status == RKS_OK && i < counts->count; i++)
        status = compile(counts, schema, i, &read[i], err);
    free_rules(read, counts->count);
    return status;
}

rks_status rks_item_counts_create(const rks_schema *schema, const char *const *rules, size_t count,
                                  rks_item_counts **counts, rks_error *err)
{
    rks_item_counts *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->count = count;
    rks_status status = compile_all(made, schema, rules, err);
    if (status == RKS_OK)
        *counts = made;
    else
        rks_item_counts_free(made);
    return status;
}

void rks_item_counts_free(rks_item_counts *counts)
{
    if (counts == NULL)
        return;
    rks_schema_free(counts->rows);
    rks_free(counts->each);
    rks_free(counts->values);
    rks_free(counts);
}

const rks_schema *rks_item_counts_rows(const rks_item_counts *counts)
{
    return counts->rows;
}

static int64_t count_holding(const counted *by, const rks_value *value)
{
    int64_t found = 0;
    const uint8_t *item = value->data;
    for (uint64_t left = item == NULL ? 0 : value->size / by->item_size; left > 0; left--) {
        found += rks_operation_holds(
            by->op, rks_number_compare(rks_number_load(by->kind, item), by->number));
        item += by->item_size;
    }
    return found;
}

const rks_value *rks_item_counts_apply(rks_item_counts *counts, const rks_value *values)
{
    memcpy(counts->values, values, counts->row_columns * sizeof(*values));
    for (size_t i = 0; i < counts->count; i++)
        counts->each[i].found = count_holding(&counts->each[i], &values[counts->each[i].column]);
    return counts->values;
}
