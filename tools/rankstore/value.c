/* SPDX-License-Identifier: Apache-2.0
 *
 * value.c: from stored bytes to what a person or a script reads. */
#include "value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *cli_text_json(const void *bytes, size_t size)
{
    json_t *json = json_stringn(size == 0 ? "" : bytes, size);
    rks_schema *schema = NULL;
    const rks_value value = {.data = bytes, .size = size, .dims = {(uint32_t)size}};
    char *text = NULL;
    if (json == NULL && rks_schema_parse("x:bytes", &schema, NULL) == RKS_OK &&
        rks_value_json(schema, 0, &value, &text, NULL) == RKS_OK)
        json = json_loads(text, 0, NULL);
    rks_schema_free(schema);
    rks_release(text);
    return json;
}

/* ---- for people ------------------------------------------------------------------------- */

enum { TEXT_SHOWN = 400, BYTES_SHOWN = 16, ITEMS_SHOWN = 3 };

/* Dimensions in a type's name. */
static uint32_t dims_of(const char *type)
{
    uint32_t dims = 0;
    for (const char *c = type; *c != '\0' && *c != '?'; c++)
        dims += *c == '[' || *c == ',';
    return dims;
}

/* Appends the items of nested lists to `items`. */
static void flatten(json_t *list, uint32_t dims, json_t *items)
{
    json_t *item;
    size_t i;
    if (dims == 0)
        json_array_append(items, list);
    else
        json_array_foreach(list, i, item) flatten(item, dims - 1, items);
}

static void print_item(FILE *out, const json_t *item)
{
    char *text = json_dumps(item, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
    size_t size = text == NULL ? 0 : strlen(text);
    bool quoted = size >= 2 && text[0] == '"'; /* NaN, Infinity */
    fprintf(out, "%.*s", (int)(quoted ? size - 2 : size), text == NULL ? "" : text + quoted);
    free(text);
}

/* "1 2 3 ... 8 9 10" */
static void print_items(FILE *out, const json_t *items)
{
    size_t count = json_array_size(items);
    for (size_t i = 0; i < count; i++) {
        if (i == ITEMS_SHOWN && count > 2 * ITEMS_SHOWN) {
            fprintf(out, " ...");
            i = count - ITEMS_SHOWN;
        }
        fputc(' ', out);
        print_item(out, json_array_get(items, i));
    }
}

/* ", min 1, max 10"; items without an order (NaN) are counted. */
static void print_extremes(FILE *out, const json_t *items)
{
    const json_t *least = NULL, *most = NULL, *item;
    double low = 0, high = 0;
    uint64_t nan = 0;
    size_t i;
    json_array_foreach(items, i, item)
    {
        const char *text = json_string_value(item);
        double is = text == NULL ? json_number_value(item) : strtod(text, NULL);
        nan += isnan(is);
        if (least == NULL ? !isnan(is) : is < low)
            least = item, low = is;
        if (most == NULL ? !isnan(is) : is > high)
            most = item, high = is;
    }
    if (least != NULL) {
        fprintf(out, "; min ");
        print_item(out, least);
        fprintf(out, ", max ");
        print_item(out, most);
    }
    if (nan > 0)
        fprintf(out, "%s%llu NaN", least == NULL ? "; " : ", ", (unsigned long long)nan);
}

static void print_array(FILE *out, json_t *list, const rks_value *value, uint32_t dims)
{
    json_t *items = json_array();
    flatten(list, dims, items);
    size_t count = json_array_size(items);
    fputc('[', out);
    for (uint32_t i = 0; i < dims; i++)
        fprintf(out, "%s%u", i == 0 ? "" : ", ", value->dims[i]);
    fprintf(out, "]%s", count == 0 ? "" : " ");
    print_items(out, items);
    const json_t *first = json_array_get(items, 0);
    if (count > 1 && !json_is_boolean(first) && !json_is_array(first)) /* complex64 is a list */
        print_extremes(out, items);
    json_decref(items);
}

/* Whole characters of the first `most` bytes. */
static size_t cut_text(const uint8_t *bytes, size_t size, size_t most)
{
    if (size <= most)
        return size;
    while (most > 0 && (bytes[most] & 0xc0) == 0x80)
        most--;
    return most;
}

static void print_blob(FILE *out, const rks_value *value, bool is_text)
{
    const uint8_t *bytes = value->data;
    size_t size = (size_t)value->size, shown = cut_text(bytes, size, TEXT_SHOWN);
    json_t *valid = is_text ? json_stringn((const char *)bytes, shown) : NULL;
    if (valid != NULL) {
        cli_print_key(out, bytes, shown);
        if (shown < size)
            fprintf(out, " ... (%zu bytes)", size);
    } else {
        fprintf(out, "%zu bytes%s", size, size > 0 ? ":" : "");
        for (size_t i = 0; i < size && i < BYTES_SHOWN; i++)
            fprintf(out, " %02x", bytes[i]);
        if (size > BYTES_SHOWN)
            fprintf(out, " ...");
    }
    json_decref(valid);
}

static bool is_type(const char *type, const char *name)
{
    size_t size = strcspn(type, "[?");
    return strlen(name) == size && strncmp(type, name, size) == 0;
}

rks_status cli_print_value(FILE *out, const rks_schema *schema, uint32_t column,
                           const rks_value *value, rks_error *err)
{
    const char *type = rks_schema_type(schema, column);
    uint32_t dims = dims_of(type);
    if (value->data == NULL) {
        fprintf(out, "missing");
        return RKS_OK;
    }
    if (is_type(type, "str") || is_type(type, "json") || is_type(type, "bytes")) {
        print_blob(out, value, !is_type(type, "bytes"));
        return RKS_OK;
    }
    char *text = NULL;
    rks_status status = rks_value_json(schema, column, value, &text, err);
    json_t *made = status == RKS_OK ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    rks_release(text);
    if (dims == 0)
        print_item(out, made);
    else
        print_array(out, made, value, dims);
    json_decref(made);
    return status;
}

void cli_print_json(json_t *value, size_t flags)
{
    char *text = value == NULL ? NULL : json_dumps(value, flags);
    printf("%s\n", text == NULL ? "{}" : text);
    free(text);
    json_decref(value);
}

/* Bytes of the control character at `bytes`; 0: it is none. U+0080 to U+009F are, too: a terminal
 * takes U+009B for ESC [. */
static size_t control_size(const uint8_t *bytes, size_t size)
{
    if (size > 1 && bytes[0] == 0xc2 && bytes[1] >= 0x80 && bytes[1] < 0xa0)
        return 2;
    return bytes[0] < 0x20 || bytes[0] == 0x7f;
}

void cli_print_key(FILE *out, const void *key, size_t size)
{
    const uint8_t *bytes = key;
    size_t hidden = 0; /* up to here */
    json_t *valid = json_stringn(key, size);
    for (size_t i = 0; i < size; i++) {
        if (i >= hidden)
            hidden = i + control_size(bytes + i, size - i);
        if (i < hidden || (valid == NULL && bytes[i] >= 0x80))
            fprintf(out, "\\x%02x", bytes[i]);
        else
            fputc(bytes[i], out);
    }
    json_decref(valid);
}

const char *cli_shown(const char *text)
{
    enum { RING = 4 };
    static char *ring[RING];
    static int at;
    size_t size = 0;
    char *made = NULL;
    FILE *out = open_memstream(&made, &size);
    if (out == NULL)
        return "?";
    cli_print_key(out, text, strlen(text));
    fclose(out);
    at = (at + 1) % RING;
    free(ring[at]);
    ring[at] = made;
    return made == NULL ? "?" : made;
}
