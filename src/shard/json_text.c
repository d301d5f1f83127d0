/* SPDX-License-Identifier: Apache-2.0
 *
 * json_text.c: canonical JSON with its own digest.
 *
 * The text ends with these 46 bytes, so that the digest can be found without parsing:
 *
 *   ,"digest":"0123456789abcdef0123456789abcdef"}\n */
#include "shard/json_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_error.h"
#include "base/memory.h"
#include "shard/json_parse.h"

static const char DIGEST_BEFORE[] = ",\"digest\":\"";
static const char DIGEST_AFTER[] = "\"}\n";
static const char DIGEST_ZEROS[] = "00000000000000000000000000000000";
enum {
    BEFORE_SIZE = sizeof(DIGEST_BEFORE) - 1,
    AFTER_SIZE = sizeof(DIGEST_AFTER) - 1,
    DIGITS = 32,
    TAIL_SIZE = BEFORE_SIZE + DIGITS + AFTER_SIZE
};

rks_status rks_json_put_string(rks_buffer *json, const char *text, rks_error *err)
{
    rks_status status = rks_buffer_add(json, "\"", 1, err);
    for (const char *at = text; status == RKS_OK && *at != '\0';) {
        size_t plain = 0;
        while ((uint8_t)at[plain] >= 0x20 && at[plain] != '"' && at[plain] != '\\')
            plain++;
        status = rks_buffer_add(json, at, plain, err);
        at += plain;
        if (status != RKS_OK || *at == '\0')
            break;
        if (*at == '"' || *at == '\\')
            status = rks_buffer_print(json, err, "\\%c", *at);
        else
            status = rks_buffer_print(json, err, "\\u%04x", (unsigned)(uint8_t)*at);
        at++;
    }
    return status == RKS_OK ? rks_buffer_add(json, "\"", 1, err) : status;
}

rks_status rks_json_begin(rks_buffer *json, const char *const *features, rks_error *err)
{
    rks_status status =
        rks_buffer_print(json, err, "{\"format\":{\"major\":%d,\"minor\":%d},\"requires\":[",
                         RKS_FORMAT_MAJOR, RKS_FORMAT_MINOR);
    for (size_t i = 0; status == RKS_OK && features != NULL && features[i] != NULL; i++)
        status = rks_buffer_print(json, err, "%s\"%s\"", i == 0 ? "" : ",", features[i]);
    return status == RKS_OK ? rks_buffer_add(json, "]", 1, err) : status;
}

bool rks_json_requires(const json_t *root, const char *feature)
{
    const json_t *list = json_object_get(root, "requires"), *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        const char *text = json_string_value(item);
        if (text != NULL && strcmp(text, feature) == 0)
            return true;
    }
    return false;
}

rks_status rks_json_finish(rks_buffer *json, rks_digest *digest, rks_error *err)
{
    rks_status status =
        rks_buffer_print(json, err, "%s%s%s", DIGEST_BEFORE, DIGEST_ZEROS, DIGEST_AFTER);
    if (status != RKS_OK)
        return status;
    rks_digest found = rks_checksum128(json->data, json->size);
    char digits[RKS_DIGEST_TEXT];
    rks_digest_format(found, digits);
    memcpy(json->data + json->size - AFTER_SIZE - DIGITS, digits, DIGITS);
    if (digest != NULL)
        *digest = found;
    return RKS_OK;
}

static rks_status check_digest(const char *text, size_t size, const char *path, rks_digest *digest,
                               rks_error *err)
{
    const char *tail = size > TAIL_SIZE ? text + size - TAIL_SIZE : "";
    char digits[DIGITS + 1] = "";
    rks_digest stored;
    bool formed = size > TAIL_SIZE && memcmp(tail, DIGEST_BEFORE, BEFORE_SIZE) == 0 &&
                  memcmp(text + size - AFTER_SIZE, DIGEST_AFTER, AFTER_SIZE) == 0;
    if (formed)
        memcpy(digits, tail + BEFORE_SIZE, DIGITS);
    if (!formed || !rks_digest_parse(digits, &stored))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: does not end with its own digest", path);
    rks_digester *digester = rks_digester_create(err);
    if (digester == NULL)
        return RKS_ERR_MEMORY;
    rks_digester_update(digester, text, size - AFTER_SIZE - DIGITS);
    rks_digester_update(digester, DIGEST_ZEROS, DIGITS);
    rks_digester_update(digester, DIGEST_AFTER, AFTER_SIZE);
    rks_digest found = rks_digester_result(digester);
    rks_digester_free(digester);
    if (!rks_digest_equal(found, stored))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: does not match its own digest", path);
    *digest = stored;
    return RKS_OK;
}

