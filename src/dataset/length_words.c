/* SPDX-License-Identifier: Apache-2.0
 *
 * length_words.c: what lengths count follows from the schema and the options that the build
 * recorded. A build without the option records the column if that is a fixed-size one; earlier
 * versions did not, and their samples have length 1. */
#include "dataset/length_words.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SHOWN = 80 }; /* bytes */

/* Returns the column that rks_selector_create() uses if none is named. */
static const char *first_variable(const rks_schema *schema, const char *key)
{
    for (uint32_t i = 0; i < rks_schema_columns(schema); i++) {
        const rks_column *column = rks_schema_column(schema, i);
        if (column->variable_dims > 0 && (key == NULL || strcmp(column->name, key) != 0))
            return column->name;
    }
    return NULL;
}

static const char *counted_of(const rks_column *column)
{
    if (column->dim_count == 0)
        return "the number in";
    return rks_kind_is_text(column->kind) ? "bytes of" : "items of";
}

/* Returns how many bytes of a name are shown, in whole characters of UTF-8. */
static int shown(const char *name)
{
    size_t size = strlen(name);
    if (size <= NAME_SHOWN)
        return (int)size;
    for (size = NAME_SHOWN; size > 0 && ((uint8_t)name[size] & 0xc0) == 0x80;)
        size--;
    return (int)size;
}

/* `name` is a column's, or "chars:" or "wav:" and a column's name. */
static void name_rule(const rks_schema *schema, const char *name, char *text, size_t room)
{
    int at = rks_schema_find(schema, name);
    const char *what = "characters of";
    char each[32] = "";
    if (at >= 0) {
        const rks_column *column = rks_schema_column(schema, (uint32_t)at);
        what = counted_of(column);
        if (column->dim_count > 0 && column->variable_dims == 0)
            snprintf(each, sizeof(each), ", %" PRIu32 " each", column->dims[0]);
    } else if (strncmp(name, "chars:", 6) == 0) {
        name += 6;
    } else if (strncmp(name, "wav:", 4) == 0) {
        what = "sample frames of";
        name += 4;
    }
    int size = shown(name);
    snprintf(text, room, "%s %.*s%s%s", what, size, name, name[size] == '\0' ? "" : "...", each);
}

void rks_dataset_length_words(const rks_dataset *dataset, char text[RKS_LENGTH_WORDS])
{
    text[0] = '\0';
    if (dataset->source_count > 1 || dataset->build_options == NULL)
        return;
    json_t *options = json_loads(dataset->build_options, 0, NULL);
    const char *name = json_string_value(json_object_get(options, "length"));
    json_int_t unit = json_integer_value(json_object_get(options, "length_unit"));
    if (name == NULL)
        name = first_variable(dataset->schema, json_string_value(json_object_get(options, "key")));
    if (options == NULL)
        return;
    if (json_is_true(json_object_get(options, "length_fn")))
        snprintf(text, RKS_LENGTH_WORDS, "what a function said");
    else if (name == NULL)
        snprintf(text, RKS_LENGTH_WORDS, "1 each");
    else
        name_rule(dataset->schema, name, text, RKS_LENGTH_WORDS);
    size_t used = strlen(text);
    if (unit > 1)
        snprintf(text + used, RKS_LENGTH_WORDS - used, " / %" JSON_INTEGER_FORMAT ", rounded up",
                 unit);
    json_decref(options);
}
