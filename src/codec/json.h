/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h: parses a JSON text without making a tree: callers read values where the parser put them.
 *
 * The parser is simdjson. It writes a tape: a word of 64 bits for each value and each name, with
 * its type in the top byte, and the unescaped strings into one buffer:
 *
 *   { [     position after the closing word (32 bits), members or items (24, saturated)
 *   "       offset in the strings: size (u32), bytes, NUL
 *   l u d   int64, uint64 or double in the next word
 *   t f n   nothing more
 *
 * An object's members are name, value, name, value. The next text reuses tape and strings, so a
 * value is valid until its parser parses again. */
#ifndef RKS_CODEC_JSON_H
#define RKS_CODEC_JSON_H

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/simdjson.h"

#define RKS_NAN_TEXT "NaN"

typedef enum rks_json_type {
    RKS_JSON_NONE, /* there is no value */
    RKS_JSON_OBJECT = '{',
    RKS_JSON_LIST = '[',
    RKS_JSON_STRING = '"',
    RKS_JSON_INTEGER = 'l',  /* of int64 */
    RKS_JSON_UNSIGNED = 'u', /* 2^63 and more */
    RKS_JSON_REAL = 'd',
    RKS_JSON_TRUE = 't',
    RKS_JSON_FALSE = 'f',
    RKS_JSON_NULL = 'n',
} rks_json_type;

/* Start with {0}. */
typedef struct rks_json_parser {
    rks_simdjson *parser;
    rks_buffer padded; /* a copy of a text without padding */
    rks_buffer cells;  /* hash table of names, to find duplicates */
    rks_buffer specials;
    bool takes_specials; /* bare NaN, Infinity and -Infinity are reals */
} rks_json_parser;

typedef struct rks_json {
    const uint64_t *tape; /* NULL if there is no value */
    const uint8_t *strings;
    size_t at;
} rks_json;

void rks_json_parser_free(rks_json_parser *parser);

/* Parses one JSON value (RFC 8259) in UTF-8: integers from -2^63 to 2^64 - 1 and finite reals
 * (unless the parser takes others), no name twice in an object, no NUL in a name, at most 2,048
 * levels. `readable` is the number of bytes from `text` on that may be read, at least `size`; with
 * RKS_SIMDJSON_PADDING more than `size` the text is not copied. RKS_ERR_DATA says what is wrong at
 * which byte. */
rks_status rks_json_read(rks_json_parser *parser, const uint8_t *text, size_t size, size_t readable,
                         rks_json *root, rks_error *err);

/* Parses a small text, whose integers are int64, into a tree; the caller owns *root. */
rks_status rks_json_parse(const uint8_t *text, size_t size, json_t **root, rks_error *err);

/* Returns "a string", "an integer", ..., the name of a real that is not finite, or "nothing" if
 * there is no value. */
const char *rks_json_kind(rks_json value);

/* Appends the value without spaces, names in their order, and real numbers in 15 to 17 digits, as
 * few as give the same double. RKS_ERR_DATA: a real is not finite, which JSON lacks. */
rks_status rks_json_print(rks_json value, rks_buffer *text, rks_error *err);
/* Appends UTF-8 text, which may hold NULs, as a JSON string with its quotes. */
rks_status rks_json_print_string(const char *at, size_t size, rks_buffer *text, rks_error *err);

static inline rks_json_type rks_json_type_of(rks_json value)
{
    return value.tape == NULL ? RKS_JSON_NONE : (rks_json_type)(value.tape[value.at] >> 56);
}

static inline bool rks_json_is(rks_json value, rks_json_type type)
{
    return rks_json_type_of(value) == type;
}

/* Returns the position after the value. */
static inline size_t rks_json_end(rks_json value)
{
    uint64_t word = value.tape[value.at];
    switch (word >> 56) {
    case '{':
    case '[':
        return (uint32_t)word;
    case 'l':
    case 'u':
    case 'd':
        return value.at + 2;
    default:
        return value.at + 1;
    }
}

/* Returns the first item of a list or name of an object; its closing word if it is empty. */
static inline rks_json rks_json_inside(rks_json value)
{
    value.at++;
    return value;
}

/* Returns the value or name after this one; the closing word after the last one. */
static inline rks_json rks_json_next(rks_json value)
{
    value.at = rks_json_end(value);
    return value;
}

/* Returns the position of a list's or object's closing word, which rks_json_next() of its last
 * value reaches. */
static inline size_t rks_json_close(rks_json value)
{
    return rks_json_end(value) - 1;
}

/* Counts the items of a list or members of an object; 0 for anything else. */
size_t rks_json_count(rks_json value);

/* Returns a string or name; a NUL follows it. */
static inline const char *rks_json_text(rks_json value, size_t *size)
{
    const uint8_t *at = value.strings + (value.tape[value.at] & (UINT64_MAX >> 8));
    uint32_t length;
    memcpy(&length, at, sizeof(length));
    *size = length;
    return (const char *)at + sizeof(length);
}

static inline int64_t rks_json_int(rks_json value)
{
    return (int64_t)value.tape[value.at + 1];
}

static inline uint64_t rks_json_uint(rks_json value)
{
    return value.tape[value.at + 1];
}

/* Returns true for an integer, of int64 or not. */
static inline bool rks_json_is_whole(rks_json value)
{
    return rks_json_is(value, RKS_JSON_INTEGER) || rks_json_is(value, RKS_JSON_UNSIGNED);
}

static inline double rks_json_real(rks_json value)
{
    double real;
    memcpy(&real, &value.tape[value.at + 1], sizeof(real));
    return real;
}

/* Returns true for NaN and infinities, which only a parser that takes them gives. */
static inline bool rks_json_is_special(rks_json value)
{
    return rks_json_is(value, RKS_JSON_REAL) && !isfinite(rks_json_real(value));
}

#endif