static bool is_known(const char *const *features, const char *feature)
{
    for (; features != NULL && *features != NULL; features++)
        if (feature != NULL && strcmp(*features, feature) == 0)
            return true;
    return false;
}

static rks_status check_format(const json_t *root, const char *path, const char *const *features,
                               rks_error *err)
{
    uint64_t major = 0, minor = 0;
    const json_t *requires = NULL;
    rks_status status = rks_json_u64(json_object_get(root, "format"), "major", path, &major, err);
    if (status == RKS_OK)
        status = rks_json_u64(json_object_get(root, "format"), "minor", path, &minor, err);
    if (status != RKS_OK)
        return status;
    if (major != RKS_FORMAT_MAJOR)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "%s: format %" PRIu64 ".%" PRIu64 "; this build reads format %d", path,
                        major, minor, RKS_FORMAT_MAJOR);
    status = rks_json_array(root, "requires", path, &requires, err);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; i < json_array_size(requires); i++) {
        const char *feature = json_string_value(json_array_get(requires, i));
        if (is_known(features, feature))
            continue;
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "%s: needs the feature \"%s\", which this build lacks", path,
                        feature == NULL ? "?" : feature);
    }
    return RKS_OK;
}

rks_status rks_json_open(const char *text, size_t size, const char *path,
                         const char *const *features, json_t **root, rks_digest *digest,
                         rks_error *err)
{
    json_error_t where;
    json_t *parsed = rks_json_load(text, size, &where);
    if (parsed == NULL)
        return rks_json_fail(err, RKS_ERR_CORRUPT, path, &where);
    rks_status status = RKS_OK;
    if (!json_is_object(parsed))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: not a JSON object", path);
    if (status == RKS_OK)
        status = check_format(parsed, path, features, err);
    if (status == RKS_OK)
        status = check_digest(text, size, path, digest, err);
    if (status == RKS_OK) {
        *root = parsed;
        parsed = NULL;
    }
    json_decref(parsed);
    return status;
}

static rks_status wrong_field(const char *name, const char *path, const char *wanted,
                              rks_error *err)
{
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: field \"%s\" is missing or not %s", path, name,
                    wanted);
}

rks_status rks_json_u64(const json_t *object, const char *name, const char *path, uint64_t *value,
                        rks_error *err)
{
    const json_t *field = json_object_get(object, name);
    if (!json_is_integer(field) || json_integer_value(field) < 0)
        return wrong_field(name, path, "a whole number", err);
    *value = (uint64_t)json_integer_value(field);
    return RKS_OK;
}

rks_status rks_json_digest(const json_t *object, const char *name, const char *path,
                           rks_digest *value, rks_error *err)
{
    const char *text = json_string_value(json_object_get(object, name));
    if (text == NULL || !rks_digest_parse(text, value))
        return wrong_field(name, path, "32 hexadecimal digits", err);
    return RKS_OK;
}

rks_status rks_json_bool(const json_t *object, const char *name, const char *path, bool *value,
                         rks_error *err)
{
    const json_t *field = json_object_get(object, name);
    if (!json_is_boolean(field))
        return wrong_field(name, path, "true or false", err);
    *value = json_is_true(field);
    return RKS_OK;
}

rks_status rks_json_string(const json_t *object, const char *name, const char *path,
                           const char **value, rks_error *err)
{
    const char *text = json_string_value(json_object_get(object, name));
    if (text == NULL)
        return wrong_field(name, path, "a string", err);
    *value = text;
    return RKS_OK;
}

rks_status rks_json_array(const json_t *object, const char *name, const char *path,
                          const json_t **value, rks_error *err)
{
    const json_t *field = json_object_get(object, name);
    if (!json_is_array(field))
        return wrong_field(name, path, "a list", err);
    *value = field;
    return RKS_OK;
}

rks_status rks_json_object_text(const json_t *object, const char *name, const char *path,
                                char **text, rks_error *err)
{
    const json_t *field = json_object_get(object, name);
    if (!json_is_object(field))
        return wrong_field(name, path, "an object", err);
    char *dumped = json_dumps(field, JSON_COMPACT);
    if (dumped == NULL)
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: field \"%s\"", name);
    *text = rks_strdup(dumped, err);
    free(dumped); /* jansson's */
    return *text == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

rks_status rks_json_schema(const json_t *root, const char *path, rks_schema **schema,
                           rks_error *err)
{
    char *text = NULL;
    rks_error why = {0};
    rks_status status = rks_json_object_text(root, "schema", path, &text, err);
    if (status != RKS_OK)
        return status;
    status = rks_schema_parse(text, schema, &why);
    rks_free(text);
    if (status == RKS_OK || status == RKS_ERR_MEMORY)
        return status == RKS_OK ? status : rks_fail(err, status, 0, "%s", why.text);
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %s", path, why.text);
}
