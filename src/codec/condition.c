/* SPDX-License-Identifier: Apache-2.0
 *
 * condition.c: reads tokens, operators and numbers. */
#include "codec/condition.h"

#include <string.h>

#include "base/error.h"
#include "codec/json.h"

static const char *const OPERATIONS[] = {"==", "!=", "<", "<=", ">", ">="};

const char *rks_operation_text(rks_operation op)
{
    return OPERATIONS[op];
}

size_t rks_condition_place(const rks_condition_parser *parse)
{
    return (size_t)(parse->at - parse->text) + 1;
}

void rks_condition_skip_spaces(rks_condition_parser *parse)
{
    parse->at += strspn(parse->at, " \t\r\n");
}

static rks_status read_quoted(rks_condition_parser *parse, rks_error *err)
{
    char quote = *parse->at++;
    while (*parse->at != quote) {
        if (*parse->at == '\\' && parse->at[1] != '\0')
            parse->at++;
        if (*parse->at == '\0')
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: the quote at %zu has no end",
                            parse->option, parse->place);
        rks_status status = rks_buffer_add(&parse->token, parse->at++, 1, err);
        if (status != RKS_OK)
            return status;
    }
    parse->at++;
    return RKS_OK;
}

rks_status rks_condition_token(rks_condition_parser *parse, const char *stops, const char *what,
                               rks_error *err)
{
    rks_status status;
    rks_condition_skip_spaces(parse);
    parse->token.size = 0;
    parse->place = rks_condition_place(parse);
    parse->quoted = *parse->at == '"' || *parse->at == '\'';
    if (parse->quoted) {
        status = read_quoted(parse, err);
    } else {
        size_t size = strcspn(parse->at, stops);
        if (size == 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: %s expected at %zu, not \"%.20s\"",
                            parse->option, what, parse->place, parse->at);
        status = rks_buffer_add(&parse->token, parse->at, size, err);
        parse->at += size;
    }
    if (status == RKS_OK)
        status = rks_buffer_add(&parse->token, "", 1, err);
    if (status == RKS_OK)
        parse->token.size--;
    return status;
}

rks_status rks_condition_operation(rks_condition_parser *parse, rks_operation *op, rks_error *err)
{
    rks_condition_skip_spaces(parse);
    size_t size = strspn(parse->at, "=!<>");
    for (size_t i = 0; i < sizeof(OPERATIONS) / sizeof(OPERATIONS[0]); i++) {
        if (strlen(OPERATIONS[i]) == size && memcmp(OPERATIONS[i], parse->at, size) == 0) {
            *op = (rks_operation)i;
            parse->at += size;
            return RKS_OK;
        }
    }
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "%s: one of == != < <= > >= expected at %zu, not \"%.20s\"", parse->option,
                    rks_condition_place(parse), parse->at);
}

rks_status rks_condition_number(const char *text, rks_number *number, bool *good, rks_error *err)
{
    size_t digits = strspn(text, "0123456789");
    *good = true;
    if (digits > 0 && text[digits] == '\0') { /* leading zeros, which JSON has not, are taken */
        uint64_t value = 0;
        for (size_t i = 0; i < digits; i++)
            *good = *good && !__builtin_mul_overflow(value, 10u, &value) &&
                    !__builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value);
        *number = (rks_number){.kind = RKS_NUMBER_UINT, .as.u = value};
        return RKS_OK;
    }
    rks_json_parser json = {0};
    rks_json value = {0};
    rks_error why = {0};
    rks_status status =
        rks_json_read(&json, (const uint8_t *)text, strlen(text), strlen(text), &value, &why);
    if (rks_json_is(value, RKS_JSON_INTEGER))
        *number = (rks_number){.kind = RKS_NUMBER_INT, .as.i = rks_json_int(value)};
    else if (rks_json_is(value, RKS_JSON_REAL))
        *number = (rks_number){.kind = RKS_NUMBER_REAL, .as.d = rks_json_real(value)};
    else
        *good = false;
    rks_json_parser_free(&json);
    return status == RKS_OK || status == RKS_ERR_DATA
               ? RKS_OK
               : rks_fail(err, status, why.cause, "%s", why.text);
}
