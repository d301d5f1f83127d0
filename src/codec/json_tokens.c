/* SPDX-License-Identifier: Apache-2.0
 *
 * json_tokens.c: tokens of a text that may be malformed. Each string, number, word and bracket is
 * one value or one closing word of the parser's tape, so counting both finds a token on it. */
#include "codec/json_tokens.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef struct token {
    size_t at, size;
    bool plain; /* a number or a word: neither a string nor a bracket */
} token;

static bool ends_word(uint8_t byte)
{
    return byte <= ' ' || strchr(",:[]{}\"", byte) != NULL;
}

static size_t string_size(const uint8_t *text, size_t size)
{
    size_t at = 1;
    while (at < size && text[at] != '"')
        at += text[at] == '\\' ? 2 : 1;
    return at < size ? at + 1 : size;
}

/* Finds the token after *last, which starts as {0}. Returns false at the end. */
static bool next_token(const uint8_t *text, size_t size, token *last)
{
    size_t at = last->at + last->size;
    while (at < size && (text[at] <= ' ' || text[at] == ',' || text[at] == ':'))
        at++;
    if (at == size)
        return false;
    size_t end = at + 1;
    if (text[at] == '"')
        end = at + string_size(text + at, size - at);
    else if (!ends_word(text[at]))
        while (end < size && !ends_word(text[end]))
            end++;
    *last = (token){.at = at, .size = end - at, .plain = !ends_word(text[at])};
    return true;
}

static bool special_of(const uint8_t *word, size_t size, double *value)
{
    static const struct {
        const char *name;
        double value;
    } SPECIAL[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
    for (size_t i = 0; i < sizeof(SPECIAL) / sizeof(SPECIAL[0]); i++)
        if (strlen(SPECIAL[i].name) == size && memcmp(SPECIAL[i].name, word, size) == 0) {
            *value = SPECIAL[i].value;
            return true;
        }
    return false;
}

rks_status rks_json_hide_specials(uint8_t *text, size_t size, rks_buffer *found, rks_error *err)
{
    rks_json_special special = {0};
    token at = {0};
    rks_status status = RKS_OK;
    for (; status == RKS_OK && next_token(text, size, &at); special.word++)
        if (at.plain && special_of(text + at.at, at.size, &special.value)) {
            memset(text + at.at, '0', at.size);
            text[at.at + 1] = '.';
            status = rks_buffer_add(found, &special, sizeof(special), err);
        }
    return status;
}

void rks_json_restore_specials(uint64_t *tape, const rks_buffer *found)
{
    const rks_json_special *specials = (const rks_json_special *)(const void *)found->data;
    size_t count = found->size / sizeof(*specials), at = 1; /* after the root's word */
    uint64_t word = 0;
    for (size_t i = 0; i < count; i++) {
        for (; word < specials[i].word; word++) {
            uint64_t type = tape[at] >> 56;
            at += type == 'l' || type == 'u' || type == 'd' ? 2 : 1;
        }
        memcpy(&tape[at + 1], &specials[i].value, sizeof(tape[at + 1]));
    }
}

/* Returns true for digits, with or without a minus, whose number 64 bits do not hold. */
static bool is_large_integer(const uint8_t *word, size_t size)
{
    bool minus = word[0] == '-', large = false;
    uint64_t value = 0;
    for (size_t i = minus; i < size; i++) {
        if (word[i] < '0' || word[i] > '9')
            return false;
        large = large || __builtin_mul_overflow(value, 10u, &value) ||
                __builtin_add_overflow(value, (uint64_t)(word[i] - '0'), &value);
    }
    return large || (minus && value > (uint64_t)INT64_MAX + 1);
}

const uint8_t *rks_json_large_integer(const uint8_t *text, size_t size, size_t *digits)
{
    token at = {0};
    while (next_token(text, size, &at))
        if (at.plain && is_large_integer(text + at.at, at.size)) {
            *digits = at.size;
            return text + at.at;
        }
    return NULL;
}
