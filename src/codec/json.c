/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c: refuses what simdjson accepts but a line may not have: a duplicate key, a NUL in a key,
 * half a surrogate pair. For a refused text, jansson finds the reason and its place, which simdjson
 * does not know. */
#include "codec/json.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/json_error.h"
#include "codec/json_tokens.h"

enum {
    FEW = 8,         /* most names of an object that are compared with each other */
    SHORT_NAME = 16, /* bytes: a loop is faster than a call */
    LARGE_SHOWN = 40
};

void rks_json_parser_free(rks_json_parser *parser)
{
    rks_simdjson_free(parser->parser);
    rks_buffer_free(&parser->padded);
    rks_buffer_free(&parser->cells);
    rks_buffer_free(&parser->specials);
    *parser = (rks_json_parser){0};
}

size_t rks_json_count(rks_json value)
{
    const uint32_t saturated = 0xffffff;
    if (!rks_json_is(value, RKS_JSON_OBJECT) && !rks_json_is(value, RKS_JSON_LIST))
        return 0;
    uint32_t said = (uint32_t)(value.tape[value.at] >> 32) & saturated;
    if (said < saturated)
        return said;
    size_t count = 0, close = rks_json_close(value);
    for (rks_json at = rks_json_inside(value); at.at < close; at = rks_json_next(at))
        count++;
    return rks_json_is(value, RKS_JSON_OBJECT) ? count / 2 : count;
}

const char *rks_json_kind(rks_json value)
{
    switch (rks_json_type_of(value)) {
    case RKS_JSON_OBJECT:
        return "an object";
    case RKS_JSON_LIST:
        return "a list";
    case RKS_JSON_STRING:
        return "a string";
    case RKS_JSON_INTEGER:
    case RKS_JSON_UNSIGNED:
        return "an integer";
    case RKS_JSON_REAL:
        return !rks_json_is_special(value)   ? "a real number"
               : isnan(rks_json_real(value)) ? "NaN"
               : rks_json_real(value) > 0    ? "Infinity"
                                             : "-Infinity";
    case RKS_JSON_TRUE:
        return "true";
    case RKS_JSON_FALSE:
        return "false";
    case RKS_JSON_NULL:
        return "null";
    default:
        return "nothing";
    }
}

static int hex(uint8_t digit)
{
    return digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10;
}

/* Returns true if a low surrogate's escape lacks a high one before it. The text passed simdjson, so
 * each high one is followed by a low one. */
static bool has_lone_surrogate(const uint8_t *text, size_t size)
{
    const uint8_t *end = text + size;
    for (const uint8_t *at = memchr(text, '\\', size); at != NULL;
         at = memchr(at, '\\', (size_t)(end - at))) {
        int first = at[1] == 'u' ? hex(at[2]) << 4 | hex(at[3]) : 0;
        if (first >= 0xdc && first <= 0xdf)
            return true;
        at += first >= 0xd8 && first < 0xdc ? 12 : 2;
    }
    return false;
}

static bool same_name(const char *a, size_t a_size, rks_json b)
{
    size_t size = 0;
    const char *name = rks_json_text(b, &size);
    return size == a_size && memcmp(a, name, size) == 0;
}

static bool holds_nul(const char *name, size_t size)
{
    size_t at = 0;
    if (size > SHORT_NAME)
        return memchr(name, '\0', size) != NULL;
    while (at < size && name[at] != '\0')
        at++;
    return at < size;
}

/* Returns true if two of an object's `count` names (at most FEW) are equal, or one holds a NUL. */
static bool few_names_are_wrong(rks_json name, size_t count)
{
    rks_json names[FEW];
    uint64_t heads[FEW]; /* size (u32) and up to four bytes */
    for (size_t i = 0; i < count; i++, name = rks_json_next(rks_json_next(name))) {
        size_t size = 0;
        const char *text = rks_json_text(name, &size);
        names[i] = name;
        memcpy(&heads[i], text - sizeof(uint32_t), sizeof(heads[i])); /* the buffer is longer */
        if (size < 4)
            heads[i] &= (UINT64_C(1) << (32 + 8 * size)) - 1;
        if (holds_nul(text, size))
            return true;
        for (size_t j = 0; j < i; j++)
            if (heads[j] == heads[i] && same_name(text, size, names[j]))
                return true;
    }
    return false;
}

