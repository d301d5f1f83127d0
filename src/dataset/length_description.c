/* SPDX-License-Identifier: Apache-2.0
 *
 * length_description.c: what lengths count follows from the schema and the options that the build
 * recorded. */
#include "dataset/length_description.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_SHOWN = 80 }; /* bytes */

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

rks_recorded_length rks_recorded_length_read(const json_t *options)
{
    json_int_t unit = json_integer_value(json_object_get(options, "length_unit"));
    return (rks_recorded_length){
        .name = json_string_value(json_object_get(options, "length")),
        .unit = unit > 0 && unit <= UINT32_MAX ? (uint32_t)unit : 0,
        .by_function = json_is_true(json_object_get(options, "length_fn")),
    };
}

const char *rks_recorded_length_name(const rks_recorded_length *recorded, const rks_schema *schema,
                                     const char *key)
{
    if (recorded->by_function || recorded->name != NULL)
        return recorded->by_function ? NULL : recorded->name;
    const rks_column *column = rks_schema_unrecorded_length(schema, key);
    return column == NULL ? NULL : column->name;
}

bool rks_dataset_length_rule(const rks_dataset *dataset, rks_length_rule *rule)
{
    *rule = (rks_length_rule){.unit = 1};
    if (dataset->source_count > 1 || dataset->build_options == NULL)
        return false;
    json_t *options = json_loads(dataset->build_options, 0, NULL);
    if (options == NULL)
        return false;
    const char *key = json_string_value(json_object_get(options, "key"));
    const rks_recorded_length recorded = rks_recorded_length_read(options);
    const char *name = rks_recorded_length_name(&recorded, dataset->schema, key);
    rule->by_function = recorded.by_function;
    rule->unit = recorded.unit == 0 ? 1 : recorded.unit;
    if (name != NULL)
        snprintf(rule->name, sizeof(rule->name), "%s", name);
    json_decref(options);
    return true;
}

void rks_dataset_length_words(const rks_dataset *dataset, char text[RKS_LENGTH_WORDS])
{
    rks_length_rule rule;
    text[0] = '\0';
    if (!rks_dataset_length_rule(dataset, &rule))
        return;
    if (rule.by_function)
        snprintf(text, RKS_LENGTH_WORDS, "what a function said");
    else if (rule.name[0] == '\0')
        snprintf(text, RKS_LENGTH_WORDS, "1 each");
    else
        name_rule(dataset->schema, rule.name, text, RKS_LENGTH_WORDS);
    size_t used = strlen(text);
    if (rule.unit > 1)
        snprintf(text + used, RKS_LENGTH_WORDS - used, " / %" PRIu32 ", rounded up", rule.unit);
}
