/* SPDX-License-Identifier: Apache-2.0
 *
 * row.h: a line of JSON as the values of a schema.
 *
 * A line is one JSON object (RFC 8259) in UTF-8, without a name twice in an object, at most 2,048
 * levels deep. NUL may be in strings (\u0000), not in names.
 *   bool             true or false
 *   int*, uint*      an integer in the type's range (uint64 above 2^63 - 1: its digits as a string)
 *   float*, bfloat16 a number, rounded to nearest, ties to even; one that would round to infinity
 *                    is refused; so is, in a float64 column, an integer (without point and
 *                    exponent) that float64 does not hold, like 2^53 + 1, as the type may be a mere
 *                    guess; "NaN", "Infinity" and "-Infinity" where the type has them,
 *                    "NaN(ffc00000)" for one with other bits than the usual
 *   complex64        [real, imaginary]
 *   arrays           lists in lists, all of the sizes that the type asks for; `*` is the same in
 *                    the whole value
 *   str, bytes       a string; bytes are its UTF-8, or those of {"base64": "..."}
 *   json             any value, without spaces, names in the order of the line, real numbers in
 *                    15 to 17 digits, as few as give the same double
 * Flattened, an object is no value: its members are the columns "outer.inner", and null in its place
 * makes all of them missing. Where the user gave a schema with the column "outer", it is one.
 * null, or a name that is not there, is a missing value. json that may not be missing takes null as
 * a value, and also a name that is not there, but for a schema that the user gave.
 */
#ifndef RKS_INGEST_ROW_H
#define RKS_INGEST_ROW_H

#include "base/buffer.h"
#include "codec/json.h"
#include "shard/schema.h"

#define RKS_EXTRA_COLUMN "extra"

/* Whose schema it is. Unless an option says it, names that are no column are passed over where the
 * user gave it; else they are malformed, so that nothing is lost in silence. */
typedef enum rks_schema_from {
    RKS_SCHEMA_GIVEN,
    RKS_SCHEMA_INFERRED,
    RKS_SCHEMA_KEPT, /* of the dataset that is appended to */
} rks_schema_from;

typedef struct rks_row {
    const rks_schema *schema;
    rks_schema_from from;
    rks_value *values; /* one a column; valid until the next parse */
    bool *seen;        /* the line holds the column */
    bool *stored;      /* the value lies in `store`, and data is its place there */
    size_t *places;
    rks_buffer store; /* numbers and JSON; strings stay in `parser` */
    rks_json_parser parser;
    size_t line_size;
    bool flatten; /* objects are columns "outer.inner" */
    bool refuses_extra; /* a member that is no column is an error */
    int extra_column;   /* where such members go; below 0: they are left out */
    rks_buffer extra;   /* the object of them */
    rks_buffer extra_names; /* with flatten: where each one's name is in it, two uint64: at, size */
} rks_row;

rks_status rks_row_create(const rks_schema *schema, rks_schema_from from, rks_row **row,
                          rks_error *err);
void rks_row_free(rks_row *row); /* NULL is accepted */

/* RKS_ERR_DATA says what is malformed (and in which column), not where the line is. */
rks_status rks_row_parse(rks_row *row, const uint8_t *line, size_t size, rks_error *err);
/* The same without a copy of the line, if `readable` allows it: see rks_json_read(). */
rks_status rks_row_parse_in(rks_row *row, const uint8_t *line, size_t size, size_t readable,
                            rks_error *err);

enum { RKS_FLAT_NAME = 320 };
/* "outer.inner", a column of a row that is flattened. RKS_ERR_DATA: it is too long for one. */
rks_status rks_json_flat_name(const char *outer, const char *inner, char name[RKS_FLAT_NAME],
                              rks_error *err);

/* Gives each member of an object to `take`, as a column: under its name, or with `outer`, the
 * column that the object is, as "outer.inner". Ends with the first that fails. */
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

/* A line as an object. */
rks_status rks_json_line(rks_json_parser *parser, const uint8_t *line, size_t size, size_t readable,
                         rks_json *root, rks_error *err);
bool rks_line_is_blank(const uint8_t *line, size_t size);

/* Appends an array's or number's bytes and sets size and dims; data is not set. `limit`: more items
 * than that cannot be there (the size of the line). */
rks_status rks_json_convert(const rks_column *column, rks_json json, size_t limit,
                            rks_buffer *bytes, rks_value *value, rks_error *err);

/* RKS_ERR_DATA: the integer that the text is would become `number`, another one. */
rks_status rks_fail_rounded(const rks_column *column, const char *text, size_t size, double number,
                            rks_error *err);

/* Puts "file:line: " in front of the error's text; row counts from 0. Returns its status. */
rks_status rks_fail_at_row(rks_error *err, const char *path, uint64_t row);
/* RKS_ERR_DATA: the input has a name that a schema, inferred or kept, has no column for. `path`
 * goes in front; NULL: none. */
rks_status rks_fail_no_column(rks_schema_from from, const char *path, const char *name,
                              rks_error *err);

#endif