/* Clears the hash table of tape positions; 0 marks a free cell. */
static rks_status provide_cells(rks_json_parser *parser, size_t members, size_t *mask,
                                rks_error *err)
{
    size_t cells = 4 * FEW;
    while (cells < 2 * members)
        cells *= 2;
    parser->cells.size = 0;
    rks_status status = rks_buffer_reserve(&parser->cells, cells * sizeof(uint32_t), err);
    if (status == RKS_OK)
        memset(parser->cells.data, 0, cells * sizeof(uint32_t));
    *mask = cells - 1;
    return status;
}

/* Enters a name. Returns true if it was there before. */
static bool enter_name(uint32_t *cells, size_t mask, rks_json name, const char *text, size_t size)
{
    rks_json other = name;
    size_t cell = rks_checksum64(text, size) & mask;
    for (; cells[cell] != 0; cell = (cell + 1) & mask) {
        other.at = cells[cell];
        if (same_name(text, size, other))
            return true;
    }
    cells[cell] = (uint32_t)name.at;
    return false;
}

static rks_status check_member_names(rks_json_parser *parser, rks_json object, bool *good,
                                     rks_error *err)
{
    size_t members = rks_json_count(object), mask = 0;
    rks_json name = rks_json_inside(object);
    if (members <= FEW) {
        *good = !few_names_are_wrong(name, members);
        return RKS_OK;
    }
    rks_status status = provide_cells(parser, members, &mask, err);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; i < members; i++, name = rks_json_next(rks_json_next(name))) {
        size_t size = 0;
        const char *text = rks_json_text(name, &size);
        if (enter_name((uint32_t *)(void *)parser->cells.data, mask, name, text, size) ||
            holds_nul(text, size)) {
            *good = false;
            return RKS_OK;
        }
    }
    return RKS_OK;
}

/* Checks the names of all objects at any depth. */
static rks_status check_all_names(rks_json_parser *parser, rks_json root, bool *good,
                                  rks_error *err)
{
    rks_status status = RKS_OK;
    size_t end = rks_json_end(root);
    rks_json at = root;
    while (status == RKS_OK && *good && at.at < end)
        switch (at.tape[at.at] >> 56) {
        case '{':
            status = check_member_names(parser, at, good, err);
            at.at++;
            break;
        case 'l':
        case 'u':
        case 'd':
            at.at += 2;
            break;
        default:
            at.at++;
        }
    return status;
}

/* `flags` are more of jansson's. */
static rks_status load_tree(const uint8_t *text, size_t size, size_t flags, json_t **root,
                            rks_error *err)
{
    json_error_t wrong;
    json_t *parsed =
        json_loadb((const char *)text, size,
                   JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY | flags, &wrong);
    if (parsed == NULL) {
        if (rks_json_lacked_memory(&wrong))
            return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory for JSON of %zu bytes", size);
        if (json_error_code(&wrong) == json_error_numeric_overflow)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "%.80s: integers from -2^63 to 2^64 - 1 and 64-bit floats are possible",
                            wrong.text);
        return rks_fail(err, RKS_ERR_DATA, 0, "invalid JSON at byte %d: %.100s", wrong.position,
                        wrong.text);
    }
    *root = parsed;
    return RKS_OK;
}

rks_status rks_json_parse(const uint8_t *text, size_t size, json_t **root, rks_error *err)
{
    return load_tree(text, size, 0, root, err);
}

/* jansson's tree takes many times the text's size: a larger text is refused without the place. */
static const size_t EXPLAINED_MOST = (size_t)16 << 20;

/* Fails with the reason and the place of what is wrong. jansson ignores a NUL after a number, so
 * NULs are searched for here. */
