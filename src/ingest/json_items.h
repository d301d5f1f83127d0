/* SPDX-License-Identifier: Apache-2.0
 *
 * json_items.h: the items of a JSON array that is a file, or a member of the object that is one.
 * Memory is bounded by the largest item that is permitted, whatever the file holds.
 *
 *   [{...}, {...}]                          the array is the file
 *   {"info": ..., "data": [{...}, {...}]}   it is the member "data"
 *   {"a": {"data": [{...}, {...}]}}         it is the member "a.data"
 *
 * An item's end is where its brackets close; what is between them its own parser checks. Of members
 * that are passed over only brackets and strings are looked at. */
#ifndef RKS_INGEST_JSON_ITEMS_H
#define RKS_INGEST_JSON_ITEMS_H

#include "codec/json.h"
#include "ingest/lines.h"

enum { RKS_JSON_PATH_MOST = 16 }; /* names in a path */

typedef struct rks_json_items {
    rks_window window;
    uint64_t limit;   /* largest item */
    uint64_t stop;    /* items begin before it; the file's end: the array's end is looked at, too */
    const char *path; /* borrowed; NULL: none */
    uint32_t levels;  /* names in it */
    bool begun;       /* an item is behind us in this range, or in one before */
    bool behind;      /* an item, whose comma is not passed */
    bool closed;
    rks_json_parser names;
} rks_json_items;

/* The first bytes of a file are those of an array of objects, or of an object over many lines. */
bool rks_bytes_are_json_items(const uint8_t *bytes, size_t size);

/* From offset 0 on, or from where an item begins. `path` is a name, or names by points. Closed in
 * every case. RKS_ERR_DATA names the byte, or the members that are arrays where `path` is none. */
rks_status rks_json_items_open(rks_json_items *items, const rks_input_file *file, uint64_t offset,
                               uint64_t size, uint64_t limit, const char *path, rks_error *err);
/* As rks_lines_next(): item->text is NULL behind the last one. *position is where it begins in the
 * (unpacked) file. */
rks_status rks_json_items_next(rks_json_items *items, rks_line *item, uint64_t *position,
                               rks_error *err);
void rks_json_items_close(rks_json_items *items);

#endif
