/* SPDX-License-Identifier: Apache-2.0
 *
 * row.h: converts a line of JSON to the values of a schema.
 *
 * A line is one JSON object (RFC 8259) in UTF-8, at most 2,048 levels deep, without duplicate names
 * in an object. Strings may contain NUL (\u0000), names may not.
 *   bool             true or false
 *   int*, uint*      an integer in the type's range (uint64: its digits as a string, too)
 *   float*, bfloat16 a number, rounded to nearest, ties to even. A number that would round to
 *                    infinity is refused. So is, in a float64 column, an integer (without point
 *                    and exponent) that float64 cannot hold, like 2^53 + 1, since the type may be
 *                    only a guess. NaN, Infinity and -Infinity if the type has them, bare (as
 *                    Python's json writes them) or as strings; "NaN(ffc00000)" for a NaN with
 *                    other bits than the usual one
 *   complex64        [real, imaginary]
 *   arrays           nested lists of the sizes that the type requires; `*` is the same size in
 *                    the whole value
 *   str, bytes       a string; bytes are its UTF-8, or those of {"base64": "..."}
 *   json             any value, without spaces, names in the order of the line, real numbers in
 *                    15 to 17 digits, as few as give the same double
 * If flattened, an object is not a value: its members are the columns "outer.inner", and null in
 * its place makes all of them missing. If the user's schema has a column "outer", the object is its
 * value.
 * null, or a missing name, is a missing value. A json column that is not nullable stores null as a
 * value; a missing name becomes null, too, unless the user gave the schema. */
#ifndef RKS_INGEST_ROW_H
#define RKS_INGEST_ROW_H

#include "base/buffer.h"
#include "codec/json.h"
#include "shard/schema.h"

#define RKS_EXTRA_COLUMN "extra"

/* Where the schema comes from. Unless an option says otherwise, names without a column are skipped
 * if the user gave the schema, and malformed otherwise, so that nothing is lost silently. */
typedef enum rks_schema_from {
    RKS_SCHEMA_GIVEN,
    RKS_SCHEMA_INFERRED,
    RKS_SCHEMA_KEPT, /* of the dataset that the build appends to */
} rks_schema_from;

typedef struct rks_row {
    const rks_schema *schema;
    rks_schema_from from;
    rks_value *values; /* one a column; valid until the next parse */
    bool *seen;        /* the line holds the column */
    bool *stored;      /* the value lies in `store` */
    size_t *places;
    rks_buffer store; /* numbers and JSON; strings stay in `parser` */
    rks_json_parser parser;
    size_t line_size;
    bool flatten;           /* objects become columns "outer.inner" */
    bool refuses_extra;     /* a member without a column is an error */
    int extra_column;       /* the column for such members; below 0: they are dropped */
    rks_buffer extra;       /* the object that holds them */
    rks_buffer extra_names; /* with flatten: where each one's name is in it (uint64 at, size) */
} rks_row;

rks_status rks_row_create(const rks_schema *schema, rks_schema_from from, rks_row **row,
                          rks_error *err);
void rks_row_free(rks_row *row); /* NULL is accepted */

/* Parses a line, without copying it if `readable` allows that: see rks_json_read(). RKS_ERR_DATA
 * says what is malformed (and in which column), but not where the line is. */
rks_status rks_row_parse(rks_row *row, const uint8_t *line, size_t size, size_t readable,
                         rks_error *err);

enum { RKS_FLAT_NAME = 320 };
/* Makes "outer.inner", a column's name in a flattened row. RKS_ERR_DATA if it is too long. */
rks_status rks_json_flat_name(const char *outer, const char *inner, char name[RKS_FLAT_NAME],
                              rks_error *err);

/* Passes each member of an object to `take` as a column: under its name, or as "outer.inner" if
 * `outer` is not NULL. Stops at the first that fails. */
typedef rks_status (*rks_member_fn)(void *user, const char *name, rks_json value, rks_error *err);
static inline rks_status rks_json_members(const char *outer, rks_json object, rks_member_fn take,
                                          void *user, rks_error *err)
{
    rks_status status = RKS_OK;
    size_t close = rks_json_close(object), size = 0;
    for (rks_json at = rks_json_inside(object); status == RKS_OK && at.at < close;
         at = rks_json_next(at)) {
        char whole[RKS_FLAT_NAME];
        const char *name = rks_json_text(at, &size);
        at = rks_json_next(at);
        if (outer != NULL)
            status = rks_json_flat_name(outer, name, whole, err);
        if (status == RKS_OK)
            status = take(user, outer == NULL ? name : whole, at, err);
    }
    return status;
}

/* Parses a line that must be an object. */
rks_status rks_json_line(rks_json_parser *parser, const uint8_t *line, size_t size, size_t readable,
                         rks_json *root, rks_error *err);
bool rks_line_is_blank(const uint8_t *line, size_t size);

/* Appends an array's or number's bytes and sets size and dims, but not data. `limit` is the most
 * items that the line can hold (its size in bytes). */
rks_status rks_json_convert(const rks_column *column, rks_json json, size_t limit,
                            rks_buffer *bytes, rks_value *value, rks_error *err);

/* Appends the value as JSON. RKS_ERR_DATA names the column if the value holds NaN or infinity. */
rks_status rks_json_print_column(const rks_column *column, rks_json json, rks_buffer *text,
                                 rks_error *err);

/* Fails with RKS_ERR_DATA: the integer in the text would be rounded to `number`. */
rks_status rks_fail_rounded(const rks_column *column, const char *text, size_t size, double number,
                            rks_error *err);

/* Puts "file:line: " before the error's text; `row` counts from 0. Returns the error's status. */
rks_status rks_fail_at_row(rks_error *err, const char *path, uint64_t row);
/* Fails with RKS_ERR_DATA: the schema, inferred or kept, has no column for a name of the input.
 * `path` is put before the text; NULL if none. */
rks_status rks_fail_no_column(rks_schema_from from, const char *path, const char *name,
                              rks_error *err);

#endif
