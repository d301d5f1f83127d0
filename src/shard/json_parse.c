/* SPDX-License-Identifier: Apache-2.0
 *
 * json_parse.c: parses JSON as our own writers print it, in a third of jansson's time. A dataset of
 * thousands of shards has as many manifests, and parsing them took most of the time to open it.
 *
 * This parser accepts only plain text: ASCII strings without escapes, whole numbers of at most 18
 * digits, few levels. jansson parses everything else and reports its errors, so both accept the
 * same texts and make the same values of them. */
#include "shard/json_parse.h"

#include <string.h>

#include "base/json_error.h"

enum { DEPTH_MAX = 16, NAME_ROOM = 128, DIGITS_MAX = 18 };

typedef struct cursor {
    const char *at, *end;
    int depth;
} cursor;

static json_t *plain_value(cursor *c);

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r'))
        c->at++;
}

/* Skips spaces and returns the next character; '\0' at the end. */
static char peek(cursor *c)
{
    skip_space(c);
    return c->at < c->end ? *c->at : '\0';
}

static bool plain_sign(cursor *c, char wanted)
{
    bool is = wanted != '\0' && peek(c) == wanted;
    c->at += is;
    return is;
}

/* Reads a string in quotes. */
static bool plain_quoted(cursor *c, const char **text, size_t *size)
{
    if (!plain_sign(c, '"'))
        return false;
    const char *begin = c->at;
    while (c->at < c->end && *c->at >= 0x20 && *c->at < 0x7f && *c->at != '"' && *c->at != '\\')
        c->at++;
    if (c->at == c->end || *c->at != '"')
        return false;
    *text = begin;
    *size = (size_t)(c->at++ - begin);
    return true;
}

static json_t *plain_string(cursor *c)
{
    const char *text = NULL;
    size_t size = 0;
    return plain_quoted(c, &text, &size) ? json_stringn_nocheck(text, size) : NULL;
}

static json_t *plain_number(cursor *c)
{
    bool negative = c->at < c->end && *c->at == '-';
    const char *digits = c->at += negative;
    json_int_t value = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && c->at - digits < DIGITS_MAX)
        value = value * 10 + (*c->at++ - '0');
    bool leads = c->at - digits > 1 && *digits == '0';
    bool goes_on = c->at < c->end && strchr("0123456789.eE", *c->at) != NULL;
    if (c->at == digits || leads || goes_on)
        return NULL;
    return json_integer(negative ? -value : value);
}

static json_t *plain_word(cursor *c, const char *word, json_t *value)
{
    size_t size = strlen(word);
    if ((size_t)(c->end - c->at) < size || memcmp(c->at, word, size) != 0)
        return NULL;
    c->at += size;
    return value; /* true, false and null are never freed */
}

static bool plain_items(cursor *c, json_t *array)
{
    if (plain_sign(c, ']'))
        return true;
    do {
        json_t *item = plain_value(c);
        if (item == NULL || json_array_append_new(array, item) != 0)
            return false;
    } while (plain_sign(c, ','));
    return plain_sign(c, ']');
}

static bool plain_member(cursor *c, json_t *object)
{
    char name[NAME_ROOM];
    const char *text = NULL;
    size_t size = 0, before = json_object_size(object);
    if (!plain_quoted(c, &text, &size) || size >= sizeof(name) || !plain_sign(c, ':'))
        return false;
    memcpy(name, text, size);
    name[size] = '\0';
    json_t *value = plain_value(c);
    return value != NULL && json_object_set_new_nocheck(object, name, value) == 0 &&
           json_object_size(object) > before; /* otherwise the name was a duplicate */
}

static bool plain_members(cursor *c, json_t *object)
{
    if (plain_sign(c, '}'))
        return true;
    do {
        if (!plain_member(c, object))
            return false;
    } while (plain_sign(c, ','));
    return plain_sign(c, '}');
}

static json_t *plain_container(cursor *c)
{
    bool is_object = *c->at++ == '{';
    json_t *made = is_object ? json_object() : json_array();
    bool good = made != NULL && c->depth < DEPTH_MAX;
    c->depth++;
    good = good && (is_object ? plain_members(c, made) : plain_items(c, made));
    c->depth--;
    if (!good)
        json_decref(made);
    return good ? made : NULL;
}

/* Returns NULL if the value is not plain or memory is short. */
static json_t *plain_value(cursor *c)
{
    switch (peek(c)) {
    case '{':
    case '[':
        return plain_container(c);
    case '"':
        return plain_string(c);
    case 't':
        return plain_word(c, "true", json_true());
    case 'f':
        return plain_word(c, "false", json_false());
    case 'n':
        return plain_word(c, "null", json_null());
    default:
        return plain_number(c);
    }
}

json_t *rks_json_load(const char *text, size_t size, json_error_t *where)
{
    cursor c = {.at = text, .end = text + size};
    json_t *parsed = peek(&c) == '{' || peek(&c) == '[' ? plain_value(&c) : NULL;
    if (parsed != NULL && peek(&c) == '\0' && c.at == c.end)
        return parsed;
    json_decref(parsed);
    if (rks_json_has_memory())
        return json_loadb(text, size, JSON_REJECT_DUPLICATES, where);
    *where = (json_error_t){.line = -1, .column = -1};
    return NULL;
}
