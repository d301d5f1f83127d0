/* SPDX-License-Identifier: Apache-2.0
 *
 * stored.h: sources that are URLs of object stores. Their objects become input files, which are
 * read by ranges into memory:
 *
 *   URL ─► objects: names, sizes, versions ─► units ─► ranges of the listed version ─► parsers
 *
 * Source   "s3://bucket/a.jsonl" is an object. "s3://bucket/a" is one, or else the folder of what
 *          lies below "a/". In a pattern a part of the path that is ** stands for any number of
 *          folders, and the others are as in glob(7); a web server has none, and no folders.
 * Look     The store is asked what is there once, by one rank; the others take its listing. Later
 *          each range is read only of the version that was listed then, so what was replaced is an
 *          error.
 * Memory   What readers hold of objects, bytes sent ahead included, and samples that wait for
 *          their unit's turn are at most `input_bytes`. A reader always gets 64 KiB, and more if
 *          one value is larger; a unit that finds no room for its samples waits for its turn, with
 *          one block of them more.
 * Twice    What is read to find the format, the schema or the number of rows is kept for the reader
 *          of the unit, as far as there is room (stored_range.h). */
#ifndef RKS_INGEST_STORED_H
#define RKS_INGEST_STORED_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buffer.h"
#include "home/requests.h"
#include "ingest/file_walk.h"

static const uint64_t RKS_INPUT_BYTES = (uint64_t)256 << 20; /* the default of input_bytes */

/* A store: what lies under one scheme and host. */
typedef struct rks_stored_root {
    rks_input_store store; /* first: files have it */
    struct rks_stores *all;
    char *url; /* "s3://bucket" */
    rks_home *home;
    struct rks_stored_root *next;
} rks_stored_root;

typedef struct rks_stores {
    const char *options; /* JSON, with secrets; NULL: none; borrowed */
    const char *listing; /* of one rank, which has asked the stores; NULL: ask; borrowed */
    rks_buffer noted;    /* for such a listing: what was found */
    rks_stored_root *roots;
    rks_found_list halves; /* .idx and .bin: formats look for one by the other's name */
    uint64_t input_bytes;
    atomic_bool reads_once; /* set: what is read is not kept for another reader */
    pthread_mutex_t mutex;
    /* Guarded by the mutex. */
    int64_t left; /* bytes that readers may still take */
    struct rks_stored_range *kept;
    uint64_t kept_bytes;
} rks_stores;

/* `options` and `listing` must outlive the stores. */
rks_status rks_stores_create(const char *options, const char *listing, uint64_t input_bytes,
                             rks_stores **stores, rks_error *err);
void rks_stores_free(rks_stores *stores); /* NULL is accepted */
/* Makes `*held` bytes of samples, which count in input_bytes, to be `bytes`. Returns false, and
 * changes nothing, if there is no room. Any thread. */
bool rks_stores_hold(rks_stores *stores, uint64_t *held, uint64_t bytes);
/* Returns the store of a URL, and where the object's name begins in it. */
rks_status rks_stores_root(rks_stores *stores, const char *url, rks_stored_root **root,
                           const char **name, rks_error *err);

/* Appends the objects of the source `url`, number `source`. `asked`: the format, or NULL. *folder:
 * it is a folder, whose files have the names below it. RKS_ERR_NOT_FOUND names the URL;
 * RKS_ERR_DATA an object without a version; RKS_ERR_ARGUMENT what would be read as another thing
 * than it is. */
rks_status rks_stores_list(rks_stores *stores, const char *url, size_t source, const char *asked,
                           rks_found_list *list, bool *folder, rks_error *err);

/* Returns an object's name in its store. */
const char *rks_stored_object(const rks_input_file *file);

/* stored_listing.c: so that one rank asks the stores, and the others know what it found. `note`:
 * what the source `url` is, of the list from `from` on. `recall` appends the same; RKS_ERR_ARGUMENT
 * if the listing does not have the source. */
rks_status rks_stored_note(rks_stores *stores, const char *url, bool folder, uint64_t hidden,
                           const rks_found_list *list, size_t from, rks_error *err);
rks_status rks_stored_recall(const char *listing, const char *url, const rks_stored_root *root,
                             size_t source, rks_found_list *list, bool *folder, rks_error *err);
/* Copies the name of the format that was found; false: there is none. */
bool rks_listing_format(const char *listing, char *name, size_t room);

/* stored_match.c: returns true if the pattern, of parts between slashes, matches the name. */
bool rks_stored_matches(const char *pattern, const char *name);
/* Returns the bytes of the folders before the pattern's first part with a mark, with the slash;
 * the whole size if it has no mark. */
size_t rks_stored_plain_part(const char *pattern);

#endif
