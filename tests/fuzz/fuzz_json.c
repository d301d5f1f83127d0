/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_json.c: two parsers of JSON are given the same bytes: simdjson with our checks, which reads
 * lines, and jansson, which reads manifests. They take the same texts as the same values, and
 * refuse the others in the same words. Bytes after a text, whatever they are, change nothing.
 * What is printed reads back as the same. The first bytes are put after the text. Texts with a NUL
 * byte are for simdjson alone, since jansson passes over one after a number. */
#include "fuzz.h"

#include <jansson.h>

#include "base/buffer.h"
#include "codec/json.h"

static bool same(rks_json ours, json_t *theirs);

static bool same_string(rks_json ours, const char *theirs, size_t size)
{
    size_t our_size = 0;
    const char *text = rks_json_text(ours, &our_size);
    return our_size == size && memcmp(text, theirs, size) == 0 && text[size] == '\0';
}

static bool same_object(rks_json ours, json_t *theirs)
{
    rks_json at = rks_json_inside(ours);
    if (rks_json_count(ours) != json_object_size(theirs))
        return false;
    for (void *it = json_object_iter(theirs); it != NULL; it = json_object_iter_next(theirs, it)) {
        const char *name = json_object_iter_key(it);
        if (!same_string(at, name, strlen(name)))
            return false;
        at = rks_json_next(at);
        if (!same(at, json_object_iter_value(it)))
            return false;
        at = rks_json_next(at);
    }
    return at.at == rks_json_close(ours);
}

static bool same_list(rks_json ours, json_t *theirs)
{
    rks_json at = rks_json_inside(ours);
    if (rks_json_count(ours) != json_array_size(theirs))
        return false;
    for (size_t i = 0; i < json_array_size(theirs); i++, at = rks_json_next(at))
        if (!same(at, json_array_get(theirs, i)))
            return false;
    return at.at == rks_json_close(ours);
}

static bool same(rks_json ours, json_t *theirs)
{
    double real = json_real_value(theirs), ours_real;
    switch (rks_json_type_of(ours)) {
    case RKS_JSON_OBJECT:
        return json_is_object(theirs) && same_object(ours, theirs);
    case RKS_JSON_LIST:
        return json_is_array(theirs) && same_list(ours, theirs);
    case RKS_JSON_STRING:
        return json_is_string(theirs) &&
               same_string(ours, json_string_value(theirs), json_string_length(theirs));
    case RKS_JSON_INTEGER:
        return json_is_integer(theirs) && rks_json_int(ours) == json_integer_value(theirs);
    case RKS_JSON_REAL:
        ours_real = rks_json_real(ours);
        return json_is_real(theirs) && memcmp(&ours_real, &real, sizeof(real)) == 0;
    case RKS_JSON_TRUE:
        return json_is_true(theirs);
    case RKS_JSON_FALSE:
        return json_is_false(theirs);
    default:
        return rks_json_is(ours, RKS_JSON_NULL) && json_is_null(theirs);
    }
}

/* Returns true if a value is above what jansson's integers hold. */
static bool has_large(rks_json value)
{
    rks_json at = value;
    bool found = false;
    while (!found && at.at < rks_json_end(value)) {
        found = rks_json_is(at, RKS_JSON_UNSIGNED);
        bool inside = rks_json_is(at, RKS_JSON_OBJECT) || rks_json_is(at, RKS_JSON_LIST);
        at = inside ? rks_json_inside(at) : rks_json_next(at);
    }
    return found;
}

/* Returns true if both give the same error, or theirs is about an integer that ours reads. */
static bool same_error(const rks_error *ours, const rks_error *theirs)
{
    return strcmp(ours->text, theirs->text) == 0 || strncmp(theirs->text, "too big", 7) == 0;
}

static void print_and_read(rks_json_parser *parser, rks_json value, json_t *theirs)
{
    rks_buffer text = {0}, again = {0};
    rks_json back = {0};
    FUZZ_CHECK(rks_json_print(value, &text, NULL) == RKS_OK);
    FUZZ_CHECK(rks_json_read(parser, text.data, text.size, text.size, &back, NULL) == RKS_OK);
    FUZZ_CHECK(same(back, theirs));
    FUZZ_CHECK(rks_json_print(back, &again, NULL) == RKS_OK);
    FUZZ_CHECK(again.size == text.size && memcmp(again.data, text.data, text.size) == 0);
    rks_buffer_free(&text);
    rks_buffer_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static rks_json_parser parser; /* used again, as for lines */
    enum { BEHIND = 8 };
    if (size < BEHIND)
        return 0;
    const uint8_t *text = data + BEHIND;
    size -= BEHIND;
    json_t *theirs = NULL;
    rks_json ours = {0}, padded = {0};
    rks_error their_error = {0}, our_error = {0}, padded_error = {0};
    uint8_t *room = malloc(size + RKS_SIMDJSON_PADDING);
    FUZZ_CHECK(room != NULL);
    memcpy(room, text, size);
    for (size_t i = 0; i < RKS_SIMDJSON_PADDING; i++)
        room[size + i] = data[i % BEHIND];

    rks_status expected = rks_json_parse(text, size, &theirs, &their_error);
    rks_status status = rks_json_read(&parser, text, size, size, &ours, &our_error);
    if (memchr(text, '\0', size) != NULL) {
        json_decref(theirs);
        free(room);
        return 0;
    }
    bool large = status == RKS_OK && has_large(ours);
    FUZZ_CHECK(large || status == expected);
    FUZZ_CHECK(same_error(&our_error, &their_error));
    if (status == RKS_OK && !large) {
        FUZZ_CHECK(same(ours, theirs));
        print_and_read(&parser, ours, theirs);
    }
    FUZZ_CHECK(rks_json_read(&parser, room, size, size + RKS_SIMDJSON_PADDING, &padded,
                             &padded_error) == status);
    FUZZ_CHECK(strcmp(padded_error.text, our_error.text) == 0);
    if (status == RKS_OK && !large)
        FUZZ_CHECK(same(padded, theirs));
    json_decref(theirs);
    free(room);
    return 0;
}
