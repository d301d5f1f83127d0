/* SPDX-License-Identifier: Apache-2.0
 *
 * sources.c: what a store's sources hold. */
#include "sources.h"

#include <string.h>

#include "value.h"

static uint64_t length_sum(const rks_store *store, const rks_source *source)
{
    const uint32_t *lengths = rks_store_sealed_lengths(store);
    uint64_t sum = 0;
    for (uint64_t id = source->first; id < source->first + source->count; id++)
        sum += lengths[id] == UINT32_MAX ? 0 : lengths[id];
    return sum;
}

void cli_print_sources(const rks_store *store)
{
    for (size_t i = 0; rks_store_sources(store) > 1 && i < rks_store_sources(store); i++) {
        rks_source source = {.struct_size = sizeof(source)};
        rks_store_source(store, i, &source, NULL);
        printf("  source %s: %s, length %s in all, %s\n", cli_shown(source.name),
               cli_counted(source.count, "sample"), cli_count(length_sum(store, &source)),
               cli_bytes(source.bytes));
    }
}

json_t *cli_sources_json(const rks_store *store)
{
    json_t *list = json_array();
    for (size_t i = 0; i < rks_store_sources(store); i++) {
        rks_source source = {.struct_size = sizeof(source)};
        rks_store_source(store, i, &source, NULL);
        json_array_append_new(list, json_pack("{s:o, s:I, s:I, s:I}", "name",
                                              cli_text_json(source.name, strlen(source.name)),
                                              "samples", (json_int_t)source.count, "length",
                                              (json_int_t)length_sum(store, &source), "bytes",
                                              (json_int_t)source.bytes));
    }
    return list;
}