static rks_status explain(const uint8_t *text, size_t size, const char *why, rks_error *err)
{
    json_t *tree = NULL;
    size_t digits = 0;
    if (size > EXPLAINED_MOST)
        return rks_fail(err, RKS_ERR_DATA, 0, "invalid JSON in a text of %zu bytes: %.100s", size,
                        why);
    const uint8_t *large = rks_json_large_integer(text, size, &digits);
    /* jansson refuses integers above int64, which are none of the text's faults. */
    rks_status status = load_tree(text, size, JSON_DECODE_INT_AS_REAL, &tree, err);
    json_decref(tree);
    if (status == RKS_OK && large != NULL)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "too big integer at byte %zu, %.*s%s: integers from -2^63 to 2^64 - 1 and "
                        "64-bit floats are possible",
                        (size_t)(large - text) + 1,
                        (int)(digits < LARGE_SHOWN ? digits : LARGE_SHOWN), (const char *)large,
                        digits > LARGE_SHOWN ? "..." : "");
    const uint8_t *nul = memchr(text, '\0', size);
    if (status == RKS_OK && nul != NULL)
        return rks_fail(err, RKS_ERR_DATA, 0, "invalid JSON at byte %zu: a NUL byte",
                        (size_t)(nul - text) + 1);
    return status == RKS_OK ? rks_fail(err, RKS_ERR_DATA, 0, "invalid JSON: %.100s", why) : status;
}

/* Copies the text to a buffer with padding, unless it lies there. */
static rks_status pad(rks_json_parser *parser, const uint8_t **text, size_t size, rks_error *err)
{
    if (*text == parser->padded.data && size > 0)
        return RKS_OK;
    parser->padded.size = 0;
    rks_status status = rks_buffer_reserve(&parser->padded, size + RKS_SIMDJSON_PADDING, err);
    if (status != RKS_OK)
        return status;
    if (size > 0)
        memcpy(parser->padded.data, *text, size);
    memset(parser->padded.data + size, 0, RKS_SIMDJSON_PADDING);
    *text = parser->padded.data;
    return RKS_OK;
}

/* Parses a text with padding. A refused one is parsed again without its NaN and infinities, which
 * go to the tape afterwards; *text is what was parsed last. */
static rks_status parse_padded(rks_json_parser *parser, const uint8_t **text, size_t size,
                               rks_json *made, rks_error *err)
{
    const char *why = NULL;
    uint64_t *tape = NULL;
    rks_simdjson_result result =
        rks_simdjson_parse(parser->parser, *text, size, &tape, &made->strings, &why);
    parser->specials.size = 0;
    if (result == RKS_SIMDJSON_REFUSED && parser->takes_specials) {
        rks_status status = pad(parser, text, size, err);
        if (status == RKS_OK)
            status = rks_json_hide_specials(parser->padded.data, size, &parser->specials, err);
        if (status != RKS_OK)
            return status;
        if (parser->specials.size > 0)
            result = rks_simdjson_parse(parser->parser, *text, size, &tape, &made->strings, &why);
    }
    if (result == RKS_SIMDJSON_NO_MEMORY)
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory for JSON of %zu bytes", size);
    if (result == RKS_SIMDJSON_REFUSED)
        return explain(*text, size, why, err);
    rks_json_restore_specials(tape, &parser->specials);
    made->tape = tape;
    return RKS_OK;
}

rks_status rks_json_read(rks_json_parser *parser, const uint8_t *text, size_t size, size_t readable,
                         rks_json *root, rks_error *err)
{
    rks_json made = {.at = 1}; /* after the root's word */
    rks_status status = RKS_OK;
    bool good = true;
    if (parser->parser == NULL)
        parser->parser = rks_simdjson_create();
    if (parser->parser == NULL)
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory for a parser of JSON");
    if (readable < size || readable - size < RKS_SIMDJSON_PADDING)
        status = pad(parser, &text, size, err);
    if (status == RKS_OK)
        status = parse_padded(parser, &text, size, &made, err);
    if (status != RKS_OK)
        return status;
    if (has_lone_surrogate(text, size))
        return explain(text, size, "half a surrogate pair", err);
    status = check_all_names(parser, made, &good, err);
    if (status != RKS_OK)
        return status;
    if (!good)
        return explain(text, size, "duplicate key, or NUL in a key", err);
    *root = made;
    return RKS_OK;
}
