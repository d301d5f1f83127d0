/* SPDX-License-Identifier: Apache-2.0
 *
 * column.h: the numbers that a dataset's index has of each sample: its length, or an index column.
 * Numbers are handled by keys: unsigned integers in the numbers' order, exact for every type. */
#ifndef RKS_TOOLS_COLUMN_H
#define RKS_TOOLS_COLUMN_H

#include <jansson.h>

#include "rankstore.h"

typedef struct cli_column {
    const char *name;
    const char *type;
    const uint8_t *data;
    const uint32_t *lengths; /* tell which samples are there at all */
    uint64_t count;
    rks_item_class item_class; /* RKS_CLASS_INT, _UINT or _FLOAT */
    uint32_t item_size;
} cli_column;

/* `name` NULL: the lengths; so is "length", where no index column has that name. On failure
 * `problem` (a line) names what could be asked for. The column is valid as long as the store. */
bool cli_column_find(rks_store *store, const char *name, cli_column *column, char *problem,
                     size_t problem_size);

enum cli_entry {
    CLI_ENTRY_NUMBER,
    CLI_ENTRY_ABSENT,    /* in a shard that is missing (--missing partial) */
    CLI_ENTRY_NOT_FINITE /* a NaN or an infinity: it has no place in a picture */
};
enum cli_entry cli_column_key(const cli_column *column, uint64_t i, uint64_t *key);

bool cli_column_is_length(const cli_column *column);
bool cli_column_is_whole(const cli_column *column);
double cli_column_number(const cli_column *column, uint64_t key);
/* As JSON: exact; integers above 2^63 - 1 as text. */
json_t *cli_column_json(const cli_column *column, uint64_t key);
/* For people: "12,345", "0.25"; into `text` (32 bytes), which is returned. */
char *cli_column_text(const cli_column *column, uint64_t key, char text[32]);
/* The same of a number that need not be in the column: an edge, a mean. */
char *cli_number_text(double number, bool whole, char text[32]);

#endif
