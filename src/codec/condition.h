/* SPDX-License-Identifier: Apache-2.0
 *
 * condition.h: the words of a condition, `column op value`: tokens, operators and numbers. The
 * option `where` (filter.h) and the rules of `count` (ingest/item_count.h) are made of them. */
#ifndef RKS_CODEC_CONDITION_H
#define RKS_CODEC_CONDITION_H

#include "base/buffer.h"
#include "codec/number.h"

typedef enum rks_operation {
    RKS_OP_EQ,
    RKS_OP_NE,
    RKS_OP_LT,
    RKS_OP_LE,
    RKS_OP_GT,
    RKS_OP_GE
} rks_operation;

const char *rks_operation_text(rks_operation op); /* "==" */

/* Returns true if `a op b` holds. `order` of a and b: -1, 0 or 1, or 2 if they cannot be ordered.
 */
static inline bool rks_operation_holds(rks_operation op, int order)
{
    switch (op) {
    case RKS_OP_EQ:
        return order == 0;
    case RKS_OP_NE:
        return order != 0;
    case RKS_OP_LT:
        return order == -1;
    case RKS_OP_LE:
        return order == -1 || order == 0;
    case RKS_OP_GT:
        return order == 1;
    default:
        return order == 1 || order == 0;
    }
}

/* Set `option` (for messages), `text` and `at` (= text); free `token` at the end. */
typedef struct rks_condition_parser {
    const char *option;
    const char *text;
    const char *at;
    rks_buffer token; /* a NUL follows it, not counted */
    bool quoted;
    size_t place; /* of the token, counted from 1 */
} rks_condition_parser;

/* Returns where the parser is, counted from 1. */
size_t rks_condition_place(const rks_condition_parser *parse);
void rks_condition_skip_spaces(rks_condition_parser *parse);
/* Reads a word up to one of `stops`, or a string in ' or ", in which a backslash makes the next
 * character literal. RKS_ERR_ARGUMENT says that `what` is expected. */
rks_status rks_condition_token(rks_condition_parser *parse, const char *stops, const char *what,
                               rks_error *err);
rks_status rks_condition_operation(rks_condition_parser *parse, rks_operation *op, rks_error *err);
/* Reads a 64-bit integer, signed or unsigned, or a real number as in JSON. *good is false if `text`
 * is none. */
rks_status rks_condition_number(const char *text, rks_number *number, bool *good, rks_error *err);

#endif
