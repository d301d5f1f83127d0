/* SPDX-License-Identifier: Apache-2.0
 *
 * json_items.h: reads the items of a JSON array. The file is the array, or an object that holds the
 * array as a member. The largest permitted item bounds the memory, whatever the file holds.
 *
 *   [{...}, {...}]                          the array is the file
 *   {"info": ..., "data": [{...}, {...}]}   it is the member "data"
 *   {"a": {"data": [{...}, {...}]}}         it is the member "a.data"
 *
 * An item ends where its brackets close; its own parser checks what lies between them. In skipped
 * members only brackets and strings are followed. */
#ifndef RKS_INGEST_JSON_ITEMS_H
#define RKS_INGEST_JSON_ITEMS_H

#include "codec/json.h"
#include "ingest/lines.h"

enum { RKS_JSON_PATH_MOST = 16 }; /* names in a path */

typedef struct rks_json_items {
    rks_window window;
    uint64_t limit;   /* largest permitted item */
    uint64_t stop;    /* items start before it; at the file's end the array's end is checked */
    const char *path; /* borrowed; NULL if none */
    uint32_t levels;  /* names in the path */
    bool begun;       /* an item was read in this range or in one before */
    bool behind;      /* an item was read and its comma was not */
    bool closed;
    rks_json_parser names;
} rks_json_items;

/* Returns true if a file's first bytes are those of an array of objects, or of an object over many
 * lines. */
bool rks_bytes_are_json_items(const uint8_t *bytes, size_t size);

/* Opens the array at offset 0, or at an offset where an item starts. `path` is a name, or names
 * joined by dots. Close it also on failure. RKS_ERR_DATA names the byte, or the members that are
 * arrays if `path` is NULL and the file is an object. */
rks_status rks_json_items_open(rks_json_items *items, const rks_input_file *file, uint64_t offset,
                               uint64_t size, uint64_t limit, const char *path, rks_error *err);
/* Like rks_lines_next(): item->text is NULL after the last item. *position is where the item starts
 * in the (unpacked) file. */
rks_status rks_json_items_next(rks_json_items *items, rks_line *item, uint64_t *position,
                               rks_error *err);
void rks_json_items_close(rks_json_items *items);

#endif
